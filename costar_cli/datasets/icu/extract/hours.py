"""The hourly tables of a file, read in slices: memory holds the columns that are needed, not all 104."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.datasets.icu.extract.store import INTERVENTIONS, LEVELS, MEAN, read_level, read_rows, refuse
from costar_cli.errors import DataError
from costar_cli.panel.findings import counted, shown
from costar_cli.reporting import Reporter

if TYPE_CHECKING:
    import pandas as pd

Ints = NDArray[np.int64]

SLICE_ROWS: Final = 100_000  # stay-hours read at once


@dataclass(frozen=True, slots=True)
class HourlyTable:
    """Columns of a table `values [M,F]` by patient `subject_id [M]` and hour of the stay `hour [M]`, in this order."""

    path: Path
    key: str
    columns: tuple[str, ...]
    subject_id: Ints
    hour: Ints
    values: NDArray[np.float32]

    @classmethod
    def read(
        cls,
        store: "pd.HDFStore",
        path: Path,
        key: str,
        columns: tuple[str, ...],
        reporter: Reporter,
        *,
        slice_rows: int = SLICE_ROWS,
    ) -> Self:
        """Read some columns of a table; the rows may come in any order.

        Raises:
            DataError: table, columns or index are not those of MIMIC-Extract.
        """
        pieces: list[tuple[Ints, Ints, NDArray[np.float32]]] = []
        wanted = _column_keys(read_rows(store, path, key, 0, 1), path, key, columns)
        with reporter.task(f"read {key}", unit="stay-hour") as task:
            while not pieces or len(pieces[-1][0]) == slice_rows:
                start = len(pieces) * slice_rows
                frame = read_rows(store, path, key, start, start + slice_rows)
                subject_id, hour = (read_level(frame, path, key, name) for name in ("subject_id", "hours_in"))
                pieces.append((subject_id, hour, _numbers(frame[wanted], path, key)))
                task.advance(len(frame))
        subject_id, hour, values = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
        if not len(subject_id):
            raise refuse(f"{key} has no rows", path)
        order = np.lexsort((hour, subject_id))
        if (np.diff(order) == 1).all():  # as files are: no copy
            return cls(path, key, columns, subject_id, hour, values)
        return cls(path, key, columns, subject_id[order], hour[order], values[order])

    def of_patients(self, subject_id_S: Ints) -> tuple[Self, int]:
        """Return the rows of the given patients, and how many others there are."""
        known = np.isin(self.subject_id, subject_id_S)
        if known.all():
            return self, 0
        rows = np.flatnonzero(known)
        kept = replace(self, subject_id=self.subject_id[rows], hour=self.hour[rows], values=self.values[rows])
        return kept, len(known) - len(rows)

    def check(self) -> None:
        """Raise unless hours go 0, 1, 2, ... for each patient, and values are finite where they are not missing.

        Raises:
            DataError: hours are missing or come twice, or values are infinite.
        """
        before = np.r_[-1, self.hour[:-1]]
        expected = np.where(np.r_[True, np.diff(self.subject_id) != 0], 0, before + 1)
        if len(wrong := np.flatnonzero(self.hour != expected)):
            at = wrong[0]
            raise DataError(
                f"{self.key} does not have one row per hour, {counted(len(wrong), 'time')}",
                where=f"{self.path}: patient {self.subject_id[at]} has hour {self.hour[at]} instead of {expected[at]}",
                fix="extract one stay per patient and all of its hours, as MIMIC-Extract does by default",
            )
        odd = np.flatnonzero(np.any(np.isinf(self.values), axis=0))
        if infinite := [self.columns[column] for column in odd]:
            raise refuse(f"{self.key} has infinite values of {shown(infinite)}", self.path)

    def lengths(self, subject_id_S: Ints) -> Ints:
        """Return the number of rows `[S]` of each patient, all of whom must be given, in order."""
        return np.bincount(np.searchsorted(subject_id_S, self.subject_id), minlength=len(subject_id_S))

    def matched(self, other: "HourlyTable", reporter: Reporter) -> NDArray[np.float32]:
        """Return the values at the stay-hours of another table; 0 where there are none, of which it warns."""
        longest = int(max(self.hour.max(initial=0), other.hour.max(initial=0))) + 1
        mine, theirs = (rows.subject_id * longest + rows.hour for rows in (self, other))
        at = np.minimum(np.searchsorted(mine, theirs), len(mine) - 1)
        found = mine[at] == theirs
        if lost := int((~found).sum()):
            reporter.warn(f"{counted(lost, 'stay-hour')} missing from {self.key}: taken as untreated")
        return np.where(found[:, None], np.nan_to_num(self.values[at]), np.float32(0))


def _column_keys(frame: "pd.DataFrame", path: Path, key: str, columns: tuple[str, ...]) -> list[object]:
    """Return what the table calls the columns; all that are missing are told at once."""
    has = f"{path}: it has {shown(map(_told, frame.columns))}"
    flat = key == INTERVENTIONS
    if (levels := frame.columns.nlevels) != (1 if flat else 2):
        names = "one name each" if flat else f"two levels, {shown(LEVELS)}"
        raise refuse(f"the columns of {key} have {counted(levels, 'level')} instead of {names}", has)
    wanted: list[object] = list(columns) if flat else [(name, MEAN) for name in columns]
    absent = [name for name, full in zip(columns, wanted, strict=True) if full not in frame.columns]
    if absent:
        of = "" if flat else f" of '{MEAN}'"
        raise refuse(f"{key} lacks {counted(len(absent), 'column')}{of}: {shown(absent, len(columns))}", has)
    return wanted


def _told(column: object) -> str:
    return ", ".join(map(str, column)) if isinstance(column, tuple) else str(column)


def _numbers(frame: "pd.DataFrame", path: Path, key: str) -> NDArray[np.float32]:
    try:
        return frame.to_numpy(dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise refuse(f"{key} holds values that are not numbers: {error}", path) from error
