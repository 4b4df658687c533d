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
    outputs_RTDB, hiddens, cells = inputs_RTBI.transpose(2, 3), [], []
    for k in range(sum(name.startswith("weight_hh_l") for name in params_R)):
        bias_RG = params_R[f"bias_ih_l{k}"] + params_R[f"bias_hh_l{k}"]
        zeros = bias_RG.new_zeros(len(bias_RG), width, rows)
        state = (zeros, zeros) if start is None else tuple(part[:, k].to(zeros).transpose(1, 2) for part in start)
        drawn = (None,) * 3 if masks is None else tuple(masks[f"{part}_l{k}"] for part in ("output", "hidden", "cell"))
        keep_output, *keep = (None if mask is None else mask.transpose(1, 2).contiguous() for mask in drawn)
        weights = params_R[f"weight_ih_l{k}"], params_R[f"weight_hh_l{k}"]
        hidden, cell = _Recurrence.apply(outputs_RTDB, *weights, bias_RG, *state, *keep)  # type: ignore[no-untyped-call]
        outputs_RTDB = hidden if keep_output is None else hidden * keep_output[:, None]
        hiddens.append(hidden.detach().transpose(2, 3))
        cells.append(cell.transpose(2, 3))
    return LstmPass(outputs_RTDB.transpose(2, 3), tuple(hiddens), tuple(cells))


# Masks between steps rule out the framework's fused LSTM.
class _Recurrence(torch.autograd.Function):
    """One layer over all steps, with its backward pass: a loop of a few operations per step in either direction.

    The framework would record a dozen nodes per step. Here the derivatives of all activations are formed for all steps
    at once, and the gradient of the weights is a single product; only what truly depends on the next step is looped.
    Gates are ordered i, f, g, o as in `torch.nn.LSTM`. Rows come last, so that each gate is one block of memory, and
    `tanh x = 1 - 2 sigmoid(-2x)`, since the framework's tanh takes 3.5 times as long as its sigmoid on a CPU.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        inputs_RTIB: Tensor,
        weight_RGI: Tensor,
        weight_RGD: Tensor,
        bias_RG: Tensor,
        hidden_RDB: Tensor,
        cell_RDB: Tensor,
        keep_hidden_RDB: Tensor | None,
        keep_cell_RDB: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        width = weight_RGD.shape[-1]
        scale_G1 = bias_RG.new_ones(4, width, 1)
        scale_G1[2].fill_(-2)
        scale_G1, one = scale_G1.flatten(0, 1), bias_RG.new_ones(())
        products = torch.matmul((weight_RGI * scale_G1)[:, None], inputs_RTIB).to(bias_RG)  # autocast ends here
        activations = products.add_((bias_RG[..., None] * scale_G1)[:, None])
        shape = (*activations.shape[:2], width, activations.shape[-1])
        hiddens, cells, tanh_cells = (activations.new_empty(shape) for _ in range(3))
        with torch.autocast(bias_RG.device.type, enabled=False):
            scaled_RGD, hidden, cell = weight_RGD * scale_G1, hidden_RDB, cell_RDB
            each_step = (values.unbind(1) for values in (activations, hiddens, cells, tanh_cells))
            for gates, hidden_t, cell_t, tanh_t in zip(*each_step, strict=True):
                i, f, g, o = gates.baddbmm_(scaled_RGD, hidden).sigmoid_().split(width, dim=1)
                torch.add(one, g, alpha=-2, out=g)
                torch.addcmul(torch.mul(f, cell, out=cell_t), i, g, out=cell_t)
                torch.mul(cell_t, -2, out=tanh_t).sigmoid_()
                torch.addcmul(o, o, tanh_t, value=-2, out=hidden_t)
                hidden, cell = hidden_t, cell_t
                if keep_hidden_RDB is not None and keep_cell_RDB is not None:
                    hidden, cell = hidden * keep_hidden_RDB, cell * keep_cell_RDB
            torch.add(one, tanh_cells, alpha=-2, out=tanh_cells)
        ctx.save_for_backward(
            inputs_RTIB, activations, hiddens, cells, tanh_cells, weight_RGI, weight_RGD, hidden_RDB, cell_RDB,
            keep_hidden_RDB, keep_cell_RDB,
        )  # fmt: skip
        ctx.mark_non_differentiable(cells)
        return hiddens, cells

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        inputs, activations, hiddens, cells, tanh_cells, weight_RGI, weight_RGD, *rest = ctx.saved_tensors
        hidden_RDB, cell_RDB, keep_hidden, keep_cell = rest
        i, f, g, o = activations.chunk(4, dim=2)
        cell_per_hidden = torch.addcmul(o, o * tanh_cells, tanh_cells, value=-1)
        cell_per_cell = f if keep_cell is None else f * keep_cell[:, None]
        # Derivative of the cell by the gates i, f, g, and of the hidden state by the gate o; becomes the gradient.
        slopes = torch.addcmul(activations, activations, activations, value=-1)
        of_i, of_f, of_g, of_o = slopes.chunk(4, dim=2)
        of_i.mul_(g)
        of_f.mul_(_before(cells, cell_RDB, keep_cell))
        torch.addcmul(i, torch.mul(g, g, out=of_g), i, value=-1, out=of_g)
        of_o.mul_(tanh_cells)
        to_hidden, to_cell = torch.zeros_like(hidden_RDB), torch.zeros_like(cell_RDB)
        weight_RDG, by_gate = weight_RGD.transpose(1, 2), slopes.view(*slopes.shape[:2], 4, -1, slopes.shape[-1])
        split = slopes, by_gate[:, :, :3], by_gate[:, :, 3], cell_per_hidden, cell_per_cell, grads[0]
        every_step = list(zip(*(values.unbind(1) for values in split), strict=True))
        for t in reversed(range(len(every_step))):
            gates, of_cell, of_hidden, by_hidden, by_cell, grad = every_step[t]
            grad_hidden = grad + to_hidden if keep_hidden is None else torch.addcmul(grad, to_hidden, keep_hidden)
            grad_cell = torch.addcmul(to_cell, grad_hidden, by_hidden)
            of_cell.mul_(grad_cell[:, None])
            of_hidden.mul_(grad_hidden)
            to_hidden = torch.bmm(weight_RDG, gates)
            to_cell = grad_cell * (by_cell if t else f[:, 0])  # the start was not masked
        read_RTCB = torch.cat([inputs.to(slopes), _before(hiddens, hidden_RDB, keep_hidden)], dim=2)
        weights = torch.matmul(slopes, read_RTCB.transpose(2, 3)).sum(dim=1)
        of_inputs = torch.matmul(weight_RGI.transpose(1, 2)[:, None], slopes) if ctx.needs_input_grad[0] else None
        of_weights = torch.split(weights, [inputs.shape[2], hiddens.shape[2]], dim=2)
        return of_inputs, *of_weights, slopes.sum(dim=(1, 3)), to_hidden, to_cell, None, None


def _before(values_RTDB: Tensor, start_RDB: Tensor, keep_RDB: Tensor | None) -> Tensor:
    """Return what each step started from: the given start, then the carried values of the step before."""
    carried = values_RTDB[:, :-1] if keep_RDB is None else values_RTDB[:, :-1] * keep_RDB[:, None]
    return torch.cat([start_RDB[:, None], carried], dim=1)
