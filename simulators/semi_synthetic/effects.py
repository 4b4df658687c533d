"""How probable a treatment is, and what it does to later outcomes (spec ICU-10, ICU-11); shared by all simulations."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from simulators.semi_synthetic.mechanism import OUTCOMES, TREATMENTS

__all__ = ["EFFECT_HOURS", "STAGES", "STAGE_OF_LAG", "fade", "probabilities", "strengths"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

STAGES: Final = tuple(sorted({treatment.effect_hours for treatment in TREATMENTS}))  # hours at which windows end
EFFECT_HOURS: Final = STAGES[-1]  # hours for which a treatment may act
STAGE_OF_LAG: Final = tuple(int(np.searchsorted(STAGES, lag)) for lag in range(EFFECT_HOURS + 1))  # by hours since
_FADE: Final = tuple(1.0 / np.sqrt(max(lag, 1)) for lag in range(EFFECT_HOURS + 1))


def fade(lag: int) -> float:
    """Return the share of an effect that is left `lag` hours after its treatment: 1 / sqrt(lag)."""
    return float(_FADE[lag])


def probabilities(logit: Sequence[Floats], recent: Sequence[Sequence[Floats]], count: Sequence[Floats]) -> list[Floats]:
    """Return the probability of each treatment.

    Args:
        logit: per treatment, the part of the logit that does not depend on outcomes.
        recent: per treatment, the sum of each confounding outcome over the look-back window.
        count: per treatment, the number of hours in that window.
    """
    result = []
    for treatment, base, sums, hours in zip(TREATMENTS, logit, recent, count, strict=True):
        total = sums[0]
        for more in sums[1:]:
            total = total + more
        weight = treatment.outcome_weight / len(treatment.confounders)
        result.append(np.asarray(expit(base + weight * (total / hours))))
    return result


def strengths(probability: Sequence[Floats], given: Sequence[Bools]) -> list[list[Floats]]:
    """Return by how much treatments given together lower each outcome one hour later, per stage and outcome.

    `result[stage][outcome]` counts the treatments whose window includes the stage. Of several effects on one outcome
    the strongest counts (the minimum of the outcomes that they propose).
    """
    own = [np.where(a, -t.full_effect * p, 0.0) for t, p, a in zip(TREATMENTS, probability, given, strict=True)]
    result = []
    for stage_end in STAGES:
        stage = []
        for j in range(len(OUTCOMES)):
            acting = [s for t, s in zip(TREATMENTS, own, strict=True) if j in t.acts_on and t.effect_hours >= stage_end]
            strength = acting[0] if acting else np.zeros_like(own[0])
            for other in acting[1:]:
                strength = np.maximum(strength, other)
            stage.append(strength)
        result.append(stage)
    return result
