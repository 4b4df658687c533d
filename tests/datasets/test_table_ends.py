"""Ends of series in tables: marks and times, names, what is refused, and new subjects (spec SURV-6)."""

from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from costar_cli.api.data import read_new_subjects
from costar_cli.data import Dataset, End, Part
from costar_cli.data.table.export import export_dataset
from costar_cli.data.table.guess import guess_schema
from costar_cli.data.table.schema_file import read_schema
from costar_cli.data.visits import elapsed
from tests.datasets.table_worlds import ingest, make_schema, of, problems, save, ward

MARKED = {"died": {"role": "event"}, "dropout": {"role": "censored"}}
TIMED = {"death": {"role": "event", "at": "death_day"}}


def marked() -> pl.DataFrame:
    """p01 dies on day 3, without a measurement; p02 drops out after day 4; the others stay to the end."""
    day, who = pl.col("day"), pl.col("patient")
    dies = (who == "p01") & (day == 3)
    frame = ward().filter(~((who == "p01") & (day > 3)) & ~((who == "p02") & (day > 4)))
    blank = [pl.when(~dies).then(pl.col(name)).alias(name) for name in ("pressure", "drug", "heart rate")]
    lost = ((who == "p02") & (day == 4)).cast(pl.Int64).alias("dropout")
    return frame.with_columns(dies.cast(pl.Int64).alias("died"), lost, *blank)


def timed(when: float | None, frame: pl.DataFrame | None = None) -> pl.DataFrame:
    """The death day of p01, in all of its rows."""
    frame = ward().filter(~((pl.col("patient") == "p01") & (pl.col("day") > 3))) if frame is None else frame
    return frame.with_columns(pl.when(pl.col("patient") == "p01").then(when).alias("death_day"))


def end_of(dataset: Dataset, name: str) -> tuple[int, int]:
    """The number of a subject's end and its observed steps."""
    panel, row = of(dataset, name)
    return int(panel.ends[row]), int(panel.length[row])


def test_marks_say_why_series_end_and_nothing_need_be_measured_then(tmp_path: Path) -> None:
    dataset = ingest(marked(), make_schema(MARKED), folder=tmp_path)
    assert dataset.schema.ends == (End(name="died"), End(name="dropout", terminal=False))
    assert [end_of(dataset, name) for name in ("p01", "p02", "p03")] == [(1, 4), (2, 5), (0, 6)]
    panel, row = of(dataset, "p01")
    assert not panel.observed_outcomes[row, 3].any()
    assert panel.observed_outcomes[row, :3].all()
    assert [variable.name for variable in dataset.schema.covariates] == ["heart rate"]  # no column for what was filled


def test_events_may_be_named_and_new_subjects_are_read_alike(tmp_path: Path) -> None:
    names = pl.when(pl.col("died") == 1).then(pl.lit("stroke"))
    frame = marked().with_columns(
        names.when((pl.col("patient") == "p04") & (pl.col("day") == 5)).then(pl.lit("fall")).alias("event")
    )
    columns = {"event": {"role": "event"}, "dropout": {"role": "censored"}}
    dataset = ingest(frame, make_schema(columns), folder=tmp_path)
    assert [end.name for end in dataset.schema.ends] == ["fall", "stroke", "dropout"]
    assert [end_of(dataset, name)[0] for name in ("p01", "p02", "p04")] == [2, 3, 1]
    new = frame.filter(pl.col("patient").is_in(["p01", "p02"])).drop("dropout")
    again = read_new_subjects(save(new, tmp_path / "new.csv"), like=dataset)
    assert again.schema.ends == dataset.schema.ends
    assert [end_of(again, name)[0] for name in ("p01", "p02")] == [2, 0]


@pytest.mark.parametrize(("when", "step"), [(3, 3), (2.5, 3), (4, 4), (3.2, 4)])
def test_the_time_of_an_event_is_a_step_of_its_own_where_the_table_has_none(
    tmp_path: Path, when: float, step: int
) -> None:
    dataset = ingest(timed(when), make_schema(TIMED), folder=tmp_path)
    assert end_of(dataset, "p01") == (1, step + 1)
    panel, row = of(dataset, "p01")
    assert panel.observed_outcomes[row, step].any() == (step == 3)
    assert end_of(dataset, "p02") == (0, 6)


def test_times_of_events_may_stand_in_the_statics_file(tmp_path: Path) -> None:
    statics = save(pl.DataFrame({"patient": ["p01", "p02"], "death_day": [4, None]}), tmp_path / "patients.csv")
    frame = timed(None).drop("death_day")
    dataset = ingest(frame, make_schema(TIMED), folder=tmp_path, statics=statics)
    assert [end_of(dataset, name) for name in ("p01", "p02")] == [(1, 5), (0, 6)]


def test_rows_count_as_steps_where_gaps_are_ignored(tmp_path: Path) -> None:
    dataset = ingest(timed(90), make_schema(TIMED, time={"gaps": "ignore"}), folder=tmp_path)
    assert end_of(dataset, "p01") == (1, 5)


def test_a_series_that_is_cut_goes_on(tmp_path: Path) -> None:
    for frame, columns in ((timed(4), TIMED), (marked(), MARKED)):
        dataset = ingest(frame, make_schema(columns, max_length=3), folder=tmp_path)
        assert end_of(dataset, "p01") == (0, 3)


def test_a_visit_and_a_death_are_two_steps(tmp_path: Path) -> None:
    frame = timed(1, ward().filter((pl.col("patient") != "p01") | (pl.col("day") == 0)))
    assert end_of(ingest(frame, make_schema(TIMED), folder=tmp_path), "p01") == (1, 2)


def test_contradictions_are_told_with_their_rows(tmp_path: Path) -> None:
    early = timed(-2)
    assert "1 event before the first visit" in problems(early, make_schema(TIMED), folder=tmp_path)[0]
    assert "row 1 of ward.csv (subject p01)" in problems(early, make_schema(TIMED), folder=tmp_path)[0]
    late = problems(timed(1), make_schema(TIMED), folder=tmp_path)[0]
    assert "2 rows after the end of the subject's series" in late
    assert "row 3 of ward.csv (subject p01)" in late
    far = problems(timed(9), make_schema(TIMED), folder=tmp_path)[0]
    assert "more than a step after the subject's last row" in far
    assert 'gaps = "fill"' in far
    twice = marked().with_columns(pl.when(pl.col("patient") == "p01").then(1).otherwise(0).alias("died"))
    assert "several ends of 1 subject" in problems(twice, make_schema(MARKED), folder=tmp_path)[0]
    after = marked().with_columns(((pl.col("patient") == "p05") & (pl.col("day") == 2)).cast(pl.Int64).alias("dropout"))
    told = problems(after, make_schema(MARKED), folder=tmp_path)
    assert any("3 rows of 1 subject after the end" in line and "subject p05" in line for line in told)
    both = marked().with_columns(pl.col("died").alias("dropout"))
    (told,) = problems(both, make_schema(MARKED), folder=tmp_path)
    assert "several ends of 1 subject" in told
    again = pl.concat(
        [marked(), marked().filter((pl.col("patient") == "p01") & (pl.col("day") == 2)).with_columns(day=4)],
        how="vertical_relaxed",
    )
    (told,) = problems(again.sort("patient", "day"), make_schema(MARKED), folder=tmp_path)
    assert "1 row of 1 subject after the end of the series" in told


def test_marks_in_last_rows_are_guessed_and_asked_about(tmp_path: Path) -> None:
    text = guess_schema([save(marked(), tmp_path / "ward.csv")]).text
    assert 'died = { role = "event" }  # CHECK' in text
    assert 'dropout = { role = "censored" }  # CHECK' in text
    ahead = marked().with_columns((pl.col("patient") == "p01").cast(pl.Int64).alias("died"))  # known from the start
    assert '\ndied = { role = "event"' not in guess_schema([save(ahead, tmp_path / "other.csv")]).text


def test_no_end_is_nothing_and_all_that_is_marked_counts(tmp_path: Path) -> None:
    words = marked().with_columns(
        pl.when(pl.col("died") == 1).then(pl.lit("Yes")).otherwise(pl.lit("no")).alias("died")
    )
    dataset = ingest(words, make_schema(MARKED), folder=tmp_path)
    assert sum(int((panel.ends > 0).sum()) for panel in dataset.panels.values()) == 2
    assert np.unique(dataset.panel("source", "train").ends).max() <= 2


@pytest.mark.parametrize(("frame", "columns", "after"), [
    (timed(90.5), TIMED, [2.0, 1.0, 87.5]),
    (marked(), MARKED, [2.0, 1.0]),
])  # fmt: skip
def test_visits_at_any_time_end_at_the_time_of_the_event(
    tmp_path: Path, frame: pl.DataFrame, columns: dict[str, object], after: list[float]
) -> None:
    uneven = frame.filter((pl.col("day") != 1) | (pl.col("patient") != "p01"))
    dataset = ingest(uneven, make_schema(columns, time={"gaps": "elapsed"}), folder=tmp_path)
    assert end_of(dataset, "p01") == (1, len(after) + 1)
    panel, row = of(dataset, "p01")
    gap_NT = elapsed(dataset.schema.treatments, panel.treatments)
    assert gap_NT is not None
    np.testing.assert_allclose(gap_NT[row, : len(after)], after)
    assert not panel.observed_outcomes[row, len(after)].any()


def test_a_time_of_an_end_that_nobody_lives_to_see_is_refused_before_steps_are_made(tmp_path: Path) -> None:
    told = problems(timed(3e9), make_schema(TIMED, time={"gaps": "fill"}), folder=tmp_path)
    assert "column 'death': 1 event more than 32,767 steps after the subject's first row" in told[0]
    assert "subject p01" in told[0]


@pytest.mark.parametrize("gaps", ["error", "ignore"])
def test_an_end_without_a_row_has_a_time_of_its_own_in_splits_and_dates(tmp_path: Path, gaps: str) -> None:
    day = pl.lit(datetime(2024, 3, 1)) + pl.duration(days="day")
    later = 100 * (pl.col("patient") == "p30")  # the file's last rows are long after the death
    frame = timed(4).with_columns(day=day + pl.duration(days=later), death_day=pl.lit("2024-03-05"))
    frame = frame.with_columns(death_day=pl.when(pl.col("patient") == "p01").then("death_day"))
    split = {"by": "time", "val_from": "2024-03-04", "test_from": "2024-03-06"}
    schema = make_schema(TIMED, time={"step": "1d", "gaps": gaps}, split=split)
    dataset = ingest(frame, schema, folder=tmp_path)
    panel = dataset.panels[Part("source", "val")]
    row = panel.names.index("p01")
    assert (int(panel.ends[row]), int(panel.length[row])) == (1, 5)
    assert panel.dates(np.array([row]), np.array([4])) == ["2024-03-05"]
    assert "p01" not in dataset.panels[Part("source", "test")].names


@pytest.mark.parametrize("event", ["died", "age"])  # which is a covariate, too
def test_an_export_keeps_why_series_end(tmp_path: Path, event: str) -> None:
    frame = marked().with_columns(died=pl.when(pl.col("died") == 1).then(pl.lit(event)))
    dataset = ingest(frame, make_schema(MARKED), folder=tmp_path)
    out = tmp_path / "out"
    export_dataset(dataset, out, "csv")
    again = ingest(out / "table.csv", read_schema(out / "schema.toml"), queries=out / "queries.csv")
    assert again.schema.ends == dataset.schema.ends
    for name in ("p01", "p02", "p03"):
        assert end_of(again, name) == end_of(dataset, name)
    panel, row = of(again, "p01")
    assert not panel.observed_outcomes[row, 3].any()
