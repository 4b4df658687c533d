"""The in-context model: its posterior, effects of subjects, columns, file, and worlds that its network never saw."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import in_context as training
from costar_cli import simulate
from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Panel, Part, Queries, Scaler
from costar_cli.errors import ArtifactError
from costar_cli.methods.in_context import model as model_module
from costar_cli.methods.in_context.basis import DOSED, FREE, LAGS, OTHER, Basis, facts_of, network
from costar_cli.methods.in_context.head import SUBJECT_SCALES, Rows, condition, effects_before, noise_of
from costar_cli.methods.in_context.method import PRIOR, WEIGHTS
from costar_cli.methods.in_context.model import NETWORK, NOISE, InContextModel, OwnCourse
from costar_cli.methods.shared import simulated
from costar_cli.methods.shared.course import Scales, along
from costar_cli.methods.stored import model_of as stored_model
from costar_cli.testing import random_dataset
from tests.fits import artifact_of, fit_method, model_of

TRAIN = Part("source", "train")
MOST_SHIPPED = 5_000_000  # bytes of the weights in the wheel


def rows_of(n: int, steps: int, weight_P: np.ndarray, own_NK: np.ndarray, noise: float) -> Rows:
    """Draw answers of subjects that share weights and differ in those of the first columns."""
    rng, k = np.random.default_rng(3), own_NK.shape[1]
    column_MP = rng.normal(size=(n * steps, len(weight_P)))
    subject_M = np.repeat(np.arange(n), steps)
    answer_M = column_MP @ weight_P + (column_MP[:, :k] * own_NK[subject_M]).sum(axis=1)
    return Rows(column_MP, column_MP[:, :k], answer_M + noise * rng.normal(size=n * steps), subject_M)


def test_weights_are_those_of_generalised_least_squares_and_the_evidence_is_the_marginal_likelihoods() -> None:
    own_NK = np.random.default_rng(1).normal(0, 0.4, size=(30, 2))
    rows = rows_of(30, 8, np.array([1.0, -0.5, 0.3]), own_NK, 0.5)
    prior_P, own_K = np.zeros(3), np.log(np.full(2, 2.0))
    head = condition([rows], 30, prior_P, own_K, np.full(3, FREE) + np.array([0, 0, 1]))
    assert head.subject_K is not None
    covers = [np.diag(scale**2 * np.exp(2 * own_K)) for scale in SUBJECT_SCALES]
    found = []
    for cover_KK in covers:
        same_MM = rows.subject_M[:, None] == rows.subject_M
        cover_MM = np.eye(len(same_MM)) + same_MM * (rows.differ_MK @ cover_KK @ rows.differ_MK.T)
        weighed_MP = np.linalg.solve(cover_MM, rows.column_MP)
        mean_P = np.linalg.solve(rows.column_MP.T @ weighed_MP + np.eye(3), weighed_MP.T @ rows.answer_M)
        whole_MM = cover_MM + rows.column_MP @ rows.column_MP.T
        noise = rows.answer_M @ np.linalg.solve(whole_MM, rows.answer_M) / len(whole_MM)
        evidence = -0.5 * (len(whole_MM) * np.log(noise) + np.linalg.slogdet(whole_MM)[1])
        found.append((evidence, mean_P))
    best = max(range(len(found)), key=lambda i: found[i][0])
    np.testing.assert_allclose(head.subject_K, np.diag(covers[best]))
    chunked = condition(
        [Rows(*(part[: 8 * 12] for part in rows)), Rows(*(part[8 * 12 :] for part in rows))], 30, prior_P, own_K,
        np.full(3, FREE) + np.array([0, 0, 1]),
    )  # fmt: skip
    np.testing.assert_allclose(chunked.mean_P, head.mean_P, rtol=1e-9)
    assert np.abs(head.mean_P - [1.0, -0.5, 0.3]).max() < 0.25
    draws = head.draw(np.random.default_rng(0), 20_000)
    cover_PP = head.noise * np.linalg.inv(head.upper_PP.T @ head.upper_PP)
    np.testing.assert_allclose(np.cov(draws.T), cover_PP, atol=3e-2 * cover_PP.max())


def test_groups_that_say_nothing_lose_their_weight() -> None:
    rows = rows_of(40, 10, np.array([1.0, 0.0, 0.0, 0.0]), np.zeros((40, 1)), 1.0)
    group_P = np.array([0, 1, 1, 1])
    head = condition([rows], 40, np.zeros(4), np.zeros(1), group_P)
    free = condition([rows], 40, np.zeros(4), np.zeros(1), np.where(group_P == 0, 0, FREE))
    assert np.abs(head.mean_P[1:]).sum() < 0.6 * np.abs(free.mean_P[1:]).sum()
    assert head.mean_P[0] == pytest.approx(1.0, abs=0.15)
    assert head.used < free.used


def test_effects_of_a_subject_are_the_posterior_mean_given_the_steps_before() -> None:
    rng, k = np.random.default_rng(0), 3
    seen_NT, variance_K = rng.random((2, 6)) < 0.7, np.array([0.5, 2.0, 1.0])
    differ_NTK, left_NT = rng.normal(size=(2, 6, k)) * seen_NT[..., None], rng.normal(size=(2, 6)) * seen_NT
    found_NTK = effects_before(differ_NTK, left_NT, variance_K)
    assert (found_NTK[:, 0] == 0).all()
    for n in range(2):
        for t in range(1, 6):
            z, y = differ_NTK[n, :t][seen_NT[n, :t]], left_NT[n, :t][seen_NT[n, :t]]
            expected_K = np.linalg.solve(z.T @ z + np.diag(1 / variance_K), z.T @ y)
            np.testing.assert_allclose(found_NTK[n, t], expected_K, atol=1e-10)


def test_what_effects_leave_has_the_variance_of_the_noise_in_short_series_too() -> None:
    rng, variance_K = np.random.default_rng(0), np.array([4.0, 1.0])
    differ_TK = np.stack([np.ones(5), rng.normal(size=5)], axis=1)
    effect_NK = rng.normal(size=(4_000, 2)) * np.sqrt(variance_K)
    left_NT = effect_NK @ differ_TK.T + rng.normal(size=(4_000, 5))
    noise_NT = np.array([noise_of(differ_TK, left_T, variance_K) for left_T in left_NT])
    np.testing.assert_allclose(noise_NT.var(axis=0), 1.0, atol=0.08)


@pytest.mark.parametrize("sizes", [(1, 1, 0), (3, 2, 2), (4, 7, 1), (40, 1, 3), (2, 22, 5)])
def test_columns_priors_and_groups_are_of_one_width_in_numpy_and_torch(sizes: tuple[int, int, int]) -> None:
    basis, rng, m = Basis(*sizes), np.random.default_rng(0), 5
    variables, doses, statics = sizes
    arrays = [
        rng.normal(size=shape) for shape in ((m, variables, 10), (m, doses, DOSED), (m, variables, OTHER), (m, statics))
    ]
    with np.load(WEIGHTS, allow_pickle=False) as stored:
        shipped = {name: stored[name].astype(np.float64) for name in stored.files}
    facts = training.Facts(*arrays)
    column_MP, differ_MK = basis.columns(facts, variables - 1, network(shipped), np)
    priors = {name.removeprefix(PRIOR): value for name, value in shipped.items() if name.startswith(PRIOR)}
    assert column_MP.shape == (m, basis.width) == (m, len(basis.prior(priors, np)))
    assert differ_MK.shape == (m, basis.own_effects) == (m, len(basis.own_prior(priors, np)))
    assert len(basis.group_P) == basis.width
    assert (basis.group_P == FREE).sum() == 1
    learned = dict(training.Network.of(shipped).learned.items())
    same = training.Facts(*(torch.tensor(array, dtype=torch.float32) for array in arrays))
    with torch.no_grad():
        again_MP, again_MK = basis.columns(same, variables - 1, learned, torch)
    np.testing.assert_allclose(again_MP.numpy(), column_MP, atol=1e-4)
    np.testing.assert_allclose(again_MK.numpy(), differ_MK, atol=1e-5)


def test_facts_say_what_the_spec_says() -> None:
    data = random_dataset((2, 1, 2, 1), one_hot=False, n=12)
    panel = data.panels[TRAIN]
    scales = Scales.learned(panel, data.schema, Scaler.fit(panel, data.schema))
    u = panel.treatments.astype(float)
    course, at = along(panel, scales, LAGS, u), np.flatnonzero(panel.length > 4)
    own, dosed, other, _ = facts_of(course.take(4 * panel.n_subjects + at), scales, u[at, 4])
    w = np.concatenate([panel.outcomes, panel.covariates], axis=2).astype(float)[at]
    unit = course.take(4 * panel.n_subjects + at).unit(scales)
    np.testing.assert_allclose(own[..., 2], ((w[:, 3] - w[:, 4]) / unit).clip(-10, 10))
    np.testing.assert_allclose(own[..., 5], ((w[:, 0] - w[:, 4]) / unit).clip(-10, 10))
    np.testing.assert_allclose(own[..., 6], ((w[:, :5].mean(axis=1) - w[:, 4]) / unit).clip(-10, 10), atol=1e-9)
    moved = np.abs(np.diff(w[:, :5], axis=1)).mean(axis=1) / unit
    np.testing.assert_allclose(own[..., 8], np.log(moved.clip(max=10) + 0.05))
    np.testing.assert_array_equal(other[..., 0], own[..., 0])
    np.testing.assert_array_equal(dosed[..., 0], u[at, 4])
    np.testing.assert_allclose(dosed[..., 2], sum(0.5 ** (3 - s) * u[at, s] for s in range(4)))
    np.testing.assert_allclose(dosed[..., 4], u[at, :4].sum(axis=1) / 5)


def test_what_ships_is_small_and_plain() -> None:
    assert WEIGHTS.stat().st_size < MOST_SHIPPED
    with np.load(WEIGHTS, allow_pickle=False) as stored:
        assert all(np.isfinite(stored[name]).all() and stored[name].dtype == np.float32 for name in stored.files)
        shapes = InContextModel.shapes_of_network()
        assert {name: stored[name].shape for name in stored.files if not name.startswith(PRIOR)} == shapes


def test_an_update_of_the_training_moves_every_weight(tmp_path: Path) -> None:
    training.train(2, 0, tmp_path / "w.npz", judged=1)
    with np.load(tmp_path / "w.npz", allow_pickle=False) as after:
        torch.manual_seed(0)
        before = training.Network().weights()
        assert {name: after[name].shape for name in after.files} == {
            name: value.shape for name, value in before.items()
        }
        moved = [name for name, value in before.items() if name.startswith(("own.", "dose."))]
        assert all((after[name] != before[name]).any() for name in moved)


@cache
def worlds() -> tuple[float, float]:
    with np.load(WEIGHTS, allow_pickle=False) as stored:
        learned = training.Network.of(stored)
    return training.judge(learned, 12, seed=77)[1], training.judge(learned, 12, seed=77, without=True)[1]


def test_learned_features_help_in_worlds_that_were_not_trained_on() -> None:
    with_them, without = worlds()
    assert with_them < without - 0.1


def test_tumours_of_a_new_population_are_foretold_without_training() -> None:
    """The prior has no law of tumours, and nothing is trained: still far better than the last value."""
    sizes = {"train": 200, "val": 60, "test": 60, "target_train": 20, "target_val": 30, "target_test": 60}
    data = simulate("tumor", seed=4, gamma=10.0, **sizes)
    queries = data.queries[Part("target", "test")]["sequence"].take(slice(0, 3_000))
    panel, errors = data.panels[Part("target", "test")], {}
    for method in ("in-context", "ridge", "last-value"):
        model = model_of(fit_method(data, method, None, FinetuneConfig(members=1)))
        apart = model.rollout(panel, queries)[0][..., 0] - queries.outcomes[..., 0]
        errors[method] = float(np.sqrt(np.nanmean(apart[:, -1] ** 2)))
    assert errors["in-context"] < 0.6 * min(errors["ridge"], errors["last-value"])


@cache
def differing(sd: float = 0.5, noise: float = 0.4, n: int = 300) -> tuple[InContextModel, Panel, np.ndarray]:
    """Subjects who differ in what a dose does, of whom six steps or more are known; and that effect of each."""
    rng = np.random.default_rng(0)
    data = random_dataset((0, 1, 1, 0), one_hot=False, n=n)
    panel = data.panels[TRAIN]
    y, a = np.zeros((n, panel.n_steps, 1)), (rng.random(panel.treatments.shape) < 0.5).astype(np.uint8)
    own_N = rng.normal(0, sd, n)
    for t in range(1, panel.n_steps):
        y[:, t, 0] = 0.5 * y[:, t - 1, 0] + own_N * a[:, t - 1, 0] + noise * rng.normal(size=n)
    y, a = y * panel.observed[..., None], a * panel.decided[..., None]
    data = replace(data, panels={**data.panels, TRAIN: replace(panel, outcomes=y.astype(np.float32), treatments=a)})
    model = model_of(fit_method(data, "in-context", None, FinetuneConfig(members=1)))
    assert isinstance(model, InContextModel)
    seen = np.flatnonzero(panel.length >= 6)
    return model, data.panels[TRAIN].take(seen), own_N[seen]


def plans_at(panel: Panel, origin: int) -> Queries:
    """Ask about every subject, first without, then with a dose in the next step."""
    subject, on = np.tile(np.arange(panel.n_subjects, dtype=np.int32), 2), np.repeat([0, 1], panel.n_subjects)
    return Queries(subject, np.full(len(subject), origin, np.int16), on[:, None, None].astype(np.uint8))


def effect_draws(model: InContextModel, panel: Panel, origin: int) -> np.ndarray:
    """Draw what the dose does `[S,N]`."""
    drawn_SQ = model.draw_outcomes(panel, plans_at(panel, origin), 400, 1)[:, :, 0, 0]
    return np.diff(drawn_SQ.reshape(400, 2, -1), axis=1)[:, 0]


def test_subjects_are_told_apart_by_their_history() -> None:
    """Two subjects at the same value, who reacted to the same dose differently before, differ in what comes."""
    model, panel, own_N = differing(sd=1.0, noise=0.1, n=60)
    never, given = model.rollout(panel, plans_at(panel, 4))[0, :, 0, 0].reshape(2, -1)
    assert np.corrcoef(given - never, own_N)[0, 1] > 0.9


def drawn_effects(model: InContextModel, panel: Panel, queries: Queries, n: int) -> np.ndarray:
    """Draw effects `[S,Q,K]` of the first variable, for as many replicates in turn."""
    start, chance = model._begin(panel, queries.subject, queries.origin, None, 1, n, 1)
    begun = model.drawn_starts(panel, queries.subject, queries.origin, start, chance)
    assert isinstance(begun, OwnCourse)
    return begun.effect_MEK[:, 0].reshape(n, len(queries), -1)


def with_params(model: InContextModel, **params: np.ndarray) -> InContextModel:
    return replace(model, params={**model.params, **{name.replace("__", "."): x for name, x in params.items()}})


@pytest.mark.parametrize("origin", [0, 4])
def test_drawn_effects_have_the_covariance_that_the_steps_before_the_origin_leave(origin: int) -> None:
    model, panel, _ = differing()
    model = with_params(model, head__replicates=np.repeat(model.params["head.weight"][:, None], 100, axis=1))
    queries, n = plans_at(panel.take(np.arange(3)), origin), 20_000
    effect_SQK = drawn_effects(model, panel, queries, n)
    np.testing.assert_array_equal(effect_SQK[:, :3], effect_SQK[:, 3:])  # under all plans of a subject the same
    (_, _, rows), *_ = model._own_rows(panel, *model._along(panel))
    for i in range(3):
        known_TK = rows.differ_NTK[i, :origin]
        cover_KK = model._noise_E[0] * np.linalg.inv(known_TK.T @ known_TK + np.diag(1 / model._variance_EK[0]))
        np.testing.assert_allclose(np.cov(effect_SQK[:, i].T), cover_KK, atol=0.03 * cover_KK.max())


def test_a_draw_has_the_effects_that_the_history_shows_given_its_weights() -> None:
    model, panel, _ = differing()
    model, queries = with_params(model, **{NOISE: np.full((1, 1), 1e-18)}), plans_at(panel, 4)
    drawn_SQK = drawn_effects(model, panel, queries, model.replicates)
    assert model.params["head.replicates"][0, :, 0].std(axis=0).max() > 0.01
    for b in (0, 7):
        given = with_params(model, head__weight=model.params["head.replicates"][:, b])
        course = given.encode(panel).at(queries)
        assert isinstance(course, OwnCourse)
        np.testing.assert_allclose(drawn_SQK[b], course.effect_MEK[:, 0], atol=1e-5)


def test_drawn_effects_depend_neither_on_who_else_is_asked_about_nor_on_how_many_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, panel, _ = differing()
    queries = plans_at(panel, 4)
    whole_SQ = model.draw_outcomes(panel, queries, 50, 1)[:, :, 0, 0]
    some = queries.take(np.array([3, 5]))
    alone_SQ = model.draw_outcomes(panel, some, 50, 1, among=queries.subject)[:, :, 0, 0]
    np.testing.assert_allclose(alone_SQ, whole_SQ[:, [3, 5]], atol=1e-6)
    monkeypatch.setattr(model_module, "ENCODED", 4 * panel.n_steps)
    monkeypatch.setattr(simulated, "SIMULATED", 50 * 7)
    np.testing.assert_allclose(model.draw_outcomes(panel, queries, 50, 1)[:, :, 0, 0], whole_SQ, atol=1e-6)


def test_draws_hold_effects_that_files_from_before_the_noise_was_stored_missed() -> None:
    model, panel, own_N = differing()
    older = replace(model, params={name: value for name, value in model.params.items() if name != NOISE})

    def held(one: InContextModel) -> float:
        low_N, high_N = np.quantile(effect_draws(one, panel, 4), [0.05, 0.95], axis=0)
        return float(np.mean((low_N <= own_N) & (own_N <= high_N)))

    assert held(model) > 0.7
    assert held(older) < 0.4
    with_it, without = (one.predict_distribution(panel, plans_at(panel, 4)) for one in (model, older))
    np.testing.assert_array_equal(with_it.mean, without.mean)
    assert (with_it.sd_parameter > 1.5 * without.sd_parameter).mean() > 0.9


@pytest.mark.parametrize(
    "broken", ["head.weight", "subjects.variance", "dose_scale", f"{NETWORK}own.0.weight", "residuals", NOISE]
)
def test_files_whose_arrays_do_not_fit_are_refused(broken: str) -> None:
    data = random_dataset((1, 1, 1, 1), one_hot=False, n=30)
    model = model_of(fit_method(data, "in-context", None, FinetuneConfig(members=1)))
    assert isinstance(model, InContextModel)
    artifact = artifact_of(fit_method(data, "in-context", None, FinetuneConfig(members=1)))
    key = f"params/{broken}"
    others = [artifact.arrays[key][:, :0], artifact.arrays[key] * np.nan]
    others += [-artifact.arrays[key] - 1] if broken in {"subjects.variance", "dose_scale", NOISE} else []
    others += [artifact.arrays[key] + 1e30] if broken in {"subjects.variance", NOISE} else []
    for other in others:
        with pytest.raises(ArtifactError, match="incomplete or damaged"):
            stored_model(replace(artifact, arrays={**artifact.arrays, key: other}))


def test_many_subjects_are_encoded_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_dataset((1, 1, 1, 1), one_hot=False, n=30)
    fitted = model_of(fit_method(data, "in-context", None, FinetuneConfig(members=1)))
    assert isinstance(fitted, InContextModel)
    params = {**fitted.params, "subjects.variance": fitted.params["subjects.variance"] + 0.5}
    whole = replace(fitted, params=params).encode(data.panels[TRAIN]).course
    monkeypatch.setattr(model_module, "ENCODED", 4 * data.panels[TRAIN].n_steps)
    pieces = replace(fitted, params=params).encode(data.panels[TRAIN]).course
    assert isinstance(whole, OwnCourse)
    assert isinstance(pieces, OwnCourse)
    assert np.abs(whole.effect_MEK).max() > 0
    np.testing.assert_allclose(pieces.effect_MEK, whole.effect_MEK, rtol=1e-5, atol=1e-7)
