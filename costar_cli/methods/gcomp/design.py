"""Columns of a step (spec GCOMP-2): P of them; other letters as in `costar_cli/methods/shared/course.py`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import PanelSchema
from costar_cli.methods.shared.course import DECAYS, Course, Floats, Scales
from costar_cli.methods.shared.doses import dose_table

MOST_DIFFERENCE: Final = 10.0  # units between the last value and an earlier one, as a column
MOST_PAIRED: Final = 12  # variables and statics whose products with each other are columns
BLOCKS: Final = ("recent", "history", "products")


@dataclass(frozen=True)
class Design:
    """The columns of a step, in blocks: what stands now, what was before, and products (spec GCOMP-2)."""

    scales: Scales
    n_factors: int
    n_statics: int
    lags: int

    @classmethod
    def of(cls, schema: PanelSchema, scales: Scales, lags: int) -> Self:
        """Return the design of a data set."""
        return cls(scales, dose_table(schema.treatments).shape[1], len(schema.statics), lags)

    @cached_property
    def widths(self) -> dict[str, int]:
        """Return how many columns each block has."""
        e, known, doses = len(self.scales.kinds), len(self.scales.kinds) + self.n_statics, self.n_factors
        products = doses * known + doses * (doses + 1) // 2
        products += known * (known + 1) // 2 if known <= MOST_PAIRED else 0
        history = (self.lags + 1) * e + int(self.scales.having("local").sum()) + len(DECAYS) * doses + 1
        return dict(zip(BLOCKS, (known + doses, history, products), strict=True))

    @property
    def width(self) -> int:
        """Return P, the columns of all blocks."""
        return sum(self.widths.values())

    def among(self, blocks: Sequence[str]) -> NDArray[np.bool_]:
        """Return which columns `[P]` are those of some blocks."""
        return np.concatenate([np.full(width, name in blocks) for name, width in self.widths.items()])

    def columns(self, course: Course, dose_ML: Floats, blocks: Sequence[str] = BLOCKS) -> Floats:
        """Return the columns `[M,P]` of a step with doses; those of blocks that are not asked for are zeros."""
        made = [
            block if name in blocks else np.zeros((len(dose_ML), self.widths[name]))
            for name, block in zip(BLOCKS, self._blocks(course, dose_ML, blocks), strict=True)
        ]
        return np.concatenate(made, axis=1)

    def _blocks(self, course: Course, dose_ML: Floats, blocks: Sequence[str]) -> Iterator[Floats]:
        scales, now_ME, unit_ME = self.scales, course.now_ME, course.unit(self.scales)
        local_E = scales.having("local")
        known_MB = np.concatenate([course.level(scales), course.static_MV], axis=1)
        yield np.concatenate([known_MB, dose_ML], axis=1)
        if "history" in blocks:
            earlier_MKE = np.concatenate([course.value_MKE[:, 1:], course.mean_ME[:, None]], axis=1)
            difference_MKE = ((earlier_MKE - now_ME[:, None]) / unit_ME[:, None]).clip(
                -MOST_DIFFERENCE, MOST_DIFFERENCE
            )
            yield np.concatenate(
                [
                    difference_MKE.reshape(len(dose_ML), -1),
                    np.log(unit_ME[:, local_E] / scales.sd_E[local_E]),
                    course.exposure_MJ,
                    course.step_M[:, None],
                ],
                axis=1,
            )
        else:
            yield known_MB
        if "products" in blocks:
            of_doses_MP = (dose_ML[:, :, None] * known_MB[:, None]).reshape(len(dose_ML), -1)
            given = [of_doses_MP, _pairs(dose_ML)]
            paired = known_MB.shape[1] <= MOST_PAIRED
            yield np.concatenate([*given, _pairs(known_MB)] if paired else given, axis=1)
        else:
            yield known_MB


def _pairs(known_MB: Floats) -> Floats:
    """Return the squares of columns, and their products with each other."""
    first, second = np.triu_indices(known_MB.shape[1])
    return np.asarray(known_MB[:, first] * known_MB[:, second])
