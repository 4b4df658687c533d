"""Write the embedded cohort as MIMIC-Extract would have: same tables, levels, names and types."""

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from costar_cli.data.icu.extract.store import (
    DIASTOLIC,
    INDEX,
    INTERVENTIONS,
    LEVELS,
    MEAN,
    PATIENTS,
    SIMULATED,
    VITALS,
    require_pytables,
)
from costar_cli.errors import MismatchError, StorageError
from costar_cli.reporting import Reporter
from simulators.icu import COVARIATES, IcuCohort
from simulators.icu import INTERVENTIONS as CARE_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

# HDF5 neither says what a full disk is nor leaves the old file alone: it makes the file in memory, under a name where
# anybody may write.
IN_MEMORY: Final[dict[str, Any]] = {
    "driver": "H5FD_CORE",
    "driver_core_backing_store": 0,
    "driver_core_increment": 2**24,
}


def check_extract_path(path: Path, *, overwrite: bool) -> None:
    """Raise where the file cannot or must not be written.

    Raises:
        UsageError: PyTables is missing.
        MismatchError: the file exists and `overwrite` is false.
        StorageError: its folder does not exist.
    """
    require_pytables()
    if not path.parent.is_dir():
        raise StorageError("the folder does not exist", where=str(path.parent), fix=f"`mkdir -p {path.parent}`")
    if path.exists() and not overwrite:
        raise MismatchError("the file exists", where=str(path), fix="add --overwrite to replace it")


def write_extract(path: Path, cohort: IcuCohort, reporter: Reporter) -> dict[str, Path]:
    """Write a cohort with the columns that it has; the file is complete or not there, and says that it is simulated.

    Returns:
        The file by its role.

    Raises:
        UsageError: PyTables is missing.
        StorageError: the file cannot be written.
    """
    import pandas as pd  # noqa: PLC0415 - heavy, and its HDF5 part is optional

    from costar_cli.files import write_bytes  # noqa: PLC0415 - h5py

    require_pytables()
    with (
        warnings.catch_warnings(),
        reporter.task("write MIMIC-Extract tables", total=3, unit="table") as task,
    ):
        warnings.simplefilter("ignore")  # PyTables warns of texts, which it pickles
        with pd.HDFStore(os.devnull, mode="w", **IN_MEMORY) as store:
            for key, make in ((PATIENTS, _patients), (VITALS, _vitals), (INTERVENTIONS, _interventions)):
                store.put(key, make(cohort), format="fixed")
                task.advance()
            store.root._v_attrs[SIMULATED] = True
            image = store.root._v_file.get_file_image()
        write_bytes(path, image)
    return {"mimic_extract": path}


def _patients(cohort: IcuCohort) -> "pd.DataFrame":
    import pandas as pd  # noqa: PLC0415

    stays = cohort.stays
    index = pd.MultiIndex.from_arrays([stays.subject_id, stays.hadm_id, stays.icustay_id], names=INDEX[:3])
    texts = {"gender": stays.gender.astype(object), "ethnicity": stays.ethnicity.astype(object)}
    return pd.DataFrame({**texts, "age": stays.age}, index=index)


def _vitals(cohort: IcuCohort) -> "pd.DataFrame":
    import pandas as pd  # noqa: PLC0415

    columns = pd.MultiIndex.from_product([[*COVARIATES, DIASTOLIC], [MEAN]], names=LEVELS)
    values = np.empty((len(cohort), len(columns)))
    values[:, :-1], values[:, -1] = cohort.values, cohort.diastolic
    return pd.DataFrame(values, index=_hours(cohort), columns=columns)


def _interventions(cohort: IcuCohort) -> "pd.DataFrame":
    import pandas as pd  # noqa: PLC0415

    given = np.zeros((len(cohort), len(CARE_COLUMNS)), dtype=np.int64)
    for name, series in {"vent": cohort.vent, "vaso": cohort.vaso}.items():
        given[:, CARE_COLUMNS.index(name)] = series
    return pd.DataFrame(given, index=_hours(cohort), columns=pd.Index(CARE_COLUMNS))


def _hours(cohort: IcuCohort) -> "pd.MultiIndex":
    import pandas as pd  # noqa: PLC0415

    ids = [cohort.subject_id, cohort.hadm_id, cohort.icustay_id, cohort.hours_in.astype(np.int64)]
    return pd.MultiIndex.from_arrays(ids, names=INDEX)
