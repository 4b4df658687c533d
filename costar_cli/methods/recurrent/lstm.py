"""The variational LSTM: dropout masks that stay the same over time, for R members at once (spec NET-9).

The member axis is the batch axis of every matrix product, so this is applied outside `vmap`. Parameters are named and
initialised as those of `torch.nn.LSTM`, which the recurrence equals where there are no masks.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from costar_cli.methods.shared.dropout import MaskShapes, MaskSource, per_kept
from costar_cli.methods.shared.members import Params
from costar_cli.methods.shared.streams import Stream

Masks = dict[str, Tensor] | None


class LstmState(NamedTuple):
    """What an LSTM carries from step to step: `hidden` and `cell`, each `[R,l,B,D]` with l layers."""

    hidden: Tensor
    cell: Tensor

    @classmethod
    def both(cls, vector_RBD: Tensor, layers: int) -> Self:
        """Return a state in which one vector is the hidden state and the cell of every layer."""
        stacked = vector_RBD[:, None].expand(-1, layers, -1, -1)
        return cls(stacked, stacked)


class LstmPass(NamedTuple):
    """What a pass over T steps gives: the outputs of the last layer, and the states of every layer after each step.

    `outputs [R,T,B,D]`; `hidden` and `cell` hold one `[R,T,B,D]` per layer. No gradient flows through these two.
    """

    outputs: Tensor
    hidden: tuple[Tensor, ...]
    cell: tuple[Tensor, ...]

    @property
    def last(self) -> LstmState:
        """Return the state after the last step."""
        return LstmState(*(torch.stack([layer[:, -1] for layer in part], dim=1) for part in (self.hidden, self.cell)))


def n_layers(params_R: Params) -> int:
    """Return l of the parameters of an LSTM."""
    return sum(name.startswith("weight_hh_l") for name in params_R)


def draw_masks(lstm: nn.LSTM, rate: float, streams: Sequence[Stream], batch: int, like: Tensor) -> Masks:
    """Return masks `[R,B,D]` for a batch, scaled by 1/keep: of the output, hidden state and cell of every layer."""
    width = (lstm.hidden_size,)
    shapes: MaskShapes = {
        f"{part}_l{k}": width for k in range(lstm.num_layers) for part in ("output", "hidden", "cell")
    }
    masks = MaskSource(shapes, rate, streams, device=like.device, dtype=like.dtype).draw(batch)()
    return {name: mask.mul_(per_kept(rate)) for name, mask in masks.items()} or None


def variational_lstm(
    params_R: Params, inputs_RTBI: Tensor, *, start: LstmState | None = None, masks: Masks = None
) -> LstmPass:
    """Run the LSTMs of R members over T steps.

    With masks, the output of step t is `h_t * M_output`, and the next step starts from `h_t * M_hidden` and
    `c_t * M_cell`; the start itself is not masked. Layer 2 reads the masked outputs of layer 1.

    Args:
        params_R: parameters named as in `torch.nn.LSTM`, `[R,...]`.
        inputs_RTBI: inputs of every step.
        start: the state before the first step; zeros by default.
        masks: of `draw_masks`; none for evaluation.
    """
    rows, width = inputs_RTBI.shape[2], params_R["weight_hh_l0"].shape[-1]
    outputs, hiddens, cells = inputs_RTBI, [], []
    for k in range(n_layers(params_R)):
        weight_RDG = params_R[f"weight_ih_l{k}"].transpose(1, 2)
        bias_R1G = (params_R[f"bias_ih_l{k}"] + params_R[f"bias_hh_l{k}"])[:, None]
        gates_RMG = torch.baddbmm(bias_R1G, outputs.flatten(1, 2), weight_RDG).to(bias_R1G)  # autocast ends here
        gates_RTBG = gates_RMG.view(*outputs.shape[:3], -1)
        zeros = gates_RTBG.new_zeros(len(gates_RTBG), rows, width)
        state = (zeros, zeros) if start is None else (start.hidden[:, k].to(zeros), start.cell[:, k].to(zeros))
        keep = (None, None) if masks is None else (masks[f"hidden_l{k}"], masks[f"cell_l{k}"])
        hidden, cell = _recurrence(gates_RTBG, params_R[f"weight_hh_l{k}"], *state, *keep)
        outputs = hidden if masks is None else hidden * masks[f"output_l{k}"][:, None]
        hiddens.append(hidden.detach())
        cells.append(cell)
    return LstmPass(outputs, tuple(hiddens), tuple(cells))


def _recurrence(gates_RTBG: Tensor, weight_RGD: Tensor, *rest: Tensor | None) -> tuple[Tensor, Tensor]:
    result: tuple[Tensor, Tensor] = _Recurrence.apply(gates_RTBG, weight_RGD, *rest)  # type: ignore[no-untyped-call]
    return result


# Masks between steps rule out the framework's fused LSTM.
class _Recurrence(torch.autograd.Function):
    """One layer over all steps, with its backward pass: a loop of a few operations per step in either direction.

    The framework would record a dozen nodes per step. Here the derivatives of all activations are formed for all steps
    at once, and the gradient of the weights is a single product; only what truly depends on the next step is looped.
    Gates are ordered i, f, g, o as in `torch.nn.LSTM`.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        gates_RTBG: Tensor,
        weight_RGD: Tensor,
        hidden_RBD: Tensor,
        cell_RBD: Tensor,
        keep_hidden_RBD: Tensor | None,
        keep_cell_RBD: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        with torch.autocast(gates_RTBG.device.type, enabled=False):
            steps = gates_RTBG.shape[1]
            width = weight_RGD.shape[-1]
            activations = gates_RTBG.new_empty(*gates_RTBG.shape[:-1], 4, width)
            hiddens, cells = (gates_RTBG.new_empty(*gates_RTBG.shape[:-1], width) for _ in range(2))
            weight_RDG = weight_RGD.transpose(1, 2)
            hidden, cell = hidden_RBD, cell_RBD
            for t in range(steps):
                gates = torch.baddbmm(gates_RTBG[:, t], hidden, weight_RDG).view(*hidden.shape[:-1], 4, width)
                i, f, g, o = torch.sigmoid(gates, out=activations[:, t]).unbind(-2)
                torch.tanh(gates[..., 2, :], out=g)
                cell = torch.addcmul(f * cell, i, g, out=cells[:, t])
                hidden = torch.mul(o, torch.tanh(cell), out=hiddens[:, t])
                if keep_hidden_RBD is not None and keep_cell_RBD is not None:
                    hidden, cell = hidden * keep_hidden_RBD, cell * keep_cell_RBD
        ctx.save_for_backward(
            activations, hiddens, cells, weight_RGD, hidden_RBD, cell_RBD, keep_hidden_RBD, keep_cell_RBD
        )
        ctx.mark_non_differentiable(cells)
        return hiddens, cells

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        activations, hiddens, cells, weight_RGD, hidden_RBD, cell_RBD, keep_hidden, keep_cell = ctx.saved_tensors
        before_hidden = _before(hiddens, hidden_RBD, keep_hidden)
        before_cell = _before(cells, cell_RBD, keep_cell)
        i, f, g, o = activations.unbind(-2)
        tanh_cell = torch.tanh(cells)
        cell_per_hidden = o * (1 - tanh_cell.square())
        cell_per_cell = f if keep_cell is None else f * keep_cell[:, None]
        # Derivative of the cell by the gates i, f, g, and of the hidden state by the gate o; becomes the gradient.
        slopes = torch.stack(
            [g * i * (1 - i), before_cell * f * (1 - f), i * (1 - g.square()), tanh_cell * o * (1 - o)], dim=-2
        )
        to_hidden, to_cell = torch.zeros_like(hidden_RBD), torch.zeros_like(cell_RBD)
        for t in reversed(range(slopes.shape[1])):
            grad_hidden = grads[0][:, t] + (to_hidden if keep_hidden is None else to_hidden * keep_hidden)
            grad_cell = torch.addcmul(to_cell, grad_hidden, cell_per_hidden[:, t])
            slopes[:, t, :, :3].mul_(grad_cell[:, :, None])
            slopes[:, t, :, 3].mul_(grad_hidden)
            to_hidden = torch.bmm(slopes[:, t].flatten(-2), weight_RGD)
            to_cell = grad_cell * (cell_per_cell if t else f)[:, t]  # the start was not masked
        gates_RTBG = slopes.flatten(-2)
        weight = torch.bmm(gates_RTBG.flatten(1, 2).transpose(1, 2), before_hidden.flatten(1, 2))
        return gates_RTBG, weight, to_hidden, to_cell, None, None


def _before(values_RTBD: Tensor, start_RBD: Tensor, keep_RBD: Tensor | None) -> Tensor:
    """Return what each step started from: the given start, then the carried values of the step before."""
    carried = values_RTBD[:, :-1] if keep_RBD is None else values_RTBD[:, :-1] * keep_RBD[:, None]
    return torch.cat([start_RBD[:, None], carried], dim=1)
