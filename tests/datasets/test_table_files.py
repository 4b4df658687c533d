"""Files that are no tables, or damaged ones: an error that names the file, never the end of the process."""

import os
import random
from pathlib import Path

import polars as pl
import pytest

from costar_cli.data.table import TableInputs, ingest_table, parse
from costar_cli.data.table.files import open_files
from costar_cli.errors import DataError
from costar_cli.reporting import NullReporter
from tests.datasets.table_worlds import assert_same_dataset, ingest, make_schema, problems, save, ward

BAD_FILES: list[tuple[str, bytes | None, str, str]] = [
    ("ward.csv", None, "the file does not exist", "check the path"),
    ("ward.csv", b"", "the file is empty", "header"),
    ("ward.csv", b"\n\n", "the file has no header", "first line"),
    ("ward.csv", b"patient,day,day\n1,2,3\n", "the header names 'day' more than once", "rename"),
    ("ward.csv", b"patient,\xff\n1,2\n", "not UTF-8 text: byte b'\\xff'", "UTF-8"),
    ("ward.csv", "patient,day\n1,2\n".encode("utf-16"), "not a CSV file: it contains null bytes", "UTF-8"),
    ("ward.csv", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "not a CSV file: it contains null bytes", "UTF-8"),
    ("ward.csv", b'patient,"day\n1,2\n', "the header is not valid CSV", "UTF-8"),
    ("ward.csv", b"just some words\nand more\n", "there is no column 'patient'", "it has 'just some words'"),
    ("ward.xls", b"\xd0\xcf\x11\xe0", "Arrow (.feather) or Excel (.xlsx), not '.xls'", "save it as .csv"),
    ("ward.csv.zip", b"PK\x03\x04", "which may be .gz, .zst, .bz2 or .xz, Parquet", "unpack it"),
    ("ward.csv.bz2", b"BZh91AY&SY no", "the file cannot be unpacked", "save it again"),
    ("ward.csv", b"patient,day,drug\n1,2,a\n1,3", "a row with 2 fields under a header of 3", "cut off"),
    ("ward.parquet.gz", b"\x1f\x8b", "Arrow (.feather) or Excel (.xlsx), not '.gz'", "save it as .csv"),
    ("ward.xlsx", b"PK\x03\x04", "this is not an Excel workbook", "save it again"),
    ("ward.csv.gz", b"\x1f\x8b\x08\0 no more", "the file cannot be unpacked", "save it again"),
    ("ward.csv.zst", b"\x28\xb5\x2f\xfd nothing", "the file cannot be unpacked", "save it again"),
    ("ward.feather", b"FEA1 of old", "this is not an Arrow file", "Feather: version 2"),
    ("ward.feather", b"ARROW1\0\0" + bytes(80) + b"ARROW1", "the Arrow file cannot be read", "save it again"),
    ("ward", b"patient,day\n", "a table needs a file ending", "save it as .csv"),
    ("ward.parquet", b"patient,day\n1,2\n", "this is not a Parquet file", "save it again"),
    ("ward.parquet", b"PAR1" + bytes(60) + b"PAR1", "the Parquet file cannot be read", "save it again"),
    ("ward.parquet", b"PAR1", "the Parquet file cannot be read", "save it again"),
]


@pytest.mark.parametrize(
    ("name", "content", "problem", "fix"), BAD_FILES, ids=[f"{c[0]}-{c[2][:30]}" for c in BAD_FILES]
)
def test_files_that_are_no_tables_are_named(name: str, content: bytes | None, problem: str, fix: str, tmp_path: Path):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    lines = [line for line in problems(path) if problem in line]
    assert len(lines) == 1
    assert name in lines[0]
    assert fix in lines[0]


def test_names_of_columns_may_hold_what_only_some_call_a_new_line(tmp_path: Path):
    path = tmp_path / "ward.csv"
    path.write_text("patient,a\x0cb,c\x85d,e\u2028f\n1,2,3,4\n", "utf-8")
    assert list(open_files([path])[0].types) == ["patient", "a\x0cb", "c\x85d", "e\u2028f"]


def test_a_folder_is_no_table(tmp_path: Path):
    assert "this is not a file but a folder" in problems(tmp_path)[0]
    os.mkfifo(tmp_path / "t.csv")
    [line] = problems(tmp_path / "t.csv")
    assert "this is not a file but a pipe" in line
    assert "save the data in a file" in line


def test_damage_in_the_middle_of_a_file_is_named_with_its_line(tmp_path: Path):
    path = save(ward(), tmp_path / "ward.csv")
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:100], lines[100] + b",1,2", *lines[101:]]))
    [line] = problems(path)
    assert line.startswith("row 100 of ward.csv: a row with 10 fields under a header of 8")
    path.write_bytes(b"\n".join([*lines[:100], lines[100].replace(b"p", b"\xe9"), *lines[101:]]))
    [line] = problems(path)
    assert "line 101: this is not UTF-8 text" in line
    whole = save(ward(), tmp_path / "ward.parquet").read_bytes()
    path.with_suffix(".parquet").write_bytes(whole[:200] + bytes(300) + whole[500:])
    [line] = problems(path.with_suffix(".parquet"))
    assert "the Parquet file cannot be read" in line


@pytest.mark.parametrize("more", [b"", b"\n", b"\r\n\r\n"])
def test_a_last_row_with_fewer_fields_is_ragged_unless_others_are_short_too(more: bytes, tmp_path: Path):
    path = save(ward(), tmp_path / "ward.csv")
    lines = path.read_bytes().splitlines()
    cut = lines[-1].rsplit(b",", 2)[0]  # without age and sex, which the subject's first row has
    path.write_bytes(b"\n".join([*lines[:-1], cut]) + more)
    [line] = problems(path)
    assert line.startswith("last row of ward.csv: a row with 6 fields under a header of 8 (the file may be cut off")
    path.write_bytes(b"\n".join([*lines[:-3], lines[-3].rsplit(b",", 1)[0], lines[-2], cut]) + more)
    assert ingest(path).panels
    path.write_bytes(b"\n".join([*lines[:-1], lines[-1][:-1] + b'"a\n1,2"']) + more)  # a field of two lines
    assert "changes within 1 subject" in problems(path)[0]


def test_rows_with_more_fields_are_found_behind_comments_and_blank_lines(tmp_path: Path):
    path = save(ward(), tmp_path / "ward.csv")
    text = path.read_text().strip()
    for above in ("# made on Monday\n", "\n"):
        path.write_text(f"{above}{text},1")
        [line] = problems(path, make_schema(comment="#"))
        assert line.startswith("row 180 of ward.csv: a row with 9 fields under a header of 8")
        path.write_text(above + text)
        assert ingest(path, make_schema(comment="#")).panels


def test_problems_of_several_files_are_told_together(tmp_path: Path):
    good = save(ward(), tmp_path / "ward.csv")
    (tmp_path / "empty.csv").write_bytes(b"")
    lines = problems([good, tmp_path / "empty.csv", tmp_path / "nowhere.csv"])
    assert len(lines) == 2
    other = save(ward().drop("age"), tmp_path / "other.csv")
    [line] = problems([good, other])
    assert line.startswith("other.csv: there is no column 'age'")


@pytest.mark.parametrize("seed", [0, 149, 233])  # 149 makes polars panic, 233 makes it abort the process
def test_a_damaged_parquet_file_is_read_or_refused(seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    path = save(ward(), tmp_path / "ward.parquet")
    draw, content = random.Random(seed), bytearray(path.read_bytes())  # noqa: S311 - no secret
    for _ in range(draw.choice([1, 1, 2, 5, 20])):
        place, what = draw.randrange(len(content)), draw.random()
        if what < 0.6:
            content[place] = draw.randrange(256)
        elif what < 0.8:
            del content[place : place + draw.randrange(1, 30)]
        else:
            content[place:place] = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 10)))
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        ingest(path)
    assert "ward.parquet" in (caught.value.where or str(caught.value.details))
    assert capfd.readouterr().err == ""


def test_true_and_false_are_numbers_in_csv_as_in_parquet(tmp_path: Path):
    frame = ward().with_columns(resting=pl.col("age") > 50)
    schema = make_schema({"resting": {"role": "covariate"}})
    both = [ingest_table(TableInputs([save(frame, tmp_path / f"a.{end}")]), schema, NullReporter())
            for end in ("csv", "parquet")]  # fmt: skip
    assert_same_dataset(*both)
    for first, second in (("true", "0.5"), ("0.5", "true")):
        mixed = frame.with_columns(resting=pl.when(pl.col("age") > 50).then(pl.lit(first)).otherwise(pl.lit(second)))
        with pytest.raises(DataError, match="not numeric, first 'true'"):
            ingest_table(TableInputs([save(mixed, tmp_path / "b.csv")]), schema, NullReporter())


def test_true_and_false_are_found_behind_any_number_of_missing_values(tmp_path: Path, monkeypatch):
    frame = ward().with_columns(resting=pl.when(pl.int_range(pl.len()) > 9).then(pl.col("age") > 50))
    schema = make_schema({"resting": {"role": "covariate", "missing": "fill"}})
    table = TableInputs([save(frame, tmp_path / "a.csv")])
    once = ingest_table(table, schema, NullReporter())
    monkeypatch.setattr(parse, "HEAD_ROWS", 5)
    assert_same_dataset(ingest_table(table, schema, NullReporter()), once)


def test_the_last_second_of_the_year_9999_is_a_date_and_the_next_is_none(tmp_path: Path):
    last = pl.lit("9999-12-31 23:59:59").str.to_datetime(time_unit="ms")
    for later, refused in ((0, False), (1_000, True)):
        frame = pl.DataFrame({"x": [1]}).with_columns(when=(last.cast(pl.Int64) + later).cast(pl.Datetime("ms")))
        path = save(frame, tmp_path / "t.parquet")
        if refused:
            with pytest.raises(DataError, match="column 'when' has dates outside the years 1 to 9999"):
                open_files([path])
        else:
            assert open_files([path])[0].types["when"] == pl.Datetime("ms")
