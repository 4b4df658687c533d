"""A log with a row per subject, time and code as rows of steps with a column per code (polars; spec TABLE-11)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

import polars as pl

from costar_cli.config.nearest import did_you_mean
from costar_cli.data.findings import counted, shown
from costar_cli.data.table.bins import step_at, summary
from costar_cli.data.table.index import LONGEST
from costar_cli.data.table.parse import As, Reading, Rows, unreadable, wrong_values
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_column import OF_STEPS, Aggregate
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError
from costar_cli.reporting import Reporter

NOTHING: Final = ("any", "count", "sum")  # of steps without an event these are 0, all others missing


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
            reporter.note(f"{counted(len(unused), 'event')} of codes that no column has: {shown(some, 8)}")
        who, when = rows.index[subject], rows.index[time]
        step, begin = step_at(self.schema.time, when)
        taken = [column.expression(rows, self.code).alias(f"of {name}") for name, column in self.columns.items()]
        kept = [
            r for r in rows.readings if r not in (subject, time, self.code, *(c.raw for c in self.columns.values()))
        ]
        own = [pl.col(rows.index[r]).drop_nulls().first() for r in kept]
        log = rows.frame.sort(who, when, "file", "row").with_columns(step)
        made = log.group_by(who, "step", maintain_order=True).agg(pl.col("file", "row").first(), *own, *taken)
        made = self._whole(made, who)
        zeros = [pl.col(f"of {name}").fill_null("0" if column.made.as_ == "text" else 0.0)
                 for name, column in self.columns.items() if column.how in NOTHING]  # fmt: skip
        again = begin.cast(rows.series(time).dtype).alias(when)
        made = made.with_columns(*zeros, pl.col("file", "row").forward_fill(), again).drop("step")
        index = {r: rows.index[r] for r in (subject, time, *kept)}
        index |= {column.made: f"of {name}" for name, column in self.columns.items()}
        return replace(rows.of(made), readings=list(index), index=index, blank_rows=0)

    def _whole(self, made: pl.DataFrame, who: str) -> pl.DataFrame:
        """Return rows of steps with those between them that have no event."""
        ends = made.group_by(who, maintain_order=True).agg(first=pl.col("step").min(), last=pl.col("step").max())
        length = ends["last"] - ends["first"] + 1
        if int(length.max() or 0) > LONGEST:  # type: ignore[arg-type]
            name = ends[who][int(length.arg_max() or 0)]
            problem = f"a series of {int(length.max() or 0):,} steps, more than {LONGEST:,}"  # type: ignore[arg-type]
            raise DataError(problem, where=f"subject {name}", fix="correct its times, or give longer steps in [time]")
        steps = pl.int_ranges(pl.col("first"), pl.col("last") + 1).alias("step")
        grid = ends.select(who, steps).explode("step")
        return grid.join(made, on=[who, "step"], how="left", maintain_order="left")
