"""Gradient boosting: its trees as arrays, what it learns, and what it needs to answer."""

import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.special import expit
from sklearn import __version__ as sklearn_version
from sklearn.ensemble import HistGradientBoostingRegressor

from costar_cli.config.choices import TreeLibrary
from costar_cli.data import Dataset, Part, Scaler
from costar_cli.errors import ArtifactError, DataError, UsageError
from costar_cli.files import Artifact
from costar_cli.methods.boosting.features import DECAYS, Histories, plan_columns
from costar_cli.methods.boosting.model import BoostingModel
from costar_cli.methods.boosting.settings import BoostingConfig
from costar_cli.methods.shared.grow import Rows, _nodes_of_lightgbm, grow, spread_rows
from costar_cli.methods.shared.outcome_forms import choose_forms
from costar_cli.methods.shared.trees import Forest
from costar_cli.methods.stored import model_of as model_of_artifact
from costar_cli.training import Trained
from tests.fits import artifact_of
from tests.methods.linear_worlds import fit, model_of, random_dataset, random_queries

FEW = BoostingConfig(trees=40)


def some_rows(n: int = 900, seed: int = 0) -> Rows:
    """Columns with gaps, one that is never known, one of three values, and answers that depend on the gaps, too."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(n, 6))
    columns[rng.random(columns.shape) < 0.2] = np.nan
    columns[:, 3], columns[:, 5] = rng.integers(3, size=n), np.nan
    answer = 2 * np.nan_to_num(columns[:, 0]) + np.isnan(columns[:, 1]) + columns[:, 3] ** 2
    return Rows(columns, answer + 0.5 * rng.normal(size=n), rng.random(n) + 0.5)


@pytest.mark.skipif(
    tuple(map(int, sklearn_version.split(".")[:2])) < (1, 9), reason="older versions cut columns elsewhere"
)
def test_stored_trees_answer_as_those_of_the_library_with_its_own_bins() -> None:
    train, validation = some_rows(), some_rows(seed=1)
    forest, losses = grow(train, validation, BoostingConfig(trees=30, leaves=32, leaf_rows=5), 0)
    known = np.where(np.isnan(train.columns_MP).all(axis=0), 0.0, train.columns_MP)
    library = HistGradientBoostingRegressor(
        max_iter=forest.n_trees, max_leaf_nodes=32, min_samples_leaf=5, l2_regularization=1.0, max_bins=254,
        early_stopping=False, random_state=0,
    ).fit(known, train.answer_M, sample_weight=train.weight_M)  # fmt: skip
    asked = np.concatenate([validation.columns_MP, np.full((1, 6), np.nan), np.full((1, 6), 1e9)])
    np.testing.assert_allclose(forest.predict(asked), library.predict(asked), rtol=1e-9, atol=1e-12)
    assert 0 < forest.n_trees == int(np.argmin(losses))


def test_columns_that_are_the_same_everywhere_change_no_tree() -> None:
    train, validation = some_rows(), some_rows(seed=1)
    plain, _ = grow(train, validation, FEW, 0)

    def with_constants(rows: Rows) -> Rows:
        never, same = np.full(len(rows.answer_M), np.nan), np.full(len(rows.answer_M), 3.0)
        return rows._replace(columns_MP=np.column_stack([never, rows.columns_MP[:, :2], same, rows.columns_MP[:, 2:]]))

    forest, _ = grow(with_constants(train), with_constants(validation), FEW, 0)
    place = np.array([1, 2, 4, 5, 6, 7])  # of each column among the others
    inner = plain.right > 0
    np.testing.assert_array_equal(forest.feature[inner], place[plain.feature[inner]])
    np.testing.assert_array_equal(forest.threshold, plain.threshold)
    np.testing.assert_array_equal(forest.value, plain.value)


def test_rows_that_are_all_alike_in_every_column_give_the_mean() -> None:
    rows = some_rows()._replace(columns_MP=np.ones((900, 3)))
    forest, _ = grow(rows, rows, FEW, 0)
    mean = np.average(rows.answer_M, weights=rows.weight_M)
    np.testing.assert_allclose(forest.predict(rows.columns_MP), mean, rtol=1e-9)


def test_columns_in_parts_give_the_same_answers_as_rows() -> None:
    forest, _ = grow(some_rows(), some_rows(seed=1), FEW, 0)
    rng = np.random.default_rng(2)
    left, right = rng.normal(size=(7, 4)), rng.normal(size=(5, 2))
    row_left, row_right = rng.integers(7, size=50), rng.integers(5, size=50)
    parts = [(forest.reach(left), row_left), (forest.reach(right, start=4), row_right)]
    whole = np.concatenate([left[row_left], right[row_right]], axis=1)
    np.testing.assert_array_equal(forest.sums(parts), forest.predict(whole))


def test_no_tree_is_kept_where_trees_do_not_help_on_validation() -> None:
    train, validation = some_rows(), some_rows(seed=1)
    against = validation._replace(answer_M=2 * train.answer_M.mean() - validation.answer_M)
    forest, _ = grow(train, against, FEW, 0)
    assert forest.n_trees == 0
    mean = np.average(train.answer_M, weights=train.weight_M)
    np.testing.assert_allclose(forest.predict(train.columns_MP), mean, rtol=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {"right": np.array([1, 0, 0], np.int32)},  # a node that is its own left child's place
        {"right": np.array([3, 0, 0], np.int32)},
        {"right": np.array([2, 2, 0], np.int32)},
        {"feature": np.array([-1, 0, 0], np.int32)},
        {"missing_left": np.array([2, 0, 0], np.uint8)},
        {"value": np.array([0, np.nan, 0])},
        {"threshold": np.zeros(2)},
        {"first": np.array([0, 2])},
        {"first": np.array([0, 1, 3])},
    ],
)
def test_arrays_that_are_no_trees_are_refused(change: dict[str, np.ndarray]) -> None:
    good = {
        "feature": np.zeros(3, np.int32),
        "threshold": np.zeros(3),
        "right": np.array([2, 0, 0], np.int32),
        "value": np.array([0.0, 1, 2]),
        "missing_left": np.zeros(3, np.uint8),
        "first": np.array([0, 3]),
    }
    assert Forest(0.5, **good).predict(np.array([[-1.0], [1.0], [np.nan]])).tolist() == [1.5, 2.5, 2.5]
    with pytest.raises(ValueError, match="tree"):
        Forest(0.5, **{**good, **change})


def test_a_right_child_outside_of_its_parents_part_of_the_tree_is_refused() -> None:
    """The left child of the root has a leaf and, as it claims, the root's right child."""
    good = {
        "feature": np.zeros(7, np.int32),
        "threshold": np.array([0.0, -1, 0, 0, 1, 0, 0]),
        "right": np.array([4, 3, 0, 0, 6, 0, 0], np.int32),
        "value": np.array([0.0, 0, 1, 2, 0, 3, 4]),
        "missing_left": np.zeros(7, np.uint8),
        "first": np.array([0, 7]),
    }
    twice = {name: np.concatenate([values, values]) for name, values in good.items()} | {"first": np.array([0, 7, 14])}
    asked = np.array([[-2.0], [-0.5], [0.5], [2.0]])
    assert Forest(0.0, **good).predict(asked).tolist() == [1, 2, 3, 4]
    assert Forest(0.0, **twice).predict(asked).tolist() == [2, 4, 6, 8]
    for right in ([4, 4, 0, 0, 6, 0, 0], [4, 5, 0, 0, 6, 0, 0], [3, 4, 0, 0, 6, 0, 0]):
        with pytest.raises(ValueError, match="a node of a tree leads nowhere"):
            Forest(0.0, **{**good, "right": np.array(right, np.int32)})


def world(steps: int = 12, seed: int = 0) -> Dataset:
    """Outcomes that grow by a fifth in a step without the drug and lose a fifth with it, whatever the size."""
    dataset, rng, panels = random_dataset((1, 1, 1, 0), one_hot=False), np.random.default_rng(seed), {}
    for part, panel in dataset.panels.items():
        n = panel.n_subjects
        given = rng.integers(2, size=(n, steps, 1)).astype(np.float32)
        growth = np.where(given[:, :-1], 0.8, 1.2) * np.exp(0.01 * rng.normal(size=(n, steps - 1, 1)))
        size = np.exp(2 * rng.normal(size=(n, 1, 1)))
        outcomes = size * np.concatenate([np.ones((n, 1, 1)), growth.cumprod(axis=1)], axis=1)
        panels[part] = replace(
            panel, covariates=np.zeros((n, steps, 1), np.float32), treatments=given,
            outcomes=outcomes.astype(np.float32), length=np.full(n, steps),
        )  # fmt: skip
    return replace(dataset, panels=panels)


@cache
def fitted() -> Trained:
    return fit(world(), "boosting", FEW)


def test_effects_of_a_plan_on_a_relative_outcome_are_learned_at_every_level() -> None:
    model, panel = model_of(fitted()), world().panel("target", "test")
    queries = replace(random_queries(panel, 4), origin=np.full(50, 6, np.int16))
    growth = np.where(queries.plan, 0.8, 1.2).cumprod(axis=1) * panel.outcomes[queries.subject, 6][:, None]
    error = model.rollout(panel, queries)[0] / growth - 1
    assert np.abs(error).max() < 0.25
    assert np.sqrt((error**2).mean()) < 0.06


def test_answering_takes_no_library_of_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    stored, panel = artifact_of(fitted()), world().panel("target", "test")
    for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"] + ["sklearn.ensemble"]:
        monkeypatch.setitem(sys.modules, name, None)
    assert np.isfinite(model_of_artifact(stored).rollout(panel, random_queries(panel, 4))).all()


def test_a_file_whose_trees_lead_nowhere_is_refused() -> None:
    stored = artifact_of(fitted())
    for name, value in {"params/right": 10**6, "params/feature": 10**6, "params/trees": 10**6}.items():
        arrays = {**stored.arrays, name: np.full_like(stored.arrays[name], value)}
        with pytest.raises(ArtifactError, match="incomplete or damaged"):
            model_of_artifact(Artifact("model", arrays, stored.meta, stored.parents, digest="d"))


@pytest.mark.parametrize(
    "change",
    [
        {"lags": 0},
        {"lags": 9},
        {"width": 9},
        {"horizon": 0},
        {"forms": []},
    ],
)
def test_a_file_of_other_settings_than_its_trees_is_refused(change: dict[str, object]) -> None:
    stored = artifact_of(fitted())
    with pytest.raises(ArtifactError, match="incomplete or damaged"):
        model_of_artifact(Artifact("model", stored.arrays, {**stored.meta, **change}, stored.parents, digest="d"))


def test_a_file_of_more_lags_than_can_be_set_is_refused() -> None:
    stored = artifact_of(fitted())
    most, more = (
        replace(stored, meta={**stored.meta, "lags": lags, "width": stored.meta["width"] + lags - 8})
        for lags in (1000, 1001)
    )
    assert model_of_artifact(most).lags == 1000
    with pytest.raises(ArtifactError, match="1001 lags are not 1 to 1000"):
        model_of_artifact(more)


@pytest.mark.parametrize("change", [{"kind": "seasonal"}, {"sd": float("nan")}, {"sd": 0.0}, {"low": 1e9}])
def test_a_file_with_a_form_that_is_none_is_refused(change: dict[str, object]) -> None:
    stored = artifact_of(fitted())
    (form,) = stored.meta["forms"]
    for forms in ([{**form, **change}], [form, form]):
        meta = {**stored.meta, "forms": forms}
        with pytest.raises(ArtifactError, match="incomplete or damaged"):
            model_of_artifact(Artifact("model", stored.arrays, meta, stored.parents, digest="d"))


@pytest.mark.parametrize("name", ["base", "trees", "first", "feature", "threshold", "right", "value", "missing_left"])
def test_a_file_whose_arrays_are_of_another_type_or_shape_is_refused(name: str) -> None:
    stored, name = artifact_of(fitted()), f"params/{name}"
    value = stored.arrays[name]
    other = value.astype(np.float32 if value.dtype.kind in "iu" else np.int64)
    for changed in (other, value[0], value[..., None], value[..., :-1], np.concatenate([value, value]), value[:0]):
        arrays = {**stored.arrays, name: changed}
        with pytest.raises(ArtifactError, match="incomplete or damaged"):
            model_of_artifact(Artifact("model", arrays, stored.meta, stored.parents, digest="d"))


def test_a_file_whose_trees_do_not_follow_one_another_is_refused() -> None:
    stored = artifact_of(fitted())
    first = stored.arrays["params/first"]
    swapped = first[:, [0, 2, 1, *range(3, first.shape[1])]]
    for changed in (swapped, first - 1, first + 1):
        arrays = {**stored.arrays, "params/first": changed}
        with pytest.raises(ArtifactError, match="incomplete or damaged"):
            model_of_artifact(Artifact("model", arrays, stored.meta, stored.parents, digest="d"))


def test_histories_are_in_units_of_their_origin() -> None:
    data = world()
    panel = data.panel("source", "train")
    scaler = Scaler.fit(panel, data.schema)
    forms = choose_forms(panel, data.schema, scaler)
    assert forms[0].kind == "relative"
    panel = replace(panel, outcomes=panel.outcomes * 1024)
    larger = replace(panel, outcomes=panel.outcomes * 2)
    subject, origin = np.arange(20), np.full(20, 5)
    found, other = (
        Histories(one, scaler, data.schema.treatments, forms, 3).at(subject, origin, 0) for one in (panel, larger)
    )
    level = 5  # after three lags and two means
    np.testing.assert_allclose(np.delete(found, level, 1), np.delete(other, level, 1), rtol=0.01, atol=1e-3)
    np.testing.assert_allclose(found[:, level] * 2, other[:, level], rtol=1e-6)
    assert np.isnan(Histories(panel, scaler, data.schema.treatments, forms, 9).at(subject, origin, 0)[:, 5:9]).all()


def test_a_plans_columns_are_its_doses_and_its_own_exposures() -> None:
    dose = np.array([[[1.0], [0.0], [1.0]]])
    assert plan_columns(dose)[0].tolist() == [1, 0, 1, *(decay**2 + 1 for decay in DECAYS)]


def test_rows_are_the_same_number_of_each_subject_as_far_as_it_has_them() -> None:
    subject = np.repeat(np.arange(4), [2, 50, 50, 50])
    kept = spread_rows(subject, 50, 0)
    assert len(set(kept.tolist())) == 50
    assert np.bincount(subject[kept]).tolist() == [2, 16, 16, 16]
    assert spread_rows(subject, 500, 0).tolist() == list(range(152))


def test_an_outcome_that_nobody_has_at_a_step_is_named() -> None:
    data = world()
    part = Part("source", "train")
    panel = data.panels[part]
    early = panel.observed_outcomes & (np.arange(panel.n_steps) < 3)[:, None]
    short = replace(panel, outcome_observed=early)
    with pytest.raises(DataError, match="no training subject has an observed 'y0' 3 steps after another step"):
        fit(replace(data, panels={**data.panels, part: short}), "boosting", FEW)


def test_its_model_is_of_one_member_and_says_how_many_trees_it_has() -> None:
    model = model_of(fitted())
    assert isinstance(model, BoostingModel)
    assert model.members == 1
    assert [[forest.n_trees for forest in row] for row in model.forests] == fitted().meta["trees"]


# The second has a threshold that divides missing values from all others.
LIGHTGBM_TREES = (
    """num_leaves=5
split_feature=0 2 1 1
threshold=0.50500000000000012 -0.13999999999999999 2.0550000000000002 -2.1949999999999994
decision_type=2 2 8 10
left_child=1 -1 -3 -2
right_child=3 2 -4 -5
leaf_value=-0.13757731951773167 1.5 0.23135869848825361 0.74142857023647857 1
""",
    """num_leaves=5
split_feature=0 2 0 1
threshold=0.50500000000000012 0.44500000000000006 1.0000000180025095e-35 inf
decision_type=2 2 2 8
left_child=1 3 -3 -1
right_child=-2 2 -4 -5
leaf_value=-0.15453130521783881 0.58223684210526316 0.45521958253600381 -0.066686335206031802 0.18436065056206039
""",
    "num_leaves=1\nsplit_feature=\nthreshold=\nleaf_value=0.25\n",
)


def test_trees_as_lightgbm_writes_them_answer_as_it_does() -> None:
    nan = np.nan
    asked = np.array([[1, nan, -1], [1, 0.2, 1], [-1, nan, 1], [-1, -2, -1], [nan, 0, nan], [0.3, 5, 0]])
    first = [1.5, 1.0, 0.7414285702364786, -0.13757731951773167, 0.2313586984882536, 0.7414285702364786]
    both = [2.0822368421052633, 1.5822368421052633, 1.1966481527724824]
    both += [-0.2921086247355705, 0.0768273932704148, 0.5868972650186397]
    trees = [_nodes_of_lightgbm(text) for text in LIGHTGBM_TREES]
    np.testing.assert_allclose(Forest.of(0.0, trees[:1]).predict(asked), first, rtol=1e-12)
    np.testing.assert_allclose(Forest.of(0.0, trees[:2]).predict(asked), both, rtol=1e-12)
    assert Forest.of(1.0, trees[2:]).predict(asked).tolist() == [1.25] * 6


@pytest.mark.parametrize("logistic", [False, True])
def test_lightgbm_grows_trees_that_err_as_little(*, logistic: bool) -> None:
    pytest.importorskip("lightgbm")
    train, validation = some_rows(), some_rows(seed=1)
    if logistic:
        train, validation = (rows._replace(answer_M=(rows.answer_M > 2) * 1.0) for rows in (train, validation))
    errors = []
    libraries: tuple[TreeLibrary, ...] = ("scikit-learn", "lightgbm")
    for library in libraries:
        forest, losses = grow(train, validation, FEW, 0, logistic=logistic, library=library)
        sums = forest.predict(validation.columns_MP)
        predicted = expit(sums) if logistic else sums
        errors.append(float(np.average((predicted - validation.answer_M) ** 2, weights=validation.weight_M)))
        assert 0 < forest.n_trees == int(np.argmin(losses))
    assert errors[1] == pytest.approx(errors[0], rel=0.05)


def test_no_tree_of_lightgbm_is_kept_where_trees_do_not_help_on_validation() -> None:
    pytest.importorskip("lightgbm")
    train, validation = some_rows(), some_rows(seed=1)
    against = validation._replace(answer_M=2 * train.answer_M.mean() - validation.answer_M)
    forest, _ = grow(train, against, FEW, 0, library="lightgbm")
    assert forest.n_trees == 0
    unstopped, losses = grow(train, Rows(*(values[:0] for values in validation)), FEW, 0, library="lightgbm")
    assert (unstopped.n_trees, losses) == (FEW.trees, [])


def test_a_model_of_lightgbms_trees_answers_without_lightgbm(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lightgbm")
    data = world()
    stored = artifact_of(fit(data, "boosting", BoostingConfig(trees=40, library="lightgbm")))
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    model = model_of_artifact(Artifact("model", stored.arrays, stored.meta, stored.parents, digest="d"))
    panel, queries = data.panel("source", "train"), random_queries(data.panel("source", "train"), 3)
    predicted = model.rollout(panel, queries)
    plain = model_of(fitted()).rollout(panel, queries)
    assert np.corrcoef(predicted.ravel(), plain.ravel())[0, 1] > 0.9


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(UsageError, match="LightGBM cannot be imported") as refused:
        grow(some_rows(), some_rows(seed=1), FEW, 0, library="lightgbm")
    assert refused.value.fix == "`pip install 'costar[lightgbm]'`"


def test_settings_name_the_library_only_where_it_is_another() -> None:
    assert "library" not in BoostingConfig().model_dump()
    assert BoostingConfig(library="lightgbm").model_dump()["library"] == "lightgbm"
