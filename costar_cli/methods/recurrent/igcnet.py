"""IGC-Net: iterated g-computation by regression, with one recurrent network (Hess et al. 2026; spec IGC-1 to 5).

A head for each step of the horizon reads what is known at the origin, and the plan up to that step. The first one
learns outcomes. Each later one learns what the head before it expects one step later, with the history observed by then
and a plan that is drawn at random: none takes what treatments react to for what they do.

Letters beside the project's: `J` steps of a plan after the first, `D` width of what is known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from costar_cli.config.models import FinetuneConfig
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.base import Fit, FitTask, Fitted, StepLoss
from costar_cli.methods.recurrent.lstm import Masks, draw_masks
from costar_cli.methods.recurrent.model import Networks, QueryBatch, RecurrentModel
from costar_cli.methods.recurrent.network import Make, Passed, RecurrentNetwork, over_subjects
from costar_cli.methods.recurrent.settings import IgcNetConfig
from costar_cli.methods.shared.balancing import masked_mean, squared_error
from costar_cli.methods.shared.members import Dims, Params, with_prefix
from costar_cli.methods.shared.stage import NetworkStage, NetworkTraining, one_stage
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.trained import ReadsModels
from costar_cli.methods.shared.windows import Column, SubjectRows, Windows

PLANS: Final = 16  # drawn for each row of a batch
READS: Final[tuple[Column, ...]] = ("previous", "covariates", "outcomes", "statics")
CONSTANT: Final = 0.5  # share of the drawn plans that repeat one treatment, as plans of users often do


class PlanHeads(nn.Module):
    """For each step of a plan the sum of a network of `r = ELU(W z)` and a linear map (spec IGC-1).

    Args:
        sequence: width of the outputs of the LSTM.
        n_inputs: width of what the LSTM reads at a step; with its outputs that is `z`.
        representation: width of `r`.
        hidden: hidden units of each network.
        n_treatments: da.
        n_outcomes: dy.
        horizon: steps of the longest plan.
    """

    def __init__(
        self,
        sequence: int,
        n_inputs: int,
        representation: int,
        hidden: int,
        *,
        n_treatments: int,
        n_outcomes: int,
        horizon: int,
    ) -> None:
        super().__init__()
        self.n_inputs = n_inputs
        self.representation = nn.Linear(sequence + n_inputs, representation)
        self.networks, self.linear = nn.ModuleList(), nn.ModuleList()
        for step in range(horizon):
            n_plan = (step + 1) * n_treatments
            self.networks.append(
                nn.Sequential(nn.Linear(representation + n_plan, hidden), nn.ELU(), nn.Linear(hidden, n_outcomes))
            )
            # Without it the published heads find 91 to 93 % of the known effect of five steps, and 99 % of that of one:
            # a history that is not quite read confounds every regression, one after another.
            self.linear.append(nn.Linear(n_inputs + n_plan, n_outcomes))

    def forward(self, known: Tensor, plan: Tensor) -> Tensor:
        """Return the outcomes `[...,H,Y]` after each step of plans `[...,H,A]`, of what is known, `z [...,D]`."""
        represented, read = functional.elu(self.representation(known)), known[..., -self.n_inputs :]
        outcomes = []
        for step in range(plan.shape[-2]):
            so_far = plan[..., : step + 1, :].flatten(-2)
            curved = self.networks[step](torch.cat([represented, so_far], dim=-1))
            outcomes.append(curved + self.linear[step](torch.cat([read, so_far], dim=-1)))
        return torch.stack(outcomes, dim=-2)


def igc_network(dims: Dims, config: IgcNetConfig, horizon: int) -> RecurrentNetwork:
    """Return a network: `[a_{t-1}, x_t, y_t, v]` and a plan from t on to the outcomes after each of its steps."""
    shape = config.network
    head = PlanHeads(
        shape.width,
        sum(dims),
        shape.representation,
        shape.hidden,
        n_treatments=dims[1],
        n_outcomes=dims[2],
        horizon=horizon,
    )
    return RecurrentNetwork(dims, READS, width=shape.width, layers=shape.layers, head=head)


class IgcStage(NetworkStage[RecurrentNetwork]):
    """Squared errors of all heads; the last weights are kept, and the first head alone ends training (spec IGC-4).

    What later heads learn from moves with the weights: their error is smallest where they know nothing yet.

    Args:
        training: the network and its rows.
        horizon: number of heads.
    """

    keep = "last"

    def __init__(self, training: NetworkTraining[RecurrentNetwork], horizon: int) -> None:
        super().__init__(training)
        self._horizon = horizon

    def loss(self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> StepLoss:
        """Return each member's mean over heads of their mean squared errors."""
        batch = self.train.batch(rows_RB, state_R["member"].long()).time_first()
        masks = draw_masks(self.network.lstm, self.dropout, streams, rows_RB.shape[1], batch.panel.y_NTY)
        later = drawn_plans(batch, self._horizon - 1, streams)
        known = outputs_and_inputs(self.network, params_R, batch, masks)
        plan = torch.cat([batch.treatment[..., None, :], later], dim=-2)
        predicted, weight = self.network.call_head(params_R, known, plan), self.weigh(batch)
        error = squared_error(predicted[..., 0, :], batch.target, batch.observed)
        losses = [masked_mean(weight * error, batch.weight)]
        if self._horizon > 1:
            with torch.no_grad():
                after = known if masks is None else outputs_and_inputs(self.network, params_R, batch)
                expected = self.pseudo_outcomes(params_R, batch, after, later)
            error = weight[:, :-1, :, None] * squared_error(predicted[:, :-1, :, 1:], expected)
            left = batch.panel.length_N[batch.subject_RB][:, None] - 1 - batch.at[:, :-1]
            # Heads learn as far as outcomes were observed: beyond, the one before them has not learned.
            losses += [masked_mean(error[..., step], (left > step + 1).to(error)) for step in range(self._horizon - 1)]
        return torch.stack(losses).mean(dim=0), state_R | {"updates": state_R["updates"] + 1}

    def weigh(self, batch: Windows) -> Tensor:
        """Return how much the errors at every position count, `[R,T,B]`: one."""
        return torch.ones_like(batch.active)

    def pseudo_outcomes(self, params_R: Params, batch: Windows, known: Tensor, later: Tensor) -> Tensor:
        """Return what heads 2 to H learn from at all positions but the last, `[R,T-1,B,J,Y]` (spec IGC-2).

        Args:
            params_R: parameters of the members.
            batch: the rows, time first.
            known: what is known at every position, `[R,T,B,D]`, without dropout.
            later: the plans after the treatment of the position, `[R,T,B,J,A]`.
        """
        expected: Tensor = self.network.call_head(params_R, known[:, 1:], later[:, :-1])
        return expected

    @torch.no_grad()
    def validation_loss(
        self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> tuple[Tensor, Tensor]:
        """Return the first head's `(error, weight)` of a validation batch."""
        batch = self.validation.batch(rows_RB, state_R["member"].long()).time_first()
        known = outputs_and_inputs(self.network, params_R, batch)
        predicted = self.network.call_head(params_R, known, batch.treatment[..., None, :])[..., 0, :]
        error = squared_error(predicted, batch.target, batch.observed)
        return masked_mean(error, batch.weight), batch.weight.flatten(1).sum(dim=1)


def outputs_and_inputs(network: RecurrentNetwork, params_R: Params, batch: Windows, masks: Masks = None) -> Tensor:
    """Return what is known at every position, `[R,T,B,D]`: the outputs of the LSTM, then what it read there."""
    return torch.cat([network.run_members(params_R, batch, masks), network.inputs(batch.column)], dim=-1)


def known_in(passed: Passed) -> Tensor:
    """Return the same of one member's pass, `[T,B,D]`."""
    return torch.cat([passed.outputs_TBD, passed.network.inputs(passed.batch.column)[0]], dim=-1)


def drawn_plans(batch: Windows, steps: int, streams: Sequence[Stream]) -> Tensor:
    """Return plans `[R,T,B,J,A]` of treatments that random subjects of the batch had at random times (spec IGC-3).

    Rows have some plans each, in turn at their positions: more padding draws nothing else.
    """
    n_rows, device, drawn = batch.subject_RB.shape[1], batch.at.device, []
    for subject_B, stream in zip(batch.subject_RB, streams, strict=True):
        whose, when = stream.uniform(2, n_rows, PLANS, steps, device=device)
        is_constant = stream.uniform(n_rows, PLANS, 1, device=device) < CONSTANT
        whose, when = (torch.where(is_constant, values[..., :1], values) for values in (whose, when))
        subject = subject_B[(whose * n_rows).long().clamp(max=n_rows - 1)]
        n_given = (batch.panel.length_N[subject] - 1).clamp(min=1)
        drawn.append(batch.panel.a_NTA[subject, torch.minimum((when * n_given).long(), n_given - 1)].transpose(0, 1))
    return torch.stack(drawn)[:, torch.arange(batch.at.shape[1], device=device) % PLANS]


@dataclass(frozen=True, kw_only=True)
class IgcNetModel(RecurrentModel):
    """A fitted IGC-Net; what it knows of a history is the output of its LSTM, and what that read last."""

    @property
    def stepwise(self) -> bool:
        """Return that every step is predicted from the origin."""
        return False

    def makes(self) -> Mapping[str, Make]:
        """Return the network."""
        return {"network": partial(igc_network, self.schema.dims, self.settings, self.horizon)}

    def encode_history(self, network: RecurrentNetwork, panel: PanelTensors) -> Tensor:
        """Return what is known at every step."""
        return over_subjects(network, panel, panel.y_NTY.shape[1], known_in)

    def predict(self, networks: Networks, asked: QueryBatch) -> Tensor:
        """Return what each head expects under the plan up to its step."""
        outcomes: Tensor = networks["network"].head(asked.known_QD, asked.plan_QHA)
        return outcomes


@dataclass(frozen=True)
class IgcNetMethod(ReadsModels):
    """Iterated g-computation by regression with a recurrent network (spec IGC-1 to 5)."""

    model = IgcNetModel

    name: str = "igcnet"

    def fit(self, task: FitTask) -> Fit:
        """Train the network, all heads at once.

        Raises:
            MismatchError: what to start from is no IGC-Net of enough members.
            UsageError: the settings give the network a different shape than what to start from.
        """
        config = task.settings_of(IgcNetConfig)
        start = IgcNetModel.start_of(task, self.name, config)
        training = igc_training(task, self.name, config, task.config, start)

        def complete(params_R: Params, _: Sequence[int]) -> Fitted:
            return Fitted(with_prefix(params_R, "network"))

        # Errors on observed windows would choose heads that take reactions of treatment for its effect.
        return (yield from one_stage(task, IgcStage(training, task.horizon), complete, select_on="own-loss"))


IGCNET = IgcNetMethod()


def igc_training(
    task: FitTask, method: str, config: IgcNetConfig, shared: FinetuneConfig, start: IgcNetModel | None
) -> NetworkTraining[RecurrentNetwork]:
    """Return the network of a method, and what it learns from; the arguments are as in `encoder_then_decoder`."""
    return NetworkTraining(
        name=task.stage_name(f"{method} network"),
        make=partial(igc_network, task.schema.dims, config, task.horizon),
        network=config.network,
        config=config.network.training(shared),
        train=SubjectRows(task.tensors(task.train)),
        validation=SubjectRows(task.tensors(task.validation)),
        start_R=start.params_of("network") if start else None,
    )
