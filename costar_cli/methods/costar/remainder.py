"""COSTAR on what a closed form leaves: two models whose answers are added (spec COSTAR-32).

Mixed effects know each subject's own parameters as far as its history tells them, boosting any law as far as the last
steps do. The network then predicts what the better one leaves, `y - base`, and has as much of a say in each step of
each outcome as validation gives it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Part, Queries, as_plans
from costar_cli.data.record import ModelRecord
from costar_cli.data.windows import FactualWindows, factual_windows
from costar_cli.files import Artifact
from costar_cli.methods.base import Decide, Device, FitTask, FittedModel, PredictFn, PredictiveDistribution, adjusted
from costar_cli.methods.costar.model import CostarModel
from costar_cli.methods.entry import Adjusts
from costar_cli.methods.shared.combining import Errors, error_scales, weigh
from costar_cli.methods.shared.effect_check import EffectCheck, allowed, largest
from costar_cli.methods.shared.plan_weights import plan_weights
from costar_cli.methods.shared.trained import PARAMS, TrainedModel, probabilities_within
from costar_cli.methods.shared.transformed import TransformedModel
from costar_cli.methods.stored import model_of
from costar_cli.reporting import Reporter

BASES: Final = ("mixed", "boosting")  # the first is kept unless chance is ruled out
PREFIX: Final = "base/"  # of the arrays of the closed form in an artifact
META: Final = "base"  # what their artifact records, in that of the whole
ADDED: Final = "remainder_added"  # the mean share, in the same record
SHARE: Final = "share"  # the parameter that says how much of the network is added
CHUNK: Final = 50_000  # origins that are asked about at once

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Base:
    """A closed form that was fitted first, in the units in which the network learns."""

    artifact: Artifact
    model: FittedModel

    @classmethod
    def of(cls, artifact: Artifact, model: FittedModel) -> Self:
        """Take a fitted model; of outcomes that are learned transformed, what learned them."""
        return cls(artifact, model.inner if isinstance(model, TransformedModel) else model)

    @classmethod
    def read(cls, artifact: Artifact, meta: Mapping[str, Any], device: Device) -> Self:
        """Return the closed form in the artifact of a whole model.

        Raises:
            ValueError: it is of a method that is none of the possible ones.
        """
        arrays = {name.removeprefix(PREFIX): v for name, v in artifact.arrays.items() if name.startswith(PREFIX)}
        own = Artifact("model", arrays, dict(meta), path=artifact.path)
        if ModelRecord.read(own.meta).method not in BASES:
            raise ValueError(f"the model under it is of none of the methods {', '.join(BASES)}")
        return cls.of(own, model_of(own, str(device)))

    def stored(self) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """Return what the artifact of the whole says and holds of it."""
        return {META: dict(self.artifact.meta)}, {PREFIX + name: v for name, v in self.artifact.arrays.items()}

    def answers(self, panel: Panel, horizon: int) -> NDArray[np.float32]:
        """Return standardised predictions `[N,T-1,H,Y]` from every position, under the treatments that followed.

        Steps beyond the end of a series mean nothing.
        """
        last = panel.n_steps - 1
        row_M, step_M = np.nonzero(np.arange(last) < panel.length[:, None] - 1)
        answers = np.zeros((panel.n_subjects, last, horizon, panel.outcomes.shape[-1]), dtype=np.float32)
        for first in range(0, len(row_M), CHUNK):
            rows, steps = row_M[first : first + CHUNK], step_M[first : first + CHUNK]
            plan = panel.treatments[rows[:, None], np.minimum(steps[:, None] + np.arange(horizon), last)]
            asked = Queries(rows.astype(np.int32), steps.astype(np.int16), as_plans(plan))
            made_RMHY = self.model.rollout(panel, asked)
            answers[rows, steps] = self.model.scaler.scale_outcomes(made_RMHY.mean(axis=0))
        return answers


@dataclass(frozen=True, kw_only=True)
class RemainderModel(TrainedModel):
    """A closed form, and of R members what COSTAR adds to it; `params` are the network's and `share [R,H,Y]`."""

    network: CostarModel
    base: Base

    @classmethod
    def of(cls, network: CostarModel, base: Base, share_RHY: Any) -> Self:  # noqa: ANN401 - an array, or a tensor
        """Add a network to a closed form."""
        kept = {one.name: getattr(network, one.name) for one in fields(TrainedModel)}
        return cls(**kept | {"params": {**network.params, SHARE: share_RHY}}, network=network, base=base)

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: Device = "cpu", **own: Any) -> Self:  # noqa: ANN401
        """Read a model artifact.

        Raises:
            ValueError: the closed form is no such, or of other columns; shares are no numbers from 0 to 1.
        """
        base = Base.read(artifact, (ModelRecord.read(artifact.meta).facts or {})[META], device)
        arrays = {name: v for name, v in artifact.arrays.items() if not name.startswith((PREFIX, PARAMS + SHARE))}
        network = CostarModel.from_artifact(replace(artifact, arrays=arrays), device, **own)
        share_RHY = np.asarray(artifact.arrays.get(PARAMS + SHARE, np.full(0, np.nan)))
        shape = (network.members, network.horizon, len(network.schema.outcomes))
        if share_RHY.shape != shape or not ((share_RHY >= 0) & (share_RHY <= 1)).all():
            raise ValueError(f"{SHARE} is not {[*shape]} numbers from 0 to 1")
        if base.model.schema != network.schema or base.model.horizon < network.horizon or base.model.members != 1:
            raise ValueError("the model under it is of other columns, of a shorter horizon, or of several members")
        return cls.of(network, base, share_RHY)

    @property
    def share_RHY(self) -> NDArray[np.float32]:
        """Return how much of the network is added."""
        return np.asarray(self.params[SHARE], dtype=np.float32)

    @property
    def is_base(self) -> bool:
        """Return whether nothing is added: the model then is the closed form."""
        return not self.share_RHY.any()

    @property
    def stepwise(self) -> bool:
        """Return whether each step is predicted from the one before, as it may be where nothing is added."""
        return self.is_base and self.base.model.stepwise

    @property
    def adjusts(self) -> Adjusts:
        """Return which reactions inside a plan it adjusts for: what the network adds is regressed on the plan."""
        return adjusted(self.base.model) if self.is_base else "none"

    @property
    def has_distribution(self) -> bool:
        """Return whether the closed form knows what chance adds."""
        return self.base.model.has_distribution

    @property
    def is_joint(self) -> bool:
        """Return whether the closed form has a joint distribution."""
        return self.base.model.is_joint

    @property
    def tells_differences(self) -> bool:
        """Return whether draws say how far differences may be off: those of the closed form where nothing is added."""
        return self.base.model.tells_differences if self.is_base else super().tells_differences

    @property
    def varies(self) -> bool:
        """Return whether the spread differs between subjects: members agree where nothing is added."""
        return self.base.model.varies if self.is_base else super().varies

    @property
    def is_ensemble(self) -> bool:
        """Return whether an ensemble answers: of networks, without a distribution of the closed form's own."""
        return self.base.model.is_ensemble if self.is_base else super().is_ensemble

    @property
    def draws_training(self) -> bool:
        """Return whether draws hold what training leaves open."""
        return self.base.model.draws_training

    @property
    def draws_courses(self) -> bool:
        """Return whether courses are drawn whose treatments are decided on the way."""
        return self.is_base and self.base.model.draws_courses

    @property
    def draws_covariates(self) -> bool:
        """Return whether such courses have covariates, too."""
        return self.is_base and self.base.model.draws_covariates

    @cached_property
    def _unbounded(self) -> CostarModel:
        """Return the network, whose changes of a probability may pass 0 and 1: the sum is the probability."""
        outcomes = tuple(outcome.model_copy(update={"kind": "continuous"}) for outcome in self.schema.outcomes)
        return replace(self.network, schema=self.schema.model_copy(update={"outcomes": outcomes}))

    def represent(self, panel: Panel) -> NDArray[np.float32]:
        """Return the network's representations."""
        return self.network.represent(panel)

    def bounds(self, panel: Panel, queries: Queries) -> tuple[Floats, Floats] | None:
        """Return the bounds of the closed form where nothing is added."""
        return self.base.model.bounds(panel, queries) if self.is_base else None

    def encode(self, panel: Panel) -> tuple[Any, Any, NDArray[np.float32]]:
        """Return what both know of every subject's history, and its outcomes; the network only where it is added."""
        return None if self.is_base else self.network.encode(panel), self.base.model.encode(panel), panel.outcomes

    def answer(
        self,
        states: tuple[Any, Any, NDArray[np.float32]],
        queries: Queries,
        *,
        batch_size: int = 16_384,
        reporter: Reporter | None = None,
    ) -> NDArray[np.float32]:
        """Predict as `rollout` does, on a panel that `encode` has seen."""
        of_network, of_base, outcomes_NTY = states
        base_RQHY = self.base.model.answer(of_base, queries, batch_size=batch_size)
        if self.is_base:
            return self._sum(base_RQHY, self._nothing(queries))
        made_RQHY = self._unbounded.answer(of_network, queries, batch_size=batch_size, reporter=reporter)
        return self._sum(base_RQHY, self._added(made_RQHY, outcomes_NTY, queries))

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict the outcomes of every query, `[R,Q,H,Y]` in the units of the data."""
        base_RQHY = self.base.model.rollout(panel, queries, batch_size=batch_size)
        return self._sum(base_RQHY, self._of_network(panel, queries, batch_size, reporter))

    def _of_network(
        self, panel: Panel, queries: Queries, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Return what the members add `[R,Q,H,Y]`."""
        if self.is_base:
            return self._nothing(queries)
        made_RQHY = self._unbounded.rollout(panel, queries, batch_size=batch_size, reporter=reporter)
        return self._added(made_RQHY, panel.outcomes, queries)

    def _nothing(self, queries: Queries) -> NDArray[np.float32]:
        return np.zeros((self.members, *queries.plan.shape[:2], len(self.schema.outcomes)), dtype=np.float32)

    def _added(
        self, made_RQHY: NDArray[np.float32], outcomes_NTY: NDArray[np.float32], queries: Queries
    ) -> NDArray[np.float32]:
        # A head that predicts changes has them from the level at the origin (spec COSTAR-25)
        level_QY = outcomes_NTY[queries.subject, queries.origin]
        return self.share_RHY[:, None, : queries.horizon] * (made_RQHY - level_QY[:, None])

    def _sum(self, base_RQHY: NDArray[np.floating], added_RQHY: NDArray[np.float32]) -> NDArray[np.float32]:
        return probabilities_within(self.schema, np.asarray(base_RQHY + added_RQHY, dtype=np.float32))

    def predict_distribution(
        self, panel: Panel, queries: Queries, summed_Y: NDArray[np.bool_] | None = None
    ) -> PredictiveDistribution | None:
        """Predict as `rollout` does, with the standard deviations that the closed form knows."""
        known = self.base.model.predict_distribution(panel, queries, summed_Y)
        if known is None:
            return None
        added_RQHY = self._of_network(panel, queries)
        if summed_Y is not None:
            added_RQHY = np.where(summed_Y, added_RQHY.cumsum(axis=2), added_RQHY)
        mean_RQHY = self._sum(known.mean, added_RQHY) if summed_Y is None else known.mean + added_RQHY
        sds = (np.broadcast_to(sd, mean_RQHY.shape) for sd in (known.sd_parameter, known.sd_noise))
        return PredictiveDistribution(mean_RQHY, *sds)

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
    ) -> Floats:
        """Draw from the closed form; each draw has what one of the members adds."""
        if not self.has_distribution and not self.is_base:
            return super().draw_outcomes(panel, queries, n, seed, ask=ask, floor=floor, among=among)
        drawn = self.base.model.draw_outcomes(panel, queries, n, seed, floor=floor, among=among)
        added_RQHY = self._of_network(panel, queries)
        return np.asarray(drawn + added_RQHY[np.arange(n) % len(added_RQHY)])

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
    ) -> Floats:
        """Draw courses of the closed form, where nothing is added."""
        return self.base.model.draw_courses(panel, subject_Q, origin_Q, decide, steps=steps, n=n, seed=seed)


@dataclass(frozen=True)
class Judge:
    """Says which of two models to believe: by errors under plans on validation, and by effects that were observed."""

    windows: FactualWindows
    scale_QY: Floats
    weight_QH: Floats
    check: EffectCheck | None

    @classmethod
    def of(cls, task: FitTask) -> Self | None:
        """Return the one of a fit; None where no validation subject has a step to predict."""
        windows = factual_windows(task.panels[task.validation], task.horizon)
        if windows is None:
            return None
        train = task.panels[Part("source", "train")]
        scale_QY, _ = error_scales(train, task.scaler, windows)
        weight_QH = plan_weights(train, windows, task.scaler, task.schema.treatments).weight_QH
        return cls(windows, scale_QY, weight_QH, task.effect_check() if task.effect_check else None)

    def answers(self, model: FittedModel) -> NDArray[np.float32]:
        """Return what a model answers about the windows `[R,Q,H,Y]`."""
        return model.rollout(self.windows.panel, self.windows.asked)

    def allowed(self, models: Sequence[FittedModel]) -> NDArray[np.bool_] | None:
        """Return which models the observed effects do not contradict, by outcome `[P,Y]`; None where none are known."""
        if self.check is None:
            return None
        return allowed(np.stack([largest(self.check.distances(self.check.differences(model))) for model in models]))

    def weights(self, answers: Sequence[NDArray[Any]], allowed_PY: NDArray[np.bool_] | None) -> Floats:
        """Return the weights `[P,H,Y]` of models by their answers `[Q,H,Y]`: of the first, unless chance is ruled out.

        These are the weights of a stack whose anchor is the first (spec STACK-3, 4, 10).
        """
        errors = Errors.of(answers, self.windows, self.scale_QY, self.weight_QH)
        return weigh(errors, anchors=(0,), allowed_PY=allowed_PY).weight_PHY

    def better(self, bases: Mapping[str, Base]) -> str:
        """Return the name of the first closed form, or of a later one that has more weight beside it.

        One that observed effects contradict in an outcome in which they allow another is never the better one.
        """
        models = [base.model for base in bases.values()]
        answers, allowed_PY = [self.answers(model).mean(axis=0) for model in models], self.allowed(models)
        usable_P = np.array([np.isfinite(answer_QHY).all() for answer_QHY in answers])
        if allowed_PY is not None:
            usable_P &= (allowed_PY | ~allowed_PY.any(axis=0)).all(axis=1)
        if not usable_P.all():
            return list(bases)[int(usable_P.argmax())]
        return list(bases)[int(self.weights(answers, allowed_PY).mean(axis=(1, 2)).argmax())]

    def shares(self, base: Base, network: CostarModel, horizon: int) -> Floats:
        """Return how much of what each member predicts is added, `[R,H,Y]`: its weight beside the closed form alone."""
        everything = np.ones((network.members, horizon, len(network.schema.outcomes)))
        whole = RemainderModel.of(network, base, everything)
        allowed_PY, alone_RQHY = self.allowed([base.model, whole]), self.answers(base.model)
        both_RQHY = whole._sum(alone_RQHY, whole._of_network(self.windows.panel, self.windows.asked))
        steps = np.minimum(np.arange(horizon), self.windows.queries.horizon - 1)
        alone_QHY = alone_RQHY.mean(axis=0)
        return np.stack([self.weights([alone_QHY, both_QHY], allowed_PY)[1][steps] for both_QHY in both_RQHY])
