"""Read the stays of a file of MIMIC-Extract as one table.

Hourly tables are read in slices: memory holds the columns that are needed, not all 104.
"""

import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.findings import counted, shown
from costar_cli.data.icu.extract.store import (
    CARE,
    CUTS_LEVELS,
    DIASTOLIC,
    INTERVENTIONS,
    LEVELS,
    MEAN,
    PATIENTS,
    SIMULATED,
    VITALS,
    opened,
    read_level,
    read_rows,
    refuse,
    require_pytables,
)
from costar_cli.data.icu.table import IcuTable
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import CostarError, DataError
from costar_cli.reporting import NullReporter, Reporter
from simulators.icu import COVARIATES, STATICS

if TYPE_CHECKING:
    import pandas as pd

Ints = NDArray[np.int64]

SLICE_ROWS: Final = 10**9 if CUTS_LEVELS else 100_000  # stay-hours read at once; such pandas reads all each time
LEAST_S, BYTES_PER_S = 60.0, 10e6  # of the process that reads a file first: the time that it has
LEAST_BYTES: Final = 3_000_000_000  # of addresses that it has, beside twice the file's


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
        frame = read_rows(store, path, key, 0, 1)
        present: list[object] = list(frame.columns)
        called = (", ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in present)
        has = f"{path}: it has {shown(called)}"
        flat = key == INTERVENTIONS
        if (levels := frame.columns.nlevels) != (1 if flat else 2):
            names = "one name each" if flat else f"two levels, {shown(LEVELS)}"
            raise refuse(f"the columns of {key} have {counted(levels, 'level')} instead of {names}", has)
        wanted: list[object] = list(columns) if flat else [(name, MEAN) for name in columns]
        if absent := [name for name, full in zip(columns, wanted, strict=True) if full not in frame.columns]:
            of = "" if flat else f" of '{MEAN}'"
            raise refuse(f"{key} lacks {counted(len(absent), 'column')}{of}: {shown(absent, len(columns))}", has)
        with reporter.task(f"read {key}", unit="stay-hour") as task:
            while not pieces or len(pieces[-1][0]) == slice_rows:
                start = len(pieces) * slice_rows
                frame = read_rows(store, path, key, start, start + slice_rows)
                subject_id, hour = (read_level(frame, path, key, name) for name in ("subject_id", "hours_in"))
                try:
                    values = frame[wanted].to_numpy(dtype=np.float32)
                except (TypeError, ValueError) as error:
                    raise refuse(f"{key} holds values that are not numbers: {error}", path) from error
                pieces.append((subject_id, hour, values))
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
            reporter.say(Diagnostic.of("hours-without-care", hours=counted(lost, "stay-hour"), table=self.key))
        return np.where(found[:, None], np.nan_to_num(self.values[at]), np.float32(0))


def check_extract(path: Path, *, factual: bool) -> None:
    """Have another process read a file first: HDF5 has no protection from crafted ones.

    Raises:
        DataError: that process ended, or took too much memory or time.
    """
    from costar_cli.files.sandbox import tried_by  # noqa: PLC0415 - brings h5py

    if not path.is_file():
        return  # as `read_extract` says
    limit_s = LEAST_S + path.stat().st_size / BYTES_PER_S
    if (said := tried_by(__name__, str(path), "factual" if factual else "", limit_s=limit_s)) is not None:
        raise refuse("the file is damaged, and cannot be read safely", f"{path}: {said}")


def main() -> int:
    """Read a file; what costar finds wrong with it is told by whoever reads it next, what libraries find at once."""
    from costar_cli.files.sandbox import limit_memory  # noqa: PLC0415 - brings h5py

    path, factual = Path(sys.argv[2]), sys.argv[3] == "factual"
    limit_memory(LEAST_BYTES + 2 * path.stat().st_size)
    try:
        with suppress(CostarError):
            read_extract(path, NullReporter(), factual=factual)
    except Exception as error:
        sys.stdout.write(f"{type(error).__name__}: {error}"[:300])
        return 1
    return 0


def read_checked(path: Path, reporter: Reporter, *, factual: bool, trust_pickle: bool) -> IcuTable:
    """Read the stays of a file as `read_extract` does, after another process has, unless the file is trusted."""
    if not trust_pickle:
        check_extract(path, factual=factual)
    return read_extract(path, reporter, factual=factual, trust_pickle=trust_pickle)


def read_extract(path: Path, reporter: Reporter, *, factual: bool = False, trust_pickle: bool = False) -> IcuTable:
    """Read the stays of a file, in the order of their patients' identifiers.

    With `factual`, diastolic blood pressure, ventilation and vasopressors are read, too; `trust_pickle` as in `opened`.

    Raises:
        UsageError: PyTables is missing.
        DataError: the file is not what MIMIC-Extract writes; the message names the table and what is wrong.
    """
    require_pytables()
    if trust_pickle:
        reporter.say(Diagnostic.of("pickle-trusted"))
    with opened(path, trust_pickle=trust_pickle) as store:
        patients = _read_patients(store, path)
        columns = (*COVARIATES, DIASTOLIC) if factual else COVARIATES
        vitals = HourlyTable.read(store, path, VITALS, columns, reporter)
        care = HourlyTable.read(store, path, INTERVENTIONS, CARE, reporter) if factual else None
        simulated = bool(getattr(store.root._v_attrs, SIMULATED, False))
    vitals, unknown = vitals.of_patients(patients.subject_id)
    if unknown:
        reporter.say(Diagnostic.of("hours-without-patient", hours=counted(unknown, "stay-hour"), table=PATIENTS))
    vitals.check()
    length = vitals.lengths(patients.subject_id)
    if empty := int((length == 0).sum()):
        reporter.say(Diagnostic.of("patients-without-hours", patients=counted(empty, "patient"), table=VITALS))
    rows = np.flatnonzero(length)
    table = replace(
        patients,
        **{name: getattr(patients, name)[rows] for name in ("subject_id", "gender", "ethnicity", "age")},
        length=length[rows],
        values=np.ascontiguousarray(vitals.values[:, : len(COVARIATES)]),
        embedded=simulated,
    )
    if care is None:
        return table
    given = care.matched(vitals, reporter)
    return replace(table, diastolic=vitals.values[:, -1].copy(), vent=given[:, 0] > 0, vaso=given[:, 1] > 0)


def _read_patients(store: "pd.HDFStore", path: Path) -> IcuTable:
    """Return the statics of every patient, still without stay-hours."""
    frame = read_rows(store, path, PATIENTS)
    if absent := [name for name in STATICS if name not in frame.columns]:
        raise refuse(f"{PATIENTS} lacks {shown(absent)}", f"{path}: it has {shown(frame.columns)}")
    subject_id = read_level(frame, path, PATIENTS, "subject_id")
    if not len(subject_id):
        raise refuse(f"{PATIENTS} has no rows", path)
    order = np.argsort(subject_id, kind="stable")
    subject_id = subject_id[order]
    again = np.unique(subject_id[1:][np.diff(subject_id) == 0]).tolist()
    if again:
        raise DataError(
            f"{counted(len(again), 'patient')} with more than one stay in {PATIENTS}: {shown(again)}",
            where=str(path),
            fix="extract the first ICU stay of each patient, as MIMIC-Extract does by default",
        )
    try:
        age = frame["age"].to_numpy(dtype=np.float64)[order]
    except (TypeError, ValueError) as error:
        raise refuse(f"ages in {PATIENTS} are not numbers: {error}", path) from error
    texts = {name: frame[name].astype(object).where(frame[name].notna(), "") for name in ("gender", "ethnicity")}
    labels = {name: text.to_numpy().astype(np.str_)[order] for name, text in texts.items()}
    return IcuTable(
        subject_id=subject_id,
        gender=labels["gender"],
        ethnicity=labels["ethnicity"],
        age=age,
        length=np.zeros(len(age), dtype=np.int64),
        values=np.empty((0, len(COVARIATES)), dtype=np.float32),
    )
