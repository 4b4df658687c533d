"""Messy tables: each problem is told with its file, row and subject, its count and a fix."""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from costar_cli.data.table import TableInputs, ingest_table
from costar_cli.data.table import index as keys
from costar_cli.data.table.files import frame_as_file
from costar_cli.errors import DataError
from tests.datasets.table_worlds import Listener, ingest, make_schema, problems, ward

Edit = Callable[[pl.DataFrame], pl.DataFrame]


def put(column: str, row: int, value: Any) -> Edit:
    """Put a value into a row of a column, as text."""

    def edit(frame: pl.DataFrame) -> pl.DataFrame:
        texts = frame[column].cast(pl.String).to_list()
        texts[row] = value
        return frame.with_columns(pl.Series(column, texts, dtype=pl.String))

    return edit


def everywhere(column: str, value: Any) -> Edit:
    return lambda frame: frame.with_columns(pl.lit(value).alias(column))


P02 = "row 8 of ward.csv (subject p02)"  # index 7: the second day of the second patient

CASES: list[tuple[str, Edit, dict[str, Any], str, str, str]] = [
    ("text", put("pressure", 7, "high"), {}, "row 8 of ward.csv",
     "column 'pressure': 1 value not numeric, first 'high'", "give numbers"),
    ("decimal comma", put("pressure", 7, "81,5"), {}, "row 8 of ward.csv", "1 value not numeric, first '81,5'",
     "decimal point"),
    ("thousands", put("pressure", 7, "1.081,5"), {}, "row 8", "not numeric, first '1.081,5'",
     "without separators of thousands"),
    ("other blank", put("heart rate", 7, "n/a"), {}, "row 8", "'heart rate': 1 value not numeric, first 'n/a'",
     "`blank`"),
    ("infinite", put("pressure", 7, "inf"), {}, "row 8", "'pressure': 1 value infinite or too large, first 'inf'",
     "correct"),
    ("too large", put("heart rate", 7, "1e39"), {}, "row 8", "infinite or too large, first '1e39'", "correct"),
    ("missing covariate", put("heart rate", 7, None), {}, P02, "column 'heart rate': 1 value missing",
     'missing = "fill"'),
    ("missing outcome", put("pressure", 7, "NA"), {"missing": "fill"}, P02, "column 'pressure': 1 value missing",
     "fill"),
    ("missing treatment", put("drug", 7, ""), {}, P02, "column 'drug': 1 treatment missing", "not given"),
    ("missing static", lambda f: f.with_columns(age=pl.when(pl.col("patient") != "p02").then("age")), {},
     "subject p02", "column 'age': 1 value missing", "fill"),
    ("missing subject", put("patient", 7, " "), {}, "row 8 of ward.csv", "column 'patient': 1 row without a subject",
     "subject"),
    ("missing time", put("day", 7, ""), {}, "row 8 of ward.csv", "column 'day': 1 row without a time", "time"),
    ("long name", put("patient", 7, "p" * 201), {}, "row 8 of ward.csv", "at most 200 characters", "shorten"),
    ("control character", put("patient", 7, "p\x1b[31m"), {}, "row 8 of ward.csv", "one line", "shorten"),
    ("contradiction", lambda f: pl.concat([f, f[7:8].with_columns(pressure=1.0)]), {},
     "row 181 of ward.csv, which contradicts row 8", "1 row with the subject and time of another row", "one row"),
    ("gap", lambda f: f.filter(pl.int_range(pl.len()) != 8), {},
     "before row 9 of ward.csv", "column 'day': 1 gap between rows of a subject", 'gaps = "fill"'),
    ("off the steps", put("day", 7, "1.5"), {}, "row 8 of ward.csv", "1 time not a whole number of steps",
     "`step` in [time]"),
    ("wrong step", lambda f: f.with_columns(pl.col("day") * 3), {"time": {"step": 2}}, "row 2",
     "not a whole number of steps", "step"),
    ("dates as numbers", put("day", 7, "2024-01-01"), {}, "row 8 of ward.csv", "column 'day': 1 value not numeric",
     "numbers"),
    ("no dates", put("day", 7, "monday"), {"time": {"step": "1d"}}, "row 1",
     "column 'day': 180 values not a date or time", "format"),
    ("static changes", put("age", 7, "99"), {}, P02, "column 'age' changes within 1 subject",
     "declare it as a covariate"),
    ("category changes", put("sex", 7, "m"), {}, P02, "column 'sex' changes within 1 subject", "covariate"),
    ("late static", put("age", 6, None), {}, P02,
     "column 'age': 1 subject without a value in the first row, but with one in a later row", "`--statics`"),
    ("late static that may be filled", put("sex", 6, None), {"missing": "fill"}, P02,
     "column 'sex': 1 subject without a value in the first row", "covariate"),
    ("domain changes", put("site", 7, "south"), {}, "subject p02", "1 subject with a domain that changes over time",
     "by what does not change"),
    ("unknown level", put("drug", 7, "hgh"), {}, P02, "column 'drug': 1 value that is not a level: 'hgh'",
     "did you mean 'high'?"),
    ("constant outcome", everywhere("pressure", 80.0), {}, "columns.pressure",
     "outcome 'pressure' never changes in source-train", "choose an outcome that changes"),
    ("constant treatment", everywhere("drug", "low"), {"columns": {"drug": {"role": "treatment"}}}, "columns.drug",
     "treatment 'drug' never changes in source-train: it is always 'low'", "omit it"),
    ("category of two lines", lambda f: f.with_columns(pl.col("sex").replace("f", "fe\nmale")), {},
     "first in row 7 of ward.csv (subject p02)", "column 'sex': 15 values with a line break, first 'fe\\nmale'", "one"),
    ("level of two lines", put("drug", 0, "a\nb"), {"columns": {"drug": {"role": "treatment"}}},
     "first in row 1 of ward.csv (subject p01)", "column 'drug': 1 value with a line break, first 'a\\nb'", "one"),
    ("event of two lines", lambda f: f.with_columns(end=pl.when(pl.col("day") == 5).then(pl.lit("de\nad"))),
     {"columns": {"end": {"role": "event"}}}, "row 6 of ward.csv", "column 'end': 30 values with a line break", "one"),
    ("a dose", lambda f: f.with_columns(drug=pl.int_range(pl.len()) / 7), {"columns": {"drug": {"role": "treatment"}}},
     "columns.drug",
     "treatment 'drug' has", "declare a dose as"),
    ("negative count", put("heart rate", 7, "-1"), {"columns": {"heart rate": {"role": "covariate", "kind": "count"}}},
     P02, "1 value negative or fractional", "continuous"),
    ("no binary", put("heart rate", 7, "2"), {"columns": {"heart rate": {"role": "covariate", "kind": "binary"}}},
     "row 1 of", "values other than 0 and 1, true and false, first", "continuous"),
    ("many categories", lambda f: ward(60).with_columns(sex=pl.concat_str(pl.lit("s"), pl.int_range(pl.len()))),
     {"columns": {"sex": {"role": "covariate", "kind": "categorical"}}}, "",
     "categories in source-train, more than 100", "group"),
    ("no column", lambda f: f.drop("age"), {}, "ward.csv", "there is no column 'age'", "it has 'patient', 'day'"),
    ("near column", lambda f: f.rename({"pressure": "presure"}), {}, "ward.csv", "there is no column 'pressure'",
     "did you mean 'presure'?"),
    ("no rows", lambda f: f.head(0), {}, "", "the table has no rows", "give at least one row"),
    ("all short", lambda f: f, {"min_length": 7}, "min_length", "no subject has 7 steps, of 30 subjects",
     "min_length"),
    ("no such target", lambda f: f, {"columns": {"site": {"role": "domain", "target": "west"}}}, "",
     "no subject belongs to the target domain", "target"),
    ("which target", lambda f: f, {"columns": {"site": {"role": "domain"}}}, 'columns."site"',
     "column 'site' holds 'north', 'south': which of them are the target?", "target ="),
    ("no split", everywhere("part", "training set"), {"columns": {"part": {"role": "split"}}}, "subject p01",
     "column 'part': 'training set' is not a split", "train, val, test"),
    ("tiny target", lambda f: f.filter(pl.col("patient").is_in(["p03", "p06"]) | (pl.col("site") == "north")), {},
     "the target domain", "2 subjects cannot fill a val split", "more subjects"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("edit", "changes", "where", "problem", "fix"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_each_problem_has_its_place_count_and_fix(
    edit: Edit, changes: dict[str, Any], where: str, problem: str, fix: str, tmp_path: Path
):
    lines = problems(edit(ward()), make_schema(**changes), folder=tmp_path)
    [line] = [line for line in lines if problem in line]
    assert where in line
    assert fix in line


def test_all_problems_of_the_values_are_told_at_once(tmp_path: Path):
    frame = put("pressure", 7, "high")(put("heart rate", 9, "fast")(ward()))
    assert len(problems(frame, folder=tmp_path)) == 2
    frame = put("pressure", 7, None)(put("heart rate", 9, None)(put("sex", 3, None)(ward())))
    frame = frame.with_columns(sex=pl.when(pl.col("patient") != "p04").then("sex"))
    assert len(problems(frame, folder=tmp_path)) == 3


def test_a_category_that_source_train_does_not_have_is_an_error_or_a_column_of_its_own(tmp_path: Path):
    frame = ward().with_columns(
        sex=pl.when(pl.col("patient") == "p03").then(pl.lit("x")).otherwise("sex"),  # of the target
    )
    [line] = problems(frame, folder=tmp_path)
    assert "first in row 13 of ward.csv (subject p03)" in line
    assert "column 'sex': 1 value that source-train does not have: 'x'" in line
    schema = make_schema({"sex": {"role": "static", "kind": "categorical", "unseen": "other"}})
    dataset = ingest(frame, schema, folder=tmp_path)
    assert [v.name for v in dataset.schema.statics] == ["age", "sex=f", "sex=m", "sex=other"]
    odd = [panel.statics[panel.names.index("p03")] for panel in dataset.panels.values() if "p03" in panel.names]
    assert odd[0][1:].tolist() == [0, 0, 1]


def test_a_combination_that_source_train_does_not_have_is_an_error_unless_it_is_listed(tmp_path: Path):
    frame = ward().with_columns(
        oxygen=pl.when((pl.col("patient") == "p03") & (pl.col("day") == 2)).then(1)
        .when((pl.col("drug") == "none") & (pl.col("day") % 2 == 0)).then(1).otherwise(0),
        drug=pl.when((pl.col("patient") == "p03") & (pl.col("day") == 2)).then(pl.lit("high")).otherwise("drug"),
    )  # fmt: skip
    columns = {"oxygen": {"role": "treatment"}}
    [line] = problems(frame, make_schema(columns), folder=tmp_path)
    assert "row 15 of ward.csv (subject p03)" in line
    assert "drug=high+oxygen, which source-train does not have" in line
    classes = [["none", 0], ["low", 0], ["high", 0], ["none", 1], ["high", 1]]
    dataset = ingest(frame, make_schema(columns, treatments={"classes": classes}), folder=tmp_path)
    assert dataset.schema.treatments.classes == ((0, 0), (1, 0), (2, 0), (0, 1), (2, 1))
    [line] = problems(frame, make_schema(columns, treatments={"classes": [["none", 0], ["loww", 0]]}), folder=tmp_path)
    assert "'loww' is not a level" in line


def test_identical_duplicates_and_empty_rows_are_dropped_with_a_note(tmp_path: Path):
    empty = pl.DataFrame({name: [None] for name in ward().columns}, schema=ward().schema)
    listener = Listener()
    dataset = ingest(pl.concat([ward(), ward()[5:8], empty]), folder=tmp_path, listener=listener)
    assert sum(int(panel.length.sum()) for panel in dataset.panels.values()) == 180
    assert any("dropped 3 duplicate rows" in note for note in listener.notes)
    assert any("1 empty row dropped" in note for note in listener.notes)


def test_columns_that_never_change_are_left_out_with_a_warning(tmp_path: Path):
    listener = Listener()
    frame = ward().with_columns(pl.lit(7.0).alias("heart rate"), pl.lit("f").alias("sex"))
    dataset = ingest(frame, folder=tmp_path, listener=listener)
    assert dataset.schema.covariates == ()
    assert [v.name for v in dataset.schema.statics] == ["age"]
    assert listener.warnings[0] == "left out, since they never change in source-train: 'heart rate', 'sex'"
    kept = ingest(frame, make_schema(constant="keep"), folder=tmp_path)
    assert [v.name for v in (*kept.schema.covariates, *kept.schema.statics)] == ["heart rate", "age", "sex=f"]


def test_short_subjects_are_left_out_and_long_ones_cut(tmp_path: Path):
    frame = ward().filter((pl.col("patient") != "p02") | (pl.col("day") < 1))
    listener = Listener()
    dataset = ingest(frame, make_schema(max_length=4), folder=tmp_path, listener=listener)
    assert max(panel.n_steps for panel in dataset.panels.values()) == 4
    assert all("p02" not in panel.names for panel in dataset.panels.values())
    assert any("29 subjects cut to 4 steps" in note for note in listener.notes)
    assert any("1 subject with fewer than 2 steps left out" in note for note in listener.notes)


TYPES: list[tuple[str, Edit, dict[str, Any], str]] = [
    ("list", lambda f: f.with_columns(pressure=pl.concat_list("pressure")), {},
     "column 'pressure' holds List(Float64), not numbers"),
    ("date", lambda f: f.with_columns(pl.lit(date(2024, 1, 1)).alias("age")), {},
     "column 'age' holds Date, not numbers"),
    ("time as number", lambda f: f.with_columns(day=pl.date(2024, 1, 1) + pl.duration(days=pl.col("day"))), {},
     "column 'day' holds Date, not numbers"),
    ("number as time", lambda f: f, {"time": {"step": "1d"}}, "column 'day' holds Int64, not dates"),
    ("binary", lambda f: f.with_columns(patient=pl.col("patient").cast(pl.Binary)), {},
     "column 'patient' holds Binary, not text"),
    ("struct", lambda f: f.with_columns(drug=pl.struct("drug")), {}, "column 'drug' holds Struct"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "changes", "problem"), [c[1:] for c in TYPES], ids=[c[0] for c in TYPES])
def test_types_that_cannot_be_read_are_named(edit: Edit, changes: dict[str, Any], problem: str, tmp_path: Path):
    [line] = problems(edit(ward()), make_schema(**changes), folder=tmp_path, form="parquet")
    assert problem in line
    assert "ward.parquet" in line


def test_series_and_tables_beyond_what_fits_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    far = put("day", 7, "40000")(ward())
    [line] = problems(far, make_schema(time={"gaps": "fill"}, missing="fill"), folder=tmp_path)
    assert "subject p02: a series of 40,001 steps, more than 32,767 (give `max_length`" in line
    monkeypatch.setattr(keys, "MOST_ROWS", 100)
    assert "more than 100" in problems(ward(), folder=tmp_path)[0]


def test_a_split_without_training_subjects_says_where_they_are(tmp_path: Path):
    said = ["val", "test", "test"] * 10
    frame = ward().with_columns(pl.Series("split", [split for split in said for _ in range(6)]))
    [line] = problems(frame, make_schema({"split": {"role": "split"}}), folder=tmp_path)
    assert "first subject in row 1 of ward.csv (subject p01)" in line
    assert "no subject is in source/train: source/val has 10, source/test has 10, target/test has 10" in line
    assert "check 'site', 'split' there" in line


@pytest.mark.parametrize("gaps", ["elapsed", "ignore"])
def test_rows_within_a_second_are_told_by_their_place(gaps: str, tmp_path: Path):
    frame = ward().with_columns(day=pl.lit(datetime(2024, 1, 1)) + pl.duration(days=pl.col("day")))
    soon = frame[5:6].with_columns(pl.col("day") + timedelta(milliseconds=300), pressure=pl.lit(1.0))
    twice = pl.concat([frame, soon])
    schema, listener = make_schema(time={"step": "1d", "gaps": gaps}), Listener()
    if gaps == "elapsed":
        [line] = problems(twice, schema, folder=tmp_path)
        assert "row 181 of ward.csv" in line
        return
    ingest(twice, schema, folder=tmp_path, listener=listener)
    told = "1 row within a second of another row of its subject, first in row 181 of ward.csv: each counts as one step"
    assert told in listener.warnings


@pytest.mark.parametrize(("transform", "value", "fix"), [("log", 0.0, '`"log1p"` takes zeros'), ("log1p", -2.0, "")])
def test_an_outcome_without_a_logarithm_is_told_by_its_row(transform: str, value: float, fix: str, tmp_path: Path):
    frame = ward().with_columns(pressure=pl.when(pl.col("day") == 2).then(value).otherwise("pressure"))
    [line] = problems(frame, make_schema({"pressure": {"role": "outcome", "transform": transform}}), folder=tmp_path)
    assert f"'pressure': 30 values without a {transform}" in line
    assert "row 3 of ward.csv (subject p01)" in line
    assert fix in line
    assert ("takes zeros" in line) == bool(fix)


def test_a_subject_called_as_missing_values_are_is_an_error_unless_blank_leaves_it_out(tmp_path: Path):
    frame = ward().with_columns(pl.col("patient").replace("p07", "NA"))
    [line] = problems(frame, folder=tmp_path)
    assert "column 'patient': 6 rows without a subject" in line
    assert "if 'NA' is the name of one, leave it out of `blank`, at the top of the schema" in line
    dataset = ingest(frame, make_schema(blank=["NaN"]), folder=tmp_path)
    part, row = dataset.find_subject("NA")
    assert dataset.panels[part].length[row] == 6
    [line] = problems(ward().with_columns(pl.col("patient").replace("p07", "")), folder=tmp_path)
    assert "give each row a subject)" in line
    null = ward().with_columns(pl.col("patient").replace("p07", None))  # as pandas reads NA
    with pytest.raises(DataError, match="6 rows without a subject") as caught:
        ingest_table(TableInputs([frame_as_file(null, "frame")]), make_schema(), Listener())
    assert "keep_default_na=False" in str(caught.value)


def test_too_many_combinations_of_treatments_say_how_to_make_them_fewer(tmp_path: Path):
    row = pl.int_range(pl.len())
    frame = ward(300).with_columns(mg=row * 7 % 40, units=row * 11 % 37, drug=pl.format("d{}", row % 3))
    more = {"mg": {"role": "treatment"}, "units": {"role": "treatment"}, "drug": {"role": "treatment"}}
    [line] = problems(frame, make_schema(more), folder=tmp_path)
    assert "combinations of treatments in source-train, more than 200: 'mg' has 40 levels, 'units' has 37" in line
    assert "declare 'mg', 'units' as doses by `kind = \"ordinal\"`" in line
    assert "or group rare levels (" in line
    doses = {name: {"role": "treatment", "kind": "ordinal"} for name in ("mg", "units")}
    encoding = ingest(frame, make_schema(more | doses), folder=tmp_path).schema.treatments
    assert [dose.name for dose in encoding.doses] == ["mg", "units"]
    texts = frame.with_columns(pl.format("m{}", "mg").alias("mg"), pl.format("u{}", "units").alias("units"))
    [line] = problems(texts, make_schema(more), folder=tmp_path)
    assert "dose" not in line
    assert "group rare levels (" in line
