"""Attention of one new step to keys and values that are cached: of a prefix, and of the steps since.

Letters beside the project's: `U` attention units, `M` histories (subject and origin), `G` plans of each history, `W`
steps of the prefix, `J` steps since, `h` heads, `n` head width. The plans of a history share the keys of its prefix.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor

from costar_cli.methods.transformers.units import Attention

Units = slice | list[int]


class KeyValueCache(NamedTuple):
    """Keys and values `[U,M,h,W,n]` of prefixes, or `[U,M,h,G,J,n]` of the steps since."""

    keys: Tensor
    values: Tensor

    @classmethod
    def of_series(cls, attention: Attention, sources_UNTD: Tensor, units: Units = slice(None)) -> Self:
        """Return keys and values `[U,N,h,T,n]` of every step of N series."""
        keys, values = (x.transpose(2, 3).contiguous() for x in attention.keys_values(sources_UNTD, units))
        return cls(keys, values)

    def prefix(self, subject_M: Tensor, origin: int) -> Self:
        """Return keys and values of the steps up to an origin, of some of the series."""
        keys, values = (x[:, :, :, : origin + 1].index_select(1, subject_M) for x in self)
        return type(self)(keys, values)

    @classmethod
    def grown(cls, before: Self | None, attention: Attention, tokens_UMGD: Tensor, units: Units = slice(None)) -> Self:
        """Return the steps since with one more: the new step's."""
        new = [x.transpose(2, 3)[..., None, :] for x in attention.keys_values(tokens_UMGD, units)]
        if before is None:
            return cls(*new)
        return cls(*(torch.cat(pair, dim=-2) for pair in zip(before, new, strict=True)))


class Relative(NamedTuple):
    """Relative keys and values `[W+J,n]` of the steps that a new one may see, oldest first."""

    keys: Tensor
    values: Tensor

    @classmethod
    def at(cls, keys: Tensor, values: Tensor, nearest: int, count: int, zero_row: int) -> Self:
        """Return the rows of `count` steps, the last of them at distance `nearest`.

        Args:
            keys: relative keys; row `zero_row - d` belongs to distance d, and row 0 to all beyond.
            values: relative values, likewise.
            nearest: distance of the youngest step.
            count: number of steps.
            zero_row: row of distance 0.
        """
        distance = torch.arange(nearest + count - 1, nearest - 1, -1, device=keys.device)
        row = (zero_row - distance).clamp(min=0)
        return cls(keys[row], values[row])


def past_and_since(past: Relative, since: Relative) -> Relative:
    """Return both, one behind the other."""
    return Relative(torch.cat([past.keys, since.keys]), torch.cat([past.values, since.values]))


def attend(
    attention: Attention,
    asking_UMGD: Tensor,
    relative: Relative,
    *,
    past: KeyValueCache | None = None,
    since: KeyValueCache | None = None,
    units: Units = slice(None),
) -> Tensor:
    """Return the output `[U,M,G,D]` of attention units for one new step, to everything that is kept."""
    q_UMhGn = attention.queries(asking_UMGD, units).transpose(2, 3)
    score = q_UMhGn @ relative.keys.T
    n_past = 0 if past is None else past.keys.shape[3]
    if past is not None:
        score[..., :n_past] += q_UMhGn @ past.keys.transpose(-1, -2)
    if since is not None:
        score[..., n_past:] += (q_UMhGn[..., None, :] * since.keys).sum(dim=-1)
    p = torch.softmax(score, dim=-1)
    attended = p @ relative.values
    if past is not None:
        attended += p[..., :n_past] @ past.values
    if since is not None:
        attended += (p[..., n_past:, None] * since.values).sum(dim=-2)
    return attention.finish(attended.transpose(2, 3), asking_UMGD, units)
