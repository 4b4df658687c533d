"""Answering queries from encoded histories: each history and each plan goes through the head's first layer once."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from costar_cli.methods.costar.predictor import OutcomePredictor
from costar_cli.panel import Queries

__all__ = ["answer_queries", "distinct_rows"]

CACHE_ELEMENTS = 2**19  # hidden units computed at once on a CPU: fewer cost calls, more overflow the caches (measured)
Indices = NDArray[np.int64]


def answer_queries(heads: list[OutcomePredictor], z_RNTD: Tensor, queries: Queries) -> Tensor:
    """Return the scaled outcomes `[R,Q,tau,dy]` of queries, without gradients.

    Test sets ask many plans of one history and few plans in all, so both are looked up: queries of one history that
    follow one another share it, and equal plans are found wherever they are.
    """
    n_queries, horizon = len(queries), queries.horizon
    first_U, history_Q = runs(queries.subject, queries.origin)
    first_P, plan_Q = distinct_rows(queries.plan.reshape(n_queries, -1))
    subject_U, origin_U = (_tensor(a[first_U], z_RNTD.device) for a in (queries.subject, queries.origin))
    plan_PHA = torch.from_numpy(queries.plan[first_P]).to(z_RNTD)
    at = _tensor(history_Q, z_RNTD.device), _tensor(plan_Q, z_RNTD.device)
    rows = max(1, CACHE_ELEMENTS // (horizon * heads[0].hidden)) if z_RNTD.device.type == "cpu" else n_queries
    with torch.no_grad():
        return torch.stack(
            [
                torch.cat(list(head.pairs(z_NTD[subject_U, origin_U], plan_PHA, *at, rows=rows)))
                for head, z_NTD in zip(heads, z_RNTD, strict=True)
            ]
        )


def runs(*columns_Q: NDArray[np.generic]) -> tuple[Indices, Indices]:
    """Return where each run of equal rows begins, and the run that each row belongs to."""
    starts = np.zeros(len(columns_Q[0]), dtype=bool)
    starts[:1] = True
    for column in columns_Q:
        starts[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(starts), np.cumsum(starts) - 1


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


def _tensor(indices: NDArray[np.generic], device: torch.device) -> Tensor:
    return torch.from_numpy(indices.astype(np.int64)).to(device)
