"""The calibration targets of spec COHORT-13, on 12,000 stays.

Means and spreads are those of recorded values, as the targets are. The four variables of which few patients have a
value (60 to 1,200) are recorded independently of it, so their complete series has the same law and less noise.
"""

import numpy as np
import pytest

from simulators.icu import COVARIATES, VARIABLES, simulate_icu
from simulators.icu.targets import CORRELATIONS, LAG_CORRELATIONS, RECORDED, SELDOM_RECORDED


@pytest.fixture(scope="module")
def cohort():
    return simulate_icu(12_000, seed=0)


def column(cohort, name, *, complete=False):
    table = cohort.complete if complete else cohort.values
    return table[:, COVARIATES.index(name)].astype(np.float64)


def lag_correlation(cohort, values, lag):
    same = cohort.stay[lag:] == cohort.stay[:-lag]
    first, second = values[:-lag][same], values[lag:][same]
    both = np.isfinite(first + second)
    return np.corrcoef(first[both], second[both])[0, 1]


def test_all_covariates_have_a_target():
    assert tuple(RECORDED) == COVARIATES == tuple(variable.name for variable in VARIABLES)


@pytest.mark.parametrize("name", COVARIATES)
def test_means_and_spreads_are_those_of_real_stays(cohort, name):
    mean, sd, _ = RECORDED[name]
    values = column(cohort, name, complete=name in SELDOM_RECORDED)
    assert np.nanmean(values) == pytest.approx(mean, rel=0.05)
    assert np.nanstd(values) == pytest.approx(sd, rel=0.10)


@pytest.mark.parametrize("name", COVARIATES)
def test_as_much_is_missing_as_in_real_stays(cohort, name):
    target = RECORDED[name].missing_percent
    missing = 100.0 * np.isnan(column(cohort, name)).mean()
    if name in SELDOM_RECORDED:
        assert 1 / 3 < (100.0 - missing) / (100.0 - target) < 3
    assert missing == pytest.approx(target, abs=1.0)


@pytest.mark.parametrize(("first", "second", "target"), [pair[:3] for pair in CORRELATIONS])
def test_covariates_recorded_together_correlate(cohort, first, second, target):
    """Targets are correlations of the scores, so lognormal variables are compared on the log scale."""
    series = []
    for name in (first, second):
        law = VARIABLES[COVARIATES.index(name)].law
        values = column(cohort, name)
        series.append(np.log(values + 0.1) if law == "lognormal" else values)
    both = np.isfinite(series[0] + series[1])
    assert both.sum() > 5_000
    assert np.corrcoef(series[0][both], series[1][both])[0, 1] == pytest.approx(target, abs=0.08)


@pytest.mark.parametrize(("name", "targets"), LAG_CORRELATIONS.items())
def test_series_persist_as_in_the_demo(cohort, name, targets):
    values = column(cohort, name)
    for lag, target in targets.items():
        assert lag_correlation(cohort, values, lag) == pytest.approx(target, abs=0.05)


def test_recorded_heart_rate_has_the_lag_one_autocorrelation(cohort):
    assert 0.88 <= lag_correlation(cohort, column(cohort, "heart rate"), 1) <= 0.93


def test_lengths_are_those_of_real_stays(cohort):
    length = cohort.stays.length
    assert length.mean() == pytest.approx(63.6, abs=1.0)
    assert (length >= 20).mean() == pytest.approx(0.92, abs=0.01)
    assert (length >= 100).mean() == pytest.approx(0.175, abs=0.01)
    assert length.min() >= 13
    assert length.max() <= 240


def test_ages_have_their_shares_and_old_ones_are_deidentified(cohort):
    age = cohort.stays.age
    deidentified = age > 89
    assert ((age[deidentified] >= 300) & (age[deidentified] <= 305)).all()
    shares = np.histogram(np.minimum(age, 91.4), [15, 20, 45, 65, 85, 92])[0] / len(age)
    np.testing.assert_allclose(shares, [0.01, 0.14, 0.33, 0.42, 0.10], atol=0.01)
    true_age = simulate_icu(2_000, deid_age=False).stays.age
    assert 89 < true_age.max() < 130
    assert (true_age[true_age > 85] - 85).mean() == pytest.approx(3.5, rel=0.25)


def test_statics_keep_their_width_and_shares(cohort):
    labels, counts = np.unique(cohort.stays.ethnicity, return_counts=True)
    shares = dict(zip(labels.tolist(), (counts / len(cohort.stays)).tolist(), strict=True))
    assert len(labels) == 41
    assert shares["WHITE"] == pytest.approx(0.695, abs=0.02)
    assert shares["BLACK/AFRICAN AMERICAN"] == pytest.approx(0.092, abs=0.01)
    assert set(cohort.stays.gender) == {"F", "M"}
    assert (cohort.stays.gender == "M").mean() == pytest.approx(0.56, abs=0.015)


def test_care_is_given_as_often_as_in_real_stays(cohort):
    assert cohort.vent[cohort.hours_in == 0].mean() == pytest.approx(0.38, abs=0.02)
    assert cohort.vent.mean() == pytest.approx(0.19, abs=0.012)
    assert cohort.vaso.mean() == pytest.approx(0.127, abs=0.01)


def test_coma_scores_have_their_ceiling(cohort):
    score = column(cohort, "glascow coma scale total", complete=True)
    assert score.mean() == pytest.approx(12.3, abs=0.15)
    assert (score == 15).mean() == pytest.approx(0.37, abs=0.02)
