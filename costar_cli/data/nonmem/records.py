"""The records of a file in NONMEM's layout, checked: whose and when, observation or dose, and how it goes on (polars).

Arrays are along the records of the file, `R`, in its order.
"""

import csv
import io
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from costar_cli.config.nearest import did_you_mean
from costar_cli.data.findings import counted, invalid, raise_errors, shown
from costar_cli.data.nonmem.fields import (
    OBSERVED,
    RESET,
    RESET_AND_DOSE,
    Floats,
    Ints,
    Mask,
    codes_of,
    covariates_like,
    named,
    read_covariates,
    read_doses,
    read_limits,
    read_times,
    wrong_in,
)
from costar_cli.data.nonmem.settings import ITEMS, NonmemConfig, RecordsRead, pairs
from costar_cli.data.table.files import SEPARATORS, TableFile, check_path, collected, frame_as_file, open_files
from costar_cli.data.table.packed import COMPRESSED
from costar_cli.data.table.parse import Reading, Rows, read_rows, unreadable
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError, StorageError, refuse_pipe
from costar_cli.reporting import Reporter

BLANK: Final = (".", "NA", "NaN", "null")
TYPED: Final = (".parquet", ".pq", ".feather", ".arrow", ".ipc", ".xlsx", *COMPRESSED)  # files of `ingest table`
MOST_BYTES: Final = 500_000_000
NUMBERS: Final = ("dv", "amt", "evid", "mdv", "rate", "dur", "addl", "ii", "ss", "limit", "lloq")


@dataclass(frozen=True, eq=False)
class Records:
    """The records of a file.

    Attributes:
        names: what the file calls the items that it has.
        outcomes: what is measured, with its code where one chooses it.
        drugs: what is given, likewise.
        subject_S: whose each series is. A subject has one more from each reset of its system on.
        series_S: what each series is called: 7, and 7:2 from the first reset on.
        series_R: its number.
        time_R: in units of TIME; in hours from the subject's first record where there are dates or clocks.
        kind_R: what the record is, by EVID; 0 an observation.
        outcome_R: number of the outcome that a value is of, -1 where there is none.
        dv_R: values of observations.
        drug_R: number of what is given, -1 where nothing is.
        amount_R: of doses; 0 of other records.
        duration_R: over which each is given, 0 at once.
        addl_R: doses that follow it.
        interval_R: time between these.
        steady_R: 1 where the dose is one at steady state, 2 where that adds to what was before.
        covariates: other columns that are used, numbers or texts.
    """

    names: dict[str, str]
    outcomes: dict[str, str | None]
    drugs: dict[str, str | None]
    subject_S: list[str]
    series_S: list[str]
    series_R: Ints
    time_R: Floats
    kind_R: Ints
    outcome_R: Ints
    dv_R: Floats
    drug_R: Ints
    amount_R: Floats
    duration_R: Floats
    addl_R: Ints
    interval_R: Floats
    steady_R: Ints
    covariates: dict[str, pl.Series]


def open_records(path: Path, columns: str) -> TableFile:
    """Open a file of records: text whose fields are separated by commas, tabs, semicolons or blanks, or a table.

    Comments, `#` first or a `C` in a first column of that name, are no records; nor are headers that come again.

    Raises:
        DataError: it is missing, empty or no text.
    """
    if path.suffix.lower() in TYPED or not path.is_file():
        check_path(path)
        return open_files([path], "the file")[0]
    refuse_pipe(path)
    if path.stat().st_size > MOST_BYTES:
        raise DataError(f"more than {MOST_BYTES:,} bytes of text", where=str(path), fix="save it as Parquet")
    try:
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise DataError("this is not UTF-8 text", where=str(path), fix="save it as CSV in UTF-8") from None
    except OSError as error:
        raise StorageError(f"the file cannot be read: {error.strerror or error}", where=str(path)) from error
    lines = [line for line in lines if line.strip() and not (line.startswith("#") and not line.startswith("#ID"))]
    if not lines:
        raise DataError("the file is empty", where=str(path), fix="give a row per dose and observation")
    separator = max(SEPARATORS, key=lines[0].count)
    blanks = separator not in lines[0]
    header = re.split(r"[\s,]+", columns.strip()) if columns.strip() else None
    if header is None:
        header = lines[0].split() if blanks else next(csv.reader([lines[0]], delimiter=separator))
        lines = [line for line in lines[1:] if line.strip() != lines[0].strip()]
    if blanks:
        separator, lines = ",", [",".join(line.replace(",", " ").split()) for line in lines]
    with collected(path):
        frame = pl.read_csv(
            io.BytesIO("\n".join(lines).encode()), separator=separator, has_header=False, infer_schema=False,
            new_columns=None, truncate_ragged_lines=False,
        ) if lines else pl.DataFrame({f"{i}": [] for i in range(len(header))}, schema_overrides={})  # fmt: skip
    if frame.width != len(header):
        problem = f"rows of {counted(frame.width, 'field')} under a header of {len(header)}"
        raise DataError(problem, where=str(path), fix="name all columns, in the order of the file")
    names = [name.strip() or f"column {i + 1}" for i, name in enumerate(header)]
    if len(set(names)) == len(names):
        frame.columns = names
        if names[0].upper() == "C":  # NONMEM's IGNORE=C
            frame = frame.filter(pl.col(names[0]).fill_null("").str.strip_chars().is_in(["", ".", "0"]))
        return frame_as_file(frame, path.name)
    twice = sorted({name for name in names if names.count(name) > 1})
    raise DataError(f"the header names {shown(twice)} more than once", where=str(path), fix="rename the columns")


def read_records(path: Path, settings: NonmemConfig, reporter: Reporter, like: RecordsRead | None = None) -> Records:
    """Return the records of a file; those of subjects that are new to a model `like` those of its data.

    Raises:
        DataError: all that is wrong with its columns and rows.
    """
    file = open_records(path, settings.columns)
    names, found = _items(file, settings)
    raise_errors(found, what=path.name)
    others = [name for name in file.columns if name not in names.values()]
    readings = {item: Reading(name, "number" if item in NUMBERS else "text") for item, name in names.items()}
    plain = {name: Reading(name, "text") for name in others}
    rows = read_rows(
        [file], [*readings.values(), *plain.values()], (*BLANK, *tomllib.loads(settings.table).get("blank", ()))
    )
    if not rows.height:
        raise DataError("the file has no records", where=str(path), fix="give a row per dose and observation")
    found += unreadable(rows, readings.values())
    given = {item: rows.series(reading).alias(names[item]) for item, reading in readings.items()}

    def numbers(item: str) -> Floats:
        return rows.numbers(readings[item]) if item in readings else np.full(rows.height, np.nan)

    ids = given["id"].fill_null("")
    changes_R, wrong = _subjects(given["id"], rows)
    found += wrong
    time_R, wrong = read_times(given, names, rows, changes_R, settings.time_unit)
    found += wrong
    doses, wrong = read_doses(numbers, names, rows, np.cumsum(changes_R), time_R, reporter)
    found += wrong
    kind_R, steady_R = doses["kind"], doses["steady"]
    reset_R = np.isin(kind_R, (RESET, RESET_AND_DOSE)) | (steady_R == 1)  # a steady state forgets what was before, too
    begins_R = changes_R | reset_R
    if (steady_R > 0).any() and not settings.steady_state:
        fix = "`--steady-state 5` puts five earlier doses in its place, the last of them an II before"
        found += wrong_in(names["ss"], steady_R > 0, "that stand for doses which no row gives", rows, fix)
    back_R = np.diff(time_R, prepend=time_R[:1]) < 0
    fix = "sort each subject's rows by time; where it starts again, EVID 3 or 4 says so"
    found += wrong_in(names["time"], back_R & ~begins_R, "before that of the row above", rows, fix)
    codes = {item: codes_of(given[item]) for item in ("cmt", "dvid") if item in given}
    observed_R = kind_R == OBSERVED
    dv_R, limited_R, wrong = read_limits(numbers("dv"), observed_R, numbers, given, names, rows, settings)
    found += wrong
    seen_R = observed_R & ((np.nan_to_num(numbers("mdv")) == 0) | limited_R) & ~np.isnan(dv_R)
    of = codes.get("dvid")
    if (of is None and "cmt" in codes) and (
        (like and len(like.outcomes) > 1) or codes["cmt"].filter(pl.Series(seen_R)).n_unique() > 1
    ):
        of = codes["cmt"]
    outcomes, outcome_R, wrong = named(
        "outcomes", settings.outcomes, of, seen_R, names["dv"], rows, like.outcomes if like else None
    )
    found += wrong
    given_R = doses["amount"] > 0
    drugs, drug_R, wrong = named(
        "doses", settings.doses, codes.get("cmt"), given_R, names["amt"], rows, like.doses if like else None
    )
    found += wrong
    lacking = (
        (seen_R, "an observation", f"EVID 0 with a {names['dv']}"),
        (given_R, "a dose", f"EVID 1 with {names['amt']}"),
    )
    found += [
        invalid(f"no record is {what}", path.name, f"give rows of {fix}")
        for mask, what, fix in lacking
        if not mask.any() and not (like and mask is given_R)  # who is new may not have had a dose yet
    ]
    covariates, wrong = (
        covariates_like(plain, rows, like) if like else read_covariates(plain, rows, settings, dv_R, given_R, reporter)
    )
    raise_errors([*found, *wrong], what=path.name)
    if limited := int(limited_R.sum()):
        reporter.say(Diagnostic.of("values-limited", values=counted(limited, "value"), became=BECAME[settings.below]))
    of_series = ids.filter(pl.Series(begins_R))
    number = pl.DataFrame({"id": of_series}).select(pl.int_range(pl.len()).over("id")).to_series()
    return Records(
        names=names,
        outcomes=outcomes,
        drugs=drugs,
        subject_S=list(of_series),
        series_S=[f"{name}:{n + 1}" if n else name for name, n in zip(of_series, number, strict=True)],
        series_R=np.cumsum(begins_R) - 1,
        time_R=time_R,
        kind_R=kind_R.astype(np.int64),
        outcome_R=outcome_R,
        dv_R=dv_R,
        drug_R=drug_R,
        amount_R=np.where(drug_R < 0, 0.0, doses["amount"]),
        duration_R=doses["duration"],
        addl_R=doses["addl"].astype(np.int64),
        interval_R=doses["interval"],
        steady_R=steady_R.astype(np.int64),
        covariates=covariates,
    )


def _subjects(ids: pl.Series, rows: Rows) -> tuple[Mask, list[Diagnostic]]:
    """Return which records are the first of a subject."""
    found = wrong_in(ids.name, ids.is_null(), "missing", rows, "name the subject of each row")
    ids = ids.fill_null("")
    changes_R = (ids != ids.shift()).fill_null(value=True).to_numpy()
    runs = ids.filter(pl.Series(changes_R))
    if (again := ~runs.is_first_distinct()).any():
        first = int(np.flatnonzero(changes_R)[int(again.arg_max() or 0)])
        problem = f"subject {ids[first]} comes again after others, which NONMEM takes for a new subject"
        found.append(invalid(problem, rows.place(first), "sort the rows by subject and time, or give it another ID"))
    return changes_R, found


BECAME: Final = {
    "missing": "count as not measured, so that models learn from the larger values alone",
    "half": "stand at half of it, or between CENS and LIMIT",
    "limit": "stand at it",
}


def _items(file: TableFile, settings: NonmemConfig) -> tuple[dict[str, str], list[Diagnostic]]:
    """Return what the file calls each item that it has, and which are missing."""
    lower = {name.casefold(): name for name in reversed(list(file.columns))}
    names, found = {}, []
    said = pairs(settings.items)
    for item, known in ITEMS.items():
        if item in said:
            if said[item].casefold() not in lower:
                hint = did_you_mean(said[item], file.columns, quoted=True) or f"it has {shown(file.columns, 8)}"
                found.append(invalid(f"there is no column '{said[item]}'", f"--items, {item}", hint))
            else:
                names[item] = lower[said[item].casefold()]
        elif called := next((lower[name] for name in known if name in lower), None):
            names[item] = called
    for item in ("id", "time", "dv", "amt"):
        if item not in names and item not in said:
            near = did_you_mean(ITEMS[item][0], file.columns, quoted=True) or f"it has {shown(file.columns, 12)}"
            fix = f"{near}; `--items '{item}=COLUMN'` says which column it is"
            found.append(invalid(f"there is no column {' or '.join(ITEMS[item]).upper()}", file.name, fix))
    return names, found
