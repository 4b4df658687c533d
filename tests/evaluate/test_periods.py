"""Errors by calendar period: each query counts in the period of its origin, and all periods make up the whole."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Panel, Queries
from costar_cli.data.calendar import Calendar
from costar_cli.data.queries import rolling_origin
from costar_cli.evaluation.metrics import Periods, SquaredErrors, period_scores
from costar_cli.evaluation.score import TestPart, score
from costar_cli.reporting import NullTask

DAY = 86_400_000_000


def dated(days: int, first: str = "2024-01-20", subjects: int = 3) -> tuple[Panel, Queries]:
    begin = int(np.datetime64(first, "us").astype(np.int64))
    rng = np.random.default_rng(0)
    panel = Panel(
        covariates=np.zeros((subjects, days, 0), np.float32),
        treatments=np.zeros((subjects, days, 1), np.float32),
        outcomes=rng.normal(size=(subjects, days, 1)).astype(np.float32),
        statics=np.zeros((subjects, 0), np.float32),
        length=np.full(subjects, days),
        subject_id=np.arange(subjects),
        calendar=Calendar(np.full((subjects, 1), begin), "us", DAY),
    )
    queries = rolling_origin(panel, 2)
    assert queries is not None
    return panel, queries


def test_periods_add_up_to_all_and_hold_their_own_queries():
    panel, queries = dated(60)
    periods = Periods.of([(panel, queries)])
    assert periods is not None
    assert periods.names == ("2024-01", "2024-02", "2024-03")
    rng = np.random.default_rng(1)
    predicted = rng.normal(size=(2, len(queries), 2, 1)).astype(np.float32)

    class Drawn:
        """Predicts what was drawn, whatever is asked: all queries at once, subject after subject."""

        method, members = "drawn", 2

        def rollout(self, panel, asked, *, batch_size=0, reporter=None):
            assert len(asked) == len(queries)
            return predicted

    by_period: dict[str, SquaredErrors] = {}
    order = np.argsort(queries.subject, kind="stable")
    queries = queries.take(order)
    part = TestPart.of(panel, {"rolling_origin": queries}, 2)
    how = {"denominator_Y": np.ones(1), "batch_size": 7, "task": NullTask()}
    whole = score(Drawn(), part, **how, periods=periods, also=by_period)["factual"]
    errors = by_period["periods/sums/factual"]
    np.testing.assert_allclose(errors.members.sum(axis=1), whole.members.sum(axis=1))
    scores = period_scores(periods.names, errors, factor=10)
    february = (queries.origin >= 12) & (queries.origin < 12 + 29)
    assert scores[1].scored == (int(february.sum()),) * 2
    assert queries.outcomes is not None
    error_RQH = (predicted - queries.outcomes)[..., 0][:, february]
    expected = 10 * np.sqrt((error_RQH**2).mean(axis=1)).mean(axis=0)
    np.testing.assert_allclose(scores[1].mean.steps, expected, rtol=1e-6)


@pytest.mark.parametrize(("days", "named"), [(9, "2024-01-20"), (300, "2024-01"), (1200, "2024")])
def test_periods_are_the_finest_that_a_table_shows(days: int, named: str):
    panel, queries = dated(days, subjects=1)
    periods = Periods.of([(panel, queries)])
    assert periods is not None
    assert periods.names[0] == named


def test_there_are_no_periods_without_dates_or_in_one_hour():
    panel, queries = dated(20)
    assert Periods.of([(replace(panel, calendar=None), queries)]) is None
    same = queries.take(queries.origin == 3)
    assert Periods.of([(panel, same)]) is None
