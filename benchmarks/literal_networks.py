"""The yardsticks: recurrences and attention of the baselines as their formulas read, differentiated by the framework.

`written_out` puts them in place of what the networks use: cell by cell (spec NET-9, GROWTH-5), and attention with a
relative key and value for every pair of steps (spec NET-6, NET-7). All else of a step stays as it is.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from costar_cli.methods.growth import gru
from costar_cli.methods.recurrent import lstm
from costar_cli.methods.shared import relative_attention

__all__ = ["written_out"]


class LiteralLstm:
    """`_Recurrence` of the LSTM, a step at a time."""

    @staticmethod
    def apply(
        inputs_RTIB: Tensor, weight_RGI: Tensor, weight_RGD: Tensor, bias_RG: Tensor, hidden: Tensor, cell: Tensor,
        keep_hidden: Tensor | None, keep_cell: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        hiddens, cells = [], []
        for inputs in inputs_RTIB.unbind(1):
            gates = weight_RGI @ inputs + weight_RGD @ hidden + bias_RG[..., None]
            i, f, g, o = gates.chunk(4, dim=1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            hiddens.append(hidden)
            cells.append(cell.detach())
            if keep_hidden is not None and keep_cell is not None:
                hidden, cell = hidden * keep_hidden, cell * keep_cell
        return torch.stack(hiddens, dim=1), torch.stack(cells, dim=1)


class LiteralGru:
    """`_Recurrence` of the GRU, a step at a time."""

    @staticmethod
    def apply(gates_RTBG: Tensor, weight_RGD: Tensor, bias_RG: Tensor) -> Tensor:
        state, states = gates_RTBG.new_zeros(len(gates_RTBG), gates_RTBG.shape[2], weight_RGD.shape[-1]), []
        for gates in gates_RTBG.unbind(1):
            of_state = (state @ weight_RGD.transpose(1, 2) + bias_RG[:, None]).chunk(3, dim=-1)
            of_inputs = gates.chunk(3, dim=-1)
            reset, keep = (torch.sigmoid(a + b) for a, b in zip(of_inputs[:2], of_state[:2], strict=True))
            state = (1 - keep) * torch.tanh(of_inputs[2] + reset * of_state[2]) + keep * state
            states.append(state)
        return torch.stack(states, dim=1)


class LiteralAttention:
    """`_BandedAttention` with a vector for every pair of steps; the far ones' are zero."""

    @staticmethod
    def apply(
        q: Tensor, k: Tensor, v: Tensor, key_band: Tensor, value_band: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, ...]:
        step, width = torch.arange(q.shape[2]), key_band.shape[1]
        back = step[:, None] - step
        row, near = (width - 1 - back).clamp(0, width - 1), ((back >= 0) & (back < width))[..., None]
        keys, values = (band[:, row] * near for band in (key_band, value_band))
        score = q @ k.transpose(-1, -2) + torch.einsum("gmtn,gtun->gmtu", q, keys)
        p = torch.softmax(score.masked_fill(back < 0, relative_attention.HIDDEN), dim=-1)
        p = p if mask is None else p * mask
        return (p @ v + torch.einsum("gmtu,gtun->gmtn", p, values),)


@contextmanager
def written_out() -> Iterator[None]:
    """Have networks compute their recurrences and relative attention as written here."""
    with ExitStack() as stack:
        replaced: tuple[tuple[Any, str, type], ...] = (
            (lstm, "_Recurrence", LiteralLstm),
            (gru, "_Recurrence", LiteralGru),
            (relative_attention, "_BandedAttention", LiteralAttention),
        )
        for module, name, literal in replaced:
            stack.enter_context(mock.patch.object(module, name, literal))
        yield
