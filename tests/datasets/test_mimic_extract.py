"""Files of MIMIC-Extract: the embedded cohort written and read back, and files that are something else."""

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from costar_cli.data.icu.extract import check_extract, check_extract_path, read_extract, write_extract
from costar_cli.data.icu.extract.read import HourlyTable
from costar_cli.data.icu.table import IcuTable
from costar_cli.errors import DataError, MismatchError, StorageError, UsageError
from costar_cli.reporting import NullReporter
from simulators.icu import COVARIATES, IcuCohort, simulate_icu
from tests.datasets.mimic_worlds import simulate

VITALS, PATIENTS, CARE = "/vitals_labs_mean", "/patients", "/interventions"


@pytest.fixture(scope="module")
def cohort() -> IcuCohort:
    return simulate_icu(60, seed=5)


@pytest.fixture(scope="module")
def written(cohort: IcuCohort, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("extract") / "all_hourly_data.h5"
    write_extract(path, cohort, NullReporter())
    return path


@pytest.fixture
def change(written: Path, tmp_path: Path) -> Callable[..., Path]:
    """Rewrite the file with other tables; None leaves one out."""

    def rewrite(**changes: Callable[[pd.DataFrame], pd.DataFrame] | None) -> Path:
        path = tmp_path / "changed.h5"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pd.HDFStore(written, "r") as old, pd.HDFStore(path, "w") as new:
                for key in (PATIENTS, VITALS, CARE):
                    how = changes.get(key.removeprefix("/"), lambda frame: frame)
                    if how is not None:
                        new.put(key, how(old[key]))
        return path

    return rewrite


def same(one: IcuTable, other: IcuTable) -> None:
    for field in fields(IcuTable):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(mine, np.ndarray) and mine.dtype.kind == "f":
            assert np.array_equal(mine, theirs, equal_nan=True), field.name
        else:
            assert np.array_equal(mine, theirs), field.name


def test_the_exported_cohort_reads_back_to_the_same_table(cohort: IcuCohort, written: Path):
    reporter = NullReporter()
    same(read_extract(written, reporter, factual=True), IcuTable.of_cohort(cohort))
    assert reporter.warnings == []


def test_the_exported_cohort_gives_the_same_data_set(tmp_path: Path):
    from costar_cli.data.icu.table import embedded_cohort
    from tests.datasets.mimic_worlds import small_config

    write_extract(tmp_path / "e.h5", embedded_cohort(small_config(), NullReporter()), NullReporter())
    direct, through = simulate(), simulate(read_extract(tmp_path / "e.h5", NullReporter()))
    assert through.config == direct.config
    for part, panel in direct.panels.items():
        for name in ("covariates", "treatments", "outcomes", "statics", "length", "subject_id"):
            assert np.array_equal(getattr(panel, name), getattr(through.panels[part], name)), name
        for name, queries in direct.queries.get(part, {}).items():
            assert np.array_equal(queries.outcomes, through.queries[part][name].outcomes)


def test_the_file_has_the_form_of_mimic_extract(written: Path, cohort: IcuCohort):
    """Spec ICU-1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pd.HDFStore(written, "r") as store:
            assert set(store.keys()) == {PATIENTS, VITALS, CARE}
            patients, vitals, care = store[PATIENTS], store[VITALS], store[CARE]
    assert patients.index.names == ["subject_id", "hadm_id", "icustay_id"]
    assert vitals.index.names == care.index.names == ["subject_id", "hadm_id", "icustay_id", "hours_in"]
    assert vitals.columns.names == ["LEVEL2", "Aggregation Function"]
    assert [name for name, _ in vitals.columns] == [*COVARIATES, "diastolic blood pressure"]
    assert {function for _, function in vitals.columns} == {"mean"}
    assert len(care.columns) == 14
    assert len(vitals) == len(care) == len(cohort)
    assert len(patients) == len(cohort.stays)


def test_rows_may_come_in_any_order_and_other_columns_are_ignored(cohort: IcuCohort, change: Callable[..., Path]):
    def mix(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.sample(frac=1.0, random_state=1)

    def widen(frame: pd.DataFrame) -> pd.DataFrame:
        return mix(frame.assign(insurance="Medicare", los=3.0))

    path = change(patients=widen, vitals_labs_mean=mix, interventions=mix)
    same(read_extract(path, NullReporter(), factual=True), replace(IcuTable.of_cohort(cohort), embedded=False))


@pytest.mark.parametrize("slice_rows", [97, 1000, 10_000])
def test_slices_change_nothing(written: Path, slice_rows: int):
    from costar_cli.data.icu.extract.store import opened

    with opened(written) as store:
        whole, sliced = (
            HourlyTable.read(store, written, VITALS, COVARIATES[:2], NullReporter(), slice_rows=rows)
            for rows in (10**6, slice_rows)
        )
        edge = HourlyTable.read(store, written, VITALS, COVARIATES[:2], NullReporter(), slice_rows=len(whole.hour))
    for name in ("subject_id", "hour", "values"):
        assert np.array_equal(getattr(whole, name), getattr(sliced, name), equal_nan=name == "values")
        assert np.array_equal(getattr(whole, name), getattr(edge, name), equal_nan=name == "values")


def test_a_simulated_file_says_so_and_a_rewritten_one_counts_as_real(written: Path, change: Callable[..., Path]):
    assert read_extract(written, NullReporter()).embedded
    assert not read_extract(change(), NullReporter()).embedded


def test_stay_hours_and_patients_without_each_other_are_left_out_and_told(
    cohort: IcuCohort, change: Callable[..., Path]
):
    first, last = cohort.stays.subject_id[[0, -1]]
    path = change(
        patients=lambda f: f[f.index.get_level_values("subject_id") != first],
        vitals_labs_mean=lambda f: f[f.index.get_level_values("subject_id") != last],
        interventions=lambda f: f[f.index.get_level_values("hours_in") > 0],
    )
    reporter = NullReporter()
    table = read_extract(path, reporter, factual=True)
    assert table.subject_id.tolist() == cohort.stays.subject_id[1:-1].tolist()
    assert len(table.values) == table.length.sum() == cohort.stays.length[1:-1].sum()
    starts = np.cumsum(table.length) - table.length
    assert not table.vent[starts].any()
    told = reporter.warnings
    assert f"{cohort.stays.length[0]} stay-hours of patients that /patients does not have" in told[0]
    assert "1 patient without a stay-hour" in told[1]
    assert "58 stay-hours missing from /interventions" in told[2]


def flattened(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.set_axis([f"{name}_mean" for name, _ in frame.columns], axis=1)


def suffixed(frame: pd.DataFrame) -> pd.DataFrame:
    columns = [(f"{name}_mean", function) for name, function in frame.columns]
    return frame.set_axis(pd.MultiIndex.from_tuples(columns, names=frame.columns.names), axis=1)


def relabelled(function: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.rename(columns={"mean": function}, level=1)


def renamed(*names: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.rename_axis(index=list(names))


def twice(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([frame, frame.iloc[:1]])


def skipping(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame.index.get_level_values("hours_in") != 3]


def infinite(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.copy()
    frame.iloc[2, 5] = np.inf
    return frame


STAY = ["subject_id", "hadm_id", "icustay_id"]


def dropped(*names: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.drop(columns=list(names), level=0 if frame.columns.nlevels == 2 else None)


def unnamed(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.reset_index(drop=True)


def empty(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.iloc[:0]


def worded(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.iloc[:5].map(lambda _: "high")


def one_column(frame: pd.DataFrame) -> "pd.Series[float]":
    return frame.iloc[:, 0]


def old(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(age="old")


@pytest.mark.parametrize(
    ("key", "made", "problem", "where"),
    [
        (PATIENTS, None, "there is no table '/patients'", "it has '/interventions', '/vitals_labs_mean'"),
        (VITALS, None, "there is no table '/vitals_labs_mean'", "it has"),
        (CARE, None, "there is no table '/interventions'", ""),
        (VITALS, flattened, "have 1 level instead of two levels, 'LEVEL2'", "'heart rate_mean'"),
        (VITALS, suffixed, "lacks 26 columns of 'mean': 'heart rate', 'red blood", "'heart rate_mean, mean'"),
        (VITALS, relabelled("count"), "lacks 26 columns of 'mean'", "'heart rate, count'"),
        (VITALS, dropped("sodium"), "lacks 1 column of 'mean': 'sodium'", "it has"),
        (VITALS, renamed(*STAY, "hour"), "the index of /vitals_labs_mean lacks 'hours_in'", "it has 'subject_id'"),
        (VITALS, unnamed, "lacks 'subject_id'", "it has 'None'"),
        (VITALS, empty, "/vitals_labs_mean has no rows", ""),
        (VITALS, twice, "does not have one row per hour, 1 time", "patient 1 has hour 0 instead of 1"),
        (VITALS, skipping, "does not have one row per hour, 60 times", "patient 1 has hour 4 instead of 3"),
        (VITALS, infinite, "infinite values of 'glucose'", ""),
        (VITALS, worded, "holds values that are not numbers", ""),
        (VITALS, one_column, "holds no table with columns", ""),
        (PATIENTS, renamed("patient", *STAY[1:]), "the index of /patients lacks 'subject_id'", "it has 'patient'"),
        (PATIENTS, dropped("age", "gender"), "/patients lacks 'gender', 'age'", "it has 'ethnicity'"),
        (PATIENTS, twice, "1 patient with more than one stay in /patients: '1'", ""),
        (PATIENTS, old, "ages in /patients are not numbers", ""),
        (PATIENTS, empty, "/patients has no rows", ""),
        (CARE, dropped("vaso"), "/interventions lacks 1 column: 'vaso'", "it has 'vent'"),
    ],
)
def test_other_files_are_one_clear_error(
    change: Callable[..., Path], key: str, made: Callable[..., pd.DataFrame] | None, problem: str, where: str
):
    path = change(**{key.removeprefix("/"): made})
    with pytest.raises(DataError) as caught:
        read_extract(path, NullReporter(), factual=True)
    assert problem in caught.value.problem
    assert (caught.value.where or "").startswith(str(path))
    assert where in (caught.value.where or "")
    assert caught.value.fix


class Code:
    """Something that leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.mark),)


def in_texts(store: pd.HDFStore, code: Code) -> None:
    frame = store[PATIENTS]
    store.put(PATIENTS, frame.assign(gender=np.array([code] * len(frame), dtype=object)))


def in_an_attribute(store: pd.HDFStore, code: Code) -> None:
    store.get_node(VITALS)._v_attrs["axis1_variety"] = code


@pytest.mark.parametrize("hide", [in_texts, in_an_attribute])
def test_code_that_is_pickled_in_a_file_is_not_run_unless_asked_to(change: Callable[..., Path], tmp_path: Path, hide):
    path, mark = change(), tmp_path / "mark"
    with warnings.catch_warnings(), pd.HDFStore(path, "a") as store:
        warnings.simplefilter("ignore")
        hide(store, Code(mark))
    with suppress(OSError):
        mark.rmdir()
    with pytest.raises(DataError, match=r"other than arrays and texts is pickled in the file: '.*mkdir'") as caught:
        read_extract(path, NullReporter())
    assert "--trust-pickle" in (caught.value.fix or "")
    assert not mark.exists()
    reporter = NullReporter()
    with suppress(DataError):
        read_extract(path, reporter, trust_pickle=True)
    assert mark.exists()
    assert [warning.code for warning in reporter.diagnostics] == ["pickle-trusted"]


def test_a_file_that_ends_the_process_that_reads_it_is_refused(written: Path, tmp_path: Path):
    crafted = tmp_path / "crafted.h5"
    crafted.write_bytes(written.read_bytes().replace(b"vitals_labs_mean", b"vitals_\xf0abs_mean", 1))
    with pytest.raises(DataError, match="cannot be read safely"):
        check_extract(crafted, factual=True)


def test_interventions_are_not_needed_for_simulated_outcomes(change: Callable[..., Path]):
    assert read_extract(change(interventions=None), NullReporter()).vent is None


def test_files_that_are_no_hdf5_or_not_there_say_so(tmp_path: Path):
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    for path, problem in ((text, "the file is not HDF5"), (tmp_path / "none.h5", "file not found")):
        with pytest.raises(DataError, match=problem):
            read_extract(path, NullReporter())


def test_without_pytables_the_extra_is_named(written: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("costar_cli.data.icu.extract.store.find_spec", lambda name: None)
    for attempt in (
        lambda: read_extract(written, NullReporter()),
        lambda: check_extract_path(written.with_name("new.h5"), overwrite=False),
    ):
        with pytest.raises(UsageError, match="need PyTables") as caught:
            attempt()
        assert caught.value.fix == "`pip install '.[mimic]'` in a copy of costar's repository"


def test_exports_replace_nothing_unasked_and_leave_nothing_behind(
    cohort: IcuCohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "e.h5"
    path.write_text("mine")
    with pytest.raises(MismatchError, match="the file exists"):
        check_extract_path(path, overwrite=False)
    check_extract_path(path, overwrite=True)
    with pytest.raises(StorageError, match="folder does not exist"):
        check_extract_path(tmp_path / "no" / "e.h5", overwrite=True)

    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(StorageError, match="the disk is full"):
            write_extract(path, cohort, NullReporter())
    assert path.read_text() == "mine"
    write_extract(path, cohort, NullReporter())
    assert [p.name for p in tmp_path.iterdir()] == ["e.h5"]
    assert len(read_extract(path, NullReporter())) == 60
