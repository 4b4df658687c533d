"""Hazards steps ahead agree with what came, whatever the method, and with the truth under plans (spec SURV-10)."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Panel, Part, Queries, Scaler, Variable
from costar_cli.errors import ArtifactError
from costar_cli.inference import Hazards, OutcomeFacts, survival_of
from costar_cli.inference.course_errors import CourseErrors, least_squares_share
from costar_cli.inference.survival_fit import survival_windows
from costar_cli.methods import METHODS
from costar_cli.methods.base import FittedModel
from costar_cli.training import Trained
from tests.fits import fit_method, model_of
from tests.mortal_world import MORTAL, mortal_dataset, mortal_panel, true_ends

HORIZON = 5
QUICK = FinetuneConfig(epochs=2, members=1, batch_size=256)
CLOSED = [method.name for method in METHODS.values() if method.closed_form and not method.needs]
NETWORKS = [name for name, method in METHODS.items() if not method.closed_form and name != "growth"]
COSTLY = {*NETWORKS, "in-context"}


@pytest.fixture(scope="module")
def mortal() -> Dataset:
    return mortal_dataset((4_000, 1_000, 4_000, 40, 40, 40), horizon=HORIZON)


@pytest.fixture(scope="module")
def by_mean(mortal: Dataset) -> Trained:
    return fit_method(mortal, "mean", None, QUICK)


def survival_by(dataset: Dataset, method: str) -> tuple[FittedModel, Panel]:
    return model_of(fit_method(dataset, method, None, QUICK)), dataset.panels[Part("source", "test")]


def predicted_and_came(model: FittedModel, panel: Panel) -> tuple[np.ndarray, np.ndarray]:
    """Sums over subjects at risk `[H,E]`, from every origin that follows a whole horizon, under treatments given."""
    survival, queries = survival_of(model), survival_windows(panel, HORIZON)
    assert survival is not None
    assert queries is not None
    hazard_QHE = survival.hazards.along(panel, queries, model.rollout(panel, queries).mean(axis=0, dtype=np.float64))
    step_QH, last_Q1 = queries.origin[:, None] + np.arange(HORIZON), panel.length[queries.subject, None] - 2
    at_risk_QH, end_Q1 = step_QH <= last_Q1, panel.ends[queries.subject, None]
    came_QHE = np.stack([(step_QH == last_Q1) & (end_Q1 == code) for code in (1, 2)], axis=-1)
    return (hazard_QHE * at_risk_QH[..., None]).sum(axis=0), came_QHE.sum(axis=0)


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in COSTLY)) for name in (*CLOSED, "growth", *NETWORKS)],
)
def test_as_many_ends_are_predicted_as_came_at_each_step_ahead(mortal: Dataset, method: str) -> None:
    predicted_HE, came_HE = predicted_and_came(*survival_by(mortal, method))
    assert (np.abs(predicted_HE - came_HE) < 3 * np.sqrt(2 * came_HE)).all()  # as many subjects to learn from
    later, came = predicted_HE[1:].sum(axis=0), came_HE[1:].sum(axis=0)
    assert (np.abs(later - came) < 3 * np.sqrt(2 * came)).all()


@pytest.mark.parametrize("plan", [(0, 0, 0, 0, 0), (1, 1, 1, 1, 1), (0, 0, 1, 1, 1)])
def test_ends_under_plans_agree_with_the_truth(mortal: Dataset, by_mean: Trained, plan: tuple[int, ...]) -> None:
    model = model_of(by_mean)  # its predictions ignore plans: covariates and hazards do not
    panel = mortal.panels[Part("source", "test")]
    rows = np.flatnonzero(panel.length > 3).astype(np.int32)
    asked = Queries(
        rows, np.full(len(rows), 2, np.int16), np.tile(np.array(plan, np.uint8)[:, None], (len(rows), 1, 1))
    )
    survival = survival_of(model)
    assert survival is not None
    found = survival.along(panel, asked, model.rollout(panel, asked).mean(axis=0, dtype=np.float64))
    truth = true_ends(panel.covariates[rows, 2, 0], panel.outcomes[rows, 2, 0], plan)
    for estimate, true in zip(found, truth, strict=True):
        np.testing.assert_allclose(
            estimate.mean(axis=0), true, atol=0.05
        )  # the course held at its mean and its start: up to .14 off


def test_hazards_of_files_without_courses_ahead_are_read_as_they_were(mortal: Dataset, by_mean: Trained) -> None:
    later = ("survival/next", "survival/errors")
    old = replace(by_mean, arrays={k: v for k, v in by_mean.arrays.items() if not k.startswith(later)})
    new, survival = (survival_of(model_of(one)) for one in (by_mean, old))
    assert new is not None
    assert survival is not None
    assert new.hazards.errors is not None
    assert (survival.hazards.transition, survival.hazards.errors) == (None, None)
    panel = mortal.panels[Part("source", "val")]
    queries = survival_windows(panel, HORIZON)
    assert queries is not None
    both = [one.hazards.along(panel, queries, np.zeros((len(queries), HORIZON, 1))) for one in (new, survival)]
    np.testing.assert_allclose(both[0][:, 0], both[1][:, 0], rtol=1e-9)  # one step ahead there is nothing to continue
    assert not np.allclose(both[0][:, 1], both[1][:, 1], rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("errors_logits", lambda a: a[:-1]),
        ("errors_outcomes", lambda a: np.full_like(a, np.nan)),
        ("errors_share", None),
        ("next_coef", lambda a: a[:, :-1]),
        ("next_range", None),
    ],
)
def test_damaged_courses_ahead_are_refused(by_mean: Trained, name: str, damage) -> None:
    arrays = dict(by_mean.arrays)
    whole = arrays.pop(f"survival/{name}")
    if damage:
        arrays[f"survival/{name}"] = damage(whole)
    with pytest.raises(ArtifactError, match="survival is damaged"):
        survival_of(model_of(replace(by_mean, arrays=arrays)))


def test_the_share_of_a_model_is_the_one_of_least_squares() -> None:
    rng = np.random.default_rng(0)
    model, other = rng.normal(size=(2, 400, 3))
    known = other + np.array([0.3, -0.5, 1.7]) * (model - other)
    np.testing.assert_allclose(least_squares_share(model, other, known), [0.3, 0.0, 1.0])
    np.testing.assert_array_equal(least_squares_share(other, other, known), 1.0)


def test_kept_errors_are_quantiles_of_those_that_count_and_of_the_last_step_that_has_some() -> None:
    error_QH = np.arange(30.0).reshape(10, 3)
    counts_QH = np.tile([[True, True, False]], (10, 1))
    counts_QH[:5, 1] = False
    kept = CourseErrors.of(np.ones((3, 1)), error_QH[..., None], -error_QH[..., None], counts_QH, error_QH)
    assert kept is not None
    np.testing.assert_array_equal(np.unique(kept.outcome_HKY[0, :, 0]), error_QH[:, 0])
    np.testing.assert_array_equal(np.unique(kept.outcome_HKY[1, :, 0]), error_QH[5:, 1])
    np.testing.assert_array_equal(np.unique(kept.outcome_HKY[2, :, 0]), error_QH[5:, 1])
    np.testing.assert_array_equal(kept.logit_HKE, -kept.outcome_HKY)
    none = np.zeros_like(counts_QH)
    assert CourseErrors.of(np.ones((3, 1)), error_QH[..., None], error_QH[..., None], none, error_QH) is None


def half_carried_forward(panel: Panel, *, masked: bool = True) -> Panel:
    """The panel with half of x, of rows behind the first, as it was a row before."""
    seen_NT = np.random.default_rng(0).random(panel.covariates.shape[:2]) < 0.5
    seen_NT[:, 0] = True
    x_NT1, seen_NT1 = panel.covariates.copy(), seen_NT[..., None] | ~panel.observed[..., None]
    for t in range(1, panel.n_steps):
        x_NT1[:, t] = np.where(seen_NT1[:, t], x_NT1[:, t], x_NT1[:, t - 1])
    return replace(panel, covariates=x_NT1, covariate_observed=seen_NT1 if masked else None)


def hazards_and_effect(panel: Panel) -> tuple[Hazards, float]:
    """Hazards of a panel, and what treatment adds to the next x, in its own unit."""
    scaler = Scaler.fit(panel, MORTAL)
    hazards = Hazards.fit(panel, MORTAL, scaler, OutcomeFacts.of(panel, MORTAL, scaler))
    assert hazards is not None
    assert hazards.transition is not None
    return hazards, float(hazards.transition.coef_CP[1, -1] * scaler.covariates[1, 0])


def test_the_course_ahead_is_learnt_from_what_was_observed() -> None:
    whole = mortal_panel(4_000, 1)
    _, effect = hazards_and_effect(whole)
    assert effect == pytest.approx(-0.5, abs=0.03)
    assert hazards_and_effect(half_carried_forward(whole))[1] == pytest.approx(effect, abs=0.05)
    assert abs(hazards_and_effect(half_carried_forward(whole, masked=False))[1]) < 0.35  # what filling does


def test_errors_of_courses_are_those_of_what_was_observed() -> None:
    held, hazards = mortal_panel(2_000, 2), hazards_and_effect(mortal_panel(4_000, 1))[0]
    seen_NT1 = half_carried_forward(held).observed_covariates
    far = replace(held, covariates=np.where(seen_NT1, held.covariates, np.float32(50)), covariate_observed=seen_NT1)
    queries = survival_windows(held, HORIZON, every=1)
    assert queries is not None
    queries = queries.take(np.flatnonzero(seen_NT1[queries.subject, queries.origin, 0]))
    never = replace(held, covariate_observed=np.zeros_like(seen_NT1))
    all_of, own, fallback = (
        hazards.with_errors(panel, queries, np.zeros((len(queries), HORIZON, 1))).errors for panel in (held, far, never)
    )
    assert all_of is not None
    assert own is not None
    assert fallback is not None
    np.testing.assert_allclose(own.logit_HKE.std(axis=1), all_of.logit_HKE.std(axis=1), rtol=0.3)  # filled: 50 far
    np.testing.assert_array_equal(fallback.logit_HKE, all_of.logit_HKE)


def test_without_observed_pairs_the_course_ahead_is_learnt_from_all() -> None:
    whole = mortal_panel(1_000, 3)
    never = replace(whole, covariate_observed=np.zeros_like(whole.covariates, dtype=bool))
    scaler = Scaler.fit(whole, MORTAL)
    both = [Hazards.fit(panel, MORTAL, scaler, OutcomeFacts.of(panel, MORTAL, scaler)) for panel in (whole, never)]
    assert both[0] is not None
    assert both[1] is not None
    np.testing.assert_array_equal(both[0].transition.coef_CP, both[1].transition.coef_CP)


def test_whether_a_covariate_was_observed_is_no_error_of_the_course_ahead() -> None:
    def with_column(panel: Panel) -> Panel:
        seen_NTX = half_carried_forward(panel).observed_covariates
        covariates = np.concatenate([half_carried_forward(panel).covariates, seen_NTX], axis=2).astype(np.float32)
        mask = np.concatenate([seen_NTX, np.ones_like(seen_NTX)], axis=2)
        return replace(panel, covariates=covariates, covariate_observed=mask)

    schema = MORTAL.model_copy(update={"covariates": (*MORTAL.covariates, Variable(name="x_observed"))})
    panel, held = with_column(mortal_panel(2_000, 1)), with_column(mortal_panel(1_000, 2))
    scaler = Scaler.fit(panel, schema)
    hazards = Hazards.fit(panel, schema, scaler, OutcomeFacts.of(panel, schema, scaler))
    assert hazards is not None
    assert hazards.transition is not None
    assert np.ptp(hazards.transition.range_2C[:, 2]) > 1  # ahead it may be either
    swayed = replace(hazards, coef_EP=hazards.coef_EP.copy())
    swayed.coef_EP[:, hazards._covariates.stop - 1] += 10
    queries = survival_windows(held, HORIZON, every=1)
    assert queries is not None
    nothing = np.zeros((len(queries), HORIZON, 1))
    own, other = (one.with_errors(held, queries, nothing).errors for one in (hazards, swayed))
    assert own is not None
    assert other is not None
    np.testing.assert_array_equal(other.logit_HKE.mean(axis=1), own.logit_HKE.mean(axis=1))
