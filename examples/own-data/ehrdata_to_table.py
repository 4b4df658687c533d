"""EHRData or AnnData (`.h5ad`, `.h5ed`) as tables that `costar ingest table` reads: a row per subject and time.

    python ehrdata_to_table.py cohort.h5ed FOLDER [--layer NAME]
    costar ingest table FOLDER/table.parquet --statics FOLDER/statics.parquet --init

A layer of three dimensions, subjects by variables by times, becomes the columns of `table.parquet`: `layers/NAME` of
`.h5ad`, `obsm/_ed_ondisk_layers_NAME` of `.h5ed`. `obs` and what `X` holds become `statics.parquet`, a row per subject.
Times are numbered from 0, unless the first column of `tem` has numbers. h5py, numpy and polars come with costar.
"""

import argparse
import sys
from pathlib import Path

import h5py
import numpy as np
import polars as pl
from numpy.typing import NDArray

ON_DISK = "_ed_ondisk_layers_"


def column_of(item: h5py.Dataset | h5py.Group) -> pl.Series:
    """Return a column of a data frame: plain, with a mask of what is missing, or of categories."""
    if isinstance(item, h5py.Group) and "codes" in item:
        codes = pl.Series(item["codes"][()].astype(np.int64))
        return column_of(item["categories"]).gather(pl.select(pl.when(codes >= 0).then(codes)).to_series())
    if isinstance(item, h5py.Group):
        missing = pl.Series(item["mask"][()].astype(bool))
        return column_of(item["values"]).set(missing, None)
    values = item.asstr()[()] if h5py.check_string_dtype(item.dtype) else item[()]
    return pl.Series(values.tolist(), nan_to_null=True)


def frame_of(group: h5py.Group) -> tuple[pl.Series, dict[str, pl.Series]]:
    """Return the index of a data frame and its columns in their order."""
    index = str(group.attrs["_index"])
    names = [str(name) for name in group.attrs.get("column-order", []) if str(name) != index]
    return column_of(group[index]), {name: column_of(group[name]) for name in names}


def layer_of(file: h5py.File, name: str | None) -> NDArray[np.floating]:
    """Return a layer of three dimensions, the only one unless a name says which."""
    found = dict(file.get("layers", {}))
    found |= {key.removeprefix(ON_DISK): item for key, item in file.get("obsm", {}).items() if key.startswith(ON_DISK)}
    deep = {key: item for key, item in found.items() if isinstance(item, h5py.Dataset) and item.ndim == 3}
    if name is None and len(deep) != 1:
        raise SystemExit(f"give --layer, one of: {', '.join(deep) or 'none has three dimensions'}")
    if name is not None and name not in deep:
        raise SystemExit(f"no layer of three dimensions is called {name}; there are: {', '.join(deep)}")
    return deep[name or next(iter(deep))][()].astype(np.float64)


def times_of(file: h5py.File, n: int) -> pl.Series:
    """Return the times of steps."""
    if "tem" in file:
        for column in frame_of(file["tem"])[1].values():
            if column.dtype.is_numeric() and column.null_count() == 0 and column.is_sorted():
                return column
            break
    return pl.Series(range(n))


def main() -> None:
    """Write the tables of a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layer")
    asked = parser.parse_args()
    with h5py.File(asked.file) as file:
        subjects, about = frame_of(file["obs"])
        variables = [str(name) for name in frame_of(file["var"])[0]]
        values_NVT = layer_of(file, asked.layer)
        times = times_of(file, values_NVT.shape[2])
        if isinstance(file.get("X"), h5py.Dataset) and file["X"].ndim == 2:
            fixed = file["X"][()].astype(np.float64)
            about |= {f"{name}_static": pl.Series(fixed[:, i], nan_to_null=True) for i, name in enumerate(variables)}
    n, _, steps = values_NVT.shape
    columns = {"subject": subjects.gather(np.repeat(np.arange(n), steps)), "time": pl.concat([times] * n)}
    for i, name in enumerate(variables):
        columns[name] = pl.Series(values_NVT[:, i].ravel(), nan_to_null=True)
    table = pl.DataFrame(columns).filter(~pl.all_horizontal(pl.col(variables).is_null()))  # series of other lengths
    asked.folder.mkdir(parents=True, exist_ok=True)
    table.write_parquet(asked.folder / "table.parquet")
    statics = {name: column for name, column in about.items() if column.null_count() < n}
    pl.DataFrame({"subject": subjects, **statics}).write_parquet(asked.folder / "statics.parquet")
    sys.stdout.write(
        f"wrote {asked.folder / 'table.parquet'} ({table.height:,} rows) and {asked.folder / 'statics.parquet'}\n"
    )


if __name__ == "__main__":
    main()
