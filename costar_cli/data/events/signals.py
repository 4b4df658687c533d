"""The signals file: a schema of tables whose columns say which events of a log they are made of."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from pydantic import Field, ValidationError

from costar_cli.config.nearest import did_you_mean
from costar_cli.config.toml import read_toml
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_column import OF_STEPS, ColumnSchema, Line, Section, TimeSchema, parse_step
from costar_cli.data.table.schema_file import MOST_BYTES, SHORTER, open_guesses, parse_schema
from costar_cli.errors import UsageError, complaint

SUBJECT, TIME, SPLIT = "subject_id", "time", "split"  # what the columns of the table that is made are called
START: Final = "`--init` writes a signals file to start from"
OF_INTERVALS: Final = ("any", "rate", "amount", "fraction")
OF_STATICS: Final = ("any", "first", "last")
Codes = Line | list[Line]
M = TypeVar("M", bound=Section)
How = Literal["any", "count", "sum", "mean", "first", "last", "max", "min", "rate", "amount", "fraction"]


class Selection(Section):
    """Which events: those of a code, of codes that begin so, or of codes with such a parent."""

    code: Codes | None = Field(None, description="Code of the events, or several")
    prefix: Codes | None = Field(None, description="What the codes of the events begin with, one or several")
    parent: Codes | None = Field(None, description="Parents of the codes (`parent_codes`), one or several")

    def listed(self, key: Literal["code", "prefix", "parent"]) -> list[str]:
        """Return what stands at a key, as a list."""
        value = getattr(self, key)
        return [] if value is None else [value] if isinstance(value, str) else value

    @property
    def is_empty(self) -> bool:
        """Return whether it says nothing."""
        return not (self.code or self.prefix or self.parent)


class Anchor(Selection):
    """Where series begin and end; by default at a subject's first event of any signal, and at its last."""

    which: Literal["first", "last"] = Field("first", description="Which of a subject's such events begins its series")
    before: int | float | str | None = Field(None, description="How long before that event the series begins")
    after: int | float | str | None = Field(None, description="How long after that event the series ends at the latest")
    until: Selection | None = Field(None, description="Events that end a series, at the first after the beginning")


class Signal(Selection):
    """The events of a column: what each is worth, and what those of a step become."""

    value: Literal["number", "text", "code", "years"] = Field(
        "number",
        description="What an event is worth: its `number`, its `text`, the rest of its `code` behind the prefix, or "
        "the `years` from it to the beginning of the series",
    )
    aggregate: How | None = Field(
        None,
        description="What the events of a step become. Of intervals: `rate`, the mean over the step; `amount`, what of "
        "an interval's whole falls into the step; `fraction` of the step; or `any`; where they have texts or codes, "
        "`first` or `last`. By default `any` of treatments, `sum` of doses (`rate` of intervals with `stop`, `amount` "
        "of those of OMOP) and `first` of others (`fraction` of intervals)",
    )
    stop: Selection | None = Field(None, description="Events that end the intervals which these events start")
    pair: Line | None = Field(None, description="Column of the events that says which start and stop belong together")
    units: dict[Line, float] = Field({}, description="By unit of the events, the factor that brings numbers to `unit`")
    factor: float = Field(1.0, description="Factor that brings the events' numbers to `unit`")
    offset: float = Field(0.0, description="What is added after that")

    @property
    def has_levels(self) -> bool:
        """Return whether its events are worth texts, not numbers."""
        return self.value in ("text", "code")


OWN: Final = tuple(Signal.model_fields)  # keys that a schema of tables lacks, or means less by
TOP: Final = ("anchor",)


@dataclass(frozen=True)
class SignalsSchema:
    """The signals, where series begin and end, and the schema of the table that events become.

    `stored` is the file as it was parsed: it travels with data sets and models, and `parse_signals` reads it again.
    """

    signals: Mapping[str, Signal]
    anchor: Anchor | None
    table: TableSchema
    stored: Mapping[str, Any]

    def is_of_intervals(self, name: str, *, stops: bool) -> bool:
        """Return whether a signal's events are intervals: the log has `stops` of them, or the signal names some."""
        signal, column = self.signals[name], self.table.columns[name]
        of_intervals = ("first", "last") if signal.has_levels else OF_INTERVALS
        of_log = stops and column.role in OF_STEPS and signal.aggregate in (None, *of_intervals)
        return signal.stop is not None or of_log

    def how(self, name: str, *, intervals: bool) -> How:
        """Return what the events of a step become; `intervals` where each event has a stop."""
        column, signal = self.table.columns[name], self.signals[name]
        if signal.aggregate:
            return signal.aggregate
        if column.role == "treatment" and signal.value == "number":
            if not column.is_dose:
                return "any"
            # The value of a start that another event stops is a rate; a log that says both says how much it was in all
            return "sum" if not intervals else "rate" if signal.stop else "amount"
        if intervals and not signal.has_levels:
            return "fraction"
        return "first" if column.role in OF_STEPS else "last"

    @property
    def pairs(self) -> list[str]:
        """Return the columns of the log that say which start and stop belong together."""
        return sorted({signal.pair for signal in self.signals.values() if signal.pair})

    def named(self, *roles: str) -> list[str]:
        """Return the signals of these roles."""
        return [name for name in self.signals if self.table.columns[name].role in roles]


def read_signals(path: Path, *, accept_guesses: bool = False) -> SignalsSchema:
    """Return the signals in a TOML file.

    `accept_guesses` takes what `--init` guessed and nobody has settled.

    Raises:
        UsageError: the file is missing or no TOML, has open guesses, or a key or value is not understood; all problems
            at once.
    """
    text, tables = read_toml(path, "signals file", fix=START, most=MOST_BYTES, shorter=SHORTER)
    if (lines := open_guesses(text)) and not accept_guesses:
        guesses = "1 unconfirmed guess" if len(lines) == 1 else f"{len(lines)} unconfirmed guesses"
        fix = "correct each line and delete its comment, or add `--accept-guesses`"
        raise UsageError(f"the signals file has {guesses}", where=str(path), fix=fix, details=lines)
    return parse_signals(tables, where=str(path))


def parse_signals(tables: Mapping[str, Any], *, where: str = "signals") -> SignalsSchema:
    """Return the signals in a parsed TOML document; see `read_signals`."""
    problems: list[str] = []
    columns = tables.get("columns")
    lines = columns if isinstance(columns, Mapping) else {}
    signals, plain = dict[str, Signal](), dict[str, Any]()
    for name, line in lines.items():
        own = {key: value for key, value in line.items() if key in OWN} if isinstance(line, Mapping) else {}
        signal = _parsed(Signal, own, f"columns.{name}", problems)
        of_table = {key: value for key, value in line.items() if key not in own} if own else line
        # What events lack is filled unless a line says else
        fills = isinstance(of_table, Mapping) and of_table.get("role") in ("covariate", "static", "outcome")
        plain[name] = {"missing": "fill", **of_table} if fills else of_table
        if signal is not None:
            signals[name] = signal
    anchor = None
    if "anchor" in tables:
        anchor = _parsed(Anchor, tables["anchor"], "anchor", problems)
    rest: dict[str, Any] = {key: value for key, value in tables.items() if key not in (*TOP, "columns")}
    table = None
    try:
        keys = {SUBJECT: {"role": "subject"}, TIME: {"role": "time"}}
        table = parse_schema(rest | {"columns": keys | plain}, where=where)
    except UsageError as error:
        problems += error.details or [error.problem]
    if table is not None:
        problems += _problems(table, signals, anchor)
    if problems:
        fix = "`costar ingest meds FOLDER --init` shows the keys of signals, `costar settings schema` all others"
        raise UsageError.of(problems, f"the signals file has {len(problems)} problems", where=where, fix=fix)
    assert table is not None  # noqa: S101 - there would be a problem
    return SignalsSchema(signals, anchor, table, dict(tables))


def _parsed(model: type[M], tables: object, where: str, problems: list[str]) -> M | None:
    try:
        return model.model_validate(tables)
    except ValidationError as error:
        for item in error.errors():
            loc = [str(part) for part in item["loc"] if not str(part).startswith(("list[", "constrained", "function-"))]
            path = ".".join([where, *(part for part in loc if part not in ("str", "int", "float"))])
            near = did_you_mean(loc[-1], model.model_fields, lead=", ") if item["type"] == "extra_forbidden" else ""
            problems.append(f"{path}: no such key{near}" if item["type"] == "extra_forbidden" else
                            f"{path} = {item.get('input')!r:.60}: {complaint(item)}")  # fmt: skip
        return None


def _problems(table: TableSchema, signals: Mapping[str, Signal], anchor: Anchor | None) -> Iterator[str]:
    """Find what is valid key by key but not together."""
    scale = table.time.parsed.scale
    if scale == "month":
        yield 'time.step: events are cut into steps of one length: write days or weeks, such as "30d"'
    for key in ("format", "stop", "closed", "zone"):
        if getattr(table.time, key) not in (None, ""):
            yield f"time.{key}: belongs to tables; the times of events are read as they are"
    if table.time.gaps == "elapsed" or table.time.bin:
        yield "time: events become even steps: leave `gaps` and `bin` out"
    for name, given in (("events", table.events), ("subject", table.subject), ("statics", table.statics.on)):
        if given is not None:
            yield f"{name}: belongs to `costar ingest table`"
    yield from _anchor_problems(anchor, table.time) if anchor else ()
    for name, column in table.columns.items():
        if name in (SUBJECT, TIME) and name not in signals:
            continue
        if name not in signals or signals[name].is_empty:
            yield f"columns.{name}: give the `code`, `prefix` or `parent` of its events"
            continue
        yield from _signal_problems(name, column, signals[name], dated=scale != "number")


def _anchor_problems(anchor: Anchor, time: TimeSchema) -> Iterator[str]:
    if anchor.is_empty:
        yield "anchor: give the `code`, `prefix` or `parent` of the events at which series begin"
    for key in ("before", "after"):
        if (value := getattr(anchor, key)) is None or value == 0:
            continue
        try:
            same = parse_step(value).scale == time.parsed.scale
            problem = "" if same else f"not in the unit of `step = {time.step!r}`"
        except ValueError as error:
            problem = str(error)
        if problem:
            yield f"anchor.{key} = {value!r}: {problem}"


def _signal_problems(name: str, column: ColumnSchema, signal: Signal, *, dated: bool) -> Iterator[str]:
    where = f"columns.{name}"
    if name == SPLIT or column.role == "split":
        yield f"{where}: splits come from the data, or from [split]"
    if column.column or column.at:
        yield f"{where}: `column` and `at` belong to tables: give `code`, `prefix` or `parent`"
    words = signal.has_levels
    if (
        words
        and column.role not in ("domain", "cluster")
        and column.kind != "categorical"
        and not (column.role == "treatment" and not column.is_dose)
    ):
        yield f'{where}: `value = "{signal.value}"` makes texts: give `kind = "categorical"`'
    if words and signal.aggregate not in (None, "first", "last"):
        yield f"{where}: of texts there is the `first` or the `last`, not `{signal.aggregate}`"
    if signal.value == "code" and not signal.prefix:
        yield f'{where}: `value = "code"` is the rest of a code: give its `prefix`'
    if signal.value == "years" and (column.role != "static" or not dated):
        yield f'{where}: `value = "years"` is of a static, where times are dates'
    if signal.aggregate not in (None, *OF_STATICS) and column.role not in OF_STEPS:
        yield f"{where}: what does not change over time is {', '.join(OF_STATICS)}, not `{signal.aggregate}`"
    if signal.stop and column.role not in OF_STEPS:
        yield f"{where}: `stop` makes intervals, which are of columns that change over time"
    if signal.stop and not words and signal.aggregate not in (None, *OF_INTERVALS):
        yield f"{where}: intervals become {', '.join(OF_INTERVALS)}, not `{signal.aggregate}`"
    if signal.stop and not signal.pair:
        yield f"{where}: `pair` is missing: name the column, such as `order_id`, that says which start has which stop"
    if signal.factor == 0 or any(factor == 0 for factor in signal.units.values()):
        yield f"{where}: factors are not 0"


def length_of(value: float | str | None) -> float:
    """Return a length of time in the units of events: microseconds or numbers; 0 for none."""
    return parse_step(value).size if value else 0.0
