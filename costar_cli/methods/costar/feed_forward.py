"""Layer normalisation, and the feed-forward unit, computed on a CPU without ever holding its hidden layer whole."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from costar_cli.config.models import EncoderConfig
from costar_cli.methods.shared.dropout import Dropout, Masks, MaskShapes

EPSILON = 1e-12


class LayerNorm(nn.Module):
    """Normalise by mean and *unbiased* sd over the last axis (spec NET-5).

    The framework's fused kernel divides by the biased sd; the constant ratio of the two moves into the gain. Its
    epsilon sits under the root (1e-12) where the released code adds 1e-6 to the sd: the same for constant rows, and
    within 1e-6/sd elsewhere.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.ratio = math.sqrt((width - 1) / width)

    def forward(self, u: Tensor) -> Tensor:
        """Return the normalised rows."""
        return functional.layer_norm(u, u.shape[-1:], self.gain * self.ratio, self.bias, EPSILON)


ROWS = 4_096  # of the hidden layer, the widest array of an encoder, held at once on a CPU: measured


class FeedForward(nn.Module):
    """`LN(drop(W2 drop(relu(W1 u))) + u)`, position by position (spec NET-8)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.width, 4 * config.width)
        self.outer = nn.Linear(4 * config.width, config.width)
        self.norm = LayerNorm(config.width)
        self.dropout = Dropout(config.dropout)

    def mask_shapes(self, name: str, *lead: int) -> MaskShapes:
        """Return the shapes of the two dropout masks for one sample `[*lead, D]`."""
        width = self.outer.out_features
        return {f"{name}.inner": (*lead, 4 * width), f"{name}.outer": (*lead, width)}

    def forward(self, u: Tensor, masks: Masks, name: str) -> Tensor:
        """Return the transformed rows, in the shape of `u`."""
        drawn = (None, None) if masks is None else (masks[f"{name}.inner"], masks[f"{name}.outer"])
        return self.norm(self.residual(u, *drawn))  # type: ignore[no-any-return]

    def residual(self, u: Tensor, drawn_inner: Tensor | None, drawn_outer: Tensor | None) -> Tensor:
        """Return what is normalised, given the bytes of both masks or none."""
        if u.device.type == "cpu" and u.numel() and not torch.is_autocast_enabled("cpu"):
            linear = (self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias)
            fused: Tensor = _FeedForward.apply(u, *linear, drawn_inner, drawn_outer, self.dropout)  # type: ignore[no-untyped-call]
            return fused
        return self.plain(u, drawn_inner, drawn_outer)

    def plain(self, u: Tensor, drawn_inner: Tensor | None, drawn_outer: Tensor | None) -> Tensor:
        """Return the same from ordinary operators, which suit a GPU."""
        hidden = self.dropout(torch.relu(self.inner(u)), drawn_inner)
        return self.dropout(self.outer(hidden), drawn_outer) + u


class _FeedForward(torch.autograd.Function):
    """The unit without its norm, a slice of `u` at a time; the hidden layer is computed again on the way back."""

    @staticmethod
    def forward(
        u: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor,
        drawn_inner: Tensor | None, drawn_outer: Tensor | None, dropout: Dropout,
    ) -> Tensor:  # fmt: skip
        output = torch.empty_like(u, memory_format=torch.contiguous_format)
        scale = 1.0 if drawn_inner is None else dropout.per_kept
        w2, b2 = w2 * scale**2, b2 * scale
        hidden = Hidden(u, w1, b1, drawn_inner, dropout)
        for part, rows in hidden.slices():
            out = output[part].view(-1, u.shape[-1])
            torch.addmm(b2, hidden.of(part, rows), w2.T, out=out)
            if drawn_outer is not None:
                output[part].mul_(dropout.factors(drawn_outer[part], u.dtype))
            output[part].add_(u[part])
        return output

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401, ARG004
        *tensors, ctx.dropout = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        u, w1, b1, w2, b2, drawn_inner, drawn_outer = ctx.saved_tensors
        dropout: Dropout = ctx.dropout
        scale = 1.0 if drawn_inner is None else dropout.per_kept
        scaled_w2, grad = w2 * scale**2, grads[0].contiguous()
        grad_u = torch.empty_like(grad)
        sums = [torch.zeros_like(value) for value in (w1, b1, w2, b2)]
        hidden = Hidden(u, w1, b1, drawn_inner, dropout)
        for part, rows in hidden.slices():
            h = hidden.of(part, rows)
            g = grad[part]
            if drawn_outer is not None:
                g = dropout.factors(drawn_outer[part], u.dtype).mul_(g)
            g = g.view(-1, g.shape[-1])
            sums[2].addmm_(g.T, h)
            sums[3] += g.sum(dim=0)
            grad_h = torch.mm(g, scaled_w2, out=hidden.buffers[1, :rows])
            torch.ops.aten.threshold_backward.grad_input(grad_h, h, 0, grad_input=grad_h)
            sums[0].addmm_(grad_h.T, u[part].reshape(rows, -1))
            sums[1] += grad_h.sum(dim=0)
            torch.addmm(grad[part].view(rows, -1), grad_h, w1, out=grad_u[part].view(rows, -1))
        return grad_u, sums[0], sums[1], sums[2] * scale**2, sums[3] * scale, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:  # noqa: ANN401
        members = [
            [value if dim is None else value.select(dim, member) for value, dim in zip(args, in_dims, strict=True)]
            for member in range(info.batch_size)
        ]
        return torch.stack([_FeedForward.apply(*member) for member in members]), 0  # type: ignore[no-untyped-call]


class Hidden:
    """The hidden layer `drop(relu(W1 u))`, without the factor of the dropout, slice by slice in memory that is reused.

    Args:
        u: `[...,D]`; slices are cut along the first axis.
        w1: weight.
        b1: bias.
        drawn: bytes of the mask, in the shape of the layer, or none.
        dropout: what they mean.
    """

    def __init__(self, u: Tensor, w1: Tensor, b1: Tensor, drawn: Tensor | None, dropout: Dropout) -> None:
        self._u, self._w1, self._b1, self._drawn, self._dropout = u, w1, b1, drawn, dropout
        self._per_row = max(1, u[:1].numel() // u.shape[-1])
        self._size = max(1, ROWS // self._per_row)
        self.buffers = u.new_empty(2, min(self._size, max(1, len(u))) * self._per_row, len(b1))

    def slices(self) -> Iterator[tuple[slice, int]]:
        """Yield slices of the first axis, each with the number of positions in it."""
        for first in range(0, len(self._u), self._size):
            stop = min(first + self._size, len(self._u))
            yield slice(first, stop), (stop - first) * self._per_row

    def of(self, part: slice, rows: int) -> Tensor:
        """Return the layer `[rows,4D]` in buffer 0; buffer 1 is used on the way."""
        h = torch.addmm(self._b1, self._u[part].reshape(rows, -1), self._w1.T, out=self.buffers[0, :rows]).clamp_min_(0)
        if self._drawn is not None:
            drawn = self._drawn[part]
            factor = torch.le(drawn, self._dropout.keep - 1, out=self.buffers[1, :rows].view(drawn.shape))
            h.mul_(factor.view(rows, -1))
        return h
