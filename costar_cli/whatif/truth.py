"""The simulators' own answers, for the data sets that have them."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from costar_cli.datasets.icu.truth import mimic_truth
from costar_cli.datasets.linear.simulate import linear_gaussian_truth
from costar_cli.datasets.retail.truth import m5_truth
from costar_cli.datasets.tumor.simulate import tumor_truth
from costar_cli.errors import UsageError
from costar_cli.panel import Dataset, Location, Part
from costar_cli.whatif.plan import TreatmentPlan

__all__ = ["SIMULATORS", "Simulator", "true_outcomes"]

Simulator = Callable[[Dataset, Part, int, int, NDArray[np.int64]], NDArray[np.floating]]

SIMULATORS: Mapping[str, Simulator] = {  # by `Dataset.name`
    "tumor": tumor_truth,
    "linear-gaussian": linear_gaussian_truth,
    "m5": m5_truth,
    "mimic": mimic_truth,
}


def true_outcomes(
    dataset: Dataset, location: Location, origin: int, plans: tuple[TreatmentPlan, ...]
) -> tuple[NDArray[np.float64], ...]:
    """Return the outcomes `[steps,dy]` that the simulator gives under each plan.

    Raises:
        UsageError: the data set was observed, not simulated.
    """
    simulator = SIMULATORS.get(dataset.name)
    if simulator is None or not dataset.truth.get(location.part):
        raise UsageError(
            f"data set `{dataset.name}` holds no simulator's truth for {location.part}",
            where="--truth",
            fix="leave out --truth: what would have happened is unknown in observed data",
        )
    width = len(dataset.schema.outcomes)
    answers = (simulator(dataset, location.part, location.row, origin, plan.values) for plan in plans)
    return tuple(
        np.asarray(y, dtype=np.float64).reshape(len(plan), width) for y, plan in zip(answers, plans, strict=True)
    )
