"""Scores of predicted probabilities: of the ends of series, and of outcomes that are 0 or 1 (spec SURV-7, SURV-8)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.choices import SetupName
from costar_cli.data.schema import PanelSchema
from costar_cli.evaluation.dropout import StayWeights
from costar_cli.evaluation.score import TestPart, mean_predictions
from costar_cli.evaluation.sums import Sums
from costar_cli.inference import Survival
from costar_cli.inference.rates import expected_ends, loss_of_rates
from costar_cli.inference.survival_fit import survival_windows
from costar_cli.methods.base import FittedModel

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LEAST: Final = 1e-6  # of a probability whose logarithm is taken, so that a loss is finite
BINS: Final = 10


@dataclass(frozen=True, slots=True)
class ProbabilityStep:
    """Scores of one step since the origin, over `answers`: shares that were predicted and observed, and losses.

    `constant_log_loss` is that of the observed share itself, `auroc` the probability that one that happened had a
    higher prediction than one that did not; None where all or none happened. Where steps are of any length, `predicted`
    counts expected ends, losses are those of rates per usual length of a step, and there is no Brier score.
    """

    step: int
    answers: int
    predicted: float
    observed: float
    log_loss: float
    constant_log_loss: float
    brier: float | None
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


Event = tuple[str, str]  # what it is, `end` or `outcome`, and its name


def event_columns(
    counts_QH: Bools, *, predicted_QH: Floats, came_QH: Bools, weight_QH: Floats | None = None,
    time_QH: Floats | None = None,
) -> dict[str, NDArray[Any]]:  # fmt: skip
    """Return the predicted probabilities of an event, one for each subject and step since the origin that counts.

    `step` counts from 1, `predicted` is the probability, `came` what happened, `weight` how much it counts, one by
    default, and `time` the length of the step where `predicted` counts expected ends.
    """
    columns = {
        "step": np.nonzero(counts_QH)[1] + 1,
        "predicted": predicted_QH[counts_QH],
        "came": came_QH[counts_QH],
        "weight": np.ones(int(counts_QH.sum())) if weight_QH is None else weight_QH[counts_QH],
    }
    return columns if time_QH is None else columns | {"time": time_QH[counts_QH]}


def event_score(event: Event, answers: Sums, *, setup: SetupName, label: str, test: str) -> ProbabilityScore:
    """Return the scores of each step, and the tenths."""
    steps = []
    for step in np.unique(answers["step"]).tolist():
        own = answers["step"] == step
        steps.append(_step(step, {name: column[own] for name, column in answers.items()}))
    predicted_M, came_M, weight_M = (answers[name] for name in ("predicted", "came", "weight"))
    rank_M = predicted_M / answers["time"] if "time" in answers else predicted_M
    count = len(rank_M)
    parts = np.array_split(np.argsort(rank_M, kind="stable"), min(BINS, count)) if count else []
    tenths = tuple(
        (_mean(predicted_M[part], weight_M[part]), _mean(came_M[part], weight_M[part]), len(part)) for part in parts
    )
    return ProbabilityScore(setup, label, test, *event, tuple(steps), tenths)


def answer_ends(
    model: FittedModel, survival: Survival, part: TestPart, weights: StayWeights | None = None
) -> Iterator[tuple[Event, dict[str, NDArray[Any]]]]:
    """Yield, for each terminal end, the probabilities that it comes at a step, of series that went on until then."""
    panel = part.panel
    queries = survival_windows(panel, min(part.horizon, model.horizon))
    if queries is None or panel.end is None:
        return
    queries = queries.of_subjects(part.own)
    predicted_QHY = mean_predictions(model, panel, queries)
    risk_QHE = survival.hazards.along(panel, queries, predicted_QHY)
    if (time_QH := survival.hazards.time(queries.plan)) is not None:
        risk_QHE = expected_ends(risk_QHE)
    step_QH = queries.origin.astype(np.int64)[:, None] + np.arange(queries.horizon)
    last_Q1 = panel.length[queries.subject][:, None] - 2
    at_risk_QH = step_QH <= last_Q1
    weight_QH = weights.at(queries) if weights else None
    for code, name in model.schema.terminal.items():
        came_QH = (step_QH == last_Q1) & (panel.end[queries.subject][:, None] == code)
        risk_QH = risk_QHE[..., code - 1]
        yield (
            ("end", name),
            event_columns(at_risk_QH, predicted_QH=risk_QH, came_QH=came_QH, weight_QH=weight_QH, time_QH=time_QH),
        )


def answers_of_binary(course: Sums, schema: PanelSchema) -> Iterator[tuple[Event, dict[str, NDArray[Any]]]]:
    """Yield the probabilities of each binary outcome, under the treatments that were given."""
    for k, outcome in enumerate(schema.outcomes):
        if outcome.kind == "binary":
            came_QH, predicted_QH = course["observed"][..., k] > 0.5, course["predicted"][..., k]
            yield (
                ("outcome", outcome.name),
                event_columns(
                    course["seen"][..., k], predicted_QH=predicted_QH, came_QH=came_QH, weight_QH=course["weight"]
                ),
            )


def _step(step: int, answers: Sums) -> ProbabilityStep:
    predicted_M, came_M, weight_M = (answers[name] for name in ("predicted", "came", "weight"))
    share, count = _mean(came_M, weight_M), len(came_M)
    if "time" in answers:
        time_M = answers["time"]
        rate_M, same_M = predicted_M / time_M, np.full(count, share / _mean(time_M, weight_M))

        def loss(rate_M: Floats) -> float:
            return _mean(loss_of_rates(rate_M[:, None], time_M[:, None], came_M[:, None]), weight_M)

        scores = loss(rate_M), loss(same_M), None, _auroc(rate_M, came_M, weight_M)
        return ProbabilityStep(step, count, _mean(predicted_M, weight_M), share, *scores)
    p_M = np.clip(predicted_M, 0.0, 1.0)

    def log_loss(p_M: Floats) -> float:
        safe_M = np.clip(np.where(came_M, p_M, 1 - p_M), LEAST, 1.0)
        return _mean(np.negative(np.log(safe_M)), weight_M) + 0.0  # no negative zero

    return ProbabilityStep(
        step, count, _mean(p_M, weight_M), share, log_loss(p_M), log_loss(np.full(count, share)),
        _mean((p_M - came_M) ** 2, weight_M), _auroc(p_M, came_M, weight_M),
    )  # fmt: skip


def _mean(values_M: NDArray[np.float64] | NDArray[np.bool_], weight_M: Floats) -> float:
    return float((values_M * weight_M).sum() / weight_M.sum())


def _auroc(p_M: Floats, came_M: NDArray[np.bool_], weight_M: Floats) -> float | None:
    """Return the weight of pairs, of one that came and one that did not, in which the former has the higher p."""
    if came_M.all() or not came_M.any():
        return None
    place_M = np.unique(p_M, return_inverse=True)[1]
    not_K = np.bincount(place_M, weights=weight_M * ~came_M)
    below_K = not_K.cumsum() - not_K / 2  # ties count half
    yes_M = weight_M * came_M
    return float((yes_M * below_K[place_M]).sum() / (yes_M.sum() * not_K.sum()))
