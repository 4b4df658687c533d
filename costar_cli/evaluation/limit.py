"""What the simulator itself would predict, scored as a row of its own and never as a method (spec LIMIT-1, LIMIT-4)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Dataset, Panel, Part, Queries
from costar_cli.data.base import Limit, called
from costar_cli.data.registry import limit_of
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import CostarError
from costar_cli.evaluation.effects import EffectSums
from costar_cli.evaluation.metrics import SquaredErrors, Truth
from costar_cli.evaluation.score import TestPart, score
from costar_cli.reporting import Reporter, Task

LimitScores = tuple[Mapping[Truth, SquaredErrors], EffectSums | None]

# Computed when errors are, not stored with the data: files of older versions have the row, too.
_KEPT: Final = 8  # scored parts that are remembered: those of a few data sets
_scored: dict[tuple[object, ...], LimitScores] = {}


def known_limit(dataset: Dataset, part: Part) -> Limit | None:
    """Return what predicts as the simulator of a part would, None where the data set holds no truth of it."""
    limit = limit_of(dataset.name)
    return limit if limit is not None and limit.is_known(dataset.truth.get(part, {})) else None


def score_limit(
    dataset: Dataset,
    limit: Limit,
    place: Part,
    part: TestPart,
    *,
    denominator_Y: NDArray[np.float64],
    batch_size: int,
    task: Task,
    reporter: Reporter,
) -> LimitScores:
    """Return the limit's squared errors on a test part, per kind of truth, and those of effects; none where it fails.

    They depend on the data set alone, so that the cells of a benchmark share what one process has computed.
    """
    key = (dataset.digest, place, tuple(denominator_Y), part.horizon, part.own)
    if key in _scored:
        task.advance(part.n_queries)
        return _scored[key]
    try:
        predictor = _SimulatorPredictor(dataset, place, limit)
        effects = part.effects(predictor.members)
        errors = score(predictor, part, denominator_Y=denominator_Y, batch_size=batch_size, task=task, effects=effects)
    except CostarError as error:
        reporter.say(Diagnostic.of("limit-not-scored", place, limit=limit.label, problem=error.problem))
        return {}, None
    if dataset.digest:
        while len(_scored) >= _KEPT:
            del _scored[next(iter(_scored))]
        _scored[key] = errors, effects
    return errors, effects


@dataclass(frozen=True, slots=True)
class _SimulatorPredictor:
    """Answers queries about some subjects of a part as the simulator would."""

    dataset: Dataset
    part: Part
    limit: Limit
    members: int = 1

    @property
    def method(self) -> str:
        """Return what messages call it."""
        return self.limit.label

    def rollout(
        self,
        panel: Panel,
        queries: Queries,
        *,
        batch_size: int = 16_384,  # noqa: ARG002 - as models are asked; the data set's function bounds its own memory
        reporter: Reporter | None = None,  # noqa: ARG002
    ) -> NDArray[np.float32]:
        """Return the expected outcomes `[1,Q,tau,dy]`."""
        ids = self.dataset.panels[self.part].subject_id
        order = np.argsort(ids)
        row_N = order[np.searchsorted(ids, panel.subject_id, sorter=order)]
        plan = self.dataset.schema.treatments.decode(queries.plan)
        answer = called(self.limit.predict)(self.dataset, self.part, row_N[queries.subject], queries.origin, plan)
        shape = (1, len(queries), queries.horizon, len(self.dataset.schema.outcomes))
        return np.asarray(answer, dtype=np.float32).reshape(shape)
