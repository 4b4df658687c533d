"""CT and CT(ERM) as the registry knows them: one network on three streams (spec CT-1 to 7)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from costar_cli.artifact import Artifact
from costar_cli.config.baselines import METHOD_SETTINGS
from costar_cli.config.transformers import CausalTransformerConfig
from costar_cli.methods.base import Fit, FitTask, Fitted, LastStage
from costar_cli.methods.shared.members import Params
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.transformers.confusion import Objective, Target
from costar_cli.methods.transformers.ct_network import CtNetwork
from costar_cli.methods.transformers.ct_states import CtStates, encode_ct
from costar_cli.methods.transformers.model import TransformerModel, few_shot_start, member_network
from costar_cli.methods.transformers.series import SeriesStage
from costar_cli.methods.transformers.stage import Batch, PartName
from costar_cli.panel.tensors import PanelTensors

__all__ = ["CtMethod", "CtModel", "CtStage", "ct_stage"]


class CtStage(SeriesStage[CtNetwork]):
    """Whole series; in training each comes twice where there are covariates, the copy losing them at a random step."""

    def batch(self, part: PartName, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> Batch:
        """Return the subjects and, in training, their copies whose covariates are hidden from a split on.

        The split is uniform on 0 to the number of active positions, per subject, from the member's stream.
        """
        series = self.series[part]
        history, statics, treatment = series.inputs(rows_RB)
        target = series.target(rows_RB)
        hidden_RBT = torch.zeros_like(target.active_RBT)
        if part == "train" and self.network.covariates is not None:
            length_RB = target.active_RBT.sum(dim=-1)
            u_RB = torch.stack([stream.uniform(rows_RB.shape[1]) for stream in streams]).to(length_RB)
            split_RB = torch.floor(u_RB * (length_RB + 1))
            step_T = torch.arange(hidden_RBT.shape[-1], device=hidden_RBT.device)
            hidden_RBT = torch.cat([hidden_RBT, (step_T >= split_RB[..., None]).to(hidden_RBT)], dim=1)
            history, statics, treatment = (twice(values) for values in (history, statics, treatment))
            treatment_RBTA, outcome_RBTY, active_RBT = map(twice, target[:3])
            observed_RBTY = None if target.observed_RBTY is None else twice(target.observed_RBTY)
            target = Target(treatment_RBTA, outcome_RBTY, active_RBT, observed_RBTY)
        return Batch((history, statics, hidden_RBT, treatment), target)


def twice(values_RB: Tensor) -> Tensor:
    """Return a batch and a copy of it, side by side."""
    return torch.cat([values_RB, values_RB], dim=1)


@dataclass(frozen=True)
class CtModel(TransformerModel[CausalTransformerConfig]):
    """A trained causal transformer."""

    def states(self, member: int, panel: PanelTensors) -> CtStates:
        """Return what a member knows of every history of a scaled panel."""
        network = CtNetwork(self.schema.dims, self.settings.network)
        return encode_ct(member_network(network, self.params, member), panel.history_NTS, panel.v_NV)


@dataclass(frozen=True)
class CtMethod:
    """The causal transformer: one network on streams of treatments, outcomes and covariates (spec CT-1 to 7)."""

    name: str = "ct"
    single: bool = False
    learns_from_source: bool = False

    def fit(self, task: FitTask) -> Fit:
        """Train from scratch, or from the source's model (few-shot).

        Raises:
            MismatchError: the model to start from is of another method or shape, or has fewer members than asked for.
        """
        settings = task.settings or METHOD_SETTINGS[self.name]()
        if not isinstance(settings, CausalTransformerConfig):
            raise TypeError(f"{self.name} does not take {type(settings).__name__}")
        stage = ct_stage(task, settings, self.name, few_shot_start(task, CtModel, self.name, settings))
        params = yield LastStage(stage, lambda params_R, _: Fitted(params_R))
        return Fitted(params)

    def load(self, artifact: Artifact, device: torch.device | str = "cpu") -> CtModel:
        """Return the model that an artifact holds."""
        return CtModel.from_artifact(artifact, device)


def ct_stage(task: FitTask, settings: CausalTransformerConfig, name: str, start_R: Params | None) -> CtStage:
    """Return the one stage of the fit."""
    config, train = settings.network.training(task.config), task.tensors(task.train)
    balancing, alpha = settings.balance
    return CtStage(
        name if task.domain == "source" else f"{name} on target",
        config,
        partial(CtNetwork, task.schema.dims, settings.network),
        train=train,
        validation=task.tensors(task.validation),
        dropout=settings.network.dropout,
        objective=Objective.over(
            config,
            len(train.length_N),
            balancing=balancing,
            alpha=alpha,
            averaging=settings.averaging,
            mode=task.schema.treatments.mode,
        ),
        start_R=start_R,
    )
