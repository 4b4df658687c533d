import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costar_cli.data import Queries
from costar_cli.errors import DataError, TrainingError
from costar_cli.evaluation.metrics import SquaredErrors, average_over_steps


def two_rows(outcomes, scored):
    outcomes = np.asarray(outcomes, np.float32)
    return Queries(
        subject=np.array([0, 1], np.int32),
        origin=np.array([3, 4], np.int16),
        plan=np.zeros((2, outcomes.shape[1], 4), np.uint8),
        outcomes=outcomes,
        scored=np.asarray(scored, bool),
    )


def errors_of(prediction, queries, *, horizon, steps=None, denominator=None, subjects=2):
    prediction = np.asarray(prediction, np.float32)
    outcomes = prediction.shape[-1]
    errors = SquaredErrors.zeros(members=len(prediction), subjects=subjects, horizon=horizon, outcomes=outcomes)
    errors.add(
        prediction,
        queries,
        steps_H=np.ones(queries.horizon, bool) if steps is None else np.asarray(steps, bool),
        denominator_Y=np.ones(outcomes) if denominator is None else np.asarray(denominator, float),
    )
    return errors


def test_tau_1_is_the_root_mean_square_over_one_step_rows():
    queries = two_rows([[[10.0]], [[20.0]]], [[True], [True]])
    errors = errors_of([[[[13.0]], [[16.0]]]], queries, horizon=1)
    assert errors.rmse() == pytest.approx(np.array([[np.sqrt((9 + 16) / 2)]]))


def test_tau_2_and_later_come_from_scored_steps_and_the_first_step_is_ignored():
    outcomes = [[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]]
    queries = two_rows(outcomes, [[False, True, True], [False, True, True]])
    prediction = [[[[99.0], [3.0], [5.0]], [[-99.0], [5.0], [10.0]]]]
    rmse = errors_of(prediction, queries, horizon=3).rmse()
    assert np.isnan(rmse[0, 0])
    assert rmse[0, 1:] == pytest.approx([np.sqrt((1 + 0) / 2), np.sqrt((4 + 16) / 2)])


def test_every_step_of_a_rolling_origin_counts_and_the_mask_shortens_the_divisor():
    queries = two_rows([[[1.0], [2.0]], [[3.0], [4.0]]], [[True, True], [True, False]])
    rmse = errors_of([[[[2.0], [4.0]], [[3.0], [77.0]]]], queries, horizon=2).rmse()
    assert rmse[0] == pytest.approx([np.sqrt((1 + 0) / 2), 2.0])


def test_squared_error_is_summed_over_outcomes_and_the_divisor_does_not_count_them():
    queries = two_rows([[[0.0, 0.0]], [[0.0, 0.0]]], [[True], [True]])
    errors = errors_of([[[[3.0, 4.0]], [[0.0, 0.0]]]], queries, horizon=1)
    assert errors.rmse()[0, 0] == pytest.approx(np.sqrt(25 / 2))
    assert errors.outcome_rmse()[0, 0] == pytest.approx([3 / np.sqrt(2), 4 / np.sqrt(2)])


def test_denominator_divides_each_outcome_of_members_and_of_their_mean():
    queries = two_rows([[[0.0, 0.0]], [[0.0, 0.0]]], [[True], [True]])
    prediction = [[[[3.0, 8.0]], [[3.0, 8.0]]], [[[9.0, 0.0]], [[9.0, 0.0]]]]
    errors = errors_of(prediction, queries, horizon=1, denominator=[3.0, 4.0])
    assert errors.rmse()[:, 0] == pytest.approx([np.sqrt(1 + 4), 3])
    assert errors.ensemble_rmse() == pytest.approx([np.sqrt(4 + 1)])


def test_ensemble_is_the_error_of_the_mean_prediction():
    queries = two_rows([[[0.0]], [[0.0]]], [[True], [True]])
    errors = errors_of([[[[2.0]], [[2.0]]], [[[-2.0]], [[4.0]]]], queries, horizon=1)
    assert errors.ensemble_rmse() == pytest.approx([np.sqrt((0 + 9) / 2)])


def test_steps_that_another_set_serves_are_ignored():
    queries = two_rows([[[0.0], [0.0]], [[0.0], [0.0]]], np.ones((2, 2), bool))
    errors = errors_of([[[[5.0], [1.0]], [[5.0], [1.0]]]], queries, horizon=2, steps=[False, True])
    assert errors.count.sum(axis=0).tolist() == [0, 2]
    assert errors.rmse()[0, 1] == pytest.approx(1.0)


def test_sums_are_kept_per_subject():
    queries = two_rows([[[0.0]], [[0.0]]], [[True], [True]])
    errors = errors_of([[[[2.0]], [[3.0]]]], queries, horizon=1, subjects=4)
    assert errors.members[0, :, 0, 0].tolist() == [4.0, 9.0, 0.0, 0.0]
    assert errors.count[:, 0].tolist() == [1, 1, 0, 0]


def test_average_covers_tau_1_to_6_of_longer_horizons_and_all_of_shorter_ones():
    assert average_over_steps(np.arange(1.0, 12.0)) == pytest.approx(3.5)
    assert average_over_steps(np.array([1.0, 2.0])) == pytest.approx(1.5)
    assert np.isnan(average_over_steps(np.array([np.nan, 2.0])))


def test_not_a_number_in_a_scored_prediction_is_a_clear_error():
    queries = two_rows([[[0.0], [0.0]], [[0.0], [0.0]]], [[False, True], [False, True]])
    with pytest.raises(TrainingError, match="1 predictions are not finite") as caught:
        errors_of([[[[0.0], [0.0]], [[0.0], [np.nan]]]], queries, horizon=2)
    assert caught.value.where == "first: member 1, row 1 of the test panel, origin 4, step 2"


def test_infinity_is_not_a_prediction_either():
    queries = two_rows([[[0.0]], [[0.0]]], [[True], [True]])
    with pytest.raises(TrainingError):
        errors_of([[[[np.inf]], [[0.0]]]], queries, horizon=1)


def test_steps_that_are_not_scored_may_hold_anything():
    queries = two_rows([[[np.nan], [0.0]], [[np.nan], [0.0]]], [[False, True], [False, True]])
    errors = errors_of([[[[np.nan], [1.0]], [[np.inf], [1.0]]]], queries, horizon=2)
    assert errors.rmse()[0, 1] == 1.0
    assert errors.ensemble_rmse()[1] == 1.0


def test_not_a_number_in_a_scored_answer_is_a_clear_error():
    queries = two_rows([[[np.nan]], [[0.0]]], [[True], [True]])
    with pytest.raises(DataError, match="1 scored answers are not finite"):
        errors_of([[[[0.0]], [[0.0]]]], queries, horizon=1)


def test_queries_without_answers_cannot_be_scored():
    queries = two_rows([[[0.0]], [[0.0]]], [[True], [True]])
    unanswered = Queries(queries.subject, queries.origin, queries.plan)
    with pytest.raises(DataError, match="without answers"):
        errors_of([[[[0.0]], [[0.0]]]], unanswered, horizon=1)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    members=st.integers(1, 3),
    outcomes=st.integers(1, 2),
)
def test_batches_add_up_to_the_whole_and_to_the_definition(seed, cuts, members, outcomes):
    rng = np.random.default_rng(seed)
    n, q, horizon = 5, 40, 3
    queries = Queries(
        subject=rng.integers(n, size=q).astype(np.int32),
        origin=np.zeros(q, np.int16),
        plan=np.zeros((q, horizon, 4), np.uint8),
        outcomes=rng.normal(size=(q, horizon, outcomes)).astype(np.float32),
        scored=rng.random((q, horizon)) < 0.7,
    )
    prediction = rng.normal(size=(members, q, horizon, outcomes)).astype(np.float32)
    parts = SquaredErrors.zeros(members=members, subjects=n, horizon=horizon, outcomes=outcomes)
    edges = sorted({0, q, *cuts})
    for start, stop in itertools.pairwise(edges):
        batch = slice(start, stop)
        parts.add(
            prediction[:, batch],
            queries.take(batch),
            steps_H=np.ones(horizon, bool),
            denominator_Y=np.ones(outcomes),
        )
    squared = ((prediction.astype(float) - queries.outcomes.astype(float)) ** 2).sum(-1) * queries.scored
    with np.errstate(invalid="ignore"):
        expected = np.sqrt(squared.sum(axis=1) / queries.scored.sum(axis=0))
    assert parts.rmse() == pytest.approx(expected, nan_ok=True)
