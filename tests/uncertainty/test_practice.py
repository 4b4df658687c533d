"""The model of practice: right probabilities that sum to one and know nothing of the future (spec SUPPORT-1 to 3)."""

import tracemalloc
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from costar_cli.data import Dataset, Panel, PanelSchema, Queries, Scaler, TreatmentEncoding, Variable
from costar_cli.data.windows import factual_windows
from costar_cli.inference.propensity import PropensityModel, decisions_of
from tests.methods.linear_worlds import linear_data, random_panel

SCHEMA = PanelSchema(
    treatments=TreatmentEncoding(
        mode="multiclass",
        names=("dose", "drug"),
        levels=(("none", "low", "high"), ("off", "on")),
        classes=tuple(product(range(3), range(2))),
    ),
    outcomes=(Variable(name="y"),),
    covariates=(Variable(name="x"),),
    statics=(Variable(name="v"),),
)


@pytest.fixture(scope="module")
def random_world() -> tuple[Panel, PropensityModel]:
    panel = random_panel(SCHEMA, 60, 9)
    practice = PropensityModel.fit(panel, SCHEMA, Scaler.fit(panel, SCHEMA))
    assert practice is not None
    return panel, practice


@pytest.fixture(scope="module")
def linear() -> tuple[Dataset, PropensityModel]:
    dataset = linear_data()
    train = dataset.panel("source", "train")
    practice = PropensityModel.fit(train, dataset.schema, Scaler.fit(train, dataset.schema))
    assert practice is not None
    return dataset, practice


def nothing(queries: Queries, outcomes: int = 1) -> np.ndarray:
    return np.zeros((len(queries), queries.horizon, outcomes))


def test_probabilities_are_those_with_which_the_world_treats(linear: tuple[Dataset, PropensityModel]) -> None:
    dataset, practice = linear
    panel = dataset.panel("source", "test")
    queries = decisions_of(panel, most=10_000)
    given = np.exp(practice.log_probability(panel, queries, nothing(queries))[:, 0])
    (true_NT,) = dataset.truth[("source", "test")].values()
    true = true_NT[queries.subject, queries.origin]
    true = np.where(queries.plan[:, 0, 0] == 1, true, 1 - true)
    assert true.std() > 0.15
    assert np.abs(given - true).mean() < 0.04


def test_expected_shares_are_those_observed(linear: tuple[Dataset, PropensityModel]) -> None:
    dataset, practice = linear
    panel = dataset.panel("source", "test")
    expected_MA, given_MA = practice.expected(panel, decisions_of(panel, most=10_000))
    rows = np.argsort(expected_MA[:, 0])
    for part in np.array_split(rows, 4):
        assert expected_MA[part].mean() == pytest.approx(given_MA[part].mean(), abs=0.13)


def test_probabilities_of_all_treatments_of_a_step_sum_to_one(random_world: tuple[Panel, PropensityModel]) -> None:
    panel, practice = random_world
    totals = np.zeros((panel.n_subjects, 1))
    for column in range(SCHEMA.treatments.width):
        plan = np.tile(np.eye(SCHEMA.treatments.width, dtype=np.uint8)[column], (panel.n_subjects, 1, 1))
        queries = Queries(np.arange(panel.n_subjects, dtype=np.int32), np.zeros(panel.n_subjects, np.int16), plan)
        totals += np.exp(practice.log_probability(panel, queries, nothing(queries)))
    np.testing.assert_allclose(totals, 1)


def test_a_course_that_comes_as_predicted_has_the_probabilities_of_its_decisions(tumor_dataset: Dataset) -> None:
    train = tumor_dataset.panel("source", "train")
    practice = PropensityModel.fit(train, tumor_dataset.schema, Scaler.fit(train, tumor_dataset.schema))
    windows = factual_windows(tumor_dataset.panel("source", "val"), 4)
    together = practice.log_probability(windows.panel, windows.asked, windows.queries.outcomes)
    for h in range(4):
        step = replace(windows.asked, origin=windows.asked.origin + np.int16(h), plan=windows.asked.plan[:, h : h + 1])
        alone = practice.log_probability(windows.panel, step, nothing(step))
        np.testing.assert_allclose(together[:, h : h + 1], alone, atol=1e-4)


def test_nothing_after_the_origin_and_no_later_step_matters(random_world: tuple[Panel, PropensityModel]) -> None:
    panel, practice = random_world
    width = SCHEMA.treatments.width
    plan = np.eye(width, dtype=np.uint8)[np.random.default_rng(0).integers(width, size=(60, 3))]
    queries = Queries(np.arange(60, dtype=np.int32), np.ones(60, np.int16), plan)
    predicted = np.random.default_rng(1).normal(5, 2, (60, 3, 1))
    before = practice.log_probability(panel, queries, predicted)
    later = panel.observed[..., None] & (np.arange(panel.n_steps)[:, None] > 1)
    changed = replace(panel, outcomes=panel.outcomes + 3 * later, covariates=panel.covariates - 2 * later)
    np.testing.assert_array_equal(practice.log_probability(changed, queries, predicted), before)
    predicted[:, 1:] += 5
    plan = plan.copy()
    plan[:, 2] = plan[:, 2, ::-1]
    after = practice.log_probability(panel, replace(queries, plan=plan), predicted)
    np.testing.assert_array_equal(after[:, :2], before[:, :2])
    assert (after[:, 2] != before[:, 2]).all()


def test_a_treatment_that_nobody_received_is_all_but_never_likely() -> None:
    panel = random_panel(SCHEMA, 60, 9)
    never = panel.treatments[..., 4:].any(axis=-1)  # the high dose
    none = np.eye(6, dtype=np.float32)[0]
    panel = replace(panel, treatments=np.where(never[..., None], none, panel.treatments))
    practice = PropensityModel.fit(panel, SCHEMA, Scaler.fit(panel, SCHEMA))
    high = np.tile(np.eye(6, dtype=np.uint8)[4], (60, 1, 1))
    queries = Queries(np.arange(60, dtype=np.int32), np.zeros(60, np.int16), high)
    assert np.exp(practice.log_probability(panel, queries, nothing(queries))).max() < 0.005


def test_long_horizons_are_answered_in_parts(random_world: tuple[Panel, PropensityModel], monkeypatch) -> None:
    panel, practice = random_world
    plan = np.tile(np.eye(SCHEMA.treatments.width, dtype=np.uint8)[0], (1_200, 60, 1))
    queries = Queries(np.arange(1_200, dtype=np.int32) % 60, np.ones(1_200, np.int16), plan)
    whole = practice.log_probability(panel, queries, nothing(queries))
    monkeypatch.setattr("costar_cli.inference.propensity.CHUNK", 50_000)
    tracemalloc.start()
    in_parts = practice.log_probability(panel, queries, nothing(queries))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_allclose(in_parts, whole, rtol=1e-12)
    assert peak < 5e6


def test_decisions_before_a_part_of_time_begins_are_history(random_world: tuple[Panel, PropensityModel]) -> None:
    panel = replace(random_world[0], since=np.full(60, 4))
    queries = decisions_of(panel, most=10_000)
    assert queries is not None
    assert sorted(set(queries.origin.tolist())) == list(range(3, panel.length.max() - 1))
    assert decisions_of(replace(panel, since=panel.length), most=10_000) is None


def test_numbers_that_do_not_fit_are_refused(random_world: tuple[Panel, PropensityModel]) -> None:
    _, practice = random_world
    practice.check(SCHEMA)
    with pytest.raises(ValueError, match="shapes"):
        replace(practice, coef_LP=practice.coef_LP[:, 1:]).check(SCHEMA)
    with pytest.raises(ValueError, match="not finite"):
        replace(practice, intercept_L=practice.intercept_L * np.nan).check(SCHEMA)
