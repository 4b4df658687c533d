"""What fills the gaps of ICU covariates, and what does not: other patients, and later values but in the own mean."""

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from costar_cli.data.icu.table import (
    COVARIATE_VARIABLES,
    STATIC_VARIABLES,
    Imputation,
    encode_statics,
    forward_filled,
    warn_of_odd_labels,
)
from costar_cli.reporting import NullReporter
from simulators.icu import COVARIATES
from tests.datasets.mimic_worlds import made_table

NAN = np.nan
N, T, F = 4, 6, 3
FALLBACK = np.array([10.0, 20.0, 30.0])
Series = tuple[np.ndarray, np.ndarray]  # values and lengths
Either = Literal[False, True]


@st.composite
def gappy(draw: st.DrawFn) -> Series:
    """Series `[4,6,3]` with gaps, NaN beyond the lengths."""
    values = draw(npst.arrays(np.float32, (N, T, F), elements=st.floats(-100, 100, width=16)))
    missing = draw(npst.arrays(np.bool_, (N, T, F)))
    length = draw(npst.arrays(np.int64, N, elements=st.integers(1, T)))
    beyond = np.arange(T) >= length[:, None]
    return np.where(missing | beyond[..., None], np.float32(NAN), values), length


def literal(series: list[float], length: int, fallback: float, *, own_mean: bool) -> list[float]:
    """One patient's series of one covariate, filled patient by patient (spec ICU-2)."""
    known = [x for x in series[:length] if not np.isnan(x)]
    last = np.mean(known, dtype=np.float64) if own_mean and known else fallback
    filled = []
    for value in series[:length]:
        last = last if np.isnan(value) else value
        filled.append(last)
    return filled + [0.0] * (len(series) - length)


@given(gappy(), st.booleans())
def test_gaps_are_filled_as_a_literal_reading_fills_them(world: Series, own_mean: Either):
    values, length = world
    filled = Imputation(FALLBACK, own_mean)(values, length)
    for i in range(N):
        for f in range(F):
            expected = literal(values[i, :, f].tolist(), length[i], FALLBACK[f], own_mean=own_mean)
            np.testing.assert_allclose(filled[i, :, f], expected, rtol=1e-6, atol=1e-6)


@given(gappy(), gappy(), st.booleans())
def test_a_patient_is_filled_the_same_in_any_company(world: Series, others: Series, own_mean: Either):
    impute = Imputation(FALLBACK, own_mean)
    together = impute(*(np.concatenate(arrays) for arrays in zip(others, world, strict=True)))
    assert np.array_equal(together[N:], impute(*world))
    for i in range(N):
        assert np.array_equal(impute(world[0][i : i + 1], world[1][i : i + 1])[0], together[N + i])


@given(gappy(), gappy(), st.integers(1, T))
def test_without_the_own_mean_nothing_later_fills_anything(world: Series, other: Series, hour: int):
    impute = Imputation(FALLBACK, own_mean=False)
    values, length = world
    changed = values.copy()
    changed[:, hour:] = other[0][:, hour:]
    assert np.array_equal(impute(values, length)[:, :hour], impute(changed, length)[:, :hour])


@given(gappy(), gappy(), st.integers(1, T))
def test_the_own_mean_fills_only_hours_before_the_first_recorded_value(world: Series, other: Series, hour: int):
    impute = Imputation(FALLBACK, own_mean=True)
    values, length = world
    changed = values.copy()
    changed[:, hour:] = other[0][:, hour:]
    before = ~np.isnan(forward_filled(values))[:, :hour]  # something was recorded by then
    assert np.array_equal(impute(values, length)[:, :hour][before], impute(changed, length)[:, :hour][before])


@given(gappy(), st.booleans())
def test_recorded_values_stay_and_nothing_is_missing(world: Series, own_mean: Either):
    values, length = world
    filled = Imputation(FALLBACK, own_mean)(values, length)
    assert np.isfinite(filled).all()
    recorded = ~np.isnan(values)
    assert np.array_equal(filled[recorded], values[recorded])
    assert not filled[np.arange(T) >= length[:, None]].any()


def test_fallbacks_are_the_means_of_recorded_training_values():
    train = np.array([[[1.0, NAN], [3.0, NAN]], [[NAN, NAN], [8.0, NAN]]], dtype=np.float32)
    learned = Imputation.learn(train, own_mean=True)
    assert learned.fallback[0] == 4.0
    assert np.isnan(learned.fallback[1])


def test_covariates_that_training_patients_never_have_are_zero_for_all_and_told():
    impute = Imputation(np.array([4.0, NAN]), own_mean=True)
    values = np.array([[[NAN, 7.0], [5.0, 900.0]]], dtype=np.float32)
    assert impute(values, np.array([2])).tolist() == [[[5.0, 0.0], [5.0, 0.0]]]
    reporter = NullReporter()
    impute.tell(("sodium", "calcium urine"), reporter)
    assert reporter.warnings == ["1 covariate is never recorded in source/train and held at 0: 'calcium urine'"]


def test_every_covariate_has_a_unit():
    assert tuple(v.name for v in COVARIATE_VARIABLES) == COVARIATES
    assert all(v.unit for v in COVARIATE_VARIABLES)


def test_statics_are_one_column_per_label_and_a_capped_age():
    assert len(STATIC_VARIABLES) == 44
    names = [v.name for v in STATIC_VARIABLES]
    assert names[:2] == ["gender=F", "gender=M"]
    assert names[2:43] == sorted(names[2:43])
    assert names[-1] == "age"
    assert [v.standardize for v in STATIC_VARIABLES] == [False] * 43 + [True]
    table = made_table([1, 1], [303.0, 30.0], gender=np.array(["M", "F"]), ethnicity=np.array(["WHITE", "ASIAN"]))
    encoded = encode_statics(table, np.array([0, 1]), age_cap=91.4)
    assert encoded[:, -1].tolist() == pytest.approx([91.4, 30.0])
    assert [{names[c] for c in np.flatnonzero(row[:-1])} for row in encoded] == [
        {"gender=M", "ethnicity=WHITE"},
        {"gender=F", "ethnicity=ASIAN"},
    ]


def test_labels_that_mimic_does_not_have_give_zeros_and_a_warning():
    table = made_table([1, 1], [50, 60], ethnicity=np.array(["MARTIAN", "WHITE"]), gender=np.array(["F", ""]))
    reporter = NullReporter()
    warn_of_odd_labels(table, np.arange(2), reporter)
    assert [("'MARTIAN'" in w, "`gender`" in w) for w in reporter.warnings] == [(False, True), (True, False)]
    encoded = encode_statics(table, np.arange(2), age_cap=91.4)
    assert encoded[0, 2:43].sum() == 0
    assert encoded[1, :2].sum() == 0
