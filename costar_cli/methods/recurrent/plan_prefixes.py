"""Plans of one history that begin alike, answered once until they part; and an LSTM that steps along such prefixes.

Letters beside the project's: `K` prefixes, one for each history and each distinct beginning of its plans, `P` prefixes
one step before, `S` futures of each, `G` gates, four per unit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from costar_cli.methods.recurrent.lstm import LstmState


@dataclass(frozen=True)
class PlanPrefixes:
    """What the plans of Q queries have in common up to one step.

    `prefix_Q` is the prefix of each query, `query_K` one query of each prefix, and `parent_K` the prefix one step
    before, or the history.
    """

    prefix_Q: Tensor
    query_K: Tensor
    parent_K: Tensor

    @classmethod
    def along(cls, history_QI: Tensor, plan_QHA: Tensor) -> Iterator[Self]:
        """Yield the histories, then the prefixes of every step of the plans.

        Args:
            history_QI: whole numbers that identify each query's history.
            plan_QHA: treatments.
        """
        history = cls._of(_numbered(history_QI), torch.zeros_like(history_QI[:, 0]))
        yield history
        before_Q = history.prefix_Q
        for treatment_QA in plan_QHA.unbind(1):
            prefixes = cls._of(_numbered(treatment_QA), before_Q)
            yield prefixes
            before_Q = prefixes.prefix_Q

    @classmethod
    def _of(cls, part_Q: Tensor, before_Q: Tensor) -> Self:
        """Return the prefixes of queries that were in some prefixes before and go on in some way."""
        key_K, prefix_Q = torch.unique(before_Q * len(part_Q) + part_Q, return_inverse=True)
        query_K = torch.empty_like(key_K).scatter_(0, prefix_Q, torch.arange(len(prefix_Q), device=key_K.device))
        return cls(prefix_Q, query_K, before_Q[query_K])


def _numbered(rows_QI: Tensor) -> Tensor:
    """Return a number for each distinct row."""
    numbers_Q: Tensor = torch.unique(rows_QI, dim=0, return_inverse=True)[1]
    return numbers_Q


class PrefixState(NamedTuple):
    """Hidden state and cell of every layer, each `[K,S,D]`; `S` is 1 where all futures are still the same."""

    hidden: tuple[Tensor, ...]
    cell: tuple[Tensor, ...]

    @classmethod
    def of(cls, state: LstmState) -> Self:
        """Return the state of one member's K histories."""
        return cls(*(tuple(part[0][:, :, None].unbind(0)) for part in state))


class LstmSteps:
    """One member's LSTM, one position of many futures at a time, without dropout.

    Each product is taken once: that of inputs which the futures of a prefix share for all of them, that of the state
    and the other inputs for all prefixes that part there. All four gates then take one pass of one activation.

    Args:
        lstm: parameters.
        shared: columns of the input that the futures of a prefix have in common.
        own: columns that differ.
    """

    def __init__(self, lstm: nn.LSTM, shared: Tensor, own: Tensor) -> None:
        self.width = lstm.hidden_size
        self.layers: list[tuple[Tensor, Tensor, Tensor]] = []  # weights `[I,G]` and `[D,G]`, biases `[G]`
        for k in range(lstm.num_layers):
            bias_G = getattr(lstm, f"bias_ih_l{k}") + getattr(lstm, f"bias_hh_l{k}")
            scale_G = torch.ones_like(bias_G)
            # With `tanh(x) = 2 sigmoid(2x) - 1` the cell's gate needs no other activation than the rest
            scale_G[2 * self.width : 3 * self.width] = 2
            of_input_IG, of_hidden_DG = (getattr(lstm, f"weight_{name}_l{k}").T * scale_G for name in ("ih", "hh"))
            self.layers.append((of_input_IG, of_hidden_DG, bias_G * scale_G))
        weight_IG = self.layers[0][0]
        self.shared_IG, self.own_IG = weight_IG[shared], weight_IG[own]

    def next(self, parent_K: Tensor, shared_KI: Tensor, own_PSJ: Tensor, state: PrefixState) -> PrefixState:
        """Return the state of K prefixes after one more position of the P that they part from.

        Args:
            parent_K: which of P prefixes each comes from.
            shared_KI: shared columns of the input.
            own_PSJ: the others, which prefixes of one parent have in common.
            state: of the parents.
        """
        gates_PSG = own_PSJ @ self.own_IG
        shared_KG = torch.addmm(self.layers[0][2], shared_KI, self.shared_IG)
        hiddens: list[Tensor] = []
        cells: list[Tensor] = []
        for k, (weight_IG, weight_DG, bias_G) in enumerate(self.layers):
            if k == 0:
                hidden_PSD = state.hidden[0]
                if hidden_PSD.shape[1] == gates_PSG.shape[1]:
                    gates_PSG.flatten(0, 1).addmm_(hidden_PSD.flatten(0, 1), weight_DG)
                else:
                    gates_PSG.add_(hidden_PSD @ weight_DG)
                gates_KSG = _part(gates_PSG, parent_K).add_(shared_KG[:, None])
            else:
                gates_KSG = torch.matmul(hiddens[-1], weight_IG).add_(bias_G)
                gates_KSG += _part(state.hidden[k] @ weight_DG, parent_K)
            cell_KSD = _part(state.cell[k], parent_K)
            i, f, g, o = gates_KSG.sigmoid_().view(*cell_KSD.shape[:1], -1, 4, self.width).unbind(-2)
            cells.append(torch.addcmul(f * cell_KSD, i, g.mul_(2).sub_(1)))
            hiddens.append(torch.tanh(cells[-1]).mul_(o))
        return PrefixState(tuple(hiddens), tuple(cells))


def _part(values_P: Tensor, parent_K: Tensor) -> Tensor:
    """Return the values of each prefix's parent, in memory of their own."""
    return values_P.index_select(0, parent_K)
