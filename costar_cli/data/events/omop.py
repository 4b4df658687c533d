"""The OMOP Common Data Model (5.3 and 5.4) as a log of events: CSV or Parquet in a folder, or a DuckDB file (polars).

A code is a table and a concept, `measurement//3004249`; its parents are the concepts above it,
`drug_exposure//21601386`. Codes of birth and death are those of MEDS.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from costar_cli.config.nearest import did_you_mean
from costar_cli.data.events.duckdb_file import open_duckdb
from costar_cli.data.events.log import Events
from costar_cli.data.findings import counted, invalid, raise_errors, shown
from costar_cli.data.table.files import TableFile, collected, frame_as_file, open_files
from costar_cli.data.table.parse import UNREADABLE, Reading, as_read
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError
from costar_cli.reporting import Reporter

DAY_US: Final = 86_400 * 10**6
ENDINGS: Final = (".csv", ".csv.gz", ".tsv", ".parquet", ".pq")
DATABASES: Final = (".duckdb", ".db", ".ddb")
BLANK: Final = ("NA", "NaN", "null", "\\N")
EQUALS: Final = 4172703  # operator concept of a value that is what it says; others are limits such as `<`


@dataclass(frozen=True)
class _Table:
    """What of a table of the model is read: the columns of concept, of start and end, of the value, and of texts."""

    concept: str
    start: str
    end: str = ""
    value: str = ""
    texts: tuple[str, ...] = ()

    def columns(self) -> list[str]:
        """Return the columns that may be there."""
        times = [f"{of}_{kind}" for of in (self.start, self.end) if of for kind in ("date", "datetime")]
        units = ["unit_concept_id", "unit_source_value", "operator_concept_id"] * (self.value == "value_as_number")
        return ["person_id", self.concept, *times, *([self.value] if self.value else []), *self.texts, *units]

    def required(self) -> list[str]:
        """Return the columns without which it cannot be read."""
        return ["person_id", self.concept, f"{self.start}_date", *([f"{self.end}_date"] if self.end else [])]


_SAID: Final = ("value_as_concept_id", "value_as_string", "value_source_value")
TABLES: Final[Mapping[str, _Table]] = {
    "visit_occurrence": _Table("visit_concept_id", "visit_start", "visit_end"),
    "drug_exposure": _Table("drug_concept_id", "drug_exposure_start", "drug_exposure_end", "quantity"),
    "drug_era": _Table("drug_concept_id", "drug_era_start", "drug_era_end", "drug_exposure_count"),
    "measurement": _Table("measurement_concept_id", "measurement", "", "value_as_number", _SAID),
    "observation": _Table("observation_concept_id", "observation", "", "value_as_number", _SAID),
    "condition_occurrence": _Table("condition_concept_id", "condition_start"),
    "procedure_occurrence": _Table("procedure_concept_id", "procedure"),
}
PERSON: Final = ("person_id", "year_of_birth", "month_of_birth", "day_of_birth", "birth_datetime")
STATED: Final = ("gender", "race", "ethnicity")
OTHERS: Final[Mapping[str, tuple[str, ...]]] = {
    "person": (*PERSON, *(f"{name}_{kind}" for name in STATED for kind in ("concept_id", "source_value"))),
    "observation_period": ("person_id", "observation_period_start_date", "observation_period_end_date"),
    "death": ("person_id", "death_date", "death_datetime"),
    "concept": ("concept_id", "concept_name", "concept_code"),
    "concept_ancestor": ("ancestor_concept_id", "descendant_concept_id"),
}
REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "person": ("person_id", "year_of_birth"),
    "observation_period": OTHERS["observation_period"],
    "death": ("person_id", "death_date"),
    "concept": OTHERS["concept"],
    "concept_ancestor": OTHERS["concept_ancestor"],
    **{name: tuple(table.required()) for name, table in TABLES.items()},
}
WANTED: Final = {**OTHERS, **{name: tuple(table.columns()) for name, table in TABLES.items()}}
LAYOUT: Final = "an OMOP folder has person, observation_period and tables such as measurement, as .csv or .parquet"


def omop_files(path: Path) -> dict[str, Path]:
    """Return the files that are read, by their names in the folder; of a DuckDB file itself.

    Raises:
        DataError: there is no such folder or file, a table is there twice, or a link leads out of the folder.
    """
    if path.is_file() and path.suffix.lower() in DATABASES:
        return {path.name: path}
    if not path.is_dir():
        problem = "the file is no DuckDB file" if path.exists() else "the folder does not exist"
        raise DataError(problem, where=str(path), fix=f"{LAYOUT}; a database ends in {', '.join(DATABASES)}")
    root, found, findings = path.resolve(), dict[str, list[Path]](), list[Diagnostic]()
    for file in sorted(path.iterdir()):
        name = re.sub(rf"({'|'.join(map(re.escape, sorted(ENDINGS, key=len, reverse=True)))})$", "", file.name.lower())
        if name not in WANTED or name == file.name.lower() != file.name:
            continue
        own = [file]
        if file.is_dir() and not file.is_symlink():  # a folder of parts, as Spark writes them
            own = [part for part in sorted(file.iterdir()) if part.name.lower().endswith(ENDINGS)]
        elif name == file.name.lower():
            continue
        if name in found:
            findings.append(invalid(f"table {name} is there twice", file.name, "keep one of the two"))
        for part in own:
            if not part.resolve().is_relative_to(root):
                findings.append(invalid("a link that leads out of the folder", part.name, "copy the file"))
        found.setdefault(name, own)
    raise_errors(findings, what=path.name)
    return {str(part.relative_to(path)): part for own in found.values() for part in own}


def open_omop(path: Path, reporter: Reporter, *, pairs: Collection[str] = ()) -> Events:
    """Return the log of a database; `pairs` says nothing, as each row has its start and its end.

    Raises:
        DataError: tables or columns that are missing, dates and numbers that cannot be read; all at once.
    """
    del pairs
    path = Path(path)
    tables = _tables(path, reporter)
    concepts = None
    if "concept" in tables:
        named = (pl.col(name).cast(pl.String).str.strip_chars() for name in ("concept_name", "concept_code"))
        concepts = tables["concept"].select(_whole("concept_id"), *named)
        concepts = concepts.drop_nulls("concept_id").unique("concept_id", keep="any")
    frames, findings, codes = list[pl.LazyFrame](), list[Diagnostic](), list[pl.DataFrame]()
    with reporter.task("open tables", total=len(TABLES), unit="table") as task:
        for name, table in TABLES.items():
            task.advance()
            if name not in tables:
                continue
            frame, found, own = _events_of(name, table, tables[name], concepts, path, reporter)
            frames += [frame]
            findings += found
            codes += [own]
    frames += _people(tables, concepts)
    raise_errors(findings, what=path.name)
    people = tables["person"].select(_whole("person_id"))
    with collected(path):
        known = people.collect()["person_id"]
    if (twice := known.is_duplicated() & known.is_not_null()).any():
        who = shown(known.filter(twice).unique().sort().to_list())
        raise DataError(f"table person has rows of the same person: {who}", where=path.name, fix="keep one row of each")
    scan = pl.concat(frames, how="diagonal_relaxed")
    with collected(path):
        alone = scan.filter(~pl.col("subject").is_in(known.implode())).select(
            n=pl.len(), people=pl.col("subject").n_unique()
        )
        count, strangers = alone.collect(engine="streaming").row(0)
    if count:
        events, who = counted(count, "event"), counted(strangers, "subject")
        reporter.say(Diagnostic.of("events-of-strangers", events=events, subjects=who))
        scan = scan.filter(pl.col("subject").is_in(known.implode()))
    parents, texts = _codes(pl.concat(codes).unique(), tables, concepts, path)
    return Events(scan, path, parents=parents, texts=texts)


def _tables(path: Path, reporter: Reporter) -> dict[str, pl.LazyFrame]:
    """Return the columns that are wanted of each table that is there, called in small letters.

    Raises:
        DataError: tables or columns that are missing.
    """
    files = omop_files(path)
    if path.is_file():
        opened = {
            name: [frame_as_file(frame, name)]
            for name, frame in open_duckdb(path, WANTED).items()
        }  # fmt: skip
    else:
        places: dict[str, list[Path | TableFile]] = {}
        for place, file in files.items():
            name = re.split(r"[./\\]", place.lower())[0]
            places.setdefault(name, []).append(file)
        spelt = {spelling for columns in WANTED.values() for name in columns for spelling in (name, name.upper())}
        opened = {name: open_files(own, f"table {name}", names=spelt) for name, own in places.items()}
    tables = {}
    for name, parts in opened.items():
        scans = []
        for part in parts:
            lower = {column.lower(): column for column in part.columns}
            own = [part.column(lower[column]).alias(column) for column in WANTED[name] if column in lower]
            scans.append(part.scan.select(own))
        tables[name] = pl.concat(scans, how="diagonal_relaxed")
    has = {name: table.collect_schema().names() for name, table in tables.items()}
    for name in [name for name, columns in has.items() if not columns]:
        # such as `death` of Eunomia's GiBleed, which was made of an empty file
        del tables[name]
        reporter.say(Diagnostic.of("omop-table-odd", name))
    findings = []
    for name in ("person", "observation_period"):
        if name not in tables:
            near = did_you_mean(name, [file.stem.lower() for file in path.iterdir()]) if path.is_dir() else ""
            findings.append(invalid(f"there is no table {name}", path.name, near or LAYOUT))
    if not any(name in tables for name in TABLES):
        findings.append(invalid(f"there is no table of events: {', '.join(TABLES)}", path.name, LAYOUT))
    findings += [
        invalid(f"table {name} lacks {shown(lacking)}", path.name, f"it has {shown(has[name], 8)}")
        for name in tables
        if (lacking := [column for column in REQUIRED[name] if column not in has[name]])
    ]
    raise_errors(findings, what=path.name)
    return tables


def _whole(column: str) -> pl.Expr:
    """Return whole numbers, which texts and decimals may be."""
    return pl.col(column).cast(pl.Float64, strict=False).cast(pl.Int64, strict=False)


def _moment(scan: pl.LazyFrame, column: str) -> pl.Expr:
    """Return moments of a column in microseconds since 1970, `UNREADABLE` for what is none."""
    kind = scan.collect_schema()[column]
    return as_read(pl.col(column), kind, Reading(column, "us"), BLANK, zoned=False)


MOMENTS: Final = ("start_date", "start_datetime", "stop_date", "stop_datetime")


def _rows(table: _Table, scan: pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows of a table of events with columns of one name in all tables, null where it has none."""
    has = scan.collect_schema().names()

    def whole(column: str) -> pl.Expr:
        return _whole(column) if column in has else pl.lit(None, dtype=pl.Int64)

    def text(column: str) -> pl.Expr:
        if column not in has:
            return pl.lit(None, dtype=pl.String)
        return pl.col(column).cast(pl.String).str.strip_chars().replace(["", *BLANK], None)

    moments = {}
    for key in MOMENTS:
        when, kind = key.split("_")
        column = f"{table.start if when == 'start' else table.end}_{kind}"
        moments[key] = _moment(scan, column) if column in has else pl.lit(None, dtype=pl.Int64)
    return scan.select(
        subject=whole("person_id"),
        concept=whole(table.concept).fill_null(0),
        **moments,
        value=text(table.value).cast(pl.Float64, strict=False),
        written=text(table.value),
        operator=whole("operator_concept_id"),
        unit=whole("unit_concept_id"),
        unit_source=text("unit_source_value"),
        said=whole("value_as_concept_id"),
        said_source=pl.coalesce(text("value_as_string"), text("value_source_value")),
    )


def _events_of(
    name: str, table: _Table, scan: pl.LazyFrame, concepts: pl.LazyFrame | None, path: Path, reporter: Reporter
) -> tuple[pl.LazyFrame, list[Diagnostic], pl.DataFrame]:
    """Return the events of a table, what is wrong with its rows, and its codes; count what cannot be used.

    The date counts where a moment is missing, or where no row has a time of day: intervals then end with the day.
    """
    rows = _rows(table, scan)
    with collected(path):
        codes = (
            rows.select("concept").unique().collect(engine="streaming").select(pl.lit(name).alias("table"), "concept")
        )
    fine, findings = _checked(name, table, rows, path, reporter)
    rows = rows.filter(pl.col("subject").is_not_null() & pl.col("start_date").is_not_null())
    rows = _with_concept(rows, "unit", "concept_code", "unit_code", concepts)
    rows = _with_concept(rows, "said", "concept_name", "said_name", concepts)
    day_after = pl.col("stop_date") + DAY_US
    time = pl.coalesce("start_datetime", "start_date") if fine else pl.col("start_date")
    events = rows.select(
        "subject",
        time=time.cast(pl.Datetime("us")),
        code=pl.format("{}//{}", pl.lit(name), pl.col("concept")),
        value="value",
        text=pl.coalesce("said_name", "said_source", _known("said")),
        unit=pl.coalesce("unit_code", "unit_source", _known("unit")),
        stop=(pl.coalesce("stop_datetime", day_after) if fine else day_after).cast(pl.Datetime("us")),
    )
    return events, findings, codes


def _checked(
    name: str, table: _Table, rows: pl.LazyFrame, path: Path, reporter: Reporter
) -> tuple[bool, list[Diagnostic]]:
    """Return whether a table has times of day, and what is wrong with its dates; count what cannot be used."""
    unread = pl.col("value").is_null() & pl.col("written").is_not_null()
    limits = ~pl.col("operator").is_in([0, EQUALS]) & pl.col("value").is_not_null()
    with collected(path):
        counts = rows.select(
            *(pl.col(key).eq(UNREADABLE).sum().alias(key) for key in MOMENTS),
            fine=pl.any_horizontal((pl.col(key) % DAY_US != 0).any() for key in MOMENTS if key.endswith("time")),
            nobody=pl.col("subject").is_null().sum(),
            never=pl.col("start_date").is_null().sum(),
            unread=unread.sum(),
            limits=limits.sum(),
        ).collect(engine="streaming").row(0, named=True)  # fmt: skip
    findings = []
    for key in MOMENTS:
        if bad := counts[key]:
            when, kind = key.split("_")
            column = f"{table.start if when == 'start' else table.end}_{kind}"
            problem = f"column {column}: {counted(bad, 'value that is no date', 'values that are no dates')}"
            findings.append(invalid(problem, f"table {name}", "write them as 2024-01-31 or 2024-01-31 14:00"))
    for key, what in (("nobody", "without a person"), ("never", "without a date")):
        if counts[key]:
            reporter.say(Diagnostic.of("omop-rows-left-out", name, rows=counted(counts[key], "row"), what=what))
    if counts["unread"]:
        values = counted(counts["unread"], "value")
        reporter.say(Diagnostic.of("omop-values-unread", name, values=values, column=table.value))
    if counts["limits"]:
        reporter.say(Diagnostic.of("omop-values-limits", name, values=counted(counts["limits"], "value")))
    return bool(counts["fine"]), findings


def _known(column: str) -> pl.Expr:
    """Return concepts as texts, null for 0, which is none."""
    return pl.when(pl.col(column) != 0).then(pl.col(column).cast(pl.String))


def _with_concept(
    rows: pl.LazyFrame, on: str, what: str, name: str, concepts: pl.LazyFrame | None
) -> pl.LazyFrame:  # fmt: skip
    """Return rows with what the table of concepts says of a column, null where it says nothing."""
    if concepts is None:
        return rows.with_columns(pl.lit(None, dtype=pl.String).alias(name))
    said = concepts.filter(pl.col("concept_id") != 0).select(pl.col("concept_id").alias(on), pl.col(what).alias(name))
    return rows.join(said, on=on, how="left")


def _people(tables: Mapping[str, pl.LazyFrame], concepts: pl.LazyFrame | None) -> list[pl.LazyFrame]:
    """Return what holds of persons always, their birth and death, and when they were observed."""
    person, made = tables["person"], list[pl.LazyFrame]()
    has = person.collect_schema().names()
    for name in STATED:
        concept, source = f"{name}_concept_id", f"{name}_source_value"
        if concept not in has and source not in has:
            continue
        given = person.select(
            _whole("person_id").alias("subject"),
            (_whole(concept) if concept in has else pl.lit(0, dtype=pl.Int64)).alias("concept"),
            (pl.col(source).cast(pl.String) if source in has else pl.lit(None, dtype=pl.String)).alias("source"),
        )
        given = _with_concept(given, "concept", "concept_name", "said", concepts)
        text = pl.coalesce("said", "source", _known("concept"))
        never = pl.lit(None, dtype=pl.Datetime("us"))
        made.append(given.select("subject", time=never, code=pl.format("{}//{}", pl.lit(name), text)))
    # In the middle of what is not said: of the year, or of the month
    month = (_whole("month_of_birth") if "month_of_birth" in has else pl.lit(None, dtype=pl.Int64)).fill_null(7)
    day = _whole("day_of_birth") if "day_of_birth" in has else pl.lit(None, dtype=pl.Int64)
    day = day.fill_null(pl.when(month == 7).then(1).otherwise(15))
    written = pl.format("{}-{}-{}", _whole("year_of_birth"), month, day)
    born = written.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us"))
    if "birth_datetime" in has:
        moment = _moment(person, "birth_datetime")
        born = pl.coalesce(pl.when(moment != UNREADABLE).then(moment).cast(pl.Datetime("us")), born)
    made.append(person.select(subject=_whole("person_id"), time=born, code=pl.lit("MEDS_BIRTH")))
    period = tables["observation_period"]
    start, end = (_moment(period, f"observation_period_{which}_date") for which in ("start", "end"))
    start, end = (pl.when(at != UNREADABLE).then(at) for at in (start, end))
    who = _whole("person_id")
    until = (end + DAY_US).cast(pl.Datetime("us"))
    made.append(
        period.select(subject=who, time=start.cast(pl.Datetime("us")), code=pl.lit("observation_period"), stop=until)
    )
    made.append(
        period.select(
            subject=who, time=end.cast(pl.Datetime("us")), code=pl.lit("observation_period//end"), until=until
        )
    )
    if "death" in tables:
        death = tables["death"]
        kinds = [f"death_{kind}" for kind in ("datetime", "date") if f"death_{kind}" in death.collect_schema().names()]
        at = pl.coalesce(pl.when(_moment(death, kind) != UNREADABLE).then(_moment(death, kind)) for kind in kinds)
        made.append(death.select(subject=who, time=at.cast(pl.Datetime("us")), code=pl.lit("MEDS_DEATH")))
    stated = pl.col("code").str.contains(f"^({'|'.join(STATED)})//")
    return [frame.filter(stated | pl.col("time").is_not_null()).drop_nulls("code") for frame in made]


def _codes(
    codes: pl.DataFrame, tables: Mapping[str, pl.LazyFrame], concepts: pl.LazyFrame | None, path: Path
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Return the concepts above each code, itself among them, in its own table, and what codes mean if that is said."""
    pairs = codes.select("table", "concept", above="concept")
    if "concept_ancestor" in tables:
        links = tables["concept_ancestor"].select(
            above=_whole("ancestor_concept_id"), concept=_whole("descendant_concept_id")
        )
        with collected(path):
            own = links.join(codes.lazy().select("concept").unique(), on="concept", how="semi").collect(
                engine="streaming"
            )
        pairs = pl.concat([pairs, codes.join(own, on="concept").select("table", "concept", "above")]).unique()
    code, parent = (pl.format("{}//{}", pl.col("table"), pl.col(of)) for of in ("concept", "above"))
    parents = pairs.select(code=code, parent=parent)
    if concepts is None:
        return parents, None
    named = codes.lazy().join(concepts, left_on="concept", right_on="concept_id")
    return parents, named.select(code=code, description="concept_name").drop_nulls().collect()
