"""What keeps treatments out of a representation, and averaged weights (spec NET-13, NET-15).

Domain confusion is a game of two optimisers over disjoint parameters: everything but the treatment network makes
treatments unguessable, the treatment network guesses. Adam works on each number alone, so one Adam on the sum of both
losses is both optimisers, provided that each loss sees the other's parameters as constants. Both see the parameters
before the step.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from costar_cli.config.models import TrainingConfig
from costar_cli.data import TreatmentMode
from costar_cli.methods.shared.balancing import (
    masked_mean,
    reverse_gradient,
    squared_error,
    treatment_cross_entropy,
    unknown_treatment,
)
from costar_cli.methods.shared.members import Params, call_members, submodule
from costar_cli.methods.shared.stage import AlphaSchedule
from costar_cli.methods.shared.windows import Windows
from costar_cli.methods.transformers.settings import Balancing
from costar_cli.methods.transformers.units import BalancedNetwork

TREATMENT = "head.treatment."  # the treatment network, W2 and W3
MEAN = "mean."


class Predicted(NamedTuple):
    """What a network makes of its inputs.

    Outcomes `[R,B,T,Y]`; where there is balancing, the logits `[R,B,T,A]` of the treatment network's guesses; in
    domain confusion those that the representation shall spoil.
    """

    outcome_RBTY: Tensor
    guess_RBTA: Tensor | None = None
    spoiled_RBTA: Tensor | None = None


@dataclass(frozen=True)
class Averages:
    """Averaged weights of each member, in the stage's state beside the number of updates.

    A step sees the average of the parameters up to the step before; the decay warms up as `(1 + u) / (10 + u)`,
    u counting the updates averaged. Without decay the average is the parameters themselves.
    """

    decay: float

    def initial(self, params: Params) -> Params:
        """Return the state of a fresh member."""
        first = next(iter(params.values()))
        means = {MEAN + name: value.clone() for name, value in params.items()} if self.decay else {}
        return {"updates": torch.zeros((), dtype=first.dtype), **means}

    @torch.no_grad()
    def current(self, params_R: Params, state_R: Params) -> Params:
        """Return the averages, the parameters as they are now included."""
        if not self.decay:
            return {name: value.detach() for name, value in params_R.items()}
        updates_R = state_R["updates"]
        share_R = 1 - ((1 + updates_R) / (10 + updates_R)).clamp(max=self.decay)
        means = submodule(state_R, MEAN)
        return {
            name: torch.lerp(means[name], value.detach(), share_R.view(-1, *[1] * (value.ndim - 1)))
            for name, value in params_R.items()
        }

    def after(self, state_R: Params, averages_R: Params) -> Params:
        """Return the state after a step that saw these averages."""
        means = {MEAN + name: value for name, value in averages_R.items()} if self.decay else {}
        return {**state_R, "updates": state_R["updates"] + 1, **means}


@dataclass(frozen=True)
class BalancingObjective:
    """Outcomes predicted, treatments unguessable."""

    balancing: Balancing
    schedule: AlphaSchedule
    averages: Averages
    mode: TreatmentMode

    @classmethod
    def over(
        cls,
        config: TrainingConfig,
        n_rows: int,
        *,
        balancing: Balancing,
        alpha: float,
        averaging: float,
        mode: TreatmentMode,
    ) -> Self:
        """Return the objective of a training on some rows, complete passes."""
        schedule = AlphaSchedule.over(alpha, config, n_rows, drop_last=False)
        return cls(balancing, schedule, Averages(averaging), mode)

    def predict(
        self,
        module: BalancedNetwork,
        params_R: Params,
        averages_R: Params,
        inputs_R: tuple[Tensor, ...],
        masks_R: Params,
        alpha_R: Tensor,
    ) -> tuple[Tensor, ...]:
        """Return the fields of `Predicted` in training.

        Args:
            module: a balanced network.
            params_R: parameters as they are.
            averages_R: their averages, constants.
            inputs_R: what the network reads.
            masks_R: dropout masks, the same for both.
            alpha_R: weight of balancing.
        """
        representation, outcome = predict_members(module, params_R, inputs_R, masks_R)
        if self.balancing == "none":
            return (outcome,)
        treatment = module.head.treatment
        guessing, fixed = (submodule(params, TREATMENT) for params in (params_R, averages_R))
        if self.balancing == "reversal":
            reversed_ = reverse_gradient(representation, alpha_R.view(-1, *[1] * (representation.ndim - 1)))
            return outcome, call_members(treatment, guessing, reversed_)
        with torch.no_grad():
            seen, _ = predict_members(module, averages_R, inputs_R, masks_R)
        return outcome, call_members(treatment, guessing, seen), call_members(treatment, fixed, representation)

    def loss(self, predicted: Predicted, windows: Windows, alpha_R: Tensor) -> Tensor:
        """Return each member's loss `[R]` in training."""
        loss_R = self.error(predicted, windows)
        if predicted.guess_RBTA is None:
            return loss_R
        guess_R = self._cross_entropy(predicted.guess_RBTA, windows.treatment, windows)
        if predicted.spoiled_RBTA is None:
            return loss_R + guess_R
        unknown = unknown_treatment(predicted.spoiled_RBTA, self.mode)
        return loss_R + alpha_R * (guess_R + self._cross_entropy(predicted.spoiled_RBTA, unknown, windows))

    def error(self, predicted: Predicted, windows: Windows) -> Tensor:
        """Return each member's mean squared error `[R]`."""
        error_RBT = squared_error(predicted.outcome_RBTY, windows.target, windows.observed)
        return masked_mean(error_RBT, windows.weight)

    def _cross_entropy(self, logits_RBTA: Tensor, treatment_RBTA: Tensor, windows: Windows) -> Tensor:
        return masked_mean(treatment_cross_entropy(logits_RBTA, treatment_RBTA, self.mode), windows.active)


def predict_members(
    module: BalancedNetwork, params_R: Params, inputs_R: tuple[Tensor, ...], masks_R: Params
) -> tuple[Tensor, Tensor]:
    """Return representations and outcomes of balanced networks; without masks there is no dropout."""
    used = {name: value for name, value in params_R.items() if not name.startswith(TREATMENT)}
    representation, outcome = call_members(module, used, *inputs_R, masks_R)
    return representation, outcome
