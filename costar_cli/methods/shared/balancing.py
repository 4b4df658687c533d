"""Balanced representations: the head of CRN, EDCT and CT, and its losses (spec NET-10 to 13)."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from costar_cli.data import TreatmentMode

LEAST_WEIGHT = 1e-6  # of what a mean is taken over: less than one outcome of very many


class Balanced(NamedTuple):
    """What the head says of a position: its representation, the treatment it guesses, the outcome it predicts."""

    representation: Tensor
    treatment_logits: Tensor
    outcomes: Tensor


class Balancer(nn.Module):
    """`br = ELU(W1 o)`, and treatment logits from `br` (spec NET-10).

    The parameters of the treatment network, W2 and W3, are those named `treatment.*`.

    Args:
        sequence: width of the outputs `o` of the sequence model.
        representation: width of `br`.
        hidden: hidden units.
        n_treatments: da.
    """

    def __init__(self, sequence: int, representation: int, hidden: int, *, n_treatments: int) -> None:
        super().__init__()
        self.representation = nn.Linear(sequence, representation)
        self.treatment = nn.Sequential(nn.Linear(representation, hidden), nn.ELU(), nn.Linear(hidden, n_treatments))

    def represent(self, sequence: Tensor) -> Tensor:
        """Return the representations `[...,r]` of outputs of the sequence model `[...,s]`."""
        return functional.elu(self.representation(sequence))

    def treatment_logits(self, representation: Tensor, alpha: Tensor | float | None = None) -> Tensor:
        """Return logits `[...,da]` of the treatment; `alpha` reverses the gradient to the representation."""
        seen = representation if alpha is None else reverse_gradient(representation, alpha)
        return self.treatment(seen)  # type: ignore[no-any-return]

    def forward(self, sequence: Tensor, *_: Any) -> Any:  # noqa: ANN401 - of more arguments in `BalancingHead`
        """Return the representations."""
        return self.represent(sequence)


class BalancingHead(Balancer):
    """The same, with outcomes from `br` and the treatment (spec NET-10); `n_outcomes` is dy."""

    def __init__(self, sequence: int, representation: int, hidden: int, *, n_treatments: int, n_outcomes: int) -> None:
        super().__init__(sequence, representation, hidden, n_treatments=n_treatments)
        self.outcome = nn.Sequential(
            nn.Linear(representation + n_treatments, hidden), nn.ELU(), nn.Linear(hidden, n_outcomes)
        )

    def outcomes(self, representation: Tensor, treatment: Tensor) -> Tensor:
        """Return scaled outcomes `[...,dy]` after the treatment `[...,da]`."""
        return self.outcome(torch.cat([representation, treatment], dim=-1))  # type: ignore[no-any-return]

    def forward(self, sequence: Tensor, treatment: Tensor, alpha: Tensor | float | None = None) -> Balanced:
        """Return all three for outputs `[...,s]` and treatments `[...,da]`."""
        representation = self.represent(sequence)
        logits = self.treatment_logits(representation, alpha)
        return Balanced(representation, logits, self.outcomes(representation, treatment))


def reverse_gradient(values: Tensor, alpha: Tensor | float) -> Tensor:
    """Return `values` themselves, whose gradient is `-alpha` times the one that arrives."""
    fixed = values.detach()
    return fixed - alpha * (values - fixed)


def squared_error(predicted: Tensor, true: Tensor, observed: Tensor | None = None) -> Tensor:
    """Return squared errors `[...]`, summed over the dy outcomes of the last axis.

    Where some were not observed, `observed [...,dy]` of zeros and ones, it is dy times the mean over the others, and 0
    if there are none. With the weights of `target_weight`, each observed outcome counts the same.
    """
    return sum_of_observed((predicted - true).square(), observed)


def sum_of_observed(values: Tensor, observed: Tensor | None) -> Tensor:
    """Return sums `[...]` over the dy outcomes of the last axis, where some may not have been observed.

    Without all of them it is dy times the mean over those that were, and 0 if there are none. Values must be finite.
    """
    if observed is None:
        return values.sum(dim=-1)
    share = observed.mean(dim=-1)
    return (values * observed).sum(dim=-1) / torch.where(share > 0, share, 1.0)


def target_weight(active: Tensor, observed: Tensor | None) -> Tensor:
    """Return how much each position's outcomes count, `[...]`: the share of them that was observed, 0 in the padding.

    Args:
        active: 1 where there are outcomes, `[...]`.
        observed: 1 where one was observed, `[...,dy]`; None for all of them.
    """
    return active if observed is None else active * observed.mean(dim=-1)


def treatment_cross_entropy(logits: Tensor, treatment: Tensor, mode: TreatmentMode) -> Tensor:
    """Return the cross-entropy `[...]` of guessed treatments `[...,da]`.

    Args:
        logits: of the treatment network.
        treatment: the treatment given, or any distribution over treatments.
        mode: `multiclass` for one class out of da; `multilabel` for the mean over da independent binaries.
    """
    if mode == "multiclass":
        log_share = functional.log_softmax(logits.movedim(-1, 0), dim=0)  # ten times faster for few classes on a CPU
        return -(treatment * log_share.movedim(0, -1)).sum(dim=-1)
    return functional.binary_cross_entropy_with_logits(logits, treatment, reduction="none").mean(dim=-1)


def unknown_treatment(like: Tensor, mode: TreatmentMode) -> Tensor:
    """Return the target of a treatment network that must not know: `1/da` of each class, or even odds."""
    return torch.full_like(like, 1 / like.shape[-1] if mode == "multiclass" else 0.5)


def masked_mean(values_R: Tensor, weight_R: Tensor) -> Tensor:
    """Return each member's mean `[R]` over its positions; both `[R,...]`, weights from 0 to 1 (a mask, most often).

    Values at positions of weight 0 must be finite. A member of nothing but such positions gets 0.
    """
    total_R = (values_R * weight_R).flatten(1).sum(dim=1)
    return total_R / weight_R.flatten(1).sum(dim=1).clamp(min=LEAST_WEIGHT)
