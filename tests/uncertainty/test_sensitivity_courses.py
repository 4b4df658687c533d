"""Bounds under hidden confounding with reactions inside the plan: exact worlds, a confounder of known strength."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import expit
from scipy.stats import norm

from costar_cli.data import Queries
from costar_cli.inference import Estimates
from costar_cli.inference.propensity import PropensityModel
from costar_cli.inference.sensitivity import SHARES, Confounded, Tails, weight_bounds
from costar_cli.questions.sensitivity import ASSUMPTIONS
from tests.uncertainty.test_sensitivity import asked, estimates_of, normal_errors

N, DRAWN = 200_000, 2_000


def two_steps(seed: int, *, usual: float, slope: float, odds: float, only_low: bool) -> tuple[Any, np.ndarray, float]:
    """Return outcomes and probabilities under the plan to treat twice, as recorded, and the true mean of the outcomes.

    A hidden binary u, even odds, multiplies or divides the odds of treatment by `odds ** .5` at both steps, so that
    they are within a factor `odds` of those of the record, at the second step about `exp(usual + slope * y1)`: practice
    reacts to what happened inside the plan. u moves the second outcome, with `only_low` where the first one is low.
    What is recorded under the plan follows from Bayes' rule, without fitting anything.
    """
    rng, half = np.random.default_rng(seed), np.log(odds) / 2
    first_U = expit(usual + half * np.array([-1.0, 1.0]))
    y1_N, sign_N = rng.normal(size=N), np.where(rng.random(N) < first_U[1] / first_U.sum(), 1.0, -1.0)
    treats_NU = expit(usual + slope * y1_N[:, None] + half * np.array([-1.0, 1.0]))
    second_N = (treats_NU * first_U).sum(axis=1) / first_U.sum()
    likely_SH = np.stack([np.full(N, first_U.mean()), second_N], axis=1)
    treated_N = treats_NU[:, 1] * first_U[1] / (treats_NU * first_U).sum(axis=1)
    sign_N = np.where(rng.random(N) < treated_N, 1.0, -1.0)
    moves_N = np.where(y1_N < -1, 4.0, 0.0) if only_low else np.ones(N)
    y2_N = 0.5 * y1_N + moves_N * sign_N + 0.3 * rng.normal(size=N)
    return y2_N, likely_SH, 0.0  # u has even odds and y1 a mean of 0


def bounds_of(y_N: np.ndarray, likely_SH: np.ndarray, gamma: float) -> tuple[float, float]:
    mean_QHY = np.full((1, likely_SH.shape[1], 1), y_N.mean())
    top_K, bottom_K = np.quantile(y_N, 1 - SHARES), np.quantile(y_N, SHARES)
    shape = (1, 1, likely_SH.shape[1], 1)
    tails = Tails(*(np.tile(side_K[:, None, None, None], shape) for side_K in (top_K, bottom_K)))
    found = Confounded.of(cast("Estimates", SimpleNamespace(mean_QHY=mean_QHY)), tails, likely_SH[:, None])
    lower, upper = found.bounds(gamma)
    return float(lower[0, -1, 0]), float(upper[0, -1, 0])


def test_bounds_at_the_mean_course_miss_a_truth_that_bounds_over_courses_hold() -> None:
    """Where everything is as usual nearly all are treated; what u does happens to the few who are not."""
    y_N, likely_SH, truth = two_steps(0, usual=4.0, slope=4.0, odds=3.0, only_low=True)
    mean_course = np.array([[likely_SH[0, 0], expit(4.0)]])
    assert abs(y_N.mean() - truth) > 0.2
    for gamma in (3.0, 10.0):
        lower, upper = bounds_of(y_N, mean_course, gamma)
        assert not lower <= truth <= upper, gamma
    lower, upper = bounds_of(y_N, likely_SH[:DRAWN], 3.0)
    assert lower <= truth <= upper


@pytest.mark.parametrize("seed", range(12))
def test_a_confounder_of_known_strength_stays_within_the_bounds_at_that_gamma(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    odds, usual, slope = rng.uniform(1.5, 10), rng.uniform(-4, 4), rng.uniform(-6, 6)
    y_N, likely_SH, truth = two_steps(seed, usual=usual, slope=slope, odds=odds, only_low=bool(seed % 2))
    lower, upper = bounds_of(y_N, likely_SH[:DRAWN], odds)
    assert lower <= truth <= upper


def test_bounds_over_courses_are_no_narrower_than_any_pairing_of_courses_and_outcomes_allows() -> None:
    """A linear programme for each pairing; bounds hold them all, and are reached where both are in order (SENS-3)."""
    rng, n, gamma = np.random.default_rng(3), 50, 4.0
    outcome = np.sort(rng.exponential(size=n))
    likely_SH = rng.uniform(0.05, 0.95, size=(n, 2))
    sides = (np.append(0, side[: n // 2].cumsum() / n).reshape(-1, 1, 1, 1) for side in (outcome[::-1], outcome))
    mean = np.full((1, 2, 1), outcome.mean())
    top, bottom = (np.tile(side, (1, 1, 2, 1)) for side in sides)
    found = Confounded(mean, likely_SH[:, None], np.arange(n // 2 + 1) / n, top, bottom, mean)
    lower, upper = (float(side[0, 1, 0]) for side in found.bounds(gamma))
    low_S, high_S = (weights[:, 1] for weights in weight_bounds(likely_SH, gamma))

    def best(low: np.ndarray, high: np.ndarray, sign: int) -> float:
        told = linprog(
            sign * outcome / n, A_eq=np.full((1, n), 1 / n), b_eq=[1.0], bounds=list(zip(low, high, strict=True))
        )
        return float(sign * told.fun)

    for _ in range(20):
        order = rng.permutation(n)
        assert lower - 1e-9 <= best(low_S[order], high_S[order], 1)
        assert best(low_S[order], high_S[order], -1) <= upper + 1e-9
    assert upper == pytest.approx(best(np.sort(low_S), np.sort(high_S), -1))
    assert lower == pytest.approx(best(np.sort(low_S)[::-1], np.sort(high_S)[::-1], 1))


def test_courses_have_the_distribution_of_the_calibrated_errors_and_keep_their_place() -> None:
    found = estimates_of([[1.0, 5.0]], sd=2.0)
    tails = Tails.of(found, normal_errors(2), np.array([False]))
    course_SH = tails.courses(n=200)[:, 0, :, 0]
    for h, mean in enumerate((1.0, 5.0)):
        ranked_S = np.sort(course_SH[:, h])
        np.testing.assert_allclose(ranked_S, norm.ppf((np.arange(200) + 0.5) / 200, mean, 2.0), atol=0.02)
    np.testing.assert_allclose(course_SH[:, 1] - course_SH[:, 0], 4.0)


def test_a_binary_outcome_has_the_distribution_of_its_probability() -> None:
    found = estimates_of([[0.2]], sd=0.3)
    tails = Tails.of(found, normal_errors(1), np.array([True]))
    course_S = tails.courses(n=200)[:, 0, 0, 0]
    assert set(course_S) == {0.0, 1.0}
    assert course_S.mean() == pytest.approx(0.2, abs=0.01)
    likely, gamma = 0.3, 3.0
    low, high = likely + (1 - likely) / gamma, likely + (1 - likely) * gamma
    lower, upper = Confounded.of(found, tails, np.array([[[likely]]])).bounds(gamma)
    assert upper[0, 0, 0] == pytest.approx(min(high * 0.2, 1 - low * 0.8), abs=0.005)
    assert lower[0, 0, 0] == pytest.approx(max(low * 0.2, 1 - high * 0.8), abs=0.005)


def test_practice_is_asked_along_each_course_not_at_the_mean_of_them() -> None:
    asked_for = []

    class Reacts:
        def log_probability(self, panel: object, queries: Queries, course_MHY: np.ndarray) -> np.ndarray:
            asked_for.append(course_MHY)
            before_MH = np.concatenate([np.zeros((len(course_MHY), 1)), course_MHY[:, :-1, 0]], axis=1)
            return np.log(expit(8 * before_MH))

    found = estimates_of([[0.0, 0.0], [0.0, 0.0]], sd=1.0)
    queries = Queries(np.zeros(2, np.int32), np.zeros(2, np.int16), np.zeros((2, 2, 1), np.uint8))
    model: Any = SimpleNamespace(schema=SimpleNamespace(outcomes=[SimpleNamespace(kind="continuous")]))
    panel: Any = None
    over = Confounded.along(model, panel, queries, found, normal_errors(2), cast("PropensityModel", Reacts()))
    assert over.likely_SQH.shape == (len(asked_for[0]) // 2, 2, 2)
    assert over.likely_SQH[:, 0, 0] == pytest.approx(0.5)
    assert np.quantile(over.likely_SQH[:, 1, 1], (0.2, 0.8)) == pytest.approx((0.0, 1.0), abs=0.01)
    at_mean = asked([[0.0, 0.0]], [[0.5, 0.5]])
    width, narrow = (np.subtract(*one.bounds(2.0)[::-1])[0, 1, 0] for one in (over, at_mean))
    assert width > narrow


def test_what_is_taken_as_given_names_covariates_and_courses() -> None:
    assert any("held at their last recorded value" in line for line in ASSUMPTIONS)
