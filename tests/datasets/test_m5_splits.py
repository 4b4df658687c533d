"""Splits of the retail panel by item, scaling from source-train, seeds, and the way to a file and back."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from costar_cli.data import Part, Scaler
from costar_cli.data.retail.m5 import RetailParts, retail_dataset, split_items
from costar_cli.data.retail.settings import M5Config, RetailConfig
from costar_cli.data.store import read_dataset, write_dataset
from costar_cli.errors import DataError
from costar_cli.reporting import NullReporter
from tests.datasets.m5_worlds import LIMITS, SCALE, SOURCE_TRAIN, TARGET_TEST, dataset, weekly, world


def test_parts_share_no_item():
    """Spec RETAIL-9."""
    data = dataset()
    items = {part: set(panel.cluster.tolist()) for part, panel in data.panels.items()}
    assert sum(map(len, items.values())) == len(set().union(*items.values()))
    assert data.config["items"] == {str(part): len(of_part) for part, of_part in items.items()}
    categories = {part.domain: {label.split("_")[0] for label in data.panels[part].names} for part in data.panels}
    assert categories == {"source": {"FOODS"}, "target": {"HOUSEHOLD"}}


def test_shares_of_the_full_catalogue_are_those_of_the_paper_but_for_a_source_test_of_its_own():
    """Spec RETAIL-9: the target has 524 / 105 / 418 items, 104 of the latter for few-shot."""
    names = [f"FOODS_1_{i:04d}" for i in range(1437)] + [f"HOUSEHOLD_1_{i:04d}" for i in range(1047)]
    many = replace(weekly(), item_id=np.array(names), department=np.array([0] * 1437 + [5] * 1047))
    parts = split_items(many, np.arange(2484), M5Config())
    assert [len(items) for items in parts.values()] == [1163, 130, 144, 104, 105, 524]
    assert len(np.unique(np.concatenate(list(parts.values())))) == 1437 + 104 + 105 + 524


def test_limits_keep_some_of_the_items_of_a_part():
    sales, items = weekly(), np.arange(56)
    whole = split_items(sales, items, M5Config())
    few = split_items(sales, items, M5Config(train_items=3, target_test_items=2))
    assert {str(part): len(of_part) for part, of_part in few.items()} == {
        **{str(part): len(of_part) for part, of_part in whole.items()},
        "source/train": 3,
        "target/test": 2,
    }
    assert all(set(few[part].tolist()) <= set(whole[part].tolist()) for part in whole)


def test_the_few_shot_draw_has_a_seed_of_its_own():
    sales, items = weekly(), np.arange(56)
    drawn = [split_items(sales, items, M5Config(few_shot=0.2, few_shot_seed=seed)) for seed in (1, 2)]
    few = Part("target", "train")
    assert drawn[0][few].tolist() != drawn[1][few].tolist()
    assert all(np.array_equal(drawn[0][part], drawn[1][part]) for part in drawn[0] if part != few)
    again = split_items(sales, items, M5Config(few_shot=0.2, seed=11))
    assert again[TARGET_TEST].tolist() != drawn[0][TARGET_TEST].tolist()


def test_any_two_categories_can_be_source_and_target():
    data = dataset(source_category="HOBBIES", target_category="FOODS")
    assert data.panels[SOURCE_TRAIN].names[0].startswith("HOBBIES")
    assert data.panels[TARGET_TEST].names[0].startswith("FOODS")
    with pytest.raises(ValidationError, match="both FOODS"):
        M5Config(target_category="FOODS")
    with pytest.raises(ValidationError, match="no plans to score"):
        RetailConfig(random_plans=0, constant_plans=0)


def test_too_few_items_are_an_error_that_names_the_domain():
    with pytest.raises(DataError, match=r"2 items of HOUSEHOLD .* target needs three") as error:
        split_items(weekly(), np.array([0, 1, 2, 3, 40, 41]), M5Config())
    assert error.value.where == "--target-category"


def test_changing_target_data_changes_no_scaled_source_array():
    """Spec PANEL-8: other sales of the target change neither the source's arrays nor what scales them."""
    sales, config = weekly(), M5Config(**LIMITS)
    household = (sales.category == 2)[sales.item]
    other = replace(sales, units=np.where(household[:, None], 50 * sales.units + 3, sales.units))
    panels = [RetailParts.of(x, config, NullReporter()).panels(NullReporter()) for x in (sales, other)]
    schema = dataset().schema
    scalers = [Scaler.fit(x[SOURCE_TRAIN], schema) for x in panels]
    for name in ("covariates", "outcomes", "statics"):
        assert np.array_equal(getattr(scalers[0], name), getattr(scalers[1], name))
    assert np.array_equal(panels[0][SOURCE_TRAIN].outcomes, panels[1][SOURCE_TRAIN].outcomes)
    assert not np.array_equal(panels[0][TARGET_TEST].outcomes, panels[1][TARGET_TEST].outcomes)
    assert scalers[0].covariates[1, 34] != 1.0, "SNAP days are standardised"
    assert (np.delete(scalers[0].covariates, 34, axis=1) == [[0.0], [1.0]]).all(), "and nothing else is"


def test_a_data_set_reads_back_as_it_was_written(tmp_path):
    data = dataset()
    write_dataset(tmp_path / "data.h5", data)
    back = read_dataset(tmp_path / "data.h5")
    assert (back.schema, back.horizon, back.config) == (data.schema, data.horizon, data.config)
    for part, panel in data.panels.items():
        for name in ("covariates", "treatments", "outcomes", "statics", "length", "subject_id", "label", "cluster"):
            assert np.array_equal(getattr(back.panels[part], name), getattr(panel, name))
        for name, queries in data.queries.get(part, {}).items():
            assert np.array_equal(back.queries[part][name].plan, queries.plan)
    assert (tmp_path / "data.h5").stat().st_size < 3e6


def test_the_same_seed_gives_the_same_data_set_and_another_seed_others():
    again = retail_dataset(world(), RetailConfig(scale=SCALE, **LIMITS), NullReporter())
    other = dataset(seed=11)
    for part, panel in dataset().panels.items():
        assert np.array_equal(again.panels[part].subject_id, panel.subject_id)
        for name, queries in dataset().queries.get(part, {}).items():
            assert np.array_equal(again.queries[part][name].plan, queries.plan)
            assert np.array_equal(again.queries[part][name].outcomes, queries.outcomes)
    assert set(other.panels[TARGET_TEST].names) != set(dataset().panels[TARGET_TEST].names)
