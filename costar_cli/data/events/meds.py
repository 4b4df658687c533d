"""Folders in the Medical Event Data Standard (MEDS 0.3 and 0.4) as logs of events: guarded, read lazily (polars)."""

import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

import polars as pl

from costar_cli.data.events.log import Events
from costar_cli.data.findings import counted, invalid, raise_errors, shown
from costar_cli.data.table import untrusted
from costar_cli.data.table.files import collected
from costar_cli.data.table.scratch import require_limits
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import CostarError, DataError
from costar_cli.reporting import Reporter

SPLITS: Final = {"train": "train", "tuning": "val", "held_out": "test"}
MOST_FILES: Final = 100_000
MOST_EVENTS: Final = 4_000_000_000
AT_ONCE: Final = 200  # files that one process tries
LAYOUT: Final = "a MEDS folder has data/**/*.parquet and, in metadata, codes.parquet and subject_splits.parquet"
REQUIRED: Final = ("subject_id", "time", "code")
OPTIONAL: Final = {"numeric_value": pl.Float32(), "text_value": pl.String(), "unit": pl.String()}
CALLED: Final = {"subject_id": "subject", "numeric_value": "value", "text_value": "text"}


def open_meds(folder: Path, reporter: Reporter, *, pairs: Collection[str] = ()) -> Events:
    """Return the log of a MEDS folder, with the columns `pairs` beside those of the standard.

    Files are first read by another process, which damaged ones may end.

    Raises:
        DataError: no MEDS folder, files that are damaged, lead out of it or lack columns; all files at once.
    """
    folder = Path(folder)
    files = meds_files(folder)
    shards = {place: path for place, path in files.items() if place.startswith("data/")}
    raise_errors(_damaged(shards, [*REQUIRED, *OPTIONAL, *pairs]), what=folder.name)
    opened, findings = list[tuple[pl.LazyFrame, pl.Schema]](), list[Diagnostic]()
    with reporter.task("open event files", total=len(shards), unit="file") as task:
        for place, path in shards.items():
            scan = untrusted.scan_parquet(path)
            with collected(path):
                types = scan.collect_schema()
            findings += _type_problems(place, types)
            opened.append((scan, types))
            task.advance()
    raise_errors(findings, what=folder.name)
    more = [name for name in dict.fromkeys(pairs) if any(name in types for _, types in opened)]
    scans = [_standard(scan, types, more) for scan, types in opened]
    events = pl.concat(scans, how="vertical")
    with collected(folder):
        size = events.select(pl.len()).collect(engine="streaming").item()
        nobody = events.select(pl.col("subject", "code").is_null().any()).collect(engine="streaming").row(0)
    if size > MOST_EVENTS:
        raise DataError(
            f"{size:,} events, more than {MOST_EVENTS:,}", where=str(folder), fix="leave out subjects or codes"
        )
    for what, missing in zip(("subject", "code"), nobody, strict=True):
        if missing:
            column = "subject_id" if what == "subject" else what
            raise DataError(f"events without a {what}", where=str(folder), fix=f"give each row its `{column}`")
    if len(scans) > 1:  # MEDS has each subject in one file, and what reads it shard by shard would cut the others
        own = [scan.select(pl.col("subject").unique()) for scan in scans]
        with collected(folder):
            again = pl.concat(own).group_by("subject").len().filter(pl.col("len") > 1).collect(engine="streaming")
        if again.height:
            names = shown(again["subject"].sort().to_list())
            reporter.say(Diagnostic.of("subjects-in-files", subjects=counted(again.height, "subject"), names=names))
    parents, texts = _codes(files)
    return Events(events, folder, parents, _splits(files, reporter), texts)


def meds_files(folder: Path) -> dict[str, Path]:
    """Return the files of a MEDS folder that are read, by their places in it, those of events first.

    Raises:
        DataError: it is no MEDS folder, or has links that lead out of it.
    """
    if not folder.is_dir():
        problem = "this is a file, not a folder" if folder.exists() else "the folder does not exist"
        raise DataError(problem, where=str(folder), fix=LAYOUT)
    root, data, findings = folder.resolve(), folder / "data", list[Diagnostic]()
    files: dict[str, Path] = {}
    for at, folders, names in os.walk(data):
        linked = [name for name in folders if (Path(at) / name).is_symlink()]
        findings += [invalid("a link to a folder", str(Path(at) / name), "copy the files") for name in linked]
        for name in sorted(names):
            path = Path(at) / name
            if name.endswith(".parquet") and not name.startswith("."):
                files[path.relative_to(folder).as_posix()] = path
        if len(files) > MOST_FILES:
            raise DataError(f"more than {MOST_FILES:,} files", where=str(data), fix="write fewer and larger shards")
    if not files and not findings:
        near = "give the folder that `data` is in" if folder.name == "data" or not data.is_dir() else ""
        problem = "there is no Parquet file in its folder `data`" if data.is_dir() else "it has no folder `data`"
        raise DataError(problem, where=str(folder), fix="; ".join([LAYOUT, *([near] if near else [])]))
    files = dict(sorted(files.items()))
    for name in ("codes.parquet", "subject_splits.parquet", "dataset.json"):
        if (path := folder / "metadata" / name).exists() or path.is_symlink():
            files[f"metadata/{name}"] = path
    for place, path in files.items():
        if not path.resolve().is_relative_to(root):
            findings.append(invalid("a link that leads out of the folder", place, "copy the file that it leads to"))
        elif not path.is_file():
            findings.append(invalid("not a file", place, "leave it out"))
        elif not place.isprintable():
            findings.append(invalid("a name that cannot be printed", repr(place), "rename it"))
    raise_errors(findings, what=folder.name)
    return files


def _damaged(files: dict[str, Path], names: Sequence[str]) -> Iterator[Diagnostic]:
    """Find files that are no Parquet or that polars cannot read, by reading them in other processes."""
    whole = []
    for place, path in files.items():
        try:
            require_limits(path)
            with path.open("rb") as file:
                begins = file.read(4)
        except CostarError as error:
            yield invalid(error.problem, place, error.fix or "")
            continue
        if begins == b"PAR1":
            whole.append((place, path))
        else:
            yield invalid("this is not a Parquet file", place, "write it again, or leave it out")
    for first in range(0, len(whole), AT_ONCE):
        batch = whole[first : first + AT_ONCE]
        if _tried([path for _, path in batch], names) is None:
            continue
        for place, path in batch:
            if problem := _tried([path], names):
                yield invalid(f"it cannot be read: {problem.splitlines()[0][:200]}", place, "write it again")


def _tried(paths: Sequence[Path], names: Sequence[str]) -> str | None:
    from costar_cli.files.sandbox import tried  # noqa: PLC0415 - h5py

    asked = json.dumps({"names": list(names), "paths": [str(path) for path in paths]})
    return tried([str(Path(untrusted.__file__)), "read-all"], asked=asked)


def _type_problems(place: str, types: pl.Schema) -> Iterator[Diagnostic]:
    for name in REQUIRED:
        if name not in types:
            yield invalid(f"it has no column `{name}`", place, f"it has {shown(types.names(), 8)}; {LAYOUT}")
    fits: dict[str, tuple[Callable[[pl.DataType], bool], str]] = {
        "subject_id": (lambda kind: kind.is_integer(), "whole numbers"),
        "time": (lambda kind: isinstance(kind, pl.Datetime | pl.Date) or kind == pl.Null(), "moments"),
        "code": (lambda kind: kind in (pl.String, pl.Categorical, pl.Enum), "texts"),
        "numeric_value": (lambda kind: kind.is_numeric() or kind == pl.Null(), "numbers"),
    }
    for name, (fit, what) in fits.items():
        if name in types and not fit(types[name]):
            yield invalid(f"column `{name}` holds {types[name]}, not {what}", place, "write it as MEDS 0.4 says")


def _standard(scan: pl.LazyFrame, types: pl.Schema, pairs: Collection[str]) -> pl.LazyFrame:
    """Return the events of a file as those of any log: moments of a zone are in UTC."""
    time = pl.col("time")
    if isinstance(kind := types["time"], pl.Datetime) and kind.time_zone is not None:
        time = time.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    columns = [pl.col("subject_id").cast(pl.Int64), time.cast(pl.Datetime("us")), pl.col("code").cast(pl.String)]
    wanted = dict(OPTIONAL) | {name: pl.String() for name in pairs if name not in (*REQUIRED, *OPTIONAL)}
    for name, kind in wanted.items():
        own = pl.col(name) if name in types else pl.lit(None)
        columns.append(own.cast(kind).alias(name))
    return scan.select(columns).rename(CALLED)


def _codes(files: dict[str, Path]) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
    """Return the parents of codes, and their descriptions, None for what no file says.

    Raises:
        DataError: the file is damaged, or of other columns.
    """
    place = "metadata/codes.parquet"
    if place not in files:
        return None, None
    raise_errors(_damaged({place: files[place]}, ["code", "parent_codes", "description"]), what=place)
    scan = untrusted.scan_parquet(files[place])
    types = scan.collect_schema()
    parents = texts = None
    with collected(files[place]):
        if {"code", "parent_codes"} <= set(types.names()):
            if types["parent_codes"] != pl.List(pl.String()):
                problem = f"column `parent_codes` holds {types['parent_codes']}, not lists of texts"
                raise DataError(problem, where=place, fix="write it as MEDS 0.4 says, or leave the column out")
            pairs = scan.select("code", parent="parent_codes").explode("parent").drop_nulls()
            parents = pairs.unique().collect(engine="streaming")
        if {"code", "description"} <= set(types.names()):
            texts = scan.select(pl.col("code", "description").cast(pl.String)).drop_nulls().collect(engine="streaming")
    return parents, texts


def _splits(files: dict[str, Path], reporter: Reporter) -> pl.DataFrame | None:
    """Return the splits of subjects, None where no file says them; those of other names are left out, with a warning.

    Raises:
        DataError: the file is damaged, of other columns, or has a subject in two splits.
    """
    place = "metadata/subject_splits.parquet"
    if place not in files:
        return None
    raise_errors(_damaged({place: files[place]}, ["subject_id", "split"]), what=place)
    scan = untrusted.scan_parquet(files[place])
    types = scan.collect_schema()
    if not {"subject_id", "split"} <= set(types.names()) or not types["subject_id"].is_integer():
        raise DataError("it lacks `subject_id`, whole numbers, or `split`", where=place, fix=LAYOUT)
    with collected(files[place]):
        said = scan.select(
            pl.col("subject_id").cast(pl.Int64).alias("subject"), pl.col("split").cast(pl.String)
        ).collect()
    said = said.drop_nulls().unique().sort("subject", "split")
    if twice := said.filter(pl.col("subject").is_duplicated()).height:
        who = said.filter(pl.col("subject").is_duplicated())["subject"][0]
        raise DataError(f"{counted(twice, 'row')} of subjects in several splits", where=f"{place}, subject {who}",
                        fix="give each subject one split")  # fmt: skip
    other = said.filter(~pl.col("split").is_in(list(SPLITS)))
    if other.height:
        names = shown(other["split"].unique().sort().to_list())
        reporter.say(Diagnostic.of("splits-unknown", subjects=counted(other.height, "subject"), names=names))
    known = said.filter(pl.col("split").is_in(list(SPLITS)))
    return known.with_columns(pl.col("split").replace_strict(SPLITS, return_dtype=pl.String))
