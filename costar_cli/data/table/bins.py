"""Rows that share a step as one row of it (polars; spec TABLE-15)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Self

import numpy as np
import polars as pl

from costar_cli.config.nearest import did_you_mean
from costar_cli.data.findings import counted, shown
from costar_cli.data.schema import steps_axis
from costar_cli.data.table.ends import NOTHING
from costar_cli.data.table.index import LONGEST, TOLERANCE
from costar_cli.data.table.parse import As, Reading, Rows, unreadable, wrong_values
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_column import ENDS, OF_STEPS, Aggregate, TimeSchema
from costar_cli.data.table.treatments import level_codes
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError
from costar_cli.reporting import Reporter


def step_at(time: TimeSchema, when: str) -> tuple[pl.Expr, pl.Expr]:
    """Return the number of the step that times of a column are in, and when a `step` begins."""
    size, start = time.parsed.size, time.first_step
    step = ((pl.col(when) - start) / size + TOLERANCE).floor().cast(pl.Int64).alias("step")
    return step, pl.col("step") * size + start


def summary(known: pl.Expr, how: Aggregate) -> pl.Expr:
    """Return what several values, none of them missing, become."""
    return {
        "sum": known.sum(),
        "mean": known.mean(),
        "first": known.first(),
        "last": known.last(),
        "max": known.max(),
        "min": known.min(),
    }[how]


@dataclass(frozen=True)
class Bins:
    """How rows that share a step become one: columns that change over time, as they are read and as they are then."""

    schema: TableSchema
    raw: Mapping[str, Reading]
    made: Mapping[str, Reading]

    @classmethod
    def of(cls, schema: TableSchema, readings: Mapping[str, Reading]) -> Self | None:
        """Return how the rows of a table become steps, None where each is one.

        `readings` is how the file's columns are read, of each column of the schema.
        """
        if not schema.time.bin:
            return None
        timed = [name for name in schema.named(*OF_STEPS, *ENDS) if not schema.columns[name].at]
        raw = {name: readings[name] for name in timed}
        made = {name: replace(reading, column=name, factor=1.0, offset=0.0) for name, reading in raw.items()}
        return cls(schema, raw, made)

    def readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        """Return how the rows of steps are read."""
        return {**readings, **self.made}

    def by_step(self, rows: Rows, subject: Reading, time: Reading, reporter: Reporter) -> Rows:
        """Return a row per subject and step that has one, its place that of the step's first row.

        Rows that are the same in all columns count once, unless a column is summed: somebody may have been given the
        same twice. How many rows share a step, and how many of a sum are the same, is told as a warning.
        """
        who, when = rows.index[subject], rows.index[time]
        step, begin = step_at(self.schema.time, when)
        whole, columns, of_steps = rows.frame, self.schema.columns, self.schema.named(*OF_STEPS)
        frame = whole.unique([c for c in whole.columns if c not in ("file", "row")], keep="first", maintain_order=True)
        twice = whole.height - frame.height
        summed = [name for name in of_steps if columns[name].binned == "sum"]
        if twice and summed:
            same = counted(twice, "row is the same", "rows are the same")
            reporter.say(Diagnostic.of("rows-repeated", rows=same, sums=", of ".join(summed)))
        elif twice:
            reporter.say(Diagnostic.of("rows-dropped", rows=counted(twice, "duplicate row")))
        if summed:
            frame = whole
        kept = [r for r in rows.readings if r not in (subject, time)]
        taken = [self._value(rows, name).alias(f"of {name}") for name in self.raw]
        own = [pl.col(rows.index[r]).drop_nulls().first() for r in kept]
        codes = []  # of levels their places, which have an order; null for what is missing or no level
        for name, levels in self._ordered.items():
            code = level_codes(rows.of(frame).series(self.raw[name]), levels)
            codes.append(pl.Series(f"code of {name}", code).set(pl.Series(code < 0), None))
        coded = frame.with_columns(step, *codes).sort(who, when, "file", "row")
        groups = coded.group_by(who, "step", maintain_order=True)
        made = groups.agg(pl.col("file", "row").first(), pl.len().alias("rows"), *own, *taken)
        for name, levels in self._ordered.items():
            of_code = pl.col(f"of {name}").replace_strict(dict(enumerate(levels)), default=None, return_dtype=pl.String)
            made = made.with_columns(of_code)
        number_M = made["rows"].to_numpy()
        shared = number_M > 1
        if shared.any():
            ways = [f"{columns[name].binned} of {name}" for name in of_steps]
            reporter.say(
                Diagnostic.of(
                    "rows-binned", rows=counted(int(number_M.sum()), "row"), steps=len(number_M),
                    axis=steps_axis(self.schema.time.parsed.word), shared=int(number_M[shared].sum()),
                    most=int(np.max(number_M)), ways=", ".join(ways),
                )
            )  # fmt: skip
        again = begin.cast(rows.series(time).dtype).alias(when)
        index = {r: rows.index[r] for r in (subject, time, *kept)} | {r: f"of {name}" for name, r in self.made.items()}
        steps = rows.of(made.with_columns(again).drop("step", "rows"))
        return replace(steps, readings=list(index), index=index)

    @cached_property
    def _ordered(self) -> dict[str, tuple[str, ...]]:
        """Return the levels, in their order, of treatments of which a step has the largest or the smallest."""
        leveled = {*self.schema.leveled}
        of_level = {name: self.schema.columns[name] for name in self.raw if name in leveled}
        extremes = {name: column for name, column in of_level.items() if column.binned in ("max", "min")}
        return {name: column.labels("levels") or () for name, column in extremes.items()}

    def _value(self, rows: Rows, name: str) -> pl.Expr:
        """Return a column's value in a group of rows in the order of time."""
        column, own = self.schema.columns[name], pl.col(rows.index[self.raw[name]])
        if column.role in ENDS:  # a mark stands, whatever other rows of its step say
            marked = own.filter(~own.str.strip_chars().str.to_lowercase().is_in(NOTHING))
            return pl.coalesce(marked.drop_nulls().first(), own.drop_nulls().first())
        if name in self._ordered:
            own = pl.col(f"code of {name}")
        known = own.drop_nulls()
        value = summary(known, column.binned)
        return value if column.binned != "sum" else pl.when(known.len() > 0).then(value)


ZERO_WITHOUT_EVENTS: Final = ("any", "count", "sum")  # of steps without an event these are 0, all others missing


@dataclass(frozen=True, slots=True)
class _Column:
    """A column that events of a code become: how their values are read, and how the column is."""

    code: str
    how: Aggregate
    raw: Reading
    made: Reading

    def expression(self, rows: Rows, code: Reading) -> pl.Expr:
        """Return its value in a group of events in the order of time."""
        own = pl.col(rows.index[self.raw]).filter(pl.col(rows.index[code]) == self.code)
        if self.how in ("any", "count"):
            number = own.len() if self.how == "count" else (own.len() > 0).cast(pl.Int64)
            return number.cast(pl.String if self.made.as_ == "text" else pl.Float64)
        return summary(own.drop_nulls(), self.how)


@dataclass(frozen=True)
class EventLog:
    """How the rows of a log become rows of steps."""

    schema: TableSchema
    code: Reading
    columns: Mapping[str, _Column]

    @classmethod
    def of(cls, schema: TableSchema, readings: Mapping[str, Reading]) -> Self | None:
        """Return the log that a schema describes, None where its table has a column per variable.

        `readings` is how the file's columns are read, of each column of the schema.
        """
        if schema.events is None:
            return None
        columns, leveled = {}, {*schema.leveled}
        for name in schema.named(*OF_STEPS):
            column, raw = schema.columns[name], readings[name]
            as_: As = "binary" if column.kind == "binary" else "number"
            as_ = "text" if name in leveled or column.kind == "categorical" else as_
            made = Reading(name, as_, shift=column.shift)
            columns[name] = _Column(schema.in_file(name), column.aggregated, replace(raw, shift=0), made)
        return cls(schema, Reading(schema.events.code, "text"), columns)

    def readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        """Return how the rows of steps are read."""
        return {name: self.columns[name].made if name in self.columns else r for name, r in readings.items()}

    def problems(self, rows: Rows) -> list[Diagnostic]:
        """Find rows without a code, codes that no row has, and values that cannot be read."""
        codes = rows.series(self.code)
        findings = []
        if (missing := codes.is_null()).any():
            findings.append(wrong_values(self.code.column, missing, "missing", rows.place, "give each event its code"))
        whole = rows.frame
        for column in self.columns.values():
            own = rows.of(whole.filter(codes == column.code))
            findings += [
                replace(found, text=f"{found.text} (of `{column.code}`)") for found in unreadable(own, [column.raw])
            ]
        return findings

    def refuse_unknown(self, rows: Rows) -> None:
        """Stop where no event has the code of a column.

        Raises:
            DataError: naming the nearest code.
        """
        known = [str(code) for code in rows.series(self.code).drop_nulls().unique().sort().to_list()]
        for name, column in self.columns.items():
            if column.code not in known:
                near = did_you_mean(column.code, known, quoted=True) or f"it has {shown(known, 8)}"
                problem = f"column '{self.code.column}' has no event '{column.code}'"
                raise DataError(problem, where=f"columns.{name}", fix=f'{near}; `column = "CODE"` names another')

    def by_step(self, rows: Rows, subject: Reading, time: Reading, reporter: Reporter) -> Rows:
        """Return a row per subject and step from the first event to the last, its place that of the step's first event.

        Raises:
            DataError: a series of too many steps.
        """
        codes = rows.series(self.code)
        unused = codes.filter(~codes.is_in([column.code for column in self.columns.values()]))
        if len(unused):
            some = unused.unique(maintain_order=True).to_list()
            reporter.say(Diagnostic.of("events-unused", events=counted(len(unused), "event"), names=shown(some, 8)))
        who, when = rows.index[subject], rows.index[time]
        step, begin = step_at(self.schema.time, when)
        taken = [column.expression(rows, self.code).alias(f"of {name}") for name, column in self.columns.items()]
        kept = [
            r for r in rows.readings if r not in (subject, time, self.code, *(c.raw for c in self.columns.values()))
        ]
        own = [pl.col(rows.index[r]).drop_nulls().first() for r in kept]
        log = rows.frame.sort(who, when, "file", "row").with_columns(step)
        made = log.group_by(who, "step", maintain_order=True).agg(pl.col("file", "row").first(), *own, *taken)
        # With the steps between them that have no event
        ends = made.group_by(who, maintain_order=True).agg(first=pl.col("step").min(), last=pl.col("step").max())
        length = ends["last"] - ends["first"] + 1
        if int(length.max() or 0) > LONGEST:  # type: ignore[arg-type]
            name = ends[who][int(length.arg_max() or 0)]
            problem = f"a series of {int(length.max() or 0):,} steps, more than {LONGEST:,}"  # type: ignore[arg-type]
            raise DataError(problem, where=f"subject {name}", fix="correct its times, or give longer steps in [time]")
        steps = pl.int_ranges(pl.col("first"), pl.col("last") + 1).alias("step")
        made = ends.select(who, steps).explode("step").join(made, on=[who, "step"], how="left", maintain_order="left")
        zeros = [pl.col(f"of {name}").fill_null("0" if column.made.as_ == "text" else 0.0)
                 for name, column in self.columns.items() if column.how in ZERO_WITHOUT_EVENTS]  # fmt: skip
        again = begin.cast(rows.series(time).dtype).alias(when)
        made = made.with_columns(*zeros, pl.col("file", "row").forward_fill(), again).drop("step")
        index = {r: rows.index[r] for r in (subject, time, *kept)}
        index |= {column.made: f"of {name}" for name, column in self.columns.items()}
        return replace(rows.of(made), readings=list(index), index=index, blank_rows=0)
