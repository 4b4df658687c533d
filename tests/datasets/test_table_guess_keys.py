"""Which columns `--init` takes for subject and time: names of many languages, dates of many forms, one series, wide."""

import tomllib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from costar_cli.data import Part
from costar_cli.data.table import TableInputs
from costar_cli.data.table.guess import guess_schema
from costar_cli.data.table.new_subjects import ingest_new
from costar_cli.data.table.preprocessing import Preprocessing
from costar_cli.data.table.schema_file import parse_schema
from costar_cli.errors import DataError, UsageError
from tests.datasets.table_worlds import Listener, guessed_roles, ingest, make_schema, problems, save, ward

STEPS = 12
NAMES = ("Ann", "Bob", "Cy", "Di", "Eve", "Flo", "Gus", "Hal")
Form = Callable[[datetime, int], object]


def dated(form: str) -> Form:
    return lambda day, _: day.strftime(form)


def number(_: datetime, step: int) -> object:
    return step


ISO = dated("%Y-%m-%d")


def table(
    subject: str, time: str, drug: str, outcome: str, form: Form = ISO, n: int = 8, **more: list[Any]
) -> pl.DataFrame:
    """Subjects called by number, or by name where their column ends in `*`, of twelve days; `more` by the day."""
    rng, first = np.random.default_rng(0), datetime(2023, 1, 30, 9, 30)
    called = NAMES if subject.endswith("*") else range(101, 109)
    who = {subject.rstrip("*"): np.repeat(called[:n], STEPS)} if subject else {}
    times = [form(first + timedelta(days=step), step) for step in range(STEPS)]
    values = {drug: rng.integers(2, size=n * STEPS), outcome: rng.normal(50, 9, n * STEPS).round(2)}
    return pl.DataFrame({**who, time: times * n, **values, **{name: by_day * n for name, by_day in more.items()}})


KEYS: Mapping[str, tuple[pl.DataFrame, str, dict[str, object]]] = {
    "prophet": (table("unique_id*", "ds", "promo", "y"), "subject time treatment? outcome?", {"step": "1d"}),
    "dt": (table("user", "dt", "ad", "clicks", dated("%Y-%m-%d %H:%M:%S")), "subject time treatment? outcome?", {}),
    "ts": (table("device*", "ts", "mode", "temp", dated("%Y-%m-%dT%H:%M:%SZ")), "subject time treatment? outcome?", {}),
    "when": (table("who*", "when", "drug", "pain", dated("%d/%m/%Y")), "subject? time treatment? outcome?",
             {"format": "%d/%m/%Y"}),
    "German": (table("Patient-ID", "Datum", "Therapie", "Blutdruck", dated("%d.%m.%Y")),
               "subject time treatment? outcome?", {"format": "%d.%m.%Y"}),
    "German days": (table("Kunde*", "Tag", "Rabatt", "Umsatz", number), "subject time treatment? outcome?", {}),
    "Spanish": (table("paciente", "fecha", "tratamiento", "glucosa", dated("%d/%m/%Y")),
                "subject time treatment? outcome?", {}),
    "French": (table("sujet", "semaine", "traitement", "poids", number), "subject time treatment? outcome?", {}),
    "Italian": (table("paziente", "giorno", "farmaco", "peso", number), "subject time treatment? outcome?", {}),
    "Portuguese": (table("cliente", "mês", "desconto", "vendas", dated("%Y/%m/%d")),
                   "subject time treatment? outcome?", {}),
    "Russian": (table("пациент", "дата", "лечение", "давление", dated("%d.%m.%Y")),
                "subject time treatment? outcome?", {}),
    "Chinese": (table("患者", "日期", "治疗", "血压"), "subject time treatment? outcome?", {}),
    "CDISC": (table("USUBJID*", "ADT", "TRTA", "AVAL", dated("%d%b%Y")), "subject time treatment? outcome?",
              {"format": "%d%b%Y"}),
    "US": (table("MRN", "Visit Date", "Rx", "A1c", dated("%m/%d/%Y")), "subject time treatment? outcome?",
           {"format": "%m/%d/%Y"}),
    "12 hours": (table("id", "time", "trt", "y", dated("%m/%d/%Y %I:%M %p")), "subject time treatment? outcome?",
                 {"format": "%m/%d/%Y %I:%M %p", "step": "1d"}),
    "long dates": (table("id", "date", "trt", "y", dated("%B %d, %Y")), "subject time treatment? outcome?", {}),
    "compact": (table("id", "date", "trt", "y", dated("%Y%m%d")), "subject time treatment? outcome?", {"step": "1d"}),
    "dots": (table("id", "recorded_dt", "trt", "y", dated("%Y.%m.%d")), "subject time treatment? outcome?", {}),
    "seconds": (table("sensor", "timestamp", "valve", "flow", lambda day, _: int(day.timestamp())),
                "subject time treatment? outcome?", {"step": 86_400}),
    "store": (table("store", "week", "promo", "sales", number), "subject time treatment? outcome?", {"step": 1}),
    "geo": (table("geo*", "date", "spend_on", "sales"), "subject time treatment? outcome?", {}),
    "visit number": (table("subjid", "VISITNUM", "trt", "aval", number), "subject time treatment? outcome?", {}),
    "camel": (table("patientId", "visitDate", "treatmentArm", "painScore"), "subject time treatment? outcome?", {}),
    "no telling name": (table("wer*", "x", "arznei", "wert", number), "subject? time? treatment? outcome?", {}),
    "a date, no telling name": (table("wer*", "angelegt", "arznei", "wert"), "subject? time? treatment? outcome?", {}),
    "a date beats a number": (table("id", "recorded", "trt", "y", day=list(range(STEPS))),
                              "subject time? treatment? outcome? covariate", {"step": "1d"}),
    "a score that ascends": (table("id", "pain", "trt", "bp", lambda _, step: 5.5 + step * step, week=[*range(STEPS)]),
                             "subject covariate treatment? outcome? time", {}),
    "age": (table("tree", "age", "fert", "growth", lambda _, step: 100 + 7 * step), "subject time? treatment? outcome?",
            {"step": 7}),
    "a row number": (table("subject", "date", "trt", "y").with_row_index("id"),
                     "out subject time treatment? outcome?", {}),
    "year and month": (table("id", "month", "trt", "y", lambda _, step: step % 6, year=[2020] * 6 + [2021] * 6),
                       "subject time? treatment? outcome? covariate", {}),
    "unread": (table("id", "date", "trt", "y", lambda _, step: f"wk {step}"), "subject time? treatment? outcome?", {}),
    "unread beside days": (table("id", "date", "trt", "y", lambda _, step: f"wk {step}", day=[*range(STEPS)]),
                           "subject out? treatment? outcome? time", {"step": 1}),
    "visits by name": (table("id", "visit", "trt", "y", lambda _, step: f"month {step}"),
                       "subject time? treatment? outcome?", {}),
    "a date of events": (table("DeviceId", "EventDateTime", "Bolus", "Reading", dated("%Y-%m-%d %H:%M")),
                         "subject time? treatment? outcome?", {"step": "1d"}),
    "days of follow-up": (table("patient_no", "followup_day", "dose", "bp", number, enrolled=["2020-01-05"] * STEPS),
                          "subject time? treatment? outcome? out", {"step": 1}),
    "two subjects": (table("patient", "date", "drug", "y", n=2), "subject? time treatment? outcome?", {"by": "time"}),
    "two groups": (table("group*", "date", "drug", "y", n=2), "subject? time treatment? outcome?", {"by": "time"}),
    "two arms": (table("arm*", "date", "dose", "y", n=2), "treatment? time treatment? outcome?", {}),
    "one subject": (table("person*", "date", "drug", "y", n=1), "subject time treatment? outcome?", {"by": "time"}),
    "one series": (table("", "date", "campaign", "visits", n=1), "time treatment? outcome?",
                   {"subject": [], "by": "time"}),
    "one series by number": (table("", "t", "campaign", "visits", number, n=1), "time treatment? outcome?",
                             {"subject": []}),
    "one series with weekdays": (table("", "week", "price_cut", "sales", n=1, weekday=["Mon", "Tue", "Wed"] * 4),
                                 "time treatment? outcome? covariate", {"subject": []}),
    "one series, the last first": (table("", "date", "campaign", "visits", n=1).reverse(), "time treatment? outcome?",
                                   {"subject": []}),
}  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
def test_subject_and_time_are_found_or_asked_about(name: str, tmp_path: Path):
    frame, roles, settings = KEYS[name]
    guess = guess_schema([save(frame, tmp_path / "table.csv")])
    found = guessed_roles(guess.text)
    assert [found[column] for column in frame.columns] == roles.split()
    tables = tomllib.loads(guess.text)
    flat = tables | tables["time"] | tables["split"]
    assert {key: flat[key] for key in settings} == settings
    assert ("subject" in tables) == ("subject" in settings)


@pytest.mark.parametrize(
    ("name", "column", "said"),
    [
        ("two groups", "group", "only 2 different values (Ann, Bob): are these the subjects?"),
        ("a date beats a number", "recorded", "does it order the rows of a subject? 'day' may, too."),
        ("year and month", "month", "'month', 'year' order rows only together: combine them into one column"),
        ("unread", "date", "its texts ('wk 0', 'wk 1' and 10 more) cannot be read as dates: write 2024-01-31, or give"),
        ("unread beside days", "date", "left out since it is named like a date, but its texts ('wk 0', 'wk 1'"),
        ("one series", "(one series)", "no column is called a subject, and no time is repeated: is this one series?"),
        ("no telling name", "wer", "guessed by its values: does it say whose each row is?"),
    ],
)
def test_what_is_to_be_settled_about_keys_is_said(name: str, column: str, said: str, tmp_path: Path):
    guess = guess_schema([save(KEYS[name][0], tmp_path / "table.csv")])
    told = dict(doubt.split(": ", 1) for doubt in guess.doubts if ": " in doubt)
    assert said in told[column]
    assert f"# CHECK: {told[column]}" in guess.text


def series(steps: int = 60) -> pl.DataFrame:
    return table("", "date", "promo", "sales", n=1).head(0).vstack(
        pl.DataFrame({
            "date": [str((datetime(2023, 1, 1) + timedelta(days=i)).date()) for i in range(steps)],
            "promo": np.arange(steps) % 3 // 2, "sales": np.arange(steps) * 1.5,
        })
    )  # fmt: skip


@pytest.mark.parametrize("who", ["", "person"])
def test_one_series_is_ingested_as_guessed_with_or_without_a_column_of_its_subject(who: str, tmp_path: Path):
    frame = series().with_columns(pl.lit("me").alias(who)) if who else series()
    text = guess_schema([save(frame, tmp_path / "one.csv")]).text
    dataset = ingest(tmp_path / "one.csv", parse_schema(tomllib.loads(text)))
    panel = dataset.panels[Part("source", "test")]
    assert list(panel.names) == (["me"] if who else ["series"])
    assert panel.outcomes[0, :, 0].tolist() == frame["sales"].to_list()
    assert dataset.panels[Part("source", "train")].length.tolist() == [42]
    assert dataset.find_subject("me" if who else "series").part == Part("source", "test")


def test_new_rows_of_one_series_and_new_series_by_name_are_read_like_it(tmp_path: Path):
    tables = tomllib.loads(guess_schema([save(series(), tmp_path / "one.csv")]).text)
    like = Preprocessing.of_dataset(ingest(tmp_path / "one.csv", parse_schema(tables)))
    later = TableInputs([save(series(20), tmp_path / "later.csv")])
    assert ingest_new(later, like, Listener()).find_subject("series")
    named = pl.concat([series(20).with_columns(shop=pl.lit(shop)) for shop in ("A", "B")])
    others = ingest_new(TableInputs([save(named, tmp_path / "b.csv")]), like, Listener(), subject="shop")
    assert [others.find_subject(shop).row for shop in ("A", "B")] == [0, 1]


def test_one_column_is_no_list_of_subjects_and_a_series_has_no_other_subject():
    with pytest.raises(UsageError, match='one column is a subject by its role: `"patient"'):
        make_schema(without=("patient",), subject=["patient"])
    with pytest.raises(UsageError, match="both say whose row it is"):
        make_schema(subject=[])


def test_rows_of_several_subjects_are_no_one_series(tmp_path: Path):
    [line] = problems(ward(), make_schema(without=("patient", "site", "age", "sex"), subject=[]), folder=tmp_path)
    assert "174 rows with the subject and time of another row but different values" in line


def test_too_few_subjects_to_split_are_split_by_time(tmp_path: Path):
    frame = table("person", "day", "drug", "y", number, n=2)
    columns = {"person": "subject", "day": "time", "drug": "treatment", "y": "outcome"}
    tables: dict[str, Any] = {"name": "few", "horizon": 2,
                              "columns": {name: {"role": role} for name, role in columns.items()}}  # fmt: skip
    [line] = problems(frame, parse_schema(tables), folder=tmp_path)
    assert "2 subjects cannot fill a val split of 0.15" in line
    assert 'or split the steps of each subject: `by = "time"` in [split]' in line
    listener = Listener()
    ingest(frame, parse_schema(tables | {"split": {"by": "time"}}), folder=tmp_path, listener=listener)
    assert any(note.startswith("split by time") for note in listener.notes)


def wide(between: str = "_", *, key: bool = True, times: int = 5) -> pl.DataFrame:
    """A row per subject: its drug and blood pressure at each time, and its age."""
    rng, n = np.random.default_rng(2), 60
    drug = {f"trt{between}{t}": rng.integers(2, size=n) for t in range(times)}
    pressure = {f"bp{between}{t}": rng.normal(50, 5, n).round(3) for t in range(times)}
    frame = pl.DataFrame({**drug, **pressure, "age": rng.integers(30, 80, n)})
    return frame.with_columns(pl.Series("id", range(n))).select("id", pl.exclude("id")) if key else frame


@pytest.mark.parametrize(
    "frame",
    [wide(), wide("."), wide("_t"), wide(""), wide(key=False), wide(times=2), wide().drop(pl.selectors.matches("^trt")),
     wide().with_columns(pl.int_range(pl.len()).mod(4).alias("trt_0"), pl.int_range(pl.len()).mod(6).alias("trt_1")),
     wide().with_columns(enrolled=pl.Series([datetime(2020, 1, 1) + timedelta(days=i * 7 % 60) for i in range(60)]))],
    ids=["_", ".", "_t", "no separator", "no subject", "two times", "one variable", "levels", "a date of entry"],
)  # fmt: skip
def test_a_wide_table_is_refused_with_a_line_that_reshapes_it(frame: pl.DataFrame, tmp_path: Path):
    with pytest.raises(DataError, match="the table is wide: it has a row per subject, and ") as caught:
        guess_schema([save(frame, tmp_path / "wide.csv")])
    assert caught.value.fix
    assert "'bp" in caught.value.problem
    code = caught.value.fix.split("`")[1]
    long = eval(code, {"pd": pd, "df": pd.DataFrame(frame.to_dict(as_series=False))})  # noqa: S307 - as a user would
    times = sum(column.startswith("bp") for column in frame.columns)
    assert len(long) == frame.height * times
    guess = guess_schema([save(pl.DataFrame(long.to_dict("list")), tmp_path / "long.csv")])
    subject = "id" if "id" in frame.columns else "index"
    assert guessed_roles(guess.text)[subject].startswith("subject")
    assert guessed_roles(guess.text)["time"] == "time"
    assert guessed_roles(guess.text)["bp"] == "outcome?"


@pytest.mark.parametrize(
    "frame",
    [table("id", "day", "trt", "y", number, x1=[*range(STEPS)], x2=[1.5, 2] * 6, x3=[0.5, 7] * 6),
     table("wer*", "date", "trt", "y", x1=[*range(STEPS)], x2=[1.5, 2] * 6, z1=[0.5, 7] * 6, z2=[3.5, 8] * 6),
     table("", "date", "trt", "y", n=1, x1=[*range(STEPS)], x2=[1.5, 2] * 6, x3=[0.5, 7] * 6).with_row_index("id")],
    ids=["long", "no telling name", "one series with row numbers"],
)  # fmt: skip
def test_a_long_table_of_numbered_covariates_is_not_wide(frame: pl.DataFrame, tmp_path: Path):
    roles = guessed_roles(guess_schema([save(frame, tmp_path / "long.csv")]).text)
    assert (roles["x1"], roles["x2"]) == ("covariate", "covariate")
