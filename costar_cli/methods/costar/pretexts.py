"""What an encoder can learn of histories without labels, beside contrast (spec COSTAR-28 to 30)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import torch
from torch import Tensor, nn

from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.shared.balancing import masked_mean, sum_of_observed
from costar_cli.methods.shared.members import Dims, Params, call_members
from costar_cli.methods.shared.outcome_forms import OutcomeForm
from costar_cli.methods.shared.outcome_scale import OutcomeScale
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.windows import SubjectRows, Windows

CHUNK = 1024  # subjects whose steps are guessed at once


def head(n_in: int, width: int, n_out: int) -> nn.Module:
    """Return a network that reads representations and is thrown away after pretraining."""
    return nn.Sequential(nn.Linear(n_in, 2 * width), nn.ReLU(), nn.Linear(2 * width, n_out))


class Pretext(Protocol):
    """A task whose answers are in the histories themselves. `guess` is its loss for an encoder that knows nothing."""

    name: ClassVar[str]

    @property
    def guess(self) -> float:
        """Return what the loss is divided by."""

    def head(self, width: int) -> nn.Module:
        """Return a fresh network that answers from representations of that width."""

    def seen(self, history_RBTS: Tensor, streams: Sequence[Stream]) -> Tensor:
        """Return what the encoder may see of histories."""

    def loss(
        self, module: nn.Module, params_R: Params, z_RBTD: Tensor, asked: tuple[Tensor, Tensor], series: Windows
    ) -> Tensor:
        """Return each member's loss `[R]`.

        Args:
            module: of `head`.
            params_R: its parameters.
            z_RBTD: representations of what was seen.
            asked: the histories, and what was seen of them.
            series: their positions in the panel.
        """


@dataclass(frozen=True)
class Masked:
    """Fill in what was hidden of a history: whole steps, and variables of a subject at all steps (spec COSTAR-28).

    Attributes:
        mean_S, sd_S: of the scalars of the histories to learn from.
        variable_S: the variable that each scalar belongs to; all treatments are one.
        n_variables: how many there are.
        share: of steps, and of variables, that are hidden.
    """

    mean_S: Tensor
    sd_S: Tensor
    variable_S: Tensor
    n_variables: int
    share: float

    name: ClassVar[str] = "masked"
    guess: ClassVar[float] = 1.0

    @classmethod
    def of(cls, history_NTS: Tensor, panel: PanelTensors, variables: Sequence[int], share: float) -> Self:
        """Take means and sds of the positions that have a next step."""
        scalars_MS = history_NTS[panel.active_NT > 0]
        sd_S = scalars_MS.std(dim=0, correction=0)
        return cls(
            scalars_MS.mean(dim=0),
            torch.where(sd_S > 0, sd_S, 1.0),
            torch.tensor(variables, device=history_NTS.device),
            max(variables) + 1,
            share,
        )

    def head(self, width: int) -> nn.Module:
        """Return a fresh network that tells all scalars of a step."""
        return head(width, width, len(self.mean_S))

    def seen(self, history_RBTS: Tensor, streams: Sequence[Stream]) -> Tensor:
        """Return histories with the mean in place of what is hidden."""
        batch, steps = history_RBTS.shape[1:3]
        shapes = (batch, steps, 1), (batch, 1, self.n_variables)
        drawn = [[stream.uniform(*shape, device=history_RBTS.device) for shape in shapes] for stream in streams]
        step_RBT1, variable_RB1V = (torch.stack(u) < self.share for u in zip(*drawn, strict=True))
        return torch.where(step_RBT1 | variable_RB1V[..., self.variable_S], self.mean_S, history_RBTS)

    def loss(
        self, module: nn.Module, params_R: Params, z_RBTD: Tensor, asked: tuple[Tensor, Tensor], series: Windows
    ) -> Tensor:
        """Return the mean squared error of what was hidden, in sds."""
        true_RBTS, seen_RBTS = asked
        told_RBTS: Tensor = call_members(module, params_R, z_RBTD)
        error_RBTS = (told_RBTS - (true_RBTS - self.mean_S) / self.sd_S).square()
        return masked_mean(error_RBTS, (true_RBTS != seen_RBTS) * series.active[..., None])


@dataclass(frozen=True)
class NextStep:
    """Predict the outcomes, in the form in which they grow, and the covariates after a treatment (spec COSTAR-29).

    Attributes:
        scale: of the outcomes.
        n_covariates, n_treatments: of the panel.
        guess: the error of "nothing changes".
    """

    scale: OutcomeScale
    n_covariates: int
    n_treatments: int
    guess: float = 1.0

    name: ClassVar[str] = "next_step"

    @classmethod
    def of(cls, dims: Dims, forms: Sequence[OutcomeForm], panel: PanelTensors) -> Self:
        """Take the error of "nothing changes" over a panel."""
        scale: OutcomeScale = OutcomeScale(forms).to(panel.y_NTY)
        own, rows = cls(scale, dims[0], dims[1]), SubjectRows(panel)
        total = weight = 0.0
        for row_B in torch.split(torch.arange(len(rows), device=panel.y_NTY.device), CHUNK):
            series = rows.batch(row_B[None], row_B[:1] * 0)
            nothing = panel.y_NTY.new_zeros(*series.at.shape, dims[2] + dims[0])
            total += float((own._error(nothing, series) * series.weight).sum())
            weight += float(series.weight.sum())
        return cls(scale, dims[0], dims[1], total / weight if total > 0 else 1.0)

    def head(self, width: int) -> nn.Module:
        """Return a fresh network that tells changes from a representation and a treatment."""
        return head(width + self.n_treatments, width, len(self.scale.forms) + self.n_covariates)

    def seen(self, history_RBTS: Tensor, streams: Sequence[Stream]) -> Tensor:
        """Return the histories: all of them are before the step that is asked about."""
        return history_RBTS

    def loss(
        self, module: nn.Module, params_R: Params, z_RBTD: Tensor, asked: tuple[Tensor, Tensor], series: Windows
    ) -> Tensor:
        """Return the mean error, each outcome's in the scale of its origin."""
        told: Tensor = call_members(module, params_R, torch.cat([z_RBTD, series.treatment], dim=-1))
        return masked_mean(self._error(told, series), series.weight)

    def _error(self, told_RBTO: Tensor, series: Windows) -> Tensor:
        """Return errors `[R,B,T]` of responses of outcomes and changes of covariates, side by side."""
        scale, y = self.scale, series.column("outcomes")
        response, change = told_RBTO[..., : y.shape[-1]], told_RBTO[..., y.shape[-1] :]
        u, unit = scale.in_sd(y), scale.units(y)
        after = scale.standardised(scale.after(u, response, unit, scale.bounds(u)))
        error = sum_of_observed(scale.penalty(after, series.target, scale.error_unit(y, unit)), series.observed)
        if self.n_covariates:
            error = error + series.error_of_covariates(series.column("covariates") + change)
        return error
