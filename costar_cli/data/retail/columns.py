"""Reading the columns of one CSV file, with errors that name file, column, row and value (polars)."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from costar_cli.config.nearest import did_you_mean
from costar_cli.data.findings import counted, shown
from costar_cli.errors import DataError
from costar_cli.files.frames import for_polars

NULLS = ["", "NA", "NaN", "nan", "null"]
FEW = 5  # columns named in a message


def column_names(path: Path) -> list[str]:
    """Return the names in a CSV file's first line.

    Raises:
        DataError: the file is empty or is no CSV.
    """
    try:
        with for_polars(path) as source:
            return pl.scan_csv(source, infer_schema=False, glob=False).collect_schema().names()
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        raise DataError(f"the file cannot be read as CSV: {_first_line(error)}", where=str(path)) from error


def read_columns(path: Path, types: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Read the given columns as the given types, in that order; blanks, NA and NaN become null, others are left out.

    Raises:
        DataError: columns are missing or doubled, values are not of their type, or rows have too many values.
    """
    present = column_names(path)
    if missing := [name for name in types if name not in present]:
        details = [f"no column '{name}'{_near(name, present)}" for name in missing[:FEW]]
        details += [f"and {len(missing) - FEW} more"] * (len(missing) > FEW)
        problem = f"{counted(len(missing), 'column')} missing" if len(missing) > 1 else details[0]
        raise DataError(
            problem,
            where=str(path),
            fix="use the file as Kaggle provides it",
            details=details if len(missing) > 1 else (),
        )
    with for_polars(path) as source:
        lines = pl.scan_csv(source, schema_overrides=dict(types), null_values=NULLS, infer_schema=False, glob=False)
    try:
        return lines.select(list(types)).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        _name_value(path, types)
        raise DataError(f"the file cannot be read as CSV: {_first_line(error)}", where=str(path)) from error


def only_known(column: pl.Series, known: Iterable[str], *, what: str, path: Path) -> None:
    """Raise if a column holds names that M5 does not have; null counts as no name."""
    unknown = sorted(set(column.unique().drop_nulls().to_list()) - set(known))
    if unknown:
        row = int(column.is_in(unknown).arg_true()[0])
        raise DataError(
            f"{counted(len(unknown), f'unknown {what}')}: {shown(unknown)}",
            where=f"{path}, column '{column.name}', first in row {row + 2}",
            fix=f"M5 knows {shown(known, 12)}",
        )


def in_each_row(frame: pl.DataFrame, keys: list[str], path: Path) -> None:
    """Raise if a row has no value of a key, as the last one of a file that is cut off."""
    for key in keys:
        if frame[key].null_count():
            row = int(frame[key].is_null().arg_true()[0])
            problem = f"{counted(frame[key].null_count(), 'row')} without {key}"
            raise DataError(problem, where=f"{path}, row {row + 2}", fix="fill or remove the rows")


def only_once(frame: pl.DataFrame, keys: list[str], path: Path) -> None:
    """Raise if two rows have the same keys, or a row has none."""
    in_each_row(frame, keys, path)
    repeated = frame.select(keys).is_duplicated()
    if repeated.any():
        row = int(repeated.arg_true()[0])
        named = ", ".join(f"{key} {frame[key][row]}" for key in keys)
        raise DataError(
            f"{counted(int(repeated.sum()), 'row')} with the same {' and '.join(keys)} as another",
            where=f"{path}, first {named} in row {row + 2}",
            fix="keep one row of each",
        )


def _name_value(path: Path, types: Mapping[str, pl.DataType]) -> None:
    """Raise an error that names the first value that is not of its column's type, if there is one."""
    with for_polars(path) as source:
        text = pl.scan_csv(source, null_values=NULLS, infer_schema=False, glob=False)
    for name, kind in types.items():
        if kind == pl.String:
            continue
        try:
            column = text.select(name).collect(engine="streaming")[name]
        except pl.exceptions.PolarsError:
            return
        bad = column.cast(kind, strict=False).is_null() & column.is_not_null()
        if bad.any():
            row = int(bad.arg_true()[0])
            what = "whole number" if kind.is_integer() else "number"
            values = counted(int(bad.sum()), f"value that is not a {what}", f"values that are not {what}s")
            problem = f"column '{name}' holds {values}, first {column[row]!r}"
            raise DataError(problem, where=f"{path}, row {row + 2}", fix="correct the values")


def _near(name: str, present: list[str]) -> str:
    guess = did_you_mean(name, present, quoted=True)
    return f" ({guess})" if guess else ""


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
