"""How far the rows of an unknown table are apart (polars)."""

import math
from dataclasses import dataclass
from typing import Final

import polars as pl

from costar_cli.panel.tables.facts import Facts

__all__ = ["Spacing", "ordered", "spacing_of"]

DAY_US: Final = 86_400 * 10**6
SHORTEST_MONTH_US: Final = 28 * DAY_US
MONTHS: Final = 12


@dataclass(frozen=True, slots=True)
class Spacing:
    """The step of `[time]`, and what its gaps should be."""

    step: int | float | str
    gaps: str


def ordered(time: Facts) -> pl.Series:
    """Return times as numbers or dates, as they are where they are neither."""
    values = time.numbers if time.numbers is not None else time.moments
    return time.text if values is None else values


def spacing_of(subject: pl.Series, time: Facts) -> Spacing:
    """Return the smallest distance between two rows of a subject, and whether the others are multiples of it.

    A gap for each time that is missing or unreadable is none: it closes with the time.
    """
    moments = time.moments
    if moments is None:
        number = ordered(time).cast(pl.Float64)
        size = _smallest(subject, number)
        step: int | float | str = 1 if size is None else int(size) if size.is_integer() else size
    else:
        number = moments.cast(pl.Int64).cast(pl.Float64)
        size = _smallest(subject, number)
        step = "1d" if size is None else _duration(int(size))
        if size is not None and size >= SHORTEST_MONTH_US and moments.drop_nulls().dt.day().n_unique() == 1:
            months = moments.dt.year().cast(pl.Int64) * MONTHS + moments.dt.month().cast(pl.Int64)
            number, size = months.cast(pl.Float64), float(_common(months))
            step = f"{int(size) // MONTHS}y" if size % MONTHS == 0 else f"{int(size)}mo"
    if size is None:
        return Spacing(step, "error")
    steps = _apart(subject, number) / size
    if ((steps - steps.round()).abs() > 1e-6).any():
        return Spacing(step, "ignore")
    return Spacing(step, "fill" if (steps.round() > 1).sum() > time.missing + len(time.odd) else "error")


def _apart(subject: pl.Series, number: pl.Series) -> pl.Series:
    frame = pl.DataFrame({"s": subject, "t": number}).sort("s", "t")
    apart = frame.select(pl.col("t").diff().over("s")).to_series().drop_nulls()
    return apart.filter(apart > 0)


def _smallest(subject: pl.Series, number: pl.Series) -> float | None:
    apart = _apart(subject, number).to_list()
    return float(min(apart)) if apart else None


def _duration(size_us: int) -> str:
    for word, unit in (("w", 7 * DAY_US), ("d", DAY_US), ("h", DAY_US // 24), ("min", 60 * 10**6)):
        if size_us % unit == 0:
            return f"{size_us // unit}{word}"
    return f"{max(1, round(size_us / 10**6))}s"


def _common(months: pl.Series) -> int:
    apart = months.unique().sort().diff().drop_nulls().to_list()
    return math.gcd(*[int(n) for n in apart]) if apart else 1
