"""The ICU cohort: schema, determinism, ranges, and the effects of age, clock, course and care."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulators.icu import COVARIATES, ETHNICITY_SHARES, INTERVENTIONS, VARIABLES, simulate_icu
from simulators.icu.care import MEAN_PRESSURE, VASO_LIFT, give_care
from simulators.icu.latent import draw_latent
from simulators.icu.layout import HourLayout
from simulators.icu.physiology import Physiology, latent_correlation
from simulators.icu.stays import draw_stays

HEART_RATE, UREA = COVARIATES.index("heart rate"), COVARIATES.index("blood urea nitrogen")


@pytest.fixture(scope="module")
def cohort():
    return simulate_icu(1_500, seed=4)


def table(cohort):
    return {f.name: getattr(cohort, f.name) for f in fields(cohort) if f.name != "stays"}


def test_columns_are_those_of_the_schema(cohort):
    assert len(COVARIATES) == len(VARIABLES) == 25
    assert COVARIATES[0] == "heart rate"
    assert COVARIATES[7] == "glascow coma scale total"
    assert COVARIATES[24] == "calcium urine"
    assert len(ETHNICITY_SHARES) == 41
    assert len(INTERVENTIONS) == 14
    assert cohort.values.shape == cohort.complete.shape == (len(cohort), 25)
    assert cohort.values.dtype == cohort.complete.dtype == np.float32


def test_hours_run_without_gaps_stay_by_stay(cohort):
    length = cohort.stays.length
    assert len(cohort) == length.sum()
    np.testing.assert_array_equal(cohort.stay, np.repeat(np.arange(len(length)), length))
    np.testing.assert_array_equal(cohort.hours_in, np.concatenate([np.arange(n) for n in length]))


def test_identifiers_are_unique_and_in_the_ranges_of_mimic(cohort):
    stays = cohort.stays
    for ids, lo, hi in ((stays.subject_id, 1, 99_999), (stays.hadm_id, 1e5, 2e5), (stays.icustay_id, 2e5, 3e5)):
        assert len(np.unique(ids)) == len(stays)
        assert lo <= ids.min() <= ids.max() <= hi
    assert (np.diff(stays.subject_id) > 0).all()
    np.testing.assert_array_equal(cohort.hadm_id, stays.hadm_id[cohort.stay])
    np.testing.assert_array_equal(cohort.icustay_id, stays.icustay_id[cohort.stay])
    np.testing.assert_array_equal(cohort.subject_id, stays.subject_id[cohort.stay])


def test_values_are_in_range_and_at_clinical_resolution(cohort):
    assert np.isfinite(cohort.complete).all()
    for v, variable in enumerate(VARIABLES):
        values = cohort.complete[:, v].astype(np.float64)
        assert values.min() >= variable.lo - 1e-6
        assert values.max() <= variable.hi + 1e-4
        ticks = values / variable.resolution
        np.testing.assert_allclose(ticks, np.round(ticks), atol=2e-2 if values.max() > 1e3 else 1e-3)


def test_recorded_values_are_the_complete_ones(cohort):
    seen = np.isfinite(cohort.values)
    np.testing.assert_array_equal(cohort.values[seen], cohort.complete[seen])
    assert 0.05 < seen.mean() < 0.25


def test_diastolic_pressure_goes_with_the_mean_pressure(cohort):
    mean = cohort.values[:, MEAN_PRESSURE]
    np.testing.assert_array_equal(np.isnan(cohort.diastolic), np.isnan(mean))
    seen = np.isfinite(mean)
    assert (cohort.diastolic[seen] <= mean[seen]).all()
    assert 0.75 < np.corrcoef(cohort.diastolic[seen], mean[seen])[0, 1] < 0.95


def test_the_same_seed_gives_the_same_cohort_and_another_one_another(cohort):
    same, other = simulate_icu(1_500, seed=4), simulate_icu(1_500, seed=5)
    for name, values in table(cohort).items():
        np.testing.assert_array_equal(values, getattr(same, name))
    assert len(other) != len(cohort)


def test_the_first_stays_do_not_depend_on_how_many_follow(cohort):
    few = simulate_icu(700, seed=4)
    for name, values in table(few).items():
        np.testing.assert_array_equal(values, getattr(cohort, name)[: len(few)])
    for name in ("subject_id", "gender", "ethnicity", "length", "course", "admission_hour"):
        np.testing.assert_array_equal(getattr(few.stays, name), getattr(cohort.stays, name)[:700])


def test_progress_counts_all_stays():
    seen = []
    simulate_icu(1_100, on_progress=seen.append)
    assert sum(seen) == 1_100
    assert len(seen) == 3


@pytest.mark.parametrize("n", [0, -1, 100_000])
def test_impossible_sizes_are_errors(n):
    with pytest.raises(ValueError, match="stays"):
        simulate_icu(n)


def test_one_stay_is_a_cohort():
    cohort = simulate_icu(1)
    assert len(cohort.stays) == 1
    assert len(cohort) == cohort.stays.length[0]


def test_factors_give_a_positive_definite_correlation():
    correlation = latent_correlation()
    np.testing.assert_allclose(np.diag(correlation), 1.0)
    assert np.linalg.eigvalsh(correlation).min() == pytest.approx(0.06, abs=0.005)


@pytest.fixture(scope="module")
def latent_world():
    rng = np.random.default_rng(0)
    stays = draw_stays(0, 6_000, rng)
    layout = HourLayout.of(stays.length)
    ranked = stays.take(np.argsort(layout.rank_of))
    return ranked, layout, draw_latent(Physiology.of_covariates(), ranked, layout, rng)


def test_scores_are_standard(latent_world):
    _, _, latent = latent_world
    np.testing.assert_allclose(latent.score.std(axis=0), 1.0, atol=0.05)
    np.testing.assert_allclose(latent.score.mean(axis=0), 0.0, atol=0.06)


def test_age_sex_clock_and_course_move_the_scores(latent_world):
    stays, layout, latent = latent_world
    level = latent.score[layout.hour == 0]
    by_decade = np.polyfit((np.minimum(stays.age, 95) - 65) / 10, level, 1)[0]
    assert by_decade[UREA] == pytest.approx(0.22, abs=0.03)
    assert by_decade[HEART_RATE] == pytest.approx(-0.10, abs=0.03)
    hematocrit = level[:, COVARIATES.index("hematocrit")]
    male = stays.gender == "M"
    assert hematocrit[male].mean() - hematocrit[~male].mean() == pytest.approx(0.25, abs=0.08)
    by_clock = np.array([latent.score[latent.clock % 24 == hour, HEART_RATE].mean() for hour in range(24)])
    assert 13 <= by_clock.argmax() <= 19
    assert np.ptp(by_clock) == pytest.approx(0.2, abs=0.06)
    last = layout.hour == layout.length[layout.rank] - 1
    order = layout.rank[last].argsort()
    change = latent.shock[last][order] - latent.shock[layout.hour == 0]
    for course, drift in enumerate((-0.8, 0.0, 1.0)):
        assert change[stays.course == course].mean() == pytest.approx(drift, abs=0.12)


def test_a_vasopressor_raises_the_pressure_of_the_next_hour(latent_world):
    stays, layout, _ = latent_world
    before, after = (draw_latent(Physiology.of_covariates(), stays, layout, np.random.default_rng(1)) for _ in "ab")
    care = give_care(after, layout, np.random.default_rng(2))
    lift = (after.score - before.score)[layout.stay_major()]
    vaso, hour = care.vaso[layout.stay_major()], layout.hour[layout.stay_major()]
    was_on = np.concatenate([[False], vaso[:-1]]) & (hour > 0)
    np.testing.assert_allclose(lift[:, MEAN_PRESSURE], VASO_LIFT * was_on, atol=1e-5)
    assert (np.delete(lift, MEAN_PRESSURE, axis=1) == 0).all()


def test_low_pressure_calls_for_vasopressors(cohort):
    pressure = cohort.complete[:, MEAN_PRESSURE]
    started = cohort.vaso.copy()
    started[1:] &= ~cohort.vaso[:-1]
    assert pressure[started].mean() < pressure.mean() - 8


@settings(max_examples=50, deadline=None)
@given(length=st.lists(st.integers(1, 30), min_size=1, max_size=20), seed=st.integers(0, 2**32))
def test_layouts_keep_every_stay_hour(length, seed):
    length = np.array(length)
    layout = HourLayout.of(length)
    rows = layout.stay_major()
    np.testing.assert_array_equal(np.sort(rows), np.arange(length.sum()))
    np.testing.assert_array_equal(layout.hour[rows], np.concatenate([np.arange(n) for n in length]))
    np.testing.assert_array_equal(layout.rank[rows], np.repeat(layout.rank_of, length))
    assert sum(rows.stop - rows.start for rows in layout.hours()) == layout.n_rows
    events = layout.renewals(np.random.default_rng(seed), (3, 4))[rows]
    for stay in np.split(events, np.cumsum(length)[:-1]):
        times = np.flatnonzero(stay)
        assert set(np.diff(times)) <= {3, 4}
        assert len(times) >= len(stay) // 4
    few = layout.few(np.random.default_rng(seed), share=1.0, most=2)[rows]
    assert all(1 <= stay.sum() <= 2 for stay in np.split(few, np.cumsum(length)[:-1]))
