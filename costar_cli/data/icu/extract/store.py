"""The tables of a file, the names that MIMIC-Extract gives them, how to open one, and how to write one."""

import io
import os
import pickle  # noqa: TID251 - the one place: what PyTables unpickles must pass here
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.findings import shown
from costar_cli.errors import DataError, MismatchError, StorageError, UsageError
from costar_cli.reporting import Reporter
from simulators.icu import COVARIATES, IcuCohort
from simulators.icu import INTERVENTIONS as CARE_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

PATIENTS, VITALS, INTERVENTIONS = "/patients", "/vitals_labs_mean", "/interventions"
INDEX: Final = ("subject_id", "hadm_id", "icustay_id", "hours_in")  # `/patients` has the first three
LEVELS: Final = ("LEVEL2", "Aggregation Function")  # of the columns of `/vitals_labs_mean`
MEAN: Final = "mean"  # the one aggregation function there
DIASTOLIC: Final = "diastolic blood pressure"
CARE: Final = ("vent", "vaso")
CUTS_LEVELS: Final = tuple(int(n) for n in version("pandas").split(".")[:2]) < (3, 1)  # of an index, with its rows
SIMULATED: Final = "costar_simulated"  # an attribute of files that costar wrote: no patient in them is real
FORM = "costar reads what MIMIC-Extract writes by default; `costar simulate mimic --export-extract FILE` shows the form"


def require_pytables() -> None:
    """Raise unless PyTables, an optional extra, is installed.

    Raises:
        UsageError: it is not.
    """
    if find_spec("tables") is None:
        raise UsageError(
            "files of MIMIC-Extract need PyTables, which is not installed",
            fix="`pip install '.[mimic]'` in a copy of costar's repository",
        )


def refuse(problem: str, where: object) -> DataError:
    """Return the error of a file that is not what MIMIC-Extract writes."""
    return DataError(problem, where=str(where), fix=FORM)


@contextmanager
def opened(path: Path, *, trust_pickle: bool = False) -> Iterator["pd.HDFStore"]:
    """Open a file to read, without pandas' and PyTables' warnings about old files.

    With `trust_pickle` whatever is pickled in it is made, be it code; otherwise arrays and texts alone.

    Raises:
        DataError: there is no file, it is not HDF5, or tables are missing; or more is pickled than arrays and texts.
    """
    import pandas as pd  # noqa: PLC0415 - heavy, and its HDF5 part is optional

    if not path.is_file():
        problem = "this is not a file but a folder" if path.is_dir() else "file not found"
        raise DataError(problem, where=str(path), fix="give MIMIC-Extract's all_hourly_data.h5")
    with warnings.catch_warnings(), nullcontext() if trust_pickle else arrays_and_texts_only(path):
        warnings.simplefilter("ignore")
        try:
            store = pd.HDFStore(path, mode="r")
        except (OSError, RuntimeError, ValueError) as error:
            raise refuse("the file is not HDF5", path) from error
        with store:
            if missing := [key for key in (PATIENTS, VITALS) if key not in store]:
                has = shown(sorted(store.keys()), 10) or "no tables"
                raise refuse(f"there is no table {shown(missing)}", f"{path}: it has {has}")
            yield store


def read_rows(
    store: "pd.HDFStore", path: Path, key: str, start: int | None = None, stop: int | None = None
) -> "pd.DataFrame":
    """Return rows of a table.

    Raises:
        DataError: it is not there, cannot be read, or is no table.
    """
    import pandas as pd  # noqa: PLC0415

    if key not in store:
        raise refuse(f"there is no table '{key}'", path)
    try:
        if start is not None and CUTS_LEVELS:
            frame = store.select(key).iloc[start:stop]
        else:
            frame = store.select(key, start=start, stop=stop)
    except Exception as error:  # unpickling and PyTables raise anything
        raise refuse(f"{key} cannot be read: {error}", path) from error
    if not isinstance(frame, pd.DataFrame):
        raise refuse(f"{key} holds no table with columns", path)
    return frame


def read_level(frame: "pd.DataFrame", path: Path, key: str, name: str) -> NDArray[np.int64]:
    """Return a level of the index, whole numbers.

    Raises:
        DataError: the index has no such level, or other values.
    """
    names = list(frame.index.names)
    if name not in names:
        wanted = shown(INDEX[:3] if key == PATIENTS else INDEX)
        raise refuse(f"the index of {key} lacks '{name}'", f"{path}: it has {shown(names)} instead of {wanted}")
    values = frame.index.get_level_values(name).to_numpy()
    if not np.issubdtype(values.dtype, np.integer):
        raise refuse(f"'{name}' in the index of {key} is {values.dtype}, not whole numbers", path)
    return np.asarray(values, dtype=np.int64)


ADMITTED: Final = {
    "numpy": {"ndarray", "dtype"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.numeric": {"_frombuffer"},
    "numpy._core.numeric": {"_frombuffer"},
    "pandas.core.indexes.frozen": {"FrozenList"},
    "_codecs": {"encode"},  # how old pickles keep bytes
}
READERS: Final = ("tables.atom.pickle", "tables.attributeset.pickle")


class _Refusing(pickle.Unpickler):
    """Makes what `ADMITTED` names, and lists what else a pickle asks for."""

    def __init__(self, data: bytes, refused: list[str], **options: Any) -> None:  # noqa: ANN401 - as `pickle.loads`
        super().__init__(io.BytesIO(data), **options)
        self._refused = refused

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - a class or a function
        """Return what a pickle asks for by name, if it is admitted."""
        if name in ADMITTED.get(module, ()):
            return super().find_class(module, name)
        self._refused.append(f"{module}.{name}")
        raise pickle.UnpicklingError(f"{module}.{name} is not admitted")


class _PickleModule:
    """The module `pickle` but for `loads`."""

    def __init__(self, refused: list[str]) -> None:
        self._refused = refused

    def loads(self, data: bytes, **options: Any) -> Any:  # noqa: ANN401 - as `pickle.loads`
        """Return arrays and texts."""
        return _Refusing(data, self._refused, **options).load()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - anything of the module
        return getattr(pickle, name)


@contextmanager
def arrays_and_texts_only(path: Path) -> Iterator[None]:
    """Let PyTables unpickle arrays and texts alone; what else the file asks for is not made.

    Raises:
        DataError: it asks for something else.
    """
    refused: list[str] = []
    module = _PickleModule(refused)
    try:
        with patch(READERS[0], module), patch(READERS[1], module):
            yield
    finally:
        if refused:
            problem = f"something other than arrays and texts is pickled in the file: {shown(sorted(set(refused)))}"
            fix = "it can be anyone's code; `--trust-pickle` runs it, if you know who wrote the file"
            raise DataError(problem, where=str(path), fix=fix)


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
            for key, frame in _tables(cohort):
                store.put(key, frame, format="fixed")
                del frame  # one table at a time: beside the file and its image
                task.advance()
            store.root._v_attrs[SIMULATED] = True
            image = store.root._v_file.get_file_image()
        write_bytes(path, image)
    return {"mimic_extract": path}


def _tables(cohort: IcuCohort) -> Iterator[tuple[str, "pd.DataFrame"]]:
    """Yield the tables by their names, one after the other."""
    import pandas as pd  # noqa: PLC0415

    stays = cohort.stays
    index = pd.MultiIndex.from_arrays([stays.subject_id, stays.hadm_id, stays.icustay_id], names=INDEX[:3])
    texts = {"gender": stays.gender.astype(object), "ethnicity": stays.ethnicity.astype(object)}
    yield PATIENTS, pd.DataFrame({**texts, "age": stays.age}, index=index)
    ids = [cohort.subject_id, cohort.hadm_id, cohort.icustay_id, cohort.hours_in.astype(np.int64)]
    hours = pd.MultiIndex.from_arrays(ids, names=INDEX)
    columns = pd.MultiIndex.from_product([[*COVARIATES, DIASTOLIC], [MEAN]], names=LEVELS)
    values = np.empty((len(cohort), len(columns)))
    values[:, :-1], values[:, -1] = cohort.values, cohort.diastolic
    yield VITALS, pd.DataFrame(values, index=hours, columns=columns)
    del values
    given = np.zeros((len(cohort), len(CARE_COLUMNS)), dtype=np.int64)
    for name, series in {"vent": cohort.vent, "vaso": cohort.vaso}.items():
        given[:, CARE_COLUMNS.index(name)] = series
    yield INTERVENTIONS, pd.DataFrame(given, index=hours, columns=pd.Index(CARE_COLUMNS))
