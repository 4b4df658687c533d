"""Quantiles of grouped scores: their coverage, weights, bins, and samples that are too small."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.inference.conformal import EDGES, GRID, LEAST_UNITS, bins_of, effective, merged, radii, table


@given(
    seed=st.integers(0, 2**32 - 1),
    subjects=st.integers(5, 60),
    most=st.integers(1, 9),
    level=st.sampled_from([0.5, 0.8, 0.9]),
    sigma=st.sampled_from([0.1, 2.0]),
)
def test_a_new_subject_is_covered_at_least_as_often_as_the_level_says(
    seed: int, subjects: int, most: int, level: float, sigma: float
) -> None:
    """Each subject of an exchangeable sample is left out in turn: exact, with no error of simulation."""
    rng = np.random.default_rng(seed)
    count = rng.integers(1, most + 1, subjects)
    unit_M = np.repeat(np.arange(subjects), count)
    own_N = rng.lognormal(sigma=sigma, size=subjects)
    score_M = np.abs(rng.normal(size=len(unit_M))) * own_N[unit_M]
    covered = []
    for subject in range(subjects):
        mine_M = unit_M == subject
        radius = radii(score_M[~mine_M], unit_M[~mine_M], np.array([level]))[0]
        covered.append((score_M[mine_M] <= radius).mean())
    assert np.mean(covered) >= level - 1e-9


def test_a_subject_with_many_windows_counts_as_much_as_one_with_one() -> None:
    unit_M = np.array([0] * 100 + list(range(1, 10)))
    score_M = np.concatenate([np.full(100, 50.0), np.arange(1.0, 10)])
    assert radii(score_M, unit_M, np.array([0.5])) == 6.0  # of 10 subjects and one at infinity, 5.5 lie below
    assert radii(score_M, unit_M, np.array([0.85])) == 50.0


@pytest.mark.parametrize(("level", "needed"), [(0.5, 1), (0.9, 9), (0.95, 19)])
def test_too_few_subjects_for_a_level_give_an_infinite_band(level: float, needed: int) -> None:
    for subjects, expected in ((needed - 1, np.inf), (needed, needed - 1.0)):
        assert radii(np.arange(float(subjects)), np.arange(subjects), np.array([level])) == expected
    assert np.isinf(radii(np.empty(0), np.empty(0, dtype=np.int64), np.array([0.1]))[0])


def test_errors_that_are_no_numbers_are_infinite() -> None:
    score_M = np.array([np.nan] * 3 + [1.0] * 17)
    assert np.isinf(radii(score_M, np.arange(20), np.array([0.9]))[0])
    assert radii(score_M, np.arange(20), np.array([0.8]))[0] == 1.0


@pytest.mark.parametrize(
    ("units", "groups"),
    [
        ([100, 100, 100, 100], [0, 1, 2, 3]),
        ([10, 35, 39, 100], [0, 0, 1, 1]),
        ([100, 0, 0, 39], [0, 0, 0, 0]),
        ([1, 2, 3, 4], [0, 0, 0, 0]),
        ([50, 50, 10, 20], [0, 1, 1, 1]),
    ],
)
def test_bins_with_few_subjects_are_merged_with_their_neighbours(units: list[int], groups: list[int]) -> None:
    assert merged(np.arange(sum(units)), np.repeat(np.arange(4), units)).tolist() == groups


def test_a_subject_in_several_bins_counts_once_towards_their_group() -> None:
    """15 subjects with errors in each bin are 15 subjects, not 60."""
    unit_M, bin_M = np.tile(np.arange(15), 4), np.repeat(np.arange(4), 15)
    assert merged(unit_M, bin_M).tolist() == [0, 0, 0, 0]
    more, last = np.arange(15, 50), np.full(35, 3)
    assert merged(np.append(unit_M, more), np.append(bin_M, last)).tolist() == [0, 0, 0, 0]
    _, count_B = table(np.ones(60), unit_M, bin_M)
    assert count_B.tolist() == [15] * 4
    both = np.append(unit_M[:30], np.arange(100, 140)), np.append(bin_M[:30], np.full(40, 2))
    assert merged(*both).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("heavy", "weight", "groups"), [(0, 20.0, [0, 0, 1, 1]), (200, 20.0, [0, 1, 1, 1]), (460, 25.0, [0, 1, 1, 1])]
)
def test_a_bin_of_which_one_subject_has_a_tenth_of_the_weight_is_merged(
    heavy: int, weight: float, groups: list[int]
) -> None:
    """40 subjects' worth is no 90 % band there: in the first bin, one between, or with what is left over."""
    unit_M, bin_M = np.arange(470), np.repeat(np.arange(4), [150, 150, 150, 20])
    weight_M = np.ones(470)
    weight_M[heavy] = weight
    alone_M = bin_M >= 2 if heavy == 460 else bin_M == bin_M[heavy]
    assert effective(unit_M[alone_M], weight_M[alone_M]) >= LEAST_UNITS
    assert merged(unit_M, bin_M, weight_M).tolist() == groups
    radius_LB, _ = table(np.ones(470), unit_M, bin_M, weight_M)
    assert np.isfinite(radius_LB[899]).all()


def test_each_bin_has_the_quantiles_of_its_own_errors() -> None:
    n = LEAST_UNITS + 9
    unit_M, bin_M = np.arange(4 * n), np.repeat(np.arange(4), n)
    score_M = np.tile(np.linspace(0.0, 1.0, n), 4) * (1 + bin_M)
    radius_LB, count_B = table(score_M, unit_M, bin_M)
    half = radius_LB[np.searchsorted(GRID, 0.5)]
    assert half == pytest.approx(half[0] * np.arange(1, 5))
    assert count_B.tolist() == [n] * 4
    few, count_B = table(score_M[: n + 5], unit_M[: n + 5], bin_M[: n + 5])
    assert (few == few[:, :1]).all()
    assert count_B.tolist() == [n + 5] * 4


def test_shares_fall_into_bins_between_the_edges() -> None:
    assert bins_of(np.array([[[0.0], [EDGES[0]], [0.8], [1.0]]]))[0, :, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_nothing_depends_on_the_scale_of_weights(scale: float) -> None:
    weight_M, unit_M = np.array([3.0, 1.0, 0.0, 0.0]) * scale, np.arange(4)
    assert effective(unit_M, weight_M) == pytest.approx(1.6)
    np.testing.assert_array_equal(radii(np.arange(4.0), unit_M, np.array([0.4, 0.5, 0.9]), weight_M), [0, 1, np.inf])


def test_units_that_weigh_nothing_are_none() -> None:
    nothing_M = np.zeros(2)
    assert effective(np.arange(2), nothing_M) == effective(np.empty(0, dtype=np.int64)) == 0.0
    assert np.isinf(radii(np.ones(2), np.arange(2), np.array([0.1]), nothing_M)[0])
