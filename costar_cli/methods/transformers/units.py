"""Attention and feed-forward units side by side: one product serves all streams (spec NET-5 to 8).

`U` counts units. A step beyond a subject's length needs no mask: it comes last, so causality hides it from every real
step, and what is computed at it is never used.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from costar_cli.methods.shared.balancing import BalancingHead
from costar_cli.methods.shared.dropout import Masks, MaskShapes, largest_mask, masked, masked_relu, per_kept
from costar_cli.methods.shared.microbatches import encode_in_microbatches, microbatch_size
from costar_cli.methods.shared.relative_attention import HIDDEN, RelativeTables, relative_causal_attention

EPSILON = 1e-12


class Affine(nn.Module):
    """U affine maps side by side, with the framework's initialisation of a linear layer."""

    def __init__(self, units: int, n_in: int, n_out: int) -> None:
        super().__init__()
        bound = n_in**-0.5
        self.weight = nn.Parameter(torch.empty(units, n_out, n_in).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(units, n_out).uniform_(-bound, bound))

    def forward(
        self, values: Tensor, units: slice | list[int] = slice(None), *, weight_by: float = 1.0, bias_by: float = 1.0
    ) -> Tensor:
        """Return `[U,...,O]` of values `[U,...,I]`, by the given units; the factors scale weight and bias."""
        weight, bias = self.weight[units] * weight_by, self.bias[units] * bias_by
        flat = torch.baddbmm(bias[:, None], values.flatten(1, -2), weight.transpose(1, 2))
        return flat.view(*values.shape[:-1], -1)


class Norm(nn.Module):
    """Normalise by mean and *unbiased* sd over the last axis, each unit with its own gain and bias (spec NET-5).

    The framework's kernel divides by the biased sd; the constant ratio of the two moves into the gain.
    """

    def __init__(self, units: int, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(units, width))
        self.bias = nn.Parameter(torch.zeros(units, width))
        self.ratio = math.sqrt((width - 1) / width)

    def forward(self, values: Tensor, units: slice | list[int] = slice(None)) -> Tensor:
        """Return the normalised rows of `[U,...,D]`."""
        shape = (-1, *[1] * (values.ndim - 2), values.shape[-1])
        normal = functional.layer_norm(values, values.shape[-1:], eps=EPSILON)
        return torch.addcmul(self.bias[units].view(shape), normal, (self.gain[units] * self.ratio).view(shape))


class Attention(nn.Module):
    """U attention units side by side: projections, heads, post-norm residual (spec NET-7).

    Args:
        units: U.
        width: D.
        heads: h; head width n = D / h.
        dropout: rate on the attention probabilities.
        projected: whether an affine map follows the heads (EDCT's encoder).
    """

    def __init__(self, units: int, width: int, heads: int, dropout: float, *, projected: bool = False) -> None:
        super().__init__()
        self.units, self.heads = units, heads
        self.query = Affine(units, width, width)
        self.key_value = Affine(units, width, 2 * width)
        self.output = Affine(units, width, width) if projected else None
        self.norm = Norm(units, width)
        self.per_kept = per_kept(dropout)

    def queries(self, values: Tensor, units: slice | list[int] = slice(None)) -> Tensor:
        """Return queries `[U,...,h,n]` of `[U,...,D]`, divided by `sqrt(n)`."""
        scale = (values.shape[-1] // self.heads) ** -0.5
        return self.query(values, units, weight_by=scale, bias_by=scale).unflatten(-1, (self.heads, -1))  # type: ignore[no-any-return]

    def keys_values(self, values: Tensor, units: slice | list[int] = slice(None)) -> tuple[Tensor, Tensor]:
        """Return keys and values, each `[U,...,h,n]`, of `[U,...,D]`."""
        k, v = self.key_value(values, units).unflatten(-1, (2, self.heads, -1)).unbind(-3)
        return k, v

    def finish(self, attended: Tensor, residual: Tensor, units: slice | list[int] = slice(None)) -> Tensor:
        """Return the unit's output `[U,...,D]` from what the heads attended to, `[U,...,h,n]`."""
        together = attended.flatten(-2)
        if self.output is not None:
            together = self.output(together, units)
        return self.norm(together + residual, units)  # type: ignore[no-any-return]

    def mask_shapes(self, name: str, n_queries: int, n_keys: int) -> MaskShapes:
        """Return the shape of the dropout mask of one sample."""
        return {name: (self.units, self.heads, n_queries, n_keys)}

    def forward(
        self,
        queries_UBTD: Tensor,
        sources_UBTD: Tensor,
        tables: RelativeTables,
        masks: Masks,
        name: str,
        hidden_BUT: Tensor | None = None,
    ) -> Tensor:
        """Return each unit's causal attention from its queries to its sources, in the shape of the queries.

        Args:
            queries_UBTD: what asks, and what the residual adds.
            sources_UBTD: where keys and values come from.
            tables: relative keys and values, `2K+1` rows.
            masks: dropout masks, or none.
            name: of the unit's mask.
            hidden_BUT: 1 where nobody may see a source, which must be a suffix of the steps; a unit whose sources are
                all hidden attends to nothing.
        """
        q, k, v = (
            values.permute(1, 0, 3, 2, 4).flatten(0, 2)  # [BUh, T, n]
            for values in (self.queries(queries_UBTD), *self.keys_values(sources_UBTD))
        )
        key_table, value_table = tables()
        mask_MTT = None
        if hidden_BUT is not None:
            # One more coordinate, 1 in every query: the key's is what is added to its score.
            added_BUhT = (hidden_BUT * HIDDEN)[:, :, None].expand(-1, -1, self.heads, -1)
            added_MT1 = added_BUhT.flatten(0, 2)[..., None].to(k.dtype)
            q, k = torch.cat([q, torch.ones_like(added_MT1)], dim=-1), torch.cat([k, added_MT1], dim=-1)
            key_table = functional.pad(key_table, (0, 1))
        if masks is not None:
            mask_MTT = masks[name].flatten(0, 2)
            v, value_table = v * self.per_kept, value_table * self.per_kept
        o_MTn = relative_causal_attention(q, k, v, key_table, value_table, mask_MTT)
        units, batch = queries_UBTD.shape[:2]
        o_BUhTn = o_MTn.view(batch, units, self.heads, *o_MTn.shape[1:])
        if hidden_BUT is not None:
            # A softmax over nothing but hidden keys is uniform over all of them, in later blocks over steps that know
            # the future.
            o_BUhTn = o_BUhTn * (1 - hidden_BUT[:, :, :1])[..., None, None].to(o_BUhTn.dtype)
        return self.finish(o_BUhTn.permute(1, 0, 3, 2, 4), queries_UBTD)


class FeedForward(nn.Module):
    """`LN(drop(W2 drop(relu(W1 u))) + u)`, position by position, U units side by side (spec NET-8)."""

    def __init__(self, units: int, width: int, dropout: float) -> None:
        super().__init__()
        self.inner = Affine(units, width, 4 * width)
        self.outer = Affine(units, 4 * width, width)
        self.norm = Norm(units, width)
        self.per_kept = per_kept(dropout)

    def mask_shapes(self, name: str, n_steps: int) -> MaskShapes:
        """Return the shapes of the two dropout masks of one sample."""
        units, width, _ = self.outer.weight.shape
        return {f"{name}.inner": (units, n_steps, 4 * width), f"{name}.outer": (units, n_steps, width)}

    def forward(
        self, values: Tensor, masks: Masks = None, name: str = "", units: slice | list[int] = slice(None)
    ) -> Tensor:
        """Return the transformed rows `[U,B,T,D]`, by the given units."""
        if masks is None:
            return self.norm(self.outer(torch.relu(self.inner(values, units)), units) + values, units)  # type: ignore[no-any-return]
        units_first = {key: masks[key].transpose(0, 1) for key in (f"{name}.inner", f"{name}.outer")}
        hidden = masked_relu(self.inner(values, units), units_first, f"{name}.inner")
        out = self.outer(hidden, units, weight_by=self.per_kept**2, bias_by=self.per_kept)
        return self.norm(masked(out, units_first, f"{name}.outer") + values, units)  # type: ignore[no-any-return]


CPU_ELEMENTS = 1_500_000  # of the largest mask of a microbatch: measured, more overflow a core's caches


class BalancedNetwork(nn.Module, ABC):
    """A network whose `forward(*inputs, masks)` returns representations and outcomes; it ends in a balancing head."""

    head: BalancingHead

    @abstractmethod
    def mask_shapes(self, n_steps: int) -> MaskShapes:
        """Return the shape of every dropout mask of one sample."""


NetworkT = TypeVar("NetworkT", bound=BalancedNetwork)


def encode_series(
    network: BalancedNetwork, encode: Callable[..., tuple[Tensor, ...]], *inputs_N: Tensor
) -> tuple[Tensor, ...]:
    """Return what a function makes of N series `[N,T,..]` with the network, without gradients."""
    largest = largest_mask(network.mask_shapes(inputs_N[0].shape[1]))
    size = microbatch_size(largest, len(inputs_N[0]), inputs_N[0].device, cpu_elements=CPU_ELEMENTS)
    return encode_in_microbatches(encode, *inputs_N, size=size)
