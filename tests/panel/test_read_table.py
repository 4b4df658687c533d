"""Messy tables: each problem is told with its place, its count and a fix, and all of them at once."""

from datetime import date

import numpy as np
import polars as pl
import pytest

from costar_cli.errors import DataError
from costar_cli.panel import Panel, PanelSchema, TreatmentEncoding, Variable
from costar_cli.panel.read_table import panel_from_frame

SCHEMA = PanelSchema(
    covariates=(Variable(name="heart rate", unit="bpm"), Variable(name="visits", kind="count")),
    treatments=TreatmentEncoding(
        mode="multiclass",
        names=("drug", "dose"),
        levels=(("off", "on"), ("0", "5", "10")),
        classes=((0, 0), (1, 1), (1, 2)),
    ),
    outcomes=(Variable(name="y"),),
    statics=(Variable(name="male", kind="binary"),),
)


def table() -> pl.DataFrame:
    """Two subjects: 31 with three steps, 4 with two, in the wrong order."""
    return pl.DataFrame(
        {
            "subject": [31, 4, 31, 4, 31],
            "step": [2, 1, 0, 0, 1],
            "heart rate": [62.0, 71.5, 60.0, 70.5, 61.0],
            "visits": [2, 1, 0, 3, 1],
            "drug": [None, None, "on", "off", "on"],
            "dose": [None, None, 10, 0, 5],
            "y": [1.2, 2.1, 1.0, 2.0, 1.1],
            "male": [True, False, True, False, True],
        },
        strict=False,
    )


def problems(frame: pl.DataFrame, schema: PanelSchema = SCHEMA, **kwargs) -> list[str]:
    """Return all problems of a table as lines of problem, place and fix."""
    with pytest.raises(DataError) as caught:
        panel_from_frame(frame, schema, **kwargs)
    error = caught.value
    assert error.exit_code == 3
    if error.details:
        assert error.problem == f"the table has {len(error.details)} problems"
        return list(error.details)
    return [f"{error.where or ''}: {error.problem} ({error.fix})"]


def edit(**columns: list) -> pl.DataFrame:
    """Return the table with some columns replaced."""
    return table().with_columns(pl.Series(name, values, strict=False) for name, values in columns.items())


def test_unsorted_rows_are_sorted_and_padded():
    panel = panel_from_frame(table(), SCHEMA)
    assert panel.subject_id.tolist() == [4, 31]
    assert panel.length.tolist() == [2, 3]
    assert np.allclose(panel.outcomes[..., 0], [[2.0, 2.1, 0], [1.0, 1.1, 1.2]])
    assert np.allclose(panel.covariates[0], [[70.5, 3], [71.5, 1], [0, 0]])
    assert panel.treatments[1].tolist() == [[0, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert panel.statics.tolist() == [[0], [1]]


def assert_equal(got: Panel, want: Panel) -> None:
    for field in Panel.__slots__:
        assert np.array_equal(getattr(got, field), getattr(want, field)), field


@pytest.mark.parametrize(
    "column",
    [
        pl.col("heart rate").cast(pl.String),
        pl.format(" {} ", "heart rate").alias("heart rate"),
        pl.col("heart rate").cast(pl.Decimal(10, 3)),
        pl.col("visits").cast(pl.Float64),
        pl.col("visits").cast(pl.UInt8),
        pl.col("drug").cast(pl.Categorical),
        pl.col("drug").cast(pl.Enum(["off", "on"])),
        (pl.col("drug") == "on").alias("drug"),
        (pl.col("drug") == "on").cast(pl.Float64).alias("drug"),
        pl.col("dose").cast(pl.Float32),
        pl.col("dose").cast(pl.String).fill_null(""),
        pl.col("male").cast(pl.Int64),
        pl.col("male").cast(pl.Int64).cast(pl.String),
        pl.col("subject").cast(pl.Float64),
        pl.col("subject").cast(pl.String),
        pl.format("{}.0", "subject").alias("subject"),
        (pl.col("step") + 100).cast(pl.String).alias("step"),
    ],
    ids=str,
)
def test_types_that_lose_nothing_are_cast(column: pl.Expr):
    assert_equal(panel_from_frame(table().with_columns(column), SCHEMA), panel_from_frame(table(), SCHEMA))


def test_large_ids_are_read_to_the_last_digit():
    large = 2**62 + 1
    for kind in (pl.Int64, pl.UInt64, pl.String):
        frame = table().with_columns(pl.Series("subject", [large, 4, large, 4, large]).cast(kind))
        assert panel_from_frame(frame, SCHEMA).subject_id.tolist() == [4, large]


def test_number_labels_are_read_as_labels_and_other_labels_also_as_positions():
    panel = panel_from_frame(edit(dose=["5", None, "10.0", "0", " 5 "], drug=[1, None, 1, 0, 1]), SCHEMA)
    assert panel.treatments[1].tolist() == [[0, 0, 1], [0, 1, 0], [0, 1, 0]]
    [line] = problems(edit(dose=[None, None, 2, 0, 1]))
    assert line.endswith("column 'dose': 2 values unknown, first 2 (use one of '0', '5', '10')")


NEVER = "leave it out of the schema"

CASES = [
    (table().rename({"visits": "visit"}), "", "there is no column 'visits'", "did you mean 'visit'?"),
    (table().rename({"male": "sex"}).drop("y"), "", "there is no column 'y'", "the table has 'subject', 'step',"),
    (table().head(0), "", "the table has no rows", "give at least one row per subject and step"),
    (
        edit(subject=[31, 4, None, 4, 31]),
        "row 3 of the table",
        "column 'subject': 1 value missing",
        "give whole numbers",
    ),
    (
        edit(subject=["a7", "4", "a7", "4", "a7"]),
        "row 1 of the table",
        "column 'subject': 3 values not whole, first 'a7'",
        "give whole numbers",
    ),
    (
        edit(step=[1.0, 1.0, 0.0, 0.0, 0.5]),
        "row 5 of the table",
        "column 'step': 1 value not whole, first 0.5",
        "give whole numbers",
    ),
    (
        edit(step=[date(2020, 1, d) for d in (3, 2, 1, 1, 2)]),
        "",
        "column 'step' holds Date, not whole numbers",
        "give whole numbers, counting steps",
    ),
    (
        edit(step=[1, 1, 0, 0, 1]),
        "first at subject 31, step 1",
        "1 repeated row of the same subject and time",
        "keep one row per subject and time",
    ),
    (
        edit(step=[9, 1, 0, 0, 1]),
        "first before subject 31, step 9",
        "1 gap in time: steps must rise by one",
        "add the missing rows, or renumber the times to count steps",
    ),
    (
        edit(y=[float("nan"), None, 1.0, 2.0, 1.1]),
        "first at subject 4, step 1",
        "column 'y': 2 values missing",
        "fill or remove them",
    ),
    (
        edit(y=["1.2", "n/a", "", "2.0", "high"]),
        "first at subject 4, step 1",
        "column 'y': 2 values not numeric, first 'n/a'",
        "give numbers",
    ),
    (
        edit(y=[float("inf"), 2.1, 1e39, 2.0, 1.1]),
        "first at subject 31, step 0",
        "column 'y': 2 values infinite or too large, first 1e+39",
        "correct them",
    ),
    (edit(y=[[1.0]] * 5), "", "column 'y' holds List(Float64), not numbers", "give numbers"),
    (edit(y=[3.0] * 5), "", "column 'y' never changes, all values are 3", NEVER),
    (
        edit(visits=[-1, 1, 0, 3, 2.5]),
        "first at subject 31, step 1",
        "column 'visits': 2 values negative or fractional, first 2.5",
        "declare it as continuous, not count",
    ),
    (
        edit(male=[2, 0, 2, 0, 2]),
        "first at subject 31, step 0",
        "column 'male': 3 values other than 0 or 1, first 2",
        "declare it as continuous, not binary",
    ),
    (
        edit(male=[1, 0, 1, 0, 0]),
        "first at subject 31, step 1",
        "static 'male' changes within 1 subject",
        "declare it as a covariate, or keep one value per subject",
    ),
    (
        edit(drug=[None, None, "onn", "off", "on"]),
        "first at subject 31, step 0",
        "column 'drug': 1 value unknown, first 'onn'",
        "did you mean 'on'?",
    ),
    (
        edit(drug=[None, None, None, "off", "on"]),
        "first at subject 31, step 0",
        "column 'drug': 1 value missing",
        "fill them; only a subject's last step may have no treatments",
    ),
    (
        edit(drug=["on", None, "on", "off", "on"]),
        "first at subject 31, step 2",
        "column 'dose': 1 value missing",
        "fill them; only a subject's last step may have no treatments",
    ),
    (edit(drug=[None, None, "on", "on", "on"]), "", "treatment 'drug' never changes, it is always 'on'", NEVER),
    (
        edit(drug=[None, None, "on", "on", "on"]),
        "first at subject 4, step 0",
        "1 row with a combination of treatments that has no class, first drug+dose=0",
        "add the class to the schema",
    ),
]


@pytest.mark.parametrize(("frame", "where", "problem", "fix"), CASES, ids=[case[2] for case in CASES])
def test_each_problem_has_its_place_count_and_fix(frame: pl.DataFrame, where: str, problem: str, fix: str):
    [line] = [line for line in problems(frame) if problem in line]
    assert line.removeprefix(": ").startswith(f"{where}: {problem} ({fix}" if where else f"{problem} ({fix}")


def test_all_problems_of_a_table_are_told_at_once():
    frame = edit(y=[None, 2.1, 1.0, 2.0, 1.1], step=[2, 1, 0, 0, 0], drug=[None, None, "on", "nope", "on"])
    told = problems(frame.with_columns(pl.lit(7.0).alias("heart rate")))
    for word in ("1 repeated row", "1 gap in time", "never changes", "value missing", "value unknown"):
        assert sum(word in line for line in told) == 1, word


def test_constant_columns_are_accepted_on_request():
    panel = panel_from_frame(edit(y=[3.0] * 5, drug=["off"] * 5, dose=[0] * 5), SCHEMA, allow_constant=True)
    assert set(panel.outcomes[panel.observed].ravel()) == {3.0}


def test_columns_for_subject_and_time_have_other_names_on_request():
    frame = table().rename({"subject": "patient", "step": "y2"})
    assert_equal(panel_from_frame(frame, SCHEMA, subject="patient", time="y2"), panel_from_frame(table(), SCHEMA))
    with pytest.raises(DataError, match="'y' is used for two roles"):
        panel_from_frame(frame, SCHEMA, subject="patient", time="y")


def test_a_million_rows_take_seconds():
    n, steps = 20_000, 50
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "subject": np.repeat(np.arange(n), steps),
            "step": np.tile(np.arange(steps), n),
            "heart rate": rng.normal(size=n * steps),
            "visits": rng.poisson(2, size=n * steps),
            "drug": rng.choice(["off", "on"], size=n * steps),
            "y": rng.normal(size=n * steps),
            "male": np.repeat(rng.integers(2, size=n), steps),
        }
    ).with_columns(dose=pl.when(pl.col("drug") == "on").then(5).otherwise(0))
    panel = panel_from_frame(frame, SCHEMA)
    assert panel.outcomes.shape == (n, steps, 1)
