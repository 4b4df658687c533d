"""The fit of a stack: its parts are fitted one after another, then weighed on validation (spec STACK-1 to 5)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Part
from costar_cli.data.panel import join_panels
from costar_cli.data.windows import FactualWindows, factual_windows, share_of_changes
from costar_cli.errors import DataError, OutOfTimeError, Termination
from costar_cli.files import Artifact
from costar_cli.methods.base import Device, Fit, FitTask, Fitted, FittedModel, FittedPart, adjusted
from costar_cli.methods.registry import LISTS, METHODS
from costar_cli.methods.shared.combining import FAILS, Errors, Weighing, error_scales, weigh
from costar_cli.methods.shared.effect_check import LIMIT, EffectCheck, allowed, largest
from costar_cli.methods.shared.plan_weights import PlanWeights, plan_weights
from costar_cli.methods.shared.trained import PARAMS, model_to_start_from
from costar_cli.methods.stack.model import PARTS, SHARED, StackModel, read_stack
from costar_cli.methods.stack.settings import StackConfig

SOURCE: Final = "source's stack"  # in a leaderboard
ANCHORS: Final = ("last-value", "mean", "seasonal-naive", "ridge")  # left only for what errs less beyond chance
OUT_OF_TIME: Final = "no time was left for it"
TOO_WIDE: Final = "with so many outcomes and covariates its fit takes minutes; name it in `--parts` to wait"

Floats = NDArray[np.float64]


class StackMethod:
    """Stacking: the parts that its settings name, or in few-shot those of the source's stack, each adapted."""

    def fit(self, task: FitTask) -> Fit:
        """Fit every part, and weigh them.

        Raises:
            DataError: no part could be fitted.
            MismatchError: what to start from is of another method.
        """
        yield from ()
        few_shot = task.start is not None and task.start.horizon > 0
        start = model_to_start_from(task, StackModel, "stack") if few_shot else None
        parts = _Parts.fit(task, start)
        windows = factual_windows(task.panels[task.validation], task.horizon)
        if windows is None:
            n = len(parts.done)
            return parts.fitted(
                np.full((task.members, n, task.horizon, len(task.schema.outcomes)), 1 / n),
                {"rules": []},
                ["no validation subject has a step to predict: all parts have the same weight"],
            )
        return _weighed(task, parts, windows, start)

    def load(self, artifact: Artifact, device: Device = "cpu") -> StackModel:
        """Return the model that an artifact holds, with its parts."""
        return read_stack(artifact, device)


@dataclass
class _Parts:
    """Parts that were fitted, by method, those that were not with the reason, and the seconds that each took."""

    task: FitTask
    done: dict[str, FittedPart] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def fit(cls, task: FitTask, start: StackModel | None) -> "_Parts":
        """Fit the parts in order; once one is there, those that do not end in time are left out."""
        parts, begun = cls(task), monotonic()
        config = task.settings_of(StackConfig)
        names = METHODS["stack"].parts(config, task.start.record if task.start else None)
        width, listed = len(task.schema.outcomes) + len(task.schema.covariates), config.parts.strip() in LISTS
        for name in names:
            at, most = monotonic(), METHODS[name].short_list_width
            if start is None and listed and most is not None and width > most:
                parts.left_out[name] = TOO_WIDE
                continue
            left = None if config.minutes is None or not parts.done else 60 * config.minutes - (at - begun)
            if left is not None and left <= 0:
                parts.left_out[name] = OUT_OF_TIME
                continue
            try:
                with Termination.time_limit(left):
                    parts.done[name] = _fit_part(task, name, start)
            except OutOfTimeError:
                parts.left_out[name] = OUT_OF_TIME
            except FAILS as error:
                parts.left_out[name] = str(error) or type(error).__name__
            parts.seconds[name] = monotonic() - at
        parts.require()
        return parts

    def require(self) -> None:
        """Stop where no part is left.

        Raises:
            DataError: naming each with its reason.
        """
        if not self.done:
            details = [f"{name}: {reason}" for name, reason in self.left_out.items()]
            raise DataError("no part of the stack could be fitted", details=details, fix="name others in `stack.parts`")

    def drop(self, name: str, reason: str) -> None:
        """Leave a fitted part out."""
        del self.done[name]
        self.left_out[name] = reason

    def fitted(self, weight_RPHY: Floats, facts: Mapping[str, Any], more_warnings: Sequence[str] = ()) -> Fitted:
        """Return what the fit ends with: weights, and all that the artifacts of the parts would hold."""
        arrays: dict[str, NDArray[np.generic]] = {}
        metas = []
        for name, part in self.done.items():
            arrays |= {f"{PARTS}{name}/{key}": value for key, value in part.artifact.arrays.items()}
            metas.append({key: value for key, value in part.artifact.meta.items() if key not in SHARED})
        heavy = [name for name, w in zip(self.done, weight_RPHY.max(axis=(0, 2, 3)), strict=True) if w > 0]
        warnings = [f"{name}: {warning}" for name in heavy for warning in self.done[name].warnings]
        failed = [
            f"{METHODS.label(name)} is left out of the stack: {reason}"
            for name, reason in self.left_out.items()
            if reason not in {OUT_OF_TIME, TOO_WIDE}
        ]
        meta = {"parts": metas, "left_out": dict(self.left_out), **facts}
        params = {"weights": weight_RPHY}
        return Fitted(params, meta, (*failed, *warnings, *more_warnings), arrays)


def _fit_part(task: FitTask, name: str, start: StackModel | None) -> FittedPart:
    """Fit a part: from the source's in few-shot, from the encoder where it can start from one, or from nothing."""
    if task.fit_part is None:
        raise TypeError("the parts of a stack are fitted by the run that the task is of")
    begin: FittedModel | None = task.start if METHODS[name].pretrained else None
    return task.fit_part(name, start.parts[name] if start else begin)


def _weighed(task: FitTask, parts: _Parts, windows: FactualWindows, start: StackModel | None) -> Fitted:
    """Weigh the parts by their errors on the windows, each member on its own."""
    answers = {}
    for name, part in list(parts.done.items()):
        answer = part.model.rollout(windows.panel, windows.asked)
        if np.isfinite(answer).all():
            answers[name] = answer
        else:
            parts.drop(name, "its predictions on validation are not finite")
    parts.require()
    scale_QY, relative = error_scales(task.panels[Part("source", "train")], task.scaler, windows)
    weights = _window_weights(task, windows)
    weight_QH = weights.weight_QH
    prior_RPHY = None
    if start:  # the source's weights of the parts that are left, unless these had none
        places = [list(start.parts).index(name) for name in answers]
        own_RPHY = start.weight_RPHY[:, places, : windows.queries.horizon]
        total_R1HY = own_RPHY.sum(axis=1, keepdims=True)
        prior_RPHY = own_RPHY / total_R1HY if (total_R1HY > 0).all() else None
    weighed, anchors = [], () if start else anchors_among(list(answers))
    adjusting = _adjusting(task, parts)
    effects = _Effects.of(task, parts)
    allowed_PY = None if effects is None else effects.allowed_PY
    for r in range(task.members):
        errors = Errors.of([_member(answer, r) for answer in answers.values()], windows, scale_QY, weight_QH)
        prior_PHY = None if prior_RPHY is None else _member(prior_RPHY, r)
        weighed.append((errors, weigh(errors, prior_PHY, anchors, adjusting, allowed_PY)))
    step_H = np.minimum(np.arange(task.horizon), windows.queries.horizon - 1)  # beyond the windows, as in their last
    weight_RPHY = np.stack([weighing.weight_PHY[:, step_H] for _, weighing in weighed])
    # Without a budget of time the same fit gives the same file, whatever the machine.
    seconds = {} if task.settings_of(StackConfig).minutes is None else parts.seconds
    rows = _leaderboard(list(answers), weighed, seconds)
    facts = {"rules": [list(weighing.rules) for _, weighing in weighed], "relative": relative, **weights.to_meta()}
    doubts = weights.warnings()
    if effects:
        rows, facts = effects.beside(rows, list(answers), weight_RPHY), facts | effects.check.to_meta()
        doubts += effects.warnings(task)
    if start is None:
        return parts.fitted(weight_RPHY, {"leaderboard": _told(rows), **facts}, doubts)
    stay = start.rollout(windows.panel, windows.asked)
    before = [Errors.of([_member(stay, r)], windows, scale_QY, weight_QH) for r in range(task.members)]
    of_source = _Row.of(SOURCE, [errors.risk(errors.of_part(0)) for errors in before], 0.0, None)
    if rows[-1].error < of_source.error:
        fitted = parts.fitted(weight_RPHY, {"leaderboard": _told([*rows, of_source]), **facts}, doubts)
        return replace(fitted, moved=True)
    unused = [replace(row, weight=0.0) for row in rows]
    told = {"leaderboard": _told([*unused, replace(of_source, weight=1.0)]), **weights.to_meta()}
    return replace(_kept(start, task.members, told), warnings=tuple(doubts))


def anchors_among(names: Sequence[str]) -> tuple[int, ...]:
    """Return the places of the methods that a stack leaves only for what does clearly better (spec STACK-4)."""
    return tuple(i for i, name in enumerate(names) if name in ANCHORS)


def _adjusting(task: FitTask, parts: _Parts) -> list[int]:
    """Return the places of the parts whose differences between plans are effects; none where all parts' are.

    Those of one step are, and where treatment never changes within a plan there are no reactions.
    """
    train = task.panels[task.train]
    if task.horizon == 1 or share_of_changes(train, task.schema.treatments, task.horizon) == 0:
        return []
    return [i for i, part in enumerate(parts.done.values()) if adjusted(part.model) == "all"]


@dataclass(frozen=True)
class _Effects:
    """What each part says of effects, and how far that is from a doubly robust estimate (spec STACK-10)."""

    check: EffectCheck
    own_PMCHY: Floats
    distance_PY: Floats

    @classmethod
    def of(cls, task: FitTask, parts: _Parts) -> "_Effects | None":
        """Ask the parts; None where windows count as observed, or too few follow any plan to say."""
        if task.effect_check is None or task.settings_of(StackConfig).weighting == "observed":
            return None
        if (check := task.effect_check()) is None:
            return None
        own_PMCHY = np.stack([check.differences(part.model) for part in parts.done.values()])
        return cls(check, own_PMCHY, np.stack([largest(check.distances(own_MCHY)) for own_MCHY in own_PMCHY]))

    @property
    def allowed_PY(self) -> NDArray[np.bool_]:
        """Return which parts the data do not contradict, by outcome; where they contradict all, the nearest alone."""
        return allowed(self.distance_PY)

    def beside(self, rows: Sequence["_Row"], names: Sequence[str], weight_RPHY: Floats) -> list["_Row"]:
        """Return the rows of a leaderboard with the largest distance of each, over outcomes."""
        weight_PHY = weight_RPHY.mean(axis=0)[:, : self.check.steps]
        own_MCHY = np.einsum("phy,pmchy->mchy", weight_PHY, self.own_PMCHY)
        distance = {"stack": largest(self.check.distances(own_MCHY)), **dict(zip(names, self.distance_PY, strict=True))}
        return [replace(row, effect=float(np.nanmax(distance[row.method]))) for row in rows]

    def warnings(self, task: FitTask) -> list[str]:
        """Return which outcomes have no part that data do not contradict."""
        contradicted_Y = np.asarray((self.distance_PY > LIMIT).all(axis=0))
        names = [one.name for one, no in zip(task.schema.outcomes, contradicted_Y.tolist(), strict=True) if no]
        if not names:
            return []
        return [f"the data contradict the effects of all parts on {', '.join(names)}: see `costar effect`"]


def _window_weights(task: FitTask, windows: FactualWindows) -> PlanWeights:
    """Return how much each window's steps count, with treatments as the subjects to learn from get them.

    The target's few subjects alone would separate who was treated from who was not: the source's are added to them,
    and the models are told which they are.
    """
    if task.settings_of(StackConfig).weighting == "observed":
        steps = windows.queries.horizon
        return PlanWeights.of(np.zeros((len(windows.queries), steps)), [True] * steps)
    parts = dict.fromkeys((Part("source", "train"), task.train))
    panels = [task.panels[part] for part in parts]
    is_own_N = np.repeat([part.domain == task.domain for part in parts], [panel.n_subjects for panel in panels])
    return plan_weights(join_panels(panels), windows, task.scaler, task.schema.treatments, is_own_N)


def _kept(start: StackModel, members: int, facts: Mapping[str, Any]) -> Fitted:
    """Return the first members of the source's stack, with facts about the target."""
    arrays = {
        f"{PARTS}{name}/{key}": np.asarray(value[:members] if key.startswith(PARAMS) else value)
        for name, artifact in start.artifacts.items()
        for key, value in artifact.arrays.items()
    }
    own = start.record
    rules = None if own.rules is None else own.rules[:members]
    kept = {"parts": own.parts, "left_out": own.left_out, "rules": rules, "relative": own.relative}
    meta = {name: fact for name, fact in kept.items() if fact is not None} | dict(facts)
    return Fitted({"weights": start.params["weights"][:members]}, meta, (), arrays, moved=False)


def _member(values_R: NDArray[Any], member: int) -> NDArray[Any]:
    """Return a member's values; those of what has one member are every member's."""
    own: NDArray[Any] = values_R[0 if len(values_R) == 1 else member]
    return own


@dataclass(frozen=True)
class _Row:
    """A row of a leaderboard: the error on the windows with its standard error, and the weight, means over members.

    `effect` is how many standard errors the row's effects are from a doubly robust estimate.
    """

    method: str
    error: float
    se: float
    weight: float
    seconds: float | None
    effect: float | None = None

    @classmethod
    def of(cls, method: str, risks: Sequence[tuple[float, float]], weight: float, seconds: float | None) -> "_Row":
        error, se = np.mean(risks, axis=0).tolist()
        return cls(method, error, se, weight, seconds)

    def to_meta(self) -> dict[str, object]:
        row: dict[str, object] = {
            "method": self.method,
            "error": self.error,
            "se": self.se if np.isfinite(self.se) else None,
            "weight": self.weight,
        }
        if self.effect is not None:
            row["effect"] = self.effect
        return row if self.seconds is None else row | {"seconds": round(self.seconds, 1)}


def _leaderboard(
    names: Sequence[str], weighed: Sequence[tuple[Errors, Weighing]], seconds: Mapping[str, float]
) -> list[_Row]:
    """Return a row of each part, the smallest error first; then the stack's.

    Where a mixture does best, its error is of weights that the other clusters gave; that of a single part, or of the
    source's weights, is the one on all windows, from which they were chosen (spec STACK-8).
    """
    rows = []
    for i, name in enumerate(names):
        risks = [errors.risk(errors.of_part(i)) for errors, _ in weighed]
        weight = float(np.mean([weighing.weight_PHY[i].mean() for _, weighing in weighed]))
        rows.append(_Row.of(name, risks, weight, seconds.get(name)))
    rows.sort(key=lambda row: row.error)
    return [*rows, _Row.of("stack", [errors.risk(weighing.crossed_CHY) for errors, weighing in weighed], 1.0, None)]


def _told(rows: Sequence[_Row]) -> list[dict[str, object]]:
    return [row.to_meta() for row in rows]


STACK = StackMethod()
