"""What every estimator of counterfactual outcomes offers: how it is fitted, and how a fitted one answers.

Arrays carry their axes in their names: `R` members, `N` subjects, `T` steps, `B` rows of a batch, `Q` queries, `H`
steps of the horizon, `D` width of a model, `F` feature tokens; `X`, `A`, `Y`, `V` covariates, treatments, outcomes and
statics. Letters of one module are in its docstring; the legend of all is in docs/spec/README.md.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.choices import PrecisionName, SelectionName
from costar_cli.config.models import Config, FinetuneConfig, TrainingConfig
from costar_cli.data import Domain, Panel, PanelSchema, Part, Scaler
from costar_cli.data.panel import join_panels
from costar_cli.data.truncated import Stretches, is_long
from costar_cli.files import Artifact
from costar_cli.methods.model import (
    LEAST_MEMBERS,
    Decide,
    Device,
    FittedModel,
    Forecast,
    Parameters,
    PredictFn,
    PredictiveDistribution,
    adjusted,
)

if TYPE_CHECKING:  # closed forms are fitted and answer without torch
    import torch
    from torch import Tensor

    from costar_cli.data.tensors import PanelTensors
    from costar_cli.methods.shared.effect_check import EffectCheck
    from costar_cli.methods.shared.members import Params
    from costar_cli.methods.shared.streams import Stream

__all__ = [
    "LEAST_MEMBERS",
    "Decide",
    "Device",
    "Estimator",
    "FinalStage",
    "Fit",
    "FitTask",
    "FitsParts",
    "Fitted",
    "FittedModel",
    "FittedPart",
    "Forecast",
    "Parameters",
    "Place",
    "PredictFn",
    "PredictiveDistribution",
    "Stage",
    "StepLoss",
    "adjusted",
]

StepLoss: TypeAlias = "tuple[Tensor, Params]"
ConfigT = TypeVar("ConfigT", bound=Config)


class Stage(Protocol):
    """One stage of training: what to minimise. `training/loop.py` runs any of them, for R members at once.

    Parameters are learned by gradient; `state` is whatever else a member carries from step to step (the momentum
    encoder). Both lead with the member axis. A stage has no randomness of its own: each member's stream is an input.
    """

    @property
    def name(self) -> str:
        """Return what progress, seeds and run state call the stage."""

    @property
    def config(self) -> TrainingConfig:
        """Return epochs, patience, batch size, learning rate and seed."""

    @property
    def keep(self) -> str:
        """Return which weights to keep: those of the `last` epoch or of the `best` one."""

    @property
    def scheduled(self) -> bool:
        """Return whether a step depends on how many epochs there will be: then a run cannot be made longer."""

    @property
    def drop_last(self) -> bool:
        """Return whether an incomplete last batch is left out."""

    @property
    def max_grad_norm(self) -> float | None:
        """Return the largest norm of a member's gradient, beyond which it is scaled down; None for any."""

    @property
    def members_at_once(self) -> int | None:
        """Return how many members share a step on a CPU at best; None for all."""

    @property
    def n_train(self) -> int:
        """Return the number of training subjects."""

    @property
    def n_validation(self) -> int:
        """Return the number of validation subjects."""

    def initial(self, member: int) -> "tuple[Params, Params]":
        """Return parameters and state of one fresh member, without the member axis."""

    def loss(self, params_R: "Params", state_R: "Params", rows_RB: "Tensor", streams: "Sequence[Stream]") -> StepLoss:
        """Return each member's loss `[R]` on its rows of the training subjects, and the new state."""

    def validation_loss(
        self, params_R: "Params", state_R: "Params", rows_RB: "Tensor", streams: "Sequence[Stream]"
    ) -> "tuple[Tensor, Tensor]":
        """Return each member's loss `[R]` on rows of the validation subjects, and the weight of this batch `[R]`."""

    def weights(self, params_R: "Params", state_R: "Params") -> "Params":
        """Return the weights to keep at the end of an epoch, under the names of the parameters."""

    def reference(self) -> float | None:
        """Return the loss of knowing nothing, where there is such a number."""


@dataclass(frozen=True)
class Place:
    """Where networks compute, and in which precision; what is fitted without torch imports it for neither."""

    name: str = "cpu"  # as torch calls it
    precision: PrecisionName = "float32"

    @property
    def device(self) -> "torch.device":
        """Return the device."""
        import torch  # noqa: PLC0415 - networks alone need it

        return torch.device(self.name)

    @property
    def dtype(self) -> "torch.dtype":
        """Return the type of parameters and data."""
        import torch  # noqa: PLC0415 - networks alone need it

        return torch.float64 if self.precision == "float64" else torch.float32


@dataclass(frozen=True)
class FitTask:
    """What a method is fitted to.

    `config` is what all methods share (epochs, patience, seed, ...), `settings` the method's own. `panels` holds the
    raw panels of `domain` and, where the method asks for them, of source-train; `tensors` scales one of them. A method
    that combines others has these fitted by `fit_part`, with `part_settings` by name, and may compare their effects
    with those of `effect_check`, which is None where too few follow plans.
    """

    schema: PanelSchema
    horizon: int
    domain: Domain
    panels: Mapping[Part, Panel]
    scaler: Scaler
    config: FinetuneConfig
    settings: Config | None
    members: int
    start: "FittedModel | None"
    place: Place = Place()
    part_settings: "Mapping[str, Config | None]" = field(default_factory=dict)
    fit_part: "FitsParts | None" = None
    effect_check: "Callable[[], EffectCheck | None] | None" = None

    @property
    def device(self) -> "torch.device":
        """Return where networks compute."""
        return self.place.device

    @property
    def dtype(self) -> "torch.dtype":
        """Return the type of their parameters and data."""
        return self.place.dtype

    def tensors(self, part: Part) -> "PanelTensors":
        """Return a scaled panel on the device, long series in stretches."""
        from costar_cli.data.tensors import PanelTensors  # noqa: PLC0415 - networks alone need torch

        return PanelTensors.from_panel(self.learned_panel(part), self.scaler, device=self.device, dtype=self.dtype)

    def learned_panel(self, part: Part) -> Panel:
        """Return what networks learn a panel from: long series in stretches."""
        panel = self.panels[part]
        return Stretches.of(panel).panel if self.in_stretches else panel

    @property
    def subjects_of_both(self) -> Panel:
        """Return the training subjects of the source, in few-shot with those of the target behind them."""
        source = self.panels[Part("source", "train")]
        return source if self.domain == "source" else join_panels([source, self.panels[self.train]])

    @property
    def in_stretches(self) -> bool:
        """Return whether networks learn from stretches: of long series, or since what they start from has done so."""
        return is_long(self.panels[self.train]) or (self.start is not None and self.start.record.stretch is not None)

    def settings_of(self, kind: type[ConfigT]) -> ConfigT:
        """Return the method's own settings, which are of this type; its defaults where none were given.

        Raises:
            TypeError: they are another method's.
        """
        if self.settings is None:
            return kind()
        if not isinstance(self.settings, kind):
            raise TypeError(f"these are settings of another method: {type(self.settings).__name__}")
        return self.settings

    def stage_name(self, name: str) -> str:
        """Return what progress and random streams call a stage of this fit."""
        return name if self.domain == "source" else f"{name} on target"

    @property
    def train(self) -> Part:
        """Return the part to learn from."""
        return Part(self.domain, "train")

    @property
    def validation(self) -> Part:
        """Return the part to select on."""
        return Part(self.domain, "val")


@dataclass(frozen=True)
class Fitted:
    """What a fit ends with: the parameters of all members, `[R,...]` by name, and facts that `load` needs.

    There is at least one, an array of closed forms or a tensor of networks, and each leads with the member axis: R is
    `task.members`, 1 in closed form. A method that learns nothing returns an empty one, `np.zeros((1, 0))`. `warnings`
    are what may make its answers wrong, in sentences. `arrays` are what the artifact holds beside them, by name.
    `moved` says whether a fit that starts from the source's model does better than that, where the fit has compared
    the two itself. Facts in `meta` that are called as a field of `ModelRecord` are that field, and are checked as it
    when the file is read; others come back in `record.facts`.
    """

    params: Parameters
    meta: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    arrays: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    moved: bool | None = None


@dataclass(frozen=True)
class FittedPart:
    """A method that was fitted as a part of another: what its artifact would hold, and the model that this makes."""

    artifact: Artifact
    model: FittedModel
    warnings: tuple[str, ...] = ()


class FitsParts(Protocol):
    """Fits the parts of a method that combines others, each as it is fitted alone."""

    def __call__(self, method: str, start: FittedModel | None) -> FittedPart:
        """Fit a method of the registry to the task's subjects, from an encoder, its source model or nothing."""


@dataclass(frozen=True)
class FinalStage:
    """The stage after which a model is complete, so that complete models can select its weights.

    Attributes:
        stage: what to train.
        complete: returns what the fit would end with, of some members: their parameters `[R,...]` of this stage, and
            their numbers.
        settings: the method's settings with which answers cost less while weights are selected; None for its own.
        select_on: what selects its weights, where the method does not leave that to `finetune.select_on`.
    """

    stage: Stage
    complete: "Callable[[Params, Sequence[int]], Fitted]"
    settings: Config | None = None
    select_on: SelectionName | None = None


# A fit yields its stages one after another, is sent the parameters that each kept, `[R,...]`, and returns the result.
Fit: TypeAlias = "Generator[Stage | FinalStage, Params, Fitted]"


class Estimator(Protocol):
    """What a method does, as its entry in the registry names it: fit, and read what was fitted."""

    def fit(self, task: FitTask) -> Fit:
        """Fit all members, stage by stage.

        Raises:
            MismatchError: what to start from does not fit the task.
        """

    def load(self, artifact: Artifact, device: Device = "cpu") -> FittedModel:
        """Return the fitted model that an artifact of kind `model` holds."""
