"""The marginal structural model: its regressions, its weights, what it must not see, and data that make it hard."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costar_cli.data import Dataset, Panel, Part, Queries, Scaler
from costar_cli.errors import DataError, UsageError
from costar_cli.files import write_artifact
from costar_cli.methods import load_model
from costar_cli.methods.regression.msm import LagFeatures
from costar_cli.methods.regression.settings import MsmConfig
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.ipw import clip_to_quantiles, cumulative_weights, effective_share
from costar_cli.methods.shared.logistic import LogisticModels, fit_logistic
from tests.methods.linear_worlds import answer, fit, linear_data, model_of, random_dataset, random_queries

UNCLIPPED = MsmConfig(clip=0, plan="steps")


@pytest.fixture(scope="module")
def data() -> Dataset:
    return linear_data(gamma=0.8, train=1500)


def test_tumour_msm_has_the_66_coefficients_of_the_specification(tumor_dataset):
    trained = fit(tumor_dataset, "msm")
    shapes = {name: array.shape[1:] for name, array in trained.arrays.items() if name.startswith("params/")}
    assert sum(map(math.prod, shapes.values())) == 66
    assert shapes["params/numerator.weight"] == (2, 2)
    assert shapes["params/denominator.weight"] == (2, 5)
    assert shapes["params/outcome.history"] == (6, 5, 1)
    assert shapes["params/outcome.plan"] == (6, 2, 1)
    assert trained.meta["stages"] == []


def test_features_at_an_origin_are_doses_before_it_two_steps_of_each_series_and_statics(tumor_dataset):
    panel = tumor_dataset.panel("source", "train")
    scaler = Scaler.fit(panel, tumor_dataset.schema)
    features = LagFeatures(panel, scaler, tumor_dataset.schema)
    row, origin = np.array([3]), np.array([7])
    given = panel.treatments[3] @ dose_table(tumor_dataset.schema.treatments)
    y = (panel.outcomes[3, :, 0] - scaler.outcomes[0]) / scaler.outcomes[1]
    v = (panel.statics[3] - scaler.statics[0]) / scaler.statics[1]
    np.testing.assert_allclose(features.at(row, origin)[0], [*given[:7].sum(axis=0), y[6], y[7], *v])
    np.testing.assert_allclose(features.doses(row, origin, 4)[0], given[7:11].sum(axis=0))
    assert features.width == 5


def test_logistic_models_equal_hand_made_newton_steps_whatever_the_scale_and_with_repeated_columns():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(800, 3)) * [1e-3, 1, 1e4] + [5, 0, 1e5]
    given = rng.random((800, 1)) < 1 / (1 + np.exp(-((features[:, [0]] - 5) * 500 + features[:, [1]])))
    design, weight = np.column_stack([np.ones(800), (features - features.mean(0)) / features.std(0)]), np.zeros(4)
    for _ in range(25):
        p = 1 / (1 + np.exp(-design @ weight))
        weight += np.linalg.solve(design.T @ (design * (p * (1 - p))[:, None]), design.T @ (given[:, 0] - p))
    expected = np.log(np.where(given[:, 0], 1 / (1 + np.exp(-design @ weight)), 1 / (1 + np.exp(design @ weight))))
    for columns in (features, np.column_stack([features, features[:, 1], np.ones(800)])):
        models = fit_logistic(columns, given, iterations=100)
        assert models.converged
        np.testing.assert_allclose(models.log_likelihood(columns, given), expected, atol=1e-4)


def test_likelihood_is_that_of_what_was_given_and_treatments_multiply():
    models = LogisticModels(np.log([1.0, 3.0]), np.zeros((2, 1)), np.array([True, True]))
    given = np.array([[True, True], [True, False], [False, False]])
    probability = np.exp(models.log_likelihood(np.zeros((3, 1)), given))
    np.testing.assert_allclose(probability, [0.5 * 0.75, 0.5 * 0.25, 0.5 * 0.25])


def test_a_treatment_that_all_or_none_received_has_no_model():
    features, given = np.arange(6.0)[:, None], np.array([[1, 0, 1]] * 5 + [[1, 0, 0]], dtype=bool)
    models = fit_logistic(features, given, iterations=100)
    assert models.fitted_L.tolist() == [False, False, True]
    assert not models.coef_LP[:2].any()
    assert not models.intercept_L[:2].any()


def test_weights_of_a_window_are_products_and_clipping_moves_both_ends_to_the_quantiles():
    log_ratio = np.log([[1.0, 2.0, 0.5, 3.0]])
    rows, origins = np.zeros(3, dtype=int), np.array([0, 1, 2])
    np.testing.assert_allclose(cumulative_weights(log_ratio, rows, origins, 1), [2.0, 1.0, 1.5])
    weight = np.arange(1.0, 102.0)
    clipped = clip_to_quantiles(weight, 0.01)
    assert (clipped.min(), clipped.max(), (clipped != weight).sum()) == (2, 100, 2)
    np.testing.assert_array_equal(clip_to_quantiles(weight, 0.0), weight)
    assert effective_share(np.ones(7)) == 1
    assert effective_share(np.array([1.0, 0.0, 0.0, 0.0])) == 0.25


def test_without_confounding_weights_are_near_one(data):
    free = fit(linear_data(gamma=0.0, train=1500), "msm").meta["weights"]
    assert all(step["effective_share"] > 0.97 for step in free)
    assert all(step["effective_share"] < 0.9 for step in fit(data, "msm").meta["weights"])


def test_treatment_models_find_the_probabilities_of_the_simulator(data):
    trained = fit(data, "msm", UNCLIPPED)
    panel = data.panel("source", "test")
    features = LagFeatures(panel, model_of(trained).scaler, data.schema)
    row, step = np.nonzero(np.ones((panel.n_subjects, 9), dtype=bool))
    known = features.at(row, step + 1)
    weight = trained.arrays["params/denominator.weight"][0, 0]
    probability = 1 / (1 + np.exp(-(known @ weight + trained.arrays["params/denominator.intercept"][0, 0])))
    truth = data.truth[Part("source", "test")]["treatment_probability"][row, step + 1]
    assert np.abs(probability - truth).max() < 0.05
    assert [w["mean"] for w in trained.meta["weights"]] == pytest.approx([1.0] * 6, abs=0.05)


def ar_data(n: int = 4000, rho: float = 0.8, effect: float = 2.0, horizon: int = 3) -> Dataset:
    """y_{t+1} = rho y_t + effect a_t + noise, with treatments by the toss of a coin."""
    rng = np.random.default_rng(0)
    base = random_dataset((0, 1, 1, 0), one_hot=False, horizon=horizon, n=5)
    panels = {}
    for i, part in enumerate(Part.all()):
        size = n if part == Part("source", "train") else 300
        a, y = rng.integers(2, size=(size, 30)), rng.normal(size=(size, 30))
        for t in range(29):
            y[:, t + 1] += rho * y[:, t] + effect * a[:, t]
        a[:, -1] = 0
        panels[part] = Panel(
            covariates=np.zeros((size, 12, 0), np.float32),
            treatments=a[:, -12:, None].astype(np.float32),
            outcomes=y[:, -12:, None].astype(np.float32),
            statics=np.zeros((size, 0), np.float32),
            length=np.full(size, 12),
            subject_id=np.arange(size) + 10_000 * i,
        )
    return Dataset("ar", base.schema, horizon, panels)


def test_regressions_are_the_best_linear_predictors_of_an_autoregressive_process():
    rho, effect = 0.8, 2.0
    model = model_of(fit(ar_data(), "msm"))
    intercept, history, plan = (weights[0] for weights in model.weights())
    scale = model.scaler.outcomes[1, 0]
    for h in range(3):
        powers = rho ** np.arange(h, -1, -1)
        dose, before, now = history[h, :, 0]
        assert (dose, before) == pytest.approx((0, 0), abs=0.02)
        assert now == pytest.approx(rho ** (h + 1), abs=0.02)
        assert plan[h, : h + 1, 0, 0] * scale == pytest.approx([effect * powers.mean()] * (h + 1), abs=0.06)
        assert not plan[h, h + 1 :].any()
    assert intercept.shape == (3, 1)


def test_the_published_shift_is_one_index_and_reads_what_others_must_predict():
    """The release asks regressor h one step later, with one treatment fewer (E-13); ours does not."""
    rho, effect, h, origin = 0.8, 2.0, 1, 5
    data = ar_data(rho=rho, effect=effect)
    model, panel = model_of(fit(data, "msm")), data.panel("source", "test")
    rows, next_step = np.arange(panel.n_subjects, dtype=np.int32), np.arange(12) == origin + 1
    moved = replace(panel, outcomes=panel.outcomes + next_step[None, :, None].astype(np.float32))

    def asked(panel: Panel, first: int, steps: int) -> np.ndarray:
        plan = np.zeros((len(rows), h + 1, 1), dtype=np.uint8)
        plan[:, :steps] = panel.treatments[:, first : first + steps]
        return model.rollout(panel, Queries(rows, np.full(len(rows), first, np.int16), plan))[0, :, h, 0]

    aligned, shifted = asked(panel, origin, h + 1), asked(panel, origin + 1, h)
    noise = 1 + rho**2 + effect**2 * (1 - rho) ** 2 / 8  # of two steps, and what a sum of doses cannot tell apart
    assert np.mean((aligned - panel.outcomes[:, origin + h + 1, 0]) ** 2) == pytest.approx(noise, rel=0.2)
    assert asked(moved, origin + 1, h) - shifted == pytest.approx(rho ** (h + 1), abs=0.02)
    np.testing.assert_array_equal(asked(moved, origin, h + 1), aligned)


def test_steps_of_a_plan_have_their_own_effects_where_asked_for(data):
    panel = data.panel("target", "test")
    for plan, same in (("dose", True), ("steps", False)):
        model = model_of(fit(data, "msm", MsmConfig(plan=plan)))
        early, late = (answer(model, panel, origin=4, plan=p) for p in ([1, 0, 0], [0, 0, 1]))
        assert (abs(early[2] - late[2]) < 1e-6) == same


def test_few_shot_refits_source_and_target_together(data):
    source = model_of(fit(data, "msm"))
    few = fit(data, "msm", domain="target", start=source)
    train, target = data.panel("source", "train"), data.panel("target", "train")
    both = replace(
        train,
        **{
            name: np.concatenate([getattr(train, name), getattr(target, name)])
            for name in ("covariates", "treatments", "outcomes", "statics", "length", "subject_id")
        },
    )
    rest = {part: panel for part, panel in data.panels.items() if part.split != "train"}
    joined = replace(data, panels={Part("source", "train"): both, **rest}, queries={}, truth={})
    expected = fit(joined, "msm", start=None)
    # the scaler of the source is kept, so only predictions in data units can be compared
    panel = data.panel("target", "test")
    queries = random_queries(panel, 6)
    one, other = model_of(few).rollout(panel, queries), model_of(expected).rollout(panel, queries)
    np.testing.assert_allclose(one, other, atol=2e-4)
    assert few.meta["trained_on"] == {"source/train": 1500, "target/train": 20}
    assert np.abs(one - source.rollout(panel, queries)).max() > 1e-3


def test_the_first_step_has_no_step_before_and_does_not_look_ahead(data):
    model, panel = model_of(fit(data, "msm")), data.panel("target", "test")
    changed = replace(panel, outcomes=panel.outcomes.copy(), covariates=panel.covariates.copy())
    changed.outcomes[:, 1:] += 7
    changed.covariates[:, 1:] += 7
    plan = [1, 0, 1]
    assert answer(model, changed, origin=0, plan=plan) == pytest.approx(answer(model, panel, origin=0, plan=plan))


@pytest.mark.parametrize(("dims", "one_hot"), [((25, 3, 2, 44), False), ((47, 22, 1, 22), True), ((0, 1, 3, 0), False)])
def test_any_dimensions_are_fitted_and_answered(dims, one_hot):
    data = random_dataset(dims, one_hot=one_hot)
    model = model_of(fit(data, "msm"))
    panel = data.panel("target", "test")
    predicted = model.rollout(panel, random_queries(panel, 4))
    assert predicted.shape == (1, 50, 4, dims[2])
    assert np.isfinite(predicted).all()


def test_a_treatment_that_nobody_receives_costs_nothing_but_its_effect():
    data = random_dataset((1, 2, 1, 0), one_hot=False, n=400)
    panels = {part: replace(p, treatments=p.treatments * [1, 0]) for part, p in data.panels.items()}
    panels = {part: replace(p, treatments=p.treatments.astype(np.float32)) for part, p in panels.items()}
    trained = fit(replace(data, panels=panels), "msm")
    assert not trained.arrays["params/denominator.weight"][0, 1].any()
    assert trained.arrays["params/outcome.plan"][0, :, 1] == pytest.approx(0, abs=1e-9)


def test_weights_of_hopeless_overlap_stay_finite(tumor_dataset):
    log_ratio = np.array([[400.0, 400.0, -900.0]])
    rows = np.zeros(3, dtype=int)
    weight = cumulative_weights(log_ratio, rows, np.array([0, 1, 2]), 0)
    assert np.isfinite(weight**2).all()


def test_large_designs_are_thinned_at_random_but_repeatably(data):
    thin = MsmConfig(most_numbers=20_000)
    first, second = (fit(data, "msm", thin).arrays["params/outcome.plan"] for _ in range(2))
    whole = fit(data, "msm").arrays["params/outcome.plan"]
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - whole).max() > 1e-6
    assert first[0, :3] == pytest.approx(whole[0, :3], abs=0.3)


def test_series_too_short_for_the_horizon_are_told():
    data = random_dataset((0, 1, 1, 0), one_hot=False, horizon=8)
    with pytest.raises(DataError, match="no training subject has the 10 observed steps that predicted step 8 needs"):
        fit(data, "msm")


def test_a_stored_model_answers_as_the_fitted_one_and_refuses_long_plans(data, tmp_path: Path):
    trained = fit(data, "msm", UNCLIPPED)
    content = {"arrays": trained.arrays, "meta": trained.meta, "parents": trained.parents}
    write_artifact(tmp_path / "model.h5", kind="model", **content)
    model, panel = load_model(tmp_path / "model.h5"), data.panel("source", "test")
    queries = data.queries[Part("source", "test")]["sequence"]
    np.testing.assert_array_equal(model.rollout(panel, queries), model_of(trained).rollout(panel, queries))
    np.testing.assert_array_equal(model.answer(model.encode(panel), queries), model.rollout(panel, queries))
    long = replace(queries, plan=np.tile(queries.plan, (1, 2, 1)), outcomes=None, scored=None)
    with pytest.raises(UsageError, match="longer than the model's horizon"):
        model.rollout(panel, long)
