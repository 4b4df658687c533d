"""Plans as a caller asks a simulator about them: of one subject or of many, from one origin or from many."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costar_cli.data.dataset import Dataset, Part
from costar_cli.errors import UsageError


def simulated_truth(dataset: Dataset, part: Part, needed: Collection[str]) -> Mapping[str, NDArray[Any]]:
    """Return the arrays of a part's truth.

    Raises:
        UsageError: the data set lacks one that is needed.
    """
    truth = dataset.truth.get(part, {})
    if not set(needed) <= set(truth):
        raise UsageError(
            f"this data set has no simulated truth of {part}",
            where="--truth",
            fix=f"omit --truth, or use a data set from `costar simulate {dataset.name}`",
        )
    return truth


@dataclass(frozen=True, slots=True)
class AskedPlans:
    """Q questions: rows of a part's panel, origins, and plans `[Q,H,...]`; `single` where one was asked alone.

    `length_N` counts the observed steps of the part's subjects.
    """

    length_N: NDArray[np.int64]
    row_Q: NDArray[np.int64]
    origin_Q: NDArray[np.int64]
    plan_QH: NDArray[Any]
    single: bool

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        part: Part,
        row: int | ArrayLike,
        origin: int | ArrayLike,
        plan: NDArray[Any],
        *,
        plan_axes: int = 2,
    ) -> Self:
        """Return what is asked; one row, origin or plan of `plan_axes` axes stands for as many as there are of others.

        Raises:
            UsageError: the part has no such row.
        """
        length_N = dataset.panels[part].length
        single = plan.ndim == plan_axes and np.ndim(row) == 0 and np.ndim(origin) == 0
        plan_QH = plan if plan.ndim > plan_axes else plan[None]
        n_queries = max(len(plan_QH), np.size(row), np.size(origin))
        row_Q = np.broadcast_to(np.asarray(row, dtype=np.int64), (n_queries,))
        if ((row_Q < 0) | (row_Q >= len(length_N))).any():
            raise UsageError(f"rows of {part} go from 0 to {len(length_N) - 1}")
        return cls(
            length_N=length_N,
            row_Q=row_Q,
            origin_Q=np.broadcast_to(np.asarray(origin, dtype=np.int64), (n_queries,)),
            plan_QH=np.broadcast_to(plan_QH, (n_queries, *plan_QH.shape[1:])),
            single=single,
        )

    @property
    def horizon(self) -> int:
        """Return H."""
        return int(self.plan_QH.shape[1])

    def within_series(self) -> Self:
        """Return these questions, whose origins are observed steps of their subjects.

        Raises:
            UsageError: the first one that is not, and which are.
        """
        last_Q = self.length_N[self.row_Q] - 1
        beyond = (self.origin_Q < 0) | (self.origin_Q > last_Q)
        if beyond.any():
            fix = f"choose an origin from 0 to {last_Q[beyond][0]}"
            raise UsageError(f"origin {self.origin_Q[beyond][0]} is outside the series", fix=fix)
        return self

    def shaped(self, answer_QH: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return answers `[Q,...]` as they were asked for: that to a single question without its axis."""
        return answer_QH[0] if self.single else answer_QH
