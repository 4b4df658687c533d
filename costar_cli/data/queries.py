"""The query: everything that is ever predicted is `(subject, origin, plan)` (spec PANEL-5, PANEL-6)."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.panel import Arrays, Panel, require_shapes
from costar_cli.errors import DataError

MOST_ANSWERS: Final = 200_000_000
Plans = NDArray[np.uint8] | NDArray[np.float32]


def as_plans(encoded: NDArray[np.number | np.bool_]) -> Plans:
    """Return encoded treatments as plans hold them: uint8 where all are zeros and ones, else, with doses, float32."""
    if ((encoded == 0) | (encoded == 1)).all():
        return encoded.astype(np.uint8, copy=False)
    return encoded.astype(np.float32, copy=False)


@dataclass(frozen=True, slots=True)
class Queries:
    """Questions about a panel, in flat arrays, with the known answers where there are any.

    Step h = 0..H-1 of a query asks for `y_{origin+h+1}` had `plan[:, :h+1]` been applied from `origin` on. The model
    sees the history at `origin` and the plan, nothing else.

    Shapes: `subject [Q]` (row of the panel), `origin [Q]`, `plan [Q,H,A]` (encoded; uint8 keeps 500,000 of them
    small, float32 holds doses), `outcomes [Q,H,Y]` (unscaled) and `scored [Q,H]`, both or neither.
    """

    subject: NDArray[np.int32]
    origin: NDArray[np.int16]
    plan: Plans
    outcomes: NDArray[np.float32] | None = None
    scored: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if (self.outcomes is None) != (self.scored is None):
            raise DataError("a query set has both outcomes and scored steps, or neither")
        q, tau, da = (*self.plan.shape, 0, 0, 0)[:3]
        arrays: Arrays = {
            "plan": (self.plan, (q, tau, da)),
            "subject": (self.subject, (q,)),
            "origin": (self.origin, (q,)),
            "outcomes": (self.outcomes, (q, tau, None)),
            "scored": (self.scored, (q, tau)),
        }
        require_shapes("a query set", arrays)

    @classmethod
    def answered(
        cls,
        subject: NDArray[np.integer],
        origin: NDArray[np.integer],
        plan: NDArray[np.number | np.bool_],
        outcomes: NDArray[np.floating],
        *,
        factual_start: bool = True,
    ) -> Self:
        """Return a simulator's answers as a query set; a factual first step of longer plans is not scored."""
        scored = np.full(plan.shape[:2], fill_value=True)
        scored[:, 0] = not factual_start or plan.shape[1] == 1
        return cls(
            subject.astype(np.int32, copy=False),
            origin.astype(np.int16, copy=False),
            as_plans(plan),
            outcomes.astype(np.float32, copy=False),
            scored,
        )

    def __len__(self) -> int:
        return int(self.subject.shape[0])

    @property
    def horizon(self) -> int:
        """Return H, the number of steps asked for."""
        return int(self.plan.shape[1])

    def of_subjects(self, subjects: range) -> Self:
        """Return the queries about some rows of the panel that follow one another."""
        own_Q = (self.subject >= subjects.start) & (self.subject < subjects.stop)
        return self if own_Q.all() else self.take(own_Q)

    def take(self, rows: slice | NDArray[np.int64] | NDArray[np.bool_]) -> Self:
        """Return the queries of the given rows, in that order."""
        return type(self)(
            subject=self.subject[rows],
            origin=self.origin[rows],
            plan=self.plan[rows],
            outcomes=None if self.outcomes is None else self.outcomes[rows],
            scored=None if self.scored is None else self.scored[rows],
        )


def rolling_origin(panel: Panel, horizon: int) -> Queries | None:
    """Return every question of `horizon` steps that the panel itself answers, None where its series are too short.

    Each subject is asked at every origin that has `horizon` further observed steps: what came next under the
    treatments that were given, from the panel's first origin on. Answers are factual. A step counts where every outcome
    was observed.

    Raises:
        DataError: more answers than memory is likely to hold.
    """
    per_subject = np.maximum(panel.length - horizon - panel.first_origin, 0)
    subject = np.repeat(np.arange(panel.n_subjects), per_subject)
    if not len(subject):
        return None
    if len(subject) * horizon > MOST_ANSWERS:
        problem = f"the test subjects have {len(subject):,} origins with {horizon} answers each"
        raise DataError(problem, fix="give fewer test subjects, `max_length`, or `rolling_origin = false` in [queries]")
    before = np.cumsum(per_subject) - per_subject - panel.first_origin
    origin = np.arange(len(subject)) - np.repeat(before, per_subject)
    step = origin[:, None] + np.arange(horizon)
    observed = np.asarray(panel.observed_outcomes.all(axis=-1))
    return Queries(
        subject=subject.astype(np.int32),
        origin=origin.astype(np.int16),
        plan=as_plans(panel.treatments[subject[:, None], step]),
        outcomes=panel.outcomes[subject[:, None], step + 1],
        scored=observed[subject[:, None], step + 1],
    )
