"""The data set survives a file; a file that is not a valid data set is refused, with the name of the group."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from costar_cli.data import Dataset, End, Panel, Part, Queries
from costar_cli.data.store import count_dataset, made_from, read_dataset, with_digest, write_dataset
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor, tumor_truth
from costar_cli.errors import ArtifactError, CostarError, DataError, MismatchError
from costar_cli.files import read_artifact, read_header, write_artifact
from costar_cli.files.spec import KINDS
from costar_cli.reporting import NullReporter
from tests.property.strategies import datasets

TRAIN, TEST = Part("source", "train"), Part("source", "test")


def assert_same_panel(got: Panel, want: Panel) -> None:
    assert_same_fields(got, want)


def assert_same_queries(got: Queries, want: Queries) -> None:
    assert_same_fields(got, want)


def assert_same_fields(got: Panel | Queries, want: Panel | Queries) -> None:
    for field in type(want).__slots__:
        ours, theirs = getattr(got, field), getattr(want, field)
        assert (ours is None) == (theirs is None), field
        if theirs is not None:
            assert ours.dtype == theirs.dtype, field
            assert np.array_equal(ours, theirs), field


def assert_same_dataset(got: Dataset, want: Dataset) -> None:
    assert (got.name, got.schema, got.horizon, got.config) == (want.name, want.schema, want.horizon, want.config)
    assert list(got.panels) == list(want.panels)
    for part, panel in want.panels.items():
        assert_same_panel(got.panels[part], panel)
        assert set(got.queries[part]) == set(want.queries.get(part, {}))
        for name, queries in want.queries.get(part, {}).items():
            assert_same_queries(got.queries[part][name], queries)
        assert set(got.truth[part]) == set(want.truth.get(part, {}))
        for name, values in want.truth.get(part, {}).items():
            assert np.array_equal(got.truth[part][name], values)


def test_labels_and_clusters_survive_a_file_and_find_subjects(tmp_path: Path, tumor_dataset: Dataset):
    panels = {
        part: replace(panel, label=np.array([f"Müller {i}/A" for i in panel.subject_id]), cluster=panel.subject_id // 3)
        for part, panel in tumor_dataset.panels.items()
    }
    named = replace(tumor_dataset, panels=panels)
    write_dataset(tmp_path / "data.h5", named)
    again = read_dataset(tmp_path / "data.h5")
    assert_same_dataset(again, named)
    first = panels[TEST].subject_id[0]
    assert again.find_subject(f"Müller {first}/A") == (TEST, 0)
    with pytest.raises(CostarError, match="no subject Muller"):
        again.find_subject(f"Muller {first}/A")


def test_ends_of_series_are_kept_and_must_be_those_of_the_schema(tumor_dataset: Dataset, tmp_path: Path):
    ends = (End(name="death"), End(name="lost", terminal=False))
    panels = {p: replace(panel, end=np.arange(panel.n_subjects) % 3) for p, panel in tumor_dataset.panels.items()}
    ended = replace(tumor_dataset, schema=tumor_dataset.schema.model_copy(update={"ends": ends}), panels=panels)
    write_dataset(tmp_path / "data.h5", ended)
    again = read_dataset(tmp_path / "data.h5")
    assert again.schema.terminal == {1: "death"}
    for part, panel in panels.items():
        np.testing.assert_array_equal(again.panels[part].end, panel.end)
    with pytest.raises(DataError, match=r"ends for reason 1, the schema names 0"):
        write_dataset(tmp_path / "other.h5", replace(ended, schema=tumor_dataset.schema))


def test_two_subjects_of_one_label_are_refused(tumor_dataset: Dataset):
    panel = tumor_dataset.panel("source", "train")
    twice = replace(panel, label=np.array(["same"] * panel.n_subjects))
    with pytest.raises(DataError, match=r"labels are not unique.*same"):
        replace(tumor_dataset, panels={TRAIN: twice}, queries={}, truth={})


@settings(max_examples=15)
@given(datasets())
def test_written_and_read_data_set_is_the_same(dataset: Dataset):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.h5"
        artifact = write_dataset(path, replace(dataset, fingerprint="abc"))
        again = read_dataset(path)
        assert_same_dataset(again, dataset)
        assert again.digest == artifact.digest
        assert read_header(path).meta["fingerprint"] == "abc"


@pytest.fixture(scope="module")
def tumor_file(tumor_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "data.h5"
    write_dataset(path, tumor_dataset)
    return path


def test_input_files_are_the_parents_of_a_data_set_and_part_of_its_digest(tumor_dataset: Dataset, tmp_path: Path):
    first, second = (
        write_dataset(tmp_path / f"{mark}.h5", replace(tumor_dataset, parents={"sales.csv": mark * 64}))
        for mark in ("a", "b")
    )
    assert read_header(tmp_path / "a.h5").parents == {"sales.csv": "a" * 64}
    assert first.digest != second.digest


def test_a_data_set_is_counted_without_its_series(tumor_dataset: Dataset, tumor_file: Path):
    counts = count_dataset(tumor_file)
    assert (counts.name, counts.kept) == (tumor_dataset.name, None)
    assert [part.part for part in counts.parts] == list(tumor_dataset.panels)
    for part in counts.parts:
        panel = tumor_dataset.panels[part.part]
        assert (part.subjects, part.steps) == (panel.n_subjects, panel.length.sum())
        asked = tumor_dataset.queries.get(part.part, {})
        assert part.queries == {name: len(queries) for name, queries in asked.items()}


def test_digest_follows_the_content(tumor_dataset: Dataset, tumor_file: Path, tmp_path: Path):
    same = write_dataset(tmp_path / "same.h5", tumor_dataset)
    assert same.digest == read_dataset(tumor_file).digest
    assert (tmp_path / "same.h5").read_bytes() == tumor_file.read_bytes()
    other = write_dataset(tmp_path / "other.h5", replace(tumor_dataset, horizon=5))
    assert other.digest != same.digest


def test_the_digest_in_memory_is_that_of_the_file(tumor_dataset: Dataset, tmp_path: Path):
    made = made_from(tumor_dataset, config={"seed": 3}, parents={"table": "a" * 64})
    assert write_dataset(tmp_path / "data.h5", made).digest == made.digest
    again = read_dataset(tmp_path / "data.h5")
    assert (again.digest, again.fingerprint, again.parents) == (made.digest, made.fingerprint, made.parents)
    assert with_digest(again) is again


def test_a_data_set_that_was_changed_is_no_longer_what_it_was_made_as(tumor_dataset: Dataset, tmp_path: Path):
    made = made_from(tumor_dataset, config={"seed": 3})
    changed = replace(made, horizon=5)
    written = write_dataset(tmp_path / "data.h5", changed)
    assert written.meta["fingerprint"] == ""
    assert written.digest == with_digest(changed).digest != made.digest


def test_simulated_data_answer_for_themselves_after_reading(tumor_file: Path):
    dataset = read_dataset(tumor_file)
    for part in (TEST, Part("target", "test")):
        queries = dataset.queries[part]["sequence"]
        values = dataset.schema.treatments.decode(queries.plan)
        truth = tumor_truth(dataset, part, queries.subject, queries.origin, values)
        assert np.allclose(truth, queries.outcomes[..., 0], rtol=1e-5, atol=0)


def test_only_what_is_wanted_is_read(tumor_dataset: Dataset, tumor_file: Path):
    parts = [TEST, TRAIN]
    panels_only = read_dataset(tumor_file, queries=False, truth=False, parts=parts)
    assert list(panels_only.panels) == parts
    for part in parts:
        assert_same_panel(panels_only.panels[part], tumor_dataset.panels[part])
    assert not any(panels_only.queries.values())
    assert not any(panels_only.truth.values())
    assert panels_only.digest == read_dataset(tumor_file).digest
    asked = read_dataset(tumor_file, truth=False, parts=[TEST])
    assert set(asked.queries[TEST]) == {"one_step", "sequence"}


def test_missing_part_names_those_that_exist(tumor_dataset: Dataset, tmp_path: Path):
    source = {part: panel for part, panel in tumor_dataset.panels.items() if part.domain == "source"}
    write_dataset(tmp_path / "data.h5", replace(tumor_dataset, panels=source, queries={}, truth={}))
    with pytest.raises(DataError, match="no target/test subjects") as caught:
        read_dataset(tmp_path / "data.h5", parts=[Part("target", "test")])
    assert caught.value.fix == "it has source/train, source/val, source/test"


def test_existing_file_is_replaced_on_request_only(tumor_dataset: Dataset, tmp_path: Path):
    path = tmp_path / "data.h5"
    first, second = (replace(tumor_dataset, fingerprint=mark) for mark in "12")
    write_dataset(path, first)
    with pytest.raises(MismatchError):
        write_dataset(path, second)
    assert read_header(path).meta["fingerprint"] == "1"
    write_dataset(path, second, overwrite=True)
    assert read_header(path).meta["fingerprint"] == "2"


def test_paper_size_is_small_on_disk(tmp_path: Path):
    dataset = simulate_tumor(TumorConfig(), NullReporter())
    path = tmp_path / "data.h5"
    write_dataset(path, dataset)
    assert path.stat().st_size < 40e6  # 22 MB; random plans take 31 MB
    again = read_dataset(path)
    assert_same_queries(again.queries[TEST]["sequence"], dataset.queries[TEST]["sequence"])


def test_unsound_data_set_is_not_written(tumor_dataset: Dataset, tmp_path: Path):
    panel = tumor_dataset.panels[TRAIN]
    nan = np.where(panel.observed[..., None], np.float32(np.nan), np.float32(0))
    queries = tumor_dataset.queries[TEST]["one_step"]
    unsound = {
        "NaN": replace(tumor_dataset, panels={**tumor_dataset.panels, TRAIN: replace(panel, outcomes=nan)}),
        "origin": replace(tumor_dataset, queries={TEST: {"far": replace(queries, origin=queries.origin + 99)}}),
        "names like": replace(tumor_dataset, queries={TEST: {"a/b": queries}}),
        "one row per subject": replace(tumor_dataset, truth={TEST: {"rho": np.zeros(3)}}),
        "no source/train": replace(tumor_dataset, panels={TEST: tumor_dataset.panels[TEST]}, queries={}, truth={}),
    }
    for message, dataset in unsound.items():
        with pytest.raises(DataError, match=message):
            write_dataset(tmp_path / "data.h5", dataset)
    assert not list(tmp_path.iterdir())


def forged(source: Path, path: Path, arrays: dict[str, np.ndarray | None], meta: dict[str, object]) -> Path:
    """Write an artifact of the same content but for some arrays (None leaves one out) and meta."""
    artifact = read_artifact(source)
    kept = {name: values for name, values in {**artifact.arrays, **arrays}.items() if values is not None}
    write_artifact(path, kind="dataset", arrays=kept, meta={**artifact.meta, **meta})
    return path


def array_forgeries() -> list:
    panel, queries, truth = "source/test/panel", "source/test/queries/one_step", "source/test/truth"
    return [
        (f"{panel}/outcomes", lambda x: None, panel, "outcomes is missing"),
        (f"{panel}/outcomes", lambda x: x.astype(np.float64), panel, "outcomes is 3-d float64, expected 3-d float32"),
        (f"{panel}/outcomes", lambda x: x[..., 0], panel, "outcomes is 2-d"),
        (f"{panel}/outcomes", lambda x: x[:, :-1], panel, "disagree in shape"),
        (f"{panel}/statics", lambda x: np.repeat(x, 3, axis=1), panel, "statics has 3 columns, the schema has 1"),
        (f"{panel}/length", lambda x: x * 0, panel, "lengths must be between 1 and 20"),
        (f"{panel}/length", lambda x: x * 0 + 2, panel, "padded step"),
        (f"{panel}/length", lambda x: x[1:], panel, "disagree in shape"),
        (f"{panel}/treatments", lambda x: x * 0 + 4, panel, "classes beyond the 4"),
        (f"{panel}/treatments", lambda x: x * 0 + 255, panel, "treatments that the schema does not encode"),
        (f"{panel}/subject_id", lambda x: x * 0 + x[0], "subject_id", "not unique"),
        (f"{panel}/subject_id", lambda x: x - x, "subject_id", "not unique"),
        (f"{queries}/plan", lambda x: x * 0 + 9, queries, "classes beyond the 4"),
        (f"{queries}/plan", lambda x: x * 0 + 255, queries, "treatments that the schema does not encode"),
        (f"{queries}/plan", lambda x: np.repeat(x, 2, axis=1), queries, "expected"),
        (f"{queries}/plan", lambda x: x[1:], queries, "disagree in shape"),
        (f"{queries}/scored", lambda x: None, queries, "scored is missing"),
        (f"{queries}/outcomes", lambda x: None, queries, "outcomes is missing"),
        (f"{queries}/subject", lambda x: x - 1, queries, "about rows outside"),
        (f"{queries}/subject", lambda x: x + 1, queries, "about rows outside"),
        (f"{queries}/origin", lambda x: x + np.int16(20), queries, "origin outside"),
        (f"{queries}/origin", lambda x: x - np.int16(1), queries, "origin outside"),
        (f"{truth}/rho", lambda x: None, truth, "rho is missing"),
        (f"{truth}/rho", lambda x: x[1:], truth, "rho has 7 rows for 8 subjects"),
        (f"{truth}/rho", lambda x: x[0], truth, "rho has 0 rows for 8 subjects"),
        (f"{truth}/extra", lambda x: np.zeros(8), truth, "extra is unexpected"),
    ]


@pytest.mark.parametrize(("name", "forge", "group", "message"), array_forgeries())
def test_file_with_unsound_arrays_is_refused_with_its_group(tumor_file, tmp_path, name, forge, group, message):
    original = read_artifact(tumor_file, only=[name]).arrays.get(name)
    path = forged(tumor_file, tmp_path / "forged.h5", {name: forge(original)}, {})
    with pytest.raises(ArtifactError) as caught:
        read_dataset(path)
    error = caught.value
    assert str(path) in error.where
    assert group in error.where
    assert message in "; ".join([error.problem, *error.details])
    assert "again" in error.fix


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("source/test/panel/outcomes", "source/test/panel"),
        ("target/train/panel/statics", "target/train/panel"),
        ("source/test/queries/one_step/outcomes", "source/test/queries/one_step, query 0"),
    ],
)
def test_nan_in_a_file_is_a_data_error(tumor_file: Path, tmp_path: Path, name: str, place: str):
    values = read_artifact(tumor_file, only=[name]).arrays[name].copy()
    values[0] = np.where(values[0] == 0, values[0], np.nan)
    path = forged(tumor_file, tmp_path / "forged.h5", {name: values}, {})
    with pytest.raises(DataError, match="NaN or infinite") as caught:
        read_dataset(path)
    assert f"{path}, {place}" in f"{caught.value.where}{caught.value.details}"


GOOD = {"queries": [], "truth": []}


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"name": None}, "lacks its name"),
        ({"config": None}, "lacks its name or config"),
        ({"horizon": 0}, "from 1 to 10,000, not 0"),
        ({"horizon": 10**9}, "from 1 to 10,000, not 1000000000"),
        ({"horizon": None}, "whole number"),
        ({"schema": {}}, "schema of the data set is not valid"),
        ({"schema": None}, "schema of the data set is not valid"),
        ({"parts": {}}, "does not list its splits"),
        ({"parts": None}, "does not list its splits"),
        ({"parts": {"source/trial": GOOD}}, "unknown split 'source/trial'"),
        ({"parts": {"source/train": {"queries": []}}}, "does not list its queries and truth"),
        ({"parts": {"source/train": []}}, "does not list its queries and truth"),
        ({"parts": {"source/train": {"queries": ["../x"], "truth": []}}}, "invalid names"),
        ({"parts": {"source/train": {"queries": "one_step", "truth": []}}}, "invalid names"),
        ({"parts": {"source/train": {"queries": ["more"], "truth": []}}}, "arrays of source/train/queries/more"),
    ],
)
def test_file_with_unsound_meta_is_refused(tumor_file: Path, tmp_path: Path, meta: dict, message: str):
    path = forged(tumor_file, tmp_path / "forged.h5", {}, meta)
    with pytest.raises(ArtifactError, match=message) as caught:
        read_dataset(path)
    assert str(path) in caught.value.where


def test_foreign_and_missing_files_are_refused(tmp_path: Path):
    text = tmp_path / "data.csv"
    text.write_text("subject,step\n1,0\n")
    state = tmp_path / "state.h5"
    write_artifact(state, kind="run-state", arrays={"x": np.zeros(3)}, meta=dict.fromkeys(KINDS["run-state"].meta))
    for path in (text, state, tmp_path / "none.h5"):
        with pytest.raises(CostarError) as caught:
            read_dataset(path)
        assert isinstance(caught.value, ArtifactError)
        assert caught.value.fix
