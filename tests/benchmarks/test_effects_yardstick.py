"""Hand-written estimators of effects come near the truth of the worlds whose law they know."""

import pytest

from benchmarks.effects_yardstick import ESTIMATORS, Course, estimate, estimate_ends
from tests.effect_worlds import TRUTH, WORLDS
from tests.mortal_world import TRUE_ENDS, mortal_panel

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


@pytest.mark.parametrize("name", ESTIMATORS)
def test_yardsticks_of_ends_come_near_the_truth(name: str) -> None:
    found = estimate_ends(mortal_panel(8_000, 3, rows=6, losing=True), name, 5)
    for regime, (death, recovery) in TRUE_ENDS.items():
        if name != "g-formula" and regime != "threshold":
            continue  # too few follow the others for a bound that means something
        assert abs(found[regime, "death"][0] - death[-1]) < 0.04
        assert abs(found[regime, "recovery"][0] - recovery[-1]) < 0.06
        assert abs(found[regime, "rmst"][0] - (5 - sum(death[:-1]) - sum(recovery[:-1]))) < 0.2
