"""The page of a search: what it says, that it stands alone, and that texts of files are texts."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Part, Variable
from costar_cli.diagnostics import Diagnostic
from costar_cli.inference import calibration_of
from costar_cli.plans.untrusted import Problems
from costar_cli.questions.search import (
    Candidates,
    Constraints,
    Objective,
    SearchQuestion,
    SearchReport,
    SubjectAnswer,
    search,
)
from costar_cli.questions.search.candidates import no_treatment
from costar_cli.questions.search.report import notes_on, with_notes
from costar_cli.report.figures.search import draw_search
from costar_cli.report.pages.search import margin_text, rank_table, search_page
from tests.codes import codes, said
from tests.pages.reading import EVIL, assert_inert, read_alone
from tests.whatif.whatif_worlds import TUMOR, LinearModel, make_dataset

DIGESTS = {"dataset": "d" * 64, "model/linear": "a" * 64}
PART = Part("source", "test")


def searched(model: LinearModel) -> SearchReport:
    """The best of all plans of two steps with chemotherapy once at most, for the first subject."""
    panel, problems = make_dataset().panels[PART].take(np.array([0])), Problems()
    objective = Objective.parse(TUMOR, 2, problems, minimise=["tumour_volume at end"])
    limits = Constraints.parse(TUMOR.treatments, problems, at_most=["chemotherapy 1"])
    candidates = Candidates.of(model, limits, 2, unsupported=False)
    reference = no_treatment(TUMOR.treatments, 2)
    assert reference is not None
    question = SearchQuestion(objective, candidates, reference)
    origin = int(panel.length[0]) - 1
    [best] = search("linear", model, panel, np.array([origin]), question)
    answers = [SubjectAnswer(4, PART, origin, origin + 1, best)]
    report = SearchReport(
        "tumor", TUMOR, "linear", "linear", "calibrated", question, answers, panel, calibration_of(model)
    )
    return with_notes(report)


@pytest.fixture(scope="module")
def report() -> SearchReport:
    return searched(LinearModel(TUMOR))


def test_the_page_says_what_was_searched_found_left_out_and_of_which_files(report: SearchReport) -> None:
    reader = read_alone(search_page(report, DIGESTS))
    assert reader.tags.count("svg") == 1
    assert "over the next 2 days is best for this subject: minimise tumour_volume at end?" in reader.text
    assert "Constraints: at most 'chemotherapy 1'." in reader.text
    assert "The best is estimated to be better than the second by" in reader.text
    assert "90 % interval" in reader.text
    row = report.rows(report.answers[0])[0]
    for words in (row["plan"], f"{row['objective']:.2f}", f"{100 * row['probability_best']:.0f} %", *report.notes):
        assert str(words).replace("`", "") in reader.text
    assert f"{report.answers[0].best.considered} plans were evaluated" in reader.text
    assert "d" * 64 in reader.text
    assert "a" * 64 in reader.text
    assert search_page(report, DIGESTS) == search_page(report, DIGESTS)


def test_lights_have_their_marks_explained_where_one_occurs(report: SearchReport) -> None:
    assert "behind a number" not in read_alone(search_page(report, DIGESTS)).text
    [answer] = report.answers
    amber = replace(answer.best, rating_M=np.ones_like(answer.best.rating_M), left_out=3)
    text = read_alone(search_page(replace(report, answers=[replace(answer, best=amber)]), DIGESTS)).text
    assert "? behind a number: hardly supported" in text
    assert "! behind a number" not in text
    assert "3 plans with a better estimate are left out" in text
    one = replace(report, answers=[replace(answer, best=replace(amber, left_out=1))])
    assert "1 plan with a better estimate is left out" in read_alone(search_page(one, DIGESTS)).text
    assert said(notes_on(one), "search-left-out").startswith("1 plan with a better estimate is left out")
    assert "the prediction is too imprecise" in text
    blind = replace(report, answers=[replace(answer, best=amber)], judges_precision=False)
    text = read_alone(search_page(blind, DIGESTS)).text
    assert "prediction uncertainty is not rated. Amber" in text
    assert "imprecise" not in text


def test_a_model_without_intervals_says_so() -> None:
    text = read_alone(search_page(searched(LinearModel(TUMOR, coefficients=(-1.0,))), DIGESTS)).text
    assert "No intervals" in text
    assert "joint draws" not in text


@pytest.fixture(scope="module")
def few() -> SearchReport:
    """The same search by a model whose calibration subjects are too few for a 90 % band."""
    model = LinearModel(TUMOR)
    calibration = calibration_of(model)
    assert calibration is not None
    calibration = replace(calibration, subjects=6, radius_LHYB=np.full_like(calibration.radius_LHYB, np.inf))
    model.meta, model.attached = {**model.meta, "calibration": calibration.to_meta()}, calibration.to_arrays()
    return searched(model)


def test_too_few_calibration_subjects_are_the_reason_why_there_are_no_intervals(few: SearchReport) -> None:
    why = "6 calibration subjects are too few for a 90 % interval at the steps that the objective reads"
    assert f"No intervals: {why}." in read_alone(search_page(few, DIGESTS)).text
    assert said(few.diagnostics, "search-no-intervals") == f"no intervals: {why}"
    headers, rows = rank_table(few)
    assert headers[2:4] == ["objective", "difference (range of the members)"]
    assert not any("to" in str(row[2]) for row in rows)
    assert few.to_json()["model"]["interval_kind"] == "none (too few calibration subjects)"


def test_a_figure_has_no_name_for_a_band_that_is_not_drawn(report: SearchReport, few: SearchReport) -> None:
    for found, count in ((report, 1), (few, 0)):
        labels = [text.get_text() for text in draw_search(found).legends[0].get_texts()]
        assert sum("band of the best" in label for label in labels) == count


def test_limits_of_single_steps_are_the_reason_where_the_objective_reads_several(report: SearchReport) -> None:
    assert "search-no-intervals" not in codes(report.diagnostics)
    assert rank_table(report)[0][2:4] == ["objective (90 %)", "difference (range of the members)"]
    [answer] = report.answers
    bare = replace(answer.best, limits_M2=np.full_like(answer.best.limits_M2, np.nan))
    text = read_alone(search_page(replace(report, answers=[replace(answer, best=bare)]), DIGESTS)).text
    assert "No intervals: the model has limits of single steps alone, and the objective reads several." in text


def test_texts_of_files_are_shown_as_they_are_whatever_is_in_them(report: SearchReport) -> None:
    schema = report.schema.model_copy(update={"outcomes": (Variable(name=EVIL, unit="<b>"),), "step": "<i>day</i>"})
    objective = replace(report.question.objective, text=EVIL, unit="<b>")
    [answer] = report.answers
    evil = replace(
        report, dataset=EVIL, schema=schema, label=EVIL,
        diagnostics=(Diagnostic(EVIL, "note", EVIL, EVIL, EVIL), Diagnostic.of("recorded", EVIL, warning=EVIL)),
        question=replace(report.question, objective=objective), answers=[replace(answer, name=EVIL)],
    )  # fmt: skip
    assert_inert(read_alone(search_page(evil, {EVIL: EVIL})))


def test_a_margin_that_is_not_zero_is_not_shown_as_zero() -> None:
    assert [margin_text(value, 3) for value in (0.25, 0.0004, 0.0, -3e-7)] == ["0.250", "0.0004", "0.000", "-3e-07"]
