"""When the visits of a plan are: after so long, or at a date; what cannot be meant is said with plan and step."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from costar_cli.data import Dataset, Panel, Part
from costar_cli.data.visits import elapsed_dose, visit_dates
from costar_cli.errors import UsageError
from costar_cli.inference import simulate_on
from costar_cli.plans import IndexTimes, TreatmentPlan
from costar_cli.plans.plan import in_words
from costar_cli.plans.read import parse_plans
from costar_cli.questions import Cohort, answer_cohort, join_columns, tidy_columns
from tests.datasets.table_worlds import ingest, make_schema, problems, ward
from tests.whatif.whatif_worlds import LinearModel


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A ward whose patients come back after 1 to 4 days; all come for the last time on the 13th of January."""
    back = pl.Series([0, 1, 4, 6, 10, 12]).gather(ward()["day"])
    frame = ward().with_columns(day=pl.lit("2024-01-") + (back + 1).cast(pl.String).str.zfill(2))
    schema = make_schema(time={"step": "1d", "gaps": "elapsed"}, horizon=3)
    return ingest(frame, schema, folder=tmp_path_factory.mktemp("ward"))


def gaps_of(steps: list[object], data: Dataset, panel: Panel | None = None) -> list[float]:
    panel = panel or data.panels[Part("source", "test")]
    text = json.dumps({"plans": {"p": steps}})
    request = parse_plans(text, data.schema, horizon=3, begin=lambda origin: IndexTimes.of(panel, origin))
    [plan] = request.plans
    assert isinstance(plan, TreatmentPlan)
    return [float(gap) for gap in plan.values[:, -1]]


@pytest.mark.parametrize(
    ("steps", "gaps"),
    [
        ([{"after": 3}, {"drug": "low", "after": 2.5}], [3, 2.5]),
        ([{"after": "3 days"}, {"after": "36h"}, {"after": "2 weeks"}], [3, 1.5, 14]),
        ([{"at": "2024-01-15"}, {"at": "2024-01-20"}], [2, 5]),
        ([{"after": 4}, {"at": "2024-01-20 12:00"}], [4, 3.5]),
        ([{}, {"elapsed": 7}], [2, 7]),
        ([{"repeat": {"after": 6}, "times": 3}], [6, 6, 6]),
    ],
)
def test_plans_say_when_visits_are(steps: list[object], gaps: list[float], data: Dataset):
    assert gaps_of(steps, data) == pytest.approx(gaps)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"after": "soon"}], "step 1: `after` cannot be 'soon'"),
        ([{"after": 3, "at": "2024-02-01"}], "step 1: both `after` and `at`"),
        ([{"at": "2024-01-10"}], "step 1: `at` 2024-01-10 is not later than the step before"),
        ([{"at": "2024-01-20"}, {"at": "2024-01-20"}], "step 2: `at` 2024-01-20 is not later than the step before"),
        ([{"at": "spring"}], "step 1: `at` must be a date such as 2024-03-01"),
        ([{"after": 0}], "the next step is later"),
        ([{"after": -2}], "the next step is later"),
        ([{"after": 900}], "more than 10 times what was ever given"),
    ],
)
def test_visits_that_cannot_be_meant_are_said_with_their_step(steps: list[object], message: str, data: Dataset):
    with pytest.raises(UsageError) as error:
        gaps_of(steps, data)
    assert message.replace("'", '"') in (str(error.value) + "".join(error.value.details)).replace("'", '"')


def test_plans_in_words_say_when_the_next_visit_is_behind_what_is_given(data: Dataset):
    steps = [{"drug": "low", "after": 2.5}, {"after": 1}, {"after": 1}]
    [plan] = parse_plans(json.dumps({"plans": {"p": steps}}), data.schema, horizon=3).plans
    assert isinstance(plan, TreatmentPlan)
    words = in_words(data.schema, plan.values, 4)
    assert words == "visit 4 drug=low (2.5 days to the next), then drug=none (1 day to the next)"


def test_dates_of_answers_follow_from_the_plan(data: Dataset):
    panel, dose = data.panels[Part("source", "test")], elapsed_dose(data.schema.treatments)
    assert dose is not None
    found = visit_dates(panel, dose, np.array([0, 1]), np.array([5, 0]), np.array([[7.0, 14.0], [0.5, 1.0]]))
    assert found is not None
    assert found.tolist() == [["2024-01-20 00:00", "2024-02-03 00:00"], ["2024-01-01 12:00", "2024-01-02 12:00"]]
    whole = visit_dates(panel, dose, np.array([0]), np.array([5]), np.array([[7.0, 14.0]]))
    assert whole is not None
    assert whole.tolist() == [["2024-01-20", "2024-02-03"]]


def test_visits_within_a_second_are_refused(tmp_path: Path):
    frame = ward().with_columns(day=pl.lit("2024-01-01 10:00:0") + (pl.col("day") * 0.4).cast(pl.String))
    [line] = problems(frame, make_schema(time={"step": "1d", "gaps": "elapsed"}), folder=tmp_path)
    assert "150 rows within a second of another row of its subject" in line
    assert "row 2 of ward.csv" in line


def test_dates_of_cohorts_are_those_of_the_plan_to_the_minute(data: Dataset):
    panel = data.panels[Part("source", "test")].take(np.arange(1))
    moments = IndexTimes.of(panel, 5)
    text = json.dumps({"plans": {"p": [{"at": "2024-02-10 11:00"}]}})  # 28.4583333 days: six digits are too few
    request = parse_plans(text, data.schema, horizon=3, begin=lambda origin: moments)
    cohort = Cohort.of(panel, panel.names, origin=5)
    [date] = join_columns([tidy_columns(a) for a in answer_cohort("m", LinearModel(data.schema), cohort, request)])[
        "date"
    ]
    assert date == "2024-02-10 11:00"


def test_a_shift_comes_after_the_usual_gap_where_none_was_seen(data: Dataset):
    panel = data.panels[Part("source", "test")].take(np.arange(1)).until(1)
    text = json.dumps({"plans": {"p": {"shift": {"elapsed": "+50 %"}, "times": 2}}})
    [shift] = parse_plans(text, data.schema, horizon=3).plans
    assert not isinstance(shift, TreatmentPlan)
    went = simulate_on(shift, IndexTimes.of(panel, 0), data.schema, lambda rows, _: np.zeros((len(rows), 1)))
    assert went.values_SQHA[0, 0, :, -1].tolist() == [3, 3]


@pytest.mark.parametrize("name", ["after", "at"])
def test_no_treatment_is_called_like_what_says_when_visits_are(name: str):
    called = {name: {"role": "treatment"}}
    with pytest.raises(UsageError, match="when a visit is"):
        make_schema(called, ("drug",), time={"gaps": "elapsed"})
    assert make_schema(called, ("drug",)).named("treatment") == [name]
