"""Long series in stretches: networks look back so far and no farther (spec PANEL-14)."""

from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.panel import Panel
from costar_cli.data.queries import Queries

STRETCH: Final = 128  # steps; the longest series of simulated data sets have 72 by default
Indices = NDArray[np.int64]


def is_long(panel: Panel) -> bool:
    """Return whether a panel has a series that is longer than a stretch."""
    return int(panel.length.max(initial=0)) > STRETCH


@dataclass(frozen=True)
class Stretches:
    """A panel whose rows are stretches of another one's series, each beginning half a stretch after the one before.

    A stretch stands for its subject, as if that had been observed from `start_M` on. Series that are no longer than a
    stretch are their own. Row `first_N[n] + k` is stretch k of subject n, where all are there.
    """

    panel: Panel
    first_N: Indices
    steps: int

    @classmethod
    def of(cls, panel: Panel, steps: int = STRETCH) -> Self:
        """Return all stretches of every subject."""
        count_N = np.maximum((panel.length - 1) // (steps // 2), 1)
        first_N = count_N.cumsum() - count_N
        subject_M = np.repeat(np.arange(panel.n_subjects), count_N)
        return cls(_cut(panel, subject_M, np.arange(len(subject_M)) - first_N[subject_M], steps), first_N, steps)

    @classmethod
    def asked(cls, panel: Panel, queries: Queries, steps: int = STRETCH) -> tuple[Panel, Queries]:
        """Return only the stretches that queries ask about, and the queries about these."""
        which_Q = _stretch_of(queries.origin, steps)
        pairs_M2, row_Q = np.unique(np.stack([queries.subject, which_Q], axis=1), axis=0, return_inverse=True)
        return _cut(panel, pairs_M2[:, 0], pairs_M2[:, 1], steps), _moved(queries, row_Q, which_Q, steps)

    def queries(self, queries: Queries) -> Queries:
        """Return queries about the series as queries about the stretches."""
        which_Q = _stretch_of(queries.origin, self.steps)
        return _moved(queries, self.first_N[queries.subject] + which_Q, which_Q, self.steps)


def _stretch_of(origin_Q: NDArray[np.integer], steps: int) -> Indices:
    """Return the stretch in whose second half an origin is, of the first stretch in either half."""
    which_Q: Indices = np.maximum(origin_Q.astype(np.int64) // (steps // 2) - 1, 0)
    return which_Q


def _moved(queries: Queries, row_Q: Indices, which_Q: Indices, steps: int) -> Queries:
    origin_Q = queries.origin - which_Q * (steps // 2)
    return replace(queries, subject=row_Q.reshape(-1).astype(np.int32), origin=origin_Q.astype(np.int16))


def _cut(panel: Panel, subject_M: Indices, which_M: Indices, steps: int) -> Panel:
    """Return stretches `which_M` of subjects as a panel; whole series are never there once for each stretch."""
    rows, start_M = panel.until(1).take(subject_M.astype(np.int64)), which_M * (steps // 2)
    length_M = np.minimum(panel.length[subject_M] - start_M, steps)
    step_MS = np.minimum(start_M[:, None] + np.arange(min(steps, panel.n_steps)), panel.n_steps - 1)
    is_there_MS1 = (np.arange(step_MS.shape[1]) < length_M[:, None])[..., None]

    def cut(series: NDArray[Any]) -> NDArray[Any]:
        values: NDArray[Any] = series[subject_M[:, None], step_MS]
        values *= is_there_MS1
        return values

    seen, seen_x = panel.outcome_observed, panel.covariate_observed
    return replace(
        rows,
        covariates=cut(panel.covariates),
        treatments=cut(panel.treatments),
        outcomes=cut(panel.outcomes),
        length=length_M,
        outcome_observed=None if seen is None else cut(seen),
        covariate_observed=None if seen_x is None else cut(seen_x),
        calendar=None,
        since=None if panel.since is None else np.maximum(panel.since[subject_M] - start_M, 0),
    )
