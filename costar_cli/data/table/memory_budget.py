"""Memory for a panel that is about to be laid out, known once its series and its columns are."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import numpy as np

from costar_cli.data.dataset import Part
from costar_cli.data.table.index import Ints, Keys
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.scratch import SMALLER, require_memory

SMALL: Final = 100_000_000  # bytes: below, nobody asks how much is free
FLOAT, DATE = 4, 8  # bytes of a value, and of a date
READ_BYTES: Final = 75  # of a cell: texts, numbers and codes of the column that is encoded
CHECK_BYTES: Final = 16  # of a padded cell: a variable in double precision, twice, while it is checked
PADDING: Final = 2  # times as many steps as rows: a long series among short ones is to blame
OF_DATES: Final = {"weekday": 7, "month": 2, "hour": 2}  # covariates

Column = Literal["covariate", "treatment", "outcome", "static"]


class PartSize(NamedTuple):
    """How many cells a part has, and how many with the padding behind its series."""

    cells: int
    padded: int

    @classmethod
    def of(cls, steps: Ints) -> "PartSize":
        """Return the size of a part that has so many steps `[N]` of each subject."""
        return cls(int(steps.sum()), int((steps > 0).sum() * steps.max(initial=0)))


class MemoryBudget:
    """What a panel takes while it is encoded, laid out and checked: refused where there is no memory for it.

    Each column of the schema is one of the panel until `widen` says otherwise.

    Args:
        keys: the cells.
        steps: how many steps `[N]` of each subject each part has.
        schema: the columns.
        asks: whether test subjects are asked what came next at each step.
    """

    def __init__(self, keys: Keys, steps: Mapping[Part, Ints], schema: TableSchema, *, asks: bool) -> None:
        self._names, self._steps = keys.subjects.names, np.maximum.reduce(list(steps.values()))
        self._sizes = {part: PartSize.of(steps_N) for part, steps_N in steps.items()}
        origins = sum(
            np.maximum(of_N - schema.horizon, 0).sum() for part, of_N in steps.items() if part.split == "test"
        )
        self._answers = int(origins) * schema.horizon * asks
        self._dated = schema.time.by_row and schema.time.parsed.scale != "number"
        roles: tuple[Column, ...] = ("covariate", "treatment", "outcome", "static")
        self._width = {role: len(schema.named(role)) for role in roles}
        self._width["covariate"] += sum(OF_DATES[name] for name in schema.time.calendar)
        self._masked = False

    def widen(self, role: Column, by: int) -> None:
        """Count columns of a role that the panel has beyond those of the schema, or lacks.

        Raises:
            NoRoomError: there is too little memory for them.
        """
        self._width[role] += by
        if by > 0:
            self.require()

    def masks(self, masked: bool) -> None:  # noqa: FBT001 - that is all it says
        """Count a byte per covariate for which were observed, if there is one.

        Raises:
            NoRoomError: there is too little memory for them.
        """
        self._masked = masked
        self.require()

    def require(self) -> None:
        """See that there is memory for the panel.

        Raises:
            NoRoomError: there is too little; saying whose long series all are padded to, if that is why.
        """
        if (needed := self.needed) < SMALL:
            return
        subjects, longest = int((self._steps > 0).sum()), int(self._steps.max())
        cells, padded = (sum(sizes) for sizes in zip(*self._sizes.values(), strict=True))
        what, fix = f"{subjects:,} subjects of up to {longest:,} steps", SMALLER
        if padded > PADDING * cells:
            name, mean = self._names[int(self._steps.argmax())], self._steps.sum() / subjects
            what = f"{subjects:,} subjects, padded to the {longest:,} steps of subject {name} (the mean is {mean:.0f}),"
            fix = f"leave out subject {name}, give `max_length`, or give costar more memory"
        require_memory(needed, f"{what} in {sum(self._width.values())} columns take", "as a panel", fix)

    @property
    def needed(self) -> int:
        """Return how many bytes the panel takes at most, on top of the rows and the order that are held already."""
        x, a, y, v = (self._width[role] for role in ("covariate", "treatment", "outcome", "static"))
        arrays = (FLOAT * x, FLOAT * a, FLOAT * y, y, x * self._masked)  # the last two say what was observed
        cells, padded = (sum(sizes) for sizes in zip(*self._sizes.values(), strict=True))
        most_cells, most_padded = (max(sizes) for sizes in zip(*self._sizes.values(), strict=True))
        encoded = cells * (sum(arrays) + max(READ_BYTES, FLOAT * x))
        laid_out = max(
            cells * sum(arrays[i:]) + padded * sum(arrays[: i + 1]) + most_cells * arrays[i] for i in range(len(arrays))
        )
        answers = self._answers * (6 * a + FLOAT * y + 9)  # plans as numbers and as bytes; steps
        checked = padded * sum(arrays) + max(answers, CHECK_BYTES * most_padded)
        dates, statics = DATE * padded * self._dated, 2 * FLOAT * v * len(self._steps)
        return int(max(encoded, laid_out + dates, checked + dates) + statics)
