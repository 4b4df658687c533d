"""A what-if recovers known effects, says how sure it is, and says what a sceptical reader would ask."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from whatif_worlds import RETAIL, SCHEMAS, TUMOR, LinearModel, SilentModel, make_dataset

from costar_cli.errors import MismatchError, TrainingError, UsageError
from costar_cli.panel import Part
from costar_cli.whatif import COLUMNS, PlanRequest, TreatmentPlan, estimate_outcomes, parse_plans, truth

PLANS = {
    "watch": [{}] * 6,
    "chemo": [{"chemotherapy": 1}, {"chemotherapy": 1}, {}, {}],
    "both": [{"chemotherapy": 1, "radiotherapy": 1}, {}],
}
TEST_SUBJECT, TRAIN_SUBJECT, ONE_STEP_SUBJECT = 4, 0, 6


def request_of(plans=None, origin=None, schema=TUMOR, horizon=6):
    document = {"plans": plans or PLANS} | ({} if origin is None else {"origin": origin})
    return parse_plans(json.dumps(document), schema.treatments, horizon=horizon)


def report_of(model=None, request=None, dataset=None, *, subject=TEST_SUBJECT, **options):
    models = {"costar": model or LinearModel(TUMOR)}
    return estimate_outcomes(dataset or make_dataset(), models, request or request_of(), subject=subject, **options)


def column(rows, name, **where):
    return [row[name] for row in rows if all(row[key] == value for key, value in where.items())]


def assert_no_nan(value):
    json.dumps(value, allow_nan=False)


def simulated(dataset, part, row, origin, values):
    return np.full((len(values), 1), 40.0) - values.sum(axis=1)[:, None]


@pytest.fixture
def known_truth(monkeypatch):
    monkeypatch.setattr(truth, "SIMULATORS", {"tumor": simulated})


def test_a_known_effect_is_recovered_with_its_spread():
    report = report_of(LinearModel(TUMOR, coefficients=(-1.0, -2.0, -3.0)))
    last = float(make_dataset().panels[Part("source", "test")].outcomes[0, -1, 0])
    rows = report.to_rows()
    np.testing.assert_allclose(column(rows, "estimate", plan="watch"), [last] * 6, rtol=1e-5)
    np.testing.assert_allclose(column(rows, "estimate", plan="chemo"), last + np.array([-2, -4, -4, -4]), rtol=1e-5)
    np.testing.assert_allclose(column(rows, "estimate", plan="both"), [last - 4] * 2, rtol=1e-5)
    for row in rows:
        assert row["lower"] <= row["estimate"] <= row["upper"]
    assert column(rows, "lower", plan="chemo")[0] < column(rows, "estimate", plan="chemo")[0]
    assert column(rows, "lower", plan="watch") == column(rows, "upper", plan="watch")


def test_differences_are_taken_member_by_member():
    model = LinearModel(TUMOR, coefficients=(-1.0, -1.0, -1.0), shift=(-50.0, 0.0, 50.0))
    report = report_of(model)
    outcome, difference = report.to_rows(), report.difference_rows()
    assert column(outcome, "upper", plan="chemo")[0] - column(outcome, "lower", plan="chemo")[0] > 100
    np.testing.assert_allclose(column(difference, "estimate", plan="chemo"), [-1, -2, -2, -2], atol=1e-5)
    np.testing.assert_allclose(column(difference, "lower", plan="chemo"), [-1, -2, -2, -2], atol=1e-4)
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
    assert any("no claim of an interval" in note for note in report.notes)


def test_several_members_are_labelled_as_spread_and_not_as_confidence():
    report = report_of(level=0.8)
    assert {(row["interval_kind"], row["level"]) for row in report.to_rows()} == {("ensemble spread", 0.8)}
    assert any("no confidence interval" in note and "0.8" in note for note in report.notes)


def test_a_row_says_when_what_and_in_which_unit():
    row = report_of(request=request_of(origin=14)).to_rows()[6]
    assert tuple(row) == COLUMNS
    assert (row["plan"], row["step"], row["time"], row["treatment"]) == ("chemo", 1, 15, "chemotherapy")
    assert (row["outcome"], row["unit"], row["quantity"]) == ("tumour_volume", "cm3", "outcome")


def test_the_origin_of_the_call_wins_over_the_files_and_the_last_step_is_the_default():
    assert report_of().history.origin == 19
    assert report_of(request=request_of(origin=7)).history.origin == 7
    assert report_of(request=request_of(origin=7), origin=0).history.origin == 0
    assert report_of(subject=ONE_STEP_SUBJECT).history.origin == 0


@pytest.mark.parametrize(("subject", "part"), [(0, "source/train"), (5, "source/test"), (11, "target/test")])
def test_the_subject_is_found_wherever_it_is_and_the_report_says_where(subject, part):
    summary = report_of(subject=subject).summary()
    assert f"{summary['domain']}/{summary['split']}" == part
    assert summary["models"]["costar"]["trained_on_subject"] is (part == "source/train")


def test_a_model_that_was_trained_on_the_subject_says_so():
    assert any("was trained on this subject" in note for note in report_of(subject=TRAIN_SUBJECT).notes)
    assert not any("trained on" in note for note in report_of(subject=TEST_SUBJECT).notes)


def test_a_model_trained_on_some_subjects_of_the_part_says_perhaps():
    report = report_of(LinearModel(TUMOR, trained_on={"source/train": 3}), subject=TRAIN_SUBJECT)
    assert report.models[0].trained_on_subject is None
    assert any("3 of the 4 source/train subjects, perhaps" in note for note in report.notes)


@pytest.mark.parametrize("model", [SilentModel(TUMOR), LinearModel(TUMOR, trained_on={})], ids=["silent", "empty"])
def test_a_model_that_does_not_say_what_it_was_trained_on_is_unknown_rather_than_untrained(model):
    report = report_of(model)
    assert report.models[0].trained_on_subject is None
    assert any("is unknown" in note for note in report.notes)


@pytest.mark.parametrize(("parent", "trained"), [("same", True), ("other", None)])
def test_training_counts_of_another_data_set_say_nothing_about_this_subject(parent, trained):
    model = LinearModel(TUMOR)
    model.parents = {"dataset": parent}
    report = report_of(model, dataset=replace(make_dataset(), digest="same"), subject=TRAIN_SUBJECT)
    assert report.models[0].trained_on_subject is trained


def test_several_models_answer_side_by_side():
    models = {"zero-shot": LinearModel(TUMOR), "few-shot": LinearModel(TUMOR, coefficients=(-1.0,))}
    report = estimate_outcomes(make_dataset(), models, request_of(), subject=TEST_SUBJECT)
    assert list(dict.fromkeys(column(report.to_rows(), "model"))) == ["zero-shot", "few-shot"]
    assert len(report.to_rows()) == 2 * (6 + 4 + 2)


@pytest.mark.parametrize("origin", [-1, 20, 10**30])
def test_an_origin_outside_the_series_names_the_range(origin):
    with pytest.raises(UsageError, match="choose 0 to 19"):
        report_of(origin=origin)
    with pytest.raises(UsageError, match="choose 0 to 19"):
        report_of(request=request_of(origin=origin))


def test_a_plan_longer_than_a_models_horizon_names_the_range():
    with pytest.raises(UsageError, match="'watch' has 6 steps; model 'costar' answers 1 to 4"):
        report_of(LinearModel(TUMOR, horizon=4))


def test_an_unknown_subject_names_the_ranges():
    with pytest.raises(UsageError, match="no subject 99") as caught:
        report_of(subject=99)
    assert "source/test: 4 to 7" in str(caught.value.fix)


def test_all_problems_of_a_question_are_reported_at_once():
    with pytest.raises(UsageError) as caught:
        report_of(LinearModel(TUMOR, horizon=5), origin=50, level=1.5, reference="wach")
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


def test_impossible_values_are_shown_and_noted():
    report = report_of(LinearModel(TUMOR, coefficients=(-100.0, -101.0)))
    assert min(column(report.to_rows(), "estimate")) < 0
    assert any("tumour_volume are below 0" in note for note in report.notes)
    assert not any("below 0" in note for note in report_of(LinearModel(TUMOR, coefficients=(0.1, 0.1))).notes)


def test_the_history_ends_at_the_origin_and_tells_the_treatments_before_it():
    report = report_of(request=request_of(origin=5))
    history = report.to_json()["history"]
    assert [step["time"] for step in history] == [0, 1, 2, 3, 4, 5]
    assert history[-1]["treatments"] is None
    assert set(history[0]["treatments"]) == {"chemotherapy", "radiotherapy"}
    assert set(history[0]["treatments"].values()) <= {"off", "on"}
    panel = make_dataset().panels[Part("source", "test")]
    np.testing.assert_allclose([step["outcomes"]["tumour_volume"] for step in history], panel.outcomes[0, :6, 0])


def test_the_factual_outcome_is_shown_as_long_as_the_plan_is_what_was_given():
    panel = make_dataset().panels[Part("source", "test")]
    given = TUMOR.treatments.decode(panel.treatments[0, 10:14])
    departs = given.copy()
    departs[2:] = 1 - departs[2:]
    request = PlanRequest((TreatmentPlan("given", given), TreatmentPlan("departs", departs)), origin=10)
    rows = report_of(request=request).to_rows()
    np.testing.assert_allclose(column(rows, "observed", plan="given"), panel.outcomes[0, 11:15, 0])
    assert [value is None for value in column(rows, "observed", plan="departs")] == [False, False, True, True]


def test_what_an_outcome_was_filled_with_is_never_shown_as_observed():
    dataset = make_dataset()
    part = Part("source", "test")
    panel = dataset.panels[part]
    mask = panel.observed_outcomes.copy()
    mask[0, [4, 12]] = False
    holes = replace(dataset, panels={**dataset.panels, part: replace(panel, outcome_observed=mask)})
    given = TUMOR.treatments.decode(panel.treatments[0, 10:14])
    report = report_of(request=PlanRequest((TreatmentPlan("given", given),), origin=10), dataset=holes)
    assert np.flatnonzero(np.isnan(report.history.outcomes[:, 0])).tolist() == [4]
    assert [value is None for value in column(report.to_rows(), "observed")] == [False, True, False, False]
    assert_no_nan(report.to_json())
    assert column(report.to_rows(), "estimate")[0] is not None


def test_nothing_is_observed_after_the_last_step():
    assert set(column(report_of().to_rows(), "observed")) == {None}


def test_truth_adds_the_simulators_answer_the_error_and_true_differences(known_truth):
    report = report_of(dataset=make_dataset(with_truth=True), truth=True)
    rows = report.to_rows()
    assert column(rows, "truth", plan="chemo") == [39.0, 39.0, 40.0, 40.0]
    for row in rows:
        assert row["error"] == pytest.approx(row["estimate"] - row["truth"])
    assert column(report.difference_rows(), "truth", plan="both") == [-2.0, 0.0]
    assert_no_nan(report.to_json())


def test_truth_is_absent_unless_asked_for(known_truth):
    assert set(column(report_of(dataset=make_dataset(with_truth=True)).to_rows(), "truth")) == {None}


@pytest.mark.parametrize("name", ["tumor", "retail"])
def test_truth_of_observed_data_is_a_usage_error(name):
    schema = SCHEMAS[name]
    with pytest.raises(UsageError, match="no simulator's truth") as caught:
        report_of(LinearModel(schema), request_of({"a": [{}]}, schema=schema), make_dataset(name), truth=True)
    assert caught.value.where == "--truth"


@pytest.mark.parametrize(
    ("name", "step", "said"),
    [
        ("icu", {"vasopressor": "yes", "dialysis": 1}, "vasopressor+dialysis"),
        ("retail", {"price_class": "-20 %"}, "price_class=-20 %"),
    ],
)
def test_other_data_sets_read_well(name, step, said):
    schema = SCHEMAS[name]
    request = request_of({"as is": [{}, {}], "changed": [step]}, schema=schema)
    report = report_of(LinearModel(schema), request, make_dataset(name), subject=9)
    rows = report.to_rows()
    assert len(rows) == 3 * len(schema.outcomes)
    assert {row["treatment"] for row in rows if row["plan"] == "changed"} == {said}
    assert_no_nan(report.to_json())


def test_json_holds_no_nan_and_comes_back_as_it_was():
    document = report_of(level=0.7).to_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["plans"]["both"][0] == {"chemotherapy": "on", "radiotherapy": "on"}
    assert {"subject", "domain", "split", "origin", "level", "reference", "estimates", "differences"} <= set(document)


def test_a_missing_value_in_the_history_becomes_null():
    report = report_of()
    outcomes = report.history.outcomes.copy()
    outcomes[3] = np.nan
    document = replace(report, history=replace(report.history, outcomes=outcomes)).to_json()
    assert_no_nan(document)
    assert document["history"][3]["outcomes"]["tumour_volume"] is None


def test_the_model_sees_one_subject_and_every_plan_once():
    asked = []

    class Recorder(LinearModel):
        def rollout(self, panel, queries, **options):
            asked.append((panel.n_subjects, len(queries), queries.plan.shape, queries.origin.tolist()))
            return super().rollout(panel, queries)

    report_of(Recorder(TUMOR), request_of(origin=3))
    assert asked == [(1, 3, (3, 6, 4), [3, 3, 3])]
