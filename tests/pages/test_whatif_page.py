"""The page of a what-if question: what it says, that it stands alone, and that texts of files are texts."""

import json
from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Variable
from costar_cli.diagnostics import Diagnostic
from costar_cli.inference import SUPPORT_LEVELS
from costar_cli.plans import TreatmentPlan, parse_plans
from costar_cli.questions import ModelAnswers, WhatIfReport, estimate_outcomes
from costar_cli.questions.support import PlanRatings
from costar_cli.report.figures.style import as_svg, figure
from costar_cli.report.pages.whatif import whatif_page
from tests.methods.linear_worlds import fit, linear_data, model_of
from tests.pages.reading import EVIL, assert_inert, read, read_alone
from tests.whatif.whatif_worlds import TUMOR, report_of, request_of

DIGESTS = {"dataset": "d" * 64, "model/ridge": "a" * 64}


@pytest.fixture(scope="module")
def report() -> WhatIfReport:
    """A question to a calibrated model, whose answers have bands and lights."""
    data = linear_data(gamma=4)
    model = model_of(fit(data, "ridge"))
    request = request_of({"never": [{}] * 4, "always": [{"treatment": 1}] * 4}, 6, data.schema, data.horizon)
    subject = int(data.panels[next(iter(data.panels))].subject_id[0])
    return estimate_outcomes(data, {"ridge": model}, request, subject=subject)


def lit(model: ModelAnswers, ratings: tuple[PlanRatings, ...]) -> ModelAnswers:
    """Return answers with these lights, in words and as marks."""
    marks = model.ratings.rating_QHY.copy()
    for q, one in enumerate(ratings):
        marks[q, : len(one.support)] = [[SUPPORT_LEVELS.index(rating) for rating in step] for step in one.support]
    made = replace(model, ratings=replace(model.ratings, rating_QHY=marks))
    vars(made)["plan_ratings"] = ratings
    return made


def test_the_page_says_what_was_asked_answered_and_of_which_files(report: WhatIfReport) -> None:
    reader = read_alone(whatif_page(report, DIGESTS))
    assert reader.tags.count("svg") == 1
    for words in (*report.plans_in_words().values(), "90 % band", "What the bands mean", "d" * 64, "a" * 64):
        assert words in reader.text
    estimate = report.to_rows()[0]["estimate"]
    assert f"{estimate:.3f}" in reader.text or f"{estimate:.4f}" in reader.text
    calibration = report.models[0].calibration
    assert f"calibrated on {calibration.subjects:,} source subjects" in reader.text
    assert whatif_page(report, DIGESTS) == whatif_page(report, DIGESTS)


def test_lights_that_are_not_green_have_their_reason(report: WhatIfReport) -> None:
    [model] = report.models
    red = [("green",), ("red",)], [("",), ("never seen so",)]
    one = model.plan_ratings[0]
    support, reasons = (*red[0], *one.support[2:]), (*red[1], *one.reasons[2:])
    ratings = tuple(replace(one, support=support, reasons=reasons) for one in model.plan_ratings)
    reader = read_alone(whatif_page(replace(report, models=(lit(model, ratings),)), DIGESTS))
    assert "never seen so" in reader.text
    assert "red on" in reader.text


def test_lights_of_a_model_whose_precision_is_not_judged_do_not_speak_of_it(report: WhatIfReport) -> None:
    [model] = report.models
    text = read_alone(whatif_page(report, DIGESTS)).text
    assert "prediction uncertainty is not rated. Amber" in text
    assert "precise enough" not in text
    ratings = tuple(replace(one, precision=(("green",),) * 4) for one in model.plan_ratings)
    judged = replace(report, models=(lit(model, ratings),))
    assert "Green: the answer is precise enough, and similar" in read_alone(whatif_page(judged, DIGESTS)).text


def test_what_bands_mean_is_said_once_and_marks_are_explained_where_they_occur(report: WhatIfReport) -> None:
    [model] = report.models
    text = read_alone(whatif_page(report, DIGESTS)).text
    assert "over the next 4 steps under each" in text
    assert text.count("of new subjects on average") == 1
    assert text.count("calibrated on") == 1
    green = lit(model, tuple(replace(one, support=(("green",),) * 4) for one in model.plan_ratings or ()))
    assert "behind a number" not in read_alone(whatif_page(replace(report, models=(green,)), DIGESTS)).text
    amber = lit(model, tuple(replace(one, support=(("amber",),) * 4) for one in model.plan_ratings or ()))
    text = read_alone(whatif_page(replace(report, models=(amber,)), DIGESTS)).text
    assert "? behind a number" in text
    assert "! behind a number" not in text


def test_the_page_tells_what_a_rule_gave() -> None:
    rule = {"rule": "chemotherapy if plan_step = 1", "times": 3}
    request = parse_plans(json.dumps({"plans": {"watch": [{}] * 3, "rule": rule}}), TUMOR, horizon=6)
    report = report_of(request=request)
    text = read_alone(whatif_page(report, {})).text
    [gave] = report.rules_in_words(report.models[0]).values()
    assert "Treatments under rules" in text
    assert gave in text


def test_a_model_without_bands_or_lights_says_so(report: WhatIfReport) -> None:
    bare = replace(report.models[0], calibration=None, ratings=None)
    vars(bare)["interval_kind"] = "none (1)"
    plain = replace(report, models=(bare,))
    text = read_alone(whatif_page(plain, DIGESTS)).text
    assert "No band is shown: none (1)" in text
    assert "store no support information" in text


def test_several_models_outcomes_and_the_truth_have_their_tables() -> None:
    report = report_of()
    twice = replace(report, models=(*report.models, replace(report.models[0], label="another")))
    page = whatif_page(replace(twice, truth=tuple(np.ones((len(plan), 1)) for plan in report.plans)), {})
    text = read_alone(page).text
    assert "by another" in text
    assert "simulator's truth" in text


def test_texts_of_files_are_shown_as_they_are_whatever_is_in_them(report: WhatIfReport) -> None:
    schema = report.schema.model_copy(update={"outcomes": (Variable(name=EVIL, unit="<b>"),), "step": "<i>day</i>"})
    plans = tuple(TreatmentPlan(f"{EVIL}{i}", plan.values) for i, plan in enumerate(report.plans))
    evil = replace(
        report, dataset=EVIL, schema=schema, plans=plans, reference=plans[0].name,
        diagnostics=(Diagnostic(EVIL, "note", EVIL, EVIL, EVIL), Diagnostic.of("recorded", EVIL, warning=EVIL)),
        history=replace(report.history, name=EVIL), models=(replace(report.models[0], label=EVIL),),
    )  # fmt: skip
    assert_inert(read_alone(whatif_page(evil, {EVIL: EVIL})))


def test_names_that_look_like_attributes_stay_as_they_are_in_a_figure() -> None:
    names = ('a id="q', "url(#q", 'xlink:href="#q', '<g id="q">')
    with figure(3, 3) as drawn:
        for axes, name in zip(drawn.subplots(4), names, strict=True):
            axes.set_title(name)
    reader = read(as_svg(drawn, "answer"))
    assert all(name in reader.text for name in names)
    assert all(name.startswith("answer-") for name in (*reader.ids, *reader.links))
