"""The shifted arrays of other implementations, which costar never stores (spec PANEL-3)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.panel import Panel
from costar_cli.data.queries import Queries

__all__ = ["ShiftedArrays", "exploded", "shifted"]

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ShiftedArrays:
    """One row per subject (or per query), position s predicts `y_{s+1}` from the history up to s and `a_s`.

    Values are unscaled; positions at or beyond `sequence_lengths` hold zeros. `future_past_split` is the number of
    history positions of a query's row, its origin plus one.
    """

    prev_outputs: Floats
    outputs: Floats
    prev_treatments: Floats
    current_treatments: Floats
    vitals: Floats
    static_features: Floats
    active_entries: Floats
    sequence_lengths: NDArray[np.int64]
    future_past_split: NDArray[np.int64] | None = None


def shifted(panel: Panel) -> ShiftedArrays:
    """Return the factual rows of a panel, T-1 positions of which `length - 1` are active."""
    return _shift(panel, panel.outcomes, panel.treatments, panel.length - 1)


def exploded(panel: Panel, queries: Queries) -> ShiftedArrays:
    """Return one row per query: the factual history up to the origin, then the plan and the known answers.

    This copies every history. Models encode a panel once instead.
    """
    origin, tau = queries.origin.astype(np.int64), queries.horizon
    rows = panel.take(queries.subject.astype(np.int64))
    steps = int(max(panel.n_steps, origin.max(initial=0) + tau + 1))
    outcomes, treatments = _lengthened(rows.outcomes, steps), _lengthened(rows.treatments, steps)
    covariates = _lengthened(rows.covariates, steps)
    step = np.arange(steps)[None, :]
    outcomes[step > origin[:, None]] = 0
    treatments[step >= origin[:, None]] = 0
    q = np.arange(len(queries))[:, None]
    ahead = origin[:, None] + np.arange(tau)
    treatments[q, ahead] = queries.plan
    if queries.outcomes is not None:
        outcomes[q, ahead + 1] = queries.outcomes
    # Covariates beyond the origin belong to the factual course, not to the plan.
    covariates[step > origin[:, None]] = 0
    longer = Panel(covariates, treatments, outcomes, rows.statics, origin + tau + 1, rows.subject_id)
    return _shift(longer, outcomes, treatments, origin + tau, split=origin + 1)


def _shift(
    panel: Panel,
    outcomes: Floats,
    treatments: Floats,
    length: NDArray[np.int64],
    split: NDArray[np.int64] | None = None,
) -> ShiftedArrays:
    active = (np.arange(panel.n_steps - 1) < length[:, None])[..., None]
    previous = np.zeros_like(treatments[:, :-1])
    previous[:, 1:] = treatments[:, :-2]

    def masked(values: Floats) -> Floats:
        return np.where(active, values, np.float32(0)).astype(np.float32)

    return ShiftedArrays(
        prev_outputs=masked(outcomes[:, :-1]),
        outputs=masked(outcomes[:, 1:]),
        prev_treatments=masked(previous),
        current_treatments=masked(treatments[:, :-1]),
        vitals=masked(panel.covariates[:, :-1]),
        static_features=panel.statics,
        active_entries=active.astype(np.float32),
        sequence_lengths=length.astype(np.int64),
        future_past_split=split,
    )


def _lengthened(values: Floats, steps: int) -> Floats:
    result = np.zeros((values.shape[0], steps, values.shape[2]), dtype=np.float32)
    result[:, : values.shape[1]] = values
    return result
