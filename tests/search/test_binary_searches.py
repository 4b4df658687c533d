"""Searches of binary outcomes: nothing measures how far differences may be off, so that none has a level (BAND-7)."""

import json
from functools import cache
from itertools import product

import numpy as np
import pytest

from costar_cli.api.search import cohort_of, search_cohort
from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Part
from costar_cli.methods import METHODS
from costar_cli.methods.base import FittedModel
from costar_cli.plans import TreatmentPlan
from costar_cli.questions.search import SearchReport, SearchRequest, search
from costar_cli.report.pages.search import how_sure, rank_table, search_page
from costar_cli.reporting import NullReporter
from tests.codes import codes
from tests.feedback_worlds import BINARY, LINEAR, FeedbackWorld
from tests.fits import fit_method, model_of

ORIGIN, STEPS = 2, 3
NO_LEVEL = "none (not measured for differences of binary outcomes)"


@cache
def fitted(world: FeedbackWorld) -> tuple[Dataset, FittedModel]:
    data = world.dataset(n=300, horizon=STEPS)
    return data, model_of(fit_method(data, "mixed", METHODS["mixed"].default_settings(), FinetuneConfig()))


def report_of(world: FeedbackWorld, count: int, objective: str = "y at end", **words: object) -> SearchReport:
    data, model = fitted(world)
    subjects = data.panels[Part("source", "test")].subject_id[:count]
    cohort = cohort_of(data, [data.find_subject(int(subject)) for subject in subjects], ORIGIN)
    request = SearchRequest((objective,), steps=STEPS, **words)
    [report] = search_cohort("mixed", model, data, cohort, request, NullReporter())
    return report


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("by", ["estimate", "upper", "lower"])
@pytest.mark.parametrize("world", [BINARY, LINEAR], ids=["binary", "linear"])
def test_only_differences_of_binary_outcomes_have_no_limits(world: FeedbackWorld, by: str, count: int) -> None:
    report, binary = report_of(world, count, by=by), world is BINARY
    document, columns = report.to_json(), report.columns(report.answers)
    kind = NO_LEVEL if binary else "calibrated"
    assert document["model"]["difference_interval_kind"] == kind
    assert set(columns["difference_interval_kind"]) == {kind}
    assert document["model"]["interval_kind"] == "calibrated"
    for answer, subject in zip(report.answers, document["subjects"], strict=True):
        assert np.isfinite(answer.best.difference_M).all()
        assert np.isfinite(answer.best.limits_M2).all()
        assert np.isnan(answer.best.apart_M2).all() == binary
        plans = [*subject["plans"], subject["reference"]]
        assert {plan["difference_lower"] is None for plan in plans} == {binary}
        assert (answer.best.alike > 1) == binary
    assert ("search-binary" in codes(report.diagnostics)) is binary
    assert ("differences-by-law" in codes(report.diagnostics)) is not binary


def test_people_read_no_level_of_differences_and_no_count_of_plans_that_rests_on_one() -> None:
    report = report_of(BINARY, 1)
    assert rank_table(report)[0][2:4] == ["objective (90 %)", "difference"]
    told = " ".join(how_sure(report))
    assert "not differ clearly from it" not in told
    assert "nothing measures which of the others differ clearly from it" in told
    page = search_page(report, {})
    assert "nothing measures how far they may be off" in page
    assert "others do not differ clearly from it" not in page
    assert "others differ clearly from it; " in " ".join(how_sure(report_of(LINEAR, 1)))
    json.dumps(report.to_json(), allow_nan=False)


def test_limits_of_several_binary_outcomes_hold_what_comes() -> None:
    """Of 90 %, under the treatments that were given: 93 to 96 % of 600 subjects of each of four data sets."""
    model = fitted(BINARY)[1]
    panel, held = BINARY.panel(200, ORIGIN + STEPS + 1, seed=77), []
    given_NH = panel.treatments[:, ORIGIN : ORIGIN + STEPS, 0].astype(int)
    came_N = panel.outcomes[:, ORIGIN + 1 :, 0].mean(axis=1)
    for plan in product((0, 1), repeat=STEPS):
        rows = np.flatnonzero((given_NH == plan).all(axis=1))
        one = (TreatmentPlan("given", np.array(plan)[:, None]),)
        asked = SearchRequest(("y mean",), steps=STEPS, only_from=one, reference=one[0], unsupported=True)
        found = search("mixed", model, panel.take(rows), np.full(len(rows), ORIGIN), asked.question(model))
        limits_N2 = np.array([best.limits_M2[0] for best in found])
        held += ((limits_N2[:, 0] <= came_N[rows]) & (came_N[rows] <= limits_N2[:, 1])).tolist()
    assert len(held) == 200
    assert np.mean(held) > 0.87
