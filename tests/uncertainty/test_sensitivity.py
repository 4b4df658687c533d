"""Bounds under hidden confounding: against linear programmes, the normal distribution, and a confounded world."""

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import norm

from costar_cli.data import Scaler
from costar_cli.inference import Calibration, Estimates, OutcomeFacts
from costar_cli.inference.conformal import EDGES, GRID
from costar_cli.inference.sensitivity import Confounded, Tails, largest_gamma, weight_bounds
from tests.methods.linear_worlds import linear_data


def normal_errors(steps: int, subjects: int = 2000) -> Calibration:
    """A calibration on so many subjects that found standard normal errors, in units of their scale."""
    data = linear_data()
    train = data.panel("source", "train")
    facts = OutcomeFacts.of(train, data.schema, Scaler.fit(train, data.schema))
    cells = (steps, 1, len(EDGES) + 1)
    radius = np.broadcast_to(norm.ppf((1 + GRID) / 2)[:, None, None, None], (len(GRID), *cells))
    known = np.where((subjects / (subjects + 1) >= GRID)[:, None, None, None], radius, np.inf)
    return Calibration(subjects, "source", True, "subject", subjects, facts, known, np.full(cells, subjects))


def estimates_of(mean_QH: list[list[float]], sd: float) -> Estimates:
    mean, level = np.array(mean_QH)[..., None], np.array(mean_QH)[:, :1]
    origin = np.zeros(len(mean), dtype=np.int16)
    return Estimates(mean, np.full_like(mean, sd), np.ones_like(mean), level, level, mean[None], origin)


def asked(
    mean_QH: list[list[float]], likely_QH: list[list[float]], sd: float = 1.0, subjects: int = 2000
) -> Confounded:
    estimates = estimates_of(mean_QH, sd)
    tails = Tails.of(estimates, normal_errors(len(mean_QH[0]), subjects), np.array([False]))
    return Confounded.of(estimates, tails, np.array(likely_QH)[None])


def test_without_hidden_confounding_the_bounds_are_the_estimate():
    lower, upper = asked([[3.0, 4.0]], [[0.3, 0.6]]).bounds(1.0)
    np.testing.assert_allclose(lower, upper)
    np.testing.assert_allclose(lower[0, :, 0], [3.0, 4.0])


def test_a_treatment_that_everybody_gets_cannot_be_confounded():
    lower, upper = asked([[3.0]], [[1.0]]).bounds(5.0)
    np.testing.assert_allclose([lower[0, 0, 0], upper[0, 0, 0]], 3.0)


def test_bounds_of_normal_outcomes_are_the_known_ones():
    """With weights between l and u, the mean moves by (u - l) sd times the normal density at the quantile (SENS-3)."""
    likely, gamma, sd = 0.3, 2.0, 1.5
    low, high = likely + (1 - likely) / gamma, likely + (1 - likely) * gamma
    moved = (high - low) * sd * norm.pdf(norm.ppf((1 - low) / (high - low)))
    lower, upper = asked([[3.0]], [[likely]], sd).bounds(gamma)
    assert upper[0, 0, 0] == pytest.approx(3 + moved, rel=0.01)
    assert lower[0, 0, 0] == pytest.approx(3 - moved, rel=0.01)


@pytest.mark.parametrize("subjects", [50, 2000])
@pytest.mark.parametrize(("gamma", "moved"), [(1.5, None), (3.0, 2.82), (100.0, 6.87)])
def test_bounds_of_long_plans_rest_on_tails_that_no_held_out_subject_shows(
    subjects: int, gamma: float, moved: float | None
) -> None:
    """Six steps put weights of up to 10^11 on errors beyond those of 50 subjects (SENS-3)."""
    likely = 0.3
    low, high = ((likely + (1 - likely) * factor) ** 6 for factor in (1 / gamma, gamma))
    exact = (high - low) * norm.pdf(norm.isf((1 - low) / (high - low)))
    assert moved is None or exact == pytest.approx(moved, abs=0.01)
    lower, upper = asked([[3.0] * 6], [[likely] * 6], subjects=subjects).bounds(gamma)
    assert upper[0, 5, 0] - 3 == pytest.approx(exact, rel=0.01)
    assert 3 - lower[0, 5, 0] == pytest.approx(exact, rel=0.01)


def test_the_largest_gamma_has_weights_that_can_be_told_apart() -> None:
    assert largest_gamma(6) == 100
    for steps in (30, 60, 200):
        assert largest_gamma(steps) ** steps == pytest.approx(1e60, rel=1e-6)
    long = asked([[0.0] * 60, [20.0] * 60], [[0.05] * 60] * 2)
    assert np.isfinite(long.bounds(largest_gamma(60))).all()
    assert long.flips_at(1, 0, 59, 0) < largest_gamma(60)


def test_bounds_are_the_best_and_worst_weights_of_a_linear_programme():
    rng = np.random.default_rng(0)
    outcome = np.sort(rng.exponential(size=50))
    found = Confounded(
        np.array([[[outcome.mean()]]]),
        np.array([[[0.35]]]),
        np.arange(26) / 50,
        *(np.append(0, side[:25].cumsum() / 50).reshape(-1, 1, 1, 1) for side in (outcome[::-1], outcome)),
        outcome.mean().reshape(1, 1, 1),
    )
    low, high = (float(bound[0, 0, 0]) for bound in weight_bounds(found.likely_SQH, 3.0))
    ones = np.full((1, 50), 1 / 50)
    best = [
        sign * linprog(sign * outcome / 50, A_eq=ones, b_eq=[1.0], bounds=[(low, high)] * 50).fun for sign in (1, -1)
    ]
    np.testing.assert_allclose(np.ravel(found.bounds(3.0)), best)


def test_bounds_widen_with_the_confounder_and_with_the_steps():
    found = asked([[0.0, 0.0, 0.0]], [[0.5, 0.5, 0.5]])
    widths = np.array([np.subtract(*found.bounds(gamma)[::-1])[0, :, 0] for gamma in (1.0, 1.1, 2.0, 5.0)])
    assert (np.diff(widths, axis=0) > 0).all()
    assert (np.diff(widths[1:], axis=1) > 0).all()


def test_a_ranking_flips_where_the_bounds_of_the_difference_reach_zero():
    found = asked([[0.0], [0.5]], [[0.5], [0.5]])
    gamma = found.flips_at(1, 0, 0, 0)
    lower, _ = found.difference_bounds(1, 0, gamma)
    assert lower[0, 0] == pytest.approx(0.0, abs=1e-6)
    assert asked([[0.0], [0.0]], [[0.5], [0.5]]).flips_at(1, 0, 0, 0) == 1.0
    assert asked([[0.0], [1000.0]], [[0.5], [0.5]]).flips_at(1, 0, 0, 0) is None
    assert asked([[0.0], [0.5]], [[1.0], [1.0]]).flips_at(1, 0, 0, 0) is None


def test_the_bounds_hold_the_truth_of_a_hidden_binary_confounder():
    """Two steps; u moves the outcome by 2 and multiplies the odds of treatment by 3 at each step, either way."""
    rng = np.random.default_rng(1)
    n, odds, gamma = 400_000, 3.0, 9.0  # the odds given nothing lie between those given u = 0 and u = 1
    u = rng.integers(2, size=n)
    given = rng.random((n, 2)) < (odds ** (2 * u - 1) / (1 + odds ** (2 * u - 1)))[:, None]
    noise = rng.normal(size=n)
    treated = given.all(axis=1)
    naive, truth = (2 * u + noise)[treated].mean(), 1.0
    likely = [[given[:, 0].mean(), given[given[:, 0], 1].mean()]]
    found = asked([[naive, naive]], likely, float((2 * u + noise)[treated].std()))
    assert abs(naive - truth) > 0.5
    lower, upper = found.bounds(gamma)
    assert lower[0, 1, 0] <= truth <= upper[0, 1, 0]
    lower, upper = found.bounds(1.1)
    assert not lower[0, 1, 0] <= truth <= upper[0, 1, 0]
