from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from skewed_worlds import equally_good

from costar_cli.evaluation import bootstrap_interval, paired_difference
from costar_cli.evaluation.bootstrap import too_few_units
from costar_cli.evaluation.metrics import SquaredErrors
from costar_cli.inference import resampling


def errors(subjects, *, members=2, horizon=3, per_subject=4, seed=0, sd=1.0, subject_sd=0.0):
    """Normal errors whose size varies by subject; the true RMSE is known."""
    rng = np.random.default_rng(seed)
    scale = np.exp(subject_sd * rng.normal(size=(subjects, 1, 1)))
    error = sd * scale * rng.normal(size=(members, subjects, horizon, per_subject))
    squared = (error**2).sum(axis=-1)[..., None]
    return SquaredErrors(squared, squared.mean(axis=0), np.full((subjects, horizon), per_subject))


def interval(scored, **changes):
    return bootstrap_interval(scored, **({"level": 0.95, "replicates": 400, "seed": 0} | changes))


def test_interval_holds_the_estimate_and_orders_its_bounds():
    scored = errors(80, subject_sd=0.3)
    found = interval(scored)
    mean = scored.rmse().mean(axis=0)
    assert ((found.lower < mean) & (mean < found.upper)).all()
    assert found.average[0] < mean.mean() < found.average[1]


def test_interval_shrinks_with_the_root_of_the_number_of_subjects():
    few, many = (interval(errors(n, subject_sd=0.3)) for n in (100, 1600))
    assert (few.upper - few.lower).mean() / (many.upper - many.lower).mean() == pytest.approx(4, rel=0.35)


def test_subjects_are_resampled_and_not_their_queries():
    """Many queries of the same subjects do not make the interval narrower where subjects differ."""
    few = interval(errors(60, per_subject=2, subject_sd=1.0))
    many = interval(errors(60, per_subject=200, subject_sd=1.0))
    assert (many.upper - many.lower).mean() > 0.5 * (few.upper - few.lower).mean()


def test_units_of_several_subjects_are_resampled_as_one():
    """Ten copies of each subject, known to be one unit, are no more evidence than the subject alone."""
    alone = errors(40, subject_sd=0.4)
    unit = np.arange(40).repeat(10)
    copied = SquaredErrors(alone.members[:, unit], alone.ensemble[unit], alone.count[unit], cluster=unit)
    assert np.allclose(interval(copied).lower, interval(alone).lower)
    assert np.allclose(interval(copied).upper, interval(alone).upper)
    apart = interval(replace(copied, cluster=None))
    assert (apart.upper - apart.lower < 0.6 * (interval(copied).upper - interval(copied).lower)).all()


def test_same_seed_same_interval_and_another_seed_another():
    scored = errors(30)
    assert interval(scored).lower.tolist() == interval(scored).lower.tolist()
    assert interval(scored).lower.tolist() != interval(scored, seed=1).lower.tolist()


def test_a_higher_level_gives_a_wider_interval():
    scored = errors(30)
    narrow, wide = interval(scored, level=0.5), interval(scored, level=0.99)
    assert (wide.lower < narrow.lower).all()
    assert (wide.upper > narrow.upper).all()


def test_weights_do_not_depend_on_how_many_are_held_at_once(monkeypatch):
    scored = errors(30)
    whole = interval(scored)
    monkeypatch.setattr(resampling, "CHUNK_WEIGHTS", 100)
    assert interval(scored).upper == pytest.approx(whole.upper, rel=1e-12)


def test_every_resample_draws_as_many_subjects_as_there_are():
    weights = np.concatenate(list(resampling.weights(17, 50, 3)))
    assert (weights.sum(axis=1) == 17).all()
    assert weights.mean() == 1.0


@pytest.mark.parametrize("units", [1, 19])
def test_too_few_units_have_neither_interval_nor_test_and_the_reason_counts_them(units):
    few = errors(units)
    assert interval(few) is None
    assert paired(few, few) is None
    assert too_few_units([errors(30), few]) == f"{units} subject{'s' * (units > 1)}, 20 are needed"
    assert interval(errors(20)) is not None
    assert too_few_units([errors(20)]) is None


def test_few_clusters_of_many_subjects_count_as_few_units():
    clustered = replace(errors(60), cluster=np.arange(60) // 20)
    assert interval(clustered) is None
    assert paired(clustered, clustered) is None
    assert too_few_units([clustered]) == "3 clusters, 20 are needed"


def test_too_few_replicates_give_no_interval():
    assert interval(errors(30), replicates=0) is None
    assert interval(errors(30), replicates=5) is None
    assert interval(errors(30), replicates=20) is not None


def test_a_difference_that_one_unit_makes_is_bounded_by_nothing():
    """More than a third of the resamples leave that unit out and show no difference at all."""
    first = errors(30)
    second = replace(first, members=first.members.copy())
    second.members[:, 7] *= 2
    found = paired(second, first)
    assert found.average > 0
    assert found.interval.average == (-np.inf, np.inf)
    assert found.p_value > 1 / 3


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_the_interval_leaves_out_zero_exactly_where_the_p_value_is_at_most_one_minus_its_level(level):
    verdicts = set()
    for seed in range(40):
        first, second = equally_good(25, np.random.default_rng(seed), alike=True, spread=0.4)
        second.members[:] *= 1 + seed / 40
        found = paired_difference(first, second, level=level, replicates=199, seed=seed)
        lower, upper = found.interval.average
        verdicts.add(lower > 0 or upper < 0)
        assert (lower > 0 or upper < 0) == (found.p_value <= 1 - level + 1e-12)
    assert verdicts == {True, False}


def test_interval_and_p_value_are_those_of_a_plain_loop_over_resamples():
    """Written out: resample units, take the standard error by the delta method, compare absolute pivots."""
    scored = equally_good(24, np.random.default_rng(5), alike=False, spread=0.4)
    a_NH, b_NH = (errors.members[0, ..., 0] for errors in scored)
    c_NH = scored[0].count

    def both(roots):
        return zip((a_NH, b_NH), roots, strict=True)

    def difference(drawn):
        roots = [np.sqrt(values[drawn].sum(axis=0) / c_NH[drawn].sum(axis=0)) for values in (a_NH, b_NH)]
        own_N = np.zeros(len(drawn))
        for place, unit in enumerate(drawn):
            for h in range(a_NH.shape[1]):
                total = c_NH[drawn, h].sum()
                a, b = ((v[unit, h] / total - c_NH[unit, h] / total * r[h] ** 2) / (2 * r[h]) for v, r in both(roots))
                own_N[place] += (a - b) / a_NH.shape[1]
        return (roots[0] - roots[1]).mean(), np.sqrt((own_N**2).sum())

    estimate, error = difference(np.arange(24))
    pivots = []
    for weights_N in np.concatenate(list(resampling.weights(24, 99, [3, 24]))):
        value, own_error = difference(np.arange(24).repeat(weights_N.astype(int)))
        pivots.append(abs(value - estimate) / own_error)
    found = paired_difference(*scored, level=0.95, replicates=99, seed=3)
    assert found.average == pytest.approx(estimate)
    assert found.p_value == pytest.approx((1 + sum(pivot >= abs(estimate) / error for pivot in pivots)) / 100)
    width = sorted(pivots)[94] * error  # the 95th of 99: five of a hundred, the estimate among them, lie beyond it
    assert found.interval.average == pytest.approx((estimate - width, estimate + width))


def test_with_many_units_the_p_value_is_that_of_both_tails_of_the_normal_distribution():
    first, second = equally_good(400, np.random.default_rng(2), alike=True, spread=0.1)
    for factor in (1.0, 1.01, 1.02, 0.98):
        scaled = replace(second, members=factor * second.members)
        found = paired_difference(first, scaled, level=0.95, replicates=2000, seed=1)
        deviation = (found.interval.average[1] - found.interval.average[0]) / (2 * 1.96)
        assert found.p_value == pytest.approx(2 * norm.sf(abs(found.average) / deviation), abs=0.03)


def test_subjects_without_scored_steps_are_left_out():
    scored = errors(30)
    empty = np.zeros((10, 3), dtype=np.int64)
    padded = SquaredErrors(
        np.concatenate([scored.members, np.zeros((2, 10, 3, 1))], axis=1),
        np.concatenate([scored.ensemble, np.zeros((10, 3, 1))]),
        np.concatenate([scored.count, empty]),
    )
    assert interval(padded).lower == pytest.approx(interval(scored).lower)


def test_a_step_that_nothing_scored_has_no_bounds():
    scored = errors(30)
    scored.members[:, :, 1] = 0
    scored.count[:, 1] = 0
    found = interval(scored)
    assert np.isnan(found.lower[1])
    assert np.isfinite(found.lower[[0, 2]]).all()
    assert np.isnan(found.average[0])


def paired(first, second):
    return paired_difference(first, second, level=0.95, replicates=400, seed=0)


def test_paired_difference_of_a_method_with_itself_is_zero():
    scored = errors(30)
    found = paired(scored, scored)
    assert found.average == 0
    assert found.interval.average == (0, 0)
    assert found.p_value == 1


def test_paired_difference_finds_a_small_gain_that_unpaired_intervals_hide():
    worse = errors(60, subject_sd=1.0)
    better = SquaredErrors(0.94 * worse.members, worse.ensemble, worse.count)
    found = paired(better, worse)
    assert found.average == pytest.approx(float((better.rmse() - worse.rmse()).mean()))
    assert found.interval.average[1] < 0
    assert found.p_value < 0.01
    assert interval(better).average[1] > interval(worse).average[0]


def test_methods_scored_on_other_queries_cannot_be_paired():
    with pytest.raises(ValueError, match="same queries"):
        paired(errors(30), errors(30, per_subject=5))
