"""Read the stays of a file of MIMIC-Extract, as one table."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from costar_cli.datasets.icu.extract.hours import HourlyTable
from costar_cli.datasets.icu.extract.store import (
    CARE,
    DIASTOLIC,
    INTERVENTIONS,
    PATIENTS,
    SIMULATED,
    VITALS,
    opened,
    read_level,
    read_rows,
    refuse,
    require_pytables,
)
from costar_cli.datasets.icu.table import IcuTable
from costar_cli.errors import DataError
from costar_cli.panel.findings import counted, shown
from costar_cli.reporting import Reporter
from simulators.icu import COVARIATES, STATICS

if TYPE_CHECKING:
    import pandas as pd

TRUST = "pandas unpickles the texts in this file, which can run code hidden in it: read only files that you trust"


def read_extract(path: Path, reporter: Reporter, *, factual: bool = False) -> IcuTable:
    """Read the stays of a file, in the order of their patients' identifiers.

    Args:
        path: the HDF5 file.
        reporter: warned that the file must be trusted, and of rows that are left out; told about progress.
        factual: read diastolic blood pressure, ventilation and vasopressors too.

    Raises:
        UsageError: PyTables is missing.
        DataError: the file is not what MIMIC-Extract writes; the message names the table and what is wrong.
    """
    require_pytables()
    with opened(path) as store:
        reporter.warn(TRUST)
        patients = _read_patients(store, path)
        columns = (*COVARIATES, DIASTOLIC) if factual else COVARIATES
        vitals = HourlyTable.read(store, path, VITALS, columns, reporter)
        care = HourlyTable.read(store, path, INTERVENTIONS, CARE, reporter) if factual else None
        simulated = bool(getattr(store.root._v_attrs, SIMULATED, False))
    vitals, unknown = vitals.of_patients(patients.subject_id)
    if unknown:
        reporter.warn(f"{counted(unknown, 'stay-hour')} of patients that {PATIENTS} does not have: left out")
    vitals.check()
    length = vitals.lengths(patients.subject_id)
    if empty := int((length == 0).sum()):
        reporter.warn(f"{counted(empty, 'patient')} without a stay-hour in {VITALS}: left out")
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
