"""The naive anchors: the last value carried forward, and the ridge regression on the recent window."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from costar_cli.data import Dataset, Panel, Part, Scaler
from costar_cli.data.icu.semi_synthetic import simulate_mimic
from costar_cli.data.icu.settings import MimicConfig
from costar_cli.errors import DataError, MismatchError, UsageError
from costar_cli.files import write_artifact
from costar_cli.methods import load_model
from costar_cli.methods.regression.ridge import PENALTIES, WindowFeatures
from costar_cli.methods.regression.seasonal import find_season
from costar_cli.methods.regression.settings import RidgeConfig, SeasonalNaiveConfig
from costar_cli.reporting import NullReporter
from tests.methods.linear_worlds import fit, linear_data, model_of, random_dataset, random_queries


@pytest.fixture(scope="module")
def data() -> Dataset:
    return linear_data(train=400)


def stored(trained, path: Path):
    write_artifact(path, kind="model", arrays=trained.arrays, meta=trained.meta, parents=trained.parents)
    return load_model(path)


def test_last_value_is_a_method_without_parameters_that_survives_storage(tumor_dataset, tmp_path):
    trained = fit(tumor_dataset, "last-value")
    model, panel = stored(trained, tmp_path / "model.h5"), tumor_dataset.panel("target", "test")
    queries = tumor_dataset.queries[Part("target", "test")]["sequence"]
    predicted = model.rollout(panel, queries)
    last = panel.outcomes[queries.subject, queries.origin]
    np.testing.assert_array_equal(predicted, np.tile(last[None, :, None], (1, 1, 6, 1)))
    assert (model.members, model.horizon, model.method) == (1, 6, "last-value")
    assert not any(array.size for name, array in trained.arrays.items() if name.startswith("params/"))
    assert model.trained_on == {"source/train": 40}
    long = replace(queries, plan=np.tile(queries.plan, (1, 2, 1)), outcomes=None, scored=None)
    with pytest.raises(UsageError, match="longer than the model's horizon"):
        model.rollout(panel, long)


def test_the_mean_so_far_is_that_of_the_outcomes_up_to_the_origin(tumor_dataset, tmp_path):
    model, panel = stored(fit(tumor_dataset, "mean"), tmp_path / "model.h5"), tumor_dataset.panel("target", "test")
    queries = tumor_dataset.queries[Part("target", "test")]["sequence"]
    predicted = model.rollout(panel, queries)
    for row in range(0, len(queries), 97):
        so_far = panel.outcomes[queries.subject[row], : queries.origin[row] + 1]
        np.testing.assert_allclose(predicted[0, row], np.tile(so_far.mean(axis=0), (6, 1)), rtol=1e-5)
    assert model.method == "mean"


def seasonal(dataset: Dataset, period: int, *, noise: float, steps: int = 30) -> Dataset:
    """Series that repeat themselves, each with a level of its own."""
    rng, panels = np.random.default_rng(1), {}
    for part, panel in dataset.panels.items():
        n = panel.n_subjects
        wave_NT1 = rng.normal(size=(n, period, 1))[:, np.arange(steps) % period]
        random = {"covariates": panel.covariates, "treatments": panel.treatments}
        panels[part] = replace(
            panel,
            **{name: np.zeros((n, steps, values.shape[2]), np.float32) for name, values in random.items()},
            outcomes=(wave_NT1 + rng.normal(size=(n, steps, 1)) * noise + 9).astype(np.float32),
            length=np.full(n, steps),
        )
    return replace(dataset, panels=panels, queries={}, truth={})


@pytest.mark.parametrize("period", [2, 3, 7])
def test_the_season_is_found_in_source_train_and_repeated(period):
    world = seasonal(random_dataset((1, 2, 1, 0), one_hot=False), period, noise=0.01)
    trained = fit(world, "seasonal-naive")
    assert trained.meta["season"] == period
    panel = world.panel("source", "test")
    queries = replace(random_queries(panel, 4), origin=np.full(50, 20, np.int16))
    after = panel.outcomes[queries.subject, 21:25].transpose(1, 0, 2)
    np.testing.assert_allclose(model_of(trained).rollout(panel, queries)[0].transpose(1, 0, 2), after, atol=0.1)


def test_where_nothing_repeats_or_the_history_is_short_the_seasonal_naive_is_the_last_value(tumor_dataset):
    assert fit(tumor_dataset, "seasonal-naive").meta["season"] == 1
    noise = seasonal(random_dataset((1, 2, 1, 0), one_hot=False), 30, noise=1.0)
    assert fit(noise, "seasonal-naive").meta["season"] == 1
    model, panel = model_of(fit(noise, "seasonal-naive", SeasonalNaiveConfig(season=7))), noise.panel("source", "test")
    queries = replace(random_queries(panel, 4), origin=np.full(50, 4, np.int16))
    predicted = model.rollout(panel, queries)[0]
    np.testing.assert_array_equal(predicted[:, :2], panel.outcomes[queries.subject, 4][:, None].repeat(2, axis=1))
    np.testing.assert_array_equal(predicted[:, 2:], panel.outcomes[queries.subject, 0:2])


def test_few_shot_keeps_the_sources_season():
    world = seasonal(random_dataset((1, 2, 1, 0), one_hot=False), 5, noise=0.01)
    source = model_of(fit(world, "seasonal-naive"))
    assert fit(world, "seasonal-naive", domain="target", start=source).meta["season"] == 5
    three = SeasonalNaiveConfig(season=3)
    assert fit(world, "seasonal-naive", three, domain="target", start=source).meta["season"] in (3, 5)


def test_one_step_has_no_season():
    panel = random_dataset((1, 2, 1, 0), one_hot=False).panel("source", "train")
    one: Panel = replace(panel, length=np.ones_like(panel.length))
    assert find_season(one, 4, Scaler(np.ones((2, 1)), np.ones((2, 1)), np.ones((2, 0)))) == 1


def test_windows_hold_the_recent_steps_and_flag_those_that_do_not_exist(tumor_dataset):
    panel = tumor_dataset.panel("source", "train")
    model = model_of(fit(tumor_dataset, "ridge", RidgeConfig(window=3)))
    features = WindowFeatures(panel, model.scaler, 3)
    y = (panel.outcomes[2] - model.scaler.outcomes[0]) / model.scaler.outcomes[1]
    v = (panel.statics[2] - model.scaler.statics[0]) / model.scaler.statics[1]
    expected = np.concatenate([[*y[t], *panel.treatments[2, t - 1], 1] for t in (4, 5, 6)])
    np.testing.assert_allclose(features.at(np.array([2]), np.array([6]))[0], [*expected, *v])
    first = features.at(np.array([2]), np.array([0]))[0]
    assert not first[:12].any()
    np.testing.assert_allclose(first[12:], [*y[0], 0, 0, 0, 0, 1, *v])
    assert features.width == len(first) == 19


def by_sklearn(data: Dataset, window: int, h: int, penalty: float):
    """The regression of step h on explicit rows; sklearn's penalty counts all rows at once."""
    model = model_of(fit(data, "ridge", RidgeConfig(window=window)))
    rows = {}
    for split in ("train", "val"):
        panel = data.panel("source", split)
        features = WindowFeatures(panel, model.scaler, window)
        subject, origin = np.nonzero(np.arange(panel.n_steps) + h + 1 < panel.length[:, None])
        plan = panel.treatments[subject[:, None], origin[:, None] + np.arange(h + 1)].reshape(len(subject), -1)
        rows[split] = (
            np.concatenate([features.at(subject, origin), plan], axis=1),
            features.answers_NTY[subject, origin + h + 1],
        )
    design, answer = rows["train"]
    sd = design.std(axis=0)
    sd[sd == 0] = 1
    ridge = Ridge(alpha=penalty * len(design)).fit(design / sd, answer)
    error = np.mean((ridge.predict(rows["val"][0] / sd) - rows["val"][1]) ** 2 * answer.shape[1])
    return ridge.coef_.T / sd[:, None], ridge.intercept_, error


@pytest.mark.parametrize("h", [0, 2])
def test_each_step_is_the_ridge_regression_with_the_penalty_that_validates_best(h):
    data = random_dataset((2, 3, 2, 1), one_hot=True, n=60)
    trained = fit(data, "ridge", RidgeConfig(window=2))
    errors = {penalty: by_sklearn(data, 2, h, penalty)[2] for penalty in PENALTIES}
    best = trained.meta["penalties"][h]
    assert errors[best] == pytest.approx(min(errors.values()), rel=1e-9)
    coef, intercept, _ = by_sklearn(data, 2, h, best)
    own_intercept, history, plan = (weights[0, h] for weights in model_of(trained).weights())
    np.testing.assert_allclose(np.concatenate([history, plan[: h + 1].reshape(-1, 2)]), coef, atol=1e-8)
    np.testing.assert_allclose(own_intercept, intercept, atol=1e-8)
    assert not plan[h + 1 :].any()


def test_ridge_finds_the_law_where_treatment_is_random():
    data = linear_data(gamma=0.0, train=2000)
    model = model_of(fit(data, "ridge"))
    panel, queries = data.panel("source", "test"), data.queries[Part("source", "test")]["sequence"]
    error = model.rollout(panel, queries)[0] - queries.outcomes
    assert np.sqrt((error**2).mean(axis=0)).max() < 0.12
    assert queries.outcomes.std() > 1


def test_few_shot_shrinks_towards_the_source_not_to_zero(data):
    source = model_of(fit(data, "ridge", RidgeConfig(window=2)))
    few = fit(data, "ridge", RidgeConfig(window=6), domain="target", start=source)
    adapted, alone = model_of(few), model_of(fit(data, "ridge", RidgeConfig(window=2), domain="target"))
    assert few.meta["window"] == 2  # that of the source: the weights must fit
    panel, queries = data.panel("target", "test"), data.queries[Part("target", "test")]["sequence"]
    rmse = {
        name: np.sqrt(((model.rollout(panel, queries)[0] - queries.outcomes) ** 2).mean())
        for name, model in {"source": source, "adapted": adapted, "alone": alone}.items()
    }
    assert rmse["adapted"] < rmse["source"]
    one = replace(
        data, panels={**data.panels, Part("target", "train"): data.panel("target", "train").take(np.array([0]))}
    )
    hardly = model_of(fit(one, "ridge", domain="target", start=source))
    far = np.abs(hardly.rollout(panel, queries) - source.rollout(panel, queries)).mean()
    assert far < np.abs(alone.rollout(panel, queries) - source.rollout(panel, queries)).mean()


def shrunk_by_hand(model, panel, h: int, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Step h of the source's model, refitted to a panel on explicit rows: columns scaled as in the source."""
    features = WindowFeatures(panel, model.scaler, model.window)
    subject, origin = np.nonzero(np.arange(panel.n_steps) + h + 1 < panel.length[:, None])
    plan = panel.treatments[subject[:, None], origin[:, None] + np.arange(h + 1)].reshape(len(subject), -1)
    mean, sd = (values[: features.width + plan.shape[1]] for values in model.column_scales())
    design = (np.concatenate([features.at(subject, origin), plan], axis=1) - mean) / sd
    design = np.concatenate([np.ones((len(design), 1)), design], axis=1)
    answer = features.answers_NTY[subject, origin + h + 1]
    intercept, history, planned = (weights[0, h] for weights in model.weights())
    weight = np.concatenate([history, planned[: h + 1].reshape(plan.shape[1], -1)])
    source = np.concatenate([(intercept + mean @ weight)[None], weight * sd[:, None]])
    root = np.sqrt(penalty * len(design))
    augmented = np.concatenate([design, root * np.eye(len(source))])
    fitted = np.linalg.lstsq(augmented, np.concatenate([answer, root * source]), rcond=None)[0]
    weight = fitted[1:] / sd[:, None]
    return fitted[0] - mean @ weight, weight


def test_few_shot_shrinks_level_and_slopes_towards_the_source_on_the_sources_scales(data):
    source = model_of(fit(data, "ridge", RidgeConfig(window=2)))
    panel = data.panel("target", "train")
    few = fit(data, "ridge", domain="target", start=source)
    adapted = model_of(few)
    for h, penalty in enumerate(few.meta["penalties"]):
        if penalty is not None:
            intercept, weight = shrunk_by_hand(source, panel, h, penalty)
            own_intercept, history, plan = (weights[0, h] for weights in adapted.weights())
            np.testing.assert_allclose(own_intercept, intercept, atol=1e-7)
            np.testing.assert_allclose(np.concatenate([history, plan[: h + 1].reshape(-1, 1)]), weight, atol=1e-7)
    assert any(penalty is not None for penalty in few.meta["penalties"])
    for own, theirs in zip(adapted.column_scales(), source.column_scales(), strict=True):
        np.testing.assert_array_equal(own, theirs)


def test_few_shot_of_no_use_is_the_sources_model_itself():
    data = random_dataset((3, 2, 1, 2), one_hot=False, n=60)  # without any law there is nothing to adapt to
    source = model_of(fit(data, "ridge"))
    few = data.panel("target", "train").take(np.arange(3))
    moved = {Part("target", "train"): few, Part("target", "val"): data.panel("source", "val")}
    parts = {Part("source", "train"): data.panel("source", "train")} | moved
    adapted = fit(replace(data, panels=parts), "ridge", domain="target", start=source)
    assert adapted.meta["kept_source_members"] == [1]
    assert adapted.meta["penalties"] == source.record.facts["penalties"]
    for own, theirs in zip(model_of(adapted).weights(), source.weights(), strict=True):
        np.testing.assert_array_equal(own, theirs)


def test_few_shot_of_a_ridge_without_scales_says_to_fit_it_again(data):
    source = model_of(fit(data, "ridge"))
    old = replace(source, params={n: v for n, v in source.params.items() if not n.startswith("columns.")})
    with pytest.raises(MismatchError, match="how its columns were scaled") as error:
        fit(data, "ridge", domain="target", start=old)
    assert "finetune --method ridge" in error.value.fix


def test_few_shot_of_hospital_stays_is_no_worse_than_zero_shot():
    data = simulate_mimic(MimicConfig(stays=3_000, hours=36, horizon=6), NullReporter())
    source = model_of(fit(data, "ridge"))
    adapted = model_of(fit(data, "ridge", domain="target", start=source))
    panel = data.panel("target", "test")
    queries = data.queries[Part("target", "test")]["sequence"]
    before, after = (
        np.sqrt(((model.rollout(panel, queries)[0] - queries.outcomes)[queries.scored] ** 2).mean())
        for model in (source, adapted)
    )
    assert after < 1.02 * before


def test_only_a_ridge_regression_can_be_adapted(data):
    other = model_of(fit(data, "msm"))
    with pytest.raises(MismatchError, match="of method msm, not ridge"):
        fit(data, "ridge", domain="target", start=other)


@pytest.mark.parametrize(("dims", "one_hot"), [((25, 3, 2, 44), False), ((47, 22, 1, 22), True), ((0, 1, 3, 0), False)])
def test_any_dimensions_are_fitted_stored_and_answered(dims, one_hot, tmp_path):
    data = random_dataset(dims, one_hot=one_hot)
    trained = fit(data, "ridge", RidgeConfig(window=3))
    model, panel = stored(trained, tmp_path / "model.h5"), data.panel("target", "test")
    queries = random_queries(panel, 4)
    predicted = model.rollout(panel, queries)
    assert predicted.shape == (1, 50, 4, dims[2])
    assert np.isfinite(predicted).all()
    np.testing.assert_array_equal(predicted, model_of(trained).rollout(panel, queries, batch_size=7))


def test_series_too_short_for_the_horizon_are_told():
    with pytest.raises(DataError, match="no subject has the 10 observed steps that the last predicted step needs"):
        fit(random_dataset((0, 1, 1, 0), one_hot=False, horizon=9), "ridge")
