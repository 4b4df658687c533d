"""Limits that nobody knows are infinite: they prefer no plan and tell none apart; what one subject lacks is its own."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pytest

from costar_cli.api.search import cohort_of, search_cohort
from costar_cli.cli.search import _show_many
from costar_cli.errors import UsageError
from costar_cli.files.tables import table_file
from costar_cli.inference import Calibration, calibration_of
from costar_cli.methods.base import PredictiveDistribution
from costar_cli.questions.search import SearchRequest, search
from costar_cli.reporting import NullReporter
from tests.search.test_search import LAST, PANEL, best, question
from tests.whatif.whatif_worlds import TUMOR, LinearModel, make_dataset

UNKNOWN, KNOWN = 0.95, 0.1  # shares of the parameters: in the last bin, which nothing calibrates, and in the first


def without_last_bin(calibration: Calibration) -> Calibration:
    radius = calibration.radius_LHYB.copy()
    radius[..., -1] = np.inf
    return replace(calibration, radius_LHYB=radius)


@dataclass
class Partly(LinearModel):
    """Two per treatment, with an sd of 1 + .01 per treatment; plans with more than `most` treatments have no limits.

    Subjects with an odd id have no limits under any plan.
    """

    most: int = 3
    alone: bool = False
    has_distribution: bool = True

    def __post_init__(self):
        super().__post_init__()
        self.attached = without_last_bin(calibration_of(self)).to_arrays()

    def predict_distribution(self, panel, queries, summed_Y=None):
        mean_1QHY = self.rollout(panel, queries).mean(axis=0, keepdims=True)
        given_Q = self.schema.treatments.decode(queries.plan).sum(axis=(1, 2))
        unknown_Q = given_Q > self.most
        if self.alone:
            unknown_Q = panel.subject_id[queries.subject] % 2 == 1
        share_Q = np.where(unknown_Q, UNKNOWN, KNOWN)
        sd_Q = 1 + 0.01 * given_Q
        own, noise = (np.broadcast_to((np.sqrt(part) * sd_Q)[None, :, None, None], mean_1QHY.shape)
                      for part in (share_Q, 1 - share_Q))  # fmt: skip
        return PredictiveDistribution(mean_1QHY, own.astype(np.float32), noise.astype(np.float32))


def of_cohort(model, *subjects, **words):
    dataset = make_dataset()
    places = [dataset.find_subject(subject) for subject in subjects or (4, 5, 7)]
    request = SearchRequest(**{"minimise": ("tumour_volume at end",), "steps": 3} | words)
    cohort = cohort_of(dataset, places, "last")
    [report] = search_cohort("m", model, dataset, cohort, request, NullReporter())
    return report


@pytest.mark.parametrize("by", ["upper", "lower"])
def test_a_plan_without_limits_is_never_preferred_to_one_that_has_them(by):
    model = Partly(TUMOR, most=1)
    assert best(model)[0].values_MHA[0].sum() == 12  # the best by estimate has no limits
    found = next(search("m", model, PANEL, LAST, question(model, options={"by": by})))
    known_M = np.isfinite(found.limits_M2).all(axis=1)
    assert found.values_MHA[0].sum() == 1
    known = 13  # nothing, or either treatment at one of six steps
    assert known_M[:known].all()
    assert not known_M[known:-1].any()
    side = found.limits_M2[:known, ["lower", "upper"].index(by)]
    np.testing.assert_allclose(side, np.sort(side))
    rest = found.estimate_M[known:-1]
    np.testing.assert_allclose(rest, np.sort(rest))  # of those without limits the best by estimate first


def test_plans_whose_difference_has_no_limits_cannot_be_told_from_the_best():
    assert best(Partly(TUMOR, most=99))[0].alike == 1
    unsure = best(Partly(TUMOR, most=0))[0]
    assert np.isnan(unsure.apart_M2[:-1]).all()  # the reference differs from itself by nothing
    assert unsure.alike == unsure.found > 1


@pytest.mark.parametrize("by", ["upper", "lower"])
def test_a_subject_without_limits_is_marked_in_its_row_and_the_others_have_their_plans(by):
    report = of_cohort(Partly(TUMOR, alone=True), by=by, unsupported=True)
    assert [answer.best.found > 0 for answer in report.answers] == [True, False, False]
    lacking = report.answers[1].best
    assert lacking.why == "none of its plans has limits at 90% to choose by"
    assert lacking.estimate_M.shape == (1,)  # the reference alone
    first, *others = report.to_json()["subjects"]
    assert first["reason"] is None
    assert [one["reason"] for one in others] == [lacking.why] * 2
    assert [one["plans"] for one in others] == [[], []]
    frame = report.to_frame("polars")
    assert frame.filter(pl.col("reason").is_not_null())["subject"].to_list() == [5, 7]
    assert {row["subject"] for row in pl.DataFrame(report.plan_columns(report.answers)).to_dicts()} == {"4"}
    assert report.to_json()["model"]["interval_kind"] == report.interval_kind  # the model has limits, of others


def test_tables_of_subjects_with_and_without_plans_go_together(tmp_path):
    report = of_cohort(Partly(TUMOR, alone=True), by="upper")
    with table_file(tmp_path / "t.parquet") as table:
        for answer in reversed(report.answers):  # chunks in which nobody has a plan, then one in which all have one
            table.write(report.columns([answer]))
    read = pl.read_parquet(tmp_path / "t.parquet")
    assert read["rank"].dtype == pl.Int64
    assert read["rank"].to_list() == [None, None, 1, 2, 3, 4, 5, None]
    assert read["reason"].null_count() == 6


def test_people_read_how_many_subjects_have_no_plan_and_why():
    class Out:
        def __init__(self):
            self.lines = []

        def text(self, *lines):
            self.lines += lines

        def table(self, *_, **__):
            pass

    class Session:
        out = Out()

    _show_many(Session, of_cohort(Partly(TUMOR, alone=True), by="upper"))
    assert "2 subjects have no plan: none of its plans has limits at 90% to choose by" in Session.out.lines


def test_a_subject_whose_last_treatment_leaves_no_plan_is_marked_and_the_others_have_theirs():
    chemo = TUMOR.treatments.decode(PANEL.treatments[[0, 1, 3], LAST[[0, 1, 3]] - 1])[:, 0]
    assert set(chemo.tolist()) == {0, 1}
    words = {"at_least": ("chemotherapy 1",), "not_consecutive": ("chemotherapy",), "steps": 1}
    report = of_cohort(LinearModel(TUMOR), **words)
    assert [answer.best.found > 0 for answer in report.answers] == [not given for given in chemo]
    reasons = [answer.best.why for answer in report.answers if not answer.best.found]
    assert all(why.endswith("after what the subject received last") for why in reasons)
    with pytest.raises(UsageError, match="after what the subject received last"):
        of_cohort(LinearModel(TUMOR), [4, 5, 7][int(chemo.argmax())], **words)


def test_where_nobody_can_have_limits_the_search_says_so_before_it_looks_at_anyone():
    few = LinearModel(TUMOR)
    few.attached = without_last_bin(calibration_of(few)).to_arrays() | {
        "calibration/radius": np.full_like(calibration_of(few).radius_LHYB, np.inf, dtype=np.float32)
    }
    with pytest.raises(UsageError, match="`m` has no limits at 90% to choose by"):
        of_cohort(few, by="upper")


def test_an_objective_of_several_steps_has_no_limits_to_choose_by_in_a_model_that_draws_nothing():
    two = LinearModel(TUMOR, coefficients=(-1.0, -2.0))
    with_limits = LinearModel(TUMOR)
    two.meta, two.attached = with_limits.meta, with_limits.attached
    asked = question(two, minimise=["tumour_volume mean"], options={"by": "upper"})
    with pytest.raises(UsageError, match="has no limits of several steps together to choose by") as caught:
        next(search("two", two, PANEL, LAST, asked))
    assert "at end" in caught.value.fix
