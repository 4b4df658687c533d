"""Scores of predicted probabilities: of the ends of series, and of outcomes that are 0 or 1 (spec SURV-7, SURV-8)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from costar_cli.evaluate.natural import CourseQuestions
from costar_cli.evaluate.setups import SetupName
from costar_cli.methods.base import FittedModel
from costar_cli.panel import Panel, Queries, as_plans
from costar_cli.panel.schema import PanelSchema
from costar_cli.uncertainty import Survival

Floats = NDArray[np.float64]

LEAST: Final = 1e-6  # of a probability whose logarithm is taken, so that a loss is finite
BINS: Final = 10


@dataclass(frozen=True, slots=True)
class ProbabilityStep:
    """Scores of one step since the origin, over `answers`: shares that were predicted and observed, and losses.

    `constant_log_loss` is that of the observed share itself, `auroc` the probability that one that happened had a
    higher prediction than one that did not; None where all or none happened.
    """

    step: int
    answers: int
    predicted: float
    observed: float
    log_loss: float
    constant_log_loss: float
    brier: float
    auroc: float | None


@dataclass(frozen=True, slots=True)
class ProbabilityScore:
    """Scores of one event on a test part: `of` is an `end` of series or a binary `outcome`, as `kind` says.

    `calibration` has the mean prediction and the observed share of each tenth of the answers, by prediction.
    """

    setup: SetupName
    label: str
    test: str
    kind: str
    of: str
    steps: tuple[ProbabilityStep, ...]
    calibration: tuple[tuple[float, float, int], ...]


def survival_windows(panel: Panel, horizon: int) -> Queries | None:
    """Return questions one behind the other, so that each step at risk is asked about once; short plans are padded."""
    first_N = panel.first_origin
    step_T = np.arange(panel.n_steps)
    begins_NT = (step_T >= first_N[:, None]) & ((step_T - first_N[:, None]) % horizon == 0)
    row_Q, origin_Q = np.nonzero(begins_NT & panel.decided)
    if not len(row_Q):
        return None
    step_QH = np.minimum(origin_Q[:, None] + np.arange(horizon), panel.length[row_Q, None] - 2)
    plan = as_plans(panel.treatments[row_Q[:, None], step_QH])
    return Queries(row_Q.astype(np.int32), origin_Q.astype(np.int16), plan)


def score_ends(
    model: FittedModel, survival: Survival, panel: Panel, horizon: int, *, setup: SetupName, label: str, test: str
) -> Iterator[ProbabilityScore]:
    """Yield the scores of each terminal end: that it comes at a step, of series that went on until then."""
    queries = survival_windows(panel, min(horizon, model.horizon))
    if queries is None or panel.end is None:
        return
    predicted_QHY = model.rollout(panel, queries).mean(axis=0, dtype=np.float64)
    risk_QHE = survival.hazards.along(panel, queries, predicted_QHY)
    step_QH = queries.origin.astype(np.int64)[:, None] + np.arange(queries.horizon)
    last_Q1 = panel.length[queries.subject][:, None] - 2
    at_risk_QH = step_QH <= last_Q1
    for code, name in model.schema.terminal.items():
        came_QH = (step_QH == last_Q1) & (panel.end[queries.subject][:, None] == code)
        scored = _scores(risk_QHE[..., code - 1], came_QH, at_risk_QH)
        yield ProbabilityScore(setup, label, test, "end", name, *scored)


def score_binary(
    course: CourseQuestions, schema: PanelSchema, *, setup: SetupName, label: str, test: str
) -> Iterator[ProbabilityScore]:
    """Yield the scores of each binary outcome, under the treatments that were given."""
    queries = course.queries
    step_QH = queries.origin.astype(np.int64)[:, None] + np.arange(queries.horizon) + 1
    at = queries.subject[:, None], step_QH
    for k, outcome in enumerate(schema.outcomes):
        if outcome.kind == "binary":
            came_QH = course.panel.outcomes[(*at, k)] > 0.5
            seen_QH = np.asarray(course.panel.observed_outcomes[(*at, k)])
            scored = _scores(course.mean_QHY[..., k], came_QH, seen_QH)
            yield ProbabilityScore(setup, label, test, "outcome", outcome.name, *scored)


def _scores(
    predicted_QH: Floats, came_QH: NDArray[np.bool_], counts_QH: NDArray[np.bool_]
) -> tuple[tuple[ProbabilityStep, ...], tuple[tuple[float, float, int], ...]]:
    steps = [
        _step(h + 1, predicted_QH[counts, h], came_QH[counts, h])
        for h, counts in enumerate(counts_QH.T)
        if counts.any()
    ]
    p_M, came_M = predicted_QH[counts_QH], came_QH[counts_QH]
    parts = np.array_split(np.argsort(p_M, kind="stable"), min(BINS, len(p_M))) if len(p_M) else []
    return tuple(steps), tuple((float(p_M[part].mean()), float(came_M[part].mean()), len(part)) for part in parts)


def _step(step: int, predicted_M: Floats, came_M: NDArray[np.bool_]) -> ProbabilityStep:
    share, count = float(came_M.mean()), len(came_M)
    p_M = np.clip(predicted_M, 0.0, 1.0)
    return ProbabilityStep(
        step, count, float(p_M.mean()), share, _log_loss(p_M, came_M), _log_loss(np.full(count, share), came_M),
        float(((p_M - came_M) ** 2).mean()), _auroc(p_M, came_M),
    )  # fmt: skip


def _log_loss(p_M: Floats, came_M: NDArray[np.bool_]) -> float:
    safe_M = np.clip(np.where(came_M, p_M, 1 - p_M), LEAST, 1.0)
    return float(np.negative(np.log(safe_M)).mean()) + 0.0  # no negative zero


def _auroc(p_M: Floats, came_M: NDArray[np.bool_]) -> float | None:
    yes = int(came_M.sum())
    if yes in (0, len(came_M)):
        return None
    ranks: Any = rankdata(p_M)[came_M].sum()
    return float((ranks - yes * (yes + 1) / 2) / (yes * (len(came_M) - yes)))
