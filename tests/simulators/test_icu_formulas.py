"""Moments of the ICU cohort's law against integrals and draws (spec COHORT-4 to 6)."""

import numpy as np
import pytest

from simulators.icu import VARIABLES
from simulators.icu.marginals import unclipped
from simulators.icu.physiology import (
    AGE_VARIANCE,
    COURSE_DRIFT,
    COURSE_SHARES,
    MALE_SHARE,
    SHOCK,
    Physiology,
    course_moments,
)


def drifts(n: int, rng: np.random.Generator) -> np.ndarray:
    """The drift of stays at a moment that is as likely as any other."""
    return np.array(COURSE_DRIFT)[rng.choice(len(COURSE_SHARES), n, p=COURSE_SHARES)] * rng.random(n)


def test_mean_and_variance_of_the_drift_are_those_of_draws() -> None:
    drawn = drifts(1_000_000, np.random.default_rng(0))
    mean, variance = course_moments()
    assert mean == pytest.approx(drawn.mean(), abs=0.002)
    assert variance == pytest.approx(drawn.var(), rel=0.01)


def test_every_score_has_a_variance_of_one_over_patients_hours_clocks_and_courses() -> None:
    law, rng, n = Physiology.of_covariates(), np.random.default_rng(1), 1_000_000
    clock, male, drift = np.cos(rng.uniform(0, 2 * np.pi, n)), rng.random(n) < MALE_SHARE, drifts(n, rng)
    for v in range(SHOCK):
        fixed = law.clock_amplitude[v] * clock + law.male_shift[v] * male + law.shock_loading[v] * drift
        own = law.patient_sd[v] ** 2 + law.ar_sd[v] ** 2 + law.white_sd[v] ** 2 + AGE_VARIANCE * law.age_slope[v] ** 2
        assert own + fixed.var() == pytest.approx(1, abs=0.003), VARIABLES[v].name


@pytest.mark.parametrize("variable", [one for one in VARIABLES if one.law in ("normal", "lognormal")], ids=str)
def test_values_have_the_mean_and_the_spread_of_their_variable_before_they_are_cut(variable) -> None:
    at, weight = np.polynomial.hermite_e.hermegauss(80)
    value, weight = unclipped(variable, at), weight / weight.sum()
    mean = weight @ value
    assert mean == pytest.approx(variable.mean, rel=1e-5)
    assert np.sqrt(weight @ (value - mean) ** 2) == pytest.approx(variable.sd, rel=1e-3)
