"""Formulas of hazards and of rates against loops and closed forms (spec SURV-3 and 9)."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from costar_cli.data import End, Panel, PanelSchema, Queries, Scaler, TreatmentEncoding, Variable
from costar_cli.inference import Hazards, OutcomeFacts
from costar_cli.inference.propensity import DOSES, KNOTS
from costar_cli.inference.rates import ends_in, expected_ends
from costar_cli.inference.survival import BEFORE_ENDS, USUAL

SCHEMA = PanelSchema(
    treatments=TreatmentEncoding(mode="multilabel", names=("drug",), levels=(("off", "on"),)),
    outcomes=(Variable(name="volume"),),
    ends=(End(name="death"),),
)
FLOOR, MEAN, SD, DOWN, UP = 0.1, 0.5, 0.8, -0.3, 0.2  # of logarithms: least value, moments, usual changes of a step
CHANGE_SD = 0.2
INTERCEPT, SLOPE = -2.0, 1.5  # of the hazard on the standardised logarithm


def of_the_logarithm() -> Hazards:
    """Hazards that depend on the logarithm of the last outcome alone."""
    knots = len(KNOTS) + len(BEFORE_ENDS)
    coef = np.zeros((1, (knots + 1) * 2 + (len(DOSES) + 2) * 1 + 1))
    coef[0, 1] = SLOPE  # the outcome is the first column, its logarithm the second
    scaler = Scaler(np.zeros((2, 0)), np.array([[4.0], [2.0]]), np.zeros((2, 0)))
    moments = np.array([[MEAN], [SD], [DOWN], [UP]])
    hazards = Hazards(SCHEMA, scaler, np.array([FLOOR]), moments, np.zeros((knots, 1, 2)), np.array([INTERCEPT]), coef)
    hazards._check(4)
    return hazards


def test_logarithms_go_on_from_their_own_step_before_by_no_more_than_they_usually_change() -> None:
    known_NT = np.array([[2.0, 3.0, 1.0], [5.0, 0.01, 7.0]])
    panel = Panel(
        np.zeros((2, 3, 0), np.float32), np.zeros((2, 3, 1), np.float32), known_NT[..., None].astype(np.float32),
        np.zeros((2, 0), np.float32), np.full(2, 3), np.arange(2),
    )  # fmt: skip
    predicted_QH = np.array([[9.0, 9.0, 0.001, 9.0], [0.0105, 0.2, 0.15, -3.0]])
    queries = Queries(np.array([0, 1], np.int32), np.array([2, 1], np.int16), np.zeros((2, 4, 1), np.uint8))
    found_QH = of_the_logarithm().along(panel, queries, predicted_QH[..., None])[..., 0]
    for q, start in enumerate((1.0, 0.01)):
        log = np.log(max(start, FLOOR))
        for h in range(4):  # the hazard of a step is that of the outcome before it
            assert found_QH[q, h] == pytest.approx(expit(INTERCEPT + SLOPE * (log - MEAN) / SD), rel=1e-6)
            log = min(max(np.log(max(predicted_QH[q, h], FLOOR)), log + DOWN), log + UP)


def test_as_many_ends_are_expected_as_rates_bring_in_their_time() -> None:
    """Ends that come again and again, as a Poisson process brings them: rate times time, of each end."""
    rate_QHE = np.random.default_rng(0).gamma(0.5, 0.3, (6, 5, 3))
    rate_QHE[0, 0], rate_QHE[0, 1, 1:] = 0.0, 0.0
    time_QH = np.random.default_rng(1).uniform(0.1, 9.0, (6, 5))
    with np.errstate(divide="ignore"):
        ends_QHE = ends_in(np.log(rate_QHE), time_QH)
    np.testing.assert_allclose(expected_ends(ends_QHE), rate_QHE * time_QH[..., None], rtol=1e-9)


def test_the_ends_of_rates_side_by_side_are_those_of_the_first_of_exponential_times() -> None:
    rate_E, time, rng = np.array([0.3, 0.05]), 2.5, np.random.default_rng(0)
    drawn_ME = rng.exponential(1 / rate_E, (400_000, 2))
    first_M = drawn_ME.argmin(axis=1)
    within_M = drawn_ME.min(axis=1) < time
    shares = [(within_M & (first_M == e)).mean() for e in range(2)]
    np.testing.assert_allclose(ends_in(np.log(rate_E)[None, None], np.array([[time]]))[0, 0], shares, atol=0.003)


def growing(n: int, rows: int) -> Panel:
    """Outcomes whose logarithms change by independent normals of sd .2 in each step; one in nine subjects dies."""
    rng = np.random.default_rng(3)
    volume_NT = np.exp(np.cumsum(rng.normal(scale=CHANGE_SD, size=(n, rows)), axis=1))
    return Panel(
        np.zeros((n, rows, 0), np.float32), (rng.random((n, rows, 1)) < 0.5).astype(np.float32),
        volume_NT[..., None].astype(np.float32), np.zeros((n, 0), np.float32), np.full(n, rows), np.arange(n),
        end=(np.arange(n) % 9 == 0).astype(np.int64),
    )  # fmt: skip


def usual_changes(panel: Panel) -> np.ndarray:
    scaler = Scaler.fit(panel, SCHEMA)
    hazards = Hazards.fit(panel, SCHEMA, scaler, OutcomeFacts.of(panel, SCHEMA, scaler))
    assert hazards is not None
    return hazards.moments_4Z[2:, 0]


def carried_forward(panel: Panel, seen_NT: np.ndarray) -> Panel:
    y_NT1, seen_NT1 = panel.outcomes.copy(), seen_NT[..., None]
    for t in range(1, panel.n_steps):
        y_NT1[:, t] = np.where(seen_NT1[:, t], y_NT1[:, t], y_NT1[:, t - 1])
    return replace(panel, outcomes=y_NT1, outcome_observed=seen_NT1)


def test_usual_changes_of_logarithms_are_those_between_observed_steps() -> None:
    """A jump to a value after a gap is the change of several steps, and a value carried forward has none."""
    whole, true = growing(3_000, 12), norm.ppf(USUAL, scale=CHANGE_SD)
    seen_NT = np.random.default_rng(4).random((3_000, 12)) < 0.4
    seen_NT[:, 0] = True
    filled = carried_forward(whole, seen_NT)
    np.testing.assert_allclose(usual_changes(whole), true, rtol=0.05)
    np.testing.assert_allclose(usual_changes(filled), true, rtol=0.05)
    unmasked = np.abs(usual_changes(replace(filled, outcome_observed=None)))
    assert (unmasked > 1.3 * np.abs(true)).all()  # what filling does


def test_where_no_observed_outcome_follows_another_all_changes_are_usual() -> None:
    every_other = np.broadcast_to(np.arange(12) % 2 == 0, (3_000, 12))
    filled = carried_forward(growing(3_000, 12), every_other)
    np.testing.assert_array_equal(usual_changes(filled), usual_changes(replace(filled, outcome_observed=None)))
