"""Differential equations of disease and drug: published steady states, closed forms, noise, and confounding."""

import numpy as np
import pytest
from scipy.integrate import quad

from simulators.mechanistic import HIV, Glucose, Mechanism, Warfarin, simulate_course
from simulators.mechanistic import glucose as g
from simulators.mechanistic import warfarin as w
from simulators.mechanistic.hiv import HEALTHY, TYPICAL, UNHEALTHY

MECHANISMS = [Glucose(), HIV(), Warfarin()]
NOTHING = np.zeros(1)


def column(values) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


def course_of(mechanism: Mechanism, n: int = 20, steps: int = 12, gamma: float = 1.0, seed: int = 0):
    return simulate_course(mechanism, n, steps, np.random.default_rng(seed), gamma=gamma, horizon=3)


@pytest.mark.parametrize(("published", "off"), [(UNHEALTHY, 0.02), (HEALTHY, 0.02), ((1e6, 3198, 0, 0, 0, 10), 1e-6)])
def test_steady_states_of_hiv_are_those_published(published: tuple[float, ...], off: float) -> None:
    state = column(published)
    for _ in range(40):
        state = HIV().advance(column(TYPICAL), state, np.zeros((2, 1)), NOTHING, NOTHING)
    given = column(published)
    rounding = 0.5 * (given < 1000) * (given > 0)  # the paper rounds to whole cells
    assert (np.abs(state - given) <= off * given + rounding).all()


def test_drugs_lower_the_virus_by_their_efficacies_in_time() -> None:
    """From a steady state on, 30 % less virus is made at once, and old virus decays at c + k1 T1 (spec HIV-3)."""
    soon = HIV()
    soon.step, soon.substeps = 0.1, 20
    after = {
        drugs: [
            of.advance(column(TYPICAL), column(UNHEALTHY), column(drugs), NOTHING, NOTHING)[4, 0] / UNHEALTHY[4]
            for of in (soon, HIV())
        ]
        for drugs in ((0, 0), (0, 1), (1, 0), (1, 1))
    }
    assert after[0, 0] == pytest.approx([1, 1], abs=0.01)
    assert after[0, 1][0] == pytest.approx(0.7 + 0.3 * np.exp(-0.1 * (13 + TYPICAL[0] * UNHEALTHY[0])), abs=0.01)
    days = [after[drugs][1] for drugs in ((1, 1), (1, 0), (0, 1), (0, 0))]
    assert (np.diff(days) > 0.05).all(), "both drugs lower it most, and the stronger one more than the weaker"


def test_hiv_hardly_changes_with_finer_steps() -> None:
    fine = HIV()
    fine.substeps = 400
    usual, finer = (course_of(mechanism, n=30, steps=10).outcome for mechanism in (HIV(), fine))
    assert np.abs(usual - finer).max() < 0.01


def test_a_small_bolus_lowers_glucose_by_the_closed_form() -> None:
    """At basal glucose without meals, of dX = p3 I - p2 X and dG = -p1 G - Gb X to first order (spec GLUCOSE-3)."""
    p1, p2, p3, basal = g.TYPICAL
    bolus, n = 0.001, g.INSULIN_DECAY
    rates = np.array([p1, p2, n])
    minutes = 30.0 * np.arange(1, 7)
    weights = [1 / np.prod(np.delete(rates, i) - rates[i]) for i in range(3)]
    response = (np.exp(-minutes[:, None] * rates) * weights).sum(axis=1)
    expected = -basal * p3 * 1000 * bolus / g.INSULIN_VOLUME * response
    plan = np.zeros((1, 6, 1))
    plan[0, 0] = bolus
    quiet = np.full((1, 6), Glucose.mean_noise)
    start = np.array([[basal, 0, 0, 0]])
    found = Glucose().follow(np.array([g.TYPICAL]), start, plan, np.zeros((1, 6)), quiet) - basal
    np.testing.assert_allclose(found[0], expected, rtol=1e-3)
    assert (expected < 0).all()


def test_inr_under_a_constant_dose_settles_where_inhibition_says() -> None:
    """In the long run each chain passes on the mean of what is left of the synthesis (spec WARFARIN-3)."""
    mechanism, parameters, dose = Warfarin(), np.array([[0.348, 3.01]]), 5.0
    plan, quiet = np.full((1, 120, 1), dose), np.full((1, 120), Warfarin.mean_noise)
    start = np.ones((1, 7))
    start[0, 0] = 0
    inr = mechanism.follow(parameters, start, plan, np.zeros((1, 120)), quiet)[0]
    decay = 0.348 / w.VOLUME_L
    peak = w.S_SHARE * dose / (1 - np.exp(-24 * decay))
    half = np.array(0.348 * 3.01)
    mean = quad(lambda t: float(w.inhibited(np.array(decay * peak * np.exp(-decay * t)), half)), 0, 24)[0] / 24
    assert inr[-1] == pytest.approx(1 + w.INR_MAX * mean, rel=0.01)
    assert 2 < inr[-1] < 3
    assert inr[0] < 1.2, "it takes days"


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: type(mechanism).__name__)
def test_the_plan_that_was_followed_gives_the_course_that_was_observed(mechanism: Mechanism) -> None:
    course = course_of(mechanism)
    at = slice(4, 10)
    found = mechanism.follow(
        course.patients.parameters, course.state[:, 4], course.treatments[:, at], course.event[:, at],
        course.noise[:, 5:11],
    )  # fmt: skip
    np.testing.assert_allclose(found, course.outcome[:, 5:11], rtol=1e-12)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: type(mechanism).__name__)
def test_patients_do_not_depend_on_how_many_there_are_and_share_noise_under_every_policy(mechanism: Mechanism) -> None:
    few, many, other = course_of(mechanism, 4), course_of(mechanism, 9), course_of(mechanism, 4, gamma=0)
    np.testing.assert_array_equal(few.outcome, many.outcome[:4])
    np.testing.assert_array_equal(few.noise, other.noise)
    np.testing.assert_array_equal(few.outcome[:, 0], other.outcome[:, 0])
    assert (few.treatments != other.treatments).any()


def slope(dose: np.ndarray, outcome: np.ndarray) -> float:
    return float(np.cov(dose, outcome)[0, 1] / dose.var())


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: type(mechanism).__name__)
def test_the_bias_of_a_naive_contrast_grows_with_the_strength_of_the_policy(mechanism: Mechanism) -> None:
    """Against the same doses handed out at random, whose outcomes the oracle knows."""
    bias = []
    for gamma in (0.0, 0.3, 1.5):
        course = course_of(mechanism, n=1500, steps=10, gamma=gamma)
        given = course.treatments[:, 8]
        shuffled = given[np.random.default_rng(1).permutation(len(given))]
        patients = course.patients.parameters, course.state[:, 8]
        chance = course.event[:, 8:9], course.noise[:, 9:10]
        outcome = [mechanism.follow(*patients, dose[:, None], *chance)[:, 0] for dose in (given, shuffled)]
        spread = outcome[0].std() / given[:, 0].std()
        bias.append((slope(given[:, 0], outcome[0]) - slope(shuffled[:, 0], outcome[1])) / spread)
    assert abs(bias[0]) < 0.1
    assert abs(bias[1]) > 0.08
    assert abs(bias[2]) > abs(bias[1]) + 0.05


@pytest.mark.parametrize("mechanism", [Glucose(), Warfarin()], ids=["Glucose", "Warfarin"])
def test_the_mean_course_from_a_state_is_the_mean_over_noise_and_events(mechanism: Mechanism) -> None:
    n, rng = 20_000, np.random.default_rng(2)
    one = course_of(mechanism, n=1, steps=6)
    many = [np.repeat(values, n, axis=0) for values in (one.patients.parameters, one.state[:, 5])]
    plan = np.full((n, 3, 1), 3.0)
    event = mechanism.events(n, 3, rng)
    event[:, 0] = one.event[0, 5]
    drawn = mechanism.follow(*many, plan, event, rng.standard_normal((n, 3)))
    usual = np.full((1, 3), mechanism.mean_event)
    usual[:, 0] = one.event[0, 5]
    mean = mechanism.follow(
        one.patients.parameters, one.state[:, 5], plan[:1], usual, np.full((1, 3), mechanism.mean_noise)
    )
    assert (np.abs(drawn.mean(axis=0) - mean[0]) < 4 * drawn.std(axis=0) / n**0.5).all()
