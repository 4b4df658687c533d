"""Differences of binary outcomes have no level: no held-out subject shows how far one may be off (spec BAND-7)."""

import pytest

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Part
from costar_cli.methods import METHODS
from costar_cli.questions import WhatIfReport, estimate_outcomes
from tests.codes import codes
from tests.feedback_worlds import BINARY, LINEAR, FeedbackWorld
from tests.fits import fit_method, model_of
from tests.whatif.whatif_worlds import request_of

ORIGIN, STEPS = 2, 3
PLANS = {"never": [{}] * STEPS, "always": [{"a": 1}] * STEPS}
NO_LEVEL = "none (not measured for differences of binary outcomes)"


def report_of(world: FeedbackWorld) -> WhatIfReport:
    data = world.dataset(n=300, horizon=STEPS)
    model = model_of(fit_method(data, "mixed", METHODS["mixed"].default_settings(), FinetuneConfig()))
    subject = int(data.panels[Part("source", "test")].subject_id[0])
    return estimate_outcomes(data, {"mixed": model}, request_of(PLANS, ORIGIN, world.schema, STEPS), subject=subject)


@pytest.mark.parametrize("world", [BINARY, LINEAR], ids=["binary", "linear"])
def test_only_differences_of_binary_outcomes_have_no_limits(world: FeedbackWorld) -> None:
    report, binary = report_of(world), world is BINARY
    rows = report.difference_rows()
    assert len(rows) == STEPS
    assert all(row["estimate"] is not None for row in rows)
    for name in ("lower", "upper", "level"):
        assert all((row[name] is None) is binary for row in rows)
    kind = NO_LEVEL if binary else "calibrated"
    assert {row["interval_kind"] for row in rows} == {kind}
    assert report.model_facts()["mixed"]["difference_interval_kind"] == kind
    assert ("differences-binary" in codes(report.diagnostics)) is binary
    assert ("differences-by-law" in codes(report.diagnostics)) is not binary
    outcomes = report.to_rows()
    assert {(row["interval_kind"], row["level"]) for row in outcomes} == {("calibrated", 0.9)}
