"""Factual questions about the subjects of a panel, a few of each: what complete models are compared on."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.panel import Panel
from costar_cli.data.queries import Queries, rolling_origin
from costar_cli.data.schema import TreatmentEncoding

MOST_WINDOWS: Final = 4_096  # scoring them costs a fraction of an epoch; more of the same subjects say little more


@dataclass(frozen=True)
class FactualWindows:
    """Questions about what came next from an origin, under the treatments given.

    Every origin with a whole horizon of steps ahead is asked about, or a subset of at most `MOST_WINDOWS` that treats
    subjects alike: few enough of each, spread evenly over its series. The choice is a function of the panel alone.
    `observed_QHY` says which answers count; `queries.subject` counts the rows of `panel`, which has no other subjects.
    """

    panel: Panel
    queries: Queries
    observed_QHY: NDArray[np.bool_]

    @property
    def asked(self) -> Queries:
        """Return the questions without their answers, which no model sees."""
        return replace(self.queries, outcomes=None, scored=None)


def factual_windows(panel: Panel, horizon: int, *, most: int = MOST_WINDOWS) -> FactualWindows | None:
    """Return the windows of a panel; shorter ones where no series has a whole horizon, None where none has a step.

    Windows without any observed answer are left out.
    """
    queries = rolling_origin(panel, min(horizon, int((panel.length - panel.first_origin).max(initial=1)) - 1))
    if queries is None or not queries.horizon:
        return None
    step_QH = queries.origin.astype(np.int64)[:, None] + np.arange(queries.horizon) + 1
    observed_QHY = np.asarray(panel.observed_outcomes[queries.subject[:, None], step_QH])
    rows = np.flatnonzero(observed_QHY.any(axis=(1, 2)))
    if len(rows) > most:  # the same number of each subject, as far as it has them
        subjects, first, count = np.unique(queries.subject[rows], return_index=True, return_counts=True)
        if len(subjects) > most:
            spread = np.linspace(0, len(subjects) - 1, most).round().astype(np.int64)
            rows = rows[np.sort(first[spread] + count[spread] // 2)]  # the middle origin of each
        else:
            totals = [np.minimum(count, n).sum() for n in range(1, int(count.max()) + 1)]
            quota = np.searchsorted(totals, most, side="right")
            each = [
                start + np.linspace(0, n - 1, min(n, quota)).round().astype(np.int64)
                for start, n in zip(first, count, strict=True)
            ]
            rows = rows[np.concatenate(each)]
    if not len(rows):
        return None
    subjects, row = np.unique(queries.subject[rows], return_inverse=True)
    chosen = replace(queries.take(rows), subject=row.astype(np.int32))
    return FactualWindows(panel.take(subjects.astype(np.int64)), chosen, observed_QHY[rows])


def share_of_changes(panel: Panel, encoding: TreatmentEncoding, steps: int) -> float | None:
    """Return the share of the windows of a panel, of so many steps, in which treatment changes; None without any."""
    origins = panel.n_steps - steps  # a window's last treatment, at t + steps - 1, has its outcome a step later
    t_W = np.arange(max(origins, 0))
    whole_NW = (t_W >= panel.first_origin[:, None]) & (t_W + steps < panel.length[:, None])
    if not whole_NW.any():
        return None
    kept = [True] * len(encoding.names) + [dose.elapsed is None for dose in encoding.doses]  # a gap is no treatment
    given_NTK = encoding.decode(panel.treatments)[..., kept]
    changed_NT = (given_NTK[:, 1:] != given_NTK[:, :-1]).any(axis=-1)
    before_NT = np.pad(changed_NT.cumsum(axis=1), [(0, 0), (1, 0)])
    return float((before_NT[:, t_W + steps - 1] > before_NT[:, t_W])[whole_NW].mean())
