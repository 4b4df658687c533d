"""A trained transformer: queries are answered step by step from encoded prefixes, which no step reads again.

Queries of one origin are answered together, the plans of one history side by side (spec CT-7, EDCT-5).
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from costar_cli.artifact import Artifact
from costar_cli.config.models import Config
from costar_cli.errors import MismatchError
from costar_cli.methods.base import FitTask
from costar_cli.methods.shared.members import Params, submodule
from costar_cli.methods.shared.microbatches import on_cores
from costar_cli.methods.shared.trained import EncodingModel, model_to_start_from, read_settings, require_horizon
from costar_cli.methods.transformers.units import BalancedNetwork, NetworkT, samples_at_once
from costar_cli.panel import Panel, Queries, Scaler
from costar_cli.panel.tensors import PanelTensors
from costar_cli.reporting import NullReporter, Reporter, Task

__all__ = [
    "MemberStates",
    "OriginBatch",
    "TransformerModel",
    "Walk",
    "answer_queries",
    "encode_in_microbatches",
    "few_shot_start",
    "member_network",
    "origin_batches",
]


def encode_in_microbatches(
    function: Callable[..., tuple[Tensor, ...]], network: BalancedNetwork, *inputs_N: Tensor
) -> tuple[Tensor, ...]:
    """Return what a function makes of N subjects, some at a time; its results lead with the subjects, too."""
    device = inputs_N[0].device
    size = samples_at_once(network, inputs_N[0].shape[1], device)

    def call(some: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return function(*some)

    parts = on_cores(call, zip(*(torch.split(values, size) for values in inputs_N), strict=True), device=device)
    return tuple(torch.cat(values) for values in zip(*parts, strict=True))


MOST_PLANS = 16  # side by side; a history with more plans is asked more than once
Indices = NDArray[np.int64]


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
            yield OriginBatch(int(origin_M[some[0]]), queries.subject[row_MG[:, 0]].astype(np.int64), row_MG)


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

        def fill(batch: OriginBatch) -> int:
            with torch.no_grad():
                plan_MGHA = torch.from_numpy(queries.plan[batch.row_MG]).to(known)
                local_M = torch.from_numpy(batch.subject_M - subjects.start).to(known.device)  # noqa: B023
                scaled = _walk(begin(local_M, batch.origin), plan_MGHA)  # noqa: B023
            result_QHY[batch.row_MG] = scaler.unscale_outcomes(scaled.float().cpu().numpy())
            return len(np.unique(batch.row_MG))

        for count in on_cores(fill, origin_batches(queries, rows_Q, most), device=known.device):
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


SettingsT = TypeVar("SettingsT", bound=Config)
SHAPE = ("width", "representation", "hidden", "layers", "heads", "clip_distance")


@dataclass(frozen=True, kw_only=True)
class TransformerModel(EncodingModel[Sequence[MemberStates]], Generic[SettingsT]):
    """A trained transformer of R members."""

    settings: SettingsT

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: torch.device | str = "cpu", **own: Any) -> Self:  # noqa: ANN401
        """Read a model artifact."""
        return super().from_artifact(artifact, device, settings=read_settings(artifact), **own)

    @abstractmethod
    def states(self, member: int, panel: PanelTensors) -> MemberStates:
        """Return what a member knows of every history of a scaled panel."""

    def represent(self, panel: Panel) -> NDArray[np.float32]:
        """Return the balanced representation `[R,N,T,r]` of every subject's history at every step."""
        return np.stack([states.representation_NTr.float().cpu().numpy() for states in self.encode(panel)])

    def encode(self, panel: Panel) -> list[MemberStates]:
        """Return what each member knows of every subject's history at every step."""
        tensors = self.scaled(panel)
        with torch.no_grad():
            return [self.states(member, tensors) for member in range(self.members)]

    def answer(
        self,
        states: Sequence[MemberStates],
        queries: Queries,
        *,
        batch_size: int = 16_384,
        reporter: Reporter | None = None,
    ) -> NDArray[np.float32]:
        """Predict as `rollout` does, on a panel that `encode` has seen.

        Raises:
            UsageError: the plans are longer than the horizon that the model was trained for.
        """
        return answer_queries(
            states, queries, self.scaler, horizon=self.horizon, batch_size=batch_size, reporter=reporter
        )


def member_network(network: NetworkT, params_R: Params, member: int, prefix: str = "") -> NetworkT:
    """Return a network that holds one member's parameters, without gradients."""
    own = {name: value[member] for name, value in submodule(params_R, prefix).items()}
    network.to(next(iter(own.values())).device).load_state_dict(own, assign=True)
    return network.requires_grad_(False)


def few_shot_start(task: FitTask, model: type[TransformerModel[Any]], method: str, settings: Config) -> Params | None:
    """Return the parameters to start from, of the members asked for; none without a source model.

    Raises:
        MismatchError: the source model is of another method or shape, or has fewer members.
    """
    start = model_to_start_from(task, model, method)
    if start is None:
        return None
    differing = _other_shapes(start.settings, settings)
    if differing:
        raise MismatchError(
            "the networks of the source model differ in shape from the settings",
            where=f"[{method.replace('-', '_')}]",
            fix="use the settings that it was trained with",
            details=differing,
        )
    return {name: value[: task.members] for name, value in start.params.items()}


def _other_shapes(source: Config, asked: Config) -> list[str]:
    """Return in words which settings of the networks' shapes differ."""
    theirs, mine = source.model_dump(), asked.model_dump()
    return [
        f"{network}.{key}: the source model has {value}, the settings say {mine[network][key]}"
        for network, values in theirs.items()
        if isinstance(values, dict)
        for key, value in values.items()
        if key in SHAPE and mine[network][key] != value
    ]
