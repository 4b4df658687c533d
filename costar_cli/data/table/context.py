"""A table on its way to a panel: as it was read, and what its encoding shares and finds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.data.dataset import Part
from costar_cli.data.dose import Dose
from costar_cli.data.findings import counted, invalid
from costar_cli.data.table.index import Ints, Keys, Times
from costar_cli.data.table.parse import Reading, Rows, wrong_values
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_column import ENDS
from costar_cli.data.table.scratch import SMALLER, require_memory
from costar_cli.diagnostics import Diagnostic
from costar_cli.reporting import Reporter

SMALL: Final = 100_000_000  # bytes: below, nobody asks how much is free
FLOAT, DATE = 4, 8  # bytes of a value, and of a date
READ_BYTES: Final = 75  # of a cell: texts, numbers and codes of the column that is encoded
CHECK_BYTES: Final = 16  # of a padded cell: a variable in double precision, twice, while it is checked
PADDING: Final = 2  # times as many steps as rows: a long series among short ones is to blame
OF_DATES: Final = {"weekday": 7, "month": 2, "hour": 2}  # covariates

Column = Literal["covariate", "treatment", "outcome", "static"]


class PartSize(NamedTuple):
    """How many cells a part has, and how many with the padding behind its series."""

    cells: int
    padded: int

    @classmethod
    def of(cls, steps: Ints) -> "PartSize":
        """Return the size of a part that has so many steps `[N]` of each subject."""
        return cls(int(steps.sum()), int((steps > 0).sum() * steps.max(initial=0)))


class MemoryBudget:
    """What a panel takes while it is encoded, laid out and checked: refused where there is no memory for it.

    Each column of the schema is one of the panel until `widen` says otherwise.

    Args:
        keys: the cells.
        steps: how many steps `[N]` of each subject each part has.
        schema: the columns.
        asks: whether test subjects are asked what came next at each step.
    """

    def __init__(self, keys: Keys, steps: Mapping[Part, Ints], schema: TableSchema, *, asks: bool) -> None:
        self._names, self._steps = keys.subjects.names, np.maximum.reduce(list(steps.values()))
        self._sizes = {part: PartSize.of(steps_N) for part, steps_N in steps.items()}
        origins = sum(
            np.maximum(of_N - schema.horizon, 0).sum() for part, of_N in steps.items() if part.split == "test"
        )
        self._answers = int(origins) * schema.horizon * asks
        self._dated = schema.time.by_row and schema.time.parsed.scale != "number"
        roles: tuple[Column, ...] = ("covariate", "treatment", "outcome", "static")
        self._width = {role: len(schema.named(role)) for role in roles}
        self._width["covariate"] += sum(OF_DATES[name] for name in schema.time.calendar)
        self._masked = False

    def widen(self, role: Column, by: int) -> None:
        """Count columns of a role that the panel has beyond those of the schema, or lacks.

        Raises:
            NoRoomError: there is too little memory for them.
        """
        self._width[role] += by
        if by > 0:
            self.require()

    def masks(self, masked: bool) -> None:  # noqa: FBT001 - that is all it says
        """Count a byte per covariate for which were observed, if there is one.

        Raises:
            NoRoomError: there is too little memory for them.
        """
        self._masked = masked
        self.require()

    def require(self) -> None:
        """See that there is memory for the panel.

        Raises:
            NoRoomError: there is too little; saying whose long series all are padded to, if that is why.
        """
        if (needed := self.needed) < SMALL:
            return
        subjects, longest = int((self._steps > 0).sum()), int(self._steps.max())
        cells, padded = (sum(sizes) for sizes in zip(*self._sizes.values(), strict=True))
        what, fix = f"{subjects:,} subjects of up to {longest:,} steps", SMALLER
        if padded > PADDING * cells:
            name, mean = self._names[int(self._steps.argmax())], self._steps.sum() / subjects
            what = f"{subjects:,} subjects, padded to the {longest:,} steps of subject {name} (the mean is {mean:.0f}),"
            fix = f"leave out subject {name}, give `max_length`, or give costar more memory"
        require_memory(needed, f"{what} in {sum(self._width.values())} columns take", "as a panel", fix)

    @property
    def needed(self) -> int:
        """Return how many bytes the panel takes at most, on top of the rows and the order that are held already."""
        x, a, y, v = (self._width[role] for role in ("covariate", "treatment", "outcome", "static"))
        arrays = (FLOAT * x, FLOAT * a, FLOAT * y, y, x * self._masked)  # the last two say what was observed
        cells, padded = (sum(sizes) for sizes in zip(*self._sizes.values(), strict=True))
        most_cells, most_padded = (max(sizes) for sizes in zip(*self._sizes.values(), strict=True))
        encoded = cells * (sum(arrays) + max(READ_BYTES, FLOAT * x))
        laid_out = max(
            cells * sum(arrays[i:]) + padded * sum(arrays[: i + 1]) + most_cells * arrays[i] for i in range(len(arrays))
        )
        answers = self._answers * (6 * a + FLOAT * y + 9)  # plans as numbers and as bytes; steps
        checked = padded * sum(arrays) + max(answers, CHECK_BYTES * most_padded)
        dates, statics = DATE * padded * self._dated, 2 * FLOAT * v * len(self._steps)
        return int(max(encoded, laid_out + dates, checked + dates) + statics)


Mask = NDArray[np.bool_]

LEARNED: Final = Part.all().index(Part("source", "train"))


@dataclass(frozen=True, eq=False)
class Table:
    """The files of a data set as they were read: every column that is used, by cell `[M]` or by subject `[N]`.

    Args:
        keys: the cells.
        time: how the time of each row of the long table was read.
        rows: the long table.
        readings: how each of its columns was read, by name.
        wide: the statics file, where there is one.
        wide_readings: the same for it.
        wide_row: each subject's row there, -1 where there is none.
    """

    keys: Keys
    time: Reading
    rows: Rows
    readings: Mapping[str, Reading]
    wide: Rows | None
    wide_readings: Mapping[str, Reading]
    wide_row: Ints

    @property
    def times(self) -> Times:
        """Return the time of each row of the long table."""
        return self.rows.series(self.time).to_numpy()

    @property
    def last_rows(self) -> Ints:
        """Return the last cell `[N]` of each subject that has a row."""
        cells, last = np.flatnonzero(self.keys.row >= 0), np.zeros(len(self.keys.subjects), dtype=np.int64)
        last[self.keys.subject[cells]] = cells
        return last

    def keep(self, kept: Mask) -> "Table":
        """Return the table of some subjects `[N]`."""
        return replace(self, keys=self.keys.keep(kept), wide_row=self.wide_row[kept])

    def column(self, name: str) -> pl.Series:
        """Return a column per cell, null where there is no value."""
        if self.wide is not None and name in self.wide_readings:
            return _gathered(self.wide.series(self.wide_readings[name]), self.wide_row[self.keys.subject])
        reading = self.readings[name]
        return _gathered(self.rows.series(reading), self._rows_of(reading.shift))

    def _rows_of(self, shift: int) -> Ints:
        """Return the row whose value counts at each cell, -1 where there is none (spec TABLE-9)."""
        keys = self.keys
        if not shift:
            return keys.row
        from_, length = keys.step - shift, keys.length[keys.subject]
        there = (from_ >= 0) & (from_ < length)
        at = np.where(there, np.arange(len(keys.row)) - shift, 0)
        return np.where(there, keys.row[at], -1).astype(np.int64)

    def subject_values(self, name: str) -> tuple[pl.Series, list[Diagnostic]]:
        """Return a column per subject `[N]`, null where there is no value, and what is wrong with it.

        In the long table a subject's values must agree; rows without one say nothing.
        """
        if self.wide is not None and name in self.wide_readings:
            return _gathered(self.wide.series(self.wide_readings[name]), self.wide_row), []
        known = pl.DataFrame({"subject": self.keys.subject, "value": self.column(name)}).with_row_index("cell")
        known = known.drop_nulls("value")
        first = known.unique("subject", keep="first", maintain_order=True)
        place = np.full(len(self.keys.subjects), -1, dtype=np.int64)
        place[first["subject"].to_numpy()] = np.arange(first.height)
        values = _gathered(first["value"], place)
        differs = known.filter(pl.col("value") != pl.col("value").first().over("subject"))
        if not differs.height:
            return values, []
        problem = f"column '{name}' changes within {counted(differs['subject'].n_unique(), 'subject')}"
        fix = "declare it as a covariate, or keep one value per subject"
        return values, [invalid(problem, f"first in {self.place(differs['cell'][0])}", fix)]

    def static_values(self, name: str) -> tuple[pl.Series, list[Diagnostic]]:
        """Return a static per subject `[N]`, null where there is no value, and what is wrong with it.

        In the long table it must stand in the subject's first row: a later one is the future of the first.
        """
        values, findings = self.subject_values(name)
        if self.wide is not None and name in self.wide_readings:
            return values, findings
        observed = self.column(name).is_not_null().to_numpy()
        known = np.minimum.reduceat(np.where(observed, np.arange(len(observed)), len(observed)), self.keys.first)
        late = (known > self.keys.first) & (known < len(observed))
        if late.any():
            subjects = counted(int(late.sum()), "subject")
            problem = f"column '{name}': {subjects} without a value in the first row, but with one in a later row"
            fix = (
                "write it in the first row if it was known then, give it by `--statics`, or declare the column as a "
                "covariate: a static may not come from a subject's future"
            )
            findings.append(invalid(problem, f"first in {self.place(int(known[late][0]))}", fix))
        return values, findings

    def whole_subjects(self, said: pl.Series) -> tuple[Mask, Mask]:
        """Return the subjects `[N]` of whom all cells say yes, and those of whom some say yes and some no."""
        n, subject = len(self.keys.subjects), self.keys.subject
        yes, no = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        yes[subject[said.fill_null(value=False).to_numpy()]] = True
        no[subject[(~said).fill_null(value=False).to_numpy()]] = True
        return yes & ~no, yes & no

    def carried(self, observed: Mask) -> Ints:
        """Return for each cell the last cell up to it of the same subject with a value, -1 where there is none."""
        last = np.maximum.accumulate(np.where(observed, np.arange(len(observed)), -1))
        start = self.keys.first[self.keys.subject]
        return np.where(last >= start, last, -1).astype(np.int64)

    def place(self, cell: int) -> str:
        """Return where a cell comes from: `row 14 of cohort.csv (subject 7)`."""
        subject = self.keys.subjects.names[int(self.keys.subject[cell])]
        row = int(self.keys.row[cell])
        if row < 0:
            return f"step {int(self.keys.step[cell])} of subject {subject}, which has no row"
        return f"{self.rows.place(row)} (subject {subject})"

    def subject_place(self, name: str, subject: int) -> str:
        """Return where a subject's value comes from: its row of statics, or its first of the long table."""
        who = f"subject {self.keys.subjects.names[subject]}"
        if self.wide is None or name not in self.wide_readings:
            return self.place(int(self.keys.first[subject]))
        row = int(self.wide_row[subject])
        return f"{who}, which has no row in {self.wide.files[0].name}" if row < 0 else f"{self.wide.place(row)} ({who})"


@dataclass(frozen=True)
class Learned:
    """What encoding learns from source-train, beside levels and classes of treatments and what never changes.

    `fills` has what stands for a missing value where a subject has none so far, `ranges` the least and greatest value,
    both of columns of numbers; `categories` those of a column; `masks` the columns that have a 0/1 column beside them;
    `doses` the treatments that are numbers, where an earlier table taught them.
    """

    fills: dict[str, float] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    masks: list[str] = field(default_factory=list)
    doses: dict[str, Dose] = field(default_factory=dict)


@dataclass(eq=False)
class EncodingContext:
    """What the encoding of all columns shares, and what it finds.

    `filled` counts by column all values, those missing, and of these the ones `carried` from the subject's past and
    `learned` from source-train. `part [N]` is the number of each subject's part in `Part.all()`, where steps are split
    by time the last one: `spans` then has, by part, its first own step `[N]` and its steps `[N]`. With `known`, which
    an earlier table taught, nothing is learned from this one: its schema says all else. `final [M]` are the cells in
    which series ended by an event. `asks` says whether test subjects are asked what came next. `bare` counts, by
    treatment, the steps without a row that became untreated ones.
    """

    table: Table
    part: Ints
    schema: TableSchema
    reporter: Reporter
    known: Learned | None = None
    learned: Learned = field(default_factory=Learned)
    findings: list[Diagnostic] = field(default_factory=list)
    filled: dict[str, dict[str, int]] = field(default_factory=dict)
    bare: dict[str, int] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    outcomes_observed: dict[str, Mask] = field(default_factory=dict)
    spans: Mapping[int, tuple[Ints, Ints]] | None = None
    final: Mask | None = None
    asks: bool = True

    @cached_property
    def room(self) -> MemoryBudget:
        """Return what the panel takes of memory, as far as its columns are known."""
        steps = {part: self.steps_of(number) for number, part in enumerate(Part.all())}
        return MemoryBudget(self.table.keys, steps, self.schema, asks=self.asks)

    def fill_treatment(self, name: str, holes: Mask, observed: Mask) -> Ints:
        """Return the cell whose treatment goes on in each of the holes of a mask `[M]`, -1 where none is given.

        How many there are of both is noted, and of the latter, how many have no row.
        """
        source = np.where(self.schema.columns[name].missing == "carry", self.table.carried(observed), -1)
        carried, filled = holes & (source >= 0), holes & (source < 0)
        notes = []
        if carried.any():
            count = counted(int(carried.sum()), "missing value is", "missing values are")
            notes.append(f"{count} carried forward from the subject's last one")
        if filled.any():
            count = counted(int(filled.sum()), "missing value counts", "missing values count")
            notes.append(f"{count} as not given")
        self.reporter.say(Diagnostic.of("treatments-filled", name, counts=", ".join(notes)))
        self.bare[name] = int((filled & (self.table.keys.row < 0)).sum())
        return source[holes]

    def missing_treatment(self, name: str, holes: Mask, observed: Mask, *, one: str) -> Diagnostic:
        """Say that a treatment is missing in some cells `[M]`, and what each choice makes of how many of them."""
        ahead = int((holes & (self.table.carried(observed) < 0)).sum())
        first = f" ({ahead:,} before any count as not given)" if ahead else ""
        fix = (
            f'declare `missing = "carry"` if the last one goes on{first}, or `missing = "fill"` if that means not '
            "given (a dose of 0), or give them; a subject's last row may have none"
        )
        return wrong_values(name, holes, "missing", self.table.place, fix, one=one)

    def steps_of(self, part: int) -> Ints:
        """Return how many steps `[N]` of each subject a part has, 0 of those who are not in it."""
        if self.spans is not None:
            return self.spans[part][1]
        return np.where(self.part == part, self.table.keys.length, 0)

    @cached_property
    def times(self) -> Times:
        """Return when each cell `[M]` was."""
        return cell_times(self.table, self.schema)

    @property
    def train(self) -> Mask:
        """Return the subjects `[N]` of source-train, from whom means, categories and levels are learned."""
        train: Mask = self.steps_of(LEARNED) > 0
        return train

    @property
    def train_cells(self) -> Mask:
        """Return the cells `[M]` of source-train."""
        cells: Mask = self.table.keys.step < self.steps_of(LEARNED)[self.table.keys.subject]
        return cells

    @property
    def place(self) -> Ints:
        """Return the row `[N]` of each subject in the panel of its part, where subjects keep their order."""
        place = np.zeros(len(self.part), dtype=np.int64)
        for number in range(len(Part.all())):
            row = np.cumsum(self.steps_of(number) > 0) - 1
            place[self.part == number] = row[self.part == number]
        return place


def cell_times(table: Table, schema: TableSchema) -> Times:
    """Return when each cell `[M]` was; steps without a row are where they would have been, or their end's own time."""
    keys, clock = table.keys, schema.time
    bare = keys.row < 0
    if clock.gaps != "fill" and not bare.any():
        return table.times[keys.row]
    if clock.by_row:  # each cell without a row is the end of its subject, which has one alone
        when: Times = table.times[keys.row]
        if clock.stop:
            when = np.where(bare, table.column(clock.stop).to_numpy()[table.last_rows[keys.subject]], when)
        for name in (name for name in schema.named(*ENDS) if schema.columns[name].at):
            values, _ = table.subject_values(name)
            theirs = bare & values.is_not_null().to_numpy()[keys.subject]
            when = np.where(theirs, values.fill_null(0).to_numpy()[keys.subject], when)
        return when
    size = clock.parsed.size if clock.parsed.scale == "number" else int(clock.parsed.size)
    times: Times = table.times[keys.row[keys.first]][keys.subject] + keys.step * size
    return times


def _gathered(values: pl.Series, rows: Ints) -> pl.Series:
    """Return values by their places, null for place -1."""
    if not len(values):
        return pl.Series([None] * len(rows), dtype=values.dtype)
    index = pl.Series(rows)
    if not len(rows) or rows.min() >= 0:
        return values.gather(index)
    return values.gather(pl.select(pl.when(index >= 0).then(index)).to_series())
