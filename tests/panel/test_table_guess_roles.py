"""What `--init` takes the columns of well-known tables for, and what it asks about."""

import re
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from costar_cli.panel.tables.guess import guess_schema
from tests.panel.guess_worlds import WORLDS
from tests.panel.table_worlds import save, ward


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


@pytest.mark.parametrize("name", WORLDS)
def test_columns_of_well_known_tables_are_taken_for_what_they_are(name: str, tmp_path: Path):
    guess = guess_schema([save(WORLDS[name].frame(), tmp_path / f"{name}.csv")])
    assert guessed_roles(guess.text) == WORLDS[name].roles


@pytest.mark.parametrize("name", WORLDS)
def test_no_treatment_and_no_outcome_is_said_to_be_filled(name: str, tmp_path: Path):
    frame = WORLDS[name].frame()
    keys = [column for column, role in WORLDS[name].roles.items() if role.rstrip("?") in ("subject", "time")]
    hole = np.random.default_rng(2).random(frame.height) < 0.1
    others = [column for column in frame.columns if column not in keys]
    frame = frame.with_columns(pl.when(~pl.Series(hole)).then(pl.col(column)).alias(column) for column in others)
    text = guess_schema([save(frame, tmp_path / f"{name}.csv")]).text
    columns = tomllib.loads(text)["columns"]
    assert any(column.get("missing") == "fill" for column in columns.values()) or len(columns) <= 4
    for column in columns.values():
        assert column["role"] not in ("treatment", "outcome") or "missing" not in column
    told = [line for line in text.splitlines() if re.search(r'role = "(treatment|outcome)"', line)]
    assert all("  # CHECK: " in line for line in told)


def test_what_a_first_row_lacks_is_no_static_but_asked_about(tmp_path: Path):
    late = (pl.col("patient") != "p07") | (pl.col("day") > 0)
    guess = guess_schema([save(ward().with_columns(sex=pl.when(late).then("sex")), tmp_path / "ward.csv")])
    assert guessed_roles(guess.text)["sex"] == "covariate?"
    assert "sex: 1 subject without it in the first row, where a static stands" in guess.doubts


def test_a_file_of_statics_is_read_for_the_guess(tmp_path: Path):
    wide = ward().unique("patient", maintain_order=True).select("patient", "age", "sex", "site", trt="sex", died="sex")
    table = save(ward().drop("age", "sex", "site"), tmp_path / "ward.csv")
    guess = guess_schema([table], save(wide, tmp_path / "patients.csv"))
    assert guessed_roles(guess.text) == {
        "patient": "subject", "day": "time", "pressure": "covariate", "drug": "treatment?", "heart rate": "outcome?",
        "age": "static", "sex": "static", "site": "domain", "trt": "static?", "died": "out?",
    }  # fmt: skip
    assert "Guessed from ward.csv, patients.csv" in guess.text
    both = guess_schema([save(ward().drop("sex", "site"), table)], tmp_path / "patients.csv")
    assert "age: in the statics file, too: keep it in one of the two" in both.doubts
    nobody = guess_schema([table], save(wide.rename({"patient": "who"}), tmp_path / "others.csv"))
    assert any(doubt.startswith("patient: others.csv has no such column") for doubt in nobody.doubts)


def test_columns_that_tell_subjects_apart_together_are_named(tmp_path: Path):
    rows = [(store, upc, week, store + upc + week) for store in range(4) for upc in range(5) for week in range(6)]
    frame = pl.DataFrame(rows, schema=["store", "upc", "week", "move"], orient="row")
    guess = guess_schema([save(frame, tmp_path / "move.csv")])
    assert any("'store', 'upc' tell subjects apart together only" in doubt for doubt in guess.doubts)


@pytest.mark.parametrize(
    ("labels", "asked"), [(("sham", "laser"), "'sham' not given?"), (("b", "a"), "'b' not given? It")]
)
def test_a_reference_that_is_only_the_most_frequent_is_asked_about_as_such(labels, asked: str, tmp_path: Path):
    often, seldom = labels
    frame = ward().with_columns(drug=pl.when(pl.col("day") == 2).then(pl.lit(seldom)).otherwise(pl.lit(often)))
    doubt = guess_schema([save(frame, tmp_path / "ward.csv")]).text
    assert asked in doubt
    assert ("It is only the most frequent" in doubt) is (often == "b")
