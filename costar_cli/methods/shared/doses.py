"""Factors: levels that are given or not, whatever their encoding, and the columns of doses (spec MIXED-1)."""

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import TreatmentEncoding


def dose_table(encoding: TreatmentEncoding, *, timeless: bool = False) -> NDArray[np.float64]:
    """Return the factors `[da,L]` of each encoded column: one per level of a treatment but the reference.

    Treatments that are encoded as classes are decoded: two that are on or off are two factors, not four classes. The
    columns of doses, last, are factors as they are; of `timeless` ones, the time until the next step is none.
    """
    table = np.eye(encoding.width)
    values = encoding.decode(table)
    factors = [values[:, i] == level for i, levels in enumerate(encoding.levels) for level in range(1, len(levels))]
    of_levels = np.stack(factors, axis=-1).astype(np.float64) if factors else np.zeros((len(table), 0))
    kept = [dose.elapsed is None or not timeless for dose in encoding.doses for _ in range(dose.width)]
    return np.concatenate([of_levels, table[:, encoding.level_width :][:, np.array(kept, dtype=bool)]], axis=1)


def dose_names(encoding: TreatmentEncoding, *, timeless: bool = False) -> list[str]:
    """Return what each factor is called: the treatment, with the level where it has more than two, or the dose."""
    doses = [dose for dose in encoding.doses if dose.elapsed is None or not timeless]
    return [*_level_names(encoding), *(column for dose in doses for column in dose.columns)]


def given_names(encoding: TreatmentEncoding) -> list[str]:
    """Return what each factor but time is of: a level, as `dose_names` calls it, or a dose, in each of its columns."""
    doses = [dose for dose in encoding.doses if dose.elapsed is None]
    return [*_level_names(encoding), *(dose.name for dose in doses for _ in range(dose.width))]


def _level_names(encoding: TreatmentEncoding) -> list[str]:
    return [
        name if len(levels) == 2 else f"{name}={level}"
        for name, levels in zip(encoding.names, encoding.levels, strict=True)
        for level in levels[1:]
    ]
