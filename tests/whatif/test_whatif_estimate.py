"""A what-if recovers known effects, says how sure it is, and refuses questions that have no answer."""

import math
from dataclasses import replace

import numpy as np
import pytest
from whatif_worlds import (
    PLANS,
    RETAIL,
    TEST_SUBJECT,
    TUMOR,
    LinearModel,
    column,
    made_calibration,
    make_dataset,
    report_of,
    request_of,
)

from costar_cli.data import Part
from costar_cli.errors import MismatchError, TrainingError, UsageError
from costar_cli.inference.conformal import GRID
from costar_cli.questions import COLUMNS, estimate_outcomes
from costar_cli.questions.tables import difference_title
from costar_cli.report.figures.whatif import draw_whatif
from costar_cli.report.pages.whatif import whatif_page
from tests.codes import codes, said


def test_a_known_effect_is_recovered_within_its_band():
    report = report_of(LinearModel(TUMOR, coefficients=(-1.0, -2.0, -3.0)))
    last = float(make_dataset().panels[Part("source", "test")].outcomes[0, -1, 0])
    rows = report.to_rows()
    np.testing.assert_allclose(column(rows, "estimate", plan="watch"), [last] * 6, rtol=1e-5)
    np.testing.assert_allclose(column(rows, "estimate", plan="chemo"), last + np.array([-2, -4, -4, -4]), rtol=1e-5)
    np.testing.assert_allclose(column(rows, "estimate", plan="both"), [last - 4] * 2, rtol=1e-5)
    for row in rows:
        assert row["lower"] <= row["estimate"] <= row["upper"]
    assert column(rows, "lower", plan="chemo")[0] < column(rows, "estimate", plan="chemo")[0]
    widths = [row["upper"] - row["lower"] for row in rows if row["plan"] in ("watch", "chemo")]
    np.testing.assert_allclose(widths[:6], [2 * 1.8 * 0.05] * 6, rtol=1e-4)  # members agree: a share of the sd alone
    assert min(widths[6:]) > max(widths[:6])


def test_differences_are_taken_member_by_member():
    model = LinearModel(TUMOR, coefficients=(-1.0, -1.0, -1.0), shift=(-50.0, 0.0, 50.0))
    report = report_of(model)
    outcome, difference = report.to_rows(), report.difference_rows()
    assert column(outcome, "upper", plan="chemo")[0] - column(outcome, "lower", plan="chemo")[0] > 100
    np.testing.assert_allclose(column(difference, "estimate", plan="chemo"), [-1, -2, -2, -2], atol=1e-5)
    widths = [row["estimate"] - row["lower"] for row in difference if row["plan"] == "chemo"]
    assert max(widths) < 0.2  # of what all members share, 5 % of a difference remains
    assert {row["reference"] for row in difference} == {"watch"}
    assert {row["plan"] for row in difference} == {"chemo", "both"}


def test_another_reference_changes_sign_and_steps_are_those_of_the_shorter_plan():
    rows = report_of(reference="both").difference_rows()
    np.testing.assert_allclose(column(rows, "estimate", plan="watch"), [4, 4], atol=1e-5)
    assert column(rows, "step", plan="chemo") == [1, 2]


def test_one_plan_has_nothing_to_differ_from():
    assert report_of(request=request_of({"only": [{}]})).difference_rows() == []


def test_each_plan_reports_its_own_steps_and_padding_changes_nothing():
    together, alone = report_of(), report_of(request=request_of({"both": PLANS["both"]}))
    assert column(together.to_rows(), "estimate", plan="both") == column(alone.to_rows(), "estimate", plan="both")
    assert column(together.to_rows(), "step", plan="both") == [1, 2]


def test_one_member_has_no_interval_and_says_so():
    report = report_of(LinearModel(TUMOR, coefficients=(-1.0,)))
    for row in report.to_rows() + report.difference_rows():
        assert row["lower"] is row["upper"] is row["level"] is None
        assert row["interval_kind"] == "none (one member)"
    assert "`--members 3` or more" in said(report.diagnostics, "bands-few-members")
    two = report_of(LinearModel(TUMOR, coefficients=(-1.0, -2.0)))
    assert {row["interval_kind"] for row in two.to_rows()} == {"none (2 members)"}


def test_a_model_without_calibration_shows_no_band_and_says_what_to_do():
    report = report_of(LinearModel(TUMOR, calibrated=False))
    for row in report.to_rows() + report.difference_rows():
        assert row["lower"] is row["upper"] is row["level"] is None
        assert row["interval_kind"] == "none (not calibrated)"
    assert "`costar finetune --overwrite`" in said(report.diagnostics, "bands-uncalibrated")


def few_subjects() -> LinearModel:
    """A model whose calibration subjects are too few for levels above .6."""
    model, calibration = LinearModel(TUMOR), made_calibration(6, 1)
    radius = np.where(GRID[:, None, None, None] > 0.6, np.inf, calibration.radius_LHYB)
    model.attached = replace(calibration, radius_LHYB=radius).to_arrays()
    return model


def test_too_few_calibration_subjects_for_a_level_are_the_reason_why_it_has_no_limits():
    report = report_of(few_subjects())
    for row in report.to_rows():
        assert row["lower"] is row["upper"] is row["level"] is None
        assert row["interval_kind"] == "none (too few calibration subjects)"
    facts = report.model_facts()["costar"]
    assert (facts["interval_kind"], facts["interval_method"]) == ("none (too few calibration subjects)", None)
    note = said(report.diagnostics, "bands-few-subjects")
    assert note.endswith("shows no band of 90 %: the 50 source subjects that calibrated it are too few")
    assert "bands-cover" not in codes(report.diagnostics)
    both = report_of(few_subjects(), levels=(0.9, 0.5))
    assert {row["interval_kind"] for row in both.to_rows()} == {"calibrated"}
    assert "bands cover 50 % of new subjects" in said(both.diagnostics, "bands-cover")


def test_differences_of_a_single_black_box_say_why_they_have_no_limits():
    report = report_of()
    [model] = report.models
    one = replace(model.estimates, members_RQHY=model.estimates.members_RQHY[:1])
    alone = replace(report, models=(replace(model, estimates=one),))
    assert {row["interval_kind"] for row in alone.difference_rows()} == {"none (single black box)"}
    assert {row["interval_kind"] for row in alone.to_rows()} == {"calibrated"}


def test_differences_by_an_ensemble_are_the_range_of_its_members_and_have_no_level():
    """Nothing measures such limits: `90 %` bands of them held 57 to 61 % of the truth on tumours."""
    report = report_of(levels=(0.9, 0.5))
    for row in report.difference_rows():
        given = row["estimate"] / -2.0  # treatments more than under the reference, of effects -1, -2 and -3
        assert sorted([row["lower"], row["upper"]]) == pytest.approx(sorted([-3 * given, -given]), abs=1e-4)
        assert row["level"] is row["lower_0.5"] is row["upper_0.5"] is None
        assert row["interval_kind"] == "range of the members"
    assert {(row["interval_kind"], row["level"]) for row in report.to_rows()} == {("calibrated", 0.9)}
    facts = report.to_json()["models"]["costar"]
    assert (facts["interval_kind"], facts["difference_interval_kind"]) == ("calibrated", "range of the members")
    assert "the range of its 3 ensemble members, which has no level" in said(report.diagnostics, "differences-range")
    assert "differences-by-law" not in codes(report.diagnostics)
    title = difference_title(report, *report.models)
    assert title == "difference from `watch` (in brackets: range of the members, no level)"
    text = whatif_page(report, {})
    assert text.count("In brackets: the range of the members, which has no level") == 1
    assert text.count("In brackets: the 90 %, 50 % band") == 1


def test_a_model_without_calibration_has_no_range_either():
    report = report_of(LinearModel(TUMOR, calibrated=False))
    assert {row["interval_kind"] for row in report.difference_rows()} == {"none (not calibrated)"}
    assert report.model_facts()["costar"]["difference_interval_kind"] == "none (not calibrated)"


def test_legends_and_captions_tell_of_the_bands_that_there_are():
    none = report_of(few_subjects(), levels=(0.9, 0.8))
    inner, both = report_of(few_subjects()), report_of()
    for report, legend, title in ((none, [], True), (inner, ["50 %"], False), (both, ["90 %", "50 %"], False)):
        drawn = draw_whatif(report)
        labels = [text.get_text() for text in drawn.legends[0].get_texts()]
        assert [label.partition(" band")[0] for label in labels if " % band" in label] == legend
        titles = [axes.get_title(loc="left") for place in drawn.subfigs for axes in place.axes]
        assert any("no band" in text for text in titles) is title
        text = whatif_page(report, {})
        assert ("In brackets: the 90 % band" in text) is (report is both)
        assert ("No band is shown: none (too few calibration subjects)" in text) is (report is none)


def test_what_a_band_covers_and_what_not_is_said_with_its_level():
    report = report_of(levels=(0.8,))
    assert {(row["interval_kind"], row["level"]) for row in report.to_rows()} == {("calibrated", 0.8)}
    note = said(report.diagnostics, "bands-cover")
    assert note.startswith("bands cover 80 % of new subjects on average, per day")
    assert "for other plans and populations there is no guarantee" in note
    assert "no guarantee for one subject" in said(report.diagnostics, "bands-no-guarantee")
    assert "calibrated on 50 source subjects" in said(report.diagnostics, "bands-calibrated")


def test_calibration_on_other_or_selecting_subjects_is_said():
    model = LinearModel(TUMOR)
    model.meta["calibration"] = made_calibration(6, 1, domain="target", apart=False).to_meta()
    note = said(report_of(model).diagnostics, "bands-calibrated")
    assert "50 target subjects; these also selected it, which makes them too narrow; this one is of the source" in note


def test_several_levels_have_columns_of_their_own_and_nest():
    report = report_of(levels=(0.9, 0.5))
    for row in report.to_rows():
        assert row["lower"] <= row["lower_0.5"] <= row["estimate"] <= row["upper_0.5"] <= row["upper"]
    assert report.columns == (*COLUMNS, "lower_0.5", "upper_0.5") == tuple(row)
    assert set(report.columns) == set(report.to_frame().columns)
    assert report.to_json()["levels"] == [0.9, 0.5]


def test_a_level_for_which_the_subjects_are_too_few_has_no_limits():
    rows = report_of(levels=(0.5, 0.9995)).to_rows()
    assert all(row["lower"] is not None for row in rows)
    assert all(row["lower_0.9995"] is row["upper_0.9995"] is None for row in rows)


def test_a_row_says_when_what_and_in_which_unit():
    row = report_of(request=request_of(origin=14)).to_rows()[6]
    assert tuple(row) == COLUMNS
    assert (row["plan"], row["step"], row["time"], row["treatment"]) == ("chemo", 1, 15, "chemotherapy")
    assert (row["outcome"], row["unit"], row["quantity"]) == ("tumour_volume", "cm3", "outcome")


def test_several_models_answer_side_by_side():
    models = {"zero-shot": LinearModel(TUMOR), "few-shot": LinearModel(TUMOR, coefficients=(-1.0,))}
    report = estimate_outcomes(make_dataset(), models, request_of(), subject=TEST_SUBJECT)
    assert list(dict.fromkeys(column(report.to_rows(), "model"))) == ["zero-shot", "few-shot"]
    assert len(report.to_rows()) == 2 * (6 + 4 + 2)


@pytest.mark.parametrize("origin", [20, 10**30])
def test_an_origin_outside_the_series_names_the_range(origin):
    with pytest.raises(UsageError, match="choose 0 to 19"):
        report_of(origin=origin)
    with pytest.raises(UsageError, match="choose 0 to 19"):
        report_of(request=request_of(origin=origin))


def test_a_negative_origin_of_plans_counts_back_from_the_last_step():
    assert report_of(request=request_of(origin=-5)).history.origin == 14
    with pytest.raises(UsageError, match=r"origin -20 is outside the series .*last step 19") as caught:
        report_of(request=request_of(origin=-20))
    assert caught.value.fix == "go back 19 steps at most, or `last`"


def test_a_plan_longer_than_a_models_horizon_names_the_range():
    with pytest.raises(UsageError, match="'watch' has 6 steps; model 'costar' answers 1 to 4"):
        report_of(LinearModel(TUMOR, horizon=4))


def test_more_plans_than_a_report_compares_are_refused_and_a_cohort_is_suggested():
    request = request_of({f"p{i}": [{}] for i in range(2_001)})
    with pytest.raises(UsageError, match="2,001 plans are too many") as caught:
        report_of(LinearModel(TUMOR), request)
    assert "--subjects" in str(caught.value.fix)


def test_an_unknown_subject_names_the_ranges():
    with pytest.raises(UsageError, match="no subject 99") as caught:
        report_of(subject=99)
    assert "source/test: 4 to 7" in str(caught.value.fix)


def test_all_problems_of_a_question_are_reported_at_once():
    with pytest.raises(UsageError) as caught:
        report_of(LinearModel(TUMOR, horizon=5), origin=50, levels=(1.5,), reference="wach")
    assert len(caught.value.details) == 4
    assert "did you mean 'watch'?" in caught.value.details[-1]


def test_no_model_is_an_error():
    with pytest.raises(UsageError, match="no model"):
        estimate_outcomes(make_dataset(), {}, request_of(), subject=TEST_SUBJECT)


def test_a_model_of_other_variables_is_a_mismatch():
    with pytest.raises(MismatchError) as caught:
        report_of(LinearModel(RETAIL))
    assert any("tumour_volume" in detail for detail in caught.value.details)


def test_a_prediction_that_is_not_finite_is_an_error():
    with pytest.raises(TrainingError, match="not finite"):
        report_of(LinearModel(TUMOR, coefficients=(1.0, math.nan)))


def test_the_model_sees_one_subject_and_every_plan_once():
    asked = []

    class Recorder(LinearModel):
        def rollout(self, panel, queries, **options):
            asked.append((panel.n_subjects, len(queries), queries.plan.shape, queries.origin.tolist()))
            return super().rollout(panel, queries)

    report_of(Recorder(TUMOR), request_of(origin=3))
    assert asked == [(1, 3, (3, 6, 4), [3, 3, 3])]
