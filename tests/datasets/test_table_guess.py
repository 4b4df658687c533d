"""A guessed schema is TOML that says something sensible, whatever the table looks like."""

import tomllib
from contextlib import suppress
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.data import Part
from costar_cli.data.table.guess import guess_schema
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_file import open_guesses, parse_schema
from costar_cli.errors import CostarError, DataError
from tests.datasets.table_worlds import Listener, ingest, save, ward

EXAMPLE = Path(__file__).parents[2] / "examples" / "own-data" / "small.csv"


def guessed(frame: pl.DataFrame, folder: Path, name: str = "ward.csv") -> TableSchema:
    return parse_schema(tomllib.loads(guess_schema([save(frame, folder / name)]).text))


def roles(schema: TableSchema) -> dict[str, str]:
    return {name: column.role for name, column in schema.columns.items()}


def test_the_guess_for_the_example_is_ingested_as_it_is():
    schema = parse_schema(tomllib.loads(guess_schema([EXAMPLE]).text))
    assert roles(schema) == {
        "patient": "subject", "date": "time", "hospital": "domain", "age": "static", "sex": "static",
        "diabetes": "static", "carbs": "covariate", "crp": "covariate", "insulin": "treatment", "steroid": "treatment",
        "glucose": "outcome",
    }  # fmt: skip
    assert schema.time.step == "1d"
    listener = Listener()
    dataset = ingest(EXAMPLE, schema, listener=listener)
    assert listener.warnings == []
    assert sum(panel.n_subjects for panel in dataset.panels.values()) == 170
    assert dataset.schema.treatments.levels == (("none", "basal", "basal-bolus"), ("off", "on"))
    assert len(dataset.queries[Part("target", "test")]["rolling_origin"])


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_roles_are_guessed_by_name_and_by_values(form: str, tmp_path: Path):
    frame = ward().with_columns(
        split=pl.Series(["train", "val", "test"]).gather((pl.Series(range(180)) // 6) % 3),
        note=pl.format("text {}", pl.int_range(pl.len())),
        unit=pl.lit("ward 7"),
        admitted=pl.lit("2024-01-03"),
        smoker=pl.col("patient") < "p10",
    )
    schema = guessed(frame, tmp_path, f"ward.{form}")
    assert roles(schema) == {
        "patient": "subject", "day": "time", "site": "domain", "pressure": "covariate", "drug": "treatment",
        "heart rate": "outcome", "age": "static", "sex": "static", "split": "split", "smoker": "static",
    }  # fmt: skip
    assert schema.columns["site"].domain_values("target") == ("south",)
    assert schema.columns["smoker"].kind == "binary"
    assert schema.columns["sex"].kind == "categorical"
    text = guess_schema([tmp_path / f"ward.{form}"]).text
    assert '# note = { role = "..." }  # left out since it holds 180 different texts' in text
    assert '# unit = { role = "..." }  # left out since it never changes (ward 7)' in text


@pytest.mark.parametrize(
    ("times", "step", "gaps"),
    [
        (["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"], "1d", "error"),
        (["2024-01-01", "2024-01-08", "2024-01-15", "2024-01-29"], "1w", "fill"),
        (["2024-01-01 00:00", "2024-01-01 06:00", "2024-01-01 12:00", "2024-01-01 18:00"], "6h", "error"),
        (["2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01"], "1mo", "error"),
        (["2020-07-01", "2021-07-01", "2022-07-01", "2024-07-01"], "1y", "fill"),
        (["2024-01-01 08:13", "2024-01-01 09:58", "2024-01-02 07:20", "2024-01-03 11:00"], "1h", "elapsed"),
        (["0", "2", "4", "6"], 2, "error"),
        (["0", "0.5", "1", "2"], 0.5, "fill"),
        (["0.1", "0.2", "0.3", "0.4"], 0.1, "error"),
        (["0", "0.22", "3.1", "4.7"], 1, "elapsed"),
        (["0", "1", "30", "90"], 1, "elapsed"),
        (["20240131", "20240207", "20240214", "20240221"], "1w", "error"),
        (["31.01.2024", "01.02.2024", "02.02.2024", "03.02.2024"], "1d", "error"),
        (["1/31/2024 14:00", "1/31/2024 15:00", "1/31/2024 16:00", "1/31/2024 17:00"], "1h", "error"),
    ],
)
def test_steps_gaps_and_formats_are_guessed_from_the_times(times: list[str], step: object, gaps: str, tmp_path: Path):
    frame = ward(24, 4).with_columns(day=pl.Series(times).gather(ward(24, 4)["day"]))
    guess = guess_schema([save(frame, tmp_path / "ward.csv")])
    schema = parse_schema(tomllib.loads(guess.text))
    assert (schema.time.step, schema.time.gaps) == (step, gaps)
    assert ("CHECK" in time_line(guess.text)) == (gaps != "error")
    if gaps == "fill":  # nobody guesses what was given and seen at steps without a row
        with pytest.raises(DataError, match="missing"):
            ingest(tmp_path / "ward.csv", schema)
        settled = guess.text.replace('role = "treatment"', 'role = "treatment", missing = "fill"')
        settled = settled.replace('role = "outcome"', 'role = "outcome", missing = "fill"')
        schema = parse_schema(tomllib.loads(settled))
    assert ingest(tmp_path / "ward.csv", schema).panels


def time_line(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("day = "))


def test_uneven_times_are_asked_about_and_rows_counted(tmp_path: Path):
    frame = ward(24, 4).with_columns(day=pl.Series([0.0, 0.22, 3.1, 4.7]).gather(ward(24, 4)["day"]))
    guess = guess_schema([save(frame, tmp_path / "ward.csv")])
    assert "times are unevenly spaced (0.22 to 2.88, half of them up to 1.6 apart)" in time_line(guess.text)
    schema = parse_schema(tomllib.loads(guess.text))
    assert (schema.time.step, schema.time.unit, schema.time.gaps) == (1, "", "elapsed")


def visits(frame: pl.DataFrame, apart: list[int]) -> pl.DataFrame:
    """The frame with its six days as dates, so many days apart."""
    dates = [date(2023, 1, 5) + timedelta(sum(apart[:day])) for day in frame["day"]]
    return frame.with_columns(day=pl.Series(dates))


@pytest.mark.parametrize(
    ("apart", "far"),
    [
        ([31, 33, 32, 31, 33], "31 to 33 d, half of them up to 32 apart"),
        ([6, 8, 9, 6, 8], "6 to 9 d, half of them up to 8 apart"),
    ],
)
def test_uneven_dates_are_visits_at_any_time_and_the_unit_of_time_is_said(apart: list[int], far: str, tmp_path: Path):
    guess = guess_schema([save(visits(ward(), apart), tmp_path / "ward.csv")])
    schema = parse_schema(tomllib.loads(guess.text))
    assert (schema.time.step, schema.time.unit, schema.time.gaps) == ("1d", "", "elapsed")
    assert 'step = "1d"  # the unit of time: each row is the next step, whenever it is' in guess.text
    assert far in time_line(guess.text)
    assert ingest(tmp_path / "ward.csv", schema).schema.step == "visit"


def example_of_a_target(text: str) -> str:
    [line] = [line for line in text.splitlines() if line.startswith("# target = ")]
    return str(tomllib.loads(line.removeprefix("# "))["target"])


@pytest.mark.parametrize("name", ["age", "Age at entry", "not"])
def test_the_example_of_a_target_fits_the_data(name: str, tmp_path: Path):
    frame = ward(40).drop("site").with_columns(age=41 + pl.int_range(pl.len()) // 6).rename({"age": name})
    text = guess_schema([save(frame, tmp_path / "ward.csv")]).text
    target = example_of_a_target(text)
    assert target == ("age >= 72" if name == "age" else f"`{name}` >= 72")
    tables = tomllib.loads(text) | {"domain": {"target": target}}
    dataset = ingest(tmp_path / "ward.csv", parse_schema(tables))
    assert sum(panel.n_subjects for part, panel in dataset.panels.items() if part.domain == "target") == 9


def test_without_a_number_that_is_steady_the_example_of_a_target_names_no_column(tmp_path: Path):
    text = guess_schema([save(ward().drop("site", "age"), tmp_path / "ward.csv")]).text
    assert example_of_a_target(text) == "COLUMN >= NUMBER"


def test_a_few_times_off_the_steps_do_not_change_the_step(tmp_path: Path):
    days = [float(day) for day in ward(30, 6)["day"]]
    days[9] = 3.4
    guess = guess_schema([save(ward(30, 6).with_columns(day=pl.Series(days)), tmp_path / "ward.csv")])
    assert parse_schema(tomllib.loads(guess.text)).time.step == 1
    assert "2 times off the steps" in time_line(guess.text)


def test_dates_that_can_be_read_in_two_ways_are_asked_about(tmp_path: Path):
    dates = pl.Series(["01/02/2024", "02/02/2024", "03/02/2024", "04/02/2024"])
    guess = guess_schema([save(ward(24, 4).with_columns(day=dates.gather(ward(24, 4)["day"])), tmp_path / "ward.csv")])
    assert parse_schema(tomllib.loads(guess.text)).time.format == "%d/%m/%Y"
    assert "CHECK: dates read as %d/%m/%Y, but %m/%d/%Y would also fit" in time_line(guess.text)


def test_what_is_not_found_is_left_to_be_filled_in(tmp_path: Path):
    frame = pl.DataFrame({"a": ["x", "y", "z"], "b": [0.5, 0.25, 0.125]})
    text = guess_schema([save(frame, tmp_path / "m5.csv")]).text
    assert 'name = "m5 table"' in text
    for role in ("subject", "time"):
        assert f'# NAME = {{ role = "{role}" }}' in text
    tomllib.loads(text)


def test_a_table_without_rows_cannot_be_guessed_from(tmp_path: Path):
    with pytest.raises(DataError, match="no rows"):
        guess_schema([save(ward().head(0), tmp_path / "ward.csv")])


CELLS = st.sampled_from(
    ["", "NA", "0", "1", "2.5", "-3", "1e9", "true", "a", "x\ny", '"', "2024-01-01", "#", "é\x1b[31m"]
)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cn")), min_size=1, max_size=8)


@given(
    st.lists(NAMES, min_size=1, max_size=5, unique=True),
    st.lists(st.lists(CELLS, min_size=5, max_size=5), min_size=1, max_size=12),
)
def test_any_table_gives_toml_or_a_plain_complaint(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], rows: list[list[str]]
):
    frame = pl.DataFrame([pl.Series(name, [row[i] for row in rows]) for i, name in enumerate(names)])
    path = save(frame, tmp_path_factory.getbasetemp() / "any.csv")
    try:
        text = guess_schema([path]).text
    except CostarError:
        return
    tables = tomllib.loads(text)
    assert set(tables["columns"]) <= {name.strip() for name in names}
    asked = [column for column in tables["columns"].values() if column["role"] in ("treatment", "outcome")]
    assert len(open_guesses(text)) >= len(asked)
    assert all("missing" not in column for column in asked)
    with suppress(CostarError):
        assert ingest(path, parse_schema(tables)).panels


def messy() -> pl.DataFrame:
    """Forty subjects of six days: one bad date, a mistyped age, glucose that is not a number twice."""
    rng = np.random.default_rng(0)
    rows = []
    for n in range(40):
        age = str(rng.integers(20, 90))
        for day in range(6):
            glucose, insulin = f"{rng.normal(120, 20):.1f}", str(rng.integers(2))
            rows.append([f"P{n:02d}", f"2024-03-{day + 1:02d}", age, insulin, glucose, f"{rng.normal(37, 1):.2f}"])
    for row, column, value in ((7, 1, "2024-13-45"), (20, 2, "255"), (31, 4, "high"), (99, 4, "error")):
        rows[row][column] = value
    return pl.DataFrame(rows, schema=["pid", "date", "age", "insulin", "glucose", "temperature"], orient="row")


def test_a_few_bad_cells_do_not_change_what_a_column_is(tmp_path: Path):
    guess = guess_schema([save(messy().select("pid", "date", "age", "insulin", "glucose"), tmp_path / "m.csv")])
    schema = parse_schema(tomllib.loads(guess.text))
    assert roles(schema) == {
        "pid": "subject", "date": "time", "age": "static", "insulin": "treatment", "glucose": "outcome",
    }  # fmt: skip
    assert (schema.time.step, schema.time.gaps) == ("1d", "error")
    told = dict(doubt.split(": ", 1) for doubt in guess.doubts)
    assert set(told) == {"date", "age", "glucose", "insulin"}
    assert told["date"].startswith("1 value is not a date ('2024-13-45')")
    assert told["age"].startswith("changes within 1 subject, first P03, which a static must not")
    assert told["glucose"].startswith("2 values are not numbers ('high', 'error')")
    assert told["insulin"].startswith(
        "guessed by its name: is it given after its row was measured, and is '0' not given?"
    )
    for name, doubt in told.items():
        assert f"# CHECK: {doubt}" in next(line for line in guess.text.splitlines() if line.startswith(name))
    with pytest.raises(DataError):
        ingest(tmp_path / "m.csv", schema)


def test_repeated_rows_and_a_missing_subject_leave_the_keys_what_they_are(tmp_path: Path):
    frame = pl.concat([messy(), messy()[[50]]]).with_row_index()
    frame = frame.with_columns(pid=pl.when(pl.col("index") == 12).then(None).otherwise("pid")).drop("index")
    guess = guess_schema([save(frame, tmp_path / "m.csv")])
    schema = parse_schema(tomllib.loads(guess.text))
    assert (schema.columns["pid"].role, schema.columns["date"].role) == ("subject", "time")
    assert "pid: 1 row without a value" in guess.doubts
    assert any(doubt.startswith("date: ") and "1 row with the subject and time of an earlier row" in doubt
               for doubt in guess.doubts)  # fmt: skip


def test_many_texts_among_numbers_are_left_out_and_said_to_be_doubtful(tmp_path: Path):
    often = (pl.int_range(pl.len()) % 4 == 0).alias("often")
    frame = messy().with_columns(temperature=pl.when(often).then(pl.format("t{}", pl.int_range(pl.len())))
                                 .otherwise("temperature"))  # fmt: skip
    guess = guess_schema([save(frame, tmp_path / "m.csv")])
    assert "temperature: left out since it holds 199 different texts (180 of 240 values are numbers)" in guess.doubts
    assert '# temperature = { role = "..." }  # CHECK: left out since ' in guess.text


def test_what_changes_once_or_rarely_is_no_static(tmp_path: Path):
    frame = messy().with_columns(
        statin=(pl.int_range(pl.len()) == 30).cast(pl.Int8),  # given once to one subject
        stage=pl.when((pl.col("pid") == "P03") & (pl.col("date") > "2024-03-03")).then(3).otherwise(2),  # and stays
    )
    schema = guessed(frame.select("pid", "date", "statin", "stage", "glucose"), tmp_path)
    assert (schema.columns["statin"].role, schema.columns["stage"].role) == ("treatment", "covariate")


def test_without_a_subject_no_outcome_is_guessed_and_all_that_is_missing_is_said(tmp_path: Path):
    frame = pl.DataFrame({"age": [50.5, 60.0, 50.5, 70.0], "b": [0.5, 0.25, 0.125, 2.0]})
    guess = guess_schema([save(frame, tmp_path / "t.csv")])
    assert "outcome" not in roles_of_text(guess.text)
    assert "no column seems to be the subject" in guess.doubts
    assert "no column seems to be the outcome" in guess.doubts


def roles_of_text(text: str) -> set[str]:
    return {column["role"] for column in tomllib.loads(text)["columns"].values()}


def test_subjects_of_equal_length_are_counted_without_a_range(tmp_path: Path):
    assert "30 subjects of 6 rows each" in guess_schema([save(ward(), tmp_path / "ward.csv")]).text


def stays(*, comments: bool = False) -> pl.DataFrame:
    """A log of 30 stays: pressure each hour or so, lactate now and then, a drug without amounts, a sex on each row."""
    rng = np.random.default_rng(5)
    start, rows = datetime(2024, 3, 1), list[tuple[str, datetime, str, float | None, str]]()
    for i in range(30):
        who, sex = f"s{i:02d}", "mf"[i % 2]
        for hour in range(12):
            at = start + timedelta(days=i, hours=hour, minutes=int(rng.integers(10)))
            rows.append((who, at, "MAP", round(rng.normal(75, 8), 1), sex))
            if hour % 4 == 1:
                rows.append((who, at, "lactate", round(rng.normal(3, 1), 1), sex))
            if rng.random() < 0.4:
                rows.append((who, at + timedelta(minutes=20), "norepinephrine", None, sex))
    names = ("patient", "charttime", "item", "value", "sex")
    frame = pl.DataFrame({name: [row[i] for row in rows] for i, name in enumerate(names)})
    return frame.with_columns(comment=pl.format("note {}", pl.int_range(pl.len()))) if comments else frame


def test_a_log_of_events_is_seen_and_its_codes_become_columns(tmp_path: Path):
    guess = guess_schema([save(stays(), tmp_path / "log.csv")])
    schema = parse_schema(tomllib.loads(guess.text))
    assert schema.events is not None
    assert (schema.events.code, schema.events.value, schema.time.step) == ("item", "value", "1h")
    assert {name: column.role for name, column in schema.columns.items()} == {
        "patient": "subject", "charttime": "time", "sex": "static", "MAP": "outcome", "norepinephrine": "treatment",
        "lactate": "covariate",
    }  # fmt: skip
    assert "[events]  # CHECK: is this a log" in guess.text
    assert any(doubt.startswith("charttime: half of the events of `MAP` are up to") for doubt in guess.doubts)
    settled = guess.text.replace('role = "outcome"', 'role = "outcome", missing = "fill"')
    dataset = ingest(tmp_path / "log.csv", parse_schema(tomllib.loads(settled)))
    assert dataset.schema.treatments.names == ("norepinephrine",)
    assert max(panel.n_steps for panel in dataset.panels.values()) == 12


def test_what_changes_from_event_to_event_is_left_out_and_amounts_of_what_is_given_are_asked_about(tmp_path: Path):
    frame = stays(comments=True).with_columns(
        value=pl.when(pl.col("item") == "norepinephrine").then(pl.int_range(pl.len()) % 7 + 1.0).otherwise("value")
    )
    guess = guess_schema([save(frame, tmp_path / "log.csv")])
    assert '# comment = { role = "..." }  # left out since it changes from event to event' in guess.text
    assert any('`kind = "continuous"` makes their sum a dose' in doubt for doubt in guess.doubts)


def test_a_table_with_a_column_per_variable_is_no_log(tmp_path: Path):
    frame = ward().rename({"sex": "type", "pressure": "value", "drug": "item"})
    schema = parse_schema(tomllib.loads(guess_schema([save(frame, tmp_path / "ward.csv")]).text))
    assert schema.events is None
