"""Which queries are answered together: those of one origin, the plans of one history side by side."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costar_cli.panel import Queries

__all__ = ["QueryBatch", "query_batches"]

MOST_PLANS = 16  # side by side; a history with more plans is asked more than once
Indices = NDArray[np.int64]


class QueryBatch(NamedTuple):
    """Histories `[M]` that end at one origin, and the rows `[M,G]` of their queries.

    Where a history has fewer than G plans, its last row is repeated.
    """

    origin: int
    subject_M: Indices
    row_MG: Indices


def query_batches(queries: Queries, rows_Q: Indices, most: Callable[[int, int], int]) -> Iterator[QueryBatch]:
    """Yield the given rows of a query set in batches, each row at least once.

    All histories of a batch have about as many plans: at most half of what is computed is repetition.

    Args:
        queries: the query set.
        rows_Q: rows of it.
        most: the most histories to answer at once, given their origin and number of plans.
    """
    if not len(rows_Q):
        return
    subject, origin = queries.subject[rows_Q], queries.origin[rows_Q]
    rows_Q = rows_Q[np.lexsort((subject, origin))]
    starts_E, size_E = _histories(queries, rows_Q)
    first_M, size_M = _split(starts_E, size_E)
    origin_M = queries.origin[rows_Q[first_M]].astype(np.int64)
    order = np.lexsort((size_M, np.ceil(np.log2(size_M)), origin_M))
    bucket_M = (origin_M * 8 + np.ceil(np.log2(size_M)).astype(np.int64))[order]
    for some in np.split(order, np.flatnonzero(np.diff(bucket_M)) + 1):
        plans = int(size_M[some].max())
        histories = max(1, most(int(origin_M[some[0]]), plans))
        for at in range(0, len(some), histories):
            first, size = (x[some[at : at + histories], None] for x in (first_M, size_M))
            row_MG = rows_Q[first + np.minimum(np.arange(plans), size - 1)]
            yield QueryBatch(int(origin_M[some[0]]), queries.subject[row_MG[:, 0]].astype(np.int64), row_MG)


def _histories(queries: Queries, rows_Q: Indices) -> tuple[Indices, Indices]:
    """Return where each history begins among sorted rows, and how many rows it has."""
    subject, origin = queries.subject[rows_Q], queries.origin[rows_Q]
    changes = np.flatnonzero((np.diff(subject) != 0) | (np.diff(origin) != 0)) + 1
    starts = np.concatenate([np.zeros(1, dtype=np.int64), changes])
    return starts, np.diff(np.append(starts, len(rows_Q)))


def _split(starts_E: Indices, size_E: Indices) -> tuple[Indices, Indices]:
    """Return starts and sizes again, with histories of more than `MOST_PLANS` rows cut into equal parts."""
    parts_E = -(-size_E // MOST_PLANS)
    of_M = np.repeat(np.arange(len(starts_E)), parts_E)
    part_M = np.arange(len(of_M)) - np.repeat(np.cumsum(parts_E) - parts_E, parts_E)
    begin_M, end_M = (size_E[of_M] * (part_M + step) // parts_E[of_M] for step in (0, 1))
    return starts_E[of_M] + begin_M, end_M - begin_M
