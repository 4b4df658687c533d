"""The simulators' own answers, for the data sets that have them."""

import numpy as np
from numpy.typing import NDArray

from costar_cli.datasets.registry import truth_of
from costar_cli.errors import UsageError
from costar_cli.panel import Dataset, Location
from costar_cli.whatif.plan import TreatmentPlan

__all__ = ["true_outcomes"]


def true_outcomes(
    dataset: Dataset, location: Location, origin: int, plans: tuple[TreatmentPlan, ...]
) -> tuple[NDArray[np.float64], ...]:
    """Return the outcomes `[steps,dy]` that the simulator gives under each plan.

    Raises:
        UsageError: the data set was observed, not simulated.
    """
    answer = truth_of(dataset.name)
    if answer is None or not dataset.truth.get(location.part):
        raise UsageError(
            f"data set `{dataset.name}` holds no simulator's truth for {location.part}",
            where="--truth",
            fix="omit --truth: counterfactual outcomes are unknown in observed data",
        )
    width = len(dataset.schema.outcomes)
    answers = (answer(dataset, location.part, location.row, origin, plan.values) for plan in plans)
    return tuple(
        np.asarray(y, dtype=np.float64).reshape(len(plan), width) for y, plan in zip(answers, plans, strict=True)
    )
