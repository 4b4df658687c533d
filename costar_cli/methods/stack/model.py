"""A fitted stack: its parts answer, their answers are combined step by step (spec STACK-6, STACK-7)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Queries
from costar_cli.data.record import ModelRecord
from costar_cli.files import Artifact
from costar_cli.methods.base import Device, FittedModel, Forecast, PredictFn, adjusted
from costar_cli.methods.entry import Adjusts
from costar_cli.methods.registry import named_parts
from costar_cli.methods.shared.trained import TrainedModel, require_horizon
from costar_cli.methods.stored import model_of
from costar_cli.reporting import Reporter

PARTS = "parts/"  # prefix of the arrays of parts in an artifact
SHARED = ("schema", "horizon")  # of meta, which all parts have from the stack
ROUNDING = 1e-6  # of a sum of weights

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class StackModel(TrainedModel):
    """A convex combination of models, of R members; parts of one member are combined with every one.

    `params` are the weights `[R,P,H,Y]`, `parts` the models by method, in the order of P.
    """

    parts: Mapping[str, FittedModel] = field()  # no default, unlike that of other models
    artifacts: Mapping[str, Artifact]

    @cached_property
    def weight_RPHY(self) -> Floats:
        """Return the weights, which sum to one over the parts."""
        return np.asarray(self.params["weights"], dtype=np.float64)

    @cached_property
    def answering(self) -> list[str]:
        """Return the parts with any weight."""
        heavy_P = self.weight_RPHY.max(axis=(0, 2, 3)) > 0
        return [name for name, heavy in zip(self.parts, heavy_P.tolist(), strict=True) if heavy]

    @property
    def _answering_parts(self) -> list[FittedModel]:
        return [self.parts[name] for name in self.answering]

    @property
    def shares(self) -> dict[str, float]:
        """Return the mean weight of each part that has any."""
        weight_P = self.weight_RPHY.mean(axis=(0, 2, 3)).tolist()
        return {name: weight for name, weight in zip(self.parts, weight_P, strict=True) if name in self.answering}

    @property
    def stepwise(self) -> bool:
        """Return whether all parts that answer predict each step from the one before."""
        return all(part.stepwise for part in self._answering_parts)

    @property
    def adjusts(self) -> Adjusts:
        """Return which reactions inside a plan all parts that answer adjust for."""
        return min(map(adjusted, self._answering_parts), key=get_args(Adjusts).index, default="all")

    @property
    def has_distribution(self) -> bool:
        """Return whether all parts that answer know what chance adds."""
        return all(part.has_distribution for part in self._answering_parts)

    @property
    def is_joint(self) -> bool:
        """Return whether all parts that answer have a joint distribution."""
        return all(part.is_joint for part in self._answering_parts)

    @property
    def tells_differences(self) -> bool:
        """Return whether the draws of some part that answers do."""
        return any(part.tells_differences for part in self._answering_parts)

    @property
    def draws_are_members(self) -> bool:
        """Return whether those of all parts that answer are."""
        return all(part.draws_are_members for part in self._answering_parts)

    @property
    def draws_training(self) -> bool:
        """Return whether draws of all parts that answer hold what training leaves open."""
        return all(part.draws_training for part in self._answering_parts)

    @property
    def varies(self) -> bool:
        """Return whether the spread differs between subjects: that of several parts does."""
        return len(self.answering) > 1 or any(part.varies for part in self._answering_parts)

    @property
    def is_ensemble(self) -> bool:
        """Return whether some part that answers is a network."""
        return any(part.is_ensemble for part in self._answering_parts)

    def encode(self, panel: Panel) -> dict[str, Any]:
        """Return what each part that answers knows of every subject's history at every step."""
        return {name: self.parts[name].encode(panel) for name in self.answering}

    def answer(
        self, states: dict[str, Any], queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict as `rollout` does, on a panel that `encode` has seen.

        Raises:
            UsageError: the plans are longer than the horizon that the model was made for.
        """
        options: dict[str, Any] = {"batch_size": batch_size, "reporter": reporter}
        return self._combined(queries, lambda name: self.parts[name].answer(states[name], queries, **options))

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict the outcomes of every query, `[R,Q,tau,dy]` in the units of the data.

        Raises:
            UsageError: the plans are longer than the horizon that the model was made for.
        """
        options: dict[str, Any] = {"batch_size": batch_size, "reporter": reporter}
        return self._combined(queries, lambda name: self.parts[name].rollout(panel, queries, **options))

    def _combined(self, queries: Queries, ask: Callable[[str], NDArray[np.float32]]) -> NDArray[np.float32]:
        """Return the combination `[R,Q,H,Y]` of what the parts answer, which are asked by name, one after another."""
        require_horizon(self.horizon, queries)
        sum_RQHY = np.zeros((self.members, len(queries), queries.horizon, len(self.schema.outcomes)), dtype=np.float32)
        for name in self.answering:
            weight_RHY = self._weight(name, queries.horizon)
            weight_R1HY, value_RQHY = weight_RHY[:, None].astype(np.float32), ask(name)
            # what has no weight counts for nothing, finite or not
            sum_RQHY += weight_R1HY * np.where(weight_R1HY > 0, value_RQHY, np.float32(0))
        return sum_RQHY

    def _weight(self, name: str, steps: int) -> Floats:
        """Return a part's weights `[R,tau,Y]`."""
        return self.weight_RPHY[:, list(self.parts).index(name), :steps]

    def forecast(self, panel: Panel, queries: Queries, ask: PredictFn) -> Forecast:
        """Return the mixture of the parts: how far these are from their mean counts as not known (spec STACK-7)."""
        parts = {name: self.parts[name].forecast(panel, queries, ask) for name in self.answering}
        members_RQHY = self._combined(queries, lambda name: np.asarray(parts[name].members_RQHY, dtype=np.float32))
        mean_QHY = members_RQHY.mean(axis=0, dtype=np.float64)
        variance_QHY, parameter_QHY = np.zeros_like(mean_QHY), np.zeros_like(mean_QHY)
        black_HY = np.zeros(mean_QHY.shape[1:])
        for name, part in parts.items():
            weight_HY = self._weight(name, queries.horizon).mean(axis=0)
            off_QHY = (part.mean_QHY - mean_QHY) ** 2
            variance_QHY += weight_HY * (part.variance_QHY + off_QHY)
            parameter_QHY += weight_HY * (part.parameter_QHY + off_QHY)
            black_HY += weight_HY * part.black_HY
        return Forecast(members_RQHY, variance_QHY, parameter_QHY, black_HY)

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
        """Draw from each part, with the probability that is its weight; steps have the same part where they can."""
        weight_PHY = self.weight_RPHY.mean(axis=0)[:, : queries.horizon]
        until_PHY = np.cumsum([weight_PHY[list(self.parts).index(name)] for name in self.answering], axis=0)
        place_S = (np.random.default_rng(seed).permutation(n) + 0.5) / n
        part_SHY = (place_S[:, None, None, None] >= until_PHY[:-1]).sum(axis=1)
        drawn = np.zeros((n, len(queries), *until_PHY.shape[1:]))
        for i, part in enumerate(self._answering_parts):
            own = part.draw_outcomes(panel, queries, n, seed + 1 + i, ask=ask, floor=floor, among=among)
            drawn = np.where((part_SHY == i)[:, None], own, drawn)
        return drawn


def part_artifacts(artifact: Artifact) -> dict[str, Artifact]:
    """Return what artifacts of a stack's parts would hold, by method in the order of the weights.

    Raises:
        ArtifactError: the parts are not methods that can be parts, each once.
    """
    record = ModelRecord.read(artifact.meta)
    shared = {key: artifact.meta[key] for key in SHARED}
    found = {}
    for name, meta in zip(named_parts(record, str(artifact.path)), record.parts or (), strict=True):
        prefix = f"{PARTS}{name}/"
        arrays = {n.removeprefix(prefix): v for n, v in artifact.arrays.items() if n.startswith(prefix)}
        found[name] = Artifact("model", arrays, {**meta, **shared}, path=artifact.path)
    return found


def read_stack(artifact: Artifact, device: Device = "cpu") -> StackModel:
    """Return the stack that an artifact holds, with its parts.

    Raises:
        ArtifactError: a part is unknown, made of others itself, there twice, incomplete or damaged.
        ValueError: the weights are not those of a convex combination of the parts.
    """
    artifacts = part_artifacts(artifact)
    parts = {name: model_of(content, str(device)) for name, content in artifacts.items()}
    model = StackModel.from_artifact(artifact, device, parts=parts, artifacts=artifacts)
    weight_RPHY = model.weight_RPHY
    expected = (len(model.parts), model.horizon, len(model.schema.outcomes))
    if weight_RPHY.ndim != len("RPHY") or weight_RPHY.shape[1:] != expected or not len(weight_RPHY):
        raise ValueError(f"weights are {list(weight_RPHY.shape)} instead of [members, {str([*expected])[1:]}")
    if not (np.isfinite(weight_RPHY).all() and weight_RPHY.min() >= 0):
        raise ValueError("weights are negative or not finite")
    if np.abs(weight_RPHY.sum(axis=1) - 1).max() > ROUNDING:
        raise ValueError("weights do not sum to one over the parts")
    for name, part in model.parts.items():
        if part.members not in {1, model.members}:
            raise ValueError(f"{name} has {part.members} members instead of 1 or {model.members}")
    kept = {name: ModelRecord.read(content.meta).warnings for name, content in artifacts.items()}
    found = [(name, text) for name in model.answering for text in parts[name].record.warnings]
    if opened := [f"{name}: {text}" for name, text in found if text not in kept[name]]:
        model = replace(model, record=model.record.with_warnings(opened))
    return model
