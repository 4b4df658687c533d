"""What trained transformers share: read from an artifact, encode a panel once, answer any number of queries."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from costar_cli.artifact import Artifact
from costar_cli.config.models import Config
from costar_cli.errors import MismatchError
from costar_cli.methods.arrays import params_from_arrays, scaler_from_arrays
from costar_cli.methods.base import FitTask
from costar_cli.methods.linear import require_horizon
from costar_cli.methods.members import Params, n_members, submodule
from costar_cli.methods.transformers.network import NetworkT
from costar_cli.methods.transformers.rollout import MemberStates, answer_queries
from costar_cli.panel import Panel, PanelSchema, Queries, Scaler
from costar_cli.panel.tensors import PanelTensors
from costar_cli.reporting import Reporter

__all__ = ["TransformerModel", "few_shot_start", "member_network"]

SettingsT = TypeVar("SettingsT", bound=Config)
SHAPE = ("width", "representation", "hidden", "layers", "heads", "clip_distance")


@dataclass(frozen=True)
class TransformerModel(ABC, Generic[SettingsT]):
    """A trained ensemble of R members; `params` lead with the member axis."""

    params: Params
    schema: PanelSchema
    scaler: Scaler
    horizon: int
    settings: SettingsT
    meta: Mapping[str, Any] | None = None
    digest: str = ""
    parents: Mapping[str, str] | None = None
    device: torch.device | str = "cpu"

    settings_type: ClassVar[type[Config]]
    method: ClassVar[str]

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: torch.device | str = "cpu") -> Self:
        """Read a model artifact."""
        meta = artifact.meta
        return cls(
            params={name: value.to(device) for name, value in params_from_arrays(artifact.arrays).items()},
            schema=PanelSchema.model_validate(meta["schema"]),
            scaler=scaler_from_arrays(artifact.arrays),
            horizon=int(meta["horizon"]),
            settings=cls.settings_type.model_validate(meta["settings"]),  # type: ignore[arg-type]
            meta=meta,
            digest=artifact.digest,
            parents=artifact.parents,
            device=device,
        )

    @abstractmethod
    def states(self, member: int, panel: PanelTensors) -> MemberStates:
        """Return what a member knows of every history of a scaled panel."""

    @property
    def members(self) -> int:
        """Return R."""
        return n_members(self.params)

    @property
    def trained_on(self) -> Mapping[str, int]:
        """Return the number of labelled subjects per part that the model has learned from."""
        return dict((self.meta or {}).get("trained_on", {}))

    def represent(self, panel: Panel) -> NDArray[np.float32]:
        """Return the balanced representation `[R,N,T,r]` of every subject's history at every step."""
        return np.stack([states.representation_NTr.float().cpu().numpy() for states in self.encode(panel)])

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

    def encode(self, panel: Panel) -> list[MemberStates]:
        """Return what each member knows of every subject's history at every step."""
        dtype = next(iter(self.params.values())).dtype
        tensors = PanelTensors.from_panel(panel, self.scaler, device=self.device, dtype=dtype)
        with torch.no_grad():
            return [self.states(member, tensors) for member in range(self.members)]

    def answer(
        self,
        states: Sequence[MemberStates],
        queries: Queries,
        *,
        batch_size: int = 16_384,
        reporter: Reporter | None = None,
    ) -> NDArray[np.float32]:
        """Predict as `rollout` does, on a panel that `encode` has seen.

        Raises:
            UsageError: the plans are longer than the horizon that the model was trained for.
        """
        return answer_queries(
            states, queries, self.scaler, horizon=self.horizon, batch_size=batch_size, reporter=reporter
        )


def member_network(network: NetworkT, params_R: Params, member: int, prefix: str = "") -> NetworkT:
    """Return a network that holds one member's parameters, without gradients."""
    own = {name: value[member] for name, value in submodule(params_R, prefix).items()}
    network.to(next(iter(own.values())).device).load_state_dict(own, assign=True)
    return network.requires_grad_(False)


def few_shot_start(task: FitTask, model: type[TransformerModel[Any]], settings: Config) -> Params | None:
    """Return the parameters to start from, of the members asked for; none without a source model.

    Raises:
        MismatchError: the source model is of another method or shape, or has fewer members.
    """
    start = task.start
    if start is None:
        return None
    if not isinstance(start, model):
        raise MismatchError(
            f"the model to start from is of method {start.method}, not {model.method}",
            where="--start",
            fix=f"`costar finetune --method {model.method}` makes one",
        )
    if task.members > start.members:
        raise MismatchError(
            f"{task.members} members were asked for, but there are only {start.members} to start from",
            where="--members",
            fix=f"use `--members {start.members}` or fewer",
        )
    differing = _other_shapes(start.settings, settings)
    if differing:
        raise MismatchError(
            "the source model has networks of another shape than the settings ask for",
            where=f"[{model.method.replace('-', '_')}]",
            fix="adapt it with the settings that it was trained with",
            details=differing,
        )
    return {name: value[: task.members] for name, value in start.params.items()}


def _other_shapes(source: Config, asked: Config) -> list[str]:
    """Return in words which settings of the networks' shapes differ."""
    theirs, mine = source.model_dump(), asked.model_dump()
    return [
        f"{network}.{key}: the source model has {value}, the settings say {mine[network][key]}"
        for network, values in theirs.items()
        if isinstance(values, dict)
        for key, value in values.items()
        if key in SHAPE and mine[network][key] != value
    ]
