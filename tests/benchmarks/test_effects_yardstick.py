"""Hand-written estimators of effects come near the truth of the worlds whose law they know."""

import pytest

from benchmarks.effects_yardstick import ESTIMATORS, Course, estimate
from tests.effect_worlds import TRUTH, WORLDS

# Largest error of g-formula, SDR and IPW with 8,000 subjects: about four of their standard errors
BOUNDS = {
    "linear": (0.1, 1.0, 1.6), "binary": (0.03, 0.3, 0.3), "overlap": (0.07, 0.1, 0.16),
    "overlap-known": (0.07, 0.1, 0.16), "trial": (0.06, 0.25, 0.3), "doses": (0.05, 0.08, 0.12),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_yardsticks_come_near_the_truth(name: str) -> None:
    course = Course.of(WORLDS[name], 8_000, seed=3)
    for estimator, bound in zip(ESTIMATORS, BOUNDS[name], strict=True):
        for regime, (value, _) in estimate(WORLDS[name], estimator, course).items():
            assert abs(value - TRUTH[name][regime][0]) < bound, (estimator, regime)
