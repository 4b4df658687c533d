from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.cli.benchmarking.tables import compare, gain_percent, share_of_wins
from costar_cli.effects import holm
from costar_cli.evaluation import paired_difference
from costar_cli.evaluation.bootstrap import paired_differences
from costar_cli.evaluation.metrics import SquaredErrors
from tests.evaluate.benchmark_worlds import constant_errors, noisy_errors

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12)
OPTIONS = {"factor": 1.0, "level": 0.95, "replicates": 300, "seed": 0}


def test_holm_gives_the_textbook_example():
    # Holm (1979): the smallest of four times 4, the next times 3, then times 2; never smaller than the one before.
    assert holm([0.010, 0.020, 0.030, 0.500]) == pytest.approx([0.04, 0.06, 0.06, 0.5])
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.4, 0.6]) == pytest.approx([0.8, 0.8])
    assert holm([]) == []


@given(P_VALUES)
def test_holm_lies_between_the_raw_and_bonferronis_p_values_and_keeps_their_order(p_values):
    corrected = holm(p_values)
    assert all(raw <= c <= min(1, len(p_values) * raw) + 1e-12 for raw, c in zip(p_values, corrected, strict=True))
    order = np.argsort(p_values, kind="stable")
    assert (np.diff(np.array(corrected)[order]) >= 0).all()
    assert min(corrected) == pytest.approx(min(1, len(p_values) * min(p_values)))


@given(P_VALUES, st.randoms())
def test_holm_does_not_depend_on_the_order_of_the_tests(p_values, random):
    shuffled = list(range(len(p_values)))
    random.shuffle(shuffled)
    corrected = holm(p_values)
    assert holm([p_values[i] for i in shuffled]) == pytest.approx([corrected[i] for i in shuffled])


def test_holm_keeps_the_error_rate_of_many_tests_without_effect():
    rng = np.random.default_rng(0)
    any_rejected = [min(holm(rng.random(10).tolist())) <= 0.05 for _ in range(2000)]
    assert 0.03 < np.mean(any_rejected) < 0.065


def test_gain_is_relative_to_the_larger_error_and_lies_within_a_hundred_percent():
    assert gain_percent(0.9627, 0.9027) == pytest.approx(6.23, abs=0.01)  # MSM and COSTAR, zero-shot (spec SCORE-13)
    assert gain_percent(0.5, 1.0) == -50
    assert gain_percent(1.0, 0.5) == 50
    assert gain_percent(0.0, 1.0) == -100
    assert gain_percent(1.0, 0.0) == 100
    assert gain_percent(None, 1.0) is None
    assert gain_percent(1.0, None) is None
    assert gain_percent(0.0, 0.0) is None


def test_wins_count_pairs_of_members_and_ties_half():
    assert share_of_wins([2, 3], [1, 1]) == 1
    assert share_of_wins([1, 3], [2, 2]) == 0.5
    assert share_of_wins([1, 1], [1, 2]) == 0.25


def compare_two(worse, reference, **options):
    (found,) = compare({"crn": "CRN"}, {"crn": worse}, reference, **(OPTIONS | options))
    return found


def test_a_known_difference_is_found_with_its_size_and_sign():
    ours, theirs = noisy_errors(1.0), noisy_errors(1.44)  # root mean squares 20 % apart, subject by subject
    found = compare_two({10: theirs}, {10: ours}, factor=10.0)
    expected = 10 * 0.2 * np.sqrt(ours.members.mean())
    assert found.difference.average == pytest.approx(expected)
    assert found.lower.average < expected < found.upper.average
    assert found.lower.average > 0
    assert found.p_value < 0.01
    assert (found.p_holm, found.wins, found.data_sets) == (found.p_value, 1.0, 1)
    swapped = compare_two({10: ours}, {10: theirs}, factor=10.0)
    assert swapped.difference.average == pytest.approx(-expected)
    assert swapped.upper.average < 0
    assert swapped.wins == 0


def test_equal_methods_show_no_difference():
    found = compare_two({10: noisy_errors(1.0)}, {10: noisy_errors(1.0)})
    assert found.difference.average == 0
    assert found.p_value == 1
    assert found.wins == 0.5


def test_unrelated_noise_is_seldom_called_a_difference():
    rng = np.random.default_rng(1)
    p_values = []
    for _ in range(60):
        a, b = (noisy_errors(1.0, seed=int(rng.integers(2**31)), sd=0.4) for _ in range(2))
        p_values.append(compare_two({10: a}, {10: b}, replicates=200).p_value)
    assert 0.0 <= np.mean(np.array(p_values) < 0.05) <= 0.15


def test_every_comparison_of_a_table_counts_in_the_correction():
    reference = {10: noisy_errors(1.0)}
    worse = {f"m{i}": {10: noisy_errors(1.0 + 0.5 * (i == 0), seed=i)} for i in range(4)}
    found = compare({name: name for name in worse}, worse, reference, **OPTIONS)
    assert [c.p_holm for c in found] == pytest.approx(holm([c.p_value for c in found]))
    assert found[0].p_holm == pytest.approx(4 * found[0].p_value)


def test_several_data_sets_average_their_differences_and_narrow_the_interval():
    ours = {seed: noisy_errors(1.0, seed=seed) for seed in range(4)}
    theirs = {seed: noisy_errors(1.2, seed=100 + seed) for seed in range(4)}
    one = [compare_two({seed: theirs[seed]}, {seed: ours[seed]}) for seed in range(4)]
    all_four = compare_two(theirs, ours)
    assert all_four.difference.average == pytest.approx(np.mean([c.difference.average for c in one]))
    width = all_four.upper.average - all_four.lower.average
    assert width == pytest.approx(np.mean([c.upper.average - c.lower.average for c in one]) / 2, rel=0.3)
    assert all_four.data_sets == 4


def test_only_data_sets_that_both_were_scored_on_are_compared():
    both = compare_two({10: noisy_errors(4.0), 11: noisy_errors(1.0)}, {11: noisy_errors(1.0), 12: noisy_errors(1.0)})
    assert (both.data_sets, both.difference.average) == (1, 0)
    assert compare({"crn": "CRN"}, {"crn": {10: noisy_errors(1.0)}}, {11: noisy_errors(1.0)}, **OPTIONS) == ()


def test_without_a_bootstrap_there_are_differences_but_no_tests():
    found = compare_two({10: noisy_errors(1.44)}, {10: noisy_errors(1.0)}, replicates=0)
    assert found.difference.average > 0
    assert (found.lower, found.upper, found.p_value, found.p_holm) == (None, None, None, None)


def test_units_of_several_subjects_are_resampled_as_one():
    """Eight copies of each unit's subject, known to be one unit, are tested as the 40 units that they are."""
    alone = [noisy_errors(1.0, subjects=40, seed=seed) for seed in (1, 2)]
    unit = np.arange(40).repeat(8)
    copied = [SquaredErrors(e.members[:, unit], e.ensemble[unit], e.count[unit], cluster=unit) for e in alone]
    expected, found = (compare_two({0: a}, {0: b}, replicates=1000) for a, b in (alone, copied))
    assert found.difference.average == pytest.approx(expected.difference.average)
    assert found.lower.average == pytest.approx(expected.lower.average)
    assert found.upper.average == pytest.approx(expected.upper.average)
    assert found.p_value == expected.p_value
    # taken for 320 units, they would seem to know the difference the square root of 8 better
    apart = compare_two(*({0: replace(e, cluster=None)} for e in copied), replicates=1000)
    widths = [c.upper.average - c.lower.average for c in (found, apart)]
    assert widths[0] / widths[1] == pytest.approx(np.sqrt(8), rel=0.1)


def test_few_units_in_one_data_set_leave_the_difference_but_no_test_and_say_why():
    rich, poor = noisy_errors(1.2), replace(noisy_errors(1.2), cluster=np.arange(60) // 20)
    found = compare_two({0: rich, 1: poor}, {0: noisy_errors(1.0), 1: replace(noisy_errors(1.0), cluster=poor.cluster)})
    assert found.difference.average > 0
    assert (found.lower, found.upper, found.p_value, found.p_holm) == (None, None, None, None)
    assert found.untested == "3 clusters, 20 are needed"
    assert compare_two({0: rich}, {0: noisy_errors(1.0)}).untested is None


def test_one_pair_is_the_paired_difference_and_pairs_are_resampled_independently():
    a, b = noisy_errors(1.5, seed=1), noisy_errors(1.0, seed=2)
    options = {"level": 0.9, "replicates": 200, "seed": 4}
    alone, one = paired_difference(a, b, **options), paired_differences([(a, b)], **options)
    assert np.array_equal(alone.steps, one.steps)
    assert alone.interval.average == one.interval.average
    twice = paired_differences([(a, b), (a, b)], **options)
    assert twice.average == pytest.approx(alone.average)
    ratio = np.subtract(*twice.interval.average) / np.subtract(*alone.interval.average)
    assert ratio == pytest.approx(np.sqrt(0.5), rel=0.2)


def test_methods_scored_on_other_queries_cannot_be_compared():
    with pytest.raises(ValueError, match="same queries"):
        compare_two({10: constant_errors([[1.0]])}, {10: constant_errors([[1.0]], per_subject=4)})
