"""Scalars to tokens: one shared affine map, and a code that says which feature a token is."""

import torch
from torch import Tensor, nn

from costar_cli.config.models import EncoderConfig

__all__ = ["FeatureEncoding", "TokenEmbedding", "TokenLayout"]


class TokenLayout:
    """Which token is which: time-varying tokens in order X, A, Y, then statics V (spec COSTAR-1).

    Args:
        dims: numbers of covariates, treatments, outcomes and statics.
    """

    def __init__(self, dims: tuple[int, int, int, int]) -> None:
        self.dims = dims
        self.n_temporal = sum(dims[:3])
        self.n_static = dims[3]
        self.component = torch.cat([torch.full((size,), c) for c, size in enumerate(dims)])
        self.index = torch.cat([torch.arange(size) for size in dims])

    @property
    def pooled(self) -> list[slice]:
        """Return the tokens of each present component in order Y, A, X (spec COSTAR-7)."""
        dx, da, dy, _ = self.dims
        slices = [slice(dx + da, dx + da + dy), slice(dx, dx + da), slice(0, dx)]
        return [s for s in slices if s.stop > s.start]


class FeatureEncoding(nn.Module):
    """A trainable code per feature: component plus index (`tree`), or one row per token (`absolute`; spec COSTAR-2)."""

    def __init__(self, layout: TokenLayout, width: int, kind: str) -> None:
        super().__init__()
        self.layout = layout
        self.kind = kind
        if kind == "tree":
            self.component = nn.Parameter(torch.randn(4, width))
            self.index = nn.Parameter(torch.randn(max(layout.dims), width))
        else:
            self.feature = nn.Parameter(torch.randn(sum(layout.dims), width))

    def forward(self) -> Tensor:
        """Return one code per token, `[F,D]`, statics last."""
        if self.kind == "tree":
            return self.component[self.layout.component] + self.index[self.layout.index]
        return self.feature


class TokenEmbedding(nn.Module):
    """Every scalar times one shared vector, plus bias, plus the feature's code (spec COSTAR-1, COSTAR-2)."""

    def __init__(self, dims: tuple[int, int, int, int], config: EncoderConfig) -> None:
        super().__init__()
        self.layout = TokenLayout(dims)
        self.scalar = nn.Linear(1, config.width)
        self.feature = FeatureEncoding(self.layout, config.width, config.feature_encoding)

    def affine(self) -> Tensor:
        """Return `[1+F,D]`: the slope that all tokens share, then the offset of each, statics last."""
        return torch.cat([self.scalar.weight.T, self.scalar.bias + self.feature()])

    def forward(self, scalars: Tensor, token_XD: Tensor) -> Tensor:
        """Return the tokens `[...,F,D]` of scalars `[...,F]` with the rows of `affine` that belong to them."""
        return scalars[..., None] * token_XD[0] + token_XD[1:]
