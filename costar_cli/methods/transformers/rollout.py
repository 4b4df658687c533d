"""Answering queries step by step from encoded prefixes, which no step reads again (spec CT-7, EDCT-5)."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from costar_cli.methods.shared.microbatches import on_cores
from costar_cli.methods.shared.trained import require_horizon
from costar_cli.methods.transformers.grouping import QueryBatch, query_batches
from costar_cli.panel import Queries, Scaler
from costar_cli.reporting import NullReporter, Reporter, Task

__all__ = ["MemberStates", "Walk", "answer_queries"]

CPU_ELEMENTS = 2**21  # of what one batch keeps of its prefixes; about what the cache holds
GPU_ELEMENTS = 2**27
CHUNK = 16  # batches' worth of prefixes that are kept at once


class Walk(Protocol):
    """A batch of histories on the way into their plans: M histories that end at one origin, G plans of each."""

    def first(self, treatment_MGA: Tensor) -> Tensor:
        """Return scaled outcomes `[M,G,dy]` one step after the origin."""

    def next(self, outcome_MGY: Tensor, previous_MGA: Tensor, treatment_MGA: Tensor) -> Tensor:
        """Return outcomes one step later, after outcomes that are taken for true and the treatment before them."""


class MemberStates(Protocol):
    """What one member knows of the histories of N subjects."""

    @property
    def representation_NTr(self) -> Tensor:
        """Return the representation of every history."""

    @property
    def kept_per_step(self) -> int:
        """Return how many numbers of a prefix are kept per step while its queries are answered."""

    @property
    def scores_per_step(self) -> int:
        """Return how many attention scores a plan has per step of the prefix."""

    def walks(self, subjects: slice) -> Callable[[Tensor, int], Walk]:
        """Return what begins a walk from some of these subjects, counted from the slice's start, and an origin."""


def answer_queries(
    members: Sequence[MemberStates],
    queries: Queries,
    scaler: Scaler,
    *,
    horizon: int,
    batch_size: int,
    reporter: Reporter | None = None,
) -> NDArray[np.float32]:
    """Return the outcomes `[R,Q,tau,dy]` of queries, in the units of the data.

    Raises:
        UsageError: the plans are longer than the horizon that the model was trained for.
    """
    require_horizon(horizon, queries)
    shape = (len(members), len(queries), queries.horizon, len(scaler.outcomes[0]))
    result = np.empty(shape, dtype=np.float32)
    total = len(members) * len(queries)
    with (reporter or NullReporter()).task("rollout", total=total, unit="query") as task:
        for states, result_QHY in zip(members, result, strict=True):
            _answer_member(states, queries, scaler, batch_size, result_QHY, task)
    return result


def _answer_member(
    states: MemberStates,
    queries: Queries,
    scaler: Scaler,
    batch_size: int,
    result_QHY: NDArray[np.float32],
    task: Task,
) -> None:
    known = states.representation_NTr
    elements = CPU_ELEMENTS if known.device.type == "cpu" else GPU_ELEMENTS

    def most(origin: int, plans: int) -> int:
        kept, scores = (origin + 1) * states.kept_per_step, (origin + 1) * states.scores_per_step * plans
        return min(elements // max(kept, scores, 1), batch_size // plans)

    for subjects, rows_Q in _chunks(states, queries, CHUNK * elements):
        with torch.no_grad():
            begin = states.walks(subjects)

        def fill(batch: QueryBatch) -> int:
            with torch.no_grad():
                plan_MGHA = torch.from_numpy(queries.plan[batch.row_MG]).to(known)
                local_M = torch.from_numpy(batch.subject_M - subjects.start).to(known.device)  # noqa: B023
                scaled = _walk(begin(local_M, batch.origin), plan_MGHA)  # noqa: B023
            result_QHY[batch.row_MG] = scaler.unscale_outcomes(scaled.float().cpu().numpy())
            return len(np.unique(batch.row_MG))

        for count in on_cores(fill, query_batches(queries, rows_Q, most), device=known.device):
            task.advance(count)


def _chunks(states: MemberStates, queries: Queries, elements: int) -> Iterator[tuple[slice, NDArray[np.int64]]]:
    """Yield slices of subjects whose prefixes are kept together, with the rows of their queries."""
    n_subjects, n_steps = states.representation_NTr.shape[:2]
    size = max(1, elements // max(1, n_steps * states.kept_per_step))
    order = np.argsort(queries.subject, kind="stable")
    for first in range(0, n_subjects, size):
        bounds = np.searchsorted(queries.subject[order], [first, first + size])
        if bounds[0] < bounds[1]:
            yield slice(first, min(first + size, n_subjects)), order[slice(*bounds)]


def _walk(walk: Walk, plan_MGHA: Tensor) -> Tensor:
    """Return scaled outcomes `[M,G,H,dy]`: each step takes the outcomes of the step before for true."""
    plans = plan_MGHA.unbind(2)
    outcomes = [walk.first(plans[0])]
    for previous, treatment in pairwise(plans):
        outcomes.append(walk.next(outcomes[-1], previous, treatment))
    return torch.stack(outcomes, dim=2)
