"""Weights of the parts of a stack, by the parts' errors on validation windows (spec STACK-1 to 5).

`P` counts parts, `C` clusters of windows: subjects, or the units that subjects belong to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Scaler
from costar_cli.data.windows import FactualWindows
from costar_cli.errors import DataError, TrainingError
from costar_cli.methods.registry import THAT_ADJUST
from costar_cli.methods.shared.outcome_forms import LEAST_ERROR_UNIT, may_be_relative

Floats = NDArray[np.float64]

FAILS: Final = (DataError, TrainingError, ArithmeticError, np.linalg.LinAlgError)  # of one part; others go on
FOLDS: Final = 10
SHORT: Final = 1e-9  # of a sum of weights, by rounding
RIDGE: Final = 1e-9  # of the mean squared error; parts that err alike share a weight


def error_scales(panel: Panel, scaler: Scaler, windows: FactualWindows) -> tuple[Floats, list[bool]]:
    """Return the unit of each window's errors `[Q,Y]`, and which outcomes are scored relative to their level.

    Those are outcomes that are never negative in `panel`, source-train, and do not come back from zero (spec STACK-1).
    """
    sd_Y = scaler.outcomes[1]
    seen_NTY = panel.observed_outcomes
    relative = [may_be_relative(panel.outcomes[..., o], seen_NTY[..., o])[0] for o in range(len(sd_Y))]
    queries = windows.queries
    level_QY = np.abs(windows.panel.outcomes[queries.subject, queries.origin].astype(np.float64))
    return np.where(relative, level_QY + LEAST_ERROR_UNIT * sd_Y, sd_Y), relative


@dataclass(frozen=True)
class Errors:
    """Sums over the windows of each cluster: products of the parts' errors `[C,H,Y,P,P]`, and weights `[C,H,Y]`.

    Errors of a combination whose weights sum to one are the same combination of errors: these sums are all that
    weights depend on.
    """

    gram_CHYPP: Floats
    count_CHY: Floats

    @classmethod
    def of(
        cls,
        predictions_PQHY: Sequence[NDArray[np.floating]],
        windows: FactualWindows,
        scale_QY: Floats,
        weight_QH: Floats,
    ) -> "Errors":
        """Sum what the parts' predictions `[Q,H,Y]` are wrong by, in units of the scale, weighed by window and step."""
        queries, panel = windows.queries, windows.panel
        assert queries.outcomes is not None  # noqa: S101 - rolling origins have answers
        seen_QHY = windows.observed_QHY * weight_QH[..., None]
        root_QHY = np.sqrt(seen_QHY)
        error_PQHY = np.stack(
            [
                np.where(seen_QHY > 0, (predicted_QHY - queries.outcomes) / scale_QY[:, None], 0.0) * root_QHY
                for predicted_QHY in predictions_PQHY
            ]
        ).astype(np.float64)
        unit_N = panel.subject_id if panel.cluster is None else panel.cluster
        _, cluster_Q = np.unique(unit_N[queries.subject], return_inverse=True)
        order_Q = np.argsort(cluster_Q, kind="stable")
        first_C = np.flatnonzero(np.diff(cluster_Q[order_Q], prepend=-1))
        gram_CHYPP = np.stack(
            [
                np.stack([np.add.reduceat((mine * other)[order_Q], first_C) for other in error_PQHY], axis=-1)
                for mine in error_PQHY
            ],
            axis=-1,
        )
        return cls(gram_CHYPP, np.add.reduceat(seen_QHY[order_Q], first_C))

    @property
    def parts(self) -> int:
        """Return P."""
        return int(self.gram_CHYPP.shape[-1])

    @property
    def clusters(self) -> int:
        """Return C."""
        return len(self.count_CHY)

    def of_part(self, part: int) -> Floats:
        """Return the sums of squared errors `[C,H,Y]` of one part."""
        return self.gram_CHYPP[..., part, part]

    def risk(self, square_CHY: Floats) -> tuple[float, float]:
        """Return the root of the mean squared error, averaged over outcomes, and its standard error over clusters."""
        total_CY, count_CY = square_CHY.sum(axis=1), self.count_CHY.sum(axis=1)
        known_Y = count_CY.sum(axis=0) > 0
        total_CY, count_CY = total_CY[:, known_Y], count_CY[:, known_Y]
        mean_Y = total_CY.sum(axis=0) / count_CY.sum(axis=0)
        c = self.clusters
        share_C = ((total_CY - mean_Y * count_CY) / count_CY.sum(axis=0)).mean(axis=-1)
        risk = float(np.sqrt(mean_Y.mean()))
        variance = float(np.square(share_C).sum() * c / (c - 1)) if c > 1 else float("nan")
        return risk, float(np.sqrt(variance)) / (2 * risk) if risk else 0.0


@dataclass(frozen=True)
class Weighing:
    """Weights `[P,H,Y]`, the rule that gave them by outcome, and the squared errors `[C,H,Y]` that are told of them.

    Those of a mixture are of weights that other clusters gave; those of one part and of fixed weights are in sample.
    """

    weight_PHY: Floats
    rules: tuple[str, ...]
    crossed_CHY: Floats


Rule = Callable[[Floats], Floats]  # products of errors [H,P,P] -> weights [P,H]


def weigh(
    errors: Errors,
    prior_PHY: Floats | None = None,
    anchors: Sequence[int] = (),
    adjusting: Sequence[int] = (),
    allowed_PY: NDArray[np.bool_] | None = None,
) -> Weighing:
    """Return the weights of the rule that does best, mixtures on clusters which had no part in their weights.

    A mixture has to err less there than the best single part does on all clusters, by more than the standard error of
    the difference; so has whatever is chosen against the best of the parts that are `anchors` (spec STACK-4).
    `prior_PHY` are weights that are a candidate, too. What has weight on others than the parts that are `adjusting` is
    left for the best of these alone, unless it errs less by more than that standard error (spec STACK-9). Of an
    outcome, parts that are not `allowed_PY` have no weight (spec STACK-10).
    """
    p, (c, h, y) = errors.parts, errors.count_CHY.shape
    folds_C = np.arange(c) % min(FOLDS, c)
    weight_PHY, crossed_CHY, rules = np.zeros((p, h, y)), np.zeros((c, h, y)), []
    for o in range(y):
        some = np.arange(p) if allowed_PY is None else np.flatnonzero(allowed_PY[:, o])
        gram_CHPP = errors.gram_CHYPP[:, :, o][..., some, :][..., some]
        prior_PH = None if prior_PHY is None else prior_PHY[some, :, o]
        if prior_PH is not None and (prior_PH.sum(axis=0) < 1 - SHORT).any():
            prior_PH = None  # it has weight on others
        chosen = _best_rule(gram_CHPP, folds_C, prior_PH)
        anchored, adjusts = (np.flatnonzero(np.isin(some, places)) for places in (anchors, adjusting))
        if len(anchored):
            total_P = np.einsum("chpp->p", gram_CHPP)
            anchor_PH = np.zeros_like(chosen[1])
            anchor_PH[anchored[total_P[anchored].argmin()]] = 1
            squares_CH = _squares(anchor_PH, gram_CHPP)
            if not _beats(chosen[2], squares_CH):
                chosen = SINGLE, anchor_PH, squares_CH
        if len(adjusts) and chosen[1][np.setdiff1d(np.arange(len(some)), adjusts)].any():
            rule, own_PH, squares_CH = _best_rule(gram_CHPP[..., adjusts, :][..., adjusts], folds_C, None)
            if not _beats(chosen[2], squares_CH):
                weight_PH = np.zeros_like(chosen[1])
                weight_PH[adjusts] = own_PH
                chosen = f"{rule}{THAT_ADJUST}", weight_PH, squares_CH
        rule, weight_PHY[some, :, o], crossed_CHY[..., o] = chosen
        rules.append(rule)
    return Weighing(weight_PHY, tuple(rules), crossed_CHY)


def _best_rule(gram_CHPP: Floats, folds_C: NDArray[np.int64], prior_PH: Floats | None) -> tuple[str, Floats, Floats]:
    """Return the rule of an outcome's weights, these `[P,H]`, and squares `[C,H]`, a mixture's cross-fitted."""
    gram_HPP = gram_CHPP.sum(axis=0)
    single_PH = np.zeros((gram_HPP.shape[-1], len(gram_HPP)))
    single_PH[int(np.einsum("hpp->p", gram_HPP).argmin())] = 1
    fixed = {SINGLE: single_PH} | ({} if prior_PH is None else {PRIOR: prior_PH})
    found = [(name, weight_PH, _squares(weight_PH, gram_CHPP)) for name, weight_PH in fixed.items()]
    best = min(found, key=_total)  # the first, and simplest, of equals
    mixed = []
    for name, rule in MIXTURES.items():
        crossed_CH = np.full(gram_CHPP.shape[:2], np.inf)  # errors of each cluster under weights of the other folds
        for fold in np.unique(folds_C):
            own_C = folds_C == fold
            if own_C.all():
                break  # one cluster says nothing of others
            crossed_CH[own_C] = _squares(rule(gram_CHPP[~own_C].sum(axis=0)), gram_CHPP[own_C])
        mixed.append((name, rule(gram_HPP), crossed_CH))
    mixture = min(mixed, key=_total)
    return mixture if _beats(mixture[2], best[2]) else best


def _total(candidate: tuple[str, Floats, Floats]) -> float:
    return float(candidate[2].sum())


def _beats(squares_CH: Floats, others_CH: Floats) -> bool:
    """Return whether squares are less than others by more than the standard error of their difference."""
    if not np.isfinite(squares_CH).all():
        return False
    # Any gain is too little: on the linear system one of a ten-thousandth of the error would mix in a tenth of the mean
    # of the history, and quadruple the error under plans.
    gain_C = (others_CH - squares_CH).sum(axis=1)
    spread = float(np.sqrt(np.square(gain_C - gain_C.mean()).sum()))
    return float(gain_C.sum()) > spread


def _squares(weight_PH: Floats, gram_CHPP: Floats) -> Floats:
    return np.asarray(np.einsum("ph,chpq,qh->ch", weight_PH, gram_CHPP, weight_PH, optimize=True))


def _by_step(gram_HPP: Floats) -> Floats:
    """Give each step weights of its own, for which all steps together count as much as the step itself."""
    pooled_PP = gram_HPP.sum(axis=0)
    own_HPP = [
        gram_PP / max(np.trace(gram_PP), 1e-300) + pooled_PP / max(np.trace(pooled_PP), 1e-300) for gram_PP in gram_HPP
    ]
    return np.stack([convex(gram_PP) for gram_PP in own_HPP], axis=1)


def convex(gram_PP: Floats) -> Floats:
    """Return the weights of least squared error that are not negative and sum to one (spec STACK-3).

    They are those of the least `v' G v - 2 sum(v)` with v not negative, divided by their sum.
    """
    size_P = np.sqrt(np.diag(gram_PP))
    if not size_P.all():
        return np.asarray((size_P == 0) / (size_P == 0).sum())
    factor_PP = np.linalg.cholesky(gram_PP / np.outer(size_P, size_P) + RIDGE * np.eye(len(size_P)))
    from scipy.optimize import nnls  # noqa: PLC0415  # half a second to import, needed here alone

    share_P, _ = nnls(factor_PP.T, np.linalg.solve(factor_PP, size_P.min() / size_P))
    weight_P = share_P / size_P
    return np.asarray(weight_P / weight_P.sum())


SINGLE: Final = "one part"
PRIOR: Final = "the source's weights"
MIXTURES: Final[dict[str, Rule]] = {
    "one mixture": lambda gram_HPP: np.repeat(convex(gram_HPP.sum(axis=0))[:, None], len(gram_HPP), axis=1),
    "a mixture per step": _by_step,
}
