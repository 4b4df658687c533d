"""A small ward as a table, schemas for it, and what ingesting it gives or complains of."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from costar_cli.data import Dataset, Panel
from costar_cli.data.table import TableInputs, ingest_table
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_file import parse_schema
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError
from costar_cli.reporting import NullReporter

__all__ = [
    "COLUMNS",
    "WATCH_MEMORY",
    "Listener",
    "assert_same_dataset",
    "guessed_roles",
    "ingest",
    "make_schema",
    "of",
    "problems",
    "same_up_to_padding",
    "save",
    "ward",
]

COLUMNS: dict[str, dict[str, Any]] = {
    "patient": {"role": "subject"},
    "day": {"role": "time"},
    "site": {"role": "domain", "source": "north", "target": "south"},
    "pressure": {"role": "outcome", "unit": "mmHg"},
    "drug": {"role": "treatment", "levels": ["none", "low", "high"]},
    "heart rate": {"role": "covariate", "unit": "1/min"},
    "age": {"role": "static"},
    "sex": {"role": "static", "kind": "categorical"},
}


# The beginning of a program whose thread of `sample` keeps in `peak[0]` how much memory of its own it has had.
WATCH_MEMORY = """
import sys, threading, time
from pathlib import Path
peak = [0]

def anonymous():
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) * 1024

def sample():
    while True:
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.003)
"""


class Listener(NullReporter):
    """Keeps notes as well as warnings."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)

    def say(self, diagnostic: Diagnostic) -> None:
        super().say(diagnostic)
        if diagnostic.severity == "note":
            self.notes.append(str(diagnostic))


def ward(patients: int = 30, days: int = 6) -> pl.DataFrame:
    """Patients p01, p02, ..., every third in the south, `days` days each; rows in order."""
    rng = np.random.default_rng(1)
    n = patients * days
    who = np.repeat(np.arange(1, patients + 1), days)
    return pl.DataFrame(
        {
            "patient": [f"p{i:02d}" for i in who],
            "day": np.tile(np.arange(days), patients),
            "site": np.where(who % 3 == 0, "south", "north"),
            "pressure": rng.normal(80, 8, n).round(1),
            "drug": np.array(["none", "low", "high"])[rng.integers(3, size=n)],
            "heart rate": rng.normal(75, 9, n).round(),
            "age": 40.0 + who,
            "sex": np.where(who % 2 == 0, "f", "m"),
        }
    )


def make_schema(columns: Mapping[str, Any] | None = None, without: tuple[str, ...] = (), **tables: Any) -> TableSchema:
    """The ward's schema, with some columns changed, added or left out, and other tables of the file."""
    merged = {name: column for name, column in {**COLUMNS, **(columns or {})}.items() if name not in without}
    return parse_schema({"name": "ward", "horizon": 2, "columns": merged, **tables})


def guessed_roles(text: str) -> dict[str, str]:
    """The role of each column, `out` without one, with `?` where the line is to be settled."""
    roles = {name: str(column["role"]) for name, column in tomllib.loads(text)["columns"].items()}
    for line in text.splitlines():
        if found := re.match(r'# ("?)(.+?)\1 = \{ role = "\.\.\." \}', line):
            roles[found[2]] = "out"
    for name in roles:
        [line] = [line for line in text.splitlines() if re.match(rf'(# )?"?{re.escape(name)}"? = \{{ ', line)]
        roles[name] += "?" if "  # CHECK: " in line else ""
    return roles


def save(frame: pl.DataFrame, path: Path) -> Path:
    """Write a frame as the ending of the path says."""
    if path.suffix == ".csv":
        frame.write_csv(path)
    else:
        frame.write_parquet(path)
    return path


def ingest(
    table: pl.DataFrame | Path | list[Path],
    schema: TableSchema | None = None,
    *,
    folder: Path | None = None,
    form: str = "csv",
    statics: Path | None = None,
    queries: Path | None = None,
    listener: Listener | None = None,
    seed: int | None = None,
) -> Dataset:
    """Ingest a frame (through a file in `folder`) or files."""
    if isinstance(table, pl.DataFrame):
        assert folder is not None
        table = save(table, folder / f"ward.{form}")
    paths = [table] if isinstance(table, Path) else table
    return ingest_table(
        TableInputs(paths, statics, queries), schema or make_schema(), listener or Listener(), seed=seed
    )


def problems(*args: Any, **kwargs: Any) -> list[str]:
    """Return all problems of a table as lines of place, problem and fix."""
    with pytest.raises(DataError) as caught:
        ingest(*args, **kwargs)
    error = caught.value
    return list(error.details) or [f"{error.where or ''}: {error.problem} ({error.fix})"]


def same_up_to_padding(got: Panel, want: Panel) -> None:
    """Compare two panels; a table has no padding beyond the longest subject."""
    longest = int(want.length.max())
    for name in ("covariates", "treatments", "outcomes"):
        values = getattr(got, name)
        assert values.dtype == np.float32
        assert np.array_equal(values, getattr(want, name)[:, :longest]), name
    for name in ("statics", "length", "subject_id"):
        assert np.array_equal(getattr(got, name), getattr(want, name)), name
    assert got.names == want.names
    assert np.array_equal(got.observed_outcomes, want.observed_outcomes[:, :longest])
    assert (got.cluster is None) == (want.cluster is None)
    assert got.cluster is None or np.array_equal(got.cluster, want.cluster)


def assert_same_dataset(got: Dataset, want: Dataset) -> None:
    """Compare everything that a table can hold: schema, horizon, panels, queries with questions in them."""
    assert (got.schema, got.horizon) == (want.schema, want.horizon)
    assert list(got.panels) == [part for part, panel in want.panels.items() if panel.n_subjects]
    for part, panel in got.panels.items():
        same_up_to_padding(panel, want.panels[part])
        asked = {name: queries for name, queries in want.queries.get(part, {}).items() if len(queries)}
        assert set(got.queries.get(part, {})) == set(asked)
        for name, queries in asked.items():
            for field in ("subject", "origin", "plan", "outcomes", "scored"):
                ours, theirs = getattr(got.queries[part][name], field), getattr(queries, field)
                assert (ours is None) == (theirs is None), (part, name, field)
                assert ours is None or np.array_equal(ours, theirs), (part, name, field)


def of(dataset: Dataset, name: str) -> tuple[Panel, int]:
    """The panel and row of a subject."""
    part, row = dataset.find_subject(name)
    return dataset.panels[part], row
