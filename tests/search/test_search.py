"""A search finds the plan whose effect is known to be best, and says how sure that is."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Part
from costar_cli.errors import TrainingError, UsageError
from costar_cli.inference import calibration_of
from costar_cli.inference.support import SupportRatings
from costar_cli.plans import TreatmentPlan
from costar_cli.plans.untrusted import Problems
from costar_cli.questions.search import (
    Candidates,
    Constraints,
    Objective,
    SearchQuestion,
    SearchReport,
    SubjectAnswer,
    no_treatment,
    notes_on,
    search,
)
from costar_cli.questions.search import run as run_module
from costar_cli.report.pages.search import rank_table
from tests.codes import codes, said
from tests.whatif.whatif_worlds import TUMOR, LinearModel, make_dataset, report_of, request_of

PANEL = make_dataset().panels[Part("source", "test")]
LAST = PANEL.length - 1
START = PANEL.outcomes[np.arange(4), LAST, 0].astype(float)


def question(model=None, constraints=None, *, steps=6, width=None, reference=None, options=None, **flags):
    problems, model = Problems(), model or LinearModel(TUMOR)
    flags = flags or {"minimise": ["tumour_volume at end"]}
    objective = Objective.parse(TUMOR, steps, problems, **flags)
    limits = Constraints.parse(TUMOR.treatments, problems, **(constraints or {}))
    assert not problems.lines
    candidates = Candidates.of(model, limits, steps, unsupported=False, width=width)
    reference = reference or no_treatment(TUMOR.treatments, steps)
    return SearchQuestion(objective, candidates, reference, **(options or {}))


def best(model=None, *args, rows=(0,), **flags):
    model = model or LinearModel(TUMOR)
    at = np.array(rows)
    return list(search("model", model, PANEL.take(at), LAST[at], question(model, *args, **flags)))


def test_treatments_that_lower_the_outcome_are_all_given_and_those_that_raise_it_never():
    low = best()[0]
    assert (low.values_MHA[0] == 1).all()
    assert low.estimate_M[0] == pytest.approx(START[0] - 24, rel=1e-5)  # two treatments, six steps, two each on average
    assert low.difference_M[0] == pytest.approx(-24, rel=1e-5)
    high = best(LinearModel(TUMOR, coefficients=(1.0, 2.0, 3.0)))[0]
    assert (high.values_MHA[0] == 0).all()
    assert high.difference_M[0] == 0
    assert (best(maximise=["tumour_volume at end"])[0].values_MHA[0] == 0).all()


def test_a_cost_that_outweighs_an_effect_stops_a_treatment_and_the_cheaper_is_kept():
    dear = best(minimise=["tumour_volume at end"], cost=["chemotherapy 2.5", "radiotherapy 1"])[0]
    assert (dear.values_MHA[0] == [0, 1]).all()
    assert dear.estimate_M[0] == pytest.approx(START[0] - 12 + 6, rel=1e-5)


def test_of_equal_plans_the_one_with_the_fewest_treatments_comes_first():
    none = best(LinearModel(TUMOR, coefficients=(0.0, 0.0, 0.0)))[0]
    assert (none.values_MHA[0] == 0).all()


def test_every_subject_has_its_own_plan_where_what_it_received_last_counts():
    found = best(None, {"not_consecutive": ["chemotherapy"]}, rows=(0, 1, 3))
    given = TUMOR.treatments.decode(PANEL.treatments[[0, 1, 3], LAST[[0, 1, 3]] - 1])[:, 0]
    for row, one in zip(given, found, strict=True):
        chemo = one.values_MHA[0, :, 0]
        assert not (chemo[1:] & chemo[:-1]).any()
        assert not (row and chemo[0])
        assert chemo.sum() == 3


def test_subjects_searched_together_are_those_searched_alone():
    together = best(rows=(0, 1, 2, 3))
    for row, one in enumerate(together):
        alone = best(rows=(row,))[0]
        np.testing.assert_array_equal(one.values_MHA, alone.values_MHA)
        np.testing.assert_allclose(one.limits_M2, alone.limits_M2)


def test_the_interval_of_an_outcome_at_the_end_is_its_band_in_a_what_if():
    found = best()[0]
    steps = [{"chemotherapy": 1, "radiotherapy": 1}] * 6
    row = report_of(request=request_of({"both": steps})).to_rows()[-1]
    assert found.estimate_M[0] == pytest.approx(row["estimate"])
    assert found.limits_M2[0] == pytest.approx([row["lower"], row["upper"]])


def test_probabilities_of_being_best_add_up_and_a_plan_that_dominates_has_one():
    sure = best(LinearModel(TUMOR, coefficients=(-2.0, -2.1, -2.2)))[0]
    assert sure.probability_P.sum() == pytest.approx(1)
    assert sure.probability_P[0] == 1
    assert (sure.regret, sure.alike) == (0, 1)
    split = best(LinearModel(TUMOR, coefficients=(-1.0, -0.5, 1.0)))[0]
    assert split.probability_P.sum() <= 1 + 1e-9
    assert split.probability_P[0] < 1
    assert split.regret > 0
    assert split.alike > 1
    assert split.margin[0] > 0
    assert split.margin[1] > 0


def test_caution_prefers_the_plan_whose_limit_is_best():
    unsure = LinearModel(TUMOR, coefficients=(-3.0, -0.5, 1.5))  # lower on average, but nobody knows
    assert best(unsure)[0].values_MHA[0].sum() == 12
    cautious = question(unsure, options={"by": "upper"})
    chosen = next(search("model", unsure, PANEL, LAST, cautious))
    assert chosen.values_MHA[0].sum() == 0
    assert chosen.limits_M2[0, 1] == chosen.limits_M2[:, 1].min()
    bold = next(search("model", unsure, PANEL, LAST, replace(cautious, by="lower")))
    assert bold.limits_M2[0, 0] == bold.limits_M2[:, 0].min()


def test_one_member_has_no_limits_no_probability_and_cannot_be_cautious():
    alone = LinearModel(TUMOR, coefficients=(-1.0,))
    found = best(alone)[0]
    assert np.isnan(found.limits_M2).all()
    assert np.isnan(found.probability_P).all()
    assert found.estimate_M[0] == pytest.approx(START[0] - 12, rel=1e-5)
    with pytest.raises(UsageError, match="has no limits to choose by"):
        next(search("one", alone, PANEL, LAST, question(alone, options={"by": "upper"})))


@pytest.mark.parametrize("by", ["upper", "lower"])
def test_limits_that_too_few_subjects_calibrated_cannot_decide(by):
    model = LinearModel(TUMOR)
    calibration = calibration_of(model)
    few = replace(calibration, subjects=6, radius_LHYB=np.full_like(calibration.radius_LHYB, np.inf))
    model.meta, model.attached = {**model.meta, "calibration": few.to_meta()}, few.to_arrays()
    with pytest.raises(UsageError, match="`few` has no limits at 90% to choose by"):
        next(search("few", model, PANEL, LAST, question(model, options={"by": by})))


@pytest.mark.parametrize("flags", [{"minimise": ["tumour_volume at end"], "cost": ["chemotherapy 2.5"]},
                                   {"minimise": ["tumour_volume maximum", "tumour_volume at step 2"]}])  # fmt: skip
def test_a_beam_as_wide_as_all_beginnings_is_the_exhaustive_search(flags):
    limits = {"at_most": ["radiotherapy 2"], "at_least": ["chemotherapy 1"]}
    full, wide = best(None, limits, steps=4, **flags)[0], best(None, limits, steps=4, width=4**4, **flags)[0]
    np.testing.assert_array_equal(full.values_MHA, wide.values_MHA)
    np.testing.assert_allclose(full.estimate_M, wide.estimate_M)
    assert len(full.all_P) == len(wide.all_P)
    narrow = best(None, limits, steps=4, width=2, **flags)[0]
    assert len(narrow.all_P) < len(full.all_P)
    assert narrow.estimate_M[0] == pytest.approx(full.estimate_M[0])  # polished step by step


def test_a_beam_that_the_data_do_not_support_leaves_constant_plans():
    found = question(width=1).candidates
    plans_PH = found.after(None, lambda plans: -plans.astype(float).sum(axis=1))
    kinds = range(len(found.values_KA))
    assert {(place,) * 6 for place in kinds} <= {tuple(plan) for plan in plans_PH.tolist()}


@pytest.fixture
def chemo_is_red(monkeypatch):
    """Lights call every plan red that gives chemotherapy more than twice."""

    class Support:
        def ratings(self, panel, queries, found):
            chemo_QH = TUMOR.treatments.decode(queries.plan)[..., 0]
            red_QH = (2 * (chemo_QH.cumsum(axis=1) > 2)).astype(np.int8)
            return lights_of(rarest_QH=red_QH, course_QH=0 * red_QH)

    judged_by(Support(), monkeypatch)


def judged_by(support, monkeypatch):
    judged = run_module.CalibratedModel.of
    monkeypatch.setattr(run_module.CalibratedModel, "of", lambda *args: replace(judged(*args), support=support))


def lights_of(rarest_QH, course_QH):
    """Lights of a model whose predictions are precise."""
    practice_QH = np.maximum(rarest_QH, course_QH)
    rating_QHY, none = practice_QH[..., None], 0.0 * practice_QH
    return SupportRatings(0 * rating_QHY, practice_QH, rarest_QH, course_QH, rating_QHY, none[..., None], none)


@pytest.mark.usefixtures("chemo_is_red")
def test_plans_that_the_data_do_not_support_are_left_out_unless_asked_for():
    model = LinearModel(TUMOR)
    found = next(search("model", model, PANEL, LAST, question(model)))
    assert found.values_MHA[0, :, 0].sum() == 2
    assert found.values_MHA[0, :, 1].sum() == 6
    assert (found.rating_M[:-1] < 2).all()
    assert found.left_out > 0
    free = next(search("model", model, PANEL, LAST, question(model, options={"unsupported": True})))
    assert free.values_MHA[0, :, 0].sum() == 6
    assert (free.rating_M[0], free.left_out) == (2, 0)


def test_a_plan_of_usual_steps_is_a_candidate_though_nobody_follows_its_course(monkeypatch):
    class Support:
        def ratings(self, panel, queries, found):
            given_QH = TUMOR.treatments.decode(queries.plan).any(axis=-1)
            red_QH = (2 * (given_QH.cumsum(axis=1) > 4)).astype(np.int8)
            return lights_of(rarest_QH=0 * red_QH, course_QH=red_QH)

    judged_by(Support(), monkeypatch)
    asked, found = question(), best()[0]
    assert (found.values_MHA[0] == 1).all()
    assert (found.rating_M[0], found.left_out) == (2, 0)
    answer = SubjectAnswer(1, None, 3, 5, found)
    report = SearchReport("d", TUMOR, "crn", "crn", "", asked, [answer], members=3)
    assert "search-rare-course" in codes(notes_on(report))


@pytest.mark.usefixtures("chemo_is_red")
def test_lights_are_judged_by_the_predictions_that_ranked_the_plans():
    asked = []

    class Counted(LinearModel):
        def rollout(self, panel, queries, **options):
            asked.append(len(queries))
            return super().rollout(panel, queries, **options)

    found = best(Counted(TUMOR))[0]
    assert asked == [found.considered, found.found + 1]  # then those that are compared, beside the reference


def test_any_plan_can_be_the_reference():
    chemo = TreatmentPlan("chemo", np.tile([1, 0], (6, 1)))
    found = best(reference=chemo)[0]
    assert found.difference_M[0] == pytest.approx(-12, rel=1e-5)
    assert found.apart_M2[0, 0] < -12 < found.apart_M2[0, 1]
    assert (found.values_MHA[-1] == [1, 0]).all()


def test_time_above_a_level_is_expected_over_draws():
    level = START[0] - 3
    found = best(minimise=[f"tumour_volume time above {level}"])[0]
    assert 0 <= found.estimate_M[0] < found.estimate_M[-1] <= 6
    assert found.estimate_M[0] == pytest.approx(round(found.estimate_M[0] * 1_000) / 1_000)  # a share of 1,000 draws


def test_probabilities_that_come_from_members_are_said_to_be_too_high():
    model = LinearModel(TUMOR)
    assert model.draws_are_members
    assert not LinearModel(TUMOR, coefficients=(-1.0,)).draws_are_members  # it has no probabilities
    asked, found = question(model), best(model)[0]
    answer = SubjectAnswer(1, None, 3, 5, found)
    report = SearchReport("d", TUMOR, "crn", "crn", "", asked, [answer], members=3)
    assert "`crn` come from its 3 members" in said(notes_on(report), "search-chances")
    assert "search-chances" not in codes(notes_on(replace(report, members=None)))


def test_differences_by_an_ensemble_are_the_range_of_its_members_and_have_no_level():
    found = best(LinearModel(TUMOR, coefficients=(-1.0, -2.0, -2.5)))[0]
    assert sorted(found.apart_M2[0]) == pytest.approx([-30, -12], rel=1e-5)  # twelve treatments more
    assert found.alike == 1
    unsure = best(LinearModel(TUMOR, coefficients=(-1.0, -2.0, 0.1)))[0]
    assert unsure.alike == unsure.found  # one member would give nothing


def test_objectives_of_several_outcomes_by_an_ensemble_have_a_range_and_single_ones_their_band():
    model = LinearModel(TUMOR, coefficients=(-1.0, -2.0, -2.5))
    several = best(model, minimise=["tumour_volume mean"])[0]
    mean_given = np.arange(2, 13, 2).mean()
    assert several.limits_M2[0] == pytest.approx(START[0] - mean_given * np.array([2.5, 1.0]), rel=1e-5)
    single = best(model)[0]
    band = report_of(model, request_of({"both": [{"chemotherapy": 1, "radiotherapy": 1}] * 6})).to_rows()[-1]
    assert single.limits_M2[0] == pytest.approx([band["lower"], band["upper"]])


@pytest.mark.parametrize(
    ("objective", "kind", "header"), [("at end", "calibrated", "90 %"), ("mean", *["range of the members"] * 2)]
)
def test_what_the_limits_of_a_search_are_is_said_wherever_they_are_shown(objective, kind, header):
    model, flags = LinearModel(TUMOR), {"minimise": [f"tumour_volume {objective}"]}
    answer = SubjectAnswer(1, None, 3, 5, best(model, **flags)[0])
    asked, calibration = question(model, **flags), calibration_of(model)
    report = SearchReport("d", TUMOR, "crn", "crn", "calibrated", asked, [answer], calibration=calibration)
    document, columns = report.to_json()["model"], report.columns([answer])
    assert (document["interval_kind"], document["difference_interval_kind"]) == (kind, "range of the members")
    assert set(columns["difference_interval_kind"]) == {"range of the members"}
    assert set(columns["interval_kind"]) == {kind}
    assert np.isnan(columns["level"]).all() == (kind == "range of the members")
    headers, _ = rank_table(report)
    assert headers[2:4] == [f"objective ({header})", "difference (range of the members)"]
    assert "3 members of model `crn`, which has no level" in said(notes_on(report), "search-range")
    joint = replace(report, answers=[replace(answer, best=replace(answer.best, range_of=0))])
    assert joint.to_json()["model"]["difference_interval_kind"] == "calibrated"


def test_a_prediction_that_is_not_finite_stops_the_search():
    with pytest.raises(TrainingError, match="not finite"):
        best(LinearModel(TUMOR, shift=(np.nan, 0.0, 0.0)))
