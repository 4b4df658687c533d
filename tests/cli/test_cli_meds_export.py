"""What leaves costar in the layout of MEDS: data sets as events that read back the same, estimates as labels."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from cli_world import Run

import costar_cli as costar
from costar_cli.errors import ExitCode
from tests.datasets.meds_world import make_rows, write_meds

Call = Callable[..., Run]
SCHEMA = """
name = "ward"
horizon = 2
[columns]
who = { role = "subject" }
day = { role = "time" }
ward = { role = "domain", source = "north", target = "south" }
y = { role = "outcome", missing = "fill" }
drug = { role = "treatment", levels = ["none", "low", "high"] }
rest = { role = "treatment" }
x = { role = "covariate", missing = "fill" }
died = { role = "event" }
[time]
step = "1d"
"""


def ward_table(path: Path) -> None:
    """Write a table with named levels, two domains, gaps in an outcome and a covariate, and deaths."""
    rng = np.random.default_rng(5)
    rows = [
        {
            "who": f"p{who:02}",
            "day": datetime(2024, 1, 1) + timedelta(days=who + day),
            "ward": ("north", "south")[who % 2],
            "y": None if day == 2 else float(rng.normal()),
            "drug": str(rng.choice(["none", "low", "high"])),
            "rest": int(rng.integers(0, 2)),
            "x": None if (who + day) % 3 == 0 else float(rng.normal()),
            "died": int(who % 7 == 3 and day == 7),
        }
        for who in range(60)
        for day in range(8)
    ]
    pl.DataFrame(rows).write_parquet(path)


def test_a_data_set_goes_to_events_and_back(tmp_path: Path, call: Call) -> None:
    ward_table(tmp_path / "t.parquet")
    (tmp_path / "s.toml").write_text(SCHEMA)
    place = ("-w", tmp_path / "w")
    assert call("ingest", "table", tmp_path / "t.parquet", "--schema", tmp_path / "s.toml", *place).code == 0
    out = tmp_path / "log"
    run = call("inspect", tmp_path / "w" / "data.h5", "--export", out, "--format", "meds")
    assert run.code == 0, run.err
    assert "costar ingest meds" in run.err
    events = pl.concat([pl.read_parquet(path) for path in sorted((out / "data").glob("*.parquet"))])
    standard = {"subject_id": pl.Int64, "time": pl.Datetime("us"), "code": pl.String, "numeric_value": pl.Float32}
    assert dict(events.schema) == {**standard, "text_value": pl.String}
    assert set(pl.read_parquet(out / "metadata/subject_splits.parquet")["split"]) == {"train", "tuning", "held_out"}
    assert json.loads((out / "metadata/dataset.json").read_text())["meds_version"] == "0.4.0"
    again = call("ingest", "meds", out, "--signals", out / "signals.toml", "-w", tmp_path / "again")
    assert again.code == 0, again.err
    one, two = (costar.read_dataset(tmp_path / name / "data.h5") for name in ("w", "again"))
    assert two.schema == one.schema
    assert set(two.panels) == set(one.panels)
    for part, panel in one.panels.items():
        back = two.panels[part]
        for field in ("covariates", "treatments", "outcomes", "statics", "length", "ends", "subject_id"):
            assert np.array_equal(getattr(panel, field), getattr(back, field)), (part, field)
        assert np.array_equal(panel.observed_outcomes, back.observed_outcomes)
        rows = np.arange(len(panel.length))
        assert (panel.dates(rows, rows * 0) == back.dates(rows, rows * 0)).all()
    assert "add --overwrite" in call("inspect", tmp_path / "w" / "data.h5", "--export", out, "--format", "meds").err


def test_data_without_dates_are_no_events(tmp_path: Path, call: Call) -> None:
    costar.simulate("linear", preset="quick", train=20, seed=1).save(tmp_path / "d.h5")
    run = call("inspect", tmp_path / "d.h5", "--export", tmp_path / "log", "--format", "meds")
    assert run.code == ExitCode.MISMATCH, run.err
    assert "--format parquet" in run.err
    assert not (tmp_path / "log").exists()


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    log = write_meds(folder / "log", make_rows(40))
    data = costar.read_events(log, signals=log / "signals.toml")
    data.save(folder / "data.h5")
    costar.fit(data, "ridge").save(folder / "model.h5")
    costar.fit(data, "last-value").save(folder / "other.h5")
    (folder / "plan.json").write_text('{"origin": 8, "plans": {"none": [{}, {}], "one": [{"drug": 1}, {}]}}')
    return folder


@pytest.mark.parametrize("who", [("--subject", "5"), ("--subjects", "all")])
def test_estimates_are_written_as_labels(who: tuple[str, str], asked: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "labels.parquet"
    place = ("--data", asked / "data.h5", "--model", asked / "model.h5", "-w", tmp_path)
    asks = ("whatif", *who, "--plan", asked / "plan.json", *place)
    run = call(*asks, "--labels", out, "--csv", tmp_path / "a.parquet")
    assert run.code == 0, run.err
    labels, answers = pl.read_parquet(out), pl.read_parquet(tmp_path / "a.parquet")
    kinds = {"subject_id": pl.Int64, "prediction_time": pl.Datetime("us"), "float_value": pl.Float32}
    assert {name: labels.schema[name] for name in kinds} == kinds
    answers = answers.filter(pl.col("quantity") == "outcome")
    assert labels.height == answers.height > 0
    assert labels["float_value"].to_list() == answers["estimate"].cast(pl.Float32).to_list()
    assert labels["plan"].to_list() == answers["plan"].to_list()
    ahead = (labels["time"] - labels["prediction_time"]).dt.total_hours()
    assert ahead.to_list() == labels["step"].to_list()


@pytest.mark.parametrize("who", [("--subject", "5"), ("--subjects", "all")])
def test_estimates_are_events_that_are_read_back(who: tuple[str, ...], asked: Path, tmp_path: Path, call: Call) -> None:
    out, labels = tmp_path / "log" / "data" / "answers.parquet", tmp_path / "labels.parquet"
    out.parent.mkdir(parents=True)
    models = ("--model", asked / "model.h5", "--model", asked / "other.h5")
    asks = ("whatif", *who, "--plan", asked / "plan.json", "--data", asked / "data.h5", *models, "-w", tmp_path)
    run = call(*asks, "--labels", labels, "--events", out)
    assert run.code == 0, run.err
    events, known = pl.read_parquet(out), pl.read_parquet(labels)
    standard = {"subject_id": pl.Int64, "time": pl.Datetime("us"), "code": pl.String, "numeric_value": pl.Float32}
    assert dict(list(events.schema.items())[:4]) == standard
    assert events.height == known.height > 0
    assert events["subject_id"].is_sorted(), "each subject's rows lie together, in order of time"
    assert events.select((pl.col("time").diff().over("subject_id") >= timedelta()).all()).item()
    code = pl.format("WHATIF//{}//{}//{}", "model", "plan", "outcome")
    same = known.select("subject_id", "time", code.alias("code"), numeric_value="float_value")
    assert same.sort("subject_id", "time", "code").equals(events.select(same.columns))
    if who[0] == "--subject":
        return
    (tmp_path / "s.toml").write_text(
        'name = "answers"\nhorizon = 1\n[time]\nstep = "1h"\n[columns]\n'
        'none = { role = "outcome", code = "WHATIF//model//none//pressure", unit = "mmHg" }\n'
        'one = { role = "treatment", kind = "continuous", code = "WHATIF//other//one//pressure" }\n'
    )
    again = call("ingest", "meds", tmp_path / "log", "--signals", tmp_path / "s.toml", "-w", tmp_path / "again")
    assert again.code == 0, again.err
    back = costar.read_dataset(tmp_path / "again" / "data.h5")
    values = np.sort(np.concatenate([panel.outcomes[:, :2, 0].ravel() for panel in back.panels.values()]))
    assert values == pytest.approx(known.filter(model="model", plan="none")["float_value"].sort().to_numpy(), rel=1e-6)


def test_labels_need_parquet_and_dates(asked: Path, tmp_path: Path, call: Call) -> None:
    place = ("--data", asked / "data.h5", "--model", asked / "model.h5", "-w", tmp_path)
    run = call("whatif", "-s", 5, "-p", asked / "plan.json", *place, "--labels", tmp_path / "l.csv")
    assert run.code == ExitCode.USAGE
    assert "end it in .parquet" in run.err
    run = call("whatif", "-s", 5, "-p", asked / "plan.json", *place, "--events", tmp_path / "l.csv")
    assert "events are Parquet, not `l.csv`" in run.err
    linear = costar.simulate("linear", preset="quick", train=20, seed=1)
    linear.save(tmp_path / "d.h5")
    costar.fit(linear, "ridge").save(tmp_path / "m.h5")
    (tmp_path / "p.json").write_text('{"plans": {"none": [{}]}}')
    subject = str(linear.panel("source", "test").subject_id[0])
    place = ("--data", tmp_path / "d.h5", "--model", tmp_path / "m.h5", "-w", tmp_path)
    run = call(
        "whatif", "-s", subject, "-p", tmp_path / "p.json", "--origin", 3, *place, "--labels", tmp_path / "l.parquet"
    )
    assert "no dates" in run.err
    assert not (tmp_path / "l.parquet").exists()
