"""Rankings of plans under hidden confounding: what is reported, drawn, and true where a confounder was dropped."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit

from costar_cli.data import Dataset, Panel, PanelSchema, Part, Queries, TreatmentEncoding, Variable
from costar_cli.errors import UsageError
from costar_cli.inference import calibration_of, estimate, support_of
from costar_cli.inference.sensitivity import Confounded
from costar_cli.methods.base import FittedModel
from costar_cli.plans import PlanRequest, TreatmentPlan
from costar_cli.questions import estimate_outcomes
from costar_cli.questions.sensitivity import Sensitivity, flip_words, sensitivity
from costar_cli.report.figures.effects import plot_sensitivity
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
    return sensitivity(report.models[0])


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


def plan_bounds(model: FittedModel, data: Dataset, gamma: float, origin: int = 5) -> np.ndarray:
    """Bounds `[never or always,lower or upper,H]` of the mean outcome over test subjects."""
    n = data.panels[TEST].n_subjects
    plan = np.repeat(np.array([0, 1], dtype=np.uint8), HORIZON).reshape(2, HORIZON, 1)
    queries = Queries(
        np.repeat(np.arange(n), 2).astype(np.int32), np.full(2 * n, origin, dtype=np.int16), np.tile(plan, (n, 1, 1))
    )
    calibration, support = calibration_of(model), support_of(model)
    assert calibration is not None
    assert support is not None
    found = estimate(model, data.panels[TEST], queries)
    confounded = Confounded.along(model, data.panels[TEST], queries, found, calibration, support.practice)
    return np.array([[side[row::2, :, 0].mean(axis=0) for side in confounded.bounds(gamma)] for row in (0, 1)])


def mean_bounds(model: FittedModel, data: Dataset, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the mean effect of always against never over test subjects, by step."""
    never, always = plan_bounds(model, data, gamma)
    return always[0] - never[1], always[1] - never[0]


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
    model = replace(model, record=replace(model.record, calibration=None))
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


ODDS, EFFECT, KEEPS, HIDDEN = 3.0, -0.5, 0.5, 0.4


def hidden(n: int, seed: int, rows: int = 6) -> tuple[Panel, np.ndarray]:
    """Return subjects whose treatment reacts to the outcome, and to a hidden u of -1 or 1 that moves the outcome, too.

    u is drawn at each step, so that the past does not tell it; the odds of treatment are within `ODDS` of those of the
    record.
    """
    rng = np.random.default_rng(seed)
    y_NT, a_NT = np.zeros((2, n, rows))
    y_NT[:, 0] = rng.normal(size=n)
    for t in range(rows):
        u_N = rng.choice([-1.0, 1.0], size=n)
        a_NT[:, t] = rng.random(n) < expit(1.5 * y_NT[:, t] + np.log(ODDS) / 2 * u_N)
        if t + 1 < rows:
            noise_N = 0.5 * rng.normal(size=n)
            y_NT[:, t + 1] = KEEPS * y_NT[:, t] + EFFECT * a_NT[:, t] + HIDDEN * u_N + noise_N
    panel = Panel(
        covariates=np.zeros((n, rows, 0), np.float32),
        treatments=a_NT[..., None].astype(np.float32),
        outcomes=y_NT[..., None].astype(np.float32),
        statics=np.zeros((n, 0), np.float32),
        length=np.full(n, rows, dtype=np.int64),
        subject_id=np.arange(n, dtype=np.int64) + 1_000_000 * seed,
    )
    return panel, y_NT


@pytest.mark.parametrize("seed", range(5))
def test_a_confounder_of_known_strength_is_within_the_bounds_at_that_gamma_in_every_sample(seed: int) -> None:
    """The whole way: models, errors on held-out subjects and practice learn from data that hide u."""
    schema = PanelSchema(
        covariates=(),
        outcomes=(Variable(name="y"),),
        treatments=TreatmentEncoding(mode="multilabel", names=("a",), levels=(("off", "on"),)),
    )
    sizes = dict(zip(Part.all(), (800, 300, 400, 10, 10, 10), strict=True))
    made = {part: hidden(size, 10 * seed + i) for i, (part, size) in enumerate(sizes.items())}
    data = Dataset("hidden", schema, HORIZON, {part: panel for part, (panel, _) in made.items()})
    model, origin = model_of(fit(data, "msm")), 1
    start = float(made[TEST][1][:, origin].mean())
    decay_H, steps_H = KEEPS ** np.arange(1, HORIZON + 1), np.cumsum(KEEPS ** np.arange(HORIZON))
    truth = np.array([start * decay_H + given * EFFECT * steps_H for given in (0.0, 1.0)])
    found = plan_bounds(model, data, 1.0, origin)[:, 0]
    assert (np.abs(found - truth) > 0.05).all()
    lower, upper = plan_bounds(model, data, ODDS, origin).swapaxes(0, 1)
    assert ((lower <= truth) & (truth <= upper)).all()
    lower, upper = plan_bounds(model, data, 1.1, origin).swapaxes(0, 1)
    assert not ((lower <= truth) & (truth <= upper)).any()
