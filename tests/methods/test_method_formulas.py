"""Formulas of methods against values that are worked out another way: by loops, by slopes, by draws."""

import numpy as np
import pytest
import torch

from costar_cli.data import Panel, PanelSchema, Scaler, TreatmentEncoding, Variable
from costar_cli.methods.boosting.features import Histories
from costar_cli.methods.boosting.method import _Side
from costar_cli.methods.mixed.law import lasting, noise_over
from costar_cli.methods.regression.ridge import PENALTIES, _path_from, _Prior
from costar_cli.methods.regression.ridge_moments import StepMoments
from costar_cli.methods.shared.outcome_forms import OutcomeForm, choose_forms
from costar_cli.methods.shared.outcome_scale import OutcomeScale


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


@pytest.fixture
def histories() -> tuple[Panel, PanelSchema, Histories]:
    """Three subjects of six steps: a count, which changes by its usual size, and an amount, with two past steps."""
    rng = np.random.default_rng(0)
    schema = PanelSchema(
        covariates=(Variable(name="x"),),
        treatments=TreatmentEncoding(mode="multilabel", names=("a",), levels=(("off", "on"),)),
        outcomes=(Variable(name="sales", kind="count"), Variable(name="mood")),
        statics=(Variable(name="v"),),
    )
    outcomes = np.stack([rng.poisson(5, (3, 6)) * np.array([[1], [4], [0]]), rng.normal(size=(3, 6))], axis=-1)
    panel = Panel(
        rng.normal(size=(3, 6, 1)).astype(np.float32), rng.integers(0, 2, (3, 6, 1)).astype(np.float32),
        outcomes.astype(np.float32), rng.normal(size=(3, 1)).astype(np.float32), np.full(3, 6), np.arange(3),
    )  # fmt: skip
    scaler = Scaler.fit(panel, schema)
    forms = choose_forms(panel, schema, scaler)
    assert [form.kind for form in forms] == ["local", "additive"]
    return panel, schema, Histories(panel, scaler, schema.treatments, forms, 2)


def usual_size(y_T: np.ndarray, sd: float) -> float:
    """The mean size of a history, as if two steps of a tenth of an sd had come before (GROWTH-1)."""
    return (sum(abs(y) for y in y_T) + 2 * 0.1 * sd) / (len(y_T) + 2)


def test_rows_of_counts_weigh_by_the_usual_size_of_their_subject_and_others_alike(histories) -> None:
    panel, _, seen = histories
    side, sd, y_NT = _Side(panel, seen), seen.sd_Y[0], panel.outcomes[..., 0].astype(float)
    rows = side.rows(1, 0, 100, 0, logistic=False)
    for row, (n, t) in enumerate((n, t) for n in range(3) for t in range(4)):
        size = usual_size(y_NT[n, : t + 1], sd)
        assert rows.weight_M[row] == pytest.approx(size / sd)
        assert rows.answer_M[row] == pytest.approx(np.clip((y_NT[n, t + 2] - y_NT[n, t]) / size, -10, 10))
    assert (side.rows(1, 1, 100, 0, logistic=False).weight_M == 1).all()


@pytest.mark.parametrize("outcome", [0, 1])
def test_the_columns_of_a_history_are_those_of_the_spec(histories, outcome: int) -> None:
    panel, _, seen = histories
    a_NT, x_NT, other = panel.treatments[..., 0], panel.covariates[..., 0], 1 - outcome
    for n in range(3):
        for t in range(6):
            y_T, others_T, sd_Y = panel.outcomes[n, : t + 1, outcome], panel.outcomes[n, : t + 1, other], seen.sd_Y
            unit = usual_size(y_T, sd_Y[0]) if outcome == 0 else sd_Y[1]
            recent = y_T[0]
            for y in y_T[1:]:
                recent = 0.7 * recent + 0.3 * y
            expected = [
                *((y_T[t - j] - y_T[t]) / unit if t >= j else np.nan for j in (1, 2)),
                (np.mean(y_T) - y_T[t]) / unit,
                (recent - y_T[t]) / unit,
                y_T[t] / unit,
                others_T[t] / sd_Y[other],
                (others_T[t] - others_T[t - 1]) / sd_Y[other] if t else np.nan,
                *(sum(d ** (t - 1 - s) * a_NT[n, s] for s in range(t)) for d in (0, 0.5, 0.8, 1)),
                x_NT[n, t],
                x_NT[n, t] - x_NT[n, t - 1] if t else np.nan,
                panel.statics[n, 0],
                t,
            ]
            np.testing.assert_allclose(seen.at(np.array([n]), np.array([t]), outcome)[0], expected, rtol=1e-5)


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


def test_errors_of_counts_have_one_size_in_their_unit_whatever_the_level_and_others_that_of_their_form() -> None:
    """A Poisson count varies by the root of its mean, what grows by shares in proportion to its level (GROWTH-3)."""
    kinds, sd = ("local", "relative", "additive"), 2.0
    scale = OutcomeScale([OutcomeForm(kind, zero=0.0, sd=sd, mean=1.0, low=0.0, high=1e4) for kind in kinds])
    mean_M = torch.tensor([20.0, 2_000.0])
    levels = torch.stack([mean_M] * 3, dim=-1)
    unit_MY = scale.error_unit(levels, torch.stack([mean_M / sd, torch.ones(2), torch.ones(2)], dim=-1))
    count_M = np.random.default_rng(0).poisson(mean_M.numpy(), (200_000, 2)).std(axis=0) / unit_MY[:, 0].numpy()
    assert count_M[0] == pytest.approx(count_M[1], rel=0.01)
    assert float(unit_MY[1, 1] / unit_MY[0, 1]) == pytest.approx(100, rel=0.01)
    assert unit_MY[:, 2].tolist() == [1, 1]


@pytest.mark.parametrize(("kind", "step"), [("relative", lambda u: 1.1 * u), ("additive", lambda u: u + 0.2)])
def test_a_gap_of_three_steps_changes_an_outcome_as_three_steps_do(kind: str, step) -> None:
    scale = OutcomeScale([OutcomeForm(kind, zero=0.0, sd=1.0, mean=1.0, low=0.0, high=1e4)])
    now, each, unit = torch.tensor([[3.0]]), torch.tensor([[0.1 if kind == "relative" else 0.2]]), torch.ones(1, 1)
    gap = torch.tensor([[3.0]])
    found = scale.after(now, 3 * each, unit, scale.bounds(now), gap)
    assert float(found) == pytest.approx(step(step(step(3.0))), rel=1e-5)
    assert float(scale.after(now, each, unit, scale.bounds(now), torch.ones(1, 1))) == pytest.approx(
        step(3.0), rel=1e-5
    )


def test_few_shot_ridge_is_the_least_penalised_error_about_the_source() -> None:
    """By least squares on standardised columns, the level first, with the penalty as further rows."""
    rng = np.random.default_rng(0)
    x_MP, y_MY = rng.normal(2, [1, 3, 0.1], (40, 3)), rng.normal(size=(40, 2))
    prior = _Prior(rng.normal(size=2), rng.normal(size=(3, 2)), np.array([1.0, 2.5, 2.0]), np.array([2.0, 1.0, 0.5]))
    ones, columns_MC = np.ones((40, 1)), np.concatenate([np.ones((40, 1)), x_MP, y_MY], axis=1)
    train = StepMoments.of(columns_MC.T @ columns_MC, np.arange(1, 4), np.arange(4, 6))
    assert train is not None
    z_MP = np.concatenate([ones, (x_MP - prior.mean_P) / prior.sd_P], axis=1)
    source = np.concatenate([(prior.intercept_Y + prior.mean_P @ prior.weight_PY)[None],
                             prior.weight_PY * prior.sd_P[:, None]])  # fmt: skip
    (kept_Y, kept_PY), *found = _path_from(train, prior)
    np.testing.assert_array_equal(kept_Y, prior.intercept_Y)
    np.testing.assert_array_equal(kept_PY, prior.weight_PY)
    for penalty, (intercept_Y, weight_PY) in zip(reversed(PENALTIES), found, strict=True):
        rows = np.concatenate([z_MP / np.sqrt(40), np.sqrt(penalty) * np.eye(4)])
        answers = np.concatenate([y_MY / np.sqrt(40), np.sqrt(penalty) * source])
        best, *_ = np.linalg.lstsq(rows, answers)
        np.testing.assert_allclose(intercept_Y + x_MP @ weight_PY, z_MP @ best, rtol=1e-6, atol=1e-8)
        error = float(np.square(y_MY - z_MP @ best).sum() / 40)
        assert train.error(weight_PY, intercept_Y) == pytest.approx(error)
