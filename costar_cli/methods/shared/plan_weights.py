"""Weights of validation windows that undo the policy's reactions to what happens inside of a window (spec STACK-2).

Treatments after the first of a window may answer to outcomes inside of it. A method that reads them as news of these
outcomes errs less on what was observed, and more on plans. Weighed by how likely the later treatments were before the
window, over how likely they were when they were given, windows are what they would be under plans.

`L` counts factors of treatments, `P` columns of a history.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Scaler, TreatmentEncoding
from costar_cli.data.windows import FactualWindows
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.ipw import effective_share
from costar_cli.methods.shared.treatment_models import TreatmentModels

Floats = NDArray[np.float64]

LAGS: Final = 2  # steps of a history whose values are columns, the last one first
MOST_DECISIONS: Final = 20_000  # that models of treatments learn from
ITERATIONS: Final = 100
# Without these weights a stack picks ridge on the linear system (.82 to .86 sd, mixed .92 to .93), whose error under
# plans is fifteen to thirty times that of the mixed model.
LEAST_SHARE: Final = 0.3  # of windows that the weighted ones are worth, below which weights are tempered
TEMPER: Final = 0.9  # the exponent shrinks by this until they are
LEAST_POWER: Final = 0.5  # below which weights are doubtful


@dataclass(frozen=True)
class _Histories:
    """What a policy may know: the last steps' values, the last doses and how many there were, and statics."""

    value_NTP: Floats
    given_NTL: Floats
    statics_NV: Floats

    @classmethod
    def of(cls, panel: Panel, scaler: Scaler, encoding: TreatmentEncoding, domain_NV: Floats) -> "_Histories":
        """Take the histories of a panel; what says of which domain subjects are is a static like others."""
        there_NT1 = panel.observed[..., None]
        x_NTX = (panel.covariates - scaler.covariates[0]) / scaler.covariates[1] * there_NT1
        y_NTY = (panel.outcomes - scaler.outcomes[0]) / scaler.outcomes[1] * there_NT1
        given_NTL = (panel.treatments @ dose_table(encoding)) * there_NT1
        before_NTL = np.pad(given_NTL, [(0, 0), (1, 0), (0, 0)])[:, :-1]
        values_NTP = [before_NTL, before_NTL.cumsum(axis=1)]
        step_T = np.arange(panel.n_steps)
        for lag in range(LAGS):
            values_NTP += [series[:, np.maximum(step_T - lag, 0)] for series in (x_NTX, y_NTY)]
        statics_NV = (panel.statics - scaler.statics[0]) / scaler.statics[1]
        return cls(np.concatenate(values_NTP, axis=-1), given_NTL, np.concatenate([statics_NV, domain_NV], axis=1))

    def at(self, row_M: NDArray[np.integer], step_M: NDArray[np.integer]) -> Floats:
        """Return the histories `[M,P]` before the treatments of some steps."""
        return np.concatenate([self.value_NTP[row_M, step_M], self.statics_NV[row_M]], axis=1)

    def plan(self, row_M: NDArray[np.integer], step_M: NDArray[np.integer], steps: int) -> Floats:
        """Return the doses `[M,steps L]` of some steps on."""
        dose_MHL = self.given_NTL[row_M[:, None], step_M[:, None] + np.arange(steps)]
        return np.asarray(dose_MHL.reshape(len(row_M), -1))


@dataclass(frozen=True)
class PlanWeights:
    """The weight of each window's steps, `[Q,H]`, of mean 1 at each step, and by step how far they can be trusted.

    `power_H` is what the weights were raised to, `share_H` the share of windows that the weights are then worth;
    `modelled_H` says whether all models of treatments behind a step converged.
    """

    weight_QH: Floats
    power_H: tuple[float, ...]
    share_H: tuple[float, ...]
    modelled_H: tuple[bool, ...]

    @classmethod
    def of(cls, log_QH: Floats, modelled_H: Sequence[bool]) -> Self:
        """Temper weights, given by their logarithms."""
        weight_HQ, power_H = zip(*map(tempered, log_QH.T), strict=True)
        share_H = tuple(map(effective_share, weight_HQ))
        return cls(np.stack(weight_HQ, axis=1), power_H, share_H, tuple(map(bool, modelled_H)))

    def to_meta(self) -> dict[str, object]:
        """Return what a model's file tells of them."""
        facts = {"power": self.power_H, "effective_share": self.share_H, "converged": self.modelled_H}
        return {"window_weights": {name: list(values) for name, values in facts.items()}}

    def warnings(self) -> list[str]:
        """Return what makes them doubtful, in sentences."""
        lines = []
        if steps := [str(h + 1) for h, modelled in enumerate(self.modelled_H) if not modelled]:
            lines.append(
                f"models of treatments, from which validation windows get their weights, did not converge or had "
                f"nothing to learn from (step {', '.join(steps)}): see `stack.weighting`"
            )
        if steps := [str(h + 1) for h, power in enumerate(self.power_H) if power < LEAST_POWER]:
            lines.append(
                f"few validation windows would carry most of the inverse-probability weight (step {', '.join(steps)}), "
                f"which is raised to the power {min(self.power_H):.2g}: the stack's errors lean towards those of what "
                f"was observed"
            )
        return lines


def plan_weights(
    train: Panel,
    windows: FactualWindows,
    scaler: Scaler,
    encoding: TreatmentEncoding,
    is_own_N: NDArray[np.bool_] | None = None,
) -> PlanWeights:
    """Return the weights of windows.

    The weight of step h is a product over the treatments after the first one: their probability with the history at the
    origin and the plan so far, over that with the history when they were given. Models of treatments are fitted to
    `train`. Where few windows carry most of the weight, all weights are raised to the same power below 1. `is_own_N`
    says which of its subjects are of the windows' domain, by default all.
    """
    queries = windows.queries
    row_Q, origin_Q = queries.subject.astype(np.int64), queries.origin.astype(np.int64)
    own_N = np.ones(train.n_subjects) if is_own_N is None else is_own_N.astype(np.float64)
    domain_NV = own_N[:, None][:, int(own_N.all()) :]  # no column where all are of one domain
    learnt = _Histories.of(train, scaler, encoding, domain_NV)
    asked = _Histories.of(windows.panel, scaler, encoding, np.ones((windows.panel.n_subjects, domain_NV.shape[1])))
    log_QH = np.zeros((len(queries), queries.horizon))
    modelled_H = np.ones(queries.horizon, dtype=bool)
    when_given = _fit(learnt, train.length, 0, encoding)
    for h in range(1, queries.horizon):
        before = _fit(learnt, train.length, h, encoding)
        if before is None or when_given is None:
            modelled_H[h:] = False
            break
        modelled_H[h:] &= before.converged and when_given.converged
        given_QL = asked.given_NTL[row_Q, origin_Q + h]
        expected_Q = before.log_likelihood(_known(asked, row_Q, origin_Q, h), given_QL)
        log_QH[:, h:] += (expected_Q - when_given.log_likelihood(asked.at(row_Q, origin_Q + h), given_QL))[:, None]
    return PlanWeights.of(log_QH, modelled_H.tolist())


def tempered(log_Q: Floats) -> tuple[Floats, float]:
    """Return weights of mean 1 from their logarithms, raised to the power that is returned beside them.

    That is the largest of 1, .9, .81, ... with which they are worth enough.
    """
    centred_Q, power = log_Q - log_Q.max(initial=-np.inf), 1.0
    while effective_share(weight_Q := np.exp(power * centred_Q)) < LEAST_SHARE:
        power *= TEMPER
    return np.asarray(weight_Q / weight_Q.mean()), power


def _fit(
    histories: _Histories, length_N: NDArray[np.integer], ahead: int, encoding: TreatmentEncoding
) -> TreatmentModels | None:
    """Return models of the treatments `ahead` steps after a history, None where no series is so long."""
    steps = histories.given_NTL.shape[1]
    row_M, step_M = np.nonzero(np.arange(steps) + ahead < length_N[:, None] - 1)
    if not len(row_M):
        return None
    if len(row_M) > MOST_DECISIONS:
        some = np.linspace(0, len(row_M) - 1, MOST_DECISIONS).round().astype(np.int64)
        row_M, step_M = row_M[some], step_M[some]
    given_ML = histories.given_NTL[row_M, step_M + ahead]
    return TreatmentModels.fit(_known(histories, row_M, step_M, ahead), given_ML, encoding, iterations=ITERATIONS)


def _known(histories: _Histories, row_M: NDArray[np.integer], step_M: NDArray[np.integer], ahead: int) -> Floats:
    return np.concatenate([histories.at(row_M, step_M), histories.plan(row_M, step_M, ahead)], axis=1)
