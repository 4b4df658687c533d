"""Data frames of pandas and polars: told apart without importing either, made of columns, read as columns."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard

from costar_cli.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    Frame: TypeAlias = pd.DataFrame | pl.DataFrame

FrameName = Literal["pandas", "polars"]
LIBRARIES: tuple[FrameName, ...] = ("pandas", "polars")
Rows = Sequence[Mapping[str, object]]


def is_frame(value: object) -> "TypeGuard[Frame]":
    """Return whether something is a data frame of pandas or polars."""
    return _library(value) in LIBRARIES and type(value).__name__ == "DataFrame"


def frame_name(value: object, asked: FrameName | None = None) -> FrameName:
    """Return which library answers: the one asked for, else the one that the data came in, else pandas.

    Raises:
        UsageError: another library was asked for.
    """
    if asked is not None:
        if asked not in LIBRARIES:
            raise UsageError(f"frames are of pandas or polars, not {asked!r}", where="frame=")
        return asked
    return "polars" if is_frame(value) and _library(value) == "polars" else "pandas"


def make_frame(columns: Mapping[str, Any], name: FrameName) -> "Frame":
    """Return a frame of columns, each a list or an array, of objects where it is text; None and NaN are missing.

    Integers of which some are missing are a masked array.
    """
    if name == "polars":
        import numpy as np  # noqa: PLC0415
        import polars as pl  # noqa: PLC0415 - only where it is asked for

        made = dict(columns)
        for column, values in columns.items():  # a column's type does not depend on how much of it is missing
            if isinstance(values, np.ma.MaskedArray):
                made[column] = pl.Series(values.tolist(), dtype=pl.Int64)
            elif getattr(getattr(values, "dtype", None), "kind", "") == "O":
                cells = values.tolist()
                made[column] = pl.Series(cells, dtype=pl.String if all(cell is None for cell in cells) else None)
        return pl.DataFrame(made, nan_to_null=True)
    import pandas as pd  # noqa: PLC0415

    return pd.DataFrame(dict(columns))


def frame_of_rows(rows: Rows, name: FrameName) -> "Frame":
    """Return a frame of rows with the same keys; a column of numbers has NaN where one is missing.

    Raises:
        UsageError: frames of another library.
    """
    import numpy as np  # noqa: PLC0415 - as the libraries of frames

    columns: dict[str, Any] = {key: [row[key] for row in rows] for key in rows[0]} if rows else {}
    for key, values in columns.items():
        known = {type(value) for value in values if value is not None}
        if None in values and known and known <= {int, float}:
            columns[key] = np.array(values, dtype=np.float64)
    return make_frame(columns, frame_name(None, name))


def columns_of(frame: Any) -> dict[str, list[Any]]:  # noqa: ANN401 - what both libraries have in common
    """Return the columns of a frame as lists, by name as text; a missing value is None.

    Raises:
        UsageError: two columns have the same name.
    """
    names = [str(name) for name in frame.columns]
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise UsageError(f"two columns of the frame are called {twice[0]!r}", fix="rename one of them")
    if _library(frame) == "polars":
        return {name: list(frame[name]) for name in names}
    missing = frame.isna()
    return {
        name: [None if hole else value for value, hole in zip(frame[column].tolist(), missing[column], strict=True)]
        for name, column in zip(names, frame.columns, strict=True)
    }


@contextmanager
def for_polars(path: Path, mode: Literal["rb", "wb"] = "rb") -> Iterator[Path | IO[bytes]]:
    """Yield a file as polars reads or writes it: its path, or open, where the name is no UTF-8, which polars refuses.

    What polars scans within the context can be collected after it: polars has a descriptor of its own then.
    """
    if str(path).isprintable():
        yield path
        return
    with path.open(mode) as file:  # which takes more memory, as it is mapped whole
        yield file


def as_polars(frame: Any) -> "pl.DataFrame":  # noqa: ANN401 - a frame of either library
    """Return a frame of polars with the columns of a frame of either library.

    Of pandas, numbers and dates keep their types; other columns are text, as a CSV file would have them.

    Raises:
        UsageError: two columns have the same name.
    """
    import polars as pl  # noqa: PLC0415 - only where it is asked for

    if _library(frame) == "polars":
        return frame  # type: ignore[no-any-return]
    series = []
    for (name, cells), dtype in zip(columns_of(frame).items(), frame.dtypes, strict=True):
        plain = getattr(dtype, "kind", "O") in "biufM"  # booleans, numbers, dates
        if plain or all(isinstance(cell, bool | int | float | None) for cell in cells):  # numbers kept as objects
            series.append(pl.Series(name, cells, strict=False))
        else:
            texts = [None if cell is None else cell if isinstance(cell, str) else str(cell) for cell in cells]
            series.append(pl.Series(name, texts, dtype=pl.String))
    return pl.DataFrame(series)


def _library(value: object) -> str:
    return type(value).__module__.partition(".")[0]
