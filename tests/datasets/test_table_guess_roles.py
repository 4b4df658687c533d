"""What `--init` takes the columns of well-known tables for, and what it asks about."""

import re
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from costar_cli.data.table.guess import guess_schema
from costar_cli.data.table.schema_file import parse_schema
from tests.datasets.table_worlds import guessed_roles, ingest, save, ward
from tests.panel.guess_worlds import WORLDS


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
    assert "sex: 1 subject without it in the first row, which holds statics" in guess.doubts


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
    assert any("'store', 'upc' identify subjects only together" in doubt for doubt in guess.doubts)


@pytest.mark.parametrize(
    ("labels", "asked"), [(("sham", "laser"), "'sham' not given?"), (("b", "a"), "'b' not given? It")]
)
def test_a_reference_that_is_only_the_most_frequent_is_asked_about_as_such(labels, asked: str, tmp_path: Path):
    often, seldom = labels
    frame = ward().with_columns(drug=pl.when(pl.col("day") == 2).then(pl.lit(seldom)).otherwise(pl.lit(often)))
    doubt = guess_schema([save(frame, tmp_path / "ward.csv")]).text
    assert asked in doubt
    assert ("It is only the most frequent" in doubt) is (often == "b")


@pytest.mark.parametrize(("name", "how"), [("drug", "by its name"), ("what", "by its values")])
def test_a_treatment_says_whether_its_name_or_its_values_told_it(name: str, how: str, tmp_path: Path):
    guess = guess_schema([save(ward().rename({"drug": name}), tmp_path / "ward.csv")])
    assert any(doubt.startswith(f"{name}: guessed {how}: is it given") for doubt in guess.doubts)


@pytest.mark.parametrize(
    ("name", "units", "form"),
    [
        *((name, 7, "{}") for name in ("hosp", "clinic", "Hospital", "ward_id", "school", "centre", "store_no")),
        *(("hosp", units, form) for units, form in ((29, "{}"), (7, "C{}"), (29, "C{}"))),
    ],
)
def test_a_place_that_subjects_share_is_asked_about_as_a_unit_that_splits_keep_together(
    name: str, units: int, form: str, tmp_path: Path
):
    unit = pl.int_range(pl.len()) // 6 % units
    frame = ward(60).with_columns(pl.format(form, unit).alias(name))
    guess = guess_schema([save(frame, tmp_path / "ward.csv")])
    assert guessed_roles(guess.text)[name] == ("static?" if units < 20 else "out?")
    [doubt] = [doubt for doubt in guess.doubts if doubt.startswith(f"{name}: ")]
    assert "is this a unit of several subjects that a split must not divide?" in doubt
    if units < 20:
        columns = tomllib.loads(guess.text)["columns"]
        assert columns[name]["kind"] == "categorical"
        columns[name] = {"role": "cluster"}
        tables = tomllib.loads(guess.text) | {"columns": {k: c for k, c in columns.items() if k != "site"}}
        dataset = ingest(tmp_path / "ward.csv", parse_schema(tables))
        held = [set(panel.cluster.tolist()) for panel in dataset.panels.values() if panel.cluster is not None]
        assert sum(map(len, held)) == len(set().union(*held)) == units


def test_a_place_that_changes_that_each_subject_has_alone_or_that_is_the_domain_is_no_unit(tmp_path: Path):
    frame = ward(40).with_columns(
        ward=pl.int_range(pl.len()) % 3, school=pl.int_range(pl.len()) // 6, clinic=pl.col("site")
    )
    guess = guess_schema([save(frame.drop("site"), tmp_path / "ward.csv")])
    assert guessed_roles(guess.text)["clinic"] == "domain"
    assert not any("unit of several subjects" in doubt for doubt in guess.doubts)


def test_a_place_beside_a_cluster_is_asked_about_instead_of_it(tmp_path: Path):
    who = pl.int_range(pl.len()) // 6
    frame = ward(60).drop("site").with_columns(family=who // 2, hospital=who % 7)
    guess = guess_schema([save(frame, tmp_path / "ward.csv")])
    [doubt] = [doubt for doubt in guess.doubts if doubt.startswith("hospital: ")]
    assert "`role = \"cluster\"` in the place of 'family'" in doubt


def test_a_static_called_a_treatment_is_told_what_to_do(tmp_path: Path):
    steady = pl.when(pl.int_range(pl.len()) // 6 % 2 == 0).then(pl.lit("drugA")).otherwise(pl.lit("placebo"))
    wide = ward().unique("patient", maintain_order=True).select("patient", trt="sex")
    frame = ward().with_columns(arm=steady, dose_mg=pl.int_range(pl.len()) / 7)
    frame = frame.select("patient", "day", "dose_mg", pl.exclude("patient", "day", "dose_mg"))
    guess = guess_schema([save(frame, tmp_path / "ward.csv")], save(wide, tmp_path / "wide.csv"))
    told = dict(doubt.split(": ", 1) for doubt in guess.doubts)
    assert told["arm"] == (
        'is this static a drug or an intervention? Say `role = "treatment"` if plans are to vary it; '
        "keep `static` if it only describes the subject"
    )
    assert 'Say `role = "treatment", kind = "continuous"` if plans are to vary it' in told["dose_mg"]
    assert "Copy it into each row of the table and say" in told["trt"]


def test_values_of_columns_that_are_left_out_stand_in_parentheses(tmp_path: Path):
    status = (pl.int_range(pl.len()) // 6 % 2).alias("status")
    frame = ward().with_columns(status, response=pl.col("sex"), note=pl.lit("same"))
    text = guess_schema([save(frame, tmp_path / "ward.csv")]).text
    assert "left out since it tells of follow-up, death or dropout (0, 1), which may not be known yet" in text
    assert "left out since it never changes within a subject (f, m): it may tell of follow-up" in text
    assert "left out since it never changes (same)" in text


@pytest.mark.parametrize(("mark", "rest"), [("yes", "no"), ("1", None), ("yes", None)])
def test_numbers_called_a_dose_are_one_and_marks_of_last_rows_are_ends(mark: str, rest: str | None, tmp_path: Path):
    frame = ward().drop("arm", strict=False)
    last = pl.int_range(pl.len()) == pl.len() - 1
    odd = pl.col("patient").rank("dense") % 2 == 1
    ends = {
        "died": pl.when(last.over("patient") & odd).then(pl.lit(mark)).otherwise(pl.lit(rest)),
        "left_study": pl.when(last.over("patient") & ~odd).then(pl.lit(mark)).otherwise(pl.lit(rest)),
    }
    treatments = [name for name, role in guessed_roles(guess_schema([save(frame, tmp_path / "a.csv")]).text).items()
                  if role.startswith("treatment")]  # fmt: skip
    frame = frame.drop(treatments).with_columns(dose_mg=pl.int_range(pl.len()) * 37 % 101 / 7, **ends)
    text = guess_schema([save(frame, tmp_path / "ward.csv")]).text
    roles = guessed_roles(text)
    assert {name: roles[name] for name in ("dose_mg", *ends)} == {
        "dose_mg": "treatment?",
        "died": "event?",
        "left_study": "censored?",
    }
    assert 'dose_mg = { role = "treatment", kind = "continuous" }' in text
    assert parse_schema(tomllib.loads(text)).columns["died"].role == "event"


def clinic(**columns: pl.Expr) -> pl.DataFrame:
    """Blood pressure under a drug and doses that are given at one step in three, in 40 patients of 12 days."""
    rng = np.random.default_rng(3)
    n = 40 * 12
    dose = np.where(rng.random(n) < 0.3, rng.gamma(2, 3, n).round(2), 0.0)
    frame = pl.DataFrame({
        "patient": np.repeat(np.arange(40), 12), "day": np.tile(np.arange(12), 40),
        "sbp": rng.normal(120, 15, n).round(1), "crp": rng.normal(20, 4, n).round(1),
        "drug": rng.choice(["none", "A", "B"], n), "dose": dose,
    })  # fmt: skip
    return frame.with_columns(**columns)


@pytest.mark.parametrize("others", [[], ["drug"]], ids=["beside levels", "alone"])
@pytest.mark.parametrize(
    "name", ["insulin_units", "insulin", "insulin_dose", "dose_mg", "heparin_iu", "fluid_ml", "drip_rate", "xyz_mg"]
)
def test_a_number_called_a_drug_or_its_unit_is_a_dose_and_no_outcome(name: str, others: list[str], tmp_path: Path):
    frame = clinic().drop(others).rename({"dose": name})
    text = guess_schema([save(frame, tmp_path / "clinic.csv")]).text
    columns = parse_schema(tomllib.loads(text)).columns
    assert (columns[name].role, columns[name].kind) == ("treatment", "continuous")
    assert "is it a dose" in text
    assert (columns["sbp"].role, columns["crp"].role) == ("outcome", "covariate")


@pytest.mark.parametrize(("name", "least"), [("crp_mg_l", 0), ("urine_ml", 5)])
def test_a_concentration_and_an_output_are_no_doses(name: str, least: float, tmp_path: Path):
    frame = clinic(dose=pl.col("dose") + least).drop("sbp").rename({"dose": name})
    assert guessed_roles(guess_schema([save(frame, tmp_path / "clinic.csv")]).text)[name] == "outcome?"


def test_a_dose_that_is_never_0_stays_a_covariate_beside_the_drug_of_which_it_is(tmp_path: Path):
    frame = clinic(dose=pl.col("dose") + 5)
    assert guessed_roles(guess_schema([save(frame, tmp_path / "clinic.csv")]).text)["dose"] == "covariate?"


def test_the_runner_up_of_an_outcome_is_named(tmp_path: Path):
    frame = clinic(glucose=pl.col("crp") * 5)
    guess = guess_schema([save(frame, tmp_path / "clinic.csv")])
    assert "sbp: guessed by its name: is it to be predicted? 'glucose' is named so, too." in guess.doubts
    guess = guess_schema([save(clinic().rename({"sbp": "a"}), tmp_path / "a.csv")])
    assert "crp: guessed as the numbers that change: is it to be predicted? 'a' changes, too." in guess.doubts
    guess = guess_schema([save(clinic().drop("sbp", "crp"), tmp_path / "b.csv")])
    assert "no column seems to be the outcome" in guess.doubts


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (999.0, "2 values of 999.0, far from the others ("),
        (-1.0, "2 values of -1.0, far from the others ("),
        (9999.0, "2 values of 9999.0, far from the others ("),
        (99.0, ""),
        (400.0, ""),
    ],
)
def test_numbers_that_often_mean_missing_are_asked_about_where_they_are_far_from_all_others(
    value: float, told: str, tmp_path: Path
):
    row = pl.int_range(pl.len())
    frame = clinic(sbp=pl.when(row.is_in([7, 70])).then(value).otherwise("sbp"))
    doubts = [doubt for doubt in guess_schema([save(frame, tmp_path / "c.csv")]).doubts if doubt.startswith("sbp: ")]
    assert [told in doubt and ("far from" in doubt) == bool(told) for doubt in doubts] == [True]


def test_levels_that_differ_only_in_case_are_asked_about(tmp_path: Path):
    row = pl.int_range(pl.len())
    frame = clinic(drug=pl.when(row % 50 == 0).then(pl.col("drug").str.to_lowercase()).otherwise("drug"))
    [doubt] = [doubt for doubt in guess_schema([save(frame, tmp_path / "c.csv")]).doubts if doubt.startswith("drug: ")]
    assert "'A' and 'a', 'B' and 'b' differ only in case: write what is one alike" in doubt


def test_a_death_in_the_file_of_statics_is_left_out_since_it_may_come_later(tmp_path: Path) -> None:
    rows = ward()
    people = rows.select("patient").unique(maintain_order=True).with_columns(died=pl.int_range(pl.len()) % 2)
    guess = guess_schema([save(rows, tmp_path / "ward.csv")], save(people, tmp_path / "people.csv"))
    (told,) = (doubt for doubt in guess.doubts if doubt.startswith("died: "))
    assert "left out since it tells of follow-up, death or dropout (0, 1), which may not be known yet" in told
