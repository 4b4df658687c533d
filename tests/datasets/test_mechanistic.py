"""Data sets of differential equations: what they hold, their answers, the limit, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from costar_cli.data import Dataset, Part
from costar_cli.data.check import check_dataset
from costar_cli.data.mechanistic.simulate import COHORTS, mechanistic_mean, mechanistic_truth
from costar_cli.data.registry import sources
from costar_cli.data.store import read_dataset, write_dataset
from costar_cli.errors import UsageError
from costar_cli.evaluation.limit import known_limit
from costar_cli.reporting import NullReporter

SIZES = {"train": 30, "val": 8, "test": 6, "target_train": 5, "target_val": 5, "target_test": 6, "steps": 12}
TEST = Part("target", "test")
NAMES = ["glucose", "hiv", "warfarin"]


def simulated(name: str, **changes: object) -> Dataset:
    source = sources()[name]
    return source.simulate(source.settings(**{**SIZES, "horizon": 4, **changes}), NullReporter())


@pytest.mark.parametrize("name", NAMES)
def test_a_cohort_passes_every_check_survives_storage_and_its_truth_meets_stored_answers(name: str, tmp_path: Path):
    made = simulated(name)
    assert {finding.code for finding in check_dataset(made)} <= {"never-treated"}
    assert [panel.n_subjects for panel in made.panels.values()] == [30, 8, 6, 5, 5, 6]
    write_dataset(tmp_path / "d.h5", made)
    data = read_dataset(tmp_path / "d.h5")
    fixed = len(COHORTS[data.name].fixed)
    for part in (Part("source", "test"), TEST):
        assert data.queries[part]["one_step"].plan.shape[:2] == (6 * 6 * fixed, 1)
        assert data.queries[part]["sequence"].plan.shape[:2] == (6 * 6 * (fixed + 2), 4)
        for queries in data.queries[part].values():
            plan = data.schema.treatments.decode(queries.plan)
            found = mechanistic_truth(data, part, queries.subject, queries.origin, plan)
            np.testing.assert_allclose(found, queries.outcomes[..., 0], rtol=1e-6)
    assert known_limit(data, TEST) is not None


@pytest.mark.parametrize("name", NAMES)
def test_the_generators_mean_errs_by_less_than_the_last_value_and_answers_plans_beyond_the_series(name: str):
    data = simulated(name, target_test=30, steps=20)
    queries = data.queries[TEST]["sequence"]
    plan = data.schema.treatments.decode(queries.plan)
    mean = mechanistic_mean(data, TEST, queries.subject, queries.origin, plan)
    last = data.panels[TEST].outcomes[queries.subject, queries.origin]
    error, naive = ((made - queries.outcomes[..., 0]) ** 2 for made in (mean, last))
    assert error.mean() < 0.6 * naive.mean()
    alone = mechanistic_truth(data, TEST, 0, 19, plan[0])
    assert np.isfinite(alone).all()
    with pytest.raises(UsageError, match="goes on for 4 steps from this origin"):
        mechanistic_truth(data, TEST, 0, 19, np.repeat(plan[0], 2, axis=0))


@pytest.mark.parametrize("name", NAMES)
def test_the_target_changes_nothing_of_the_source(name: str):
    one, other = simulated(name), simulated(name, target_gamma=1.5, target_test=9)
    part = Part("source", "test")
    np.testing.assert_array_equal(one.panels[part].outcomes, other.panels[part].outcomes)
    np.testing.assert_array_equal(one.panels[part].treatments, other.panels[part].treatments)
    np.testing.assert_array_equal(one.panels[TEST].outcomes[:, 0], other.panels[TEST].outcomes[:6, 0])


def test_more_answers_than_memory_holds_are_refused():
    with pytest.raises(UsageError, match="counterfactual answers") as refused:
        simulated("hiv", test=1_000_000, origins=100, steps=200)
    assert "[simulate.hiv] test" in str(refused.value.where)
