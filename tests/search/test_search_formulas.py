"""Formulas of searches against values that are worked out another way (spec SEARCH-5 and 8)."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.stats import sem

from costar_cli.inference import OutcomeFacts, calibration_of
from costar_cli.questions.search import Objective, search
from costar_cli.questions.search.objective import Term
from costar_cli.questions.search.regret import _nearest, _of_part, _Truth
from tests.search.test_search import LAST, PANEL, best, question
from tests.search.test_search_limits import Partly
from tests.whatif.whatif_worlds import TUMOR


def test_the_interval_of_several_steps_is_the_largest_radius_of_them_times_the_sd_of_their_number() -> None:
    """Radii of 1.5, .5 and 2 times the usual ones; errors of all steps are the same, so that their mean is as well."""
    model = Partly(TUMOR, most=99)
    calibration = calibration_of(model)
    factor_H = np.array([1.5, 0.5, 2.0, 9.0, 9.0, 9.0])
    radius = np.where(np.isfinite(calibration.radius_LHYB), calibration.radius_LHYB, 1e9) * factor_H[:, None, None]
    model.attached = replace(calibration, radius_LHYB=radius).to_arrays()
    asked = question(model, steps=3, minimise=["tumour_volume mean"])
    found = next(search("m", model, PANEL, LAST, asked))
    given_M = found.values_MHA.sum(axis=(1, 2))
    half_M = np.diff(found.limits_M2, axis=1)[:, 0] / 2
    np.testing.assert_allclose(half_M, 2 * (2 * 0.9) * (1 + 0.01 * given_M), rtol=0.1)  # of 1,000 draws: 2.2 %
    middle = next(search("m", model, PANEL, LAST, question(model, steps=3, minimise=["tumour_volume at step 2"])))
    half = np.diff(middle.limits_M2[0])[0] / 2
    assert half == pytest.approx(0.5 * (2 * 0.9) * (1 + 0.01 * middle.values_MHA[0].sum()), rel=1e-4)


def test_a_regret_has_the_standard_error_of_its_mean_over_the_subjects_that_a_policy_says_something_of() -> None:
    rng = np.random.default_rng(0)
    loss_NP = rng.normal(size=(9, 5))
    place_N = np.array([0, 3, -1, 2, 2, -1, 4, 1, 0])
    truth = _Truth(loss_NP, {"m": place_N}, np.array([1.0, 0, np.nan, 1, 1, np.nan, 0, 1, 1]), 2)
    rows = {row.policy: row for row in _of_part("source/test", "m", truth, first=True)}
    lost_N = np.array([loss - min(row) for row in loss_NP.tolist() for loss in row]).reshape(9, 5)
    own = [lost_N[n, p] for n, p in enumerate(place_N) if p >= 0]
    assert rows["m"].mean == pytest.approx(np.mean(own))
    assert rows["m"].error == pytest.approx(sem(own))
    assert rows["m"].subjects == 7
    assert rows["m"].relative == pytest.approx(np.mean(own) / np.mean(lost_N[place_N >= 0]))
    assert rows["m"].covered == pytest.approx(5 / 7)
    assert rows["m"].best == pytest.approx(np.mean(np.array(own) == 0))
    assert rows["random"].mean == pytest.approx(lost_N.mean())
    assert rows["random"].error == pytest.approx(sem(lost_N.mean(axis=1)))
    assert rows["best single plan"].mean == pytest.approx(lost_N.mean(axis=0).min())


def test_the_interval_of_a_difference_is_the_radius_times_the_sd_of_the_difference() -> None:
    """Outcomes under a plan have an sd of 1 + .01 a treatment, by the same chance: a difference has .01 each."""
    found = best(Partly(TUMOR, most=99))[0]
    treated = found.values_MHA[0].sum() - found.values_MHA[-1].sum()
    half = np.diff(found.apart_M2[0])[0] / 2
    assert treated == 12
    assert half == pytest.approx(2 * 0.9 * 0.01 * treated, rel=0.1)  # of 1,000 draws: 2.2 %


def test_limits_of_losses_are_the_corners_of_the_outcomes_that_can_occur() -> None:
    terms = (Term(0, "at", -2.0, step=1), Term(1, "mean", 0.5), Term(0, "above", 3.0, level=4.0))
    objective = Objective(terms, (), 3, 1, "", "")
    facts = OutcomeFacts((0.0, -1.0), (10.0, 6.0), (None, None), ())
    corners = np.array(list(product((0.0, 10.0), (-1.0, 6.0), (0.0, 10.0))))  # outcomes at step 2, means, the others
    sums = [-2 * y + 0.5 * mean + 3 * (3 if above > 4 else 0) for y, mean, above in corners]
    assert objective.bounds(facts) == pytest.approx((min(sums), max(sums)))
    unknown = replace(facts, upper=(None, 6.0))
    assert objective.bounds(unknown) == pytest.approx((-np.inf, 0.5 * 6 + 9))


def test_beginnings_promise_the_better_of_giving_nothing_more_and_of_going_on() -> None:
    found = question(steps=4).candidates
    value = dict(zip(product(range(4), repeat=4), np.random.default_rng(0).random(256), strict=True))
    begun_PH = np.array([[1, 2], [3, 3], [0, 1]], dtype=np.uint16)
    promise_P = found._promise(begun_PH, lambda plans_PH: np.array([value[tuple(plan)] for plan in plans_PH.tolist()]))
    nothing = found.nothing
    for (first, second), promise in zip(begun_PH.tolist(), promise_P, strict=True):
        assert promise == min(value[first, second, nothing, nothing], value[first, second, second, second])


def test_the_nearest_doses_are_near_in_shares_of_what_each_ranges_over() -> None:
    values_KA = np.array([[500.0, 1.0], [1_000.0, 0.0]])
    assert _nearest(np.array([600.0, 0.0]), values_KA, 0) == 1  # .2 + 1 and .8 + 0 of their ranges
    assert _nearest(np.array([600.0, 0.4]), values_KA, 0) == 0  # .2 + .6 and .8 + .4
