"""Models that learn logarithms or differences of outcomes, and answer in the units of the data (spec PANEL-18)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema, Part, Queries, Scaler
from costar_cli.data.transforms import TRANSFORM, OutcomeTransforms
from costar_cli.files import Artifact
from costar_cli.methods.base import (
    Decide,
    DrawsCourses,
    DrawsOutcomes,
    EncodesOnce,
    FitTask,
    FittedModel,
    KeepsWithin,
    PredictiveDistribution,
    PredictsStepwise,
    PredictsSums,
)
from costar_cli.methods.registry import METHODS, Adjusts
from costar_cli.methods.shared.members import Params
from costar_cli.methods.shared.trained import TrainedModel
from costar_cli.reporting import Reporter

__all__ = ["DrawingTransformedModel", "TransformedModel", "inner_task", "load_transformed", "on_transforms"]

LEARNED_AS: Final = {"log": "its logarithm", "log1p": "the logarithm of 1 + its value"}


@dataclass(frozen=True, kw_only=True)
class TransformedModel:
    """A `FittedModel` whose outcomes are transformed before another one sees them, and its answers back.

    Answers are what the exponential makes of predicted logarithms: where errors of these are symmetric, medians.
    """

    inner: FittedModel
    transforms: OutcomeTransforms
    scaler: Scaler
    meta: Mapping[str, Any]

    @property
    def method(self) -> str:
        """Return the name of the method."""
        return self.inner.method

    @property
    def members(self) -> int:
        """Return R."""
        return self.inner.members

    @property
    def horizon(self) -> int:
        """Return the longest plan that the model answers."""
        return self.inner.horizon

    @property
    def schema(self) -> PanelSchema:
        """Return the columns of the data, with outcomes as these have them."""
        return self.transforms.schema

    @property
    def parents(self) -> Mapping[str, str]:
        """Return the digests of what it was made from."""
        return self.inner.parents

    @property
    def digest(self) -> str:
        """Return the digest of its artifact."""
        return self.inner.digest

    @property
    def trained_on(self) -> Mapping[str, int]:
        """Return the number of labelled subjects per part that were at hand in training."""
        return self.inner.trained_on

    @property
    def params(self) -> Params:
        """Return the parameters of all members."""
        return cast("TrainedModel", self.inner).params

    @property
    def attached(self) -> Mapping[str, NDArray[np.generic]]:
        """Return the arrays of its artifact that say what to think of its answers."""
        attached: Mapping[str, NDArray[np.generic]] = getattr(self.inner, "attached", {})
        return attached

    @property
    def stepwise(self) -> bool:
        """Return whether each predicted step follows from the one before it (`PredictsStepwise`)."""
        return isinstance(self.inner, PredictsStepwise) and self.inner.stepwise

    @property
    def adjusts(self) -> Adjusts:
        """Return which reactions inside a plan it adjusts for."""
        found: Adjusts = getattr(self.inner, "adjusts", METHODS[self.method].adjusts)
        return found

    def encode(self, panel: Panel) -> tuple[Any, NDArray[np.float32]]:
        """Return what the inner model knows of a panel, and the outcomes as the data have them."""
        learned = self.transforms.panel(panel)
        return self.inner.encode(learned) if isinstance(self.inner, EncodesOnce) else learned, panel.outcomes

    def answer(
        self,
        states: tuple[Any, NDArray[np.float32]],
        queries: Queries,
        *,
        batch_size: int = 16_384,
        reporter: Reporter | None = None,
    ) -> NDArray[np.float32]:
        """Predict as `rollout` does, on a panel that `encode` has seen."""
        known, outcomes_NTY = states
        answer = self.inner.answer if isinstance(self.inner, EncodesOnce) else self.inner.rollout
        made = answer(known, _asked(queries), batch_size=batch_size, reporter=reporter)
        return self._undone(made, outcomes_NTY, queries)

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict the outcomes of every query, `[R,Q,H,Y]` in the units of the data."""
        learned = self.transforms.panel(panel)
        made = self.inner.rollout(learned, _asked(queries), batch_size=batch_size, reporter=reporter)
        return self._undone(made, panel.outcomes, queries)

    def _undone(
        self, made_RQHY: NDArray[np.floating], outcomes_NTY: NDArray[np.float32], queries: Queries
    ) -> NDArray[np.float32]:
        level_QY = outcomes_NTY[queries.subject, queries.origin]
        return self.transforms.undo(made_RQHY, level_QY).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class DrawingTransformedModel(TransformedModel):
    """One whose inner model knows its distribution: where there are logarithms, its answers are means of outcomes."""

    def encode(self, panel: Panel) -> tuple[Any, NDArray[np.float32]]:
        """Return what the inner model knows of a panel; the panel itself where means need its distribution."""
        if self.transforms.has_logarithms:
            return panel, panel.outcomes
        return super().encode(panel)

    def answer(
        self,
        states: tuple[Any, NDArray[np.float32]],
        queries: Queries,
        *,
        batch_size: int = 16_384,
        reporter: Reporter | None = None,
    ) -> NDArray[np.float32]:
        """Predict as `rollout` does, on a panel that `encode` has seen."""
        if self.transforms.has_logarithms:
            return self.rollout(states[0], queries, batch_size=batch_size, reporter=reporter)
        return super().answer(states, queries, batch_size=batch_size, reporter=reporter)

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict the mean outcomes of every query, `[R,Q,H,Y]` in the units of the data."""
        if self.transforms.has_logarithms:
            return self.predict_distribution(panel, queries).mean
        return super().rollout(panel, queries, batch_size=batch_size, reporter=reporter)

    def predict_distribution(self, panel: Panel, queries: Queries) -> PredictiveDistribution:
        """Predict mean and standard deviation, with logarithms taken to be normal."""
        inner = cast("PredictsSums", self.inner)
        learned = self.transforms.panel(panel)
        said = inner.predict_sums(learned, _asked(queries), self.transforms.differs)
        level_QY = panel.outcomes[queries.subject, queries.origin].astype(np.float64)
        bounds = inner.bounds(learned, queries) if isinstance(inner, KeepsWithin) else None
        made = self.transforms.undo_sums(said.mean, said.sd_parameter, said.sd_noise, level_QY, bounds)
        return PredictiveDistribution(*(values.astype(np.float32) for values in made))

    def draw_outcomes(
        self, panel: Panel, queries: Queries, n: int, seed: int, *, among: NDArray[np.integer] | None = None
    ) -> NDArray[np.float64]:
        """Draw outcomes `[S,Q,H,Y]`, S = n, in the units of the data."""
        inner = cast("DrawsOutcomes", self.inner)
        drawn = inner.draw_outcomes(self.transforms.panel(panel), _asked(queries), n, seed, among=among)
        return self.transforms.undo(drawn, panel.outcomes[queries.subject, queries.origin])

    @property
    def draws_training(self) -> bool:
        """Return whether draws have what training leaves open."""
        return bool(getattr(self.inner, "draws_training", False))

    @property
    def draws_covariates(self) -> bool:
        """Return whether courses have covariates, too."""
        return cast("DrawsCourses", self.inner).draws_covariates

    def draw_courses(
        self,
        panel: Panel,
        subject_Q: NDArray[np.integer],
        origin_Q: NDArray[np.integer],
        decide: Decide,
        *,
        steps: int,
        n: int,
        seed: int,
    ) -> NDArray[np.float64]:
        """Draw as `draw_outcomes` does; `decide` is told outcomes in the units of the data."""
        level_QY = panel.outcomes[subject_Q, origin_Q].astype(np.float64)
        y, reached = level_QY.shape[1], [np.tile(level_QY, (n, 1))]

        def decide_by_outcomes(h: int, told: NDArray[np.float64]) -> NDArray[np.floating]:
            reached[0] = self.transforms.undo_step(told[:, :y], reached[0], first=h == 0)
            return decide(h, np.concatenate([reached[0], told[:, y:]], axis=1))

        inner, learned = cast("DrawsCourses", self.inner), self.transforms.panel(panel)
        drawn = inner.draw_courses(learned, subject_Q, origin_Q, decide_by_outcomes, steps=steps, n=n, seed=seed)
        return self.transforms.undo(drawn, level_QY)


def inner_task(task: FitTask) -> tuple[FitTask, OutcomeTransforms | None]:
    """Return a task with outcomes as models learn them, and how they are transformed; None where none are.

    Raises:
        DataError: an outcome has no logarithm.
    """
    start = task.start
    if isinstance(start, TransformedModel):
        transforms: OutcomeTransforms | None = start.transforms
        start = start.inner
    else:
        train = task.panels.get(Part("source", "train"), task.panels[task.train])
        transforms = OutcomeTransforms.fit(train, task.schema)
    if transforms is None:
        return task, None
    needed = {task.train, task.validation, Part("source", "train")}
    panels = {part: transforms.panel(panel) for part, panel in task.panels.items() if part in needed}
    scaler = transforms.inner_scaler(task.scaler)
    return replace(task, schema=transforms.inner_schema, panels=panels, scaler=scaler, start=start), transforms


def load_transformed(artifact: Artifact, load: Callable[[Artifact], FittedModel]) -> FittedModel:
    """Return the model of an artifact; where its outcomes are transformed, one that undoes it.

    Raises:
        ValueError: its transform is damaged.
    """
    schema = PanelSchema.model_validate(artifact.meta["schema"])
    transforms = OutcomeTransforms.of_arrays(artifact.arrays, schema)
    if transforms is None:
        return load(artifact)
    scaler = Scaler.read(artifact.arrays, schema)
    arrays = {name: array for name, array in artifact.arrays.items() if not name.startswith(TRANSFORM)}
    arrays["scaler/outcomes"] = transforms.moments
    meta = {**artifact.meta, "schema": transforms.inner_schema.model_dump(mode="json")}
    inner = load(replace(artifact, arrays=arrays, meta=meta))
    knows = all(isinstance(inner, kind) for kind in (PredictsSums, DrawsOutcomes, DrawsCourses))
    made: type[TransformedModel] = DrawingTransformedModel if knows else TransformedModel
    return made(inner=inner, transforms=transforms, scaler=scaler, meta=artifact.meta)


def on_transforms(model: FittedModel) -> list[str]:
    """Say of each transformed outcome how it is learned, and what its estimates are."""
    parts: Mapping[str, FittedModel] = getattr(model, "parts", {})
    learners = [part for part in (parts.values() if parts else (model,)) if isinstance(part, TransformedModel)]
    means = all(isinstance(learner, DrawingTransformedModel) for learner in learners)
    what = "means" if means else "medians, which lie below means where outcomes are skewed"
    said = []
    for variable in model.schema.outcomes if learners else ():
        name, kind = variable.name, variable.transform
        if kind == "difference":
            said.append(f"`{name}` is learned as its differences; estimates and errors are of `{name}` itself")
        elif kind is not None:
            learned = f"`{name}` is learned as {LEARNED_AS[kind]}; estimates and errors are of `{name}` itself"
            said.append(f"{learned}, and estimates are {what}")
    return said


def _asked(queries: Queries) -> Queries:
    """Return queries without answers, which are in other units than the model's."""
    return replace(queries, outcomes=None, scored=None)
