"""How far the rows of an unknown table are apart (polars)."""

import math
from dataclasses import dataclass
from typing import Final

import polars as pl

from costar_cli.datasets.table.profile import Facts
from costar_cli.panel.findings import counted

__all__ = ["Spacing", "ordered", "spacing_of"]

DAY_US: Final = 86_400 * 10**6
UNITS_US: Final = (("w", 7 * DAY_US), ("d", DAY_US), ("h", DAY_US // 24), ("min", 60 * 10**6))
SHORTEST_MONTH_US: Final = 28 * DAY_US
MONTHS: Final = 12
FEWEST_ROWS: Final = 0.5  # of the steps between the first row and the last, else times are no steps
SLIPS: Final = 20  # one distance in so many may be a slip
TOLERANCE: Final = 1e-6  # of a step


@dataclass(frozen=True, slots=True)
class Spacing:
    """The step of `[time]`, what its gaps should be, what a step is called, what is doubtful, a remark on it."""

    step: int | float | str
    gaps: str
    unit: str = ""
    doubt: str = ""
    remark: str = ""


def ordered(time: Facts) -> pl.Series:
    """Return times as numbers or dates, as they are where they are neither."""
    values = time.numbers if time.numbers is not None else time.moments
    return time.text if values is None else values


def spacing_of(subject: pl.Series, time: Facts) -> Spacing:
    """Return the step of which the distances between a subject's rows are multiples.

    That is the smallest distance, or the commonest where only a few are no multiples of it. Where neither will do, or
    would leave most steps without a row, rows are counted as steps. A gap for each time that is missing or unreadable
    is none: it closes with the time.
    """
    moments = time.moments
    number = (ordered(time) if moments is None else moments.cast(pl.Int64)).cast(pl.Float64)
    apart = _apart(subject, number)
    if not len(apart):
        return Spacing(1 if moments is None else "1d", "error")
    smallest, commonest = float(apart.to_numpy().min()), float(apart.mode().sort().to_numpy()[0])
    if moments is not None and smallest >= SHORTEST_MONTH_US and moments.drop_nulls().dt.day().n_unique() == 1:
        months = moments.dt.year().cast(pl.Int64) * MONTHS + moments.dt.month().cast(pl.Int64)
        size = float(_common(months))
        step = f"{int(size) // MONTHS}y" if size % MONTHS == 0 else f"{int(size)}mo"
        return _regular(_apart(subject, months.cast(pl.Float64)), size, step, time) or _irregular(apart, time)
    for size in (smallest, commonest):
        step_of_size = _number(size) if moments is None else _duration(int(size))
        if found := _regular(apart, size, step_of_size, time):
            return found
    return _irregular(apart, time)


def _regular(apart: pl.Series, size: float, step: float | str, time: Facts) -> Spacing | None:
    """Return the spacing of a step, None where too many distances are no multiples, or too many rows are lacking."""
    steps = apart / size
    off = int(((steps - steps.round()).abs() > TOLERANCE).sum())
    if off > len(apart) // SLIPS or len(apart) < FEWEST_ROWS * float(steps.round().sum()):
        return None
    doubts = [f"{counted(off, 'time')} off the steps"] if off else []
    lacking = int((steps.round() - 1).filter(steps.round() > 1).sum())
    gaps = int((steps.round() > 1).sum()) > time.missing + len(time.odd) + off
    if gaps:
        doubts.append(
            f"{counted(lacking, 'step')} without a row, which `gaps` makes missing values: say what a treatment and an "
            'outcome are there (`missing = "fill"`), or choose `gaps = "ignore"`'
        )
    return Spacing(step, "fill" if gaps else "error", doubt="; ".join(doubts))


def _irregular(apart: pl.Series, time: Facts) -> Spacing:
    """Return that each row is the next step, and how uneven the times are."""
    low, middle, high = (float(apart.quantile(q) or 0.0) for q in (0, 0.5, 1))
    if time.moments is None:
        step: int | str = 1
        far = f"{low:g} to {high:g}, half of them up to {middle:g}"
        remark = "not used: each row is the next step"
    else:
        unit, size = next(((word, us) for word, us in UNITS_US[1:] if middle >= us), UNITS_US[-1])
        step = f"{max(1, round(middle / size))}{unit}"
        remark = "the median distance; it says that times are dates, and each row is the next step"
        far = f"{low / size:.3g} to {high / size:.3g} {unit}, half of them up to {middle / size:.3g}"
    doubt = f"times are unevenly spaced ({far} apart): each row counts as the next step, unless you bin them"
    return Spacing(step, "ignore", "row", doubt, remark)


def _apart(subject: pl.Series, number: pl.Series) -> pl.Series:
    frame = pl.DataFrame({"s": subject, "t": number}).sort("s", "t")
    apart = frame.select(pl.col("t").diff().over("s")).to_series().drop_nulls()
    return apart.filter(apart > 0).round_sig_figs(12)  # 0.3 - 0.2 is 0.1


def _number(size: float) -> int | float:
    return int(size) if size.is_integer() else size


def _duration(size_us: int) -> str:
    for word, unit in UNITS_US:
        if size_us % unit == 0:
            return f"{size_us // unit}{word}"
    return f"{max(1, round(size_us / 10**6))}s"


def _common(months: pl.Series) -> int:
    apart = months.unique().sort().diff().drop_nulls().to_list()
    return math.gcd(*[int(n) for n in apart]) if apart else 1
