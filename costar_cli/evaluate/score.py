"""Scoring one model on one test part: predict in bounded chunks of subjects, sum the errors, forget the predictions."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costar_cli.errors import CostarError
from costar_cli.evaluate.metrics import SquaredErrors
from costar_cli.evaluate.query_sets import Truth, serving_sets
from costar_cli.methods.base import FittedModel
from costar_cli.panel import Panel, Queries
from costar_cli.reporting import Task

__all__ = ["TestPart", "score"]

_PREDICTION_BYTES = 128 * 2**20  # predictions held at once
_CHUNK_SUBJECTS = 4096  # subjects encoded at once


@dataclass(frozen=True)
class TestPart:
    """A test panel, its query sets, and which of them serves which step for each kind of truth."""

    __test__ = False  # not a test class

    panel: Panel
    query_sets: Mapping[str, Queries]
    serving: Mapping[Truth, Mapping[str, NDArray[np.bool_]]]
    horizon: int

    @classmethod
    def of(cls, panel: Panel, query_sets: Mapping[str, Queries], horizon: int) -> "TestPart":
        """Return the part with its query sets sorted out."""
        return cls(panel, query_sets, serving_sets(panel, query_sets, horizon), horizon)

    @property
    def n_queries(self) -> int:
        """Return how many queries one scoring answers."""
        return sum(len(self.query_sets[name]) for sets in self.serving.values() for name in sets)

    def sets_by_step(self, truth: Truth) -> tuple[str | None, ...]:
        """Return the name of the query set that serves each step."""
        names: list[str | None] = [None] * self.horizon
        for name, steps in self.serving[truth].items():
            for h in np.flatnonzero(steps):
                names[h] = name
        return tuple(names)


def score(
    model: FittedModel,
    part: TestPart,
    *,
    denominator_Y: NDArray[np.float64],
    batch_size: int,
    task: Task,
    chunk_bytes: int = _PREDICTION_BYTES,
) -> dict[Truth, SquaredErrors]:
    """Return the squared errors of a model on a test part, per kind of truth.

    Each subject is encoded once per query set, at most 4,096 subjects and `chunk_bytes` of predictions at a time;
    errors are formed in double precision, `batch_size` queries at a time.
    """
    outcomes = part.panel.outcomes.shape[-1]
    results: dict[Truth, SquaredErrors] = {}
    for truth, sets in part.serving.items():
        errors = SquaredErrors.zeros(
            members=model.members, subjects=part.panel.n_subjects, horizon=part.horizon, outcomes=outcomes
        )
        for name, steps_H in sets.items():
            queries = part.query_sets[name]
            per_query = 4 * model.members * queries.horizon * outcomes
            for rows in _chunks(queries, max(1, chunk_bytes // per_query)):
                chunk = queries.take(rows)
                prediction = _predict(model, part.panel, chunk, batch_size)
                for start in range(0, len(chunk), batch_size):
                    batch = slice(start, start + batch_size)
                    with _context(f"{model.method}, query set {name}"):
                        errors.add(
                            prediction[:, batch], chunk.take(batch), steps_H=steps_H, denominator_Y=denominator_Y
                        )
                task.advance(len(chunk))
        results[truth] = errors
    return results


def _predict(model: FittedModel, panel: Panel, queries: Queries, batch_size: int) -> NDArray[np.float32]:
    """Roll out the queries on the panel of their own subjects; the model never sees the answers."""
    subjects, local = np.unique(queries.subject, return_inverse=True)
    asked = replace(queries, subject=local.astype(np.int32), outcomes=None, scored=None)
    return model.rollout(panel.take(subjects.astype(np.int64)), asked, batch_size=batch_size)


def _chunks(queries: Queries, max_queries: int) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of whole subjects' queries, at most `max_queries` at once unless one subject has more."""
    order = np.argsort(queries.subject, kind="stable")
    _, counts = np.unique(queries.subject, return_counts=True)
    ends = np.cumsum(counts)
    subject, start = 0, 0
    while subject < len(ends):
        stop = int(np.searchsorted(ends, start + max_queries, side="right"))
        stop = min(max(stop, subject + 1), subject + _CHUNK_SUBJECTS)
        yield order[start : ends[stop - 1]]
        subject, start = stop, int(ends[stop - 1])


@contextmanager
def _context(context: str) -> Iterator[None]:
    """Say which model and query set an error belongs to."""
    try:
        yield
    except CostarError as error:
        error.where = f"{context}; {error.where}" if error.where else context
        raise
