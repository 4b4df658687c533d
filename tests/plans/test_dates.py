"""Dates in plans and origins are the steps that they fall on."""

import json
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from costar_cli.api.estimates import estimate_outcomes as api_estimate
from costar_cli.data import Panel, Part
from costar_cli.data.calendar import Calendar, Date
from costar_cli.errors import UsageError
from costar_cli.plans import IndexTimes, PlanRequest, parse_plans
from costar_cli.plans import table as plan_tables
from costar_cli.questions import Cohort, answer_cohort, estimate_outcomes, names_of, tidy_columns
from tests.whatif.whatif_worlds import TUMOR, LinearModel, make_dataset

CHEMO, DAY = {"chemotherapy": 1}, 86_400_000_000
PLACES = plan_tables._places
PARTS = Part("source", "train"), Part("target", "test")


def dated(panel: Panel, *first: str, size: int | None = DAY) -> Panel:
    """Subjects whose first step is on these days."""
    starts = np.array([[np.datetime64(day, "us").astype(np.int64)] for day in first])
    return replace(panel, calendar=Calendar(starts, "us", size))


PANEL = dated(make_dataset().panels[PARTS[0]], *["2024-02-20"] * 4)  # of 20, 12, 1 and 20 steps


def parse(plan: Any, panel: Panel = PANEL, **document: Any) -> PlanRequest:
    text = json.dumps({"plans": {"p": plan}} | document)
    return parse_plans(text, TUMOR, horizon=6, begin=partial(IndexTimes.of, panel))


def values(plan: Any, **document: Any) -> list[list[int]]:
    return parse(plan, **document).plans[0].values.tolist()


@pytest.mark.parametrize("origin", ["2024-03-01", 10])
def test_plans_by_date_are_those_by_step(origin):
    at = {"at": {"2024-03-01": CHEMO, "2024-03-04": {"radiotherapy": 1}}}
    assert values(at, origin=origin) == [[1, 0], [0, 0], [0, 0], [0, 1]]
    assert values({"at": {"13": {"radiotherapy": 1}, "2024-03-01": CHEMO}}, origin=origin) == values(at, origin=origin)
    assert values(at | {"until": "2024-03-07"}, origin=origin) == values(at | {"times": 6}, origin=origin)
    assert values({"repeat": CHEMO, "until": "2024-03-03"}, origin=origin) == [[1, 0]] * 2


def table(text: str, panel: Panel = PANEL, **options: Any) -> PlanRequest:
    begin = partial(IndexTimes.of, panel)
    return parse_plans(text, TUMOR, horizon=6, where="plans.csv", begin=begin, **options)


def test_the_steps_of_a_table_may_be_dates():
    text = "plan,step,chemotherapy\np,2024-03-02,\np,2024-03-01,1\nq,1,\np,2024-03-03,1\n"
    assert [plan.values[:, 0].tolist() for plan in table(text, origin=10).plans] == [[1, 0, 1], [0]]


def test_the_dates_of_a_table_are_counted_from_each_subject_s_own_origin():
    first, second = PANEL.names[:2]
    text = f"subject,plan,step,chemotherapy\n{first},p,2024-03-10,1\n{second},p,2024-03-02,1\n{second},p,2024-03-03,0\n"
    request = table(text + "stranger,p,2024-03-02,1\n")
    assert [len(request.of(name).plans[0]) for name in (first, second, "stranger")] == [1, 2, 1]
    with pytest.raises(UsageError, match="steps are not 1, 2, 3") as caught:
        table(text.replace("2024-03-03", "2024-03-04"))
    assert "write their dates" in caught.value.fix


def test_a_table_of_many_dates_looks_its_subjects_up_once(monkeypatch):
    first = ["2024-02-20", "2024-02-21", "2024-03-01", "2024-02-29"]
    panel, looked = dated(PANEL, *first), []
    monkeypatch.setattr(plan_tables, "_places", lambda moments: looked.append(moments) or PLACES(moments))
    rows = [
        f"{name},p,{np.datetime64(day) + step},{chemo}"
        for name, day in zip(panel.names, first, strict=True)
        for step, chemo in enumerate((1, 0, 0, 1, 1))
    ]
    shuffled = "\n".join(np.random.default_rng(0).permutation([*rows, "stranger,p,2024-03-02,1"]))
    request = table(f"subject,plan,step,chemotherapy\n{shuffled}\n", panel, origin=0)
    assert all(request.of(name).plans[0].values[:, 0].tolist() == [1, 0, 0, 1, 1] for name in panel.names)
    assert len(looked) == 1


def test_dates_of_a_table_that_mean_nothing_are_refused():
    text = "plan,step,chemotherapy\np,2024-03-10,1\n"
    with pytest.raises(UsageError, match="`step` 2024-03-10 is 0 to 19 steps after the origins of the subjects"):
        table(text)
    uneven = Calendar(np.tile(np.arange(20) * DAY, (4, 1)), "us", None)
    for panel in (replace(PANEL, calendar=None), replace(PANEL, calendar=uneven)):
        with pytest.raises(UsageError, match="`step` cannot be the date 2024-03-10"):
            table(text, panel)


def test_plans_last_until_the_end_of_a_month_as_origins_do():
    assert values({"repeat": CHEMO, "until": "2024-02"}, origin="2024-02-26") == [[1, 0]] * 3


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ({"at": {"2024-02-29": CHEMO}}, "'2024-02-29' is not among the steps that a plan may give, 10 to 15"),
        ({"at": {"2024-03-07": CHEMO}}, "'2024-03-07' is not among the steps that a plan may give, 10 to 15"),
        ({"at": {"2024-03-01": CHEMO, "10": {}}}, "`at` '10' is the same step as another"),
        ({"at": {"2024-03-05": CHEMO}, "times": 2}, "`at` names step 5 of the plan, which has 2"),
        ({"at": {"soon": CHEMO}}, "`at` must be the number of a step or a date such as \"2024-03-01\", not 'soon'"),
        ({"at": {"9" * 5_000: CHEMO}}, "`at` must be the number of a step or a date such as"),
        ({"at": {"2024-03": CHEMO}}, "`at` cannot be the date 2024-03: it has several steps: name the time of one"),
        ({"at": {}}, "`at` must be an object such as"),
        ({"at": {"2024-03-02": {"chemo": 1}}}, "no treatment 'chemo'"),
        ({"repeat": CHEMO, "until": "2024-03-01"}, "`until` 2024-03-01 is not among the steps that the model predicts"),
    ],
)
def test_dates_that_do_not_fit_are_named(plan, problem):
    with pytest.raises(UsageError) as caught:
        parse(plan, origin="2024-03-01")
    assert problem in caught.value.problem


def test_a_date_needs_to_be_the_same_step_of_all_subjects_and_of_even_steps():
    staggered = dated(PANEL, "2024-02-20", "2024-02-21", "2024-02-20", "2024-02-20", size=7 * DAY)
    with pytest.raises(UsageError, match="`until` 2024-03-26 is 4 to 5 steps after the origins of the subjects"):
        parse({"repeat": CHEMO, "until": "2024-03-26"}, staggered, origin=0)
    times = np.repeat(PANEL.calendar.time_NK, PANEL.n_steps, axis=1)
    uneven = replace(PANEL, calendar=Calendar(times, "us", None))
    with pytest.raises(UsageError, match="dates of later steps are not known"):
        parse({"repeat": CHEMO, "until": "2024-03-02"}, uneven, origin=10)


def test_subjects_without_the_date_are_named_all_at_once_or_left_out():
    date = Date.parse("2024-03-05")
    with pytest.raises(UsageError, match="origin 2024-03-05 is outside the series of 2 subjects") as caught:
        Cohort.of(PANEL, names_of(PANEL), origin=date)
    assert caught.value.details == ("1 (2024-02-20 to 2024-03-02)", "2 (2024-02-20 to 2024-02-20)")
    assert Cohort.of(PANEL, names_of(PANEL), origin=date, skip=True).subject_M.tolist() == [0, 3]


def test_answers_have_the_dates_of_their_steps():
    cohort = Cohort.of(PANEL, names_of(PANEL), origin="last")
    (answers,) = answer_cohort("m", LinearModel(TUMOR), cohort, parse([CHEMO, {}]))
    columns = tidy_columns(answers)
    assert columns["date"].tolist()[:2] == ["2024-03-11", "2024-03-12"]
    assert "date" not in tidy_columns(replace(answers, cohort=replace(cohort, panel=replace(PANEL, calendar=None))))
    data = make_dataset()
    data = replace(data, panels={**data.panels, PARTS[0]: PANEL})
    report = estimate_outcomes(data, {"m": LinearModel(TUMOR)}, parse([CHEMO, {}], origin="2024-03-01"), subject=0)
    assert report.history.origin == 10
    assert [(row["time"], row["date"]) for row in report.to_rows()] == [(11, "2024-03-02"), (12, "2024-03-03")]
    assert report.to_json()["history"][0]["date"] == "2024-02-20"
    with pytest.raises(UsageError, match="outside the series of subject 1: 2024-02-20 to 2024-03-02"):
        estimate_outcomes(data, {"m": LinearModel(TUMOR)}, parse([CHEMO], origin="2024-03-05"), subject=1)


def test_one_subject_is_asked_about_from_one_origin_which_may_be_counted_from_the_end():
    model, data = SimpleNamespace(method="m", fitted=LinearModel(TUMOR)), make_dataset()
    with pytest.raises(UsageError, match="asked about from one origin"):
        api_estimate(model, data, [CHEMO], subject=0, origin="all")
    assert api_estimate(model, data, [CHEMO], subject=0, origin=-9).history.origin == 10
