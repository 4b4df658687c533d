"""The factual run: treatments drawn hour by hour from their probabilities (spec ICU-10, ICU-11)."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from simulators.semi_synthetic.baseline import Baseline
from simulators.semi_synthetic.effects import EFFECT_HOURS, STAGE_OF_LAG, fade, probabilities, strengths
from simulators.semi_synthetic.mechanism import OUTCOMES, TREATMENTS

__all__ = ["SemiSyntheticFactual", "replay_factual", "simulate_factual"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SemiSyntheticFactual:
    """What was observed of N patients over T hours.

    `outcomes [N,T,2]` (y1, y2) are observed at hour t, with the effects of all treatments before t.
    `treatments [N,T,3]` (t1, t2, t3) are given at hour t and first show at t+1 (the released code stores them on row
    t+1). `probability [N,T,3]` is that with which each would be given. `length [N]` counts observed hours: nothing is
    given in the last one, and hours beyond hold zeros.
    """

    outcomes: Floats
    treatments: Bools
    probability: Floats
    length: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.length.shape[0])

    @property
    def n_steps(self) -> int:
        """Return T."""
        return int(self.outcomes.shape[1])

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Self:
        """Return the given patients, in that order."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))


def simulate_factual(baseline: Baseline, uniform: Floats) -> SemiSyntheticFactual:
    """Simulate the patients under the behaviour policy: a treatment is given where its uniform is below p.

    Args:
        baseline: N patients over T hours.
        uniform: uniforms `[N,T,3]`, as `draw_uniforms` makes.
    """
    if uniform.shape != baseline.logit.shape:
        raise ValueError(f"uniforms have shape {uniform.shape}, expected {baseline.logit.shape}")
    uniform_TLN = np.ascontiguousarray(uniform.transpose(1, 2, 0))
    return _run(baseline, lambda t, p_LN: uniform_TLN[t] < p_LN)


def replay_factual(baseline: Baseline, treatments: NDArray[np.bool_ | np.number]) -> SemiSyntheticFactual:
    """Simulate the patients under given treatments `[N,T,3]`; the factual ones repeat the factual run bit by bit."""
    if treatments.shape != baseline.logit.shape:
        raise ValueError(f"treatments have shape {treatments.shape}, expected {baseline.logit.shape}")
    given_TLN = np.ascontiguousarray(np.asarray(treatments, dtype=np.bool_).transpose(1, 2, 0))
    return _run(baseline, lambda t, _: given_TLN[t])


def _run(baseline: Baseline, decide: Callable[[int, Floats], Bools]) -> SemiSyntheticFactual:
    n, n_hours = len(baseline), baseline.n_steps
    logit_TLN = np.ascontiguousarray(baseline.logit.transpose(1, 2, 0))
    outcome_TJN = np.zeros((n_hours + EFFECT_HOURS, len(OUTCOMES), n))
    outcome_TJN[:n_hours] = baseline.untreated.transpose(1, 2, 0)
    sum_TJN = np.zeros((n_hours + 1, len(OUTCOMES), n))  # of the outcomes before hour t
    given_TLN = np.zeros(logit_TLN.shape, dtype=np.bool_)
    probability_TLN = np.zeros(logit_TLN.shape)
    for t in range(n_hours):
        sum_TJN[t + 1] = sum_TJN[t] + outcome_TJN[t]
        first = [max(t - treatment.look_back, 0) for treatment in TREATMENTS]
        recent = [
            [sum_TJN[t + 1, j] - sum_TJN[lo, j] for j in treatment.confounders]
            for lo, treatment in zip(first, TREATMENTS, strict=True)
        ]
        hours = [np.asarray(float(t + 1 - lo)) for lo in first]
        p_L = probabilities(list(logit_TLN[t]), recent, hours)
        probability_TLN[t] = p_L
        given_TLN[t] = decide(t, probability_TLN[t]) & (t < baseline.length - 1)
        strength_SJN = np.array(strengths(p_L, list(given_TLN[t])))
        for lag in range(1, EFFECT_HOURS + 1):
            outcome_TJN[t + lag] -= fade(lag) * strength_SJN[STAGE_OF_LAG[lag]]
    unobserved_TN = np.arange(n_hours)[:, None] >= baseline.length
    outcome_TJN[:n_hours].transpose(0, 2, 1)[unobserved_TN] = 0.0
    probability_TLN.transpose(0, 2, 1)[unobserved_TN] = 0.0
    return SemiSyntheticFactual(
        outcomes=np.ascontiguousarray(outcome_TJN[:n_hours].transpose(2, 0, 1)),
        treatments=np.ascontiguousarray(given_TLN.transpose(2, 0, 1)),
        probability=np.ascontiguousarray(probability_TLN.transpose(2, 0, 1)),
        length=baseline.length,
    )
