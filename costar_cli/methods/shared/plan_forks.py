"""What queries share: a history, a plan, or, of plans that begin alike, the course until they part.

Letters beside the project's: `K` courses, each of neighbouring queries.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from costar_cli.data import Plans

Indices = NDArray[np.int64]


class Fork(NamedTuple):
    """The courses of a step: the one that each comes from, at the first step its history, and a query of each.

    `course_Q` is the course of each query.
    """

    parent_K: Tensor
    query_K: Tensor
    course_Q: Tensor


def forks(history_Q: Tensor, plan_QHA: Tensor) -> Iterator[Fork]:
    """Yield the courses of every step of the plans; queries that share a history or a beginning stand side by side."""
    # Neighbours alone are compared: sorting queries to find all that begin alike costs more than the steps it saves
    # here. 4,096 plans of six steps are 5,460 steps instead of 24,576.
    differs_QH = (plan_QHA[1:] != plan_QHA[:-1]).any(dim=2) | (history_Q[1:] != history_Q[:-1])[:, None]
    begins_QH = torch.cat([differs_QH.new_ones(1, plan_QHA.shape[1]), differs_QH.cumsum(dim=1) > 0])
    before_Q = history_Q
    for begins_Q in begins_QH.unbind(1):
        query_K, course_Q = begins_Q.nonzero()[:, 0], begins_Q.cumsum(dim=0) - 1
        yield Fork(before_Q[query_K], query_K, course_Q)
        before_Q = course_Q


def runs(*columns_Q: NDArray[np.generic]) -> tuple[Indices, Indices]:
    """Return where each run of equal rows begins, and the run that each row belongs to."""
    starts = np.zeros(len(columns_Q[0]), dtype=bool)
    starts[:1] = True
    for column in columns_Q:
        starts[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(starts), np.cumsum(starts) - 1


def distinct_plans(plan_QHA: Plans) -> tuple[Indices, Indices]:
    """Return one index of each distinct plan, and which of these each query has."""
    return distinct_rows(np.ascontiguousarray(plan_QHA).reshape(len(plan_QHA), -1).view(np.uint8))


def distinct_rows(rows_QB: NDArray[np.uint8]) -> tuple[Indices, Indices]:
    """Return one index of each distinct row of bytes, and which of these each row equals."""
    n_rows, width = rows_QB.shape
    words_QW = np.zeros((n_rows, -(-width // 8)), dtype=np.uint64)
    words_QW.view(np.uint8)[:, :width] = rows_QB
    odd_W = np.random.default_rng(0).integers(2**63, size=words_QW.shape[1], dtype=np.uint64) * 2 + 1
    _, first, inverse = np.unique(words_QW @ odd_W, return_index=True, return_inverse=True)
    if not np.array_equal(words_QW[first[inverse]], words_QW):  # two rows share a hash
        return np.arange(n_rows), np.arange(n_rows)
    return first, inverse
