"""Point estimates of any model and how uncertain they are, before calibration (spec BAND-1)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Queries
from costar_cli.errors import ArtifactError
from costar_cli.inference.conformal import Binning, bins_of, bins_of_length
from costar_cli.inference.outcomes import OutcomeFacts, levels
from costar_cli.methods.base import FittedModel, Forecast, PredictFn

FLOOR: Final = 0.05  # of the unit of errors, what no member knows of: where none was chosen on held-out subjects
TINY: Final = 1e-6  # of an sd of source-train: the smallest scale, so that no score is divided by zero

Floats = NDArray[np.float64]
Held = TypeVar("Held")
AttachedPart = Literal["calibration", "practice", "survival", "outcome_facts"]
PARTS_WITH_FACTS: Final[tuple[AttachedPart, ...]] = ("calibration", "practice")


@dataclass(frozen=True, eq=False, slots=True)
class Estimates:
    """Point estimates of Q queries and how uncertain they are, in the units of the data.

    Attributes:
        mean_QHY: the mean over members.
        sd_QHY: scale of errors: the predictive sd; of black boxes, that between members and a share of the level.
        share_QHY: share of the variance that is not known of the model or of the subject's parameters, 0 to 1; 1 for
            black boxes, which know of no noise.
        level_QY: last known outcome at the origin.
        unit_QY: of errors from the origin.
        members_RQHY: what each member predicts.
        origin_Q: steps before the origin, as many as the history is long.
    """

    mean_QHY: Floats
    sd_QHY: Floats
    share_QHY: Floats
    level_QY: Floats
    unit_QY: Floats
    members_RQHY: NDArray[np.floating]
    origin_Q: NDArray[np.integer]

    @property
    def binned_by(self) -> Binning:
        """Return by what quantiles of errors differ: black boxes know of no noise, but how long the history is."""
        return "history" if bool((self.share_QHY == 1).all()) else "share"

    def bins(self, by: Binning) -> NDArray[np.int64]:
        """Return the bin of each estimate `[Q,H,Y]` (spec BAND-4)."""
        if by == "share":
            return bins_of(self.share_QHY)
        return np.broadcast_to(bins_of_length(self.origin_Q)[:, None, None], self.mean_QHY.shape)

    def with_rows(self, rows: NDArray[np.integer], others: "Estimates") -> "Estimates":
        """Return these estimates with those of others in the place of some queries."""

        def put(mine: NDArray[Any], theirs: NDArray[Any], at: tuple[Any, ...]) -> NDArray[Any]:
            mine = mine.astype(np.float64)
            mine[at] = theirs
            return mine

        names = ("mean_QHY", "sd_QHY", "share_QHY", "level_QY", "unit_QY")
        mixed = {name: put(getattr(self, name), getattr(others, name), (rows,)) for name in names}
        members_RQHY = put(self.members_RQHY, others.members_RQHY, (slice(None), rows))
        origin_Q = self.origin_Q.copy()
        origin_Q[rows] = others.origin_Q
        return Estimates(**mixed, members_RQHY=members_RQHY, origin_Q=origin_Q)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the estimates of neighbouring queries as those of all."""
        if len(parts) == 1:
            return parts[0]
        names = ("mean_QHY", "sd_QHY", "share_QHY", "level_QY", "unit_QY", "origin_Q")
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return cls(**joined, members_RQHY=np.concatenate([part.members_RQHY for part in parts], axis=1))

    def take(self, rows: slice | NDArray[np.integer], steps: int | None = None) -> "Estimates":
        """Return the estimates of some queries, of their first steps."""
        own = (rows, slice(steps))
        return Estimates(
            self.mean_QHY[own],
            self.sd_QHY[own],
            self.share_QHY[own],
            self.level_QY[rows],
            self.unit_QY[rows],
            self.members_RQHY[:, *own],
            self.origin_Q[rows],
        )


@dataclass(frozen=True, eq=False, slots=True)
class Answers:
    """What a model says of queries, before the floor of the scale of black boxes."""

    forecast: Forecast
    level_QY: Floats
    unit_QY: Floats
    least_Y: Floats
    origin_Q: NDArray[np.integer]

    @property
    def depends_on_floor(self) -> bool:
        """Return whether bands change with the floor: not where it is all the scale that there is, or no part of it."""
        return bool(self.forecast.black_HY.any() and self.forecast.variance_QHY.any())

    def estimates(self, floor: float) -> Estimates:
        """Return estimates, with a floor in units of errors."""
        found, least_Y = self.forecast, self.least_Y
        more_QHY = found.black_HY * ((floor * self.unit_QY) ** 2)[:, None] + least_Y
        variance_QHY = found.variance_QHY + more_QHY
        share_QHY = np.minimum((found.parameter_QHY + more_QHY) / variance_QHY, 1.0)
        unit_QY = np.maximum(self.unit_QY, np.sqrt(least_Y))
        return Estimates(
            found.mean_QHY, np.sqrt(variance_QHY), share_QHY, self.level_QY, unit_QY, found.members_RQHY, self.origin_Q
        )


def estimate(
    model: FittedModel,
    panel: Panel,
    queries: Queries,
    facts: OutcomeFacts | None = None,
    *,
    ask: PredictFn | None = None,
    floor: float | None = None,
) -> Estimates:
    """Estimate the outcomes of queries with any model, and how uncertain each is.

    Args:
        model: with a predictive distribution, an ensemble, or neither.
        panel: histories; each model encodes the subjects asked about once.
        queries: answers that they hold are not looked at.
        facts: of the outcomes; those that travel with the model by default.
        ask: predicts as the `rollout` of a model or of its part does, from what it keeps of the panel.
        floor: of the scale of black boxes; the one that travels with the model by default.
    """
    return answers_of(model, panel, queries, facts, ask=ask).estimates(floor_of(model) if floor is None else floor)


def answers_of(
    model: FittedModel, panel: Panel, queries: Queries, facts: OutcomeFacts | None, *, ask: PredictFn | None = None
) -> Answers:
    """Ask a model as `estimate` does, and leave the floor open."""
    asked = replace(queries, outcomes=None, scored=None)
    level_QY, facts = levels(panel, asked), facts or facts_of(model)
    unit_QY = facts.error_units(panel, asked, model.scaler) if facts else np.abs(level_QY)
    found, least_Y = model.forecast(panel, asked, ask or predictor(panel)), least_sd(model) ** 2
    found = replace(found, members_RQHY=possible(facts, found.members_RQHY))
    return Answers(found, level_QY, unit_QY, least_Y, asked.origin)


def least_sd(model: FittedModel) -> Floats:
    """Return the smallest scale of the errors of each outcome `[Y]`."""
    return np.asarray(TINY * model.scaler.outcomes[1], dtype=np.float64)


def predictor(panel: Panel) -> PredictFn:
    """Return what predicts the outcomes of queries about a panel as `rollout` does."""
    return lambda model, queries: model.rollout(panel, queries)


def cached_predictor(panel: Panel) -> PredictFn:
    """Return what predicts as `predictor` does, but each model once: all its queries are the same."""
    return once(predictor(panel))


def once(ask: PredictFn) -> PredictFn:
    """Return what predicts as `ask` does, but asks each model once: all its queries are the same."""
    told: dict[int, NDArray[np.float32]] = {}

    def ask_once(model: FittedModel, queries: Queries) -> NDArray[np.float32]:
        if id(model) not in told:
            told[id(model)] = ask(model, queries)
        return told[id(model)]

    return ask_once


def encoded_predictor(panel: Panel) -> PredictFn:
    """Return what predicts as `rollout` does, but encodes the panel once for each model or part of one."""
    known: dict[int, Any] = {}

    def ask(model: FittedModel, queries: Queries) -> NDArray[np.float32]:
        if id(model) not in known:
            known[id(model)] = model.encode(panel)
        return model.answer(known[id(model)], queries)

    return ask


def floor_of(model: FittedModel) -> float:
    """Return the floor that travels with a model.

    Raises:
        ArtifactError: it is damaged.
    """
    with reading(model, "calibration"):
        return floor_in(model.record.calibration or {})


def floor_in(meta: Mapping[str, Any]) -> float:
    """Return the floor that a calibration holds; `FLOOR` where none was chosen, as in files of version 0.3.0.

    Raises:
        ValueError: it is none.
        TypeError: likewise.
    """
    floor = float(meta.get("floor", FLOOR))
    if not 0 < floor <= 1:
        raise ValueError(f"the floor of the scale is {floor:g}, not above 0 and at most 1")
    return floor


def possible(facts: OutcomeFacts | None, predicted_RQHY: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return what members predict, as far as it can occur: no counts below zero, say (spec BAND-2).

    Every estimate that is shown, scored or searched by comes through here, before there is a band around it.
    """
    if facts is None:
        return predicted_RQHY
    clipped_RQHY = facts.clip(predicted_RQHY).astype(predicted_RQHY.dtype)
    return np.where(np.isfinite(predicted_RQHY), clipped_RQHY, predicted_RQHY)  # what diverged is to be seen


def facts_of(model: FittedModel) -> OutcomeFacts | None:
    """Return the facts about outcomes that travel with a model, None where none do.

    Raises:
        ArtifactError: they are damaged, or not those of its outcomes.
    """
    part: AttachedPart = next((name for name in PARTS_WITH_FACTS if getattr(model.record, name)), "outcome_facts")
    meta: Mapping[str, Any] | None = getattr(model.record, part)
    if not meta or (part == "practice" and "facts" not in meta):  # as in files of version 0.3.0
        return None
    with reading(model, part):
        facts, outcomes = OutcomeFacts.from_meta(meta["facts"]), len(model.schema.outcomes)
        if len(facts.forms) != outcomes:
            raise ValueError(f"it has facts of {len(facts.forms)} outcomes, the model has {outcomes}")
        return facts


def held_by(
    model: FittedModel, part: AttachedPart, read: Callable[[FittedModel, Any, Mapping[str, Any]], Held]
) -> Held | None:
    """Return what travels with a model as a part of its file, None where it has none.

    Args:
        model: any.
        part: the name of the part, whose facts are in the record under it.
        read: makes it of these facts and of the arrays beside them.

    Raises:
        ArtifactError: what its file holds does not fit it.
    """
    meta: Mapping[str, Any] | None = getattr(model.record, part)
    if not meta:
        return None
    with reading(model, part):
        return read(model, meta, model.attached)


@contextmanager
def reading(model: FittedModel, part: str) -> Iterator[None]:
    """Say in one error, of whatever is wrong with a part of a model's file, which part it is.

    Raises:
        ArtifactError: in place of what reading damaged values raises.
    """
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ArtifactError(
            f"what the model of {model.method} knows of {part} is damaged: {why}",
            where=f"{part} in the model's file",
            fix="make the model again with `costar finetune`",
        ) from error
