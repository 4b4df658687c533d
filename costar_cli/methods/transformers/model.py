"""What trained transformers share: read from an artifact, encode a panel once, answer any number of queries."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from costar_cli.artifact import Artifact
from costar_cli.config.models import Config
from costar_cli.errors import MismatchError
from costar_cli.methods.base import FitTask
from costar_cli.methods.shared.members import Params, submodule
from costar_cli.methods.shared.trained import EncodingModel, model_to_start_from, read_settings
from costar_cli.methods.transformers.network import NetworkT
from costar_cli.methods.transformers.rollout import MemberStates, answer_queries
from costar_cli.panel import Panel, Queries
from costar_cli.panel.tensors import PanelTensors
from costar_cli.reporting import Reporter

__all__ = ["TransformerModel", "few_shot_start", "member_network"]

SettingsT = TypeVar("SettingsT", bound=Config)
SHAPE = ("width", "representation", "hidden", "layers", "heads", "clip_distance")


@dataclass(frozen=True, kw_only=True)
class TransformerModel(EncodingModel[Sequence[MemberStates]], Generic[SettingsT]):
    """A trained transformer of R members."""

    settings: SettingsT

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: torch.device | str = "cpu", **own: Any) -> Self:  # noqa: ANN401
        """Read a model artifact."""
        return super().from_artifact(artifact, device, settings=read_settings(artifact), **own)

    @abstractmethod
    def states(self, member: int, panel: PanelTensors) -> MemberStates:
        """Return what a member knows of every history of a scaled panel."""

    def represent(self, panel: Panel) -> NDArray[np.float32]:
        """Return the balanced representation `[R,N,T,r]` of every subject's history at every step."""
        return np.stack([states.representation_NTr.float().cpu().numpy() for states in self.encode(panel)])

    def encode(self, panel: Panel) -> list[MemberStates]:
        """Return what each member knows of every subject's history at every step."""
        tensors = self.scaled(panel)
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


def few_shot_start(task: FitTask, model: type[TransformerModel[Any]], method: str, settings: Config) -> Params | None:
    """Return the parameters to start from, of the members asked for; none without a source model.

    Raises:
        MismatchError: the source model is of another method or shape, or has fewer members.
    """
    start = model_to_start_from(task, model, method)
    if start is None:
        return None
    differing = _other_shapes(start.settings, settings)
    if differing:
        raise MismatchError(
            "the source model has networks of another shape than the settings ask for",
            where=f"[{method.replace('-', '_')}]",
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
