"""A what-if says what its models cannot have learned: treatments never given, never stopped, and doubts of training."""

from dataclasses import replace

import numpy as np
import pytest
from whatif_worlds import (
    ICU,
    TEST_SUBJECT,
    TUMOR,
    LinearModel,
    assert_no_nan,
    make_dataset,
    report_of,
    request_of,
)

from costar_cli.data import Part
from costar_cli.data.support import Support
from costar_cli.errors import MismatchError, UsageError
from costar_cli.questions import estimate_outcomes
from costar_cli.reporting import NullReporter
from tests.codes import codes, said

NEVER_BOTH = Support(frozenset({(0, 0), (1, 0), (0, 1)}), untreated=(50, 50), stopped=(9, 9), continued=(30, 30))
STAYS = Support(frozenset({(0, 0), (1, 0), (0, 1), (1, 1)}), untreated=(50, 50), stopped=(0, 9), continued=(30, 30))
BOTH = {"both": [{"chemotherapy": 1, "radiotherapy": 1}, {}], "watch": [{}, {}]}


def model_with(support: Support | None = None, *warnings: str) -> LinearModel:
    meta = {"warnings": list(warnings)} | ({"support": support.to_meta()} if support else {})
    return LinearModel(TUMOR, meta=meta)


def test_a_plan_of_what_no_training_subject_was_given_is_refused():
    with pytest.raises(UsageError) as caught:
        report_of(model_with(NEVER_BOTH), request_of(BOTH))
    problem = str(caught.value.problem)
    assert problem.startswith("plan 'both': the combination 'chemotherapy+radiotherapy' was never given together to a ")
    assert problem.endswith("training subject of model 'costar', though each treatment alone or with others was")
    assert "--unsupported" in str(caught.value.fix)
    assert report_of(model_with(NEVER_BOTH), request_of({"watch": [{}]})).models[0].unsupported == {}


def test_asked_for_all_the_same_it_is_answered_and_marked():
    report = report_of(model_with(NEVER_BOTH), request_of(BOTH), unsupported=True)
    document = report.to_json()
    assert_no_nan(document)
    assert document["models"]["costar"]["unsupported"] == {"both": ["chemotherapy+radiotherapy"]}
    [warning] = document["warnings"]
    assert warning.startswith("plan `both`: the combination 'chemotherapy+radiotherapy' was never given together to")
    assert warning.endswith("its effect was not learned")
    supported = report_of(model_with(STAYS), request_of(BOTH), unsupported=True)
    assert "plan-not-learned" not in codes(supported.diagnostics)


def test_a_treatment_that_nobody_was_given_is_no_matter_of_combination():
    never = replace(NEVER_BOTH, seen=frozenset({(0, 0), (1, 0)}))
    with pytest.raises(UsageError, match="'chemotherapy\\+radiotherapy', which no training subject of model 'costar'"):
        report_of(model_with(never), request_of(BOTH))


def test_more_combinations_than_are_kept_are_noted_once_as_unchecked():
    report = report_of(model_with(replace(STAYS, seen=None)), request_of(BOTH))
    note = said(report.diagnostics, "combinations-unchecked")
    assert note.startswith("training subjects of model `costar` received more than 4,096 combinations")
    assert note.endswith("other combinations are not checked")


def test_what_training_saw_decides_not_what_the_data_set_holds():
    dataset = make_dataset()
    never = np.zeros_like(dataset.panels[Part("source", "train")].treatments)
    never[..., 0] = 1
    panels = {part: replace(panel, treatments=never[: panel.n_subjects]) for part, panel in dataset.panels.items()}
    report = report_of(model_with(STAYS), request_of(BOTH), replace(dataset, panels=panels))
    assert "plan-not-learned" not in codes(report.diagnostics)
    [unknown] = report_of(model_with(), request_of(BOTH), replace(dataset, panels=panels)).warnings
    assert "which no subject received" in unknown


def test_the_data_set_is_asked_only_for_models_whose_training_is_not_recorded():
    dataset = make_dataset()
    never = np.zeros_like(dataset.panels[Part("source", "train")].treatments)
    never[..., 0] = 1
    panels = {part: replace(panel, treatments=never[: panel.n_subjects]) for part, panel in dataset.panels.items()}
    models = {"new": model_with(STAYS), "old": model_with()}
    given = replace(dataset, panels=panels)
    report = estimate_outcomes(given, models, request_of(BOTH), subject=TEST_SUBJECT)
    warning = said(report.diagnostics, "plan-not-recorded")
    assert warning.startswith("plan `both` gives 'chemotherapy+radiotherapy', which no subject received")
    assert warning.endswith("model `old` received is not recorded")


def test_a_plan_is_read_once_data_and_models_are_known_to_mean_the_same_by_it():
    read: list[str] = []

    def request():
        read.append("plan")
        return request_of()

    with pytest.raises(MismatchError):
        report_of(LinearModel(ICU), request)
    assert read == []
    assert report_of(model_with(STAYS), request).plans
    assert read == ["plan"]


def test_a_plan_that_stops_what_never_stops_is_warned_of():
    plans = {"stop": [{"chemotherapy": 1}, {}], "go on": [{"chemotherapy": 1}, {"chemotherapy": 1}]}
    [warning] = report_of(model_with(STAYS), request_of(plans, origin=0)).warnings
    assert warning.startswith("plan `stop` stops chemotherapy at day 1, which, once started, never stopped")
    assert warning.endswith("there are no data on stopping")
    assert report_of(model_with(NEVER_BOTH), request_of({"stop": [{}]})).warnings == ()


def test_a_plan_that_ends_a_running_treatment_at_once_is_warned_of():
    dataset = make_dataset()
    part = Part("source", "test")
    given = dataset.panels[part].treatments.copy()
    given[:, 4] = [0, 1, 0, 0]  # chemotherapy at the step before the origin
    dataset = replace(dataset, panels={**dataset.panels, part: replace(dataset.panels[part], treatments=given)})
    request = request_of({"watch": [{}]}, origin=5)
    [warning] = report_of(model_with(STAYS), request, dataset, subject=TEST_SUBJECT).warnings
    assert "plan `watch` stops chemotherapy at day 5" in warning


def test_the_warnings_of_training_are_told_once_with_the_models_name_and_kept():
    heard = NullReporter()
    report = report_of(model_with(None, "weights are not final", "weights are not final"), reporter=heard)
    assert heard.warnings == ["model `costar`: weights are not final"]
    assert report.summary()["warnings"] == heard.warnings


def test_all_that_makes_an_answer_doubtful_is_warned_of_once_and_is_no_note():
    heard = NullReporter()
    model = replace(model_with(replace(NEVER_BOTH, stopped=(0, 9)), "overlap is low"), parents={"dataset": "theirs"})
    plans = {"both": [{"chemotherapy": 1, "radiotherapy": 1}, {}]}
    dataset = replace(make_dataset(), digest="ours")
    report = report_of(model, request_of(plans, origin=0), dataset, unsupported=True, reporter=heard)
    warned = [diagnostic.code for diagnostic in report.diagnostics if diagnostic.severity == "warning"]
    assert sorted(warned) == ["other-data", "plan-not-learned", "plan-stops", "recorded"]
    assert "overlap is low" in said(report.diagnostics, "recorded")
    assert not set(warned) & {diagnostic.code for diagnostic in report.diagnostics if diagnostic.severity == "note"}
    assert heard.diagnostics == [diagnostic for diagnostic in report.diagnostics if diagnostic.code in warned]
    assert tuple(heard.warnings) == report.warnings == tuple(report.to_json()["warnings"])
