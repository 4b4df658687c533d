"""Where the subjects of a table are in the data set made of it."""

from dataclasses import dataclass

import numpy as np

from costar_cli.datasets.table.index import Ints, Keys
from costar_cli.panel.dataset import Part

__all__ = ["Places"]


@dataclass(frozen=True, eq=False)
class Places:
    """Where each subject of the keys is: the number `[N]` of its part in `Part.all()`, and its row `[N]` there."""

    keys: Keys
    part: Ints
    row: Ints

    @classmethod
    def of(cls, keys: Keys, part: Ints) -> "Places":
        """Return the places of subjects that keep their order within each part."""
        row = np.zeros(len(part), dtype=np.int64)
        for number in range(len(Part.all())):
            row[part == number] = np.arange(int((part == number).sum()))
        return cls(keys, part, row)
