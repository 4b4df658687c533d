"""Causal CPC: contrastive predictive coding of histories, then outcomes (Bouchattaoui et al. 2024; spec CPC-1 to 6).

An encoder first learns contexts that tell a subject's own future, and its own later half, from those of others. Then it
and a decoder learn outcomes, while what the decoder's representations tell of treatments is bounded.

Letters beside the project's: `K` steps ahead, `J` origins of a series, `M` origins of a batch, `F` local features,
`D` width of a context.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from costar_cli.data import TreatmentMode
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.base import Fit, FitTask, Fitted, StepLoss
from costar_cli.methods.recurrent.lstm import Masks, draw_masks
from costar_cli.methods.recurrent.model import Networks, QueryBatch, RecurrentModel
from costar_cli.methods.recurrent.network import Make, RecurrentNetwork, over_subjects
from costar_cli.methods.recurrent.settings import CausalCpcConfig
from costar_cli.methods.shared.balancing import BalancingHead, masked_mean, squared_error, treatment_cross_entropy
from costar_cli.methods.shared.members import Dims, Params, call_members, submodule, with_prefix
from costar_cli.methods.shared.stage import NetworkStage, NetworkTraining, one_stage, stage_shares
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.trained import ReadsModels
from costar_cli.methods.shared.windows import Column, SubjectRows, Windows

READS: Final[tuple[Column, ...]] = ("previous", "covariates", "outcomes", "statics")
SPREAD: Final = (0.754878, 0.569840)  # whose multiples modulo 1 fill a square evenly: where validation looks
GUESS: Final = "head.balanced.treatment."  # the network that guesses treatments


class Contrast(nn.Module):
    """Linear maps of contexts to what they are compared with (spec CPC-2, CPC-3).

    Args:
        width: D.
        features: F.
        steps: K.
    """

    def __init__(self, width: int, features: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.futures = nn.Linear(width, steps * features, bias=False)
        self.halves = nn.Linear(width, width, bias=False)

    def forward(self, context: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features expected after each of K steps, `[K,B,F]`, and the later context expected, `[B,D]`."""
        return self.futures(context).unflatten(-1, (self.steps, -1)).movedim(-2, 0), self.halves(past)


class Decoder(nn.Module):
    """A gated recurrent unit that starts from a context and reads what it predicted itself (spec CPC-4).

    Args:
        width: D.
        representation: width of the representations that outcomes and guesses of treatments are made of.
        hidden: hidden units of either network.
        dims: numbers of covariates, treatments, outcomes and statics.
    """

    def __init__(self, width: int, representation: int, hidden: int, dims: Dims) -> None:
        super().__init__()
        _, da, dy, dv = dims
        self.cell = nn.GRUCell(da + dy + dv, width)
        self.balanced = BalancingHead(width, representation, hidden, n_treatments=da, n_outcomes=dy)

    def forward(self, context: Tensor, outcome: Tensor, statics: Tensor, plan: Tensor) -> tuple[Tensor, Tensor]:
        """Return outcomes `[M,H,Y]` and representations `[M,H,r]` under plans `[M,H,A]` from origins with `y_t`."""
        treatments, cell, width = plan.unbind(-2), self.cell, self.cell.hidden_size
        # The context knows the treatment before the origin: the first step reads none.
        state, previous, outcomes, representations = context, torch.zeros_like(treatments[0]), [], []
        for treatment in treatments:
            # Not by the cell's own forward: PyTorch's operator has no batching rule for members.
            inputs = torch.cat([previous, outcome, statics], dim=-1)
            of_inputs = functional.linear(inputs, cell.weight_ih, cell.bias_ih)
            of_state = functional.linear(state, cell.weight_hh, cell.bias_hh)
            reset, keep = torch.sigmoid(of_inputs[..., : 2 * width] + of_state[..., : 2 * width]).chunk(2, dim=-1)
            candidate = torch.tanh(of_inputs[..., 2 * width :] + reset * of_state[..., 2 * width :])
            state = torch.lerp(candidate, state, keep)
            representations.append(self.balanced.represent(state))
            outcome, previous = self.balanced.outcomes(representations[-1], treatment), treatment
            outcomes.append(outcome)
        return torch.stack(outcomes, dim=-2), torch.stack(representations, dim=-2)


def contrast_network(dims: Dims, config: CausalCpcConfig, steps: int) -> RecurrentNetwork:
    """Return the encoder with the maps of its contrastive training, `steps` ahead."""
    shape = config.encoder
    return _encoder(dims, config, Contrast(shape.width, shape.features, steps))


def outcome_network(dims: Dims, config: CausalCpcConfig) -> RecurrentNetwork:
    """Return the encoder with the decoder."""
    shape = config.decoder
    return _encoder(dims, config, Decoder(config.encoder.width, shape.representation, shape.hidden, dims))


def _encoder(dims: Dims, config: CausalCpcConfig, head: nn.Module) -> RecurrentNetwork:
    shape = config.encoder
    return RecurrentNetwork(dims, READS, width=shape.width, layers=shape.layers, head=head, features=shape.features)


def info_nce(queries: Tensor, keys: Tensor, active: Tensor) -> Tensor:
    """Return the mean cross-entropy `[R]` of finding each query's own key among those of all active rows.

    Gradients flow through queries and keys; a batch has few rows, so that all logits are held.

    Args:
        queries: `[R,...,B,F]`.
        keys: `[R,...,B,F]`.
        active: which rows count, `[R,...,B]` of zeros and ones.
    """
    logits = (queries @ keys.transpose(-1, -2)).masked_fill(active[..., None, :] == 0, -1e9)
    loss = logits.logsumexp(dim=-1) - logits.diagonal(dim1=-2, dim2=-1)
    return masked_mean(torch.where(active > 0, loss, 0.0), active)


class ContrastStage(NetworkStage[RecurrentNetwork]):
    """Contexts find the futures of their subjects among those of others, and halves of histories each other.

    (spec CPC-2, CPC-3)
    """

    def loss(self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> StepLoss:
        """Return each member's sum of both losses, at random steps of its rows."""
        batch = self.train.batch(rows_RB, state_R["member"].long()).time_first()
        masks = draw_masks(self.network.lstm, self.dropout, streams, rows_RB.shape[1], batch.panel.y_NTY)
        drawn = [stream.uniform(2, rows_RB.shape[1], device=rows_RB.device) for stream in streams]
        end_RB, cut_RB = torch.stack(drawn, dim=1)
        loss_R = self._contrast(params_R, batch, end_RB, cut_RB, masks)
        return loss_R, state_R | {"updates": state_R["updates"] + 1}

    @torch.no_grad()
    def validation_loss(
        self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> tuple[Tensor, Tensor]:
        """Return `(loss, weight)` of a validation batch, at steps that are the same at every epoch."""
        batch = self.validation.batch(rows_RB, state_R["member"].long()).time_first()
        end_RB, cut_RB = (batch.subject_RB * share % 1 for share in SPREAD)
        return self._contrast(params_R, batch, end_RB, cut_RB), batch.active.flatten(1).sum(dim=1)

    def _contrast(
        self, params_R: Params, batch: Windows, end_RB: Tensor, cut_RB: Tensor, masks: Masks = None
    ) -> Tensor:
        """Return the losses `[R]` of histories that end at some share of the series, cut at some share of these."""
        network, last = self.network, batch.at.shape[1] - 1
        n_active_RB = batch.panel.length_N[batch.subject_RB] - 1
        at_RB = (end_RB * (n_active_RB - 1)).long().clamp(min=0)  # at least one step is left to foresee
        start_RB = (1 + (cut_RB * at_RB).long()).minimum(at_RB)
        context_RTBD = network.run_members(params_R, batch, masks)
        later = replace(batch, at=batch.at + start_RB[:, None])
        later_RTBD = network.run_members(params_R, later, masks)
        past_RBD = _at(context_RTBD, (start_RB - 1).clamp(min=0)[:, None])[:, 0]
        future_RBD = _at(later_RTBD, (at_RB - start_RB)[:, None])[:, 0]
        expected, halves = network.call_head(params_R, _at(context_RTBD, at_RB[:, None])[:, 0], past_RBD)
        ahead_RKB = at_RB[:, None] + torch.arange(1, expected.shape[1] + 1, device=at_RB.device)[:, None]
        features_RKBF = _at(network.read_members(params_R, batch), ahead_RKB.clamp(max=last))
        foreseen = info_nce(expected, features_RKBF, (ahead_RKB < n_active_RB[:, None]).to(expected))
        return foreseen + info_nce(halves, future_RBD, (at_RB > 0).to(halves))


def _at(values_RTBD: Tensor, at_RSB: Tensor) -> Tensor:
    """Return the values at S steps of each row, `[R,S,B,D]`."""
    return values_RTBD.gather(1, at_RSB[..., None].expand(*at_RSB.shape, values_RTBD.shape[-1]))


class OutcomeStage(NetworkStage[RecurrentNetwork]):
    """Squared errors of outcomes from random origins, and treatments that representations do not tell (spec CPC-5).

    Args:
        training: the network and its rows.
        horizon: predicted steps.
        origins: J.
        alpha: weight of the bound.
        mode: how treatments are encoded.
    """

    def __init__(
        self,
        training: NetworkTraining[RecurrentNetwork],
        *,
        horizon: int,
        origins: int,
        alpha: float,
        mode: TreatmentMode,
    ) -> None:
        super().__init__(training)
        self._horizon, self._origins, self._alpha, self._mode = horizon, origins, alpha, mode

    def loss(self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> StepLoss:
        """Return each member's squared error, the bound on what its representations tell, and what guesses lose."""
        batch = self.train.batch(rows_RB, state_R["member"].long()).time_first()
        masks = draw_masks(self.network.lstm, self.dropout, streams, rows_RB.shape[1], batch.panel.y_NTY)
        drawn = [stream.uniform(rows_RB.shape[1], self._origins, device=rows_RB.device) for stream in streams]
        windows, outcomes, representations = self._decoded(params_R, batch, torch.stack(drawn), masks)
        loss_R = masked_mean(squared_error(outcomes, windows.target, windows.observed), windows.weight)
        if self._alpha:
            loss_R = loss_R + self._alpha * self._told(params_R, representations, windows)
        return loss_R, state_R | {"updates": state_R["updates"] + 1}

    @torch.no_grad()
    def validation_loss(
        self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> tuple[Tensor, Tensor]:
        """Return `(error, weight)` of a validation batch, from origins spread evenly over each series."""
        batch = self.validation.batch(rows_RB, state_R["member"].long()).time_first()
        share_J = (torch.arange(self._origins, device=rows_RB.device) + 0.5) / self._origins
        windows, outcomes, _ = self._decoded(params_R, batch, share_J.expand(*rows_RB.shape, -1))
        error_RMH = squared_error(outcomes, windows.target, windows.observed)
        return masked_mean(error_RMH, windows.weight), windows.weight.flatten(1).sum(dim=1)

    def _decoded(
        self, params_R: Params, batch: Windows, share_RBJ: Tensor, masks: Masks = None
    ) -> tuple[Windows, Tensor, Tensor]:
        """Return the steps after origins at some shares of the series, with outcomes and representations there."""
        n_active_RB = (batch.panel.length_N[batch.subject_RB] - 1).clamp(min=1)
        origin_RJB = (share_RBJ * n_active_RB[..., None]).long().minimum(n_active_RB[..., None] - 1).transpose(1, 2)
        context_RMD = _at(self.network.run_members(params_R, batch, masks), origin_RJB).flatten(1, 2)
        subject_RM = batch.subject_RB.repeat(1, self._origins)
        windows = Windows.of(batch.panel, batch.member_R, subject_RM, origin_RJB.flatten(1), self._horizon)
        known = context_RMD, windows.column("outcomes")[:, :, 0], windows.statics_RBV
        outcomes, representations = self.network.call_head(params_R, *known, windows.treatment)
        return windows, outcomes, representations

    def _told(self, params_R: Params, representations: Tensor, windows: Windows) -> Tensor:
        """Return the bound `[R]` on what representations tell of treatments, and the loss of the network that guesses.

        The bound moves the representations alone, the loss the guessing network alone. Cross-entropies are linear in
        the treatment, so that the mean over all treatments of the batch is that of the mean treatment.
        """
        active_RMH, given = windows.active, windows.treatment
        counted = active_RMH[..., None]
        mean = (given * counted).sum(dim=1, keepdim=True) / counted.sum(dim=1, keepdim=True).clamp(min=1)
        guess, of_guess = cast("Decoder", self.network.head).balanced.treatment, submodule(params_R, GUESS)
        fixed = {name: value.detach() for name, value in of_guess.items()}
        logits = call_members(guess, fixed, representations)
        bound = treatment_cross_entropy(logits, mean.expand_as(given), self._mode)
        bound = bound - treatment_cross_entropy(logits, given, self._mode)
        lost = treatment_cross_entropy(call_members(guess, of_guess, representations.detach()), given, self._mode)
        return masked_mean(bound + lost, active_RMH)


@dataclass(frozen=True, kw_only=True)
class CausalCpcModel(RecurrentModel):
    """A fitted Causal CPC; what it knows of a history is the context."""

    def makes(self) -> Mapping[str, Make]:
        """Return the network."""
        return {"network": partial(outcome_network, self.schema.dims, self.settings)}

    def encode_history(self, network: RecurrentNetwork, panel: PanelTensors) -> Tensor:
        """Return the context at every step."""
        return over_subjects(network, panel, panel.y_NTY.shape[1], lambda passed: passed.outputs_TBD)

    def predict(self, networks: Networks, asked: QueryBatch) -> Tensor:
        """Return what the decoder predicts from its own predictions."""
        outcomes: Tensor
        outcomes, _ = networks["network"].head(asked.known_QD, asked.outcomes_QY, asked.statics_QV, asked.plan_QHA)
        return outcomes


@dataclass(frozen=True)
class CausalCpcMethod(ReadsModels):
    """Contrastive predictive coding of histories, then outcomes (spec CPC-1 to 6)."""

    model = CausalCpcModel

    name: str = "causal-cpc"

    def fit(self, task: FitTask) -> Fit:
        """Train the encoder by contrast, then encoder and decoder on outcomes; few-shot trains the latter alone.

        Raises:
            MismatchError: what to start from is no Causal CPC of enough members.
            UsageError: the settings give the network a different shape than what to start from.
        """
        config, dims = task.settings_of(CausalCpcConfig), task.schema.dims
        start = CausalCpcModel.start_of(task, self.name, config)
        train, validation = (SubjectRows(task.tensors(part)) for part in (task.train, task.validation))
        start_R, shared = start.params_of("network") if start else None, task.config
        if start_R is None:
            of_contrast, shared = stage_shares(task.config, 2)  # updates are shared whatever the horizon
            contrast = NetworkTraining(
                name=task.stage_name(f"{self.name} contrast"),
                make=partial(contrast_network, dims, config, task.horizon),
                network=config.encoder,
                config=config.encoder.training(of_contrast),
                train=train,
                validation=validation,
            )
            contrasted_R = yield ContrastStage(contrast)
            start_R = {name: value for name, value in contrasted_R.items() if not name.startswith("head.")}
        outcomes = NetworkTraining(
            name=task.stage_name(f"{self.name} outcomes"),
            make=partial(outcome_network, dims, config),
            network=config.decoder,
            config=config.decoder.training(shared),
            train=train,
            validation=validation,
            start_R=start_R,
        )
        stage = OutcomeStage(
            outcomes,
            horizon=task.horizon,
            origins=config.decoder.origins,
            alpha=config.alpha,
            mode=task.schema.treatments.mode,
        )

        def complete(params_R: Params, _: Sequence[int]) -> Fitted:
            return Fitted(with_prefix(params_R, "network"))

        return (yield from one_stage(task, stage, complete))


CAUSAL_CPC = CausalCpcMethod()
