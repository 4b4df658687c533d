"""The tail of errors beyond those seen on held-out subjects, against the integral of a normal tail (spec SENS-3)."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from costar_cli.inference import Estimates
from costar_cli.inference.conformal import GRID
from costar_cli.inference.sensitivity import Confounded, Tails
from tests.uncertainty.test_sensitivity import normal_errors

FLAT = 2.0  # sds: the limit at all of the highest levels
LAST = (1 - 0.98) / 2  # share of the errors above the last limit that is finite, of 50 subjects
LIKELY, STEPS, SD = 0.3, 6, 1.5


def flat_errors() -> Confounded:
    """Six steps of a plan; errors are standard normal up to 2 sds, and the limits of the highest levels are all 2."""
    calibration = normal_errors(STEPS, 50)
    radius = np.where(np.isfinite(calibration.radius_LHYB), np.minimum(calibration.radius_LHYB, FLAT), np.inf)
    assert np.isfinite(radius[:, 0, 0, 0]).sum() == np.searchsorted(GRID, 0.98, side="right")
    mean = np.full((1, STEPS, 1), 3.0)
    estimates = Estimates(
        mean, np.full_like(mean, SD), np.ones_like(mean), mean[:, 0], mean[:, 0], mean[None], np.zeros(1, int)
    )
    tails = Tails.of(estimates, replace(calibration, radius_LHYB=radius), np.array([False]))
    return Confounded.of(estimates, tails, np.full((1, 1, STEPS), LIKELY))


@pytest.mark.parametrize("gamma", [3.0, 5.0, 20.0])
def test_the_tail_has_the_largest_scale_of_the_last_limits_up_to_one_and_a_half_of_the_last_share(gamma: float) -> None:
    """A limit of 2 sds at a share s is that of a normal with an sd of 2 / z(s): the largest is that at 1.5 times s."""
    scale = FLAT / norm.isf(1.5 * LAST)
    low, high = ((LIKELY + (1 - LIKELY) * factor) ** STEPS for factor in (1 / gamma, gamma))
    share = (1 - low) / (high - low)
    assert share < LAST
    moved = (high - low) * scale * norm.pdf(norm.isf(share)) * SD  # the integral of a normal's largest outcomes
    lower, upper = flat_errors().bounds(gamma)
    assert upper[0, -1, 0] - 3 == pytest.approx(moved, rel=0.01)
    assert 3 - lower[0, -1, 0] == pytest.approx(moved, rel=0.01)
