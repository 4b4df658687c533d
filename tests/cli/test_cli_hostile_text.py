"""Settings, schemas and tables that somebody made to cost time or end the process: one short error within seconds."""

import time
from datetime import date, timedelta
from pathlib import Path

import polars as pl
import pytest

from costar_cli.config.toml import read_toml
from costar_cli.data.table.files import open_files
from costar_cli.data.table.guess import guess_schema
from costar_cli.data.table.schema_file import read_schema
from costar_cli.errors import DataError, UsageError
from costar_cli.settings.resolve import from_file

TEXTS = {
    "lists": "[pretrain]\nepochs = " + "[" * 5000 + "]" * 5000,
    "tables": "a = " + "{a=" * 5000 + "1" + "}" * 5000,
    "dotted key": ".".join(["a"] * 50_000) + " = 1",
    "quoted key": ".".join(['"a"'] * 50_000) + " = 1",
    "digits": "[pretrain]\nepochs = " + "1" * 5000,
    "large": "a" * 4_000_001,
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("read", [from_file, read_schema])
def test_toml_that_is_deep_or_large_is_refused_at_once(tmp_path, text, read):
    (tmp_path / "a.toml").write_text(TEXTS[text])
    start = time.process_time()
    with pytest.raises(UsageError, match=r"nested more than 32|is larger than|is not TOML"):
        read(tmp_path / "a.toml")
    assert time.process_time() - start < 2


def test_an_endless_device_is_no_settings_file():
    with pytest.raises(UsageError, match="larger than 1,000,000 bytes"):
        read_toml(Path("/dev/zero"), "config file")


def test_depth_is_not_counted_in_texts_and_comments(tmp_path):
    (tmp_path / "a.toml").write_text(f'a = "{"[" * 99}"\nb = """\n{"." * 99}"""\nc = 1 # {"{" * 99}\n')
    assert read_toml(tmp_path / "a.toml", "config file")[1]["c"] == 1


def test_of_many_unknown_settings_some_are_told_and_the_rest_counted(tmp_path):
    (tmp_path / "a.toml").write_text("[pretrain]\n" + "".join(f"zz{i} = 1\n" for i in range(20_000)))
    start = time.process_time()
    problems = from_file(tmp_path / "a.toml").problems
    assert len(problems) == 21
    assert problems[-1].endswith("19,980 more unknown settings")
    assert time.process_time() - start < 5
    with pytest.raises(UsageError) as caught:
        read_schema(tmp_path / "a.toml")
    assert len(caught.value.details) <= 21


@pytest.mark.parametrize("kind", [pl.Date, pl.Datetime("us")], ids=str)
def test_dates_beyond_the_year_9999_are_an_error_of_their_column(tmp_path, kind):
    beyond = pl.Series("when", [0, 2**31 - 1 if kind == pl.Date else 2**61]).cast(kind)
    pl.DataFrame({"id": ["a", "b"], "when": beyond}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="column 'when' has dates outside the years 1 to 9999") as caught:
        open_files([tmp_path / "a.parquet"])
    assert "leave the column out" in str(caught.value)


def test_durations_are_left_out_of_a_guess_by_name(tmp_path):
    rows = {
        "id": [f"p{i // 5}" for i in range(60)],
        "day": [i % 5 for i in range(60)],
        "bp": [i % 7 for i in range(60)],
    }
    pl.DataFrame({**rows, "stay": [timedelta(days=i) for i in range(60)]}).write_parquet(tmp_path / "a.parquet")
    assert (
        '# stay = { role = "..." }  # left out since it has a type that' in guess_schema([tmp_path / "a.parquet"]).text
    )


def test_a_quote_that_is_never_closed_is_said_to_hide_the_rows(tmp_path):
    (tmp_path / "a.csv").write_text('id,day,bp\n"p1,0,1\np2,0,1\n')
    with pytest.raises(DataError, match="a quote is never closed") as caught:
        guess_schema([tmp_path / "a.csv"])
    assert caught.value.where.endswith("a.csv, line 2")


def test_a_row_with_too_many_fields_is_named_though_a_value_has_a_quote(tmp_path):
    (tmp_path / "a.csv").write_text('id,day,bp\np1,0,1,9\np2,0,5"\n')
    with pytest.raises(DataError, match="a row with 4 fields") as caught:
        guess_schema([tmp_path / "a.csv"])
    assert caught.value.where == "row 1 of a.csv"


def test_the_last_dates_of_python_are_read(tmp_path):
    ends = pl.DataFrame({"when": [date.min, None, date.max]})
    ends.write_parquet(tmp_path / "a.parquet")
    open_files([tmp_path / "a.parquet"])


def test_the_schema_that_is_guessed_of_many_long_names_is_read_back(tmp_path):
    names = [f"{i}{'x' * 190}" for i in range(5_000)]
    rows = [f"p{i // 4},{i % 4},{i % 2}," + ",".join(str(i * 7 % 11) for _ in names) for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join([f"id,day,drug,{','.join(names)}", *rows]))
    text = guess_schema([tmp_path / "t.csv"]).text
    assert len(text) > 1_000_000
    (tmp_path / "s.toml").write_text(text)
    assert len(read_schema(tmp_path / "s.toml", accept_guesses=True).columns) == len(names) + 3


def test_a_schema_that_is_too_large_is_to_be_shortened(tmp_path):
    (tmp_path / "s.toml").write_text("#" * 4_000_001)
    with pytest.raises(UsageError, match="larger than 4,000,000 bytes") as caught:
        read_schema(tmp_path / "s.toml")
    assert "delete the lines" in caught.value.fix


def test_a_schema_of_thousands_of_columns_is_guessed_in_the_time_of_a_few_queries_of_each(tmp_path):
    names = [f"x{i}" for i in range(2_000)]
    rows = [f"p{i // 4},0000-01-0{i % 4 + 1},{i % 2}," + ",".join(str(i * 7 % 11) for _ in names) for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join([f"id,day,drug,{','.join(names)}", *rows]))
    guess_schema([tmp_path / "t.csv"])  # which imports what it needs
    frame = pl.read_csv(tmp_path / "t.csv", infer_schema=False)
    start = time.process_time()
    for name in names:
        frame.select(pl.col(name).n_unique())
    one_query_each_s = time.process_time() - start
    start = time.process_time()
    text = guess_schema([tmp_path / "t.csv"]).text
    assert time.process_time() - start < 5 * one_query_each_s  # 3.6 to 4.0; with a query of each: 6.0 to 6.5
    assert text.count('role = "covariate"') > 1_900
