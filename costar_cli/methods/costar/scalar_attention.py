"""Temporal attention of the first layer, whose tokens are one scalar each: no token, query, key or value is built.

A token of feature f is `s w + offset_f`, so queries, keys and values are affine in the scalar, and up to constants of a
row (which softmax ignores) the score of query t and key u is `s_u (s_t a_h + c_fh) + s_t A_h[t-u] + C_fh[t-u]`, with
`a = qw.kw`, `c = qo_f.kw` and A, C the same queries times the relative keys. What the attention returns is affine in
`sum p s`, `sum p` and the probabilities of the near steps (the band of `relative_attention`): a matrix product with
coefficients that depend on the parameters alone. Only elementwise work on the T x T probabilities remains.

Why so: in this layer, tokens, queries, keys and values cost more to build than the attention itself, and most of that
is memory traffic. Later layers have vectors for tokens and take `over_time`.

That work is done a tile at a time, a few samples and a block of queries with the keys that they may see, in buffers
that are used again for the next one.

Letters beside the legend's: `Z` the slope and the offsets of tokens, `1 + F`; `W` near keys; `K` what a query is
multiplied with, `1 + W`; `h` heads, `n` head width; `Q`, `S` queries and keys of a tile; `G` groups, 1 or the members.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from costar_cli.methods.shared.relative_attention import HIDDEN, apply_to_groups

TILE_ELEMENTS = 2**19  # of a buffer: 2 MiB, of which two stay in a core's caches; more overflow them (measured)
BLOCK = 32  # queries of a tile: keys beyond the last of them are left out, nearly half of all pairs of long series
LANES = 16  # rows are padded to a multiple of this: vectorised kernels are slow on what is left over


def near_band(table: Tensor, n_steps: int) -> Tensor:
    """Return the rows `[W,n]` of a relative table for distances W-1 to 0, less the row that all far steps share."""
    clip_distance = table.shape[0] // 2
    width = min(clip_distance, n_steps)
    return table[clip_distance - width + 1 : clip_distance + 1] - table[0]


def score_coefficients(query_Zhn: Tensor, key_hn: Tensor, key_band_Wn: Tensor) -> Tensor:
    """Return `[1+F,h,1+W]`: scores of the slope (first row) and the offsets of queries with key slope and near keys."""
    keys_hKn = torch.cat([key_hn[:, None], key_band_Wn.expand(key_hn.shape[0], -1, -1)], dim=1)
    return torch.einsum("xhn,hkn->xhk", query_Zhn, keys_hKn)


def summary_weights(value_hn: Tensor, offset_Fhn: Tensor, value_band_Wn: Tensor, token_ZD: Tensor) -> Tensor:
    """Return `[F,h(2+W)+2,D]`, which turn summaries into attention output plus token.

    Args:
        value_hn: what `sum p s` is multiplied with.
        offset_Fhn: what `sum p` is multiplied with.
        value_band_Wn: relative values of the near steps.
        token_ZD: slope of the tokens, then their offsets, `[1+F,D]`.
    """
    n_features, heads, n = offset_Fhn.shape
    lead = (n_features, heads, -1, n)
    own_FhKn = torch.cat([value_hn[:, None].expand(lead), offset_Fhn[:, :, None], value_band_Wn.expand(lead)], dim=2)
    heads_hh = torch.eye(heads, dtype=value_hn.dtype, device=value_hn.device)
    rows_FCD = (own_FhKn[:, :, :, None] * heads_hh[:, None, :, None]).reshape(n_features, -1, heads * n)
    tokens_F2D = torch.stack([token_ZD[:1].expand(n_features, -1), token_ZD[1:]], dim=1)
    return torch.cat([rows_FCD, tokens_F2D], dim=1)


def scalar_attention_summary(
    series_BFT: Tensor, coefficients_ZhK: Tensor, drawn_BFhTT: Tensor | None, keep: int
) -> Tensor:
    """Return `[F,B,T,h(2+W)+2]`: per head `sum p s`, `sum p` and near probabilities, then the scalar and one.

    Args:
        series_BFT: the scalars; they get no gradient.
        coefficients_ZhK: `score_coefficients`.
        drawn_BFhTT: a random byte for each attention probability, or none (evaluation).
        keep: bytes below this keep their probability, the others drop it.
    """
    drawn = None if drawn_BFhTT is None else drawn_BFhTT[None]
    output: Tensor = _ScalarAttention.apply(  # type: ignore[no-untyped-call]
        series_BFT[None], coefficients_ZhK[None], drawn, keep, torch.is_grad_enabled()
    )[0]
    return output[0]


class Tile(NamedTuple):
    """Samples, their queries from `first` to `stop`, and the number of keys that these see, padded."""

    samples: slice
    first: int
    stop: int
    keys: int

    @property
    def banded(self) -> slice:
        """Return the queries that have near keys besides the one that the first step of all sees."""
        return slice(max(self.first, 1), self.stop)


def near_of(tile_GBFhQS: Tensor, width: int, first: int) -> Tensor:
    """Return the view `[G,B,F,h,Q,W]` of the last W keys up to each query, without the first query of all.

    Where such a key lies before the first step, the view reaches into the hidden end of the row before.
    """
    *lead, n_queries, keys = tile_GBFhQS.shape
    skipped = int(first == 0)
    begin = skipped * (keys + 1) + first - width + 1
    strides = (*tile_GBFhQS.stride()[:-2], keys + 1, 1)
    return tile_GBFhQS.as_strided((*lead, n_queries - skipped, width), strides, tile_GBFhQS.storage_offset() + begin)


def by_head(summary: Tensor, heads: int) -> Tensor:
    """Return the view `[G,B,F,h,T,2+W]` of `[G,F,B,T,h(2+W)+2]`, without the scalar and one."""
    own = summary[..., :-2]
    return own.view(*own.shape[:-1], heads, -1).permute(0, 2, 1, 4, 3, 5)


class Tiles:
    """Attention probabilities, tile by tile, in memory that all tiles share.

    All tensors lead with a group axis G: 1, or the members under `vmap`.

    Args:
        series: `[G,B,F,T]`.
        coefficients: `[G,1+F,h,1+W]`.
        drawn: bytes `[G,B,F,h,T,T]`, or none.
        keep: bytes below this keep their probability.
    """

    def __init__(self, series: Tensor, coefficients: Tensor, drawn: Tensor | None, keep: int) -> None:
        self.groups, self.batch, self.n_features, self.n_steps = series.shape
        self.heads, self.width = coefficients.shape[2], coefficients.shape[3] - 1
        self._cpu = series.device.type == "cpu"
        self._drawn, self._last = drawn, keep - 1  # 256 is no byte
        n_keys = self._padded(self.n_steps)
        self._key = functional.pad(series, (0, n_keys - self.n_steps))
        self.key_and_one = torch.stack([self._key, torch.ones_like(self._key)], dim=-2)  # [G, B, F, 2, S]
        causal = torch.full((self.n_steps, n_keys), HIDDEN, dtype=series.dtype, device=series.device)
        self._hidden = causal.triu_(1)
        # [G, B, F, h, T, 1 + W]: what each query multiplies the key's scalar with, then its scores of near steps
        slope, offset = coefficients[:, :1].expand_as(coefficients[:, 1:]), coefficients[:, 1:]
        pairs = torch.stack([slope, offset], dim=2)[:, None].expand(-1, self.batch, -1, -1, -1, -1)
        rows = self.key_and_one[..., : self.n_steps].flatten(0, 2).transpose(1, 2)
        query = torch.bmm(rows, pairs.reshape(len(rows), 2, -1))
        self._query = query.view(*self._key.shape[:3], self.n_steps, self.heads, -1).transpose(3, 4)
        self.tiles: list[Tile] = []
        block = max(BLOCK, self._padded(self.width)) if self._cpu else self.n_steps
        for first in range(0, self.n_steps, block):
            stop = min(first + block, self.n_steps)
            keys = self._padded(stop)
            per_sample = self.groups * self.n_features * self.heads * (stop - first) * keys
            size = max(1, TILE_ELEMENTS // per_sample) if self._cpu else self.batch
            samples = [slice(begin, min(begin + size, self.batch)) for begin in range(0, self.batch, size)]
            self.tiles += [Tile(some, first, stop, keys) for some in samples]
        largest = max((t.samples.stop - t.samples.start) * (t.stop - t.first) * t.keys for t in self.tiles)
        self._buffers = series.new_empty(2, largest * self.groups * self.n_features * self.heads)

    def _padded(self, keys: int) -> int:
        return -(-keys // LANES) * LANES if self._cpu else keys

    def _buffer(self, index: int, *shape: int) -> Tensor:
        return self._buffers[index, : math.prod(shape)].view(shape)

    def probabilities(self, tile: Tile) -> Tensor:
        """Return the probabilities `[G,b,F,h,Q,S]` of a tile, in buffer 0; those of hidden keys are zero."""
        slope = self._query[:, tile.samples, :, :, tile.first : tile.stop, :1]
        score = self._buffer(0, *slope.shape[:-1], tile.keys)
        torch.addcmul(self._hidden[tile.first : tile.stop, : tile.keys], slope, self._keys(tile), out=score)
        near_of(score, self.width, tile.first).add_(self._query[:, tile.samples, :, :, tile.banded, 1:])
        return torch.softmax(score, dim=-1, out=score)

    def drop(self, values: Tensor, tile: Tile) -> None:
        """Zero what the tile's bytes drop, with the help of buffer 1."""
        if self._drawn is None:
            return
        drawn = self._drawn[:, tile.samples, :, :, tile.first : tile.stop, : tile.keys]
        values[..., : drawn.shape[-1]].mul_(torch.le(drawn, self._last, out=self._buffer(1, *drawn.shape)))

    def score_gradient(self, p: Tensor, grad_own: Tensor, tile: Tile) -> Tensor:
        """Return the gradient of a tile's scores, given its probabilities and that of `by_head`, in buffer 1."""
        of_sums = grad_own[:, tile.samples, :, :, tile.first : tile.stop, :2]
        grad_p = torch.mul(of_sums[..., :1], self._keys(tile), out=self._buffer(0, *p.shape)).add_(of_sums[..., 1:])
        near_of(grad_p, self.width, tile.first).add_(grad_own[:, tile.samples, :, :, tile.banded, 2:])
        self.drop(grad_p, tile)
        backward = torch.ops.aten._softmax_backward_data.out
        result: Tensor = backward(grad_p, p, -1, p.dtype, grad_input=self._buffer(1, *p.shape))
        return result

    def key_sums(self, values: Tensor, tile: Tile, n: int) -> Tensor:
        """Return the sums over keys of values times scalar (and of values, if n is 2), `[G,b,F,n,h,Q]`."""
        g, b, f, h, q, s = values.shape
        rows = self.key_and_one[:, tile.samples, :, :n, :s].reshape(-1, n, s)
        return torch.bmm(rows, values.view(-1, h * q, s).transpose(1, 2)).view(g, b, f, n, h, q)

    def _keys(self, tile: Tile) -> Tensor:
        return self._key[:, tile.samples, :, None, None, : tile.keys]


class _ScalarAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        series: Tensor,
        coefficients: Tensor,
        drawn: Tensor | None,
        keep: int,
        remember: bool,  # noqa: FBT001 - the framework passes by position
    ) -> tuple[Tensor, ...]:
        all_tiles = Tiles(series, coefficients, drawn, keep)
        g, batch, n_features, n_steps = series.shape
        heads, width = all_tiles.heads, all_tiles.width
        summary = series.new_empty(g, n_features, batch, n_steps, heads * (2 + width) + 2)
        own = by_head(summary, heads)
        own[..., 0, 2:-1].zero_()
        remembered = []
        for tile in all_tiles.tiles:
            p = all_tiles.probabilities(tile)
            if remember:
                remembered.append(p.clone())
            all_tiles.drop(p, tile)
            own[:, tile.samples, :, :, tile.first : tile.stop, :2] = all_tiles.key_sums(p, tile, 2).movedim(3, -1)
            own[:, tile.samples, :, :, tile.banded, 2:] = near_of(p, width, tile.first)
            if tile.first == 0:
                own[:, tile.samples, :, :, 0, -1] = p[..., 0, 0]
        summary[..., -2] = series.transpose(1, 2)
        summary[..., -1].fill_(1)
        return summary, *remembered

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:  # noqa: ANN401
        series, coefficients, drawn, ctx.keep, _ = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(series, coefficients, drawn, *output[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None, None, None]:  # noqa: ANN401
        series, coefficients, drawn, *remembered = ctx.saved_tensors
        all_tiles = Tiles(series, coefficients, drawn, ctx.keep)
        g, batch, n_features, n_steps = series.shape
        heads, width = all_tiles.heads, all_tiles.width
        grad_own = by_head(grads[0], heads)
        grad_query = series.new_zeros(g, batch, n_features, heads, n_steps, 1 + width)
        for tile, p in zip(all_tiles.tiles, remembered, strict=True):
            grad_score = all_tiles.score_gradient(p, grad_own, tile)
            of_slope = all_tiles.key_sums(grad_score, tile, 1)[:, :, :, 0]
            grad_query[:, tile.samples, :, :, tile.first : tile.stop, 0] = of_slope
            grad_query[:, tile.samples, :, :, tile.banded, 1:] = near_of(grad_score, width, tile.first)
        rows = all_tiles.key_and_one[..., None, :, :n_steps].expand(-1, -1, -1, heads, -1, -1)
        pairs = torch.bmm(rows.reshape(-1, 2, n_steps), grad_query.view(-1, n_steps, 1 + width))
        slope, offset = pairs.view(g, batch, n_features, heads, 2, -1).sum(dim=1).unbind(-2)
        return None, torch.cat([slope.sum(dim=1, keepdim=True), offset], dim=1), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Tensor | None) -> tuple[Any, Any]:  # noqa: ANN401
        return apply_to_groups(_ScalarAttention, info.batch_size, in_dims, args)
