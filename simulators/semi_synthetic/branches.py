"""Following many treatment plans at once from the states of a factual run; time is the only loop (spec ICU-14)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from simulators.semi_synthetic.baseline import Baseline
from simulators.semi_synthetic.effects import EFFECT_HOURS, STAGE_OF_LAG, STAGES, fade, probabilities, strengths
from simulators.semi_synthetic.factual import SemiSyntheticFactual
from simulators.semi_synthetic.mechanism import OUTCOMES, TREATMENTS

__all__ = ["follow_branches"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

CHUNK: Final = 32768  # branches simulated at once: bounds memory, and their state stays near a core


def follow_branches(
    baseline: Baseline, factual: SemiSyntheticFactual, subject: Ints, origin: Ints, steps: Sequence[Bools]
) -> Floats:
    """Return the outcomes `[P,K,H,2]` at hours origin+1..origin+H of K branches from each of P origins.

    Args:
        baseline: N patients.
        factual: their factual run.
        subject: rows of the patients `[P]`.
        origin: hours at which the branches start `[P]`.
        steps: treatments of each hour from the origin on, `[1 or K, P, 3]`; 1 where branches have them in common.
    """
    n_origins, horizon = len(origin), len(steps)
    start = _Start.of(baseline, factual)
    n_branches = max((step.shape[0] for step in steps), default=1)
    chunk_size = max(CHUNK // n_branches, 1)
    outcome_PKHJ = np.empty((n_origins, n_branches, horizon, len(OUTCOMES)))
    for lo in range(0, n_origins, chunk_size):
        rows = slice(lo, lo + chunk_size)
        chunk = [step[:, rows] for step in steps]
        for h, outcome_J in enumerate(start.follow(subject[rows], origin[rows], chunk)):
            for j, outcome_KP in enumerate(outcome_J):
                outcome_PKHJ[rows, :, h, j] = outcome_KP.T
    return outcome_PKHJ


@dataclass(frozen=True, slots=True)
class _Start:
    """The factual states, each series flat over (patient, hour) so that `take` reads them quickly.

    `sum_J` holds the sum of outcome j before each hour 0..T. `strength_SJ` has EFFECT_HOURS zero hours before each
    patient's first, where no treatment was.
    """

    n_hours: int
    untreated_J: Floats
    logit_L: Floats
    outcome_J: Floats
    sum_J: Floats
    strength_SJ: Floats

    @classmethod
    def of(cls, baseline: Baseline, factual: SemiSyntheticFactual) -> Self:
        """Return the states of a factual run."""
        outcome_JNT = np.ascontiguousarray(factual.outcomes.transpose(2, 0, 1))
        sum_JNT = np.zeros((*outcome_JNT.shape[:2], factual.n_steps + 1))
        np.cumsum(outcome_JNT, axis=2, out=sum_JNT[:, :, 1:])
        p_LNT, given_LNT = (series.transpose(2, 0, 1) for series in (factual.probability, factual.treatments))
        strength = np.zeros((len(STAGES) * len(OUTCOMES), len(factual), EFFECT_HOURS + factual.n_steps))
        for i, stage in enumerate(strengths(list(p_LNT), list(given_LNT))):
            for j, strength_NT in enumerate(stage):
                strength[i * len(OUTCOMES) + j, :, EFFECT_HOURS:] = strength_NT
        return cls(
            n_hours=factual.n_steps,
            untreated_J=_flat(baseline.untreated.transpose(2, 0, 1)),
            logit_L=_flat(baseline.logit.transpose(2, 0, 1)),
            outcome_J=_flat(outcome_JNT),
            sum_J=_flat(sum_JNT),
            strength_SJ=_flat(strength),
        )

    def follow(self, subject: Ints, origin: Ints, steps: Sequence[Bools]) -> Iterator[list[Floats]]:
        """Yield both outcomes, each `[1 or K, P]`, one hour after another."""
        horizon = len(steps)
        at = subject * self.n_hours + origin
        path = self._scheduled(subject, origin, horizon)
        before = [self.sum_J[j].take(subject * (self.n_hours + 1) + origin)[None] for j in range(len(OUTCOMES))]
        sums = [before]  # sums[k]: of the outcomes before hour origin + k, on the branch
        for k, step in enumerate(steps):
            sums.append([total + now for total, now in zip(sums[k], path[k], strict=True)])
            recent, hours = [], []  # of each treatment: sums of confounders over its look-back window, and its hours
            for treatment in TREATMENTS:
                first = np.maximum(origin + k - treatment.look_back, 0)
                branched = k - treatment.look_back  # hours after the origin at which the window starts, where positive
                if branched > 0:
                    earlier = [sums[branched][j] for j in treatment.confounders]
                else:
                    earlier = [self.sum_J[j].take(subject * (self.n_hours + 1) + first) for j in treatment.confounders]
                recent.append([sums[k + 1][j] - e for j, e in zip(treatment.confounders, earlier, strict=True)])
                hours.append((origin + k + 1 - first).astype(np.float64))
            p_L = probabilities([self.logit_L[i].take(at + k) for i in range(len(TREATMENTS))], recent, hours)
            strength_S = strengths(p_L, [step[:, :, i] for i in range(len(TREATMENTS))])
            for lag in range(1, min(horizon - k, EFFECT_HOURS) + 1):
                for j, strength in enumerate(strength_S[STAGE_OF_LAG[lag]]):
                    path[k + lag][j] = path[k + lag][j] - fade(lag) * strength
            yield path[k + 1]

    def _scheduled(self, subject: Ints, origin: Ints, horizon: int) -> list[list[Floats]]:
        """Return the outcomes `[1,P]` at the origin and the hours after it, had nothing been given from there on.

        What was given before the origin acts on. Effects are subtracted in the order in which they were given, as in
        the factual run, so that following the factual treatments repeats it bit by bit.
        """
        at = subject * self.n_hours + origin
        path = [[self.outcome_J[j].take(at)[None] for j in range(len(OUTCOMES))]]
        path += [[z.take(at + k)[None] for z in self.untreated_J] for k in range(1, horizon + 1)]
        first = subject * (EFFECT_HOURS + self.n_hours) + EFFECT_HOURS + origin
        for ago in range(EFFECT_HOURS - 1, 0, -1):
            strength_SJ = self.strength_SJ.take(first - ago, axis=1)
            for k in range(1, min(horizon, EFFECT_HOURS - ago) + 1):
                stage = STAGE_OF_LAG[ago + k] * len(OUTCOMES)
                for j in range(len(OUTCOMES)):
                    path[k][j] -= fade(ago + k) * strength_SJ[stage + j]
        return path


def _flat(series: Floats) -> Floats:
    return np.ascontiguousarray(series).reshape(len(series), -1)
