"""Formulas of methods against values that are worked out another way: by loops, by slopes, by draws."""

import numpy as np
import pytest
import torch

from costar_cli.methods.boosting.features import Histories
from costar_cli.methods.boosting.method import _Side
from costar_cli.methods.mixed.law import lasting, noise_over
from costar_cli.methods.shared.outcome_forms import OutcomeForm, OutcomeScale, choose_forms
from costar_cli.panel import Panel, PanelSchema, Scaler, TreatmentEncoding, Variable


@pytest.mark.parametrize("reversion", [0.3, 0.9, 1.0])
@pytest.mark.parametrize("gap", [1, 2, 7])
def test_noise_over_a_gap_has_the_sd_of_a_chain_of_steps(gap: int, reversion: float) -> None:
    """Each step's noise is left of at the next: the variances of independent steps add up."""
    variance = 0.0
    for _ in range(gap):
        variance = reversion**2 * variance + 1.0
    assert noise_over(np.array(float(gap)), reversion) == pytest.approx(np.sqrt(variance), rel=1e-4)


@pytest.mark.parametrize("reversion", [0.3, 0.9, 1.0])
@pytest.mark.parametrize("decay", [0.0, 0.6, 1.0])
def test_what_acts_over_a_gap_is_what_a_chain_of_steps_adds(decay: float, reversion: float) -> None:
    level, left = 0.0, 1.0
    for _ in range(5):
        level, left = reversion * level + left, decay * left
    assert lasting(np.array(5.0), decay, reversion) == pytest.approx(level, rel=1e-4)


def test_rows_of_counts_weigh_by_the_usual_size_of_their_subject_and_others_alike() -> None:
    """The mean of the history's sizes, as if two steps of a tenth of an sd had come before (GROWTH-1), in sds."""
    rng = np.random.default_rng(0)
    schema = PanelSchema(
        treatments=TreatmentEncoding(mode="multilabel", names=("a",), levels=(("off", "on"),)),
        outcomes=(Variable(name="sales", kind="count"), Variable(name="mood")),
    )
    outcomes = np.stack([rng.poisson(5, (3, 6)) * np.array([[1], [4], [0]]), rng.normal(size=(3, 6))], axis=-1)
    panel = Panel(
        np.zeros((3, 6, 0), np.float32), rng.integers(0, 2, (3, 6, 1)).astype(np.float32),
        outcomes.astype(np.float32), np.zeros((3, 0), np.float32), np.full(3, 6), np.arange(3),
    )  # fmt: skip
    scaler = Scaler.fit(panel, schema)
    forms = choose_forms(panel, schema, scaler)
    assert [form.kind for form in forms] == ["local", "additive"]
    side, sd = _Side(panel, Histories(panel, scaler, schema.treatments, forms, 2)), scaler.outcomes[1, 0]
    rows = side.rows(1, 0, 100, 0, logistic=False)
    asked = [(n, t) for n in range(3) for t in range(4)]
    for row, (n, t) in enumerate(asked):
        size = (sum(abs(outcomes[n, s, 0]) for s in range(t + 1)) + 2 * 0.1 * sd) / (t + 1 + 2)
        assert rows.weight_M[row] == pytest.approx(size / sd)
        change = (outcomes[n, t + 2, 0] - outcomes[n, t, 0]) / size
        assert rows.answer_M[row] == pytest.approx(np.clip(change, -10, 10))
    assert (side.rows(1, 1, 100, 0, logistic=False).weight_M == 1).all()


@pytest.mark.parametrize("kind", ["relative", "additive", "local"])
def test_what_is_left_of_a_difference_is_the_slope_of_a_step(kind: str) -> None:
    """A step that responds to the level alone: by the slope of its logarithm where it changes by shares."""
    scale = OutcomeScale([OutcomeForm(kind, zero=0.0, sd=1.0, mean=1.0, low=0.0, high=100.0)])
    effect, near = -0.4, 1e-3
    unit = torch.ones(1)

    def after(u: float) -> float:
        now = torch.tensor([u], dtype=torch.float64)
        response = effect * (scale.level(now, unit) - scale.level(torch.ones(1), unit))
        return float(scale.after(now, response, unit, scale.bounds(now)))

    high, low = after(1 + near), after(1 - near)
    left = np.log(high / low) / np.log((1 + near) / (1 - near)) if kind == "relative" else (high - low) / (2 * near)
    assert float(scale.reverting(torch.tensor([effect]))) == pytest.approx(left, rel=1e-3)
