"""Subjects and steps: who is who, in which order the rows come, and where rows are missing or too many."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.data.findings import counted, invalid, raise_errors
from costar_cli.data.schema import steps_axis
from costar_cli.data.table.parse import UNREADABLE, Reading, Rows, unreadable, wrong_values
from costar_cli.data.table.schema import TableSchema
from costar_cli.diagnostics import Diagnostic
from costar_cli.reporting import Reporter

LONGEST: Final = 32_767  # steps: origins are 16-bit
LONGEST_LABEL: Final = 200
MOST_ROWS: Final = 500_000_000  # of a table whose gaps are filled
WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")
SECOND: Final = 10**6  # microseconds
UNEVEN: Final = 1.5  # times as far apart
TOLERANCE: Final = 1e-6  # of a step

Ints = NDArray[np.int64]
Times = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Subjects:
    """Who there is, in order: ids that are whole numbers by number, all others by label."""

    names: tuple[str, ...]
    ids: Ints
    labelled: bool

    def __len__(self) -> int:
        return len(self.names)

    def take(self, kept: NDArray[np.bool_]) -> "Subjects":
        """Return some of them; labels are numbered anew."""
        names = tuple(name for name, keep in zip(self.names, kept, strict=True) if keep)
        return Subjects(names, np.arange(len(names)) if self.labelled else self.ids[kept], self.labelled)

    def rows_of(self, names: pl.Series) -> Ints:
        """Return each name's place here, -1 for one that is not here."""
        known = pl.Series(self.names, dtype=pl.String)
        places = pl.Series(range(len(known)), dtype=pl.Int64)
        found = names.replace_strict(known, places, default=-1, return_dtype=pl.Int64)
        return found.fill_null(-1).to_numpy().astype(np.int64, copy=False)


@dataclass(frozen=True, eq=False)
class Keys:
    """The cells of the panel, sorted by subject and step: `subject [M]`, `step [M]`, and the row `[M]` that each is.

    A step that was filled in has row -1. `length [N]` counts the steps of each subject.
    """

    subjects: Subjects
    subject: Ints
    step: Ints
    row: Ints
    length: Ints

    @property
    def first(self) -> Ints:
        """Return the cell `[N]` at which each subject begins."""
        return np.concatenate([[0], np.cumsum(self.length)[:-1]]).astype(np.int64)

    @property
    def last_of_subject(self) -> NDArray[np.bool_]:
        """Return the mask `[M]` of the last cell of each subject."""
        last = np.zeros(len(self.subject), dtype=bool)
        last[np.cumsum(self.length) - 1] = True
        return last

    def keep(self, kept: NDArray[np.bool_]) -> "Keys":
        """Return the cells of some subjects `[N]`; of all of them, these themselves."""
        if kept.all():
            return self
        cells, number = kept[self.subject], np.cumsum(kept) - 1
        return Keys(
            self.subjects.take(kept),
            number[self.subject[cells]].astype(np.int64),
            self.step[cells],
            self.row[cells],
            self.length[kept],
        )

    def filled(self, length: Ints) -> "Keys":
        """Return these cells and those between and behind them that make so many steps `[N]`; these have no row."""
        start = np.cumsum(length) - length
        subject = np.repeat(np.arange(len(length)), length)
        row = np.full(len(subject), -1, dtype=np.int64)
        row[start[self.subject] + self.step] = self.row
        return Keys(self.subjects, subject, np.arange(len(subject)) - start[subject], row, length)


def number_subjects(names: pl.Series) -> Subjects:
    """Return the subjects of a column of text: numbers in their order if all are whole, else labels in theirs."""
    unique = [str(name) for name in names.unique().to_list()]
    if all(WHOLE.fullmatch(name) for name in unique):
        ordered = sorted(unique, key=int)
        return Subjects(tuple(ordered), np.array([int(name) for name in ordered], dtype=np.int64), labelled=False)
    return Subjects(tuple(sorted(unique)), np.arange(len(unique), dtype=np.int64), labelled=True)


def read_keys(
    rows: Rows,
    subject: Reading,
    time: Reading,
    schema: TableSchema,
    reporter: Reporter,
    *,
    findings: Sequence[Diagnostic] = (),
    also: Sequence[Diagnostic] = (),
    wrong: list[Diagnostic] | None = None,
    whole: bool = True,
) -> Keys:
    """Return the cells of the panel.

    Identical rows of one subject and time count once. Subjects that are too short are left out, steps beyond
    `max_length` too.

    `rows` all have a subject and a time (`usable_rows`); where others had not, they are not `whole`, and gaps mean
    nothing. `findings`, what is wrong with rows and values, is told together with what is wrong here; `also` only where
    something else is wrong, too: it may be about subjects that are left out later. With a list `wrong`, all that is
    wrong goes there, and the cells are as good as can be.

    Raises:
        DataError: rows that contradict each other, times off the steps, gaps.
    """
    subjects, code, when, order = _in_order(rows, subject, time)
    # The rows whose subject and time an earlier row has, too, and the rows before them
    same = (code[order][1:] == code[order][:-1]) & (when[order][1:] == when[order][:-1])
    later, earlier = order[1:][same], order[:-1][same]
    found = [*findings, *_contradictions(rows, later, earlier)]
    if len(later):
        order = order[~np.isin(order, later)]
        if len(found) == len(findings):
            reporter.say(Diagnostic.of("rows-dropped", rows=counted(len(later), "duplicate row")))
    code, when = code[order], when[order]
    first = np.concatenate([[True], code[1:] != code[:-1]])
    start = np.flatnonzero(first)[np.cumsum(first) - 1]

    def place(at: int) -> str:
        return rows.place(int(order[at]))

    step, off = _steps(when, start, first, schema, place)
    found += off if whole else []
    if wrong is None:
        raise_errors([*found, *also] if found else [], what="the table")
    else:
        wrong += found
    if schema.time.gaps == "ignore":
        # Warn that rows which are not equally far apart count as steps that are, and of dates within a second
        close = _within_a_second(when, first, schema)
        if close.any():
            count, first_at = counted(int(close.sum()), "row"), place(int(close.argmax()))
            reporter.say(Diagnostic.of("rows-close", rows=count, place=first_at))
        apart = (np.diff(when, prepend=0) / schema.time.parsed.size)[~first]
        if len(apart) and apart.max() > UNEVEN * apart.min():
            unit = schema.time.parsed.word
            least, most = float(apart.min()), float(apart.max())
            reporter.say(Diagnostic.of("rows-uneven", least=least, most=most, axis=steps_axis(unit)))
    keys = Keys(subjects, code, step, order, np.bincount(code, minlength=len(subjects)).astype(np.int64))
    if schema.max_length is not None and not (kept := keys.step < schema.max_length).all():
        cut, longest = len(np.unique(keys.subject[~kept])), schema.max_length
        reporter.say(Diagnostic.of("series-cut", subjects=counted(cut, "subject"), steps=counted(longest, "step")))
        length = np.bincount(keys.subject[kept], minlength=len(subjects)).astype(np.int64)
        keys = replace(keys, subject=keys.subject[kept], step=keys.step[kept], row=keys.row[kept], length=length)
    steps = keys.step[np.cumsum(keys.length) - 1] + 1  # with those between rows
    refuse_long(subjects, steps)
    if schema.time.gaps == "fill" and (lacking := int(steps.sum()) - len(keys.step)):
        reporter.say(Diagnostic.of("steps-filled", steps=counted(lacking, "step")))
        keys = keys.filled(steps)
    return keys.keep(long_enough(keys, schema.min_length, reporter))


def usable_rows(rows: Rows, subject: Reading, time: Reading) -> tuple[Rows, list[Diagnostic]]:
    """Return the rows that say of whom and when they are, and what is wrong with the others."""
    findings = []
    for reading, what in ((subject, "subject"), (time, "time")):
        missing = rows.series(reading).is_null()
        if missing.any():
            problem, fix = f"without a {what}", f"give each row a {what}"
            if what == "subject":  # whose name may stand for a missing value, such as Namibia's `NA`
                [cell] = rows.cells([(reading, int(missing.arg_max() or 0))])
                if cell is not None and (text := str(cell).strip()):
                    fix += f"; if '{text}' is the name of one, leave it out of `blank`, at the top of the schema"
                elif not rows.files[0].path.is_file():
                    fix += "; if one is called NA, read the file with `keep_default_na=False` in pandas"
            findings.append(wrong_values(reading.column, missing, problem, rows.place, fix, one="row"))
    findings += unreadable(rows, [time])
    names = rows.series(subject)
    odd = (names.str.len_chars() > LONGEST_LABEL) | names.str.contains(r"[\x00-\x1f\x7f]")
    if (odd := odd.fill_null(value=False)).any():
        place = f"first in {rows.place(int(odd.arg_max() or 0))}"
        problem = f"column '{subject.column}': subjects are one line of at most {LONGEST_LABEL} characters"
        findings.append(invalid(problem, place, "shorten the names"))
    if not findings:
        return rows, []
    when = rows.series(time)
    known = rows.series(subject).is_not_null() & when.is_not_null()
    known &= when.is_not_nan() if when.dtype.is_float() else when != UNREADABLE
    return rows.of(rows.frame.filter(known)), findings


def _in_order(rows: Rows, subject: Reading, time: Reading) -> tuple[Subjects, Ints, Times, Ints]:
    """Return the subjects; of each row its subject's number and its time; and the rows in the order of both."""
    names = rows.series(subject)
    subjects = number_subjects(names)
    code = subjects.rows_of(names)
    del names  # they take more memory than what follows
    when = rows.series(time).to_numpy()
    same = code[1:] == code[:-1]
    if ((code[1:] > code[:-1]) | same & (when[1:] >= when[:-1])).all():  # sorted already, as most tables are
        return subjects, code, when, np.arange(rows.height)
    return subjects, code, when, np.lexsort((when, code))  # which keeps the order of rows that are the same in both


def _contradictions(rows: Rows, later: Ints, earlier: Ints) -> list[Diagnostic]:
    """Return that repeated rows say something else than those before them, if some do."""
    differs = np.zeros(len(later), dtype=bool)
    for reading in rows.readings if len(later) else ():
        values = rows.series(reading)
        differs |= values[later].ne_missing(values[earlier]).to_numpy()
    if not differs.any():
        return []
    later, earlier = later[differs], earlier[differs]
    problem = f"{counted(len(later), 'row')} with the subject and time of another row but different values"
    where = f"first {rows.place(int(later[0]))}, which contradicts {rows.place(int(earlier[0]))}"
    return [invalid(problem, where, "keep one row per subject and time")]


def _steps(
    when: Times, start: Ints, first: NDArray[np.bool_], schema: TableSchema, place: Callable[[int], str]
) -> tuple[Ints, list[Diagnostic]]:
    """Return the step of each row, counted from the subject's first one, and what is wrong with the times.

    Where something is, each row is the next step.
    """
    position = np.arange(len(when)) - start
    clock, column = schema.time, schema.named("time")[0]
    if clock.by_row:
        if clock.gaps == "ignore" or not (close := _within_a_second(when, first, schema)).any():
            return position, []
        what, fix = "within a second of another row of its subject", "keep one row per visit"
        return position, [wrong_values(column, close, what, place, fix, one="row")]
    ahead: NDArray[np.float64] = (when - when[start]) / clock.parsed.size
    step = np.rint(ahead).astype(np.int64)
    off = np.abs(ahead - step) > TOLERANCE
    del ahead
    if off.any():
        fix = 'correct `step` in [time], or choose there `gaps = "elapsed"` for visits at any time or `bin = true`'
        return position, [
            wrong_values(column, off, "not a whole number of steps after the first", place, fix, one="time")
        ]
    jump = np.diff(step, prepend=0)
    jump[first] = 1
    if (jump == 0).any():
        what = "in the same step as another row"
        fix = "keep one row per step, or make one of several: `bin = true` in [time]"
        return position, [wrong_values(column, jump == 0, what, place, fix, one="row")]
    if schema.time.gaps == "error" and (jump > 1).any():
        fix = 'add the rows, correct `step` in [time], or choose `gaps = "fill"` or "elapsed" there'
        gap = wrong_values(column, jump > 1, "between rows of a subject", place, fix, one="gap")
        return position, [replace(gap, subject=gap.subject.replace("first in", "first before", 1))]
    return step, []


def _within_a_second(when: Times, first: NDArray[np.bool_], schema: TableSchema) -> NDArray[np.bool_]:
    """Return which rows, in the order of time, have a date less than a second after the row before."""
    near: NDArray[np.bool_] = ~first & (np.diff(when, prepend=0) < SECOND) & (schema.time.parsed.scale == "us")
    return near


def refuse_long(subjects: Subjects, length: Ints) -> None:
    """Stop where a subject has more steps `[N]` than an origin can count, filled ones included.

    Raises:
        DataError: naming the subject, or that all together are too many.
    """
    if (length > LONGEST).any():
        name = subjects.names[int(length.argmax())]
        problem = f"a series of {int(length.max()):,} steps, more than {LONGEST:,}"
        fix = "give `max_length`, or longer steps in [time]"
        raise_errors([invalid(problem, f"subject {name}", fix)], what="the table")
    if int(length.sum()) > MOST_ROWS:
        problem = f"the steps of all subjects are more than {MOST_ROWS:,}"
        raise_errors([invalid(problem, "", "give longer steps in [time]")], what="the table")


def long_enough(keys: Keys, shortest: int, reporter: Reporter) -> NDArray[np.bool_]:
    """Return which subjects `[N]` have so many steps.

    Raises:
        DataError: nobody has.
    """
    kept: NDArray[np.bool_] = keys.length >= shortest
    if kept.all():
        return kept
    least = counted(shortest, "step")
    if not kept.any():
        problem = f"no subject has {least}, of {counted(len(kept), 'subject')}"
        fix = "give longer series" + ", or lower `min_length`" * bool((keys.length > 1).any())
        raise_errors([invalid(problem, "min_length", fix)], what="the table")
    reporter.say(Diagnostic.of("series-short", subjects=counted(int((~kept).sum()), "subject"), least=least))
    return kept
