"""What training subjects leave open of the mixed-effects model: how wide it is, and what draws make of it."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from costar_cli.data import Queries, Scaler
from costar_cli.methods.mixed.covariates import fit_covariates
from costar_cli.methods.mixed.effects import Effects, effects_params
from costar_cli.methods.mixed.law import Design, Floats, GrowthTransition, Series
from costar_cli.methods.mixed.likelihood import FREE, _density, start_values
from costar_cli.methods.mixed.model import MixedModel
from costar_cli.methods.mixed.population import inverse_factor, open_factor
from costar_cli.questions.averages import kind_of
from tests.methods.mixed_worlds import SCHEMA, TEST, asked, fitted, grown, world

WORLD = world(n=30, steps=12)


@cache
def model() -> MixedModel:
    return fitted(WORLD, iterations=5)  # what holds, holds before the likelihood has its maximum


def designed() -> tuple[Design, Effects]:
    panel = grown(40, 12, relative=True, seed=3)
    series = Series.of(panel, Scaler.fit(panel, SCHEMA), SCHEMA.treatments)
    design = GrowthTransition.of(series, 0, relative=True, basis="log", linked=False).design(
        series, np.zeros(1), np.ones(1)
    )
    return design, start_values(design, carry_overs=1, hidden=1)


def factor(design: Design, effects: Effects) -> Floats:
    return open_factor(design, effects.spread, effects.noise**2, effects.decay, usual=0.3)


def test_the_covariance_of_means_is_that_of_the_likelihoods_curvature() -> None:
    design, effects = designed()
    values = {name: getattr(effects, name) for name in FREE} | {"variance": np.array(effects.noise**2)}
    slopes = [
        _density(design, values | {"mean": effects.mean + sign * ahead})[1]["mean"]
        for ahead in 0.5 * np.eye(len(effects.mean))
        for sign in (1, -1)
    ]
    curvature_PP = np.subtract(slopes[::2], slopes[1::2])  # of a quadratic function
    open_PP = factor(design, effects)
    prior = np.diag([0, 0, 1 / 0.3**2, 1 / 0.3**2])
    np.testing.assert_allclose(np.linalg.inv(open_PP @ open_PP.T), -curvature_PP + prior, rtol=1e-6)


def test_traces_of_doses_long_ago_say_as_little_of_an_effect_as_no_dose() -> None:
    design, _ = designed()  # of half-lives of minutes and visits a day apart, 1e-8 of a dose is left
    traces, none = (
        start_values(replace(design, dose_NTL=design.dose_NTL * [1.0, left]), carry_overs=1, hidden=1)
        for left in (1e-8, 0.0)
    )
    sd_traces_Z, sd_none_Z = (np.linalg.norm(effects.spread, axis=1) for effects in (traces, none))
    np.testing.assert_allclose(sd_traces_Z, sd_none_Z, rtol=1e-3)
    assert sd_traces_Z[3] < 1.0


def test_doses_that_nobody_was_given_stay_as_open_as_they_were() -> None:
    design, effects = designed()
    open_PP = factor(replace(design, dose_NTL=design.dose_NTL * [1.0, 0.0]), effects)
    sd_P = np.sqrt(np.diag(open_PP @ open_PP.T))
    assert sd_P[3] == pytest.approx(0.3)
    assert (sd_P[:3] < 0.1).all()
    np.testing.assert_array_equal(abs(inverse_factor(np.diag([4.0, 0.0]))), [[0.0, 0.5], [0.0, 0.0]])


def test_expected_effects_move_with_the_means_as_their_posterior_does() -> None:
    found, panel = model(), WORLD.panels[TEST]
    queries, change_P = asked(panel, 60, origin=7), np.array([0.01, -0.02, 0.03, 0.01])
    learnt = found.effects[0]
    moved = replace(found, params=found.params | effects_params(replace(learnt, mean=learnt.mean + change_P), 0))
    ((before_QP, _),), ((after_QP, _),) = (
        each.posterior(panel, queries.subject, queries.origin) for each in (found, moved)
    )
    moves_UPP, of_Q = found._begin(panel, queries.subject, queries.origin)[1][0].moves()
    assert len(moves_UPP) < len(of_Q)  # a history under several plans
    np.testing.assert_allclose(moves_UPP[of_Q] @ change_P, after_QP - before_QP, atol=1e-9)


def test_draws_share_what_training_leaves_open_and_models_of_before_leave_it_out() -> None:
    """All else in the draws is the same, so that how they differ in the first step is known exactly."""
    found, panel = model(), WORLD.panels[TEST]
    older = replace(found, params={name: value for name, value in found.params.items() if not name.endswith(".open")})
    assert (kind_of(found), kind_of(older)) == (
        "subjects and training (posterior)",
        "subjects and their posterior (not what the training sample leaves open)",
    )
    subject, origin = np.arange(panel.n_subjects, dtype=np.int32), np.full(panel.n_subjects, 7, np.int16)
    drug = np.tile(np.eye(4, dtype=np.uint8)[1], (panel.n_subjects, 1, 1))
    queries = Queries(subject, origin, drug)
    new_S, old_S = (each.draw_outcomes(panel, queries, 2_000, 0)[:, :, 0, 0].mean(axis=1) for each in (found, older))
    start, (known,) = found._begin(panel, subject, origin)
    level_N = start.y_YQ[0]
    phi_NP = np.stack([np.ones_like(level_N), *found.laws[0].level(level_N, level_N), *start.exposure[0]], axis=1)
    phi_NP[:, 2:] += [1, 0]
    moves_UPP, of_N = known.moves()
    slope_P = (level_N[:, None] * np.einsum("np,npr->nr", phi_NP, moves_UPP[of_N])).mean(axis=0)
    assert (new_S - old_S).std() == pytest.approx(np.linalg.norm(slope_P @ found.effects[0].open), rel=0.05)
    assert abs((new_S - old_S).mean()) < 0.1 * (new_S - old_S).std()


def test_bands_hold_what_training_leaves_open_and_those_of_models_of_before_do_not() -> None:
    found, panel = model(), WORLD.panels[TEST]
    older = replace(found, params={name: value for name, value in found.params.items() if not name.endswith(".open")})
    queries = asked(panel, 40, origin=7)
    new, old = (each.predict_distribution(panel, queries) for each in (found, older))
    np.testing.assert_array_equal(new.mean, old.mean)
    np.testing.assert_array_equal(new.sd_noise, old.sd_noise)
    start, (known,) = found._begin(panel, queries.subject, queries.origin)
    level_Q, given_Q2 = start.y_YQ[0], queries.plan[:, 0] @ [[0, 0], [1, 0], [0, 1], [1, 1]]
    phi_QP = np.stack([np.ones(40), *found.laws[0].level(level_Q, level_Q), *(start.exposure[0] + given_Q2.T)], axis=1)
    moves_UPP, of_Q = known.moves()
    slope_QP = level_Q[:, None] * np.einsum("qp,qpr->qr", phi_QP, moves_UPP[of_Q])
    added_Q = ((slope_QP @ found.effects[0].open) ** 2).sum(axis=1)
    before_Q, after_Q = (each.sd_parameter[0, :, 0, 0].astype(float) ** 2 for each in (old, new))
    np.testing.assert_allclose(after_Q, before_Q + added_Q, rtol=1e-4)


def test_weights_of_covariates_are_as_open_as_their_regression_leaves_them() -> None:
    rng = np.random.default_rng(0)
    x_NTX = rng.normal(size=(50, 9, 2)).cumsum(axis=1)
    nothing = np.zeros((50, 9, 1))
    series: Any = replace(_series(x_NTX), x_NTX=x_NTX)
    found = fit_covariates(series, nothing, nothing, series)
    drawn_SGX = found.drawn(rng, 4_000)
    known_MG = np.concatenate([np.ones((50, 9, 1)), x_NTX], axis=-1)[:, :-1].reshape(-1, 3)
    exact_GG = np.linalg.inv(known_MG.T @ known_MG)
    for x in range(2):
        covariance = np.cov(drawn_SGX[:, :3, x].T)
        np.testing.assert_allclose(np.diag(covariance), np.diag(exact_GG) * found.residual[x, x], rtol=0.1)
    assert (replace(found, open=None).drawn(rng, 5) == found.weight).all()


@pytest.mark.parametrize("left", [0.0, 0.9, 1.0])
def test_the_noise_of_covariates_is_that_of_the_gap(left: float) -> None:
    """Of one that keeps a share of its level in a day, beside one that keeps nothing, seen after 1 or 30 days."""
    rng = np.random.default_rng(0)
    gap_NT, x_NTX = rng.choice([1.0, 30.0], size=(300, 20)), rng.normal(size=(300, 20, 2))
    share_NT = left**gap_NT
    noise_NT = 0.1 * np.sqrt(gap_NT if left == 1 else (1 - share_NT**2) / (1 - left**2))
    for t in range(19):
        x_NTX[:, t + 1, 0] = share_NT[:, t] * x_NTX[:, t, 0] + noise_NT[:, t] * rng.normal(size=300)
    nothing = np.zeros((300, 20, 1))
    series = replace(_series(x_NTX), gap_NT=gap_NT)
    found = fit_covariates(series, nothing, nothing, series)
    both_Q = np.array([1.0, 30.0])
    covariance_QXX = found.covariance(both_Q)
    true_Q = 0.1 * np.sqrt(both_Q if left == 1 else (1 - left ** (2 * both_Q)) / (1 - left**2))
    np.testing.assert_allclose(np.sqrt(covariance_QXX[:, 0, 0]), true_Q, rtol=0.08)
    np.testing.assert_allclose(np.sqrt(covariance_QXX[:, 1, 1]), 1.0, rtol=0.08)
    np.testing.assert_allclose(covariance_QXX[:, 0, 1], 0.0, atol=0.02)


def test_weights_of_covariates_over_gaps_are_as_open_as_their_noise_leaves_them() -> None:
    rng = np.random.default_rng(0)
    found, gap_NT = [], rng.choice([1.0, 30.0], size=(100, 60, 12))
    nothing = np.zeros((60, 12, 1))
    for gap in gap_NT:
        steps_NTX = np.sqrt(gap)[..., None] * rng.normal(size=(60, 12, 1))
        series = replace(
            _series(np.concatenate([nothing[:, :1], steps_NTX[:, :-1].cumsum(axis=1)], axis=1)), gap_NT=gap
        )
        found.append(fit_covariates(series, nothing, nothing, series))
    drift = np.std([each.weight[0, 0] for each in found])
    told = np.mean([each.drawn(rng, 400)[:, 0, 0].std() for each in found])
    assert told == pytest.approx(drift, rel=0.2)


def _series(x_NTX: Floats) -> Series:
    n, steps, _ = x_NTX.shape
    zeros = np.zeros((n, steps, 1))
    return Series(zeros, zeros, x_NTX, zeros[:, 0], zeros, np.full(n, steps), zeros > 0)
