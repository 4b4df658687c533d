"""Trained networks: their parameters are tensors on a device, and they look as far back as they have learned to."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from costar_cli.config.models import Config
from costar_cli.data import Panel, Queries
from costar_cli.data.record import ModelRecord
from costar_cli.data.tensors import PanelTensors
from costar_cli.data.truncated import STRETCH, Stretches
from costar_cli.errors import UsageError
from costar_cli.files import Artifact
from costar_cli.methods.base import FitTask
from costar_cli.methods.model import Device, Parameters
from costar_cli.methods.registry import METHODS
from costar_cli.methods.shared.members import Params, submodule
from costar_cli.methods.shared.microbatches import on_cores
from costar_cli.methods.shared.trained import AnswerJob, EncodingModel, StatesT, model_to_start_from
from costar_cli.reporting import Reporter

NETWORK_SHAPE = ("width", "representation", "hidden", "layers", "heads", "clip_distance", "components", "features")
SHAPE = (*NETWORK_SHAPE, "decoder", "carry_overs", "fading", "covariates")


def to_device(params: Parameters, device: Device) -> Params:
    """Return parameters as tensors on a device."""
    return {name: torch.as_tensor(value).to(device) for name, value in params.items()}


@dataclass(frozen=True)
class InStretches(Generic[StatesT]):
    """What a model knows of long series, stretch by stretch."""

    stretches: Stretches
    states: StatesT


class _WithoutDraws(TorchFunctionMode):
    """Normal numbers are not drawn: where tensors have no values, PyTorch imports its compiler to draw them."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - of any function
        return (torch.empty if func is torch.randn else func)(*args, **(kwargs or {}))


@dataclass(frozen=True, kw_only=True)
class SeriesModel(EncodingModel[StatesT]):
    """A trained network; where it has learned from stretches of long series, it looks as far back (spec PANEL-14)."""

    params: Params
    device: Device = "cpu"

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: Device = "cpu", **own: Any) -> Self:  # noqa: ANN401
        """Read a model artifact, with its parameters on a device."""
        model = super().from_artifact(artifact, **own)
        return replace(model, params=to_device(model.params, device), device=device)

    def predicted(self, job: AnswerJob) -> NDArray[np.floating]:
        """Return the scaled outcomes of a job."""
        with torch.no_grad():
            scaled: Tensor = job.predict()
        return np.asarray(scaled.cpu().numpy())

    def together(self, fill: Callable[[AnswerJob], int], jobs: Iterable[AnswerJob]) -> Iterator[int]:
        """Yield what `fill` returns of jobs that may be done side by side, in order."""
        return on_cores(fill, jobs, device=torch.device(self.device))

    def scaled(self, panel: Panel) -> PanelTensors:
        """Return a panel on the model's device, in its precision, as networks see it."""
        dtype = next(iter(self.params.values())).dtype
        return PanelTensors.from_panel(panel, self.scaler, device=self.device, dtype=dtype)

    @abstractmethod
    def networks(self) -> Mapping[str, Callable[[], nn.Module]]:
        """Return what makes each network that answers need, by the prefix of its parameters."""

    def require_shapes(self) -> Self:
        """Return the model, once its parameters are seen to be those of such networks; their values are not made.

        Raises:
            ValueError: as `require_arrays`.
        """
        networks, shapes = self.networks(), dict[str, tuple[int, ...]]()
        for prefix, make in networks.items():
            with torch.device("meta"), _WithoutDraws():
                shapes |= {f"{prefix}{name}": tuple(value.shape) for name, value in make().named_parameters()}
        return self.require_arrays(shapes, within=tuple(networks))

    @abstractmethod
    def encode_series(self, panel: Panel) -> StatesT:
        """Return what every member knows of every subject's history at every step, on the model's device."""

    def encode(self, panel: Panel) -> StatesT:
        """Return what every member knows of the histories, or of their stretches: what `answer` reads."""
        if not self._cuts(panel):
            return self.encode_series(panel)
        stretches = Stretches.of(panel)
        return cast("StatesT", InStretches(stretches, self.encode_series(stretches.panel)))

    def answer(
        self, states: StatesT, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict as `rollout` does, on a panel that `encode` has seen."""
        if isinstance(states, InStretches):
            queries, states = states.stretches.queries(queries), states.states
        return super().answer(states, queries, batch_size=batch_size, reporter=reporter)

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict the outcomes of every query; only the subjects asked about, or their stretches, are encoded."""
        if self._cuts(panel):
            panel, queries = Stretches.asked(panel, queries)
        return super().rollout(panel, queries, batch_size=batch_size, reporter=reporter)

    def _cuts(self, panel: Panel) -> bool:
        return panel.n_steps > STRETCH and self.record.stretch is not None


@dataclass(frozen=True, kw_only=True)
class NetworkModel(SeriesModel[StatesT]):
    """A trained model of a method with settings of its own; `params` are named `NETWORK.*` where there are several."""

    settings: Any  # of the method's own type

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: Device = "cpu", **own: Any) -> Self:  # noqa: ANN401
        """Read a model artifact."""
        record = ModelRecord.read(artifact.meta)
        kind = METHODS[record.method].settings_class
        settings = kind and kind.model_validate(record.settings)
        return super().from_artifact(artifact, device, settings=settings, **own).require_shapes()

    @classmethod
    def start_of(cls, task: FitTask, method: str, settings: Config) -> Self | None:
        """Return the model that a fit starts from, if there is one.

        Raises:
            MismatchError: it is of a different method, or has fewer members than asked for.
            UsageError: the settings give its networks a different shape.
        """
        start = model_to_start_from(task, NetworkModel, method)  # type: ignore[type-abstract]
        theirs, mine = start.settings.model_dump() if start else {}, settings.model_dump()
        differing = [
            f"{network}.{key}: the source model has {value}, the settings say {mine[network][key]}"
            for network, values in theirs.items()
            if isinstance(values, dict)
            for key, value in values.items()
            if key in SHAPE and mine[network][key] != value
        ]
        if differing:
            raise UsageError(
                "the networks of the source model differ in shape from the settings",
                where=f"[{method.replace('-', '_')}]",
                fix="adapt it with the settings that it was trained with",
                details=differing,
            )
        return cast("Self | None", start)

    def params_of(self, network: str) -> Params:
        """Return the parameters of one network, without its name."""
        return submodule(self.params, f"{network}.")
