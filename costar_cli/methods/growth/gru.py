"""A gated recurrent unit for R members at once, with its backward pass (spec GROWTH-5).

The member axis is the batch axis of every matrix product, so this is applied outside `vmap`. Parameters are named and
initialised as those of `torch.nn.GRU`, which it equals.
"""

from typing import Any

import torch
from torch import Tensor

from costar_cli.methods.shared.members import Params


def run_gru(params_R: Params, inputs_RTBI: Tensor) -> Tensor:
    """Return the states `[R,T,B,D]` of one layer after each step, from zeros on.

    Args:
        params_R: parameters named as in `torch.nn.GRU`, `[R,...]`.
        inputs_RTBI: inputs of every step.
    """
    weight_RIG = params_R["weight_ih_l0"].transpose(1, 2)
    gates_RMG = torch.baddbmm(params_R["bias_ih_l0"][:, None], inputs_RTBI.flatten(1, 2), weight_RIG)
    gates_RTBG = gates_RMG.view(*inputs_RTBI.shape[:3], -1).to(inputs_RTBI.dtype)  # autocast ends here
    states: Tensor = _Recurrence.apply(gates_RTBG, params_R["weight_hh_l0"], params_R["bias_hh_l0"])  # type: ignore[no-untyped-call]
    return states


class _Recurrence(torch.autograd.Function):
    """One layer over all steps: a loop of a few operations per step in either direction.

    The framework would record a dozen nodes per step. Here the derivatives of all activations are formed for all steps
    at once, and the gradient of the weights is a single product; only what truly depends on the next step is looped.
    Gates are ordered r, z, n as in `torch.nn.GRU`.
    """

    @staticmethod
    def forward(ctx: Any, gates_RTBG: Tensor, weight_RGD: Tensor, bias_RG: Tensor) -> Tensor:  # noqa: ANN401
        with torch.autocast(gates_RTBG.device.type, enabled=False):
            width = weight_RGD.shape[-1]
            states = gates_RTBG.new_empty(*gates_RTBG.shape[:-1], width)
            gates = gates_RTBG.new_empty(*gates_RTBG.shape[:-1], 2 * width)
            recurrent, candidates = torch.empty_like(states), torch.empty_like(states)
            weight_RDG, bias_R1G = weight_RGD.transpose(1, 2), bias_RG[:, None]
            state = torch.zeros_like(states[:, 0])
            for t in range(states.shape[1]):
                of_state = torch.baddbmm(bias_R1G, state, weight_RDG)
                torch.sigmoid(gates_RTBG[:, t, :, : 2 * width] + of_state[..., : 2 * width], out=gates[:, t])
                reset, keep = gates[:, t].chunk(2, dim=-1)
                recurrent[:, t] = of_state[..., 2 * width :]
                summed = torch.addcmul(gates_RTBG[:, t, :, 2 * width :], reset, recurrent[:, t])
                candidate = torch.tanh(summed, out=candidates[:, t])
                state = torch.lerp(candidate, state, keep, out=states[:, t])
        ctx.save_for_backward(gates, recurrent, candidates, states, weight_RGD)
        return states

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
        gates, recurrent, candidates, states, weight_RGD = ctx.saved_tensors
        reset, keep = gates.chunk(2, dim=-1)
        before = torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], dim=1)
        by_candidate = (1 - keep) * (1 - candidates.square())
        # Derivatives of the state by what r, z and n are made of in the inputs, then by what n has of the state before.
        slopes = torch.stack(
            [
                by_candidate * recurrent * reset * (1 - reset),
                (before - candidates) * keep * (1 - keep),
                by_candidate * reset,
                by_candidate,
            ],
            dim=-2,
        )
        to_state = torch.zeros_like(states[:, 0])
        for t in reversed(range(states.shape[1])):
            grad = grads[0][:, t] + to_state
            slopes[:, t].mul_(grad[..., None, :])
            to_state = torch.baddbmm(grad * keep[:, t], slopes[:, t, :, :3].flatten(-2), weight_RGD)
        of_state = slopes[..., :3, :].flatten(-2)
        of_inputs = torch.cat([slopes[..., :2, :], slopes[..., 3:, :]], dim=-2).flatten(-2)
        rows = of_state.flatten(1, 2)
        weight = torch.bmm(rows.transpose(1, 2), before.flatten(1, 2))
        return of_inputs, weight, rows.sum(dim=1)
