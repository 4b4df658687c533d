"""The columns of subject and time, on which a guess of all else rests, and the steps between rows (polars)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final

import numpy as np
import polars as pl

from costar_cli.data.findings import counted, shown
from costar_cli.data.levels import known_reference
from costar_cli.data.table.profile import (
    DATE,
    OUTCOME,
    OUTCOME_TOO,
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
    is_given,
)
from costar_cli.data.table.schema import SERIES
from costar_cli.data.table.schema_column import DAY, MONTHS, parse_step
from costar_cli.data.table.treatments import MOST_LEVELS

UNITS_US: Final = (("w", 7 * DAY), ("d", DAY), ("h", DAY // 24), ("min", 60 * 10**6))
SHORTEST_MONTH_US: Final = 28 * DAY
FEWEST_ROWS: Final = 0.5  # of the steps between the first row and the last, else times are no steps
SLIPS: Final = 20  # one distance in so many may be a slip
TOLERANCE: Final = 1e-6  # of a step
YEAR: Final = frozenset({"year", "years", "yr", "date", "period", "time"})
YEARS: Final = (1900, 2100)
CANDIDATES: Final = 8
UNREAD: Final = "cannot be read as dates: write 2024-01-31, or give their `format` in [time]"


@dataclass(frozen=True, slots=True)
class Spacing:
    """The step of `[time]`, its gaps, what a step is called, what is doubtful, a remark, a format that numbers hide.

    `lacking` counts the steps between rows that gaps leave without one.
    """

    step: int | float | str
    gaps: str
    unit: str = ""
    doubt: str = ""
    remark: str = ""
    format: str = ""
    lacking: int = 0


@dataclass
class Guess:
    """What the table seems to be: a column's entry and a remark each, the remarks on those left out, the doubts.

    `wide` is the file of statics, where there is one; `stop` is the end of the rows' intervals, where they are any, and
    part of them if `closed`; `last_intervals` are those of the subjects' last rows; `rival` is the column that is the
    next likeliest outcome; `steady` says of columns whether they are one per subject; `bins` says that rows
    of one time become one step.
    """

    sample: Sample
    wide: Sample
    subject: str | None = None
    time: str | None = None
    stop: str = ""
    closed: bool = False
    last_intervals: pl.DataFrame | None = None
    entries: dict[str, dict[str, object]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, list[str]] = field(default_factory=dict)
    spacing: Spacing = field(default_factory=lambda: Spacing(1, "error"))
    rival: str = ""
    steady: dict[str, bool] = field(default_factory=dict)
    bins: bool = False

    def named(self, role: str) -> list[str]:
        """Return the columns of a role."""
        return [name for name, entry in self.entries.items() if entry["role"] == role]

    def facts(self, name: str) -> Facts:
        """Return what is known of a column of either file."""
        return self.sample.columns.get(name) or self.wide.columns[name]

    def changes(self, column: Facts) -> bool:
        """Return whether a column of the table has several values within a subject."""
        if self.subject is None or column.name not in self.sample.columns:
            return False
        return self.sample.changers(self.subject)[column.name] > 0

    def rows(self, **columns: pl.Series) -> pl.DataFrame:
        """Return columns of rows beside their subject `s` and time `t`, without rows that lack one of both."""
        keys = {"s": self.facts(self.subject or "").text, "t": ordered(self.facts(self.time or ""))}
        return pl.DataFrame(keys | columns).drop_nulls(["s", "t"])

    def doubt(self, name: str, what: str) -> None:
        """Note that something about a column is to be settled, where something is said."""
        if what:
            self.doubts.setdefault(name, []).append(what)

    def leave_out(self, name: str, why: str, *, ask: bool = False) -> None:
        """Give a column no role, since it is or does something; `ask` makes that a doubt."""
        self.left_out[name] = why
        self.doubt(name, f"left out since it {why}" if ask else "")

    def put_in_order(self) -> None:
        """List columns as the tables have them, whichever rule came first."""
        names = (*self.sample.columns, *self.sample.unusable, *self.wide.columns, *self.wide.unusable)
        place = {name: i for i, name in enumerate(dict.fromkeys(names))}
        self.entries = dict(sorted(self.entries.items(), key=lambda item: place.get(item[0], -1)))
        self.left_out = dict(sorted(self.left_out.items(), key=lambda item: place.get(item[0], -1)))
        self.doubts = dict(sorted(self.doubts.items(), key=lambda item: place.get(item[0], -1)))


def ordered(time: Facts) -> pl.Series:
    """Return times as numbers or dates, as they are where they are neither."""
    values = time.numbers if time.numbers is not None else time.moments
    return time.text if values is None else values


def score(column: Facts, *words: frozenset[str]) -> int:
    """Return how well a name fits: one of its words is known, is a word of the second choice, or none is."""
    return next((3 - i for i, known in enumerate(words) if column.words & known), 0)


def is_unread_time(column: Facts) -> bool:
    """Return whether a name says a date, or nothing but a time, and the values are texts that no format reads."""
    letters = {word for word in column.words if not word.isdigit()}
    named = bool(column.words & DATE) or (bool(letters) and letters <= TIME)
    return named and column.numbers is None and column.moments is None and not column.binary


def ascends(subject: Facts, time: Facts) -> bool:
    """Return whether numbers or dates ascend from row to row of each subject, but for a few slips."""
    if is_unread_time(time):
        return False
    steps = pl.DataFrame({"s": subject.text, "t": ordered(time).to_physical()}).drop_nulls()
    apart = steps.select(pl.col("t").diff().over("s")).to_series().drop_nulls()
    return len(apart) > 0 and int((apart <= 0).sum()) <= len(apart) // SLIPS


def _is_value(column: Facts) -> bool:
    return is_given(column.words) or bool(column.words & (OUTCOME | OUTCOME_TOO))


def _is_called_subject(column: Facts) -> bool:
    """Return whether a name says a subject, and not what is given to one or measured of one."""
    return bool(score(column, SUBJECT, SUBJECT_TOO)) and (not _is_value(column) or "id" in column.words)


def _may_be_subject(column: Facts) -> bool:
    """Return whether a column may say whose a row is: texts or whole numbers that repeat, and no static."""
    if column.words & STATIC or not 0 < column.distinct < column.count:
        return False
    if column.numbers is not None:  # what most columns of a wide table are: no format of dates is tried on them
        values = column.numbers.to_numpy()
        return bool((np.isnan(values) | (values == np.rint(values))).all())  # a few may be missing
    return column.moments is None and not is_unread_time(column)


def _is_time(column: Facts) -> bool:
    """Return whether a column holds dates, or numbers that are called a time."""
    return column.moments is not None or (column.numbers is not None and bool(score(column, TIME, TIME_TOO)))


def _is_end(column: Facts) -> bool:
    return is_follow_up(column.words) or is_death(column.words)


def find_keys(guess: Guess) -> None:
    """Choose the columns of subject and time whose values tell all rows apart, the likeliest pair first.

    A table whose times alone do so is one series, unless a column is called a subject.
    """
    sample = guess.sample
    columns = [c for c in sample.columns.values() if c.missing <= few(sample.height)]
    subjects = [c for c in columns if not _is_end(c) and _may_be_subject(c)]
    named = [c for c in subjects if _is_called_subject(c)]
    named = sorted(named, key=lambda c: (-score(c, SUBJECT, SUBJECT_TOO), c.numbers is not None))[:CANDIDATES]
    times = sorted(
        (c for c in columns if c.distinct > 1 and _is_time(c)),  # dates before numbers, what is called an end last
        key=lambda t: (_is_end(t), t.moments is None, _is_value(t), -score(t, TIME, TIME_TOO)),
    )[:CANDIDATES]
    pair = next(_pairs(sample, columns, named, times, subjects), None)
    if pair is None:  # `doubt_keys` says which of them it is that repeats rows
        subject = next((s for s in named if s.distinct > 1), None)
        keys = [subject.name] if subject else []
        time = min(times, key=lambda t: sample.repeated(*keys, t.name), default=None)
    elif pair[0] is None:
        subject, time = Facts(SERIES, pl.repeat(SERIES, sample.height, dtype=pl.String, eager=True)), pair[1]
        guess.sample = replace(sample, columns={**sample.columns, SERIES: subject})
        guess.doubt(SERIES, "no column is called a subject, and no time is repeated: is this one series?")
    else:
        subject, time = pair
    if subject is not None:
        guess.subject, guess.entries[subject.name] = subject.name, {"role": "subject"}
        if subject.name != SERIES and not _is_called_subject(subject):
            guess.doubt(subject.name, "guessed by its values: does it say whose each row is?")
        if subject.distinct == 2:
            guess.doubt(subject.name, f"only 2 different values ({subject.summary}): are these the subjects?")
    if time is None:
        return
    guess.time, guess.entries[time.name] = time.name, {"role": "time"}
    if is_unread_time(time):
        guess.doubt(time.name, f"named like a time, but its texts ({shown(time.values, 2)}) {UNREAD}")
    elif not score(time, TIME, TIME_TOO) or _is_end(time):
        keys = [guess.subject] if guess.subject else []
        others = [t.name for t in times if t is not time and score(t, TIME, TIME_TOO)]
        rivals = [name for name in others if not guess.sample.repeated(*keys, name)]
        rival = f" {shown(rivals)} may, too." if rivals else ""
        guess.doubt(time.name, f"guessed by its values: does it order the rows of a subject?{rival}")


def _pairs(
    sample: Sample, columns: list[Facts], named: list[Facts], times: list[Facts], subjects: list[Facts]
) -> Iterator[tuple[Facts | None, Facts]]:
    """Yield subject and time of pairs that tell all rows apart, the likeliest first; None is the subject of one series.

    By their values alone, texts that repeat are subjects, and numbers that ascend within them, or texts that are called
    times, are times. Times that tell rows apart alone make one series, first of all where they are in order.
    """

    def apart(subject: Facts, time: Facts, most: int = 0) -> bool:
        return subject is not time and sample.repeated(subject.name, time.name) <= most

    several = [s for s in named if s.distinct > 1]
    for most in (0, few(sample.height)):
        yield from ((s, t) for s in several for t in times if apart(s, t, most))
    columns = [c for c in columns if not _is_end(c)]
    unread = [c for c in columns if c.distinct > 1 and is_unread_time(c)]
    constant = next((s for s in named if s.distinct == 1 and not s.missing), None)
    alone = [t for t in times if not sample.repeated(t.name)]
    in_order = [t for t in alone if any(ordered(t).is_sorted(descending=down) for down in (False, True))]
    yield from ((constant, t) for t in (alone if constant else in_order))
    yield from ((s, t) for s in several for t in unread if apart(s, t))
    others = []  # columns without a telling name: no switch, no levels, no time
    for s in subjects:
        if s in named or _is_value(s) or s.binary or score(s, TIME, TIME_TOO) or s.distinct < 2:
            continue
        levels = s.values if s.numbers is None and s.distinct <= MOST_LEVELS else []
        if s.distinct <= s.count / 2 and known_reference(levels) is None:
            others.append(s)
    others = sorted(others, key=lambda c: c.numbers is not None)[:CANDIDATES]
    yield from ((s, t) for s in others for t in times if apart(s, t))
    yield from ((constant, t) for t in (*alone, *unread) if not sample.repeated(t.name))
    rest = [c for c in columns if c.numbers is not None and not _is_value(c) and not score(c, SUBJECT, SUBJECT_TOO)]
    rest = [c for c in rest if c not in times][:CANDIDATES]
    for s in (*several, *others):
        yield from ((s, t) for t in (*unread, *rest) if apart(s, t) and (t in unread or ascends(s, t)))


def doubt_keys(guess: Guess) -> None:
    """Note what is doubtful about the columns of subject and time."""
    sample, subject, time = guess.sample, guess.subject, guess.time
    for name in (subject, time):
        if name is not None and (missing := sample.columns[name].missing):
            guess.doubt(name, f"{counted(missing, 'row')} without a value")
    if subject is not None and time is not None and (repeated := sample.repeated(subject, time)):
        guess.doubt(time, f"{counted(repeated, 'row')} with the subject and time of an earlier row")
        columns = [c for c in sample.columns.values() if c.distinct > 1]
        whens = combinations([c.name for c in columns if _is_time(c)][:CANDIDATES], 2)
        whos = combinations([c.name for c in columns if score(c, SUBJECT, SUBJECT_TOO)][:CANDIDATES], 2)
        when = next((pair for pair in whens if not sample.repeated(subject, *pair)), None)
        if when is not None and repeated > few(sample.height):
            guess.doubt(time, f"{shown(when)} order rows only together: combine them into one column, such as 2024-01")
        elif who := next((pair for pair in whos if not sample.repeated(*pair, time)), None):
            guess.doubt(subject, f"{shown(who)} identify subjects only together: combine them into one column")
    if time is not None and len(formats := guess.facts(time).date_formats) > 1:
        guess.doubt(time, f"dates read as {formats[0]}, but {' or '.join(formats[1:])} would also fit")


def find_steps(guess: Guess) -> None:
    """Guess the step of time; where steps without a row become missing values, covariates are filled.

    The treatment of an interval goes on until its stop: there treatments are carried, and outcomes count at rows alone.
    """
    if guess.time is None or is_unread_time(guess.facts(guess.time)):
        return
    if guess.subject is None:
        dates = guess.facts(guess.time).moments is not None
        guess.spacing = Spacing("1d" if dates else 1, "error", remark="once subjects are known, how far rows are apart")
        return
    guess.spacing = _spacing_of(guess.facts(guess.subject).text, guess.facts(guess.time))
    guess.doubt(guess.time, guess.spacing.doubt)
    lacking, behind = guess.spacing.lacking, 0
    if guess.last_intervals is not None:  # which go on behind the step of their row, for `behind` steps without one
        step, ends = parse_step(guess.spacing.step), guess.last_intervals.get_columns()
        if step.scale == "month":
            dates = ends[0].dtype.is_temporal()
            ends = [x.dt.year().cast(pl.Int64) * MONTHS + x.dt.month() if dates else x * MONTHS for x in ends]
        elif step.scale == "us":
            ends = [x.cast(pl.Int64) for x in ends]
        behind = int((((ends[1] - ends[0]) / step.size - TOLERANCE).ceil() - 1).clip(0).sum())
    if behind and guess.spacing.gaps == "error":
        guess.spacing = replace(guess.spacing, gaps="fill")
    if guess.spacing.gaps != "fill":
        return
    missing = {"covariate": "fill"} | ({"treatment": "carry", "outcome": "fill"} if guess.stop else {})
    for name, entry in guess.entries.items():
        if str(entry["role"]) in missing:
            guess.entries[name]["missing"] = missing[str(entry["role"])]
    if not guess.stop:
        what = (
            f"{counted(lacking, 'step')} without a row, which `gaps` makes missing values: say what a treatment and an "
            'outcome are there (`missing = "fill"`)'
        )
    else:
        last = f"{counted(behind, 'step')} of last intervals"
        where = f"{counted(lacking, 'step')} between rows without one{f', and {last}' if behind else ''}"
        what = (
            f'{where if lacking else f"{last} without a row"}: treatments go on there (`missing = "carry"`), outcomes '
            "count at rows alone"
        )
    guess.doubt(guess.time, f'{what}, or choose `gaps = "elapsed"`')


def _spacing_of(subject: pl.Series, time: Facts) -> Spacing:
    """Return the step of which the distances between a subject's rows are multiples.

    That is the smallest distance, or the commonest where only a few are no multiples of it. Where neither will do, or
    would leave most steps without a row, rows are counted as steps. A gap for each time that is missing or unreadable
    is none: it closes with the time.
    """
    moments = time.moments
    number = (ordered(time) if moments is None else moments.cast(pl.Int64)).cast(pl.Float64)
    apart = apart_of(subject, number)
    if not len(apart):
        return Spacing(1 if moments is None else "1d", "error")
    smallest, commonest = float(apart.to_numpy().min()), float(apart.mode().sort().to_numpy()[0])
    if moments is not None and smallest >= SHORTEST_MONTH_US and moments.drop_nulls().dt.day().n_unique() == 1:
        months = moments.dt.year().cast(pl.Int64) * MONTHS + moments.dt.month().cast(pl.Int64)
        size = math.gcd(*map(int, months.unique().sort().diff().drop_nulls().to_list()))
        step = f"{size // MONTHS}y" if size % MONTHS == 0 else f"{size}mo"
        unit = "quarter" if step == "3mo" and "%q" in time.date_formats[0] else ""
        spacing = _regular(apart_of(subject, months.cast(pl.Float64)), size, step, time)
        return replace(spacing, unit=unit) if spacing else _irregular(apart, time)
    for size_us in (smallest, commonest):
        if moments is not None:
            units = (f"{int(size_us) // unit}{word}" for word, unit in UNITS_US if int(size_us) % unit == 0)
            spacing = _regular(apart, size_us, next(units, f"{max(1, round(size_us / 10**6))}s"), time)
        else:
            spacing = _regular(apart, size_us, int(size_us) if size_us.is_integer() else size_us, time)
        if spacing and isinstance(spacing.step, int) and time.words & YEAR:
            years = ordered(time).drop_nulls()
            if bool((years.is_between(*YEARS) & (years % 1 == 0)).all()):
                return replace(spacing, step=f"{spacing.step}y", format="%Y")
        if spacing:
            return spacing
    return _irregular(apart, time)


def _regular(apart: pl.Series, size: float, step: float | str, time: Facts) -> Spacing | None:
    """Return the spacing of a step, None where too many distances are no multiples, or too many rows are lacking."""
    steps = apart / size
    off = int(((steps - steps.round()).abs() > TOLERANCE).sum())
    if off > len(apart) // SLIPS or len(apart) < FEWEST_ROWS * float(steps.round().sum()):
        return None
    doubt = f"{counted(off, 'time')} off the steps" if off else ""
    lacking = int((steps.round() - 1).filter(steps.round() > 1).sum())
    gaps = int((steps.round() > 1).sum()) > time.missing + len(time.odd) + off
    return Spacing(step, "fill" if gaps else "error", doubt=doubt, lacking=lacking if gaps else 0)


def _irregular(apart: pl.Series, time: Facts) -> Spacing:
    """Return that each row is the next step, and how uneven the times are."""
    low, middle, high = (float(apart.quantile(q) or 0.0) for q in (0, 0.5, 1))
    if time.moments is None:
        step: int | str = 1
        far = f"{low:g} to {high:g}, half of them up to {middle:g}"
    else:
        unit, size = next(((word, us) for word, us in UNITS_US[1:] if middle >= us), UNITS_US[-1])
        step = f"1{unit}"
        far = f"{low / size:.3g} to {high / size:.3g} {unit}, half of them up to {middle / size:.3g}"
    doubt = f"times are unevenly spaced ({far} apart): models see how long it is to the next row, unless you `bin` them"
    return Spacing(step, "elapsed", "", doubt, "the unit of time: each row is the next step, whenever it is")


def apart_of(subject: pl.Series, number: pl.Series) -> pl.Series:
    """Return how far apart the times of rows of a subject are that follow each other, without those of one time."""
    frame = pl.DataFrame({"s": subject, "t": number}).sort("s", "t")
    apart = frame.select(pl.col("t").diff().over("s")).to_series().drop_nulls()
    return apart.filter(apart > 0).round_sig_figs(12)  # 0.3 - 0.2 is 0.1
