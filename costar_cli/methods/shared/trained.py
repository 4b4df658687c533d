"""What trained models share: how they are stored and read, and the rollout of those that encode a panel once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from costar_cli.artifact import Artifact
from costar_cli.errors import MismatchError, UsageError
from costar_cli.methods.base import FitTask
from costar_cli.methods.registry import METHODS
from costar_cli.methods.shared.members import Params, n_members
from costar_cli.methods.shared.microbatches import on_cores
from costar_cli.panel import Panel, PanelSchema, Queries, Scaler
from costar_cli.panel.tensors import PanelTensors
from costar_cli.reporting import NullReporter, Reporter

__all__ = [
    "EncodingModel",
    "TrainedModel",
    "model_to_start_from",
    "params_from_arrays",
    "params_to_arrays",
    "read_fields",
    "read_settings",
    "require_horizon",
    "scaler_from_arrays",
]


def params_to_arrays(params: Params) -> dict[str, NDArray[np.generic]]:
    """Return the parameters under the names that an artifact uses."""
    return {f"params/{name}": value.detach().cpu().numpy() for name, value in params.items()}


def params_from_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> Params:
    """Return the parameters that an artifact holds."""
    prefix = "params/"
    return {n.removeprefix(prefix): torch.from_numpy(np.array(v)) for n, v in arrays.items() if n.startswith(prefix)}


def scaler_from_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> Scaler:
    """Return the scaler that an artifact holds."""
    return Scaler(**{name: np.asarray(arrays[f"scaler/{name}"]) for name in ("covariates", "outcomes", "statics")})


StatesT = TypeVar("StatesT")
ModelT = TypeVar("ModelT", bound="EncodingModel[Any]")


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A trained ensemble of R members; `params` lead with the member axis."""

    method: str
    params: Params
    schema: PanelSchema
    scaler: Scaler
    horizon: int
    meta: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""
    parents: Mapping[str, str] = field(default_factory=dict)
    device: torch.device | str = "cpu"

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: torch.device | str = "cpu", **own: Any) -> Self:  # noqa: ANN401
        """Read a model artifact; `own` are the fields that this class adds."""
        meta = artifact.meta
        return cls(method=str(meta["method"]), horizon=int(meta["horizon"]), **read_fields(artifact, device), **own)

    @property
    def members(self) -> int:
        """Return R."""
        return n_members(self.params)

    @property
    def trained_on(self) -> Mapping[str, int]:
        """Return the number of labelled subjects per part that were at hand in training."""
        return {str(part): int(count) for part, count in self.meta.get("trained_on", {}).items()}


def read_fields(artifact: Artifact, device: torch.device | str) -> dict[str, Any]:
    """Return the fields of `TrainedModel` that every artifact with parameters has, on a device."""
    return {
        "params": {name: value.to(device) for name, value in params_from_arrays(artifact.arrays).items()},
        "schema": PanelSchema.model_validate(artifact.meta["schema"]),
        "scaler": scaler_from_arrays(artifact.arrays),
        "meta": artifact.meta,
        "digest": artifact.digest,
        "parents": artifact.parents,
        "device": device,
    }


def read_settings(artifact: Artifact) -> Any:  # noqa: ANN401 - each method has its own
    """Return the settings that a model was trained with, of its method's own type."""
    settings = METHODS[str(artifact.meta["method"])].settings_class
    return settings and settings.model_validate(artifact.meta["settings"])


@dataclass(frozen=True, kw_only=True)
class EncodingModel(TrainedModel, ABC, Generic[StatesT]):
    """A trained model that encodes a panel once and answers any number of queries from that (`EncodesOnce`)."""

    @abstractmethod
    def encode(self, panel: Panel) -> StatesT:
        """Return what every member knows of every subject's history at every step."""

    @abstractmethod
    def answer(
        self, states: StatesT, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict as `rollout` does, on a panel that `encode` has seen.

        Raises:
            UsageError: the plans are longer than the horizon that the model was trained for.
        """

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict the outcomes of every query, `[R,Q,tau,dy]` in the units of the data.

        Only the subjects asked about are encoded, each once.

        Raises:
            UsageError: the plans are longer than the horizon that the model was trained for.
        """
        require_horizon(self.horizon, queries)
        subjects, row = np.unique(queries.subject, return_inverse=True)
        asked = replace(queries, subject=row.astype(np.int32))
        states = self.encode(panel.take(subjects.astype(np.int64)))
        return self.answer(states, asked, batch_size=batch_size, reporter=reporter)

    def scaled(self, panel: Panel) -> PanelTensors:
        """Return a panel on the model's device, in its precision, as networks see it."""
        dtype = next(iter(self.params.values())).dtype
        return PanelTensors.from_panel(panel, self.scaler, device=self.device, dtype=dtype)

    def in_batches(
        self,
        predict: Callable[[Queries], NDArray[np.floating]],
        queries: Queries,
        *,
        size: int,
        device: torch.device,
        reporter: Reporter | None = None,
    ) -> NDArray[np.float32]:
        """Return outcomes `[R,Q,tau,dy]` in the units of the data, of scaled ones predicted `size` queries at a time.

        Args:
            predict: returns every member's scaled outcomes of queries; called on all cores, without gradients.
            queries: all queries.
            size: queries of a batch.
            device: where predictions are computed.
            reporter: told how many queries are answered.
        """
        result = np.empty((self.members, len(queries), queries.horizon, len(self.schema.outcomes)), dtype=np.float32)

        def fill(first: int) -> int:
            part = slice(first, first + size)
            with torch.no_grad():
                scaled_RQHY = predict(queries.take(part))
            result[:, part] = self.scaler.unscale_outcomes(scaled_RQHY)
            return len(scaled_RQHY[0])

        with (reporter or NullReporter()).task("rollout", total=len(queries), unit="query") as task:
            for count in on_cores(fill, range(0, len(queries), size), device=device):
                task.advance(count)
        return result


def require_horizon(horizon: int, queries: Queries) -> None:
    """Stop when plans are longer than what a model answers.

    Raises:
        UsageError: naming both lengths.
    """
    if queries.horizon > horizon:
        raise UsageError(
            f"plans of {queries.horizon} steps are longer than the model's horizon",
            fix=f"ask for 1 to {horizon} steps, or train with a longer `--horizon`",
        )


def model_to_start_from(task: FitTask, kind: type[ModelT], method: str) -> ModelT | None:
    """Return the model that a fit starts from, if there is one.

    Raises:
        MismatchError: it is of another method, or has fewer members than asked for.
    """
    start = task.start
    if start is None:
        return None
    if not isinstance(start, kind) or start.method != method:
        raise MismatchError(
            f"the model to start from is of method {start.method}, not {method}",
            where="--start",
            fix=f"`costar finetune --method {method}` makes one",
        )
    if task.members > start.members:
        raise MismatchError(
            f"{task.members} members were asked for, but there are only {start.members} to start from",
            where="--members",
            fix=f"use `--members {start.members}` or fewer",
        )
    return start
