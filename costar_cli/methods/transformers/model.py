"""A trained transformer: queries are answered step by step from encoded prefixes, which no step reads again.

Queries of one origin are answered together, the plans of one history side by side (spec CT-7, EDCT-5).
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from costar_cli.data import Panel, Plans, Queries
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.shared.networks import NetworkModel
from costar_cli.methods.shared.trained import AnswerJob

CPU_ELEMENTS = 2**21  # of what one batch keeps of its prefixes: 8 MiB, about what the caches hold
GPU_ELEMENTS = 2**27
CHUNK = 16  # batches' worth of prefixes that are kept at once: enough for all cores, 128 MiB in single precision
MOST_PLANS = 16  # side by side; a history with more plans is asked more than once
Indices = NDArray[np.int64]


# One origin per batch: relative distances are the same for all, and no key is masked. Kept are the inputs of blocks,
# four times smaller than keys and values, once per history and never per query.
class OriginBatch(NamedTuple):
    """Histories `[M]` that end at one origin, and the rows `[M,G]` of their queries.

    Where a history has fewer than G plans, its last row is repeated.
    """

    origin: int
    subject_M: Indices
    row_MG: Indices


def origin_batches(queries: Queries, rows_Q: Indices, most: Callable[[int, int], int]) -> Iterator[OriginBatch]:
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
    order = np.lexsort((subject, origin))
    rows_Q, subject, origin = rows_Q[order], subject[order], origin[order]
    changes = np.flatnonzero((np.diff(subject) != 0) | (np.diff(origin) != 0)) + 1
    starts_E = np.concatenate([np.zeros(1, dtype=np.int64), changes])
    size_E = np.diff(np.append(starts_E, len(rows_Q)))
    parts_E = -(-size_E // MOST_PLANS)  # histories of more rows are cut into equal parts
    of_M = np.repeat(np.arange(len(starts_E)), parts_E)
    part_M = np.arange(len(of_M)) - np.repeat(np.cumsum(parts_E) - parts_E, parts_E)
    begin_M, end_M = (size_E[of_M] * (part_M + step) // parts_E[of_M] for step in (0, 1))
    first_M, size_M = starts_E[of_M] + begin_M, end_M - begin_M
    origin_M = queries.origin[rows_Q[first_M]].astype(np.int64)
    order = np.lexsort((size_M, np.ceil(np.log2(size_M)), origin_M))
    bucket_M = (origin_M * 8 + np.ceil(np.log2(size_M)).astype(np.int64))[order]
    for some in np.split(order, np.flatnonzero(np.diff(bucket_M)) + 1):
        plans = int(size_M[some].max())
        histories = max(1, most(int(origin_M[some[0]]), plans))
        for at in range(0, len(some), histories):
            first, size = (x[some[at : at + histories], None] for x in (first_M, size_M))
            row_MG = rows_Q[first + np.minimum(np.arange(plans), size - 1)]
            yield OriginBatch(int(origin_M[some[0]]), queries.subject[row_MG[:, 0]].astype(np.int64), row_MG)


class Walk(Protocol):
    """A batch of histories on the way into their plans: M histories that end at one origin, G plans of each."""

    def first(self, treatment_MGA: Tensor) -> Tensor:
        """Return scaled outcomes `[M,G,Y]` one step after the origin."""

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


@dataclass(frozen=True, kw_only=True)
class TransformerModel(NetworkModel[Sequence[MemberStates]]):
    """A trained transformer of R members."""

    @property
    def stepwise(self) -> bool:
        """Return that each step is predicted from the one before."""
        return True

    @abstractmethod
    def encode_history(self, member: int, panel: PanelTensors) -> MemberStates:
        """Return what a member knows of every history of a scaled panel."""

    def represent(self, panel: Panel) -> NDArray[np.float32]:
        """Return the balanced representation `[R,N,T,r]` of every subject's history at every step."""
        return np.stack([states.representation_NTr.float().cpu().numpy() for states in self.encode_series(panel)])

    def encode_series(self, panel: Panel) -> list[MemberStates]:
        """Return what each member knows of every subject's history at every step."""
        tensors = self.scaled(panel)
        with torch.no_grad():
            return [self.encode_history(member, tensors) for member in range(self.members)]

    def jobs(self, states: Sequence[MemberStates], queries: Queries, batch_size: int) -> Iterator[Iterable[AnswerJob]]:
        """Yield jobs of one member and one origin each; together those whose prefixes are kept at the same time."""
        for member, known in enumerate(states):
            device = known.representation_NTr.device
            elements = CPU_ELEMENTS if device.type == "cpu" else GPU_ELEMENTS

            def most(origin: int, plans: int, known: MemberStates = known, elements: int = elements) -> int:
                kept, scores = (origin + 1) * known.kept_per_step, (origin + 1) * known.scores_per_step * plans
                return min(elements // max(kept, scores, 1), batch_size // plans)

            for subjects, rows_Q in _chunks(known, queries, CHUNK * elements):
                with torch.no_grad():
                    begin = known.walks(subjects)
                yield [
                    AnswerJob(
                        member,
                        batch.row_MG,
                        len(np.unique(batch.row_MG)),
                        partial(_predict, begin, batch, queries.plan, known.representation_NTr, subjects.start),
                    )
                    for batch in origin_batches(queries, rows_Q, most)
                ]


def _predict(
    begin: Callable[[Tensor, int], Walk], batch: OriginBatch, plan_QHA: Plans, like: Tensor, first: int
) -> Tensor:
    """Return scaled outcomes `[M,G,H,Y]`: each step takes the outcomes of the step before for true."""
    plans = torch.from_numpy(plan_QHA[batch.row_MG]).to(like).unbind(2)
    walk = begin(torch.from_numpy(batch.subject_M - first).to(like.device), batch.origin)
    outcomes = [walk.first(plans[0])]
    for previous, treatment in pairwise(plans):
        outcomes.append(walk.next(outcomes[-1], previous, treatment))
    return torch.stack(outcomes, dim=2)


def _chunks(states: MemberStates, queries: Queries, elements: int) -> Iterator[tuple[slice, NDArray[np.int64]]]:
    """Yield slices of subjects whose prefixes are kept together, with the rows of their queries."""
    n_subjects, n_steps = states.representation_NTr.shape[:2]
    size = max(1, elements // max(1, n_steps * states.kept_per_step))
    order = np.argsort(queries.subject, kind="stable")
    for first in range(0, n_subjects, size):
        bounds = np.searchsorted(queries.subject[order], [first, first + size])
        if bounds[0] < bounds[1]:
            yield slice(first, min(first + size, n_subjects)), order[slice(*bounds)]
