"""Tumours seen on random days: what is seen, what plans at other days lead to, and data of every day as they were."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from costar_cli.data import Dataset, Part
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import VISIT_DAY, simulate_tumor, tumor_truth
from costar_cli.data.visits import elapsed
from costar_cli.errors import UsageError
from costar_cli.evaluation.limit import known_limit
from costar_cli.files.digest import canonical_json
from costar_cli.reporting import NullReporter
from simulators import tumor

SIZES = {"train": 30, "val": 5, "test": 8, "target_train": 5, "target_val": 5, "target_test": 8, "horizon": 3}
TEST = Part("target", "test")


def simulate(**more: Any) -> Dataset:
    return simulate_tumor(TumorConfig(**(SIZES | more)), NullReporter())


@pytest.fixture(scope="module")
def data() -> Dataset:
    return simulate(visits=4)


def test_visits_are_random_days_of_the_daily_world(data: Dataset):
    panel, day_NK = data.panels[TEST], data.truth[TEST][VISIT_DAY]
    gap_NT = elapsed(data.schema.treatments, panel.treatments)
    for gap_T, day_K, length in zip(gap_NT, day_NK, panel.length, strict=True):
        np.testing.assert_array_equal(gap_T[: length - 1], np.diff(day_K[:length]))
    assert set(np.unique(np.diff(day_NK, axis=1))) == set(range(1, 8))
    assert panel.calendar is not None
    first, second = panel.calendar.at(np.zeros(2, int), np.arange(2), np.full(2, panel.length[0]))
    assert first == np.datetime64("2024-01-01")
    assert (second - first).astype("m8[D]").astype(int) == day_NK[0, 1]


def test_what_is_seen_is_the_simulation_of_every_day_with_treatment_at_visits_alone(data: Dataset):
    panel, truth = data.panels[TEST], data.truth[TEST]
    patients = tumor.TumorPatients(**{field.name: truth[field.name] for field in fields(tumor.TumorPatients)})
    noise = tumor.TumorNoise(truth["growth_noise"], truth["recovery_uniform"])
    given = data.schema.treatments.decode(panel.treatments)[..., :2].astype(bool)
    for row in range(panel.n_subjects):
        days, length = truth[VISIT_DAY][row, : panel.length[row]], panel.length[row]
        course = np.zeros((1, days[-1], 2), dtype=bool)
        course[0, days[:-1]] = given[row, : length - 1]
        first = tumor.TumorFactual(patients.initial_volume_cm3[:, None], np.zeros((8, 1, 2), bool), np.ones(8, int))
        volume = tumor.answer_plan(patients, noise, first, np.array([row]), np.array([0]), course)[0]
        np.testing.assert_allclose(panel.outcomes[row, 1:length, 0], volume[days[1:] - 1], rtol=1e-6)


@pytest.mark.parametrize("name", ["one_step", "sequence"])
@pytest.mark.parametrize("plans", ["sliding", "random"])
def test_stored_answers_are_the_truth_of_their_plans(name: str, plans: str):
    data = simulate(visits=3, plans=plans)
    queries = data.queries[TEST][name]
    asked = data.schema.treatments.decode(queries.plan)
    found = tumor_truth(data, TEST, queries.subject, queries.origin, asked)
    np.testing.assert_allclose(found, queries.outcomes[..., 0], rtol=1e-6)
    at_QH = queries.origin[:, None] + np.arange(queries.horizon + 1)
    day_QH = data.truth[TEST][VISIT_DAY][queries.subject[:, None], at_QH]
    np.testing.assert_array_equal(asked[..., 2], np.diff(day_QH, axis=1))


def test_a_course_seen_in_other_parts_is_the_same_course(data: Dataset):
    """One visit after seven days, or two after three and four without a treatment at the first of them."""
    once = tumor_truth(data, TEST, 0, 1, [[1, 0, 7], [0, 1, 2]])
    parts = tumor_truth(data, TEST, 0, 1, [[1, 0, 3], [0, 0, 4], [0, 1, 2]])
    np.testing.assert_array_equal(once, parts[1:])


def test_an_end_is_seen_at_the_first_visit_after_it():
    data = simulate(visits=5, target_test=200, seed=3)
    panel = data.panels[TEST]
    last = panel.outcomes[np.arange(200), panel.length - 1, 0]
    gone = last == 0
    assert gone.any()
    before = panel.outcomes[np.arange(200), np.maximum(panel.length - 2, 0), 0]
    assert (before[gone & (panel.length > 1)] > 0).all()


def test_treatment_follows_what_was_seen_alone():
    """Whatever happened between visits: the policy of the source reads the diameters of recent visits."""
    many, part = simulate(visits=4, train=500), Part("source", "train")
    panel, day_NK = many.panels[part], many.truth[part][VISIT_DAY]
    given_NT = many.schema.treatments.decode(panel.treatments)[..., 0]
    diameter_NT = tumor.diameter_cm(panel.outcomes[..., 0].astype(np.float64))
    seen_M, given_M = [], []
    for days, given_T, diameter_T, length in zip(day_NK, given_NT, diameter_NT, panel.length, strict=True):
        for visit in range(1, length - 1):
            recent = diameter_T[:visit][days[:visit] >= days[visit] - 15]
            seen_M.append(recent.mean() if len(recent) else diameter_T[visit - 1])
            given_M.append(given_T[visit])
    chance_M, treated_M = tumor.treatment_probability(np.array(seen_M), 10.0), np.array(given_M)
    for low, high in ((0.0, 0.1), (0.1, 0.4), (0.4, 1.0)):
        some = (chance_M >= low) & (chance_M < high)
        sd = np.sqrt(chance_M[some].mean() / some.sum())
        assert treated_M[some].mean() == pytest.approx(chance_M[some].mean(), abs=4 * sd)


def test_the_same_seed_gives_the_same_visits_and_another_number_of_days_other_ones(data: Dataset):
    again = simulate(visits=4)
    for part, panel in data.panels.items():
        np.testing.assert_array_equal(panel.outcomes, again.panels[part].outcomes)
        np.testing.assert_array_equal(panel.treatments, again.panels[part].treatments)
    other = simulate(visits=5)
    assert other.panels[TEST].n_steps != data.panels[TEST].n_steps


def test_settings_without_visits_are_those_of_before():
    assert b"visits" not in canonical_json(TumorConfig().model_dump(mode="json"))


def test_no_limit_is_known_of_visits(data: Dataset):
    assert known_limit(data, TEST) is None
    assert known_limit(simulate(), TEST) is not None


@pytest.mark.parametrize(
    ("plan", "problem"), [([[0, 0, 2.5]], "2.5 days after another"), ([[0, 0, 9_000]], "the simulation goes on for")]
)
def test_truth_is_told_of_whole_days_that_are_simulated(data: Dataset, plan: list[list[float]], problem: str):
    with pytest.raises(UsageError, match=problem):
        tumor_truth(data, TEST, 0, 1, plan)


def test_ends_and_visits_do_not_go_together_since_rates_need_the_time_of_an_end():
    with pytest.raises(
        UsageError, match="seen at the next visit alone, and rates are fitted to ends at their own times"
    ):
        simulate(visits=4, ends=True)
