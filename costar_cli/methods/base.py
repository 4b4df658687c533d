"""What every estimator of counterfactual outcomes offers: how it is fitted, and how a fitted one answers.

Arrays carry their axes in their names: `R` members, `N` subjects, `T` steps, `B` rows of a batch, `Q` queries, `H`
steps of the horizon, `D` width of a model, `F` feature tokens; `X`, `A`, `Y`, `V` covariates, treatments, outcomes and
statics. Letters of one module are in its docstring; the legend of all is in docs/spec/README.md.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from costar_cli.config.choices import SelectionName
from costar_cli.config.models import Config, FinetuneConfig, TrainingConfig
from costar_cli.data import Domain, Panel, PanelSchema, Part, Queries, Scaler
from costar_cli.data.tensors import PanelTensors
from costar_cli.data.truncated import STRETCH, Stretches, is_long
from costar_cli.files import Artifact
from costar_cli.methods.registry import METHODS, Adjusts
from costar_cli.methods.shared.members import Params
from costar_cli.methods.shared.streams import Stream
from costar_cli.reporting import Reporter

__all__ = [
    "Decide",
    "DrawsCourses",
    "EncodesOnce",
    "Estimator",
    "FinalStage",
    "Fit",
    "FitTask",
    "FitsParts",
    "Fitted",
    "FittedModel",
    "FittedPart",
    "KeepsWithin",
    "PredictiveDistribution",
    "PredictsDistribution",
    "PredictsStepwise",
    "PredictsSums",
    "Stage",
    "StepLoss",
    "adjusted",
]

StepLoss = tuple[Tensor, Params]
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
    def n_train(self) -> int:
        """Return the number of training subjects."""

    @property
    def n_validation(self) -> int:
        """Return the number of validation subjects."""

    def initial(self, member: int) -> tuple[Params, Params]:
        """Return parameters and state of one fresh member, without the member axis."""

    def loss(self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> StepLoss:
        """Return each member's loss `[R]` on its rows of the training subjects, and the new state."""

    def validation_loss(
        self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> tuple[Tensor, Tensor]:
        """Return each member's loss `[R]` on rows of the validation subjects, and the weight of this batch `[R]`."""

    def weights(self, params_R: Params, state_R: Params) -> Params:
        """Return the weights to keep at the end of an epoch, under the names of the parameters."""

    def reference(self) -> float | None:
        """Return the loss of knowing nothing, where there is such a number."""


class FittedModel(Protocol):
    """A trained method, as `evaluate` and `whatif` see it."""

    @property
    def method(self) -> str:
        """Return the name under which the registry knows the method."""

    @property
    def members(self) -> int:
        """Return R, the number of ensemble members."""

    @property
    def horizon(self) -> int:
        """Return the longest plan that the model answers."""

    @property
    def schema(self) -> PanelSchema:
        """Return the columns that the model was trained on."""

    @property
    def scaler(self) -> Scaler:
        """Return the standardisation that the model was trained with."""

    @property
    def meta(self) -> Mapping[str, Any]:
        """Return the facts that its artifact records; empty if it was fitted to nothing."""

    @property
    def parents(self) -> Mapping[str, str]:
        """Return the digests of what it was made from, by role."""

    @property
    def trained_on(self) -> Mapping[str, int]:
        """Return the number of labelled subjects per part that were at hand in training; empty if that is unknown."""

    @property
    def digest(self) -> str:
        """Return the digest of its artifact; empty if it has none."""

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict the outcomes of every query.

        The panel is encoded once; `batch_size` queries at a time are answered from the encoded states.

        Returns:
            Outcomes `[R,Q,H,Y]` in the units of the data; H is `queries.horizon`, at most `horizon`.
        """


@runtime_checkable
class EncodesOnce(Protocol):
    """A `FittedModel` that can keep what it knows of a panel and answer several query sets from that.

    Optional: scoring uses it where it is offered, since most of the work lies in `encode`. `rollout(panel, queries)` is
    then `answer(encode(panel), queries)`. States are the model's own business (representations, recurrent states at
    every step, keys and values of prefixes); they are kept for some thousand subjects at a time.
    """

    def encode(self, panel: Panel) -> Any:  # noqa: ANN401 - opaque to all but the model
        """Return what the model knows of every subject's history at every step."""

    def answer(
        self,
        states: Any,  # noqa: ANN401
        queries: Queries,
        *,
        batch_size: int = 16_384,
        reporter: Reporter | None = None,
    ) -> NDArray[np.float32]:
        """Predict as `rollout` does; `queries.subject` counts the rows of the encoded panel."""


@dataclass(frozen=True, slots=True)
class PredictiveDistribution:
    """Predicted outcomes with their standard deviation, `[R,Q,H,Y]` each, in the units of the data.

    `sd_parameter` is what is not known of the subjects' own parameters, `sd_noise` what chance adds after the origin;
    the two are independent, so that their squares add up.
    """

    mean: NDArray[np.float32]
    sd_parameter: NDArray[np.float32]
    sd_noise: NDArray[np.float32]

    @property
    def sd(self) -> NDArray[np.float32]:
        """Return the standard deviation of an outcome."""
        return np.hypot(self.sd_parameter, self.sd_noise)


@runtime_checkable
class PredictsDistribution(Protocol):
    """A `FittedModel` that knows how far outcomes may be from its predictions. Optional."""

    def predict_distribution(self, panel: Panel, queries: Queries) -> PredictiveDistribution:
        """Predict as `rollout` does, with the standard deviation of each outcome."""


@runtime_checkable
class PredictsSums(Protocol):
    """A `FittedModel` that knows how far sums of outcomes over steps may be from its predictions. Optional."""

    def predict_sums(self, panel: Panel, queries: Queries, summed_Y: NDArray[np.bool_]) -> PredictiveDistribution:
        """Predict as `predict_distribution` does, of some outcomes `[Y]` their sums since the origin."""


@runtime_checkable
class KeepsWithin(Protocol):
    """A `FittedModel` whose predicted and drawn courses stay within bounds. Optional."""

    def bounds(self, panel: Panel, queries: Queries) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the smallest and the largest outcomes `[Q,Y]` of what is asked, in the units of the data."""


@runtime_checkable
class DrawsOutcomes(Protocol):
    """A `FittedModel` that draws outcomes from its predictive distribution, jointly for a subject's plans. Optional."""

    def draw_outcomes(
        self, panel: Panel, queries: Queries, n: int, seed: int, *, among: NDArray[np.integer] | None = None
    ) -> NDArray[np.float64]:
        """Return `[S,Q,H,Y]`, S = n draws in the units of the data.

        In each draw a subject has the same parameters, and the same chance after the origin, under all plans. Queries
        `among` those of further subjects have the chance that they have with all of them.
        """


@runtime_checkable
class PredictsStepwise(Protocol):
    """A `FittedModel` that may predict each step from its own step before, so that rules can act on its course."""

    @property
    def stepwise(self) -> bool:
        """Return whether it does: its steps then are one course, not answers to questions of different lengths."""


def adjusted(model: FittedModel) -> Adjusts:
    """Return which reactions of treatment inside a plan a model adjusts for: its own word, else its method's.

    Without covariates there are only outcomes that treatment could react to.
    """
    entry = METHODS.get(model.method)
    found: Adjusts = getattr(model, "adjusts", entry.adjusts if entry else "none")
    found = "all" if found == "outcomes" and not model.schema.covariates else found
    return entry.adjusts_for(found, binary=model.schema.has_binary) if entry else found


Decide = Callable[[int, NDArray[np.float64]], NDArray[np.floating]]
"""From the index of a step in the plan and the outcomes there `[M,Y]` to the encoded treatments `[M,A]`."""


@runtime_checkable
class DrawsCourses(Protocol):
    """A `FittedModel` that draws courses whose treatments are decided on the way. Optional."""

    @property
    def draws_covariates(self) -> bool:
        """Return whether courses have covariates, too: what `decide` is told then has them behind the outcomes."""

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
        """Return outcomes `[S,Q,H,Y]`, S = n, H = steps, of subjects from their origins.

        Chance is that of `draw_outcomes`: under the treatments of a fixed plan the draws are the same. `decide` is
        asked at each step, with M = S Q courses, draw after draw; first about the outcomes at the origins.
        """


@dataclass(frozen=True)
class FitTask:
    """What a method is fitted to.

    `config` is what all methods share (epochs, patience, seed, ...), `settings` the method's own. `panels` holds the
    raw panels of `domain` and, where the method asks for them, of source-train; `tensors` scales one of them. A method
    that combines others has these fitted by `fit_part`, with `part_settings` by name.
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
    device: torch.device
    dtype: torch.dtype
    part_settings: "Mapping[str, Config | None]" = field(default_factory=dict)
    fit_part: "FitsParts | None" = None

    def tensors(self, part: Part) -> PanelTensors:
        """Return a scaled panel on the device, long series in stretches."""
        panel = self.panels[part]
        panel = Stretches.of(panel).panel if self.in_stretches else panel
        return PanelTensors.from_panel(panel, self.scaler, device=self.device, dtype=self.dtype)

    @property
    def in_stretches(self) -> bool:
        """Return whether networks learn from stretches: of long series, or since what they start from has done so."""
        return is_long(self.panels[self.train]) or "stretch" in (self.start.meta if self.start else {})

    @property
    def stretch_meta(self) -> dict[str, int]:
        """Return what an artifact says of stretches: how long they are, where there are any (spec PANEL-14)."""
        return {"stretch": STRETCH} if self.in_stretches else {}

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

    There is at least one tensor, and each leads with the member axis: R is `task.members`, 1 where the fit is in closed
    form. A method that learns nothing returns an empty one, `torch.zeros(1, 0)`. `warnings` are what may make its
    answers wrong, in sentences. `arrays` are what the artifact holds beside them, by name. `moved` says whether a fit
    that starts from the source's model does better than that, where the fit has compared the two itself.
    """

    params: Params
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
    complete: Callable[[Params, Sequence[int]], Fitted]
    settings: Config | None = None
    select_on: SelectionName | None = None


# A fit yields its stages one after another, is sent the parameters that each kept, `[R,...]`, and returns the result.
Fit = Generator[Stage | FinalStage, Params, Fitted]


class Estimator(Protocol):
    """What a method does, as its entry in the registry names it: fit, and read what was fitted."""

    def fit(self, task: FitTask) -> Fit:
        """Fit all members, stage by stage.

        Raises:
            MismatchError: what to start from does not fit the task.
        """

    def load(self, artifact: Artifact, device: torch.device | str = "cpu") -> FittedModel:
        """Return the fitted model that an artifact of kind `model` holds."""
