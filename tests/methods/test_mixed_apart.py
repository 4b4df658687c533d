"""Mixed-effects models of treatments that were nearly always given together: who has which half-life, and bands."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from costar_cli.data import Dataset, Panel, Part, Queries, Scaler
from costar_cli.methods.mixed.apart import exchanged, tell_apart
from costar_cli.methods.mixed.densities import Apart
from costar_cli.methods.mixed.directions import likeness, nearly_alike
from costar_cli.methods.mixed.effects import Effects
from costar_cli.methods.mixed.fit import _Fit
from costar_cli.methods.mixed.law import Design, Floats, GrowthTransition, Series
from costar_cli.methods.mixed.likelihood import log_likelihood, start_values
from costar_cli.methods.mixed.model import MixedModel
from costar_cli.training import Trained
from tests.fits import model_of
from tests.methods.mixed_worlds import DECAY, SCHEMA, SPREAD, TRAIN, fit, grow, grown, next_level

MEANS = np.array([0.05, -0.06, 0.06, -0.12])
ORIGIN = 10


def nearly(n: int, seed: int, decays: tuple[float, float], *, apart: int) -> tuple[Panel, Floats]:
    """Subjects who got one of two treatments alone in so many steps, and otherwise both or none; with their effects."""
    rng = np.random.default_rng(seed)
    dose_NT2 = rng.integers(2, size=(n, 16, 1)).astype(float).repeat(2, axis=2)
    dose_NT2[np.arange(apart), rng.integers(2, 14, size=apart)] = [1, 0]
    effects_N4 = MEANS + SPREAD * rng.normal(size=(n, 4)) * [1, 0.5, 1, 1]
    return grow(dose_NT2, effects_N4, rng, relative=True, seed=seed, decays=decays), effects_N4


@cache
def world(decays: tuple[float, float]) -> tuple[Dataset, Trained]:
    panels = {
        part: nearly(60 if part == TRAIN else 20, i, decays, apart=2 if part == TRAIN else 0)[0]
        for i, part in enumerate(Part.all())
    }
    data = Dataset("nearly", SCHEMA, 4, panels)
    return data, fit(data)


def fitted(decays: tuple[float, float]) -> MixedModel:
    found = model_of(world(decays)[1])
    assert isinstance(found, MixedModel)
    return found


def held(decays: tuple[float, float]) -> float:
    """Return how often the band of 90 % holds what either treatment alone does in the first step."""
    panel, effects_N4 = nearly(100, 50, decays, apart=0)
    rows, origin = np.arange(100, dtype=np.int32), np.full(100, ORIGIN, np.int16)
    left_N2, share = np.zeros((100, 2)), []
    for dose_NA in panel.treatments[:, :ORIGIN].swapaxes(0, 1):
        left_N2 = (left_N2 + (dose_NA @ [0, 1, 1, 1] > 0)[:, None]) * decays
    for given in (1, 2):
        plan = np.tile(np.eye(4, dtype=np.uint8)[given], (100, 1, 1))
        predicted = fitted(decays).predict_distribution(panel, Queries(rows, origin, plan))
        exposure_N2 = left_N2 + np.array([given & 1, given >> 1])
        y_N = panel.outcomes[:, ORIGIN, 0].astype(float)
        true_N = next_level(y_N, exposure_N2, effects_N4, np.zeros(100), relative=True)
        share.append(np.abs(true_N - predicted.mean[0, :, 0, 0]) < 1.645 * predicted.sd_parameter[0, :, 0, 0])
    return float(np.mean(share))


def test_the_half_lives_of_treatments_that_were_hardly_ever_apart_are_those_of_the_likelihood() -> None:
    """A search may end where the treatments have changed places: it then goes on from where they have not."""
    data, trained = world((DECAY, 0.0))
    found = model_of(trained)
    assert isinstance(found, MixedModel)
    series = Series.of(data.panels[TRAIN], found.scaler, SCHEMA.treatments)
    design = found.laws[0].design(series, *found._rollout.moments)
    wrong = exchanged(found.effects[0], 0, 1)
    assert wrong.decay[0] == pytest.approx([0.0, DECAY], abs=0.1)
    effects, tied = tell_apart(design, replace(wrong, log_likelihood=log_likelihood(design, wrong)), iterations=200)
    assert effects.decay[0] == pytest.approx([DECAY, 0.0], abs=0.1)
    assert tied == []


def test_half_lives_that_the_likelihood_does_not_tell_apart_are_the_same() -> None:
    (effects,) = fitted((DECAY, DECAY)).effects
    assert effects.decay[0, 0] == effects.decay[0, 1]
    assert effects.decay[0, 0] == pytest.approx(DECAY, abs=0.1)


@pytest.mark.parametrize("decays", [(DECAY, 0.0), (DECAY, DECAY)])
def test_bands_hold_what_treatments_do_alone_that_were_hardly_ever_apart(decays: tuple[float, float]) -> None:
    assert held(decays) > 0.8


def test_it_is_said_on_how_many_steps_it_rests_what_one_does_alone() -> None:
    (told,) = [warning for warning in world((DECAY, 0.0))[1].meta["warnings"] if "nearly always" in warning]
    assert told.startswith("'drug', 'ray' were nearly always given together, apart in 2 steps of 2 subjects: ")


def designed(panel: Panel) -> tuple[Design, Effects]:
    series = Series.of(panel, Scaler.fit(panel, SCHEMA), SCHEMA.treatments)
    design = GrowthTransition.of(series, 0, relative=True, basis="log", linked=False).design(
        series, np.zeros(1), np.ones(1)
    )
    return design, start_values(design, carry_overs=2, hidden=2)


def test_exchanged_treatments_are_as_likely_under_exchanged_doses() -> None:
    design, effects = designed(grown(20, 10, relative=True, seed=1))
    effects = replace(effects, decay=np.array([[0.3, 0.5], [0.8, 0.9]]), mean=np.arange(6) / 50)
    other = replace(design, dose_NTL=design.dose_NTL[..., ::-1])
    assert log_likelihood(other, exchanged(effects, 0, 1)) == pytest.approx(log_likelihood(design, effects), rel=1e-12)
    assert log_likelihood(design, exchanged(effects, 0, 1)) != pytest.approx(log_likelihood(design, effects), rel=1e-6)


def test_treatments_are_nearly_alike_where_they_were_mostly_given_together() -> None:
    pairs = {
        apart: nearly_alike(likeness(designed(nearly(40, 3, (DECAY, 0.0), apart=apart)[0])[0])) for apart in (0, 2)
    }
    assert pairs == {0: [], 2: [(0, 1)]}
    assert nearly_alike(likeness(designed(grown(40, 12, relative=True, seed=1))[0])) == []


def test_spreads_of_which_little_is_known_are_likeliest_at_the_usual_size() -> None:
    apart = Apart.of([(0, 1)], np.diag([1.0, 0.01, 0.01]), np.full((1, 2), 0.3), usual=0.2)
    losses = {size: apart.loss(np.diag([1.0, size, size]))[0] for size in (0.1, 0.2, 0.4)}
    assert min(losses, key=lambda size: losses[size]) == 0.2
    together = np.array([[1.0, 0.0, 0.0], [0.0, 0.2, 0.0], [0.0, 0.199, 0.02]])
    assert apart.loss(together)[0] > losses[0.2]  # the difference follows from the other effects
    assert Apart.of([], np.zeros((3, 3)), np.full((1, 2), 0.3), usual=0.2).loss(np.zeros((3, 3)))[0] == 0


def test_the_slope_of_the_prior_of_spreads_is_its_derivative() -> None:
    rng, apart = np.random.default_rng(0), Apart.of([(0, 1)], np.eye(5), np.full((2, 2), 0.3), usual=0.2)
    spread_ZZ = np.eye(5) + 0.3 * rng.normal(size=(5, 5))
    _, slope_ZZ = apart.loss(spread_ZZ)
    for place in np.ndindex(5, 5):
        step_ZZ = np.zeros((5, 5))
        step_ZZ[place] = 1e-6
        derivative = (apart.loss(spread_ZZ + step_ZZ)[0] - apart.loss(spread_ZZ - step_ZZ)[0]) / 2e-6
        assert slope_ZZ[place] == pytest.approx(derivative, rel=1e-5, abs=1e-6)


def test_a_treatment_that_follows_from_two_others_is_found() -> None:
    likeness_LL = np.array([[1, 0, 0.5**0.5], [0, 1, 0.5**0.5], [0.5**0.5, 0.5**0.5, 1]])
    assert _Fit._dependent(likeness_LL) == [(0, 1, 2)]
    assert _Fit._dependent(np.eye(3)) == []
    assert _Fit._dependent(np.ones((2, 2))) == []  # always together, which is said by itself
