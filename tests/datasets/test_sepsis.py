"""The process of icu-sepsis as a data set: closed forms of its risks, its coupling of plans, and what is refused."""

from importlib import invalidate_caches
from pathlib import Path

import numpy as np
import pytest

from costar_cli.data import Dataset, Part
from costar_cli.data.check import check_dataset
from costar_cli.data.sepsis import simulate
from costar_cli.data.sepsis.settings import SepsisConfig
from costar_cli.data.store import read_dataset, write_dataset
from costar_cli.errors import UsageError
from costar_cli.evaluation.limit import known_limit
from costar_cli.reporting import NullReporter
from simulators.sepsis import SepsisProcess
from tests.sepsis_package import STATES, install_sepsis, small_process

TEST = Part("target", "test")
SIZES = {"train": 60, "val": 8, "test": 10, "target_train": 5, "target_val": 5, "target_test": 10, "horizon": 4}


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install_sepsis(tmp_path / "site", monkeypatch)
    return tmp_path / "site"


def process() -> SepsisProcess:
    return simulate.sepsis_process()


def simulated(**changes: object) -> Dataset:
    return simulate.simulate_sepsis(SepsisConfig(**{**SIZES, **changes}), NullReporter())


def test_it_passes_every_check_survives_storage_and_its_truth_meets_stored_answers(tmp_path: Path) -> None:
    made = simulated()
    assert {finding.severity for finding in check_dataset(made)} <= {"note"}
    write_dataset(tmp_path / "d.h5", made)
    data = read_dataset(tmp_path / "d.h5")
    panel, queries = data.panels[TEST], data.queries[TEST]["sequence"]
    last = panel.outcomes[np.arange(10), panel.length - 1, 0]
    assert ((last == 0) | (last == 1) | (panel.length == 20)).all(), "series end with death or survival"
    assert (queries.origin < panel.length[queries.subject] - 1).all()
    plan = data.schema.treatments.decode(queries.plan)
    found = simulate.sepsis_truth(data, TEST, queries.subject, queries.origin, plan)
    np.testing.assert_allclose(found, queries.outcomes[..., 0], atol=1e-6)
    assert known_limit(data, TEST) is not None


def test_the_risk_is_the_mortality_of_the_clinicians_patients() -> None:
    """Of 20,000 followed to the end: in closed form by the fundamental matrix (spec SEPSIS-2)."""
    course = process().simulate(20_000, 60, np.random.default_rng(1), gamma=1)
    died = course.state[:, -1] == STATES - 3
    assert (course.length < 60).all()
    expected = process().start @ process().risk
    assert died.mean() == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 20_000))


def test_expected_risks_are_means_over_the_chance_of_each_plan_and_doses_lower_them() -> None:
    state, rng = np.full(40_000, 8), np.random.default_rng(2)
    uniform = rng.random((len(state), 3))
    means = []
    for action in (0, 24):
        plan = np.full((len(state), 3), action)
        drawn = process().follow(state, plan, uniform)
        mean = process().expected(state[:1], plan[:1])[0]
        assert (np.abs(drawn.mean(axis=0) - mean) < 4 * drawn.std(axis=0) / 200).all()
        means.append(mean)
    assert (means[1] < means[0] - 0.03).all()


def test_the_plan_that_was_followed_gives_the_course_that_was_observed() -> None:
    data = simulated()
    panel = data.panels[TEST]
    row = int(panel.length.argmax())
    origin, plan = 1, data.schema.treatments.decode(panel.treatments[row, 1:5])
    found = simulate.sepsis_outcomes(data, TEST, row, origin, plan)
    np.testing.assert_allclose(found, panel.outcomes[row, 2:6, 0], atol=1e-6)
    with pytest.raises(UsageError, match="goes on for"):
        simulate.sepsis_outcomes(data, TEST, row, origin, np.zeros((40, 2)))
    with pytest.raises(UsageError, match="whole numbers from 0 to 4"):
        simulate.sepsis_truth(data, TEST, row, origin, plan + 0.5)


def test_strength_sharpens_what_clinicians_do_and_at_zero_all_that_they_do_is_alike() -> None:
    policy = {gamma: process().policy(gamma) for gamma in (0.0, 1.0, 2.0)}
    np.testing.assert_allclose(policy[1], process().clinicians)
    assert set(policy[0][0].round(6)) == {0.0, round(1 / 24, 6)}
    doses = np.arange(25) // 5 + np.arange(25) % 5
    given = [policy[gamma][11] @ doses - policy[gamma][0] @ doses for gamma in (0.0, 1.0, 2.0)]
    assert given[0] == pytest.approx(0)
    assert given[2] > given[1] + 0.5 > 1, "the sickest get the more, the stronger the policy"


def test_patients_do_not_depend_on_how_many_there_are() -> None:
    few, many = (process().simulate(n, 6, np.random.default_rng(3), gamma=1) for n in (3, 8))
    np.testing.assert_array_equal(few.state, many.state[:3])
    np.testing.assert_array_equal(few.action, many.action[:3])


def test_without_the_package_or_with_another_one_it_is_said_what_to_install(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = small_process()
    np.savez(package / "icu_sepsis" / "envs" / "assets" / "dynamics.npz", **{**arrays, "d_0": arrays["d_0"][:4]})
    simulate._read.cache_clear()
    with pytest.raises(UsageError, match="not those of icu-sepsis"):
        simulated()
    monkeypatch.setattr(simulate, "PACKAGE", "no_such_package")
    invalidate_caches()
    with pytest.raises(UsageError, match="probabilities of icu-sepsis") as refused:
        simulated()
    assert refused.value.fix == "pip install 'costar[icu-sepsis]'"
