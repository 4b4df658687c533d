"""Tables as programs and countries write them: decimal commas, thousands, comments, packed files, rows of doses."""

import bz2
import gzip
import lzma
import re
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from costar_cli.data import Dataset
from costar_cli.data.table import TableInputs, packed
from costar_cli.data.table.files import frame_as_file, open_files
from costar_cli.data.table.guess import guess_schema
from costar_cli.data.table.new_subjects import ingest_new
from costar_cli.data.table.preprocessing import Preprocessing
from costar_cli.data.table.schema_file import parse_schema
from costar_cli.data.table.written import Written, advice_on_marks
from costar_cli.errors import DataError, UsageError
from costar_cli.reporting import NullReporter
from tests.datasets.table_worlds import assert_same_dataset, ingest, make_schema, of, problems, save, ward

MARKS = [(",", ""), (".", ","), (",", "."), (",", " "), (".", "'")]  # 49,8  1,049.8  1.049,8  1 049,8  1'049.8


def marked(decimal: str, thousands: str) -> pl.DataFrame:
    """The ward with pressures of thousands, written with such marks."""
    between = "\u202f" if thousands == " " else thousands
    texts = [f"{x:,.1f}".replace(",", "t").replace(".", decimal).replace("t", between) for x in big()["pressure"]]
    return big().with_columns(pressure=pl.Series(texts))


def big() -> pl.DataFrame:
    whole = pl.col("heart rate", "age").cast(pl.Int64)
    return ward().with_columns(whole, pressure=(pl.col("pressure") * 100).round(1))


@pytest.fixture(scope="module")
def in_numbers(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The data set of the same table in numbers; look, but do not write."""
    return ingest(big(), folder=tmp_path_factory.mktemp("big"), form="parquet")


@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize(("decimal", "thousands"), MARKS)
def test_numbers_are_read_with_their_marks_and_a_guess_sees_them(
    decimal: str, thousands: str, separator: str, in_numbers: Dataset, tmp_path: Path
):
    marked(decimal, thousands).write_csv(path := tmp_path / "ward.csv", separator=separator)
    keys = Written(decimal, thousands).keys
    assert_same_dataset(ingest(path, make_schema(**keys)), in_numbers)
    tables = tomllib.loads(guess_schema([path]).text)
    assert {key: tables[key] for key in ("decimal", "thousands") if key in tables} == keys
    assert tables["columns"]["pressure"]["role"] in ("covariate", "outcome")
    assert "kind" not in tables["columns"]["pressure"]


def test_texts_of_frames_have_the_marks_of_the_schema_too(tmp_path: Path):
    schema = make_schema(decimal=",")
    data = ingest(marked(",", ""), schema, folder=tmp_path)
    new = marked(",", "").with_columns(patient="n" + pl.col("patient"))
    got = ingest_new(TableInputs([frame_as_file(new, "new")]), Preprocessing.of_dataset(data), NullReporter())
    panel, row = of(got, "np02")
    np.testing.assert_array_equal(panel.outcomes[row], of(data, "p02")[0].outcomes[of(data, "p02")[1]])


@pytest.mark.parametrize(
    ("keys", "cell"),
    [
        ({"decimal": ","}, "12.5"),
        ({"decimal": ",", "thousands": "."}, "12.5"),
        ({"decimal": ",", "thousands": "."}, "1.04,5"),
        ({"thousands": ","}, "10,49"),
        ({"thousands": ","}, "1,049,8"),
        ({"decimal": ","}, "1,2,3"),
    ],
)
def test_marks_that_do_not_fit_make_no_number(keys: dict[str, str], cell: str, tmp_path: Path):
    texts = marked(keys.get("decimal", "."), keys.get("thousands", ""))["pressure"].to_list()
    texts[3] = cell
    (line,) = problems(big().with_columns(pressure=pl.Series(texts)), make_schema(**keys), folder=tmp_path)
    assert f"column 'pressure': 1 value not numeric, first '{cell}'" in line
    assert "row 4 of ward.csv" in line


@pytest.mark.parametrize(
    ("cell", "advice"),
    [
        ("49,849", 'declare `decimal = ","` or `thousands = ","`'),
        ("49,8", 'declare `decimal = ","`, or write'),
        ("1,049.8", 'declare `thousands = ","`, or write'),
        ("1.049,8", 'declare `decimal = ","` and `thousands = "."`, or write'),
        ("12.5", "write all numbers with the marks"),
        ("high", ""),
        ("12,x", ""),
    ],
)
def test_the_advice_on_a_number_with_marks_is_to_say_which(cell: str, advice: str):
    told = advice_on_marks(cell)
    assert told.startswith(advice)
    assert bool(told) == bool(advice)


def test_numbers_with_marks_are_not_advised_to_be_blank(tmp_path: Path):
    (line,) = problems(marked(".", ","), folder=tmp_path)
    assert '`thousands = ","`' in line
    assert "blank" not in line


def test_where_both_readings_fit_a_guess_asks(tmp_path: Path):
    texts = [f"{x:,}" for x in range(1001, 1181)]
    for separator, key, other in ((",", "thousands", "decimal"), (";", "decimal", "thousands")):
        path = tmp_path / f"{key}.csv"
        big().with_columns(pressure=pl.Series(texts)).write_csv(path, separator=separator)
        line = next(line for line in guess_schema([path]).text.splitlines() if line.startswith(key))
        assert line == f'{key} = ","  # CHECK: or `{other} = ","`?'


def test_thousands_are_seen_where_few_numbers_have_any(tmp_path: Path):
    texts = [f"{x:,.1f}" for x in np.linspace(600, 1020, 180)]
    assert sum("," in text for text in texts) < 10
    path = save(big().with_columns(pressure=pl.Series(texts)), tmp_path / "ward.csv")
    tables = tomllib.loads(guess_schema([path]).text)
    assert tables["thousands"] == ","
    assert ingest(path, parse_schema(tables)).panels
    two = [*texts[:170], *["12,5,1"] * 2, *texts[:8]]
    save(big().with_columns(pressure=pl.Series(two)), path)
    line = next(line for line in guess_schema([path]).text.splitlines() if line.startswith("pressure"))
    assert "2 values are not numbers ('12,5,1'): correct them, or add" in line
    mixed = [*texts[:100], *["1.049,8"] * 2, *texts[:78]]
    save(big().with_columns(pressure=pl.Series(mixed)), path)
    line = next(line for line in guess_schema([path]).text.splitlines() if line.startswith("pressure"))
    assert "2 values are not numbers ('1.049,8'): correct them" in line
    assert "blank" not in line


def test_one_mark_for_two_things_is_refused():
    with pytest.raises(UsageError, match="say which it is"):
        make_schema(decimal=",", thousands=",")


def test_lines_that_are_comments_are_no_rows(tmp_path: Path):
    path = save(ward(), tmp_path / "ward.csv")
    lines = path.read_text().splitlines()
    text = "\n".join(['# from "REDCap", 2024', "# site 3, ward 2", *lines[:4], "# checked", *lines[4:], ""])
    path.write_text("\ufeff" + text)
    assert_same_dataset(ingest(path, make_schema(comment="#")), ingest(ward(), folder=tmp_path, form="parquet"))
    tables = tomllib.loads(guess_schema([path]).text)
    assert tables["comment"] == "#"
    assert ingest(path, parse_schema(tables)).panels
    (line,) = problems(path)
    assert 'give `comment = "#"` in the schema' in line


def test_a_header_that_begins_like_a_comment_is_the_header(tmp_path: Path):
    path = save(ward().rename({"patient": "#patient"}), tmp_path / "ward.csv")
    text = guess_schema([path]).text
    assert "comment" not in tomllib.loads(text)
    assert "#patient" in tomllib.loads(text)["columns"]


def pack(path: Path, ending: str) -> Path:
    """A file beside a CSV file with the same rows."""
    packed_path = path.with_name(path.name + ending)
    if whole := {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}.get(ending):
        packed_path.write_bytes(whole(path.read_bytes()))
    else:
        pl.read_csv(path, infer_schema=False).write_csv(packed_path, compression="zstd")
    return packed_path


@pytest.mark.parametrize("ending", [".gz", ".zst", ".bz2", ".xz"])
def test_compressed_files_are_read_as_they_were_before(ending: str, tmp_path: Path):
    frame = ward().with_columns(note=pl.when(pl.col("sex") == "f").then(pl.lit("a,\n\n\u00fc")).otherwise("sex"))
    path = save(frame, tmp_path / "ward.csv")
    whole = ingest(path)
    assert_same_dataset(ingest(pack(path, ending)), whole)
    text = guess_schema([pack(path, ending)]).text
    assert tomllib.loads(text)["name"] == "ward"
    lines = save(ward(), path.with_name("broken.csv")).read_text().splitlines()
    path.with_name("broken.csv").write_text("\n".join([*lines[:100], lines[100] + ",1,2", *lines[101:]]))
    broken = path.with_name("broken.csv.gz")
    broken.write_bytes(gzip.compress(path.with_name("broken.csv").read_bytes()))
    (line,) = problems(broken)
    assert "a row with 10 fields under a header of 8" in line


def test_what_unpacks_to_far_more_than_its_size_is_refused_before_it_fills_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(packed, "FREELY", 1_000_000)
    bomb = tmp_path / "bomb.csv.gz"
    with gzip.open(bomb, "wb") as file:
        file.write(b"patient,day\n")
        for _ in range(100):
            file.write(b"1,2\n" * 100_000)
    (line,) = problems(bomb)
    assert "200 times its size" in line


def test_a_copy_is_gone_once_nothing_reads_it(tmp_path: Path):
    packed._unpacked.cache_clear()
    (table,) = open_files([pack(save(ward(), tmp_path / "ward.csv"), ".gz")])
    assert table.held is not None
    copy = table.held.path
    assert copy.exists()
    packed._unpacked.cache_clear()
    assert copy.exists()
    del table
    assert not copy.parent.exists()


@pytest.mark.parametrize("ending", ["feather", "arrow"])
def test_arrow_files_are_read_like_parquet(ending: str, tmp_path: Path):
    path = tmp_path / f"ward.{ending}"
    ward().write_ipc(path, compression="zstd")
    assert_same_dataset(ingest(path), ingest(ward(), folder=tmp_path, form="parquet"))
    ward().with_columns(pressure=pl.when(pl.int_range(pl.len()) != 7).then("pressure")).write_ipc(path)
    (line,) = problems(path)
    assert "column 'pressure': 1 value missing" in line
    assert f"row 8 of ward.{ending}" in line


def test_workbooks_are_read_like_parquet(tmp_path: Path):
    pytest.importorskip("fastexcel")
    pytest.importorskip("xlsxwriter")
    path = tmp_path / "ward.xlsx"
    frame = ward().with_columns(day=pl.date(2024, 1, 1) + pl.duration(days=pl.col("day")))
    frame.write_excel(path)
    schema = make_schema(time={"step": "1d"})
    assert_same_dataset(ingest(path, schema), ingest(frame, schema, folder=tmp_path, form="parquet"))
    assert parse_schema(tomllib.loads(guess_schema([path]).text)).time.step == "1d"


def test_without_the_package_a_workbook_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import zipfile

    with zipfile.ZipFile(tmp_path / "ward.xlsx", "w") as parts:
        parts.writestr("xl/workbook.xml", "<workbook/>")
    monkeypatch.setattr(packed, "EXTRA", "a_package_that_nobody_has")
    with pytest.raises(DataError, match="not installed") as caught:
        open_files([tmp_path / "ward.xlsx"])
    assert "pip install 'costar[excel]'" in str(caught.value)


def dosing(*, uneven: bool = False) -> pl.DataFrame:
    """Rows of doses and of measurements of 30 subjects: a dose of 100 adds 5 to the next value."""
    rng, rows = np.random.default_rng(4), list[tuple[int, int, str, str, int]]()
    for subject in range(1, 31):
        level = 0.0
        for k in range(10):
            level, given = level / 2, int(rng.integers(3)) * 100
            time = 12 * k + (int(rng.integers(-2, 3)) if uneven and k else 0)
            rows.append((subject, time, f"{level + rng.normal(0, 0.1):.2f}", ".", 0))
            if given:
                rows.append((subject, time, ".", str(given), 1))
            level += given / 10
    return pl.DataFrame(rows, schema=["ID", "TIME", "DV", "AMT", "EVID"], orient="row")


def test_a_point_among_numbers_is_guessed_to_be_missing_and_amounts_to_be_doses(tmp_path: Path):
    path = save(dosing(), tmp_path / "pk.csv")
    text = guess_schema([path]).text
    schema = parse_schema(tomllib.loads(text))
    assert schema.blank == ["NA", "NaN", "null", "."]
    assert {name: column.role for name, column in schema.columns.items()} == {
        "ID": "subject", "TIME": "time", "DV": "outcome", "AMT": "treatment",
    }  # fmt: skip
    assert (schema.columns["AMT"].kind, schema.columns["AMT"].missing) == ("continuous", "fill")
    assert (schema.time.step, schema.time.bin) == (12, True)
    assert "EVID" in text
    data = ingest(path, schema)
    panel, row = of(data, "1")
    given = data.schema.treatments.decode(panel.treatments[row])[:, 0]
    frame = dosing().filter(pl.col("ID") == 1)
    amounts = frame.filter(pl.col("EVID") == 1).with_columns(k=pl.col("TIME") // 12, a=pl.col("AMT").cast(pl.Float64))
    want = np.zeros(10)
    want[amounts["k"].to_numpy()] = amounts["a"].to_numpy()
    np.testing.assert_allclose(given, want)
    seen = frame.filter(pl.col("EVID") == 0)["DV"].cast(pl.Float64).to_numpy()
    np.testing.assert_allclose(panel.outcomes[row, :, 0], seen, rtol=1e-5)


def test_uneven_times_of_doses_are_put_into_steps_that_are_asked_about(tmp_path: Path):
    guess = guess_schema([save(dosing(uneven=True), tmp_path / "pk.csv")])
    schema = parse_schema(tomllib.loads(guess.text))
    assert (schema.time.bin, schema.time.gaps) == (True, "fill")
    assert any("choose the `step` whose rows become one" in doubt for doubt in guess.doubts)


def test_a_point_among_words_is_a_word(tmp_path: Path):
    words = pl.Series([".", "mild", "severe"]).gather(pl.Series(range(180)) % 3)
    text = guess_schema([save(ward().with_columns(grade=words, hole=pl.lit(".")), tmp_path / "ward.csv")]).text
    assert "blank" not in tomllib.loads(text)


def test_values_in_rows_of_doses_and_repeated_doses_are_asked_about(tmp_path: Path):
    frame = dosing().with_columns(DV=pl.when(pl.col("EVID") == 1).then(pl.lit("0")).otherwise("DV"), ADDL=pl.lit(2))
    doubts = guess_schema([save(frame, tmp_path / "pk.csv")]).doubts
    text = guess_schema([save(dosing(), tmp_path / "pk.csv")]).text
    dv, amt = (next(line for line in text.splitlines() if line.startswith(f"{name} = ")) for name in ("DV", "AMT"))
    assert "missing" not in dv.split("? ")[0].split("CHECK")[1]  # the entry says it already
    assert re.search(r" 270 values missing before the subjects' last rows \(300 with these\): .* 300 missing$", amt)
    assert any(doubt.startswith("DV: ") and "rows of doses (`EVID`) hold a value" in doubt for doubt in doubts)
    assert any("doses that ADDL and II repeat have no rows" in doubt for doubt in doubts)
