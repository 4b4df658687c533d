"""A fitted stack: its parts answer, their answers are combined step by step (spec STACK-6, STACK-7)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from costar_cli.data import Panel, Queries
from costar_cli.files import Artifact
from costar_cli.methods.base import (
    EncodesOnce,
    FittedModel,
    PredictiveDistribution,
    PredictsDistribution,
    PredictsStepwise,
    adjusted,
)
from costar_cli.methods.registry import Adjusts, named_parts
from costar_cli.methods.shared.trained import TrainedModel, require_horizon
from costar_cli.methods.stored import model_of
from costar_cli.reporting import Reporter, with_warnings

__all__ = ["PARTS", "StackModel", "part_artifacts", "read_stack"]

PARTS = "parts/"  # prefix of the arrays of parts in an artifact
SHARED = ("schema", "horizon")  # of meta, which all parts have from the stack
ROUNDING = 1e-6  # of a sum of weights

Floats = NDArray[np.float64]
States = dict[str, Any]  # of each part that answers; the panel where a part encodes nothing


@dataclass(frozen=True, kw_only=True)
class StackModel(TrainedModel):
    """A convex combination of models, of R members; parts of one member are combined with every one.

    `params` are the weights `[R,P,H,Y]`, `parts` the models by method, in the order of P.
    """

    parts: Mapping[str, FittedModel]
    artifacts: Mapping[str, Artifact]

    @cached_property
    def weight_RPHY(self) -> Floats:
        """Return the weights, which sum to one over the parts."""
        return np.asarray(self.params["weights"].double().cpu())

    @cached_property
    def answering(self) -> list[str]:
        """Return the parts with any weight."""
        heavy_P = self.weight_RPHY.max(axis=(0, 2, 3)) > 0
        return [name for name, heavy in zip(self.parts, heavy_P.tolist(), strict=True) if heavy]

    @property
    def stepwise(self) -> bool:
        """Return whether all parts that answer predict each step from the one before."""
        parts = (self.parts[name] for name in self.answering)
        return all(isinstance(part, PredictsStepwise) and part.stepwise for part in parts)

    @property
    def adjusts(self) -> Adjusts:
        """Return which reactions inside a plan all parts that answer adjust for."""
        return min((adjusted(self.parts[name]) for name in self.answering), key=get_args(Adjusts).index, default="all")

    def encode(self, panel: Panel) -> States:
        """Return what each part knows of every subject's history at every step."""
        return {name: _encoded(self.parts[name], panel) for name in self.answering}

    def answer(
        self, states: States, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict as `rollout` does, on a panel that `encode` has seen.

        Raises:
            UsageError: the plans are longer than the horizon that the model was made for.
        """

        def ask(name: str) -> NDArray[np.float32]:
            model = self.parts[name]
            answer = model.answer if isinstance(model, EncodesOnce) else model.rollout
            return answer(states[name], queries, batch_size=batch_size, reporter=reporter)

        return self.combined(queries, ask)

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict the outcomes of every query, `[R,Q,tau,dy]` in the units of the data.

        Raises:
            UsageError: the plans are longer than the horizon that the model was made for.
        """
        options: dict[str, Any] = {"batch_size": batch_size, "reporter": reporter}
        return self.combined(queries, lambda name: self.parts[name].rollout(panel, queries, **options))

    def combined(self, queries: Queries, ask: Callable[[str], NDArray[np.float32]]) -> NDArray[np.float32]:
        """Return the combination `[R,Q,H,Y]` of what the parts answer, which are asked by name, one after another."""
        require_horizon(self.horizon, queries)
        mean = np.zeros((self.members, len(queries), queries.horizon, len(self.schema.outcomes)), dtype=np.float32)
        for name in self.answering:
            self._add(mean, name, ask(name))
        return mean

    def _weight(self, name: str, steps: int) -> NDArray[np.float32]:
        """Return a part's weights `[R,1,tau,Y]`."""
        weight_RHY = self.weight_RPHY[:, list(self.parts).index(name), :steps]
        return weight_RHY[:, None].astype(np.float32)

    def _add(self, sum_RQHY: NDArray[np.float32], name: str, value_RQHY: NDArray[np.floating]) -> None:
        """Add a part's values with their weights; what has no weight counts for nothing, finite or not."""
        weight_R1HY = self._weight(name, sum_RQHY.shape[2])
        sum_RQHY += weight_R1HY * np.where(weight_R1HY > 0, value_RQHY, np.float32(0))


class DistributedStackModel(StackModel):
    """A stack all of whose parts with any weight know how far outcomes may be from their predictions."""

    def predict_distribution(self, panel: Panel, queries: Queries) -> PredictiveDistribution:
        """Predict mean and standard deviation of the mixture of the parts (spec STACK-7).

        How far the parts are from their mean counts among what is not known of the parameters.

        Raises:
            UsageError: the plans are longer than the horizon that the model was made for.
        """
        require_horizon(self.horizon, queries)
        said: dict[str, PredictiveDistribution] = {}
        for name in self.answering:
            model = self.parts[name]
            assert isinstance(model, PredictsDistribution)  # noqa: S101 - `read_stack` has seen to it
            said[name] = model.predict_distribution(panel, queries)
        shape = (self.members, len(queries), queries.horizon, len(self.schema.outcomes))
        mean, parameter, noise = (np.zeros(shape, dtype=np.float32) for _ in range(3))
        for name, own in said.items():
            self._add(mean, name, own.mean)
        for name, own in said.items():
            self._add(parameter, name, own.sd_parameter**2 + (own.mean - mean) ** 2)
            self._add(noise, name, own.sd_noise**2)
        return PredictiveDistribution(mean, np.sqrt(parameter), np.sqrt(noise))


def _encoded(model: FittedModel, panel: Panel) -> Any:  # noqa: ANN401 - opaque to all but the model
    return model.encode(panel) if isinstance(model, EncodesOnce) else panel


def part_artifacts(artifact: Artifact) -> dict[str, Artifact]:
    """Return what artifacts of a stack's parts would hold, by method in the order of the weights.

    Raises:
        ArtifactError: the parts are not methods that can be parts, each once.
    """
    shared = {key: artifact.meta[key] for key in SHARED}
    found = {}
    for name, meta in zip(named_parts(artifact.meta, str(artifact.path)), artifact.meta["parts"], strict=True):
        prefix = f"{PARTS}{name}/"
        arrays = {n.removeprefix(prefix): v for n, v in artifact.arrays.items() if n.startswith(prefix)}
        found[name] = Artifact("model", arrays, {**meta, **shared}, path=artifact.path)
    return found


def read_stack(artifact: Artifact, device: torch.device | str = "cpu") -> StackModel:
    """Return the stack that an artifact holds, with its parts.

    Raises:
        ArtifactError: a part is unknown, made of others itself, there twice, incomplete or damaged.
        ValueError: the weights are not those of a convex combination of the parts.
    """
    artifacts = part_artifacts(artifact)
    parts = {name: model_of(content, str(device)) for name, content in artifacts.items()}
    model = StackModel.from_artifact(artifact, device, parts=parts, artifacts=artifacts)
    _require_combination(model)
    kept = {name: content.meta.get("warnings", ()) for name, content in artifacts.items()}
    found = [(name, text) for name in model.answering for text in parts[name].meta.get("warnings", ())]
    if opened := [f"{name}: {text}" for name, text in found if text not in kept[name]]:
        model = replace(model, meta=with_warnings(model.meta, opened))
    if all(isinstance(parts[name], PredictsDistribution) for name in model.answering):
        return DistributedStackModel(**{own.name: getattr(model, own.name) for own in fields(model)})
    return model


def _require_combination(model: StackModel) -> None:
    """Check that a stack is a convex combination of its parts for each member, step and outcome.

    Raises:
        ValueError: it is not.
    """
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
