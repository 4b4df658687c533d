"""Answers of a cohort are those of its subjects one by one, however they are cut into chunks."""

import json
from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Part
from costar_cli.data.support import Support
from costar_cli.errors import UsageError
from costar_cli.files.shards import Shard
from costar_cli.inference import NOT_JUDGED, SupportRatings
from costar_cli.plans import PlanRequest, parse_plans
from costar_cli.questions import (
    Band,
    Cohort,
    ModelAnswers,
    Tally,
    answer_cohort,
    choose_subjects,
    join_columns,
    join_places,
    names_of,
    tidy_columns,
    warnings_on_plans,
    with_plans,
)
from costar_cli.questions import answers as answers_module
from costar_cli.questions import summary as summary_module
from costar_cli.questions.rows import table_columns
from tests.dose_worlds import linear_doses
from tests.whatif.whatif_worlds import TUMOR, LinearModel, column, make_dataset, report_of, request_of

KEYS = ("subject", "plan", "step")
PLANS = {"watch": [{}] * 3, "chemo": [{"chemotherapy": 1}] * 5}


def whole(origin: int | str = "last") -> Cohort:
    dataset = make_dataset()
    places = choose_subjects(dataset, "all")
    panel = join_places(dataset, places)
    return Cohort.of(panel, names_of(panel), places, origin=origin)


def table(cohort: Cohort, **options: object) -> dict[str, np.ndarray]:
    chunks = answer_cohort("costar", LinearModel(TUMOR), cohort, request_of(PLANS), **options)
    return join_columns([tidy_columns(answers) for answers in chunks])


def test_each_row_is_the_answer_about_one_subject():
    rows = table(whole(), levels=(0.9, 0.5))
    for subject in range(12):
        alone = report_of(request=request_of(PLANS), subject=subject, levels=(0.9, 0.5)).to_rows()
        mine = rows["subject"] == subject
        for name in ("plan", "step", "time", "outcome", "unit", "level", "interval_kind"):
            assert rows[name][mine].tolist() == column(alone, name)
        for name in ("estimate", "lower", "upper", "lower_0.5", "upper_0.5"):
            np.testing.assert_allclose(rows[name][mine], column(alone, name))


def test_precision_that_is_not_judged_has_no_light():
    [answers] = answer_cohort("costar", LinearModel(TUMOR), whole(), request_of(PLANS))
    green_QHY = np.zeros(answers.estimates.mean_QHY.shape, dtype=np.int8)
    green_QH = green_QHY[..., 0]
    ratings = SupportRatings(
        green_QHY + NOT_JUDGED, green_QH, green_QH, green_QH, green_QHY, green_QHY * 1.0, green_QH * 1.0
    )
    rows = tidy_columns(replace(answers, ratings=ratings))
    assert [set(rows[name]) for name in ("precision", "practice", "support")] == [{None}, {"green"}, {"green"}]


@pytest.mark.parametrize(("queries", "moments"), [(1, 1_000), (5, 1_000), (8_192, 3)])
def test_chunks_change_no_answer(monkeypatch, queries, moments):
    once = table(whole("all"))
    monkeypatch.setattr(answers_module, "MOST_QUERIES", queries)
    monkeypatch.setattr(answers_module, "MOST_MOMENTS", moments)
    chunked = table(whole("all"))
    assert {name: values.tolist() for name, values in once.items() if values.dtype == object} == {
        name: values.tolist() for name, values in chunked.items() if values.dtype == object
    }
    np.testing.assert_array_equal(once["estimate"], chunked["estimate"])
    np.testing.assert_array_equal(once["time"], chunked["time"])


def test_a_summary_keeps_the_first_plans_and_counts_the_others(monkeypatch):
    monkeypatch.setattr(summary_module, "MOST_PLANS", 3)
    plans = {f"plan {i}": [{"chemotherapy": i % 2}] for i in range(8)}
    tally, every = (Tally(TUMOR.outcomes, 6) for _ in range(2))
    for answers in answer_cohort("costar", LinearModel(TUMOR), whole(), request_of(plans)):
        tally.add(answers)
        monkeypatch.undo()
        every.add(answers)
    assert (len(tally.totals), len(tally.counts), len(tally.ratings)) == (3, 3, 3)
    assert (len(tally.names), tally.answers) == (8, 96)
    assert list(tally.rows()) == list(every.rows())[:3]


def banded(answers: ModelAnswers, *, known: int) -> ModelAnswers:
    """Return answers of a calibrated model, of which so many questions have limits at a level."""
    mean_QHY = answers.estimates.mean_QHY
    lower_QHY = np.where(np.arange(len(answers))[:, None, None] < known, mean_QHY - 1, np.nan)
    made = replace(answers, levels=(0.9,))
    made._bands[0.9,] = Band(mean_QHY, lower_QHY[None], 2 * mean_QHY - lower_QHY[None], ("calibrated",))
    vars(made)["interval_kind"] = "calibrated"
    return made


@pytest.mark.parametrize(
    ("known", "kind"),
    [((0, 0), "none (too few calibration subjects)"), ((0, 1), "calibrated"), ((1, 0), "calibrated")],
)
def test_a_summary_says_what_the_limits_of_its_answers_are(known: tuple[int, ...], kind: str) -> None:
    [answers] = answer_cohort("costar", LinearModel(TUMOR), whole(), request_of(PLANS))
    tally, plain = Tally(TUMOR.outcomes, 6), Tally(TUMOR.outcomes, 6)
    for count in known:
        tally.add(banded(answers, known=count))
    bare = replace(answers, calibration=None)
    vars(bare)["interval_kind"] = "none (one member)"
    plain.add(bare)
    assert (tally.interval_kind, plain.interval_kind) == (kind, "none (one member)")


def test_a_plan_that_stops_what_never_stopped_says_how_many_it_concerns():
    seen = frozenset([(0, 0), (1, 0), (0, 1), (1, 1)])
    support = Support(seen, untreated=(9, 9), stopped=(0, 9), continued=(30, 9))
    model, cohort = LinearModel(TUMOR, meta={"support": support.to_meta()}), whole()
    told = list(warnings_on_plans({"costar": model}, cohort, request_of(PLANS | {"stop": [{"chemotherapy": 1}, {}]})))
    before = TUMOR.treatments.decode(cohort.panel.treatments[cohort.subject_M, np.maximum(cohort.origin_M - 1, 0)])
    on = int(((before[:, 0] == 1) & (cohort.origin_M > 0)).sum())
    assert 0 < on < 12
    assert sorted(str(warning).partition(",")[0] for warning in told) == [
        "plan `stop` stops chemotherapy of 12 subjects",
        f"plan `watch` stops chemotherapy of {on} subjects",
    ]


def test_a_shard_is_warned_of_its_own_subjects(monkeypatch):
    monkeypatch.setattr(answers_module, "MOST_MOMENTS", 3)
    seen = frozenset([(0, 0), (1, 0), (0, 1), (1, 1)])
    support = Support(seen, untreated=(9, 9), stopped=(0, 9), continued=(30, 9))
    model = LinearModel(TUMOR, meta={"support": support.to_meta()})
    stop = request_of({"stop": [{"chemotherapy": 1}, {}]})
    told = [
        list(warnings_on_plans({"costar": model}, whole(), stop, shard=Shard(number, 4))) for number in (1, 2, 3, 4)
    ]
    said = [str(warning).partition(",")[0] for (warning,) in told]
    assert said == ["plan `stop` stops chemotherapy of 3 subjects"] * 4


def test_a_dose_that_never_stopped_is_told_like_other_treatments():
    data = linear_doses(20)
    support = Support(frozenset({()}), untreated=(9,), stopped=(0,), continued=(30,))
    model, panel = LinearModel(data.schema, meta={"support": support.to_meta()}), data.panels[Part("source", "test")]
    plans = parse_plans(json.dumps({"plans": {"stop": [{"dose": 2}, {}]}}), data.schema, horizon=3)
    [told] = warnings_on_plans({"costar": model}, Cohort.of(panel, names_of(panel)), plans)
    assert str(told).startswith("plan `stop` stops dose of 4 subjects, which, once started, never stopped")


def test_a_rule_that_stops_what_never_stopped_says_so_too():
    seen = frozenset([(0, 0), (1, 0), (0, 1), (1, 1)])
    support = Support(seen, untreated=(9, 9), stopped=(0, 9), continued=(30, 9))
    model, cohort = LinearModel(TUMOR, meta={"support": support.to_meta()}), whole()
    plans = {
        "once": {"rule": "chemotherapy if plan_step = 1", "times": 3},
        "on": {"rule": "chemotherapy", "times": 3},
    }
    request = parse_plans(json.dumps({"plans": plans}), TUMOR, horizon=6)
    (told,) = warnings_on_plans({"costar": model}, cohort, request)
    assert str(told).startswith("plan `once` stops chemotherapy of 12 subjects")


def test_each_subject_can_have_plans_of_its_own():
    plans = {plan.name: plan for plan in request_of(PLANS).plans}
    own = {"1": (plans["chemo"],), "8": (plans["watch"], plans["chemo"])}
    dataset, request = make_dataset(), PlanRequest((), by_subject=own)
    with pytest.raises(UsageError, match="the table of plans has none for 1 subject") as caught:
        with_plans(dataset, choose_subjects(dataset, [1, 8, 9]), request)
    assert caught.value.details == ("9",)
    places = with_plans(dataset, choose_subjects(dataset, [1, 8, 9]), request, skip=True)
    strange = replace(request, by_subject=own | {"99": own["1"]})
    with pytest.raises(UsageError, match="the table of plans has 1 subject that is not in the data") as caught:
        with_plans(dataset, choose_subjects(dataset, [1, 8]), strange)
    assert caught.value.details == ("'99'",)
    assert with_plans(dataset, choose_subjects(dataset, [1, 8]), strange, skip=True) == places
    panel = join_places(dataset, places)
    cohort = Cohort.of(panel, names_of(panel), places)
    (answers,) = answer_cohort("costar", LinearModel(TUMOR), cohort, request)
    rows, everybody = tidy_columns(answers), table(whole())
    asked = [("1", "chemo")] * 5 + [("8", "watch")] * 3 + [("8", "chemo")] * 5
    assert [(str(subject), plan) for subject, plan in zip(rows["subject"], rows["plan"], strict=True)] == asked
    same = {(s, p, h): y for s, p, h, y in zip(*(everybody[n] for n in KEYS), everybody["estimate"], strict=True)}
    assert [same[key] for key in zip(*(rows[n] for n in KEYS), strict=True)] == rows["estimate"].tolist()


def test_columns_of_subjects_never_hide_those_of_a_table():
    """Names of two parts, columns that are called as those of the table: these get a `_` behind them."""
    cohort, schema = whole(), TUMOR.model_copy(update={"subject": ("quantity", "reference")})
    labels = np.array([f"{row}/b" for row in range(cohort.panel.n_subjects)], dtype=object)
    named = replace(cohort, panel=replace(cohort.panel, label=labels))
    [answers] = answer_cohort("costar", LinearModel(schema), named, request_of(PLANS))
    rows = table_columns(answers, "tumor", "outcome")
    assert set(rows["quantity"]) == {"outcome"}
    assert set(rows["reference"]) == {None}
    assert (set(rows["reference_"]), rows["quantity_"][0]) == ({"b"}, "0")
    assert list(rows)[:5] == ["dataset", "subject", "label", "quantity_", "reference_"]
