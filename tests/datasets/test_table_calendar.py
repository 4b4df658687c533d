"""Clocks and calendars of tables: zones, changes of clocks, and covariates of the date."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Part
from costar_cli.data.table import TableInputs
from costar_cli.data.table.new_subjects import ingest_new
from costar_cli.data.table.preprocessing import Preprocessing
from costar_cli.data.windows import factual_windows
from costar_cli.errors import UsageError
from tests.datasets.table_worlds import Listener, ingest, make_schema, of, problems, save, ward
from tests.fits import fit_method, model_of

BERLIN = {"step": "1h", "zone": "Europe/Berlin"}


def at_hours(first: datetime, written: str = "%Y-%m-%d %H:%M", zone: str | None = "Europe/Berlin") -> pl.DataFrame:
    """The ward by the hour from a moment in UTC on, as clocks of a zone show it."""
    moments = pl.lit(first).dt.replace_time_zone("UTC") + pl.duration(hours=pl.col("day"))
    local = moments if zone is None else moments.dt.convert_time_zone(zone)
    return ward().with_columns(day=local.dt.strftime(written))


SPRING, AUTUMN = datetime(2024, 3, 30, 23), datetime(2024, 10, 26, 22)  # clocks change between 01:00 and 03:00


def test_hours_across_a_change_of_clocks_are_steps_of_their_zone(tmp_path: Path):
    plain = ingest(at_hours(SPRING, zone=None), make_schema(time={"step": "1h"}), folder=tmp_path)
    dataset = ingest(at_hours(SPRING), make_schema(time=BERLIN), folder=tmp_path)
    offsets = ingest(at_hours(SPRING, "%Y-%m-%dT%H:%M:%S%z"), make_schema(time={"step": "1h"}), folder=tmp_path)
    for got in (dataset, offsets):
        panel, row = of(got, "p01")
        np.testing.assert_array_equal(panel.outcomes[row], of(plain, "p01")[0].outcomes[row])
        dates = panel.dates(np.full(6, row), np.arange(6))
        assert dates is not None
        assert list(dates)[:4] == ["2024-03-30 23:00", "2024-03-31 00:00", "2024-03-31 01:00", "2024-03-31 02:00"]
    lines = problems(at_hours(SPRING), make_schema(time={"step": "1h"}), folder=tmp_path)
    assert any("gap" in line for line in lines)  # without a zone an hour seems to be missing


def test_hours_that_clocks_show_twice_need_their_offset(tmp_path: Path):
    [line] = problems(at_hours(AUTUMN), make_schema(time=BERLIN), folder=tmp_path)
    assert "60 values that clocks in Europe/Berlin show twice, first '2024-10-27 02:00'" in line
    assert "row 3 of ward.csv" in line
    assert "write the offset of each, such as 2024-10-27T02:00+02:00" in line
    texts = at_hours(AUTUMN, "%Y-%m-%dT%H:%M%z")
    assert of(ingest(texts, make_schema(time=BERLIN), folder=tmp_path), "p01")[0].n_steps == 6


def test_hours_that_clocks_skip_are_refused(tmp_path: Path):
    frame = at_hours(datetime(2024, 3, 31, 1), zone=None)
    lines = problems(frame, make_schema(time=BERLIN), folder=tmp_path)
    assert "30 values that clocks in Europe/Berlin never show, first '2024-03-31 02:00'" in lines[0]
    german = frame.with_columns(day=pl.col("day").str.to_datetime("%Y-%m-%d %H:%M").dt.strftime("%d.%m.%Y %H:%M"))
    lines = problems(german, make_schema(time=BERLIN | {"format": "%d.%m.%Y %H:%M"}), folder=tmp_path)
    assert "never show, first '31.03.2024 02:00'" in lines[0]


def test_times_with_and_without_a_zone_do_not_mix(tmp_path: Path):
    frame = at_hours(SPRING, "%Y-%m-%dT%H:%M:%SZ", zone=None)
    mixed = frame.with_columns(
        day=pl.when(pl.col("patient") != "p07").then("day").otherwise(pl.col("day").str.head(-1))
    )
    [line] = problems(mixed, make_schema(time={"step": "1h"}), folder=tmp_path)
    assert "6 values without a zone, where others have one, first '2024-03-30T23:00:00'" in line
    assert "row 37 of ward.csv" in line


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ({"step": 1, "calendar": ["month"]}, "`calendar` belongs to dates"),
        ({"step": "1d", "calendar": ["hour"]}, "steps of `1d` have no hour"),
        ({"step": "1mo", "calendar": ["weekday", "month"]}, "steps of `1mo` have no weekday"),
        ({"step": "1d", "zone": "Europe/Berlin"}, "`zone` belongs to times of day"),
        ({"step": "1h", "zone": "Mars/Olympus"}, "is not a time zone"),
        ({"step": "1d", "calendar": ["moon"]}, "expected one of weekday, month, hour"),
    ],
)
def test_clocks_that_cannot_be_meant_are_refused(time: dict[str, object], message: str):
    with pytest.raises(UsageError) as error:
        make_schema(time=time)
    assert message in str(error.value) + "".join(error.value.details)


def test_covariates_of_the_date_follow_the_local_clock_in_the_data_and_in_new_tables(tmp_path: Path):
    schema = make_schema(time=BERLIN | {"calendar": ["weekday", "month", "hour"]}, without=("heart rate",))
    dataset = ingest(at_hours(SPRING), schema, folder=tmp_path)
    names = [variable.name for variable in dataset.schema.covariates]
    panel, row = of(dataset, "p01")
    told = {name: panel.covariates[row, :, i] for i, name in enumerate(names)}
    np.testing.assert_array_equal(told["weekday=Sunday"], np.ones(6))
    np.testing.assert_allclose(told["month, sine"], np.full(6, np.sin(2 * np.pi * 2 / 12)), rtol=1e-6)
    hours = np.array([0, 1, 3, 4, 5, 6])  # local ones: 2 is skipped
    np.testing.assert_allclose(told["hour, cosine"], np.cos(2 * np.pi * hours / 24), atol=1e-6)
    path = save(at_hours(SPRING).filter(pl.col("patient") == "p01"), tmp_path / "new.csv")
    new = ingest_new(TableInputs([path]), Preprocessing.of_dataset(dataset), Listener())
    np.testing.assert_array_equal(of(new, "p01")[0].covariates[0, :6], panel.covariates[row])


def weekly(days: int = 16, subjects: int = 30) -> pl.DataFrame:
    """Outcomes that are 5 higher after days of the weekend, with noise of 0.5, from any weekday on."""
    rng = np.random.default_rng(3)
    rows = []
    for i in range(subjects):
        first = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=int(rng.integers(60)))
        for day in range(days):
            date = first + timedelta(days=day)
            level = 20 + 5 * (date.weekday() in (6, 0)) + rng.normal(scale=0.5)
            rows.append((f"s{i:02d}", date.strftime("%Y-%m-%d"), level, "yes" if rng.random() < 0.5 else "no"))
    return pl.DataFrame(rows, schema=["patient", "day", "pressure", "drug"], orient="row")


@pytest.mark.parametrize("method", [pytest.param("mixed", marks=pytest.mark.slow), "ridge"])
def test_methods_know_the_calendar_of_steps_ahead(method: str, tmp_path: Path):
    columns = {"drug": {"role": "treatment"}}
    without = ("site", "heart rate", "age", "sex")
    errors = {}
    for calendar in ((), ("weekday",)):
        schema = make_schema(columns, without=without, time={"step": "1d", "calendar": list(calendar)}, horizon=4)
        dataset = ingest(weekly(), schema, folder=tmp_path)
        model = model_of(fit_method(dataset, method, None, FinetuneConfig(members=1)))
        windows = factual_windows(dataset.panels[Part("source", "test")], 4)
        assert windows is not None
        assert windows.queries.outcomes is not None
        found = model.rollout(windows.panel, windows.asked)[0]
        errors[calendar] = float(np.sqrt(((found - windows.queries.outcomes) ** 2).mean()))
    assert errors["weekday",] < 0.8  # the noise alone is 0.5
    assert errors["weekday",] < 0.5 * errors[()]
