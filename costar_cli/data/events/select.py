"""Which events make which signal: codes looked up and counted, units brought together, the rows read once (polars)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.config.nearest import nearest, nearly
from costar_cli.data.events.intervals import Intervals, paired
from costar_cli.data.events.log import Events
from costar_cli.data.events.signals import Selection, Signal, SignalsSchema
from costar_cli.data.findings import counted, invalid, raise_errors, shown
from costar_cli.data.table.files import collected
from costar_cli.data.table.parse import LARGEST
from costar_cli.data.table.schema_column import ENDS
from costar_cli.data.table.scratch import require_memory
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError
from costar_cli.reporting import Reporter

MOST_CODES: Final = 2_000_000
ROW_BYTES: Final = 60  # of memory for each event of a signal, at least, while it is read
DISCHARGE: Final = "DISCHARGE"
LEAKS: Final = 0.5  # of a signal's events, share dated at a discharge from which they are taken to be known then only
FEW: Final = 5
WITHOUT_VALUES: Final = ("any", "count", "fraction")


@dataclass(frozen=True, eq=False)
class Chosen:
    """The events of all signals, of subjects by their place among `subjects`.

    `log` has `subject`, `time` (float64, null for what holds always), `id` and `value`; `codes` says of each `id` which
    code and unit it is, `ids` which of them each signal and each part of the anchor has. `intervals` and `texts` are
    of the signals that are so, `until` of losses of follow-up and ends of windows, where the log has it.
    """

    name: str
    subjects: pl.Series
    dated: bool
    log: pl.DataFrame
    codes: pl.DataFrame
    ids: Mapping[str, list[int]]
    signals: Mapping[str, Signal]
    intervals: Mapping[str, Intervals]
    texts: Mapping[str, pl.DataFrame]
    until: Mapping[str, pl.DataFrame]

    def events(self, name: str) -> pl.DataFrame:
        """Return the events of a signal, or of a part of the anchor: subject, time and value."""
        if name in self.texts:
            return self.texts[name]
        own = self.log.filter(pl.col("id").is_in(self.ids[name]))
        return with_values(own, self.signals[name], self.codes) if name in self.signals else own

    def timed(self, name: str) -> pl.DataFrame:
        """Return those that have a time."""
        return self.events(name).filter(pl.col("time").is_not_null())

    def times(self, values: NDArray[np.float64]) -> pl.Series:
        """Return times as the log has them; null for infinity."""
        known = pl.Series(np.where(np.isinf(values), np.nan, values), nan_to_null=True)
        return known.round().cast(pl.Int64).cast(pl.Datetime("us")) if self.dated else known

    def moments(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return of whom and when those are."""
        timed = self.timed(name)
        return timed["subject"].to_numpy().astype(np.int64), timed["time"].to_numpy()

    def days(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Return subjects, times, and until when each may have been: the end of its day where only that is known."""
        timed = self.until[name].filter(pl.col("time").is_not_null()) if name in self.until else self.timed(name)
        until = timed["until"].fill_null(timed["time"]) if name in self.until else timed["time"]
        return timed["subject"].to_numpy().astype(np.int64), timed["time"].to_numpy(), until.to_numpy()


def with_values(rows: pl.DataFrame, signal: Signal, codes: pl.DataFrame) -> pl.DataFrame:
    """Return events with what each is worth: its number in the signal's unit, or the rest of its code."""
    known = codes.filter(pl.col("id").is_in(rows["id"].unique().implode()))
    numbers = known["id"].to_list()
    if signal.value == "code":
        prefixes = sorted(signal.listed("prefix"), key=len, reverse=True)
        begun = [next(prefix for prefix in prefixes if code.startswith(prefix)) for code in known["code"].to_list()]
        rest = [code[len(prefix) :].strip("/ ") or None for code, prefix in zip(known["code"], begun, strict=True)]
        worth = pl.col("id").replace_strict(numbers, rest, default=None, return_dtype=pl.String)
        return rows.with_columns(value=worth)
    factors = [signal.units.get(unit or "", signal.factor) for unit in known["unit"].to_list()]
    by = pl.lit(factors[0] if factors else 1.0)
    if len({*factors}) > 1:
        by = pl.col("id").replace_strict(numbers, factors, return_dtype=pl.Float64)
    return rows.with_columns(value=pl.col("value") * by + signal.offset)


def count_codes(events: Events) -> pl.DataFrame:
    """Return how many events each code and unit has: `id`, `code`, `unit`, `n`, `static`, `numbers` and `stops`.

    Raises:
        DataError: there are no events, or too many codes.
    """
    columns = events.scan.collect_schema().names()
    unit = pl.col("unit") if "unit" in columns else pl.lit(None, dtype=pl.String)
    stops = pl.col("stop").is_not_null().sum() if "stop" in columns else pl.lit(0, dtype=pl.UInt32)
    grouped = (
        events.scan.with_columns(unit.alias("unit"))
        .group_by("code", "unit")
        .agg(
            n=pl.len(),
            static=pl.col("time").is_null().sum(),
            numbers=pl.col("value").is_not_null().sum(),
            stops=stops,
        )
    )
    with collected(events.path):
        counts = grouped.collect(engine="streaming").sort("code", "unit")
    if not counts.height:
        raise DataError("there are no events", where=events.name, fix="give a log with a row per event")
    if counts.height > MOST_CODES:
        problem = f"{counts.height:,} codes, more than {MOST_CODES:,}"
        raise DataError(problem, where=events.name, fix="a code says what happened; values stand in their own column")
    return counts.with_row_index("id").with_columns(pl.col("id").cast(pl.Int64))


def choose(events: Events, schema: SignalsSchema, reporter: Reporter, *, new: bool = False) -> Chosen:
    """Return the events of all signals, and tell how many each has; `new` subjects need not have some of each.

    Raises:
        DataError: codes that no event has, and units that differ, all at once.
    """
    codes = count_codes(events)
    wanted: dict[str, Selection] = dict(schema.signals)
    wanted |= {f"{name}.stop": signal.stop for name, signal in schema.signals.items() if signal.stop}
    if schema.anchor is not None:
        wanted["anchor"] = schema.anchor
        if schema.anchor.until is not None:
            wanted["anchor.until"] = schema.anchor.until
    ids, findings = dict[str, list[int]](), list[Diagnostic]()
    for name, selection in wanted.items():
        where = name if name.split(".")[0] == "anchor" and name not in schema.signals else f"columns.{name}"
        ids[name], unknown = _ids(selection, codes, events.parents, where)
        findings += unknown if not new or name == "anchor" else []
    findings += _unclear(events, schema, codes, ids)
    raise_errors(findings, what="the signals")
    every = sorted({i for own in ids.values() for i in own})
    n = int(codes[every]["n"].sum())
    require_memory(n * ROW_BYTES, f"{n:,} events take at least", "to read")
    with collected(events.path):
        log = _scan(events, codes, every, {}).collect(engine="streaming")
    subjects = log["subject"].unique().sort()
    log = _placed(log, subjects)
    intervals, texts = dict[str, Intervals](), dict[str, pl.DataFrame]()
    dated = not events.scan.collect_schema()["time"].is_float()
    chosen = Chosen(events.name, subjects, dated, log, codes, ids, schema.signals, {}, {}, {})
    for name, signal in schema.signals.items():
        own, text = codes[ids[name]], {"value": "text"} if signal.value == "text" else {}
        if text:
            texts[name] = _more(chosen, events, ids[name], **text)
        if schema.is_of_intervals(name, stops=bool(own["stops"].sum())):
            how = schema.how(name, intervals=True)
            more = {"pair": signal.pair} if signal.stop and signal.pair else {"stop": "stop"}
            starts = _more(chosen, events, ids[name], **more, **text)
            starts = starts if text else with_values(starts, signal, codes)
            stops = _more(chosen, events, ids[f"{name}.stop"], **more) if signal.stop else None
            intervals[name] = paired(starts, stops, how, name, reporter)
    ends = [name for name in ids if name == "anchor.until" or name in schema.named("censored")]
    ends = ends if "until" in events.scan.collect_schema().names() else []
    until = {name: _more(chosen, events, ids[name], until="until") for name in ends}
    chosen = replace(chosen, intervals=intervals, texts=texts, until=until)
    _tell(chosen, events, schema, reporter)
    return chosen


def _ids(
    selection: Selection, codes: pl.DataFrame, parents: pl.DataFrame | None, where: str
) -> tuple[list[int], list[Diagnostic]]:
    """Return the ids of the codes that a selection names, and what names none: with the nearest codes."""
    found, missing = set[int](), list[Diagnostic]()
    for code in selection.listed("code"):
        own = codes.filter(pl.col("code") == code)["id"].to_list()
        found.update(own)
        if not own:
            known = codes["code"].unique().sort().to_list()
            near = nearly(code, known, 3) or [name for name in [nearest(code, known)] if name]
            fix = f"the nearest are {shown(near)}" if near else f"it has {shown(known, 8)}"
            missing.append(invalid(f"no event has the code '{code}'", where, fix))
    for prefix in selection.listed("prefix"):
        own = codes.filter(pl.col("code").str.starts_with(prefix))["id"].to_list()
        found.update(own)
        if not own:
            known = codes["code"].str.head(len(prefix)).unique().sort().to_list()
            near = nearly(prefix, known, 3)
            fix = f"the nearest begin with {shown(near)}" if near else f"codes begin with {shown(known, 8)}"
            missing.append(invalid(f"no code begins with '{prefix}'", where, fix))
    for parent in selection.listed("parent"):
        if parents is None:
            problem = f"the log does not say the parents of codes, and so not who has '{parent}'"
            missing.append(invalid(problem, where, "give `code` or `prefix`"))
            continue
        own = codes.join(parents.filter(pl.col("parent") == parent), on="code", how="semi")["id"].to_list()
        found.update(own)
        if not own:
            known = parents["parent"].unique().sort().to_list()
            near = nearly(parent, known, 3)
            fix = f"the nearest are {shown(near)}" if near else f"parents are {shown(known, 8)}"
            missing.append(invalid(f"no code of an event has the parent '{parent}'", where, fix))
    return sorted(found), missing


def _unclear(
    events: Events, schema: SignalsSchema, codes: pl.DataFrame, ids: Mapping[str, list[int]]
) -> Iterator[Diagnostic]:
    """Find signals whose numbers have several units that nothing brings together, or that need columns of the log.

    And treatments whose events say what is given, and whose schema does not say what their absence means.
    """
    for name, signal in schema.signals.items():
        where, column, own = f"columns.{name}", schema.table.columns[name], codes[ids[name]]
        if signal.value == "code" and column.role == "treatment" and column.levels is None:
            given = with_values(own.select("id"), signal, own)["value"].drop_nulls().unique().sort().to_list()
            levels = ", ".join(f'"{level}"' for level in ["none", *given[:3]])
            fix = f"give `levels`, the first for steps without an event, such as `levels = [{levels}]`"
            yield invalid("its codes say what is given, not that nothing is", where, fix)
        if signal.value != "number":
            continue
        counts = own.filter(pl.col("numbers") > 0).group_by("unit").agg(pl.col("numbers").sum()).sort("unit")
        seen = {row["unit"]: row["numbers"] for row in counts.iter_rows(named=True)}
        if unknown := sorted(key for key in signal.units if key not in seen and seen):
            had = shown([key for key in seen if key is not None]) or "none"
            yield invalid(f"no event has the unit '{unknown[0]}'", where, f"the units of its events are {had}")
        without = {key: n for key, n in seen.items() if key not in signal.units}
        if len(seen) > 1 and without and (set(without) != {column.unit} if column.unit else True):
            listed = ", ".join(f"{n:,} of '{key}'" if key else f"{n:,} without" for key, n in seen.items())
            fix = f'give the factor of each, such as `units = {{ "{next(key for key in seen if key)}" = 1.0 }}`'
            yield invalid(f"its events have {len(seen)} units: {listed}", where, fix)
    columns = events.scan.collect_schema().names()
    for name, signal in schema.signals.items():
        needed = signal.pair if signal.stop and signal.pair else "text" if signal.value == "text" else ""
        if needed and needed not in columns:
            others = [other for other in columns if other not in ("subject", "time", "code", "value")]
            fix = f"it has {shown(others, 12)}" if others else "it has no further columns"
            yield invalid(f"the log has no column '{needed}'", f"columns.{name}", fix)


def _scan(events: Events, codes: pl.DataFrame, ids: Sequence[int], more: Mapping[str, str]) -> pl.LazyFrame:
    """Return the events of some codes, with their ids in place of codes and units, and further columns."""
    columns = events.scan.collect_schema()
    unit = pl.col("unit") if "unit" in columns.names() else pl.lit(None, dtype=pl.String)
    own = codes.filter(pl.col("id").is_in(list(ids))).select("code", "unit", pl.col("id").cast(pl.UInt32))
    dated = not columns["time"].is_float()
    number = pl.col("value").cast(pl.Float64)
    finite = pl.when(number.is_finite() & (number.abs() <= LARGEST)).then(number)
    kept = [
        pl.col(column).cast(pl.Datetime("us")).cast(pl.Int64).cast(pl.Float64).alias(name)
        if name in ("stop", "until") and dated
        else pl.col(column).cast(pl.Float64 if name in ("stop", "until") else pl.String).alias(name)
        for name, column in more.items()
    ]
    time = pl.col("time").cast(pl.Datetime("us")).cast(pl.Int64) if dated else pl.col("time")
    return (
        events.scan.with_columns(unit.alias("unit"))
        .join(own.lazy(), on=["code", "unit"], how="inner", nulls_equal=True)
        .select("subject", time.cast(pl.Float64), "id", *kept, *([] if "value" in more else [finite.alias("value")]))
    )


def _placed(rows: pl.DataFrame, subjects: pl.Series) -> pl.DataFrame:
    """Return rows with the place of their subject in place of the subject."""
    places = pl.DataFrame({"subject": subjects, "place": pl.Series(range(len(subjects)), dtype=pl.UInt32)})
    placed = rows.select("subject").join(places, on="subject", how="left", maintain_order="left")["place"]
    return rows.with_columns(subject=placed)  # a join of all columns would hold them twice


def _more(chosen: Chosen, events: Events, ids: Sequence[int], **more: str) -> pl.DataFrame:
    """Return the events of some codes, of subjects that have any of a signal, with further columns of the log."""
    with collected(events.path):
        rows = _scan(events, chosen.codes, ids, more).collect(engine="streaming")
    return _placed(rows, chosen.subjects).filter(pl.col("subject").is_not_null())


def _tell(chosen: Chosen, events: Events, schema: SignalsSchema, reporter: Reporter) -> None:
    """Tell how many events each signal has; warn of numbers that cannot be used, and of what is dated at discharge."""
    left = chosen.codes.filter(pl.col("code").str.contains(f"(?i){DISCHARGE}"))["id"].to_list()
    discharges = _more(chosen, events, left).select("subject", "time").drop_nulls().unique() if left else None
    for name, signal in schema.signals.items():
        rows, own = chosen.events(name), chosen.codes[chosen.ids[name]]
        subjects = counted(rows["subject"].n_unique(), "subject")
        codes = shown(own["code"].unique().sort().to_list(), 3)
        reporter.say(
            Diagnostic.of(
                "signal-counted", name, events=counted(rows.height, "event"), subjects=subjects,
                n=len(chosen.subjects), codes=codes or "none",
            )
        )  # fmt: skip
        how = schema.how(name, intervals=name in chosen.intervals)
        if schema.table.columns[name].role in ENDS:
            continue
        measured = signal.value == "number" and how not in WITHOUT_VALUES and name not in chosen.intervals
        if measured and (lost := rows["value"].null_count()):
            reporter.say(Diagnostic.of("events-without-number", name, events=counted(lost, "event"), n=rows.height))
        if discharges is None:
            continue
        timed = rows.filter(pl.col("time").is_not_null())
        at = timed.join(discharges, on=["subject", "time"], how="semi").height
        if timed.height >= FEW and at >= LEAKS * timed.height:
            reporter.say(Diagnostic.of("signal-at-discharge", name, share=100 * at / timed.height, events=timed.height))
