"""Steps after which a series may end (spec SURV-2). `E` counts ends, `M` decisions."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema, Queries, as_plans


@dataclass(frozen=True, eq=False, slots=True)
class AtRisk:
    """Steps after which a series may end, as plans of one step, and which end came `[M,E]`.

    `share` is that of the steps without an end that are there.
    """

    queries: Queries
    ended_ME: NDArray[np.bool_]
    share: float = 1.0

    @classmethod
    def of(cls, panel: Panel, schema: PanelSchema, *, terminal: bool) -> Self:
        """Return the steps of a panel that may end by a terminal event, or by a loss of follow-up (spec SURV-2).

        What was given at the last step of those who were lost is not known: plans of losses give nothing.
        """
        end_N = panel.ends
        lost_N = np.isin(end_N, [code for code, end in enumerate(schema.ends, start=1) if not end.terminal])
        last_N = panel.length - (1 if terminal else ~lost_N)
        step_T = np.arange(panel.n_steps)
        row_M, step_M = np.nonzero((step_T < last_N[:, None]) & (step_T >= panel.first_origin[:, None]))
        final_M = step_M == last_N[row_M] - 1
        ended_ME = final_M[:, None] & (end_N[row_M, None] == np.arange(1, len(schema.ends) + 1))
        ended_ME &= [end.terminal == terminal for end in schema.ends]
        plan = panel.treatments[row_M, step_M][:, None] * terminal
        return cls(Queries(row_M.astype(np.int32), step_M.astype(np.int16), as_plans(plan)), ended_ME)

    def thinned(self, most: int) -> "AtRisk":
        """Return all steps with an end, and of those without at most so many, evenly spread."""
        ended_M = self.ended_ME.any(axis=1)
        if (others := int((~ended_M).sum())) <= most:
            return self
        spread = np.linspace(0, others - 1, most).round().astype(np.int64)
        rows = np.union1d(np.flatnonzero(ended_M), np.flatnonzero(~ended_M)[spread])
        return AtRisk(self.queries.take(rows), self.ended_ME[rows], most / others)
