"""What a guess knows of a table: the columns of subject and time, on which all else rests, and its steps (polars)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

import polars as pl

from costar_cli.datasets.table.profile import (
    STATIC,
    SUBJECT,
    SUBJECT_TOO,
    TIME,
    TIME_TOO,
    Facts,
    Sample,
    few,
    is_death,
    is_follow_up,
)
from costar_cli.datasets.table.schema_time import DAY, MONTHS
from costar_cli.panel.findings import counted, shown

UNITS_US: Final = (("w", 7 * DAY), ("d", DAY), ("h", DAY // 24), ("min", 60 * 10**6))
SHORTEST_MONTH_US: Final = 28 * DAY
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


def _spacing_of(subject: pl.Series, time: Facts) -> Spacing:
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
        step_of_size = (int(size) if size.is_integer() else size) if moments is None else _duration(int(size))
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
            'outcome are there (`missing = "fill"`), or choose `gaps = "elapsed"`'
        )
    return Spacing(step, "fill" if gaps else "error", doubt="; ".join(doubts))


def _irregular(apart: pl.Series, time: Facts) -> Spacing:
    """Return that each row is the next step, and how uneven the times are."""
    low, middle, high = (float(apart.quantile(q) or 0.0) for q in (0, 0.5, 1))
    if time.moments is None:
        step: int | str = 1
        far = f"{low:g} to {high:g}, half of them up to {middle:g}"
        remark = "the unit of time: each row is the next step, whenever it is"
    else:
        unit, size = next(((word, us) for word, us in UNITS_US[1:] if middle >= us), UNITS_US[-1])
        step = f"1{unit}"
        remark = "the unit of time: each row is the next step, whenever it is"
        far = f"{low / size:.3g} to {high / size:.3g} {unit}, half of them up to {middle / size:.3g}"
    told = "models are told how long it is to the next row, unless you `bin` them"
    doubt = f"times are unevenly spaced ({far} apart): {told}"
    return Spacing(step, "elapsed", "", doubt, remark)


def _apart(subject: pl.Series, number: pl.Series) -> pl.Series:
    frame = pl.DataFrame({"s": subject, "t": number}).sort("s", "t")
    apart = frame.select(pl.col("t").diff().over("s")).to_series().drop_nulls()
    return apart.filter(apart > 0).round_sig_figs(12)  # 0.3 - 0.2 is 0.1


def _duration(size_us: int) -> str:
    for word, unit in UNITS_US:
        if size_us % unit == 0:
            return f"{size_us // unit}{word}"
    return f"{max(1, round(size_us / 10**6))}s"


def _common(months: pl.Series) -> int:
    apart = months.unique().sort().diff().drop_nulls().to_list()
    return math.gcd(*[int(n) for n in apart]) if apart else 1


CANDIDATES: Final = 8


@dataclass
class Guess:
    """What the table seems to be: a column's entry and a remark each, the remarks on those left out, the doubts.

    `wide` is the file of statics, where there is one; `rival` is the column that is the next likeliest outcome.
    """

    sample: Sample
    wide: Sample
    subject: str | None = None
    time: str | None = None
    entries: dict[str, dict[str, object]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, list[str]] = field(default_factory=dict)
    spacing: Spacing = field(default_factory=lambda: Spacing(1, "error"))
    rival: str = ""

    def named(self, role: str) -> list[str]:
        """Return the columns of a role."""
        return [name for name, entry in self.entries.items() if entry["role"] == role]

    def facts(self, name: str) -> Facts:
        """Return what is known of a column of either file."""
        return self.sample.columns.get(name) or self.wide.columns[name]

    def doubt(self, name: str, what: str) -> None:
        """Note that something about a column is to be settled, where something is said."""
        if what:
            self.doubts.setdefault(name, []).append(what)

    def leave_out(self, name: str, why: str, *, ask: bool = False) -> None:
        """Give a column no role, since it is or does something; `ask` makes that a doubt."""
        self.left_out[name] = why
        self.doubt(name, f"left out since it {why}" if ask else "")


def find_keys(guess: Guess) -> None:
    """Choose the pair of columns, by name first, whose values tell all rows apart."""
    sample = guess.sample
    columns = [c for c in sample.columns.values() if c.missing <= few(sample.height)]
    columns = [c for c in columns if not is_follow_up(c.words) and not is_death(c.words)]
    subjects = [c for c in columns if 1 < c.distinct < c.count and c.moments is None and not c.words & STATIC]
    subjects = sorted(subjects, key=lambda c: (-score(c, SUBJECT, SUBJECT_TOO), c.numbers is not None))[:CANDIDATES]
    times = [c for c in columns if c.distinct > 1 and ordered(c) is not c.text]
    times = sorted(times, key=lambda c: (-score(c, TIME, TIME_TOO), c.moments is None))[:CANDIDATES]
    pairs = [(s, t) for s in subjects for t in times if s.name != t.name]
    named = [(s, t) for s, t in pairs if score(s, SUBJECT, SUBJECT_TOO) and score(t, TIME, TIME_TOO)]
    slips = few(sample.height)
    tried = [(s.name, t.name, most) for group, most in ((named, 0), (named, slips), (pairs, 0)) for s, t in group]
    for subject, time, most in tried:
        if sample.repeated(subject, time) <= most:
            guess.subject, guess.time = subject, time
            break
    else:
        guess.subject, guess.time = next(((s.name, t.name) for s, t in named), (None, None))
    for role, name in (("subject", guess.subject), ("time", guess.time)):
        if name is not None:
            guess.entries[name] = {"role": role}


def find_steps(guess: Guess) -> None:
    """Guess the step of time; where steps without a row become missing values, covariates are filled."""
    if guess.subject is None or guess.time is None:
        return
    guess.spacing = _spacing_of(guess.facts(guess.subject).text, guess.facts(guess.time))
    guess.doubt(guess.time, guess.spacing.doubt)
    if guess.spacing.gaps == "fill":
        for name in guess.named("covariate"):
            guess.entries[name]["missing"] = "fill"


def score(column: Facts, *words: frozenset[str]) -> int:
    """Return how well a name fits: one of its words is known, is a word of the second choice, or none is."""
    for i, known in enumerate(words):
        if column.words & known:
            return 3 - i
    return 0


def doubt_keys(guess: Guess) -> None:
    """Note what is doubtful about the columns of subject and time."""
    for name, what in _doubts(guess.sample, guess.subject, guess.time):
        guess.doubt(name, what)
    if guess.time is not None and len(formats := guess.facts(guess.time).date_formats) > 1:
        guess.doubt(guess.time, f"dates read as {formats[0]}, but {' or '.join(formats[1:])} would also fit")


def _doubts(sample: Sample, subject: str | None, time: str | None) -> Iterator[tuple[str, str]]:
    for name in (subject, time):
        if name is not None and (missing := sample.columns[name].missing):
            yield name, f"{counted(missing, 'row')} without a value"
    if subject is None or time is None or not (repeated := sample.repeated(subject, time)):
        return
    yield time, f"{counted(repeated, 'row')} with the subject and time of an earlier row"
    near = [c.name for c in sample.columns.values() if c.distinct > 1 and score(c, SUBJECT, SUBJECT_TOO)]
    both = next((pair for pair in combinations(near[:CANDIDATES], 2) if not sample.repeated(*pair, time)), None)
    if both is not None:
        yield subject, f"{shown(both)} identify subjects only together: combine them into one column"
