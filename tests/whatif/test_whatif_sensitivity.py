"""Rankings of plans under hidden confounding: what is reported, drawn, and true where a confounder was dropped."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from costar_cli.errors import UsageError
from costar_cli.figures.sensitivity import plot_sensitivity
from costar_cli.methods.base import FittedModel
from costar_cli.panel import Dataset, Part, Queries
from costar_cli.plans import PlanRequest, TreatmentPlan
from costar_cli.uncertainty import calibration_of, estimate, support_of
from costar_cli.uncertainty.sensitivity import Confounded
from costar_cli.whatif import estimate_outcomes
from costar_cli.whatif.sensitivity import Sensitivity, flip_words, sensitivity
from simulators.linear_gaussian import LinearGaussian
from tests.methods.linear_worlds import fit, linear_data, model_of

HORIZON = 3
PLANS = (
    TreatmentPlan("never", np.zeros((HORIZON, 1), dtype=np.int64)),
    TreatmentPlan("always", np.ones((HORIZON, 1), dtype=np.int64)),
    TreatmentPlan("once", np.ones((1, 1), dtype=np.int64)),
)
TEST = Part("source", "test")


@cache
def world(*, dropped: bool) -> tuple[Dataset, FittedModel]:
    data = linear_data(gamma=1.0, train=600, val=200, horizon=HORIZON, drop_confounder=dropped)
    return data, model_of(fit(data, "msm"))


def asked(model: FittedModel, data: Dataset, plans: tuple[TreatmentPlan, ...] = PLANS) -> Sensitivity:
    request, panel = PlanRequest(plans, 5), data.panels[TEST].take(np.array([3]))
    report = estimate_outcomes(data, {"msm": model}, request, subject=panel.names[0])
    return sensitivity(report.models[0], model, panel, 5, plans, "never")


def test_what_is_reported_has_every_plan_step_and_gamma_and_starts_at_the_estimate():
    data, model = world(dropped=False)
    found = asked(model, data).to_json()
    assert [len(likely) for likely in found["probabilities"].values()] == [3, 3, 1]
    assert len(found["bounds"]) == 7 * (3 + 3 + 1)
    assert len(found["differences"]) == 7 * (3 + 1)
    always, once = found["flips"]
    assert (always["plan"], always["step"], always["time"]) == ("always", 3, 8)
    assert (once["plan"], once["step"]) == ("once", 1)
    first = next(row for row in found["differences"] if (row["plan"], row["step"]) == ("always", 3))
    assert first["gamma"] == 1
    assert first["lower"] == pytest.approx(first["upper"])
    assert first["lower"] == pytest.approx(always["difference"])
    assert 1 < always["gamma"] < 100


def test_a_plan_of_one_step_has_the_same_bounds_beside_a_longer_one():
    data, model = world(dropped=False)
    alone = asked(model, data, (PLANS[0], PLANS[2]))
    beside = asked(model, data)
    np.testing.assert_allclose(alone.confounded.bounds(2.0)[0][1, 0], beside.confounded.bounds(2.0)[0][2, 0], rtol=1e-6)


def mean_bounds(model: FittedModel, data: Dataset, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the mean effect of always against never over test subjects, by step."""
    n = data.panels[TEST].n_subjects
    plan = np.repeat(np.array([0, 1], dtype=np.uint8), HORIZON).reshape(2, HORIZON, 1)
    queries = Queries(
        np.repeat(np.arange(n), 2).astype(np.int32), np.full(2 * n, 5, dtype=np.int16), np.tile(plan, (n, 1, 1))
    )
    calibration, support = calibration_of(model), support_of(model)
    assert calibration is not None
    assert support is not None
    found = estimate(model, data.panels[TEST], queries)
    likely = np.exp(support.practice.log_probability(data.panels[TEST], queries, found.mean_QHY))
    lower, upper = (side[..., 0] for side in Confounded.of(found, calibration, likely).bounds(gamma))
    return (lower[1::2] - upper[::2]).mean(axis=0), (upper[1::2] - lower[::2]).mean(axis=0)


def test_bounds_hold_the_mean_effect_that_a_dropped_confounder_hides():
    """Gamma 3.25 bounds the real odds of 95 % of decisions there (benchmarks/sensitivity.py)."""
    truth = LinearGaussian().total_effect(HORIZON)
    data, model = world(dropped=True)
    found, _ = mean_bounds(model, data, 1.0)
    assert (np.abs(found - truth) > 0.2).all()
    lower, upper = mean_bounds(model, data, 3.25)
    assert ((lower < truth) & (truth < upper)).all()
    lower, upper = mean_bounds(model, data, 1.2)
    assert not ((lower < truth) & (truth < upper)).any()


def test_without_a_dropped_confounder_the_mean_effect_needs_none():
    truth = LinearGaussian().total_effect(HORIZON)
    data, model = world(dropped=False)
    lower, upper = mean_bounds(model, data, 1.2)
    assert ((lower < truth) & (truth < upper)).all()


def test_a_model_without_calibration_is_refused():
    data, model = world(dropped=False)
    model = model_of(fit(data, "msm"))
    del model.meta["calibration"]  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="no calibrated distribution"):
        asked(model, data)


def test_the_figure_is_drawn_for_every_format(tmp_path: Path):
    data, model = world(dropped=False)
    report = estimate_outcomes(data, {"msm": model}, PlanRequest(PLANS, 5), subject=data.panels[TEST].names[3])
    for kind in ("png", "svg"):
        path = plot_sensitivity(report, asked(model, data), tmp_path / f"s.{kind}")
        assert path.stat().st_size > 5_000


def test_flips_are_told_in_words():
    assert [flip_words(gamma) for gamma in (None, 1.0, 1.234)] == ["not up to 100", "tie", "1.23"]
