"""Doses: treatments decoded into factors that are given or not, whatever their encoding (spec MIXED-1)."""

import numpy as np
from numpy.typing import NDArray

from costar_cli.panel import TreatmentEncoding

__all__ = ["dose_names", "dose_table"]


def dose_table(encoding: TreatmentEncoding) -> NDArray[np.float64]:
    """Return the doses `[da,L]` of each encoded column: one factor per level of a treatment but the reference.

    Treatments that are encoded as classes are decoded: two that are on or off are two factors, not four classes.
    """
    unit = np.eye(encoding.width)
    values = encoding.decode(unit)
    factors = [values[:, i] == level for i, levels in enumerate(encoding.levels) for level in range(1, len(levels))]
    return np.stack(factors, axis=-1).astype(np.float64)


def dose_names(encoding: TreatmentEncoding) -> list[str]:
    """Return what each factor is called: the treatment, with the level where it has more than two."""
    return [
        name if len(levels) == 2 else f"{name}={level}"
        for name, levels in zip(encoding.names, encoding.levels, strict=True)
        for level in levels[1:]
    ]
