"""Tables with more rows than steps: rows of a step become one, by column, loudly."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from costar_cli.data import Dataset
from costar_cli.data.table import TableInputs, ingest_table
from costar_cli.data.table.files import frame_as_file
from costar_cli.data.table.new_subjects import ingest_new
from costar_cli.data.table.preprocessing import Preprocessing
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_file import parse_schema
from costar_cli.errors import DataError, UsageError
from tests.datasets.table_worlds import Listener, of

COLUMNS: dict[str, dict[str, Any]] = {
    "patient": {"role": "subject"},
    "when": {"role": "time"},
    "glucose": {"role": "outcome"},
    "insulin": {"role": "treatment", "levels": ["none", "basal", "bolus"]},
    "units": {"role": "treatment", "kind": "continuous"},
    "carbs": {"role": "covariate", "aggregate": "sum"},
    "crp": {"role": "covariate", "aggregate": "mean", "missing": "fill"},
    "age": {"role": "static"},
}
SPLIT = {"train": 0.4, "val": 0.3, "test": 0.3}


def schema(columns: dict[str, Any] | None = None, **time: Any) -> TableSchema:
    made = {name: column for name, column in (COLUMNS | (columns or {})).items() if column is not None}
    clock = {"step": "1w", "bin": True} | time
    return parse_schema({"name": "ward", "horizon": 1, "columns": made, "split": SPLIT, "time": clock})


def ward(seed: int = 0, patients: int = 12) -> pl.DataFrame:
    """Patients with three to five rows in each of six weeks, at any hour, in no order; blanks here and there."""
    rng, rows = np.random.default_rng(seed), []
    for i in range(patients):
        for week in range(6):
            for minute in np.sort(rng.choice(7 * 24 * 60, size=rng.integers(3, 6), replace=False)):
                when = np.datetime64("2024-01-01T00:00") + np.timedelta64(int(minute) + week * 7 * 24 * 60, "m")
                crp = None if rng.random() < 0.3 else round(float(rng.normal(20, 5)), 1)
                level = ["none", "basal", "bolus"][rng.integers(3)]
                rows.append((f"p{i:02d}", str(when).replace("T", " "), float(rng.integers(80, 300)), level,
                             float(rng.integers(0, 9)), float(rng.integers(20, 90)), crp, 40.0 + i))  # fmt: skip
    frame = pl.DataFrame(rows, schema=list(COLUMNS), orient="row")
    return frame.sample(fraction=1.0, shuffle=True, seed=seed)


def read(frame: pl.DataFrame, how: TableSchema, listener: Listener | None = None) -> Dataset:
    return ingest_table(TableInputs([frame_as_file(frame, "ward.csv")]), how, listener or Listener())


def refused(frame: pl.DataFrame, how: TableSchema) -> str:
    with pytest.raises(DataError) as caught:
        read(frame, how)
    return "\n".join([str(caught.value), *caught.value.details])


def test_a_step_is_what_its_rows_are_by_hand():
    frame = ward()
    dataset = read(frame, schema())
    order = {"none": 0, "basal": 1, "bolus": 2}
    for patient in ("p00", "p05", "p11"):
        panel, row = of(dataset, patient)
        values = dataset.schema.treatments.decode(panel.treatments[row])
        own = frame.filter(pl.col("patient") == patient).sort("when")
        weeks = own.with_columns(week=(pl.col("when").str.to_datetime() - pl.datetime(2024, 1, 1)).dt.total_days() // 7)
        assert panel.length[row] == 6
        for week in range(6):
            rows = weeks.filter(pl.col("week") == week)
            assert panel.outcomes[row, week, 0] == rows["glucose"][0]
            assert panel.covariates[row, week, 0] == rows["carbs"].sum()
            assert values[week, 0] == max(order[level] for level in rows["insulin"])
            assert values[week, 1] == rows["units"].sum()
            if rows["crp"].drop_nulls().len():
                assert panel.covariates[row, week, 1] == pytest.approx(rows["crp"].mean(), rel=1e-6)


def test_how_many_rows_share_a_step_is_a_warning():
    frame, heard = ward(), Listener()
    read(frame, schema(), heard)
    [said] = [text for text in heard.warnings if "`bin`" in text]
    most = frame.with_columns(week=pl.col("when").str.to_datetime().dt.truncate("1w")).group_by("patient", "week").len()
    assert said == (
        f"{frame.height} rows became 72 weeks (`bin`): {frame.height} of them share one with others, up to "
        f"{most['len'].max()} together, and count as first of glucose, max of insulin, sum of units, sum of carbs, "
        "mean of crp"
    )


def test_a_table_with_a_row_per_step_becomes_the_same_data_without_a_warning():
    dated = [str(np.datetime64("2024-01-01") + 7 * week) for week in range(6)] * 12
    once = ward().sort("patient", "when").group_by("patient", maintain_order=True).head(6)
    frame = once.with_columns(when=pl.Series(dated), crp=pl.lit(3.0) + pl.col("units"))
    plain = {"carbs": {"role": "covariate"}, "crp": {"role": "covariate"}}
    heard = Listener()
    binned, even = read(frame, schema(plain), heard), read(frame, schema(plain, bin=False))
    assert not heard.warnings
    for part, panel in even.panels.items():
        for name in ("outcomes", "treatments", "covariates", "length"):
            np.testing.assert_array_equal(getattr(panel, name), getattr(binned.panels[part], name))


@pytest.mark.parametrize(("step", "length"), [("1d", 8), ("12h", 15), ("1mo", 1)])
def test_steps_begin_where_the_calendar_begins_them(step: str, length: int):
    """From a Monday night to the Tuesday of the week after; empty steps in between are gaps like any other."""
    times = ["2024-01-01 23:59", "2024-01-02 00:00", "2024-01-08 23:00"]
    rows = [(f"p{i:02d}", when, float(90 + i + k), "none" if (i + k) % 2 else "basal", float(i + k), 1.0, 2.0, 40.0 + i)
            for i in range(9) for k, when in enumerate(times)]  # fmt: skip
    frame = pl.DataFrame(rows, schema=list(COLUMNS), orient="row")
    own = {name: {**COLUMNS[name], "missing": "fill"} for name in ("glucose", "insulin", "units", "carbs", "crp")}
    how = schema(own | {"crp": None}, step=step, gaps="fill").model_copy(update={"min_length": 1})
    if length == 1:
        assert "fewer" in refused(frame, how) or "horizon" in refused(frame, how)
        return
    panel, row = of(read(frame, how), "p03")
    assert panel.length[row] == length
    assert panel.calendar.texts(np.array([row]), np.array([0]), panel.length[[row]])[0].startswith("2024-01-01")


def test_the_same_amount_given_twice_on_a_day_is_summed_and_warned_of():
    rows = [(f"p{i:02d}", f"2024-01-{day:02d}", 90.0 + i, "none", 5.0 * (day % 2), float(day), 20.0, 40.0 + i)
            for i in range(12) for day in range(1, 6)]  # fmt: skip
    frame, heard = pl.DataFrame(rows, schema=list(COLUMNS), orient="row"), Listener()
    again = frame.filter((pl.col("patient") == "p03") & (pl.col("when") == "2024-01-03"))
    dataset = read(pl.concat([frame, again]), schema(step="1d"), heard)
    panel, row = of(dataset, "p03")
    given = dataset.schema.treatments.decode(panel.treatments[row])[:5, 1]
    assert given[:4].tolist() == [5, 0, 10, 0]
    assert panel.covariates[row, 2, 0] == 3 + 3
    [said] = [text for text in heard.warnings if "the same" in text]
    assert said.startswith("1 row is the same as another in all columns: each counts in the sum of units, of carbs")
    assert not any("duplicate" in note for note in heard.notes)


def test_rows_that_are_the_same_count_once_where_nothing_is_summed():
    largest = {"units": {**COLUMNS["units"], "aggregate": "max"}, "carbs": {"role": "covariate"}}
    frame, heard = ward(), Listener()
    once, twice = read(frame, schema(largest)), read(pl.concat([frame, frame[:7]]), schema(largest), heard)
    assert any("dropped 7 duplicate rows" in note for note in heard.notes)
    for part, panel in once.panels.items():
        np.testing.assert_array_equal(panel.treatments, twice.panels[part].treatments)
        np.testing.assert_array_equal(panel.covariates, twice.panels[part].covariates)


def test_a_mark_of_an_end_stands_whatever_other_rows_of_its_step_say():
    frame = ward()
    last = frame.group_by("patient").agg(pl.col("when").max())
    died = frame.join(last.with_columns(died=pl.lit(1)), on=["patient", "when"], how="left").with_columns(
        died=pl.when(pl.col("patient") < "p06").then(pl.col("died").fill_null(0)).otherwise(0)
    )
    dataset = read(died, schema({"died": {"role": "event"}}))
    for patient, ended in (("p02", 1), ("p09", 0)):
        panel, row = of(dataset, patient)
        assert panel.end is not None
        assert panel.end[row] == ended


def test_new_subjects_are_binned_as_the_table_was():
    dataset = read(ward(), schema())
    heard, frame = Listener(), ward(seed=4, patients=3).with_columns(patient="new-" + pl.col("patient"))
    like = Preprocessing.of_dataset(dataset)
    made = ingest_new(TableInputs([frame_as_file(frame, "new.csv")]), like, heard)
    panel, row = of(made, "new-p01")
    own = frame.filter(pl.col("patient") == "new-p01").sort("when")
    assert panel.length[row] == 6
    assert panel.outcomes[row, 0, 0] == own["glucose"][0]
    assert any("`bin`" in warning for warning in heard.warnings)


@pytest.mark.parametrize(
    ("columns", "time", "said"),
    [
        ({"insulin": {"role": "treatment"}}, {}, "list them, or choose `aggregate`"),
        ({"insulin": {**COLUMNS["insulin"], "aggregate": "mean"}}, {}, "have no mean"),
        ({"carbs": {"role": "covariate", "aggregate": "any"}}, {}, "`any` is of events"),
        ({"carbs": {"role": "covariate", "kind": "categorical", "aggregate": "max"}}, {}, "categories have no max"),
        ({}, {"gaps": "elapsed"}, "has none: choose one of them"),
        ({}, {"bin": False}, "`bin = true` in [time]"),
    ],
)
def test_what_nobody_knows_how_to_make_one_of_is_refused(columns: dict[str, Any], time: dict[str, Any], said: str):
    with pytest.raises(UsageError) as caught:
        schema(columns, **time)
    assert said in "\n".join([str(caught.value), *caught.value.details])


def test_unknown_levels_are_told_although_their_row_shares_a_step():
    frame = ward()
    odd = frame.with_columns(insulin=pl.when(pl.int_range(pl.len()) == 5).then(pl.lit("pump")).otherwise("insulin"))
    said = refused(odd, schema())
    assert "pump" in said
    assert "row 6 of ward.csv" in said
