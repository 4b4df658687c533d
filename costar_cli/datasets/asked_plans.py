"""Plans as a caller asks a simulator about them: of one subject or of many, from one origin or from many."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costar_cli.errors import UsageError
from costar_cli.panel.dataset import Part


@dataclass(frozen=True, slots=True)
class AskedPlans:
    """Q questions: rows of a part's panel, origins, and plans `[Q,tau,...]`; `single` where one was asked alone."""

    row_Q: NDArray[np.int64]
    origin_Q: NDArray[np.int64]
    plan_QH: NDArray[Any]
    single: bool

    @classmethod
    def of(cls, row: int | ArrayLike, origin: int | ArrayLike, plan: NDArray[Any], *, plan_axes: int) -> Self:
        """Return what is asked; one row, origin or plan stands for as many as there are of the others.

        Args:
            row: rows of the part's panel, one or `[Q]`.
            origin: steps at which the plans start, one or `[Q]`.
            plan: one plan, or `[Q,...]`.
            plan_axes: axes of one plan.
        """
        single = plan.ndim == plan_axes and np.ndim(row) == 0 and np.ndim(origin) == 0
        plan_QH = plan if plan.ndim > plan_axes else plan[None]
        n_queries = max(len(plan_QH), np.size(row), np.size(origin))
        return cls(
            row_Q=np.broadcast_to(np.asarray(row, dtype=np.int64), (n_queries,)),
            origin_Q=np.broadcast_to(np.asarray(origin, dtype=np.int64), (n_queries,)),
            plan_QH=np.broadcast_to(plan_QH, (n_queries, *plan_QH.shape[1:])),
            single=single,
        )

    @property
    def horizon(self) -> int:
        """Return tau."""
        return int(self.plan_QH.shape[1])

    def check_rows(self, length: NDArray[np.int64], part: Part) -> None:
        """Check that the part has these rows; `length [N]` of its subjects.

        Raises:
            UsageError: a row is outside.
        """
        if ((self.row_Q < 0) | (self.row_Q >= len(length))).any():
            raise UsageError(f"rows of {part} go from 0 to {len(length) - 1}")

    def check_origins(self, length: NDArray[np.int64]) -> None:
        """Check that origins are observed steps of their subjects.

        Raises:
            UsageError: the first one that is not, and which are.
        """
        beyond = (self.origin_Q < 0) | (self.origin_Q >= length[self.row_Q])
        if beyond.any():
            last = length[self.row_Q[beyond][0]] - 1
            raise UsageError(
                f"origin {self.origin_Q[beyond][0]} is outside the series", fix=f"choose an origin from 0 to {last}"
            )

    def shaped(self, answer_QH: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return answers `[Q,...]` as they were asked for: that to a single question without its axis."""
        return answer_QH[0] if self.single else answer_QH
