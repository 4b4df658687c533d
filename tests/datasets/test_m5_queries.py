"""What is asked of the retail panel, and the simulator's answers: stored ones, and those of `whatif --truth`."""

import time
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from costar_cli.data import Dataset, Queries
from costar_cli.data.retail.m5 import simulate_m5
from costar_cli.data.retail.settings import RetailConfig
from costar_cli.data.retail.truth import WorldSeed, counterfactual_queries, m5_truth
from costar_cli.data.store import read_dataset, write_dataset
from costar_cli.errors import DataError, UsageError
from costar_cli.evaluation.score import serving_sets, truth_of
from costar_cli.plans import TreatmentPlan
from costar_cli.questions.truth import truth_known
from costar_cli.reporting import NullReporter
from tests.datasets.m5_worlds import LIMITS, SCALE, SOURCE_TEST, SOURCE_TRAIN, TARGET_TEST, dataset, weekly

TESTS = [SOURCE_TEST, TARGET_TEST]


def classes_of(queries: Queries) -> np.ndarray:
    """The price class of each planned week `[Q,tau]`."""
    return queries.plan.argmax(axis=-1)


def answers(data: Dataset, part, queries: Queries) -> np.ndarray:
    return m5_truth(data, part, queries.subject, queries.origin, classes_of(queries)[..., None])


def test_factual_queries_are_all_origins_with_six_further_weeks():
    data = dataset()
    for part in TESTS:
        panel, queries = data.panels[part], data.queries[part]["rolling_origin"]
        assert len(queries) == (panel.length - 6).sum()
        assert queries.scored is not None
        assert queries.scored.all()
        assert truth_of(panel, queries) == "factual"
        assert (queries.origin + 6 <= panel.length[queries.subject] - 1).all()
        at = 7
        row, origin = queries.subject[at], queries.origin[at]
        assert np.array_equal(queries.outcomes[at], panel.outcomes[row, origin + 1 : origin + 7])
    assert [name for part, sets in data.queries.items() for name in sets if part.split != "test"] == []


def test_counterfactual_queries_are_as_many_as_the_settings_say():
    data = dataset(origins=5, classes=4, random_plans=3, constant_plans=2)
    for part in TESTS:
        panel, sets = data.panels[part], data.queries[part]
        assert {name: len(queries) for name, queries in sets.items() if name != "rolling_origin"} == {
            "one_step": panel.n_subjects * 5 * 4,
            "sequence": panel.n_subjects * 5 * 5,
        }
        one_step = classes_of(sets["one_step"]).reshape(-1, 4)
        origin = sets["one_step"].origin.reshape(-1, 4)[:, 0]
        subject = sets["one_step"].subject.reshape(-1, 4)[:, 0]
        assert all(len(set(asked)) == 4 for asked in one_step.tolist()), "different classes"
        factual = panel.treatments[subject, origin].argmax(axis=-1)
        assert (one_step != factual[:, None]).all(), "other than the one that the week had"
        assert one_step.max() == 20
        assert len(np.unique(subject * 100 + origin)) == len(origin), "different origins"
        assert (origin + 6 <= panel.length[subject] - 1).all()
        assert np.array_equal(sets["sequence"].origin.reshape(-1, 5)[:, 0], origin), "the same ones for plans"


def test_plans_begin_as_it_was_and_then_vary_or_stay():
    data = dataset()
    for part in TESTS:
        panel, queries = data.panels[part], data.queries[part]["sequence"]
        plan, subject, origin = classes_of(queries), queries.subject, queries.origin
        assert np.array_equal(queries.plan[:, 0], panel.treatments[subject, origin])
        assert np.array_equal(queries.outcomes[:, 0], panel.outcomes[subject, origin + 1])
        assert queries.scored is not None
        assert not queries.scored[:, 0].any()
        assert queries.scored[:, 1:].all()
        per_origin = plan.reshape(-1, 6, 6)
        constant = (np.diff(per_origin[:, :, 1:], axis=-1) == 0).all(axis=-1)
        assert constant[:, 4:].all(), "two plans keep one class"
        assert (per_origin[:, 4:, 1] != per_origin[:, 4:, 0]).all()
        assert constant[:, :4].mean() < 0.01, "four change it every week"
        share = np.bincount(per_origin[:, :4, 1:].ravel(), minlength=22) / per_origin[:, :4, 1:].size
        assert share[:21] == pytest.approx([1 / 21] * 21, rel=0.2), "all usable classes alike"
        assert share[21] == 0


def test_each_step_is_served_by_one_set_for_each_kind_of_truth():
    data = dataset()
    serving = serving_sets(data.panels[TARGET_TEST], data.queries[TARGET_TEST], data.horizon)
    assert {kind: {name: steps.tolist() for name, steps in sets.items()} for kind, sets in serving.items()} == {
        "counterfactual": {"one_step": [True], "sequence": [False, *[True] * 5]},
        "factual": {"rolling_origin": [True] * 6},
    }


def test_a_smaller_test_part_asks_its_subjects_the_same():
    panel = dataset().panels[TARGET_TEST]

    def asked(n: int) -> dict[str, Queries]:
        few = panel.take(np.arange(n))
        config = RetailConfig(origins=3)
        return counterfactual_queries(few, lambda _, __, plan: plan * 0.0, config, np.random.default_rng(5), usable=21)

    few, many = asked(10), asked(panel.n_subjects)
    for name, queries in few.items():
        same = many[name].take(np.arange(len(queries)))
        assert np.array_equal(queries.subject, same.subject)
        assert np.array_equal(queries.origin, same.origin)
        assert np.array_equal(queries.plan, same.plan)


def test_truth_equals_every_stored_answer():
    data = dataset()
    for part in TESTS:
        for queries in data.queries[part].values():
            assert np.array_equal(answers(data, part, queries), queries.outcomes[..., 0])


def test_truth_of_the_factual_plan_is_the_factual_series():
    data = dataset()
    for part, panel in data.panels.items():
        row, step = np.nonzero(np.arange(panel.n_steps) < panel.length[:, None] - 1)
        given = panel.treatments[row, step].argmax(axis=-1)
        units = m5_truth(data, part, row, step, given[:, None, None])
        assert np.array_equal(units[:, 0], panel.outcomes[row, step + 1, 0])


def test_a_lower_price_never_sells_less():
    data, panel = dataset(), dataset().panels[TARGET_TEST]
    change = np.array(WorldSeed.model_validate(data.config["world"]).change)
    cheapest_first = np.argsort(change)
    rng = np.random.default_rng(0)
    row = rng.integers(panel.n_subjects, size=300)
    origin = (rng.random(300) * (panel.length[row] - 1)).astype(int)
    given = panel.treatments[row, origin].argmax(axis=-1)
    units = np.stack([m5_truth(data, TARGET_TEST, row, origin, np.full((300, 1, 1), k)) for k in cheapest_first])
    others = np.stack([units[cheapest_first != g, i] for i, g in enumerate(given)], axis=1)  # it has its own price
    assert (np.diff(others[:, :, 0], axis=0) <= 0).all()
    assert others[0].mean() > 1.5 * others[-1].mean()


def test_plans_may_reach_beyond_the_year():
    """The last origin is answerable: prices stay relative to the subject's first week, also in the next year."""
    data, panel = dataset(), dataset().panels[TARGET_TEST]
    last = panel.length - 1
    rows = np.arange(panel.n_subjects)
    units = m5_truth(data, TARGET_TEST, rows, last, np.zeros((panel.n_subjects, 6, 1)))
    assert units.shape == (panel.n_subjects, 6)
    sales = weekly()
    place = {name: values.astype(int) for name, values in data.truth[TARGET_TEST].items()}
    names = np.array([name.split("/")[0] for name in panel.names])
    item_store = np.array([np.flatnonzero(sales.item_store_name == name)[0] for name in names])
    first = place["first_week"]
    unchanged = sales.price[item_store, first + last + 1] == sales.price[item_store, first]
    assert 0.2 < unchanged.mean() < 1
    assert np.array_equal(units[unchanged, 0], sales.units[item_store, first + last + 1][unchanged])


def test_one_answer_is_quick_and_the_same_from_a_file(tmp_path):
    write_dataset(tmp_path / "data.h5", dataset())
    data = read_dataset(tmp_path / "data.h5", queries=False)
    plan = TreatmentPlan("cut", np.full((6, 1), 2))
    start = time.process_time()
    units = truth_known(data, TARGET_TEST)(data, TARGET_TEST, 4, 20, plan.values)
    assert time.process_time() - start < 5
    assert units.shape == (6,)
    assert np.array_equal(units, m5_truth(dataset(), TARGET_TEST, 4, 20, plan.values))


def test_questions_without_an_answer_are_errors():
    data = dataset()
    last = int(data.panels[TARGET_TEST].length[0]) - 1
    with pytest.raises(UsageError, match="class `unused`"):
        m5_truth(data, TARGET_TEST, 0, 3, np.full((2, 1), 21))
    with pytest.raises(UsageError, match="outside the series") as error:
        m5_truth(data, TARGET_TEST, 0, last + 1, np.zeros((1, 1)))
    assert error.value.fix == f"choose an origin from 0 to {last}"
    with pytest.raises(UsageError, match="weeks end before the plan"):
        m5_truth(data, TARGET_TEST, 0, last, np.zeros((300, 1)))
    with pytest.raises(UsageError, match="rows of target/test"):
        m5_truth(data, TARGET_TEST, 10_000, 3, np.zeros((1, 1)))
    with pytest.raises(UsageError, match="no simulated truth"):
        m5_truth(replace(data, truth={}), TARGET_TEST, 0, 3, np.zeros((1, 1)))


def test_a_world_that_is_no_longer_the_same_is_noticed():
    data = dataset()
    other = {**data.config, "world": {**data.config["world"], "seed": 11}}
    with pytest.raises(DataError, match="has other sales than the data set records"):
        m5_truth(replace(data, config=other), TARGET_TEST, 0, 3, np.zeros((1, 1)))
    broken = {**data.config, "world": {**data.config["world"], "change": [0.0]}}
    with pytest.raises(DataError, match="not as costar wrote it"):
        m5_truth(replace(data, config=broken), TARGET_TEST, 0, 3, np.zeros((1, 1)))
    place = {**data.truth[TARGET_TEST], "number": data.truth[TARGET_TEST]["number"] + 10**6}
    with pytest.raises(DataError, match="not as costar wrote it"):
        m5_truth(replace(data, truth={TARGET_TEST: place}), TARGET_TEST, 0, 3, np.zeros((1, 1)))
    early = {**data.truth[SOURCE_TRAIN], "first_week": np.zeros_like(data.truth[SOURCE_TRAIN]["first_week"])}
    late = int(np.argmax(data.truth[SOURCE_TRAIN]["first_week"]))
    with pytest.raises(DataError, match="has other sales"):
        m5_truth(replace(data, truth={SOURCE_TRAIN: early}), SOURCE_TRAIN, late, 3, np.zeros((1, 1)))


def test_answers_of_a_world_whose_prices_follow_recorded_sales_are_met_again(tmp_path):
    config = RetailConfig(**{"scale": SCALE, **LIMITS, "confounding": "observed"})
    path = tmp_path / "data.h5"
    write_dataset(path, simulate_m5(config, NullReporter()))
    data = read_dataset(path)
    assert data.config["confounding"] == data.config["world"]["confounding"] == "observed"
    for part in TESTS:
        for name in ("one_step", "sequence"):
            queries = data.queries[part][name]
            assert np.array_equal(answers(data, part, queries), queries.outcomes[..., 0])


def test_confounding_is_a_number_or_observed():
    assert RetailConfig().model_dump(mode="json")["confounding"] == 1.0
    for wrong in (-1.0, 11.0, "latent"):
        with pytest.raises(ValidationError):
            RetailConfig(confounding=wrong)


def test_confounded_prices_follow_demand_and_random_ones_do_not():
    """`confounding` is what makes a naive comparison of prices wrong."""
    from costar_cli.data.retail.m5 import simulate_world

    def sway(confounding: float) -> float:
        world = simulate_world(RetailConfig(scale=0.02, confounding=confounding, seed=4), NullReporter())
        step = np.diff(np.log(world.price), axis=-1)
        changed = np.isfinite(step) & (step != 0.0)
        return float(np.corrcoef(np.sign(step[changed]), world.state[..., :-1][changed])[0, 1])

    assert sway(3.0) > 0.1 > abs(sway(0.0))
