"""Scoring one model on one test part: which query set serves which step, squared errors in bounded memory.

Subjects are predicted in chunks, errors summed, and predictions forgotten.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Queries
from costar_cli.data.windows import factual_windows
from costar_cli.errors import CostarError
from costar_cli.evaluation.bands import BandTest, KnownQuantiles
from costar_cli.evaluation.calibrated import WINDOWS, Kind
from costar_cli.evaluation.dropout import StayWeights
from costar_cli.evaluation.effects import EffectSums
from costar_cli.evaluation.foreign import ForeignModel
from costar_cli.evaluation.metrics import Periods, SquaredErrors, Truth
from costar_cli.evaluation.natural import Course
from costar_cli.files.shards import WHOLE, Shard
from costar_cli.inference import facts_of, possible
from costar_cli.methods.base import FittedModel
from costar_cli.reporting import Reporter, Task

_BATCH = 65_536

_PREDICTION_BYTES = 128 * 2**20  # predictions held at once
_BAND_BYTES = 64  # of an answer's mean, scale, share, truth and weights, in double precision
_CHUNK_STEPS = 2**18  # steps encoded at once, over all subjects: some 4,000 subjects of 60 steps


def truth_of(panel: Panel, queries: Queries) -> Truth:
    """Return `factual` if every scored answer lies on the treatments that were given, else `counterfactual`.

    An answer to a plan that was not followed can only come from a simulator, so nothing needs to be declared.
    """
    for start in range(0, len(queries), _BATCH):
        some = queries.take(slice(start, start + _BATCH))
        if some.scored is None:
            continue
        step_QH = some.origin.astype(np.int64)[:, None] + np.arange(some.horizon)
        inside_QH = step_QH < panel.length[some.subject][:, None] - 1
        given_QHA = panel.treatments[some.subject[:, None], np.minimum(step_QH, panel.n_steps - 1)]
        same_QH = (given_QHA == some.plan).all(axis=-1) & inside_QH
        if (some.scored & ~np.minimum.accumulate(same_QH, axis=1)).any():
            return "counterfactual"
    return "factual"


def serving_sets(
    panel: Panel, query_sets: Mapping[str, Queries], horizon: int
) -> dict[Truth, dict[str, NDArray[np.bool_]]]:
    """Return, per kind of truth, the query sets to score and the steps `[tau]` that each of them serves.

    Any set with answers may contribute its scored steps. Where several sets of one kind score the same step, the set
    with the shortest horizon serves it (then the first by name), so that each step comes from one population of
    queries. In the tumour and ICU data `one_step` therefore serves tau = 1, and `sequence`, whose first step is
    factual and not scored, serves tau >= 2; in M5 `rolling_origin` serves every tau.
    """
    serving: dict[Truth, dict[str, NDArray[np.bool_]]] = {}
    taken: dict[Truth, NDArray[np.bool_]] = {}
    for name, queries in sorted(query_sets.items(), key=lambda item: (item[1].horizon, item[0])):
        if queries.scored is None or not len(queries):
            continue
        truth = truth_of(panel, queries)
        taken_H = taken.setdefault(truth, np.zeros(horizon, dtype=bool))
        served_H = np.asarray(queries.scored.any(axis=0), dtype=bool)
        served_H[horizon:] = False
        served_H[:horizon] &= ~taken_H[: queries.horizon]
        if served_H.any():
            serving.setdefault(truth, {})[name] = served_H
            taken_H[: queries.horizon] |= served_H[:horizon]
    return serving


@dataclass(frozen=True)
class TestPart:
    """A test panel, its query sets, and which of them serves which step for each kind of truth.

    `own` are the subjects that are scored: all, or those of a shard. `happened` returns what would have happened under
    the plans of queries, where answers are expectations, `quantiles` the distribution of what will be observed.
    """

    __test__ = False  # not a test class

    panel: Panel
    query_sets: Mapping[str, Queries]
    serving: Mapping[Truth, Mapping[str, NDArray[np.bool_]]]
    horizon: int
    own: range
    happened: Callable[[Queries], NDArray[np.floating]] | None = None
    quantiles: KnownQuantiles | None = None

    @classmethod
    def of(
        cls,
        panel: Panel,
        query_sets: Mapping[str, Queries],
        horizon: int,
        happened: Callable[[Queries], NDArray[np.floating]] | None = None,
        shard: Shard = WHOLE,
        quantiles: KnownQuantiles | None = None,
    ) -> "TestPart":
        """Return the part with its query sets sorted out."""
        own = shard.own(panel.n_subjects)
        return cls(panel, query_sets, serving_sets(panel, query_sets, horizon), horizon, own, happened, quantiles)

    def outcomes_of(self, queries: Queries) -> Queries:
        """Return queries with the outcomes that bands are to cover, where their answers are expectations."""
        if self.happened is None or queries.scored is None:
            return queries
        outcomes_QHY = np.asarray(self.happened(queries), dtype=np.float32).reshape(*queries.plan.shape[:2], -1)
        known_QH = np.isfinite(outcomes_QHY).all(axis=-1)
        return replace(queries, outcomes=outcomes_QHY, scored=queries.scored & known_QH)

    def effects(self, members: int) -> EffectSums | None:
        """Return sums of effects to which nothing was added yet; None without counterfactual answers."""
        if "counterfactual" not in self.serving:
            return None
        subjects, _, outcomes = self.panel.outcomes.shape
        return EffectSums.zeros(members=members, subjects=subjects, horizon=self.horizon, outcomes=outcomes)

    @cached_property
    def windows(self) -> Queries | None:
        """Return factual questions about the subjects, where none are among the query sets (spec SCORE-19)."""
        windows = None if "factual" in self.serving else factual_windows(self.panel, self.horizon)
        if windows is None:
            return None
        order = np.argsort(self.panel.subject_id)
        row_N = order[np.searchsorted(self.panel.subject_id, windows.panel.subject_id, sorter=order)]
        return replace(windows.queries, subject=row_N[windows.queries.subject].astype(np.int32))

    @property
    def n_queries(self) -> int:
        """Return how many queries one scoring answers."""
        sets = [self.query_sets[name] for sets in self.serving.values() for name in sets]
        return sum(len(queries.of_subjects(self.own)) for queries in sets)

    def sets_by_step(self, truth: Truth) -> tuple[str | None, ...]:
        """Return the name of the query set that serves each step."""
        names: list[str | None] = [None] * self.horizon
        for name, steps in self.serving[truth].items():
            for h in np.flatnonzero(steps):
                names[h] = name
        return tuple(names)


class Predictor(Protocol):
    """What can be scored: a `FittedModel`, or what knows the simulator (costar_cli/evaluation/limit.py)."""

    @property
    def method(self) -> str:
        """Return what messages call it."""

    @property
    def members(self) -> int:
        """Return R, the number of ensemble members."""

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict the outcomes `[R,Q,tau,dy]` of every query, in the units of the data."""


PredictFn = Callable[[Predictor, Queries], NDArray[np.float32]]


@dataclass(frozen=True)
class _ScoreBatch:
    """A query set, the kind of its questions, and the errors of its answers; none where bands are scored.

    `course` takes what is predicted of the natural course, of which neither is scored.
    """

    name: str
    kind: Kind
    queries: Queries
    steps_H: NDArray[np.bool_]
    errors: SquaredErrors | None
    course: Course | None = None

    def add(
        self, prediction_RQHY: NDArray[np.float32], queries: Queries, panel: Panel, how: Any,  # noqa: ANN401 - as `SquaredErrors.add` has it
        periods: Periods | None, weights: StayWeights | None, also: dict[str, SquaredErrors],
    ) -> None:  # fmt: skip
        """Add the errors of answers to those of their kind, to those without weights, and to those of their periods."""
        errors, weight_QH = self.errors, None
        assert errors is not None  # noqa: S101 - asked where they are
        how = {"steps_H": self.steps_H, **how}
        if weights is not None and self.kind == "factual":
            weight_QH = weights.at(queries)
            plain = errors.zeros_like(subjects=len(errors.count), weighed=False)
            also.setdefault(f"unweighed/{self.kind}", plain).add(prediction_RQHY, queries, **how)
        errors.add(prediction_RQHY, queries, weight_QH=weight_QH, **how)
        if periods is not None:
            period_Q = periods.number(panel, queries)
            dated = np.flatnonzero(period_Q >= 0)
            some = replace(queries.take(dated), subject=period_Q[dated].astype(np.int32))
            weight_QH = None if weight_QH is None else weight_QH[dated]
            blank = errors.zeros_like(subjects=len(periods.names), weighed=errors.weight is not None)
            of_period = also.setdefault(f"periods/sums/{self.kind}", blank)
            of_period.add(prediction_RQHY[:, dated], some, weight_QH=weight_QH, **how)


def score(
    model: Predictor,
    part: TestPart,
    *,
    denominator_Y: NDArray[np.float64],
    batch_size: int,
    task: Task,
    bands: BandTest | None = None,
    course: Course | None = None,
    periods: Periods | None = None,
    weights: StayWeights | None = None,
    also: dict[str, SquaredErrors] | None = None,
    effects: EffectSums | None = None,
    chunk_bytes: int = _PREDICTION_BYTES,
) -> dict[Truth, SquaredErrors]:
    """Return the squared errors of a model on a test part, per kind of truth.

    A chunk of subjects is encoded once for all its query sets. Chunks hold at most 2^18 steps and `chunk_bytes` of a
    set's predictions; errors are formed in double precision, `batch_size` queries at a time.

    Args:
        model: what predicts.
        part: whose subjects are scored.
        denominator_Y: what errors are divided by.
        batch_size: queries at a time.
        task: hears of progress.
        bands: adds how the model's bands and ratings do.
        course: windows of the natural course, and where what is predicted of them goes.
        periods: calendar periods by which errors are also summed.
        weights: of the errors of factual questions, which are also summed without.
        also: takes sums by their folder, `unweighed/<truth>` and `periods/sums/<truth>`.
        effects: takes how outcomes differ between the plans of an origin.
        chunk_bytes: of predictions held at once.
    """
    subjects, outcomes = part.panel.n_subjects, part.panel.outcomes.shape[-1]
    shape = {"members": model.members, "subjects": subjects, "horizon": part.horizon, "outcomes": outcomes}
    weighed = {truth: weights is not None and truth == "factual" for truth in part.serving}
    results = {truth: SquaredErrors.zeros(**shape, weighed=weighed[truth]) for truth in part.serving}
    also, how = {} if also is None else also, {"denominator_Y": denominator_Y}
    sets = [
        _ScoreBatch(name, truth, part.query_sets[name], steps_H, results[truth])
        for truth, names in part.serving.items()
        for name, steps_H in names.items()
    ]
    if bands is not None:
        chosen = [part.outcomes_of(bands.choose(s.kind, s.queries, s.steps_H)) for s in sets]
        sets += [replace(s, queries=queries, errors=None) for s, queries in zip(sets, chosen, strict=True)]
        if part.windows is not None and not isinstance(model, ForeignModel):
            every_H = np.ones(part.windows.horizon, dtype=bool)
            windows = bands.choose(WINDOWS, part.windows, every_H)
            sets.append(_ScoreBatch(WINDOWS, WINDOWS, windows, every_H, None))
    if course is not None:
        every_H = np.ones(course.windows.horizon, dtype=bool)
        sets.append(_ScoreBatch("natural course", WINDOWS, course.windows, every_H, None, course))
    sets = [replace(batch, queries=batch.queries.of_subjects(part.own)) for batch in sets]
    answer_bytes = [(4 * model.members + (0 if s.errors else _BAND_BYTES)) * s.queries.horizon * outcomes for s in sets]
    most = [max(1, chunk_bytes // of_one) for of_one in answer_bytes]
    for rows_N, rows_of in subject_chunks(part.panel, [batch.queries for batch in sets], most):
        panel = part.panel.take(rows_N)
        ask = _asker(panel, batch_size)
        for batch, rows in zip(sets, rows_of, strict=True):
            if not len(rows):
                continue
            chunk = batch.queries.take(rows)
            local = np.searchsorted(rows_N, chunk.subject).astype(np.int32)
            unanswered = replace(chunk, subject=local, outcomes=None, scored=None)  # no model sees the answers
            if batch.course is not None:
                found = bands.bands_of(panel, unanswered, ask) if batch.course.bands and bands else None
                batch.course.put(rows, ask(model, unanswered), found)
            elif batch.errors is None and bands is not None:
                bands.add(batch.kind, chunk, panel, unanswered, ask, batch.steps_H)
            else:
                prediction = ask(model, unanswered)
                try:
                    for start in range(0, len(chunk), batch_size):
                        some = slice(start, start + batch_size)
                        batch.add(prediction[:, some], chunk.take(some), part.panel, how, periods, weights, also)
                except CostarError as error:
                    context = f"{model.method}, query set {batch.name}"
                    error.where = f"{context}; {error.where}" if error.where else context
                    raise
                if effects is not None and batch.kind == "counterfactual":
                    effects.add(prediction, chunk, steps_H=batch.steps_H, batch_size=batch_size, **how)
                task.advance(len(chunk))
    return results


def mean_predictions(
    model: Predictor, panel: Panel, queries: Queries, chunk_bytes: int = _PREDICTION_BYTES
) -> NDArray[np.float64]:
    """Return the mean over members of predictions `[Q,H,Y]`, some subjects at a time as `score` takes them."""
    outcomes = panel.outcomes.shape[2]
    mean_QHY = np.empty((len(queries), queries.horizon, outcomes))
    most = max(1, chunk_bytes // (4 * model.members * queries.horizon * outcomes))
    for subjects, (rows,) in subject_chunks(panel, [queries], [most]):
        chunk = queries.take(rows)
        local = replace(chunk, subject=np.searchsorted(subjects, chunk.subject).astype(np.int32))
        predicted_RQHY = _possible(model, model.rollout(panel.take(subjects), local))
        mean_QHY[rows] = predicted_RQHY.mean(axis=0, dtype=np.float64)
    return mean_QHY


def _possible(model: Predictor, predicted_RQHY: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return predictions as `whatif` shows them; what knows the simulator has no facts, and needs none."""
    facts = facts_of(model) if isinstance(model, FittedModel) else None
    return possible(facts, predicted_RQHY).astype(np.float32)


def _asker(panel: Panel, batch_size: int) -> PredictFn:
    """Return what predicts the outcomes of queries about a panel, which each model encodes once."""
    states: dict[int, Any] = {}

    def ask(model: Predictor, queries: Queries) -> NDArray[np.float32]:
        if not isinstance(model, FittedModel):  # a simulator
            return _possible(model, model.rollout(panel, queries, batch_size=batch_size))
        if id(model) not in states:
            states[id(model)] = model.encode(panel)
        return _possible(model, model.answer(states[id(model)], queries, batch_size=batch_size))

    return ask


def subject_chunks(
    panel: Panel, sets: Sequence[Queries], most: Sequence[int]
) -> Iterator[tuple[NDArray[np.int64], list[NDArray[np.int64]]]]:
    """Yield subjects that were asked about, in order, and the rows of each query set that ask about them.

    A chunk has at most `most` rows of each set and `_CHUNK_STEPS` steps, but at least one subject.
    """
    if not sets:
        return
    orders = [np.argsort(queries.subject, kind="stable") for queries in sets]
    counts_SN = np.stack([np.bincount(queries.subject, minlength=panel.n_subjects) for queries in sets])
    asked = np.flatnonzero(counts_SN.any(axis=0))
    ends_SN = counts_SN[:, asked].cumsum(axis=1)
    first, begun = 0, np.zeros(len(sets), dtype=np.int64)
    while first < len(asked):
        stops = [int(np.searchsorted(e, b + m, side="right")) for e, b, m in zip(ends_SN, begun, most, strict=True)]
        stop = max(first + 1, min(*stops, first + _CHUNK_STEPS // panel.n_steps))
        ends = ends_SN[:, stop - 1]
        yield asked[first:stop], [order[b:e] for order, b, e in zip(orders, begun, ends, strict=True)]
        first, begun = stop, ends
