from dataclasses import replace

import numpy as np
import pytest

from costar_cli.evaluate import bootstrap, bootstrap_interval, paired_difference
from costar_cli.evaluate.metrics import SquaredErrors


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


def test_interval_covers_the_true_rmse_about_as_often_as_it_says():
    covered = [
        found.lower[0] <= 1.0 <= found.upper[0]
        for seed in range(200)
        for found in [interval(errors(40, members=1, horizon=1, seed=seed), level=0.9, replicates=200)]
    ]
    assert 0.82 <= np.mean(covered) <= 0.97


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
    alone = errors(40, subject_sd=0.8)
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
    monkeypatch.setattr(bootstrap, "_CHUNK_WEIGHTS", 100)
    assert interval(scored).upper == pytest.approx(whole.upper, rel=1e-12)


def test_every_resample_draws_as_many_subjects_as_there_are():
    weights = np.concatenate(list(bootstrap._weights(17, 50, 3)))
    assert (weights.sum(axis=1) == 17).all()
    assert weights.mean() == 1.0


def test_no_interval_where_it_would_mean_nothing():
    assert interval(errors(1)) is None
    assert interval(errors(30), replicates=0) is None
    assert interval(errors(30), replicates=5) is None


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
