"""What a sceptical reader would ask of a what-if: whose history, what was observed, what the models were trained on."""

import json
from dataclasses import replace

import numpy as np
import pytest
from whatif_worlds import (
    ONE_STEP_SUBJECT,
    SCHEMAS,
    TEST_SUBJECT,
    TRAIN_SUBJECT,
    TUMOR,
    LinearModel,
    assert_no_nan,
    column,
    make_dataset,
    report_of,
    request_of,
)

from costar_cli.cli.answers import show_answers
from costar_cli.data import Part
from costar_cli.data.schema import step_axis, step_word, steps_axis
from costar_cli.errors import UsageError
from costar_cli.plans import PlanRequest, TreatmentPlan
from costar_cli.reporting.output import Output
from tests.codes import codes, said


def simulated(dataset, part, row, origin, values):
    return np.full((*values.shape[:-1], 1), 40.0) - values.sum(axis=-1, keepdims=True)


@pytest.fixture
def known_truth(monkeypatch):
    monkeypatch.setattr("costar_cli.questions.truth.truth_of", lambda _: simulated)


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
    assert "trained-on-subject" in codes(report_of(subject=TRAIN_SUBJECT).diagnostics)
    assert not {"trained-on-subject", "trained-on-some"} & codes(report_of(subject=TEST_SUBJECT).diagnostics)


def test_a_model_trained_on_some_subjects_of_the_part_says_perhaps():
    report = report_of(LinearModel(TUMOR, trained_on={"source/train": 3}), subject=TRAIN_SUBJECT)
    assert report.models[0].trained_on_subject is None
    assert "3 of the 4 source/train subjects, possibly" in said(report.diagnostics, "trained-on-some")


def test_a_model_that_does_not_say_what_it_was_trained_on_is_unknown_rather_than_untrained():
    report = report_of(LinearModel(TUMOR, trained_on={}))
    assert report.models[0].trained_on_subject is None
    assert "training-unknown" in codes(report.diagnostics)


@pytest.mark.parametrize(("parent", "trained"), [("same", True), ("other", None)])
def test_training_counts_of_another_data_set_say_nothing_about_this_subject(parent, trained):
    model = LinearModel(TUMOR, parents={"dataset": parent})
    report = report_of(model, dataset=replace(make_dataset(), digest="same"), subject=TRAIN_SUBJECT)
    assert report.models[0].trained_on_subject is trained


@pytest.mark.parametrize(("parent", "same"), [("this", True), ("other", False), ("", None)])
def test_a_model_of_another_data_set_is_marked_in_headings_and_facts(parent, same):
    model = LinearModel(TUMOR, parents={"dataset": parent})
    report = report_of(model, dataset=replace(make_dataset(), digest="this"))
    assert report.models[0].heading == "costar" + " (trained on other data)" * (same is False)
    assert report.to_json()["models"]["costar"]["same_data"] is same
    assert set(column(report.to_rows(), "model")) == {"costar"}


def test_impossible_values_are_shown_and_noted():
    report = report_of(LinearModel(TUMOR, coefficients=(-100.0, -101.0)))
    assert min(column(report.to_rows(), "estimate")) < 0
    assert "tumour_volume are negative" in said(report.diagnostics, "negative-estimates")
    positive = report_of(LinearModel(TUMOR, coefficients=(0.1, 0.1)))
    assert "negative-estimates" not in codes(positive.diagnostics)


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


@pytest.mark.parametrize(
    ("unseen", "origin", "last"), [([4, 12], 12, "last observed at day 11"), ([0, 12], 0, "never observed before")]
)
def test_an_outcome_that_was_not_observed_at_the_origin_is_noted(unseen, origin, last):
    dataset = make_dataset()
    part = Part("source", "test")
    panel = dataset.panels[part]
    mask = panel.observed_outcomes.copy()
    mask[0, unseen] = False
    holes = replace(dataset, panels={**dataset.panels, part: replace(panel, outcome_observed=mask)})
    note = said(report_of(dataset=holes, origin=origin).diagnostics, "not-observed-at-origin")
    assert note.startswith(f"tumour_volume was not observed at the forecast start, day {origin} ({last})")
    assert "not-observed-at-origin" not in codes(report_of(dataset=holes, origin=10).diagnostics)


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
    document = report_of(levels=(0.7,)).to_json()
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


@pytest.mark.parametrize(
    ("unit", "word", "axis", "axis_of_many"),
    [
        ("day", "day", "day", "days"),
        ("hours", "hours", "hours", "hours"),
        ("school year", "school year", "school year", "school years"),
        ("6 hours", "step", "step (6 hours each)", "steps of 6 hours"),
    ],
)
def test_a_step_of_several_hours_is_called_a_step_wherever_it_is_named(unit, word, axis, axis_of_many, capsys):
    assert (step_word(unit), step_axis(unit), steps_axis(unit)) == (word, axis, axis_of_many)
    made = make_dataset()
    schema = made.schema.model_copy(update={"step": unit})
    model = LinearModel(schema)
    report = report_of(model, request_of(), replace(made, schema=schema))
    show_answers(Output("whatif"), report)
    lines = capsys.readouterr().out.splitlines()
    assert f", {word} {report.history.origin} of " in lines[0]
    assert any(line.strip().startswith(axis) for line in lines)
    assert any(line.startswith(f"plan {report.plans[0].name}: {word} ") for line in lines)


@pytest.mark.parametrize(("unit", "said"), [("day", "day"), ("6 hours", "step"), ("hours", "hours")])
def test_the_report_repeats_each_plan_in_words(unit, said):
    dataset = make_dataset()
    schema = TUMOR.model_copy(update={"step": unit})
    report = report_of(LinearModel(schema), request_of(origin=3), replace(dataset, schema=schema))
    assert report.plans_in_words() == {
        "watch": f"{said} 3-8 none",
        "chemo": f"{said} 3-4 chemotherapy, then none",
        "both": f"{said} 3 chemotherapy+radiotherapy, then none",
    }
    assert report.to_json()["plans_in_words"] == report.plans_in_words()
