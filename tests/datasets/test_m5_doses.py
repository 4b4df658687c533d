"""Retail prices as doses: the same series and questions as with classes, and the simulator's answers to any price."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costar_cli.data.retail.sequences import PriceTreatment, YearSequences
from costar_cli.data.retail.settings import M5Config
from costar_cli.data.retail.truth import WorldSeed, m5_truth
from costar_cli.data.store import read_dataset, write_dataset
from costar_cli.errors import DataError, UsageError
from costar_cli.evaluation.published import is_published_data
from simulators.retail import PriceClasses
from tests.datasets.m5_worlds import SOURCE_TRAIN, TARGET_TEST, dataset, export, ingested, weekly


def test_the_default_is_kept_as_it_was_before_there_were_doses() -> None:
    assert "price" not in M5Config().model_dump(mode="json")
    assert M5Config(price="dose").model_dump(mode="json")["price"] == "dose"


def test_a_dose_is_the_price_change_that_the_class_was_cut_from() -> None:
    dosed, classed = dataset(price="dose"), dataset()
    (dose,) = dosed.schema.treatments.doses
    assert (dose.name, dose.basis, dose.levels) == ("price_change", "log1p", ())
    world = WorldSeed.model_validate(classed.config["world"])
    for part, panel in dosed.panels.items():
        other = classed.panels[part]
        assert np.array_equal(panel.outcomes, other.outcomes)
        assert np.array_equal(panel.covariates, other.covariates)
        change = dosed.schema.treatments.decode(panel.treatments[panel.decided])[:, 0]
        given = other.treatments[other.decided].argmax(axis=-1)
        inner = np.abs(change[:, None] - np.array(world.edges)).min(axis=1) > 1e-5  # six digits may cross an edge
        assert np.array_equal(world.classes.classify(change[inner]), given[inner])
        assert ((change != 0) == (given != 0)).all()
    change = dosed.schema.treatments.decode(dosed.panels[SOURCE_TRAIN].treatments)
    assert (dose.low, dose.high) == pytest.approx((change.min(), change.max()), rel=1e-5)


def test_models_of_doses_are_asked_the_same_as_models_of_classes() -> None:
    dosed, classed = dataset(price="dose"), dataset()
    for name in ("one_step", "sequence"):
        of, other = (data.queries[TARGET_TEST][name] for data in (dosed, classed))
        assert np.array_equal(of.subject, other.subject)
        assert np.array_equal(of.origin, other.origin)
        assert np.array_equal(of.scored, other.scored)
        assert (of.outcomes == other.outcomes).mean() > 0.999, "but for the seventh digit of a price"


def test_truth_meets_what_is_stored_and_the_factual_series(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data.h5", dataset(price="dose"))
    data = read_dataset(tmp_path / "data.h5")
    encoding, panel = data.schema.treatments, data.panels[TARGET_TEST]
    for queries in data.queries[TARGET_TEST].values():
        found = m5_truth(data, TARGET_TEST, queries.subject, queries.origin, encoding.decode(queries.plan))
        assert np.array_equal(found, queries.outcomes[..., 0])
    row, step = np.nonzero(panel.decided)
    units = m5_truth(data, TARGET_TEST, row, step, encoding.decode(panel.treatments[row, step])[:, None])
    assert np.array_equal(units[:, 0], panel.outcomes[row, step + 1, 0])


def test_any_lower_price_sells_no_less_and_no_price_is_given_away() -> None:
    data = dataset(price="dose")
    rows, doses = np.arange(100), (-0.4, -0.123, 0.0, 0.05, 0.31)
    units = np.stack([m5_truth(data, TARGET_TEST, rows, 5, np.full((100, 6, 1), dose)) for dose in doses])
    assert (np.diff(units, axis=0) <= 0).all()
    assert units[0].mean() > 1.3 * units[-1].mean()
    with pytest.raises(UsageError, match="lower by 100 % or more"):
        m5_truth(data, TARGET_TEST, 0, 5, np.full((6, 1), -1.0))


def test_ingested_files_give_the_same_doses_as_the_world(tmp_path: Path) -> None:
    data, embedded = ingested(export(tmp_path), price="dose"), dataset(price="dose")
    assert data.schema == embedded.schema
    for part, panel in data.panels.items():
        assert np.array_equal(panel.treatments, embedded.panels[part].treatments)
    assert not is_published_data("m5", {**data.config, "embedded": False})


def test_prices_that_never_change_make_no_dose() -> None:
    sequences = YearSequences.of(weekly())
    still = replace(sequences, change=np.zeros_like(sequences.change))
    with pytest.raises(DataError, match="no dose: it is always 0") as error:
        PriceTreatment.of(PriceClasses.of(sequences.change), still, dose=True)
    assert error.value.fix == "use more items, or --price classes"


def test_changes_beyond_what_a_price_can_be_count_as_none() -> None:
    data = dataset(price="dose")
    classes = WorldSeed.model_validate(data.config["world"]).classes
    prices = PriceTreatment(classes, data.schema.treatments)
    asked = np.array([-0.9999, 9.5, 0.25])
    assert prices.encode(asked)[:2].tolist() == [[0.0], [0.0]]
    assert prices.change(asked, np.array([0.0, 0.0, 0.25])).tolist() == asked.tolist(), "factual plans, factual sales"
