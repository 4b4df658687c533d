"""The truth of a what-if on simulated tumours is the simulator's, to the digit."""

import json
from dataclasses import replace

import numpy as np
import pytest
from whatif_worlds import LinearModel

from costar_cli.data import Part
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.errors import UsageError
from costar_cli.plans import PlanRequest, TreatmentPlan, parse_plans
from costar_cli.questions import estimate_outcomes
from costar_cli.reporting import NullReporter

HORIZON = 4
PART = Part("target", "test")


@pytest.fixture(scope="module")
def dataset():
    sizes = dict.fromkeys(("train", "val", "test", "target_train", "target_val", "target_test"), 6)
    return simulate_tumor(TumorConfig(**sizes, steps=20, horizon=HORIZON, seed=3), NullReporter())


def report_of(dataset, plans, *, subject, origin=None):
    request = PlanRequest(tuple(TreatmentPlan(f"plan {i}", values) for i, values in enumerate(plans)))
    models = {"linear": LinearModel(dataset.schema, horizon=HORIZON)}
    return estimate_outcomes(dataset, models, request, subject=subject, origin=origin, truth=True)


@pytest.mark.parametrize("name", ["one_step", "sequence"])
def test_truth_equals_the_answers_that_the_data_set_stores(dataset, name):
    queries = dataset.queries[PART][name]
    panel = dataset.panels[PART]
    checked = 0
    for row in np.linspace(0, len(queries) - 1, 12).astype(int).tolist():
        one = queries.take(slice(row, row + 1))
        values = dataset.schema.treatments.decode(one.plan[0])
        subject = int(panel.subject_id[one.subject[0]])
        report = report_of(dataset, [values], subject=subject, origin=int(one.origin[0]))
        scored = one.scored[0]
        np.testing.assert_allclose(report.truth[0][scored], one.outcomes[0][scored], rtol=1e-6, atol=1e-6)
        checked += int(scored.sum())
    assert checked >= 12


def test_truth_under_the_given_treatments_is_what_was_observed(dataset):
    panel = dataset.panels[PART]
    row = int(panel.length.argmax())
    origin = 3
    given = dataset.schema.treatments.decode(panel.treatments[row, origin : origin + HORIZON])
    report = report_of(dataset, [given], subject=int(panel.subject_id[row]), origin=origin)
    assert np.isfinite(report.observed[0]).all()
    np.testing.assert_allclose(report.truth[0], report.observed[0], rtol=1e-6, atol=1e-6)


def test_more_treatment_never_truly_grows_the_tumour_one_step_ahead(dataset):
    plans = [np.zeros((1, 2), dtype=np.int64), np.array([[1, 0]]), np.array([[1, 1]])]
    for subject in dataset.panels[PART].subject_id.tolist():
        none, chemo, both = (truth[0, 0] for truth in report_of(dataset, plans, subject=subject).truth)
        assert none >= chemo >= both


def test_the_default_origin_is_answered_over_the_whole_horizon(dataset):
    document = json.dumps({"plans": {"watch": [{}] * HORIZON}})
    request = parse_plans(document, dataset.schema.treatments, horizon=HORIZON)
    models = {"linear": LinearModel(dataset.schema, horizon=HORIZON)}
    for panel in dataset.panels.values():
        for subject in panel.subject_id.tolist():
            report = estimate_outcomes(dataset, models, request, subject=subject, truth=True)
            assert all(isinstance(row["truth"], float) for row in report.to_rows())


def test_a_data_set_read_without_its_truth_has_none_to_tell(dataset):
    with pytest.raises(UsageError, match="truth"):
        report_of(replace(dataset, truth={}), [np.zeros((1, 2), dtype=np.int64)], subject=0)
