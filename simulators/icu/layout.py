"""Stay-hours in hour-major order: all stays' hour 0, then all that last longer, and so on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["HourLayout"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class HourLayout:
    """Where each stay-hour is among M rows: hour by hour, stays sorted by falling length (their rank).

    Whoever is present at hour t is then a prefix of whoever was present at hour t-1: series of unequal length advance
    together, one slice per hour and no padding. `start [T+1]` bounds the hours; `rank [M]` and `hour [M]` say whose row
    it is and which; `length [S]` is by rank and `rank_of [S]` by stay.
    """

    start: Ints
    rank: Ints
    hour: Ints
    length: Ints
    rank_of: Ints

    @classmethod
    def of(cls, length_S: Ints) -> Self:
        """Return the layout of stays of these lengths."""
        order = np.argsort(-length_S, kind="stable")
        rank_of = np.empty_like(order)
        rank_of[order] = np.arange(len(order))
        hours = np.arange(int(length_S.max(initial=0)))
        present = (length_S[:, None] > hours).sum(axis=0)
        start = np.concatenate([[0], np.cumsum(present)])
        hour = np.repeat(hours, present)
        return cls(start, np.arange(len(hour)) - start[hour], hour, length_S[order], rank_of)

    @property
    def n_rows(self) -> int:
        """Return M."""
        return len(self.hour)

    def hours(self) -> Iterator[slice]:
        """Yield the rows of hour 0, 1, ..."""
        for lo, hi in zip(self.start[:-1].tolist(), self.start[1:].tolist(), strict=True):
            yield slice(lo, hi)

    def stay_major(self) -> Ints:
        """Return the rows `[M]` stay by stay, in the order of the lengths given."""
        length = self.length[self.rank_of]
        hour = np.arange(self.n_rows) - np.repeat(np.cumsum(length) - length, length)
        rows: Ints = self.start[hour] + np.repeat(self.rank_of, length)
        return rows

    def at(self, rank: Ints, hour: Ints) -> Bools:
        """Return `[M]` with the given stay-hours true; hours after the end of a stay are left out."""
        within = hour < self.length[rank]
        marked = np.zeros(self.n_rows, dtype=np.bool_)
        marked[self.start[hour[within]] + rank[within]] = True
        return marked

    def renewals(self, rng: np.random.Generator, gaps: Sequence[int]) -> Bools:
        """Return `[M]` with events that follow each other after one of the gaps, from a random phase on."""
        n, longest = len(self.length), int(self.length.max(initial=0))
        gap = rng.choice(np.asarray(gaps), size=(n, longest // min(gaps) + 2))
        gap[:, 0] = rng.integers(gap[:, 0])
        time = np.cumsum(gap, axis=1)
        return self.at(np.repeat(np.arange(n), time.shape[1]), time.ravel())

    def few(self, rng: np.random.Generator, *, share: float, most: int) -> Bools:
        """Return `[M]` with 1 to `most` events at random hours in a share of the stays."""
        rank = np.flatnonzero(rng.random(len(self.length)) < share)
        rank = np.repeat(rank, rng.integers(1, most + 1, size=len(rank)))
        return self.at(rank, (rng.random(len(rank)) * self.length[rank]).astype(np.int64))
