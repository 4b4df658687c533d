"""Binary outcomes of the mixed-effects model: logits with intercepts that differ between subjects (spec MIXED-14)."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.special import expit

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Panel, Part, Queries, Variable
from costar_cli.methods.mixed.densities import marginal
from costar_cli.methods.mixed.effects import Effects
from costar_cli.methods.mixed.law import Design
from costar_cli.methods.mixed.logit import GRID, LogitPosterior
from costar_cli.methods.mixed.model import MixedModel
from costar_cli.methods.stack.settings import StackConfig
from costar_cli.questions import Cohort, estimate_outcomes, warnings_about
from costar_cli.reporting import warnings_of
from tests.feedback_worlds import BINARY, LINEAR
from tests.fits import fit_method, model_of
from tests.methods.mixed_worlds import TEST, TRAIN, fit, fitted
from tests.whatif.whatif_worlds import request_of

INTERCEPT, AGAIN, DRUG, SPREAD = -1.0, 0.7, -0.9, 1.3


def dense(fixed_T: np.ndarray, spread: float, y_T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Deviates of an intercept, and the density of them and of the responses."""
    z_K = np.linspace(-9, 9, 4001)
    p_TK = expit(fixed_T[:, None] + spread * z_K)
    likelihood_K = np.where(y_T[:, None] > 0, p_TK, 1 - p_TK).prod(axis=0)
    return z_K, likelihood_K * np.exp(-0.5 * z_K**2) / np.sqrt(2 * np.pi)


@pytest.mark.parametrize("steps", [1, 6, 40])
def test_the_marginal_likelihood_is_the_integral_over_the_intercept(steps: int) -> None:
    rng = np.random.default_rng(steps)
    fixed_NT, y_NT = rng.normal(size=(5, steps)), (rng.random((5, steps)) < 0.3).astype(float)
    counted_NT = np.ones((5, steps))
    counted_NT[0, 1:] = 0
    found_N, _, _ = marginal(fixed_NT, 1.6, y_NT, counted_NT)
    for i in range(5):
        counts_T = counted_NT[i] > 0
        z_K, density_K = dense(fixed_NT[i][counts_T], 1.6, y_NT[i][counts_T])
        assert found_N[i] == pytest.approx(np.log(density_K.sum() * (z_K[1] - z_K[0])), abs=2e-3)


def test_a_history_says_of_an_intercept_what_bayes_rule_does() -> None:
    rng, steps = np.random.default_rng(0), 12
    y_NT = (rng.random((3, steps)) < 0.8).astype(float)
    effects = Effects(
        np.array([0.3]), np.array([[1.5]]), 1.0, np.zeros((1, 0)), np.zeros((1, 0)), np.zeros(1), np.zeros((1, 1)),
        np.zeros((2, 0)),
    )  # fmt: skip
    ones_NT = np.ones_like(y_NT)
    design = Design(
        ones_NT[..., None], np.zeros((3, steps, 0)), np.zeros((3, steps, 0)), np.zeros((3, 0)), y_NT, ones_NT,
        0 * ones_NT, logit=True,
    )  # fmt: skip
    prior_NP = np.full((3, 1), 0.3)
    posterior = LogitPosterior.of(design, effects, prior_NP, np.zeros((3, steps + 1, 0)))
    mean_MP, factor_MZZ = posterior.at(np.array([1, 1, 2]), np.array([0, 5, 12]))
    assert mean_MP[0, 0] == pytest.approx(0.3, abs=1e-9)
    assert factor_MZZ[0, 0, 0] == pytest.approx(1.5, rel=1e-4)
    for place, (row, step) in enumerate([(1, 5), (2, 12)], start=1):
        z_K, density_K = dense(np.full(step, 0.3), 1.5, y_NT[row, :step])
        mean = (z_K * density_K).sum() / density_K.sum()
        sd = np.sqrt(((z_K - mean) ** 2 * density_K).sum() / density_K.sum())
        assert mean_MP[place, 0] == pytest.approx(0.3 + 1.5 * mean, abs=1e-4)
        assert factor_MZZ[place, 0, 0] == pytest.approx(1.5 * sd, rel=1e-3)
    h = 1e-3  # expected effects move with the means of all subjects, as those of the mode do
    moved = LogitPosterior.of(design, effects, prior_NP + h, np.zeros((3, steps + 1, 0)))
    slope = (moved.at(np.array([2]), np.array([12]))[0] - mean_MP[2:])[0, 0] / h
    assert posterior.moves(np.array([2]), np.array([12]))[0, 0, 0] == pytest.approx(slope, abs=0.1)
    assert GRID[0] == -GRID[-1]


def prone(n: int, steps: int, seed: int) -> tuple[Panel, np.ndarray]:
    """Subjects some of whom are far more prone to a binary outcome than others, and their intercepts."""
    rng, a_NT, y_NT = np.random.default_rng(seed), np.zeros((n, steps)), np.zeros((n, steps))
    own_N = INTERCEPT + SPREAD * rng.normal(size=n)
    a_NT[:] = rng.random((n, steps)) < 0.5
    for t in range(1, steps):
        y_NT[:, t] = rng.random(n) < expit(own_N + AGAIN * y_NT[:, t - 1] + DRUG * a_NT[:, t - 1])
    panel = replace(
        BINARY.panel(n, steps, seed),
        covariates=rng.normal(size=(n, steps, 1)).astype(np.float32),
        treatments=a_NT[..., None].astype(np.float32),
        outcomes=y_NT[..., None].astype(np.float32),
    )
    return panel, own_N


@cache
def prone_world() -> tuple[Dataset, MixedModel]:
    dataset = BINARY.dataset(n=600)
    panels = {part: prone(panel.n_subjects, 9, i)[0] for i, (part, panel) in enumerate(dataset.panels.items())}
    dataset = replace(dataset, panels=panels)
    return dataset, fitted(dataset)


def test_subjects_who_differ_have_intercepts_that_do_and_effects_that_are_not_shrunken() -> None:
    _, model = prone_world()
    effects, law = model.effects[0], model.laws[0]
    assert law.logit
    assert effects.spread[0, 0] == pytest.approx(SPREAD, abs=0.2)
    assert not effects.spread[1:].any()
    of_level, of_drug = effects.means(np.zeros((1, 0)))[0, 1:3]
    assert of_level / law.sd == pytest.approx(AGAIN, abs=0.3)
    assert of_drug == pytest.approx(DRUG, abs=0.2)


def test_histories_say_how_prone_a_subject_is_and_probabilities_hold() -> None:
    _, model = prone_world()
    panel, own_N = prone(2000, 7, seed=55)
    n, origin, steps = panel.n_subjects, 6, 3
    asked = Queries(np.arange(n, dtype=np.int32), np.full(n, origin, np.int16), np.zeros((n, steps, 1), np.uint8))
    p_N = model.rollout(panel, asked)[0, :, 0, 0].astype(float)
    true_N = expit(own_N + AGAIN * panel.outcomes[:, origin, 0])
    for few in np.array_split(np.argsort(p_N), 5):  # calibrated from the least to the most prone
        assert p_N[few].mean() == pytest.approx(true_N[few].mean(), abs=0.04)
    assert np.corrcoef(p_N, true_N)[0, 1] > 0.7
    drawn_SQ = model.draw_outcomes(panel, asked, 300, 0)[..., 0, 0]
    assert set(np.unique(drawn_SQ)) == {0, 1}
    assert np.abs(drawn_SQ.mean(axis=0) - p_N).mean() < 0.03
    said = model.predict_distribution(panel, asked)
    np.testing.assert_allclose(said.sd[0] ** 2, said.mean[0] * (1 - said.mean[0]), rtol=1e-3)
    assert said.sd_parameter[0, :, 0].mean() == pytest.approx(np.std(p_N - true_N), rel=0.4)


def test_a_binary_outcome_beside_another_one_moves_it_and_is_moved() -> None:
    """The second outcome grows where the first was 1; the first is likelier where the second is high."""
    rng, dataset = np.random.default_rng(0), LINEAR.dataset(n=800)
    schema = dataset.schema.model_copy(
        update={"covariates": (), "outcomes": (Variable(name="attack", kind="binary"), Variable(name="score"))}
    )

    def both(panel: Panel) -> Panel:
        n, steps, _ = panel.outcomes.shape
        a_NT, y_NT2 = (rng.random((n, steps)) < 0.5).astype(float), np.zeros((n, steps, 2))
        y_NT2[:, 0] = np.stack([rng.random(n) < 0.3, rng.normal(size=n)], axis=1)
        for t in range(1, steps):
            attack_N, score_N = y_NT2[:, t - 1].T
            y_NT2[:, t, 0] = rng.random(n) < expit(-1 + score_N - a_NT[:, t - 1])
            y_NT2[:, t, 1] = 0.5 * score_N + 0.9 * attack_N + 0.4 * rng.normal(size=n)
        empty = np.zeros((n, steps, 0), np.float32)
        a_NT1, outcomes = a_NT[..., None].astype(np.float32), y_NT2.astype(np.float32)
        return replace(panel, covariates=empty, treatments=a_NT1, outcomes=outcomes)

    panels = {part: both(panel) for part, panel in dataset.panels.items()}
    model = fitted(replace(dataset, schema=schema, panels=panels))
    assert [law.logit for law in model.laws] == [True, False]
    assert all(law.linked for law in model.laws)
    panel = panels[Part("source", "val")]
    n = panel.n_subjects
    asked = Queries(np.arange(n, dtype=np.int32), np.zeros(n, np.int16), np.zeros((n, 3, 1), np.uint8))
    p_N, score_N = expit(-1 + panel.outcomes[:, 0, 1]), panel.outcomes[:, 0, 1]
    found = model.rollout(panel, asked)[0]
    assert np.abs(found[:, 0, 0] - p_N).mean() < 0.04
    after_N = 0.5 * score_N + 0.9 * panel.outcomes[:, 0, 0]
    assert np.abs(found[:, 0, 1] - after_N).mean() < 0.1
    assert np.abs(found[:, 1, 1] - (0.5 * after_N + 0.9 * p_N)).mean() < 0.12
    drawn = model.draw_outcomes(panel, asked, 400, 1).mean(axis=0)
    np.testing.assert_allclose(found.mean(axis=0), drawn.mean(axis=0), atol=0.03)


def test_answers_do_not_depend_on_what_else_is_asked_or_how_far_ahead() -> None:
    dataset, model = prone_world()
    panel = dataset.panels[TEST]
    n = panel.n_subjects
    asked = Queries(np.arange(n, dtype=np.int32), np.full(n, 2, np.int16), np.ones((n, 5, 1), np.uint8))
    every = model.rollout(panel, asked)
    some = replace(asked.take(np.array([7, 3])), plan=asked.plan[:2, :2])
    np.testing.assert_allclose(model.rollout(panel, some), every[:, [7, 3], :2], rtol=1e-6)


def test_what_was_learnt_is_told_as_odds() -> None:
    _, model = prone_world()
    rows = {row["what"]: row for row in model.record.learnt}
    assert rows["change per step"]["typical"] == "times the odds of 1"
    assert float(rows["a, in the first step"]["typical"]) == pytest.approx(np.exp(DRUG), rel=0.25)
    assert "chance per step" not in rows


@pytest.mark.parametrize("usual", [0.0, 1.0])
def test_an_outcome_that_is_nearly_always_the_same_has_a_probability_near_that(usual: float) -> None:
    """What comes before the one exception sets it apart from all others: effects must stay finite."""
    dataset = BINARY.dataset(n=100)
    panels = {part: replace(p, outcomes=np.full_like(p.outcomes, usual)) for part, p in dataset.panels.items()}
    panels[TRAIN].outcomes[3, 4] = 1 - usual
    model, panel = fitted(replace(dataset, panels=panels)), panels[TEST]
    assert model.record.facts["converged"] == [True]
    n = panel.n_subjects
    asked = Queries(np.arange(n, dtype=np.int32), np.ones(n, np.int16), np.ones((n, 5, 1), np.uint8))
    assert model.rollout(panel, asked) == pytest.approx(usual, abs=0.05)


@pytest.mark.parametrize("stacked", [False, True], ids=["alone", "in a stack"])
def test_files_with_a_linear_law_for_a_binary_outcome_warn_when_they_are_opened(*, stacked: bool) -> None:
    linear = LINEAR.dataset(n=200, horizon=2)
    trained = fit_method(linear, "stack", StackConfig(parts="mixed"), FinetuneConfig()) if stacked else fit(linear)
    assert not any(
        "linear law" in warning.text for warning in warnings_of("model `m`", model_of(trained).record.warnings)
    )
    old = replace(trained, meta={**trained.meta, "schema": BINARY.schema.model_dump(mode="json")})
    [warning] = [
        str(one) for one in warnings_of("model `m`", model_of(old).record.warnings) if "linear law" in one.text
    ]
    assert warning.startswith("model `m`: " + "mixed: " * stacked + "it gives binary outcomes (y) a linear law")
    assert warning.endswith("fit it again with `costar finetune --overwrite`")
    data = replace(linear, schema=BINARY.schema)
    subject = int(data.panels[Part("source", "test")].subject_id[0])
    request = request_of({"never": [{}, {}]}, 2, BINARY.schema, 2)
    assert warning in estimate_outcomes(data, {"m": model_of(old)}, request, subject=subject).warnings
    cohort = Cohort.of(data.panels[Part("source", "test")], [*range(20)], origin=2)
    assert warning in map(str, warnings_about({"m": model_of(old)}, cohort, request, dataset=data))
