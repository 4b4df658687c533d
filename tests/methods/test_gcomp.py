"""Step-by-step g-computation: columns, the choice of learner, residuals, replicates, and effects that are known."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Panel, Part, Queries, Scaler, Variable
from costar_cli.errors import ArtifactError
from costar_cli.files import Artifact
from costar_cli.inference.rollout import simulate_rule
from costar_cli.methods.base import adjusted
from costar_cli.methods.gcomp.design import Design
from costar_cli.methods.gcomp.learners import BOOSTING, OF_TREES, REGRESSIONS, Gram, Task, _fit, choose, replicates
from costar_cli.methods.gcomp.model import GcompModel
from costar_cli.methods.gcomp.settings import GcompConfig
from costar_cli.methods.shared.course import DECAYS, Scales, along
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.grow import Rows
from costar_cli.methods.stored import model_of
from costar_cli.plans import parse_plans
from costar_cli.plans.plan import IndexTimes
from costar_cli.testing import random_dataset
from costar_cli.training import Trained
from tests.effect_worlds import TRUTH, WORLDS
from tests.feedback_worlds import BINARY, LINEAR
from tests.fits import artifact_of, fit_method
from tests.fits import model_of as fitted_model

TRAIN, TEST = Part("source", "train"), Part("source", "test")
FEW = GcompConfig(trees=20)


@cache
def trained(world: str, learner: str = "auto", *, seed: int = 0, n: int = 1000) -> Trained:
    data = {"linear": LINEAR, "binary": BINARY}[world].dataset(seed=seed, n=n, horizon=5)
    return fit_method(data, "gcomp", FEW.model_copy(update={"learner": learner}), FinetuneConfig())


def model(world: str, learner: str = "auto", **kinds: int) -> GcompModel:
    found = fitted_model(trained(world, learner, **kinds))
    assert isinstance(found, GcompModel)
    return found


def effect(of: GcompModel, panel: Panel) -> np.ndarray:
    """By how much always treating for five steps moves each subject's outcome `[N,H]` against never treating."""
    n = panel.n_subjects
    always, never = (
        of.rollout(panel, Queries(np.arange(n, dtype=np.int32), np.ones(n, np.int16), np.full((n, 5, 1), a, np.uint8)))
        for a in (1, 0)
    )
    return (always - never)[0, ..., 0]


def test_columns_of_a_step_are_those_of_the_spec() -> None:
    data = random_dataset((1, 2, 2, 1), one_hot=False, n=20)
    panel = data.panels[TRAIN]
    scaler = Scaler.fit(panel, data.schema)
    scales, u = Scales.learned(panel, data.schema, scaler), panel.treatments.astype(float)
    design, n = Design.of(data.schema, scales, lags=2), panel.n_subjects
    course = along(panel, scales, 2, panel.treatments @ dose_table(data.schema.treatments))
    at = np.array([i for i in range(n) if panel.length[i] > 4])
    found = design.columns(course.take(4 * n + at), u[at, 4])
    assert found.shape == (len(at), design.width)
    w = np.concatenate([panel.outcomes, panel.covariates], axis=2).astype(float)
    mean, sd = np.concatenate([scaler.outcomes, scaler.covariates], axis=1)
    unit = np.where(scales.having("relative"), np.abs(w[at, 4]) + 1e-3 * sd, sd)
    level = np.where(scales.having("relative"), np.log(np.abs(w[at, 4]) / sd + 1e-3), (w[at, 4] - mean) / sd)
    known = np.column_stack([level, (panel.statics[at] - scaler.statics[0]) / scaler.statics[1]])
    lags = [((w[at, 4 - j] - w[at, 4]) / unit).clip(-10, 10) for j in (1, 2)]
    so_far = ((w[at, :5].mean(axis=1) - w[at, 4]) / unit).clip(-10, 10)
    exposures = [sum(d ** (3 - s) * u[at, s] for s in range(4)) for d in DECAYS]
    pairs = [known[:, i] * known[:, j] for i in range(4) for j in range(i, 4)]
    doses = [u[at, 4, i] * u[at, 4, j] for i in range(2) for j in range(i, 2)]
    crossed = [u[at, 4, i] * known[:, j] for i in range(2) for j in range(4)]
    expected = np.column_stack(
        [known, u[at, 4], *lags, so_far, *exposures, np.full(len(at), 4.0), *crossed, *doses, *pairs]
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    some = design.columns(course.take(4 * n + at), u[at, 4], ("recent",))
    assert np.array_equal(some[:, design.among(("recent",))], found[:, design.among(("recent",))])
    assert not some[:, ~design.among(("recent",))].any()


def task_of(response: Callable[[np.ndarray, np.ndarray], np.ndarray], *, logistic: bool = False, n: int = 400) -> Task:
    """Rows of n subjects with six steps each of two known columns, a dose and their history, with noise."""
    rng = np.random.default_rng(0)

    def rows(count: int) -> Rows:
        recent, history = rng.normal(size=(count, 3)), rng.normal(size=(count, 2))
        recent[:, 2] = rng.integers(2, size=count)
        products = np.column_stack([recent[:, 2:] * recent[:, :2], recent[:, :2] ** 2])
        answer = response(recent, history)
        drawn = rng.random(count) < expit(answer) if logistic else answer + 0.5 * rng.normal(size=count)
        return Rows(np.column_stack([recent, history, products]), drawn.astype(float), np.ones(count))

    blocks = np.repeat(["recent", "history", "products"], [3, 2, 4])
    among = {name: np.isin(blocks, of) for name, of in {**REGRESSIONS, BOOSTING: OF_TREES}.items()}
    train, subject_M = rows(6 * n), np.repeat(np.arange(n), 6)
    return Task(*train, subject_M, subject_M % 5, rows(600), logistic, among, Gram())


@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize(
    ("learner", "response"),
    [
        ("recent", lambda recent, history: recent[:, 0] - recent[:, 2]),
        ("history", lambda recent, history: recent[:, 0] - recent[:, 2] + history[:, 1]),
        ("recent-products", lambda recent, history: recent[:, 0] * (1 - 2 * recent[:, 2])),
        (BOOSTING, lambda recent, history: 2.0 * np.sign(recent[:, 0]) * np.sign(recent[:, 1]) - recent[:, 2]),
    ],
)
def test_the_simplest_learner_that_is_as_good_as_the_best_is_chosen(
    learner: str, response: Callable[..., np.ndarray], *, logistic: bool
) -> None:
    assert choose(task_of(response, logistic=logistic), GcompConfig(), seed=0).equation.learner == learner


def test_variables_seen_in_the_same_rows_share_what_regressions_need_of_them() -> None:
    task, config = task_of(lambda recent, history: recent[:, 0] + history[:, 0]), GcompConfig(learner="ridge")
    other = task._replace(answer_M=task.answer_M[::-1])
    alone = [choose(one._replace(gram=Gram()), config, seed=0) for one in (task, other)]
    first = choose(task, config, seed=0)
    known = len(task.gram.known)
    second = choose(other, config, seed=0)
    assert len(task.gram.known) <= known + 1  # the whole fit of a regression that the first one did not take
    for shared, own in zip((first, second), alone, strict=True):
        np.testing.assert_array_equal(shared.equation.weight_P, own.equation.weight_P)
        np.testing.assert_array_equal(shared.held_out_M, own.held_out_M)


def test_weights_of_other_sizes_are_not_shared() -> None:
    task, config = task_of(lambda recent, history: recent[:, 0] + history[:, 0]), GcompConfig(learner="ridge")
    heavy = task._replace(weight_M=np.linspace(1, 9, len(task.weight_M)))
    choose(task, config, seed=0)
    shared, own = choose(heavy, config, seed=0), choose(heavy._replace(gram=Gram()), config, seed=0)
    np.testing.assert_array_equal(shared.equation.weight_P, own.equation.weight_P)


def test_trees_are_added_to_a_regression_so_that_they_extrapolate() -> None:
    task = task_of(lambda recent, history: 3 * recent[:, 0] + np.abs(history[:, 0]))
    equation = choose(task, GcompConfig(learner=BOOSTING), seed=0).equation
    far = np.zeros((2, 9))
    far[1, 0] = 20
    assert equation.forest is not None
    assert np.diff(equation.predict(far)) == pytest.approx(60, rel=0.05)


@pytest.mark.parametrize("logistic", [False, True])
def test_replicates_spread_as_weights_of_other_samples_of_subjects_do(*, logistic: bool) -> None:
    def response(recent: np.ndarray, history: np.ndarray) -> np.ndarray:
        return np.asarray(recent[:, 0] - recent[:, 2])

    task, rng, config = task_of(response, logistic=logistic), np.random.default_rng(1), GcompConfig(learner="ridge")
    chosen = choose(task, config, seed=0)
    made = replicates(task, chosen, rng.exponential(size=(400, 400)))
    again = []
    for _ in range(60):
        subjects = rng.integers(400, size=400)
        rows = (6 * subjects[:, None] + np.arange(6)).ravel()
        again.append(_fit(task, rows, "recent", chosen.penalty, config, 0).weight_P)
    used = np.append(True, task.among["recent"])
    assert made[:, used].std(axis=0) == pytest.approx(np.std(again, axis=0)[used], rel=0.35)
    assert made.mean(axis=0) == pytest.approx(chosen.equation.weight_P, abs=0.02)


@pytest.mark.parametrize(("world", "learner", "most"), [("linear", BOOSTING, 0.2), ("binary", BOOSTING, 0.06)])
def test_effects_are_found_by_trees_too(world: str, learner: str, most: float) -> None:
    truth = {"linear": LINEAR, "binary": BINARY}[world]
    true_H = truth.mean_under([1] * 5, origin=1) - truth.mean_under([0] * 5, origin=1)
    panel = truth.panel(400, 2, seed=77)
    assert np.abs(effect(model(world, learner), panel).mean(axis=0) - true_H).max() < most


def test_effects_of_single_subjects_are_found() -> None:
    panel = LINEAR.panel(200, 2, seed=77)
    assert np.sqrt(((effect(model("linear"), panel)[:, -1] + 3.09) ** 2).mean()) < 0.2


def test_covariates_that_do_nothing_cost_little() -> None:
    found, world = [], WORLDS["linear-noise"]
    for seed in range(2):
        panel = world.dataset(1200, seed).panels[TRAIN]
        parts = {TRAIN: np.arange(1200) < 1000, Part("source", "val"): np.arange(1200) >= 1000}
        data = Dataset("noise", world.schema, world.steps, {part: panel.take(rows) for part, rows in parts.items()})
        of = fitted_model(fit_method(data, "gcomp", GcompConfig(learner="ridge"), FinetuneConfig()))
        found.append(effect(of, data.panels[TRAIN])[:, -1].mean())
    assert np.mean(found) == pytest.approx(TRUTH["linear-noise"]["always"][0], abs=0.18)


@pytest.mark.parametrize("read", ["y", "x"])
def test_rules_act_on_what_is_drawn_of_outcomes_and_covariates(read: str) -> None:
    of, panel = model("linear"), LINEAR.panel(300, 1, seed=77)
    rule = parse_plans(
        f'{{"plans": {{"high": {{"rule": "a if {read} > 0", "times": 5}}}}}}', of.schema, horizon=5
    ).plans[0]
    n = panel.n_subjects
    simulated = simulate_rule(of, IndexTimes(panel, np.arange(n), np.zeros(n, np.int64)), rule, n=50)
    assert simulated.how == "drawn"
    rng, (x, y) = (
        np.random.default_rng(1),
        (np.repeat(panel_[:, 0, 0], 200) for panel_ in (panel.covariates, panel.outcomes)),
    )
    for h in range(5):
        a = ({"x": x, "y": y}[read] > 0).astype(float)
        given = simulated.values_SQHA[..., h, 0].mean()
        assert given == pytest.approx(a.mean(), abs=0.05)
        x, y = LINEAR.update(x, y, a, rng)
        assert simulated.outcomes_SQHY[..., h, 0].mean() == pytest.approx(y.mean(), abs=0.08)


def test_draws_have_the_mean_and_spread_of_the_truth_and_chance_that_plans_share() -> None:
    for world, name in ((LINEAR, "linear"), (BINARY, "binary")):
        of, panel = model(name), world.panel(40, 2, seed=77)
        subject = np.repeat(np.arange(40), 2).astype(np.int32)
        plan = np.tile(np.array([[0] * 5, [0, 0, 0, 1, 1]], np.uint8)[..., None], (40, 1, 1))
        queries = Queries(subject, np.ones(80, np.int16), plan)
        drawn_SQH, known = of.draw_outcomes(panel, queries, 500, 0)[..., 0], of.predict_distribution(panel, queries)
        assert (drawn_SQH[:, ::2, :3] == drawn_SQH[:, 1::2, :3]).all()
        assert drawn_SQH.mean(axis=0) == pytest.approx(known.mean[0, ..., 0], abs=0.15)
        assert drawn_SQH.std(axis=0).mean(axis=0) == pytest.approx(known.sd[0, ..., 0].mean(axis=0), rel=0.1)
        rng = np.random.default_rng(0)
        x, y = (np.repeat(values[:, 1, 0].astype(float), 500) for values in (panel.covariates, panel.outcomes))
        for h in range(3):
            x, y = world.update(x, y, np.zeros(len(x)), rng)
            assert drawn_SQH[:, ::2, h].std(axis=0).mean() == pytest.approx(
                y.reshape(40, -1).std(axis=1).mean(), rel=0.06
            )
        alone = queries.take(slice(4, 6))
        assert (
            of.draw_outcomes(panel, alone, 50, 1, among=queries.subject)
            == of.draw_outcomes(panel, queries, 50, 1)[:, 4:6]
        ).all()


def test_sums_have_the_spread_of_sums_of_draws() -> None:
    of, panel = model("linear"), LINEAR.panel(10, 2, seed=77)
    queries = Queries(np.arange(10, dtype=np.int32), np.ones(10, np.int16), np.ones((10, 5, 1), np.uint8))
    summed, plain = (of.predict_distribution(panel, queries, np.array([on])) for on in (True, False))
    assert summed.mean == pytest.approx(plain.mean.cumsum(axis=2), rel=1e-4)
    drawn = of.draw_outcomes(panel, queries, 2_000, 0).cumsum(axis=2)
    assert summed.sd[0].mean(axis=0) == pytest.approx(drawn.std(axis=0).mean(axis=0), rel=0.15)


def test_variables_that_go_together_do_so_in_draws() -> None:
    """Two outcomes with the same shocks."""
    data, rng = LINEAR.dataset(n=300, horizon=2), np.random.default_rng(0)
    schema = data.schema.model_copy(update={"outcomes": (*data.schema.outcomes, Variable(name="z"))})

    def with_twin(panel: Panel) -> Panel:
        twin = panel.outcomes + 0.1 * rng.normal(size=panel.outcomes.shape)
        return replace(panel, outcomes=np.concatenate([panel.outcomes, twin], axis=2).astype(np.float32))

    data = replace(data, schema=schema, panels={part: with_twin(panel) for part, panel in data.panels.items()})
    of = fitted_model(fit_method(data, "gcomp", GcompConfig(learner="ridge"), FinetuneConfig()))
    queries = Queries(np.zeros(1, np.int32), np.ones(1, np.int16), np.ones((1, 2, 1), np.uint8))
    drawn = of.draw_outcomes(data.panels[TEST], queries, 2_000, 0)[:, 0]
    for h in range(2):
        assert np.corrcoef(drawn[:, h].T)[0, 1] > 0.9


def test_counts_are_drawn_whole_and_never_negative() -> None:
    data, rng = LINEAR.dataset(n=200, horizon=3), np.random.default_rng(0)
    schema = data.schema.model_copy(update={"outcomes": (Variable(name="y", kind="count"),)})

    def counted(panel: Panel) -> Panel:
        return replace(panel, outcomes=rng.poisson(np.exp(1 + 0.3 * panel.outcomes)).astype(np.float32))

    data = replace(data, schema=schema, panels={part: counted(panel) for part, panel in data.panels.items()})
    of, panel = fitted_model(fit_method(data, "gcomp", FEW, FinetuneConfig())), data.panels[TEST]
    assert of.scales.kinds == ("local", "additive")
    n = panel.n_subjects
    queries = Queries(np.arange(n, dtype=np.int32), np.full(n, 3, np.int16), np.ones((n, 3, 1), np.uint8))
    drawn = of.draw_outcomes(panel, queries, 200, 0)
    assert (drawn == drawn.round()).all()
    assert drawn.min() == 0
    assert drawn.mean(axis=(0, 1))[:, 0] == pytest.approx(of.rollout(panel, queries).mean(axis=(0, 1))[:, 0], rel=0.05)


def test_training_is_in_draws_where_only_regressions_were_chosen() -> None:
    assert model("linear").draws_training
    assert adjusted(model("linear")) == "all"
    of, panel = model("linear", BOOSTING), LINEAR.panel(5, 2, seed=77)
    queries = Queries(np.arange(5, dtype=np.int32), np.ones(5, np.int16), np.ones((5, 5, 1), np.uint8))
    assert of.draws_training == (not of.forests)
    assert bool(of.predict_distribution(panel, queries).sd_parameter.any()) == of.draws_training


def test_a_covariate_that_was_observed_once_stays_what_it_was_filled_with() -> None:
    data = LINEAR.dataset(n=60, horizon=2)

    def constant(panel: Panel) -> Panel:
        first = np.zeros(panel.covariates.shape, dtype=bool)
        first[:, 0] = True
        return replace(panel, covariates=np.repeat(panel.covariates[:, :1], 7, axis=1), covariate_observed=first)

    data = replace(data, panels={part: constant(panel) for part, panel in data.panels.items()})
    of = fitted_model(fit_method(data, "gcomp", FEW, FinetuneConfig()))
    assert np.abs(of.residuals[:, 1]).max() < 1e-6


def _without(meta: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in meta.items() if key != name}


@pytest.mark.parametrize(
    "change",
    [
        lambda meta: {**meta, "lags": 0},
        lambda meta: {**meta, "lags": 10**6},
        lambda meta: {**meta, "learners": ["recent"]},
        lambda meta: {**meta, "learners": ["recent", "oracle"]},
        lambda meta: {**meta, "learners": ["boosting", "boosting"]},
        lambda meta: {**meta, "variables": meta["variables"][:1]},
        lambda meta: {**meta, "variables": [{**one, "kind": "odd"} for one in meta["variables"]]},
        lambda meta: {**meta, "variables": [{**one, "low": float("nan")} for one in meta["variables"]]},
        lambda meta: {**meta, "variables": [{**one, "low": 9.0, "high": 1.0} for one in meta["variables"]]},
        lambda meta: _without(meta, "variables"),
        lambda meta: _without(meta, "learners"),
    ],
)
def test_a_file_with_other_facts_than_its_arrays_is_refused(
    change: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> None:
    made = trained("binary", "ridge")
    with pytest.raises(ArtifactError, match="incomplete or damaged"):
        model_of(Artifact("model", made.arrays, change(made.meta)))


@pytest.mark.parametrize("name", ["linear.weight", "linear.replicates", "residuals", "dispersion"])
def test_a_file_with_numbers_that_are_none_is_refused(name: str) -> None:
    made = trained("binary", "ridge")
    key = f"params/{name}"
    for other in (made.arrays[key] * np.nan, made.arrays[key][:, :0], made.arrays[key] - 2):
        if name.startswith("linear") and np.isfinite(other).all() and other.size:
            continue  # any numbers are weights
        with pytest.raises(ArtifactError, match="incomplete or damaged"):
            model_of(Artifact("model", {**made.arrays, key: other}, made.meta))


def test_a_tree_that_asks_about_a_column_that_there_is_not_is_refused() -> None:
    data = LINEAR.dataset(n=400, horizon=2)
    panels = {part: replace(panel, outcomes=np.sin(2 * panel.outcomes)) for part, panel in data.panels.items()}
    config = GcompConfig(learner=BOOSTING, trees=20)
    artifact = artifact_of(fit_method(replace(data, panels=panels), "gcomp", config, FinetuneConfig()))
    assert isinstance(model_of(artifact), GcompModel)
    feature = artifact.arrays["params/trees.feature"]
    assert feature.size
    with pytest.raises(ArtifactError, match="incomplete or damaged"):
        model_of(replace(artifact, arrays={**artifact.arrays, "params/trees.feature": feature + np.int32(40)}))
