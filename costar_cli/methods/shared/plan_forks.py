"""Plans of a history that begin alike are one course until they part: which queries share it, step by step.

Letters beside the project's: `K` courses, each of neighbouring queries.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Fork", "forks", "runs"]

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
