"""Models that learn logarithms or differences of outcomes, and answer in the units of the data (spec PANEL-18)."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Part, Queries, Scaler
from costar_cli.data.record import ModelRecord
from costar_cli.data.transforms import TRANSFORM, OutcomeTransforms
from costar_cli.diagnostics import Diagnostic
from costar_cli.files import Artifact
from costar_cli.methods.base import Decide, FitTask, FittedModel, PredictFn, PredictiveDistribution
from costar_cli.methods.entry import Adjusts
from costar_cli.methods.shared.trained import TrainedModel
from costar_cli.reporting import Reporter

LEARNED_AS: Final = {"log": "its logarithm", "log1p": "the logarithm of 1 + its value"}


@dataclass(frozen=True, kw_only=True)
class TransformedModel(TrainedModel):
    """A model whose outcomes are transformed before another one, `inner`, sees them, and its answers back.

    Where `inner` draws from a distribution, answers are means of outcomes. Otherwise they are what the exponential
    makes of predicted logarithms: where errors of these are symmetric, medians.
    """

    inner: FittedModel
    transforms: OutcomeTransforms

    @property
    def stepwise(self) -> bool:
        """Return whether the inner model predicts each step from the one before it."""
        return self.inner.stepwise

    @property
    def adjusts(self) -> Adjusts:
        """Return which reactions inside a plan the inner model adjusts for."""
        return self.inner.adjusts

    @property
    def has_distribution(self) -> bool:
        """Return whether the inner model draws from a distribution of its own."""
        return self.inner.has_distribution and self.inner.draws_courses

    # Without the joint distribution of the inner model, which logarithms may lose, members alone are left.
    @property
    def tells_differences(self) -> bool:
        """Return whether draws say how far differences between plans may be off."""
        return super().tells_differences if self.inner.is_joint else self.inner.tells_differences

    @property
    def varies(self) -> bool:
        """Return whether the spread of predictions differs between subjects."""
        return super().varies if self.inner.is_joint else self.inner.varies

    @property
    def is_ensemble(self) -> bool:
        """Return whether a network answers."""
        return super().is_ensemble if self.inner.is_joint else self.inner.is_ensemble

    def represent(self, panel: Panel) -> NDArray[np.float32] | None:
        """Return the inner model's representations."""
        return self.inner.represent(self.transforms.panel(panel))

    @property
    def _answers_means(self) -> bool:
        """Return whether answers take more than the inner model's: means where there are logarithms."""
        return self.has_distribution and self.transforms.has_logarithms

    def encode(self, panel: Panel) -> tuple[Any, NDArray[np.float32]]:
        """Return what the inner model knows of a panel, and its outcomes; means need the panel itself."""
        known = panel if self._answers_means else self.inner.encode(self.transforms.panel(panel))
        return known, panel.outcomes

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
        if self._answers_means:
            return self.rollout(known, queries, batch_size=batch_size, reporter=reporter)
        made_RQHY = self.inner.answer(known, _asked(queries), batch_size=batch_size, reporter=reporter)
        return self._undone(made_RQHY, outcomes_NTY, queries)

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict the outcomes of every query, `[R,Q,H,Y]` in the units of the data."""
        if self._answers_means and (known := self.predict_distribution(panel, queries)):
            return known.mean
        learned = self.transforms.panel(panel)
        made_RQHY = self.inner.rollout(learned, _asked(queries), batch_size=batch_size, reporter=reporter)
        return self._undone(made_RQHY, panel.outcomes, queries)

    def _undone(
        self, made_RQHY: NDArray[np.floating], outcomes_NTY: NDArray[np.float32], queries: Queries
    ) -> NDArray[np.float32]:
        level_QY = outcomes_NTY[queries.subject, queries.origin]
        return self.transforms.undo(made_RQHY, level_QY).astype(np.float32)

    def predict_distribution(
        self, panel: Panel, queries: Queries, summed_Y: NDArray[np.bool_] | None = None
    ) -> PredictiveDistribution | None:
        """Predict mean and standard deviation, with logarithms taken to be normal; no sums of its own outcomes."""
        if not self.has_distribution or summed_Y is not None:
            return None
        learned, inner = self.transforms.panel(panel), self.inner
        known = inner.predict_distribution(learned, _asked(queries), self.transforms.differs)
        if known is None:
            return None
        level_QY = panel.outcomes[queries.subject, queries.origin].astype(np.float64)
        bounds = inner.bounds(learned, queries)
        made = self.transforms.undo_sums(known.mean, known.sd_parameter, known.sd_noise, level_QY, bounds)
        return PredictiveDistribution(*(values.astype(np.float32) for values in made))

    @property
    def draws_training(self) -> bool:
        """Return whether draws hold what training leaves open."""
        return self.has_distribution and self.inner.draws_training

    def draw_outcomes(
        self,
        panel: Panel,
        queries: Queries,
        n: int,
        seed: int,
        *,
        ask: PredictFn | None = None,
        floor: float = 0.0,
        among: NDArray[np.integer] | None = None,
    ) -> NDArray[np.float64]:
        """Draw outcomes `[S,Q,H,Y]`, S = n, in data units, as the inner model does if it has a distribution."""
        if not self.has_distribution:
            return super().draw_outcomes(panel, queries, n, seed, ask=ask, floor=floor, among=among)
        drawn = self.inner.draw_outcomes(self.transforms.panel(panel), _asked(queries), n, seed, among=among)
        return self.transforms.undo(drawn, panel.outcomes[queries.subject, queries.origin])

    @property
    def draws_courses(self) -> bool:
        """Return whether the inner model does."""
        return self.has_distribution

    @property
    def draws_covariates(self) -> bool:
        """Return whether courses have covariates, too."""
        return self.has_distribution and self.inner.draws_covariates

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
        """Draw as `draw_outcomes` does; `decide` reads outcomes in the units of the data."""
        level_QY = panel.outcomes[subject_Q, origin_Q].astype(np.float64)
        y, reached = level_QY.shape[1], [np.tile(level_QY, (n, 1))]

        def decide_by_outcomes(h: int, state_MC: NDArray[np.float64]) -> NDArray[np.floating]:
            reached[0] = self.transforms.undo_step(state_MC[:, :y], reached[0], first=h == 0)
            return decide(h, np.concatenate([reached[0], state_MC[:, y:]], axis=1))

        learned = self.transforms.panel(panel)
        drawn = self.inner.draw_courses(learned, subject_Q, origin_Q, decide_by_outcomes, steps=steps, n=n, seed=seed)
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
    record = ModelRecord.read(artifact.meta)
    schema = record.schema
    if schema is None:
        raise ValueError("schema is missing")
    transforms = OutcomeTransforms.of_arrays(artifact.arrays, schema)
    if transforms is None:
        return load(artifact)
    scaler = Scaler.read(artifact.arrays, schema)
    arrays = {name: array for name, array in artifact.arrays.items() if not name.startswith(TRANSFORM)}
    arrays["scaler/outcomes"] = transforms.moments
    inner_record = replace(record, schema=transforms.inner_schema)
    inner = load(replace(artifact, arrays=arrays, meta=inner_record.to_meta()))
    kept = {one.name: getattr(inner, one.name) for one in fields(TrainedModel)}
    kept |= {"schema": schema, "scaler": scaler, "record": record}
    return TransformedModel(**kept, inner=inner, transforms=transforms)


def on_transforms(model: FittedModel) -> list[Diagnostic]:
    """Say of each transformed outcome how it is learned, and what its estimates are."""
    learners = [part for part in (*model.parts.values(), model) if isinstance(part, TransformedModel)]
    means = all(learner.has_distribution for learner in learners)
    what = "means" if means else "medians, which lie below means where outcomes are skewed"
    said = []
    for variable in model.schema.outcomes if learners else ():
        if variable.transform == "difference":
            said.append(Diagnostic.of("learned-as-differences", variable.name))
        elif variable.transform is not None:
            scale = LEARNED_AS[variable.transform]
            said.append(Diagnostic.of("learned-transformed", variable.name, scale=scale, what=what))
    return said


def _asked(queries: Queries) -> Queries:
    """Return queries without answers, which are in other units than the model's."""
    return replace(queries, outcomes=None, scored=None)
