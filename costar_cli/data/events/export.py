"""A data set as a log of events in the layout of MEDS, with the signals that read it back (polars)."""

import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from costar_cli.data.dataset import Dataset
from costar_cli.data.table.export import ExportTimes, dataset_to_frame, free_names, schema_text
from costar_cli.data.table.parse import FORMATS
from costar_cli.data.table.schema_column import ENDS, OF_STEPS
from costar_cli.data.table.schema_file import toml_row
from costar_cli.errors import MismatchError, storing

BEGIN: Final = "SERIES_BEGIN"
SPLITS: Final = {"train": "train", "val": "tuning", "test": "held_out"}
ABOUT: Final = b'{"dataset_name": "exported by costar", "meds_version": "0.4.0"}\n'
AS_TABLES: Final = "export it as tables: `--format parquet`"
EVENT: Final = {
    "subject_id": pl.Int64(),
    "time": pl.Datetime("us"),
    "code": pl.String(),
    "numeric_value": pl.Float32(),
    "text_value": pl.String(),
}


def meds_export_files(folder: Path) -> dict[str, Path]:
    """Return the files of an export, by what they are."""
    metadata = folder / "metadata"
    return {
        **{f"events-{split}": folder / "data" / f"{split}.parquet" for split in SPLITS.values()},
        "codes": metadata / "codes.parquet",
        "splits": metadata / "subject_splits.parquet",
        "about": metadata / "dataset.json",
        "signals": folder / "signals.toml",
    }


def export_meds(dataset: Dataset, folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write a data set as a MEDS folder, a shard per split, and return its files; `signals.toml` reads it back.

    What was filled is left out, and so are queries. Subjects are called by their numbers.

    Raises:
        MismatchError: a file exists and `overwrite` is false, or the data have no dates of even steps in which events
            could stand, a split by time, clusters, or subjects of several columns.
        StorageError: the folder cannot be written.
    """
    from costar_cli.files import write_bytes  # noqa: PLC0415 - h5py

    times = ExportTimes.of(dataset)
    if not times.dated or {"gaps", "format"} & set(times.keys) or times.keys["step"].endswith(("mo", "y")):
        problem = "events have moments, and the steps of this data set are not of one length between dates"
        raise MismatchError(problem, where="--format", fix=AS_TABLES)
    panels = dataset.panels.values()
    if dataset.schema.subject or any(panel.since is not None or panel.cluster is not None for panel in panels):
        problem = "a log of events has no clusters, no subjects of several columns and no split by time"
        raise MismatchError(problem, where="--format", fix=AS_TABLES)
    files = meds_export_files(folder)
    if not overwrite and (there := [path for path in files.values() if path.exists()]):
        raise MismatchError("the file exists", where=str(there[0]), fix="add --overwrite, or choose another folder")
    schema, names = tomllib.loads(schema_text(dataset)), free_names(dataset.schema)
    number = {str(name): int(i) for panel in panels for name, i in zip(panel.names, panel.subject_id, strict=True)}
    moment = pl.coalesce(pl.col(names["time"]).str.to_datetime(form, time_unit="us", strict=False) for form in FORMATS)
    who = pl.col(names["subject"]).cast(pl.String).replace_strict(number, return_dtype=pl.Int64)
    frame = dataset_to_frame(dataset).with_columns(subject_id=who, time=moment)
    lines = {name: line for name, line in schema["columns"].items() if line["role"] not in ("subject", "time", "split")}
    texts = {name for name, line in lines.items() if frame.schema[name] == pl.String and line["role"] not in ENDS}
    events = pl.concat(list(_events(frame, lines, texts))).sort("subject_id", "time", "code", nulls_last=False)
    splits = frame.select("subject_id", split=pl.col(names["split"]).replace_strict(SPLITS, return_dtype=pl.String))
    splits = splits.unique().sort("subject_id")
    no_parents = pl.lit([], dtype=pl.List(pl.String))
    codes = events.select("code").unique().sort("code")
    codes = codes.with_columns(description=pl.col("code"), parent_codes=no_parents)
    with storing(folder):
        for part in ("data", "metadata"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        for split in SPLITS.values():
            own = splits.filter(pl.col("split") == split)
            _write(events.join(own, on="subject_id", how="semi", maintain_order="left"), files[f"events-{split}"])
        _write(codes, files["codes"])
        _write(splits, files["splits"])
        write_bytes(files["about"], ABOUT)
        write_bytes(files["signals"], ("\n".join(_signals(schema, lines, texts)) + "\n").encode())
    return list(files.values())


def _write(frame: pl.DataFrame, path: Path) -> None:
    from costar_cli.files.tables import table_file  # noqa: PLC0415 - h5py

    with table_file(path) as table:
        table.write(frame.to_dict())


def _code(name: str, line: Mapping[str, Any]) -> str:
    """Return the code of a column's events."""
    return f"{str(line['role']).upper()}//{name}"


def _events(
    frame: pl.DataFrame, lines: Mapping[str, Mapping[str, Any]], texts: Collection[str]
) -> Iterator[pl.DataFrame]:
    """Yield the events of each column: what it is worth as a number, or as a text."""
    first = frame.group_by("subject_id", maintain_order=True).first()
    yield first.select("subject_id", "time", code=pl.lit(BEGIN)).with_columns(
        numeric_value=pl.lit(None, pl.Float32()), text_value=pl.lit(None, pl.String())
    )
    for name, line in lines.items():
        fixed = line["role"] in ("static", "domain")
        rows = (first if fixed else frame).filter(pl.col(name).is_not_null())
        number = pl.lit(None) if name in texts or line["role"] in ENDS else pl.col(name)
        columns = {
            "subject_id": pl.col("subject_id"),
            "time": pl.lit(None) if fixed else pl.col("time"),
            "code": pl.lit(_code(name, line)),
            "numeric_value": number,
            "text_value": pl.col(name) if name in texts else pl.lit(None),
        }
        yield rows.select(column.cast(EVENT[key]).alias(key) for key, column in columns.items())


def _signals(
    schema: Mapping[str, Any], lines: Mapping[str, Mapping[str, Any]], texts: Collection[str]
) -> Iterator[str]:
    """Yield the lines of the signals that read the events back."""
    yield "# Written by `costar inspect --export`; read back with `costar ingest meds`."
    yield from (toml_row(key, value) for key, value in schema.items() if not isinstance(value, dict))
    yield f"\n[anchor]\n{toml_row('code', BEGIN)}"
    yield "\n[columns]"
    for name, line in lines.items():
        made = {**line, "code": _code(name, line)}
        made |= {"aggregate": "first"} if line["role"] in OF_STEPS else {}
        made |= {"value": "text"} if name in texts else {}
        yield toml_row(name, made)
    for section in ("time", "treatments", "error_unit"):
        yield f"\n[{section}]"
        yield from (toml_row(key, value) for key, value in schema[section].items())
