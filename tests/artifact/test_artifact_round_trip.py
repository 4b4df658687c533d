import json
import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import h5py
import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.errors import ArtifactError
from costar_cli.files import describe, read_artifact, read_header, verify_artifact, write_artifact
from costar_cli.files.write import CHUNK_BYTES, chunk_shape
from tests.artifact.crafting import META, sample_arrays, write

numbers = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
)
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=7)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
text_arrays = st.lists(texts, max_size=6).map(lambda items: np.array(items, dtype="U"))
any_arrays = st.one_of(numbers.flatmap(lambda dtype: hnp.arrays(dtype, shapes)), text_arrays)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.from_regex(r"\A[a-z]{1,3}/[a-zA-Z0-9_.-]{0,5}x\Z"), any_arrays, max_size=4), json_values)
def test_any_content_reads_back_equal(tmp_path_factory, arrays, value):
    arrays = {name.replace("/", "/v"): array for name, array in arrays.items()}
    path = tmp_path_factory.mktemp("any") / "a.h5"
    written = write(path, arrays, meta={"value": value})
    read = read_artifact(path)
    assert read.meta["value"] == value
    assert read.digest == written.digest == verify_artifact(path).digest
    assert set(read.arrays) == set(arrays)
    for name, array in arrays.items():
        assert read.arrays[name].shape == array.shape
        np.testing.assert_array_equal(read.arrays[name], array)
        if array.dtype.kind != "U":
            assert read.arrays[name].dtype == array.dtype.newbyteorder("=")


@pytest.mark.parametrize("shape", [(70_000,), (3, 70_000), (2, 3, 90_000), (90_000, 1, 6), (513, 513), (5, 0, 9)])
@pytest.mark.parametrize("dtype", ["<f4", "u1", "<f8", "S3"])
def test_large_arrays_are_cut_into_runs_and_read_back_equal(tmp_path, shape, dtype):
    rng = np.random.default_rng(0)
    array = rng.integers(48, 58, (*shape, np.dtype(dtype).itemsize), dtype=np.uint8).view(dtype).reshape(shape)
    array = array.astype("U3") if dtype == "S3" else np.nan_to_num(array)
    write(tmp_path / "a.h5", {"x": array})
    np.testing.assert_array_equal(read_artifact(tmp_path / "a.h5").arrays["x"], array)
    chunk = chunk_shape(shape, np.dtype(dtype).itemsize)
    assert np.prod(chunk, dtype=np.int64) * np.dtype(dtype).itemsize <= CHUNK_BYTES


def test_views_and_strided_arrays_are_stored_by_value(tmp_path):
    base = np.arange(24.0).reshape(4, 6)
    arrays = {"t": base.T, "step": base[:, ::2], "back": base[::-1], "big": base.astype(">f8")}
    write(tmp_path / "a.h5", arrays)
    for name, array in read_artifact(tmp_path / "a.h5").arrays.items():
        np.testing.assert_array_equal(array, arrays[name])


def test_arrays_read_back_can_be_written_to(tmp_path):
    write(tmp_path / "a.h5", sample_arrays())
    for array in read_artifact(tmp_path / "a.h5").arrays.values():
        assert array.flags.writeable
        assert array.flags.c_contiguous


def test_only_reads_the_arrays_below_the_prefixes(tmp_path):
    write(tmp_path / "a.h5", sample_arrays())
    assert set(read_artifact(tmp_path / "a.h5", only=["source/train", "sigma"]).arrays) == {
        "source/train/outcomes",
        "source/train/length",
        "source/train/covariates",
        "sigma",
    }
    assert set(read_artifact(tmp_path / "a.h5", only=["source/tra"]).arrays) == set()
    assert set(read_artifact(tmp_path / "a.h5", only=[]).arrays) == set()


def test_header_has_everything_but_the_arrays(tmp_path):
    written = write(tmp_path / "a.h5", sample_arrays(), parents={"dataset": "d" * 64})
    header = read_header(tmp_path / "a.h5")
    assert dict(header.arrays) == {}
    assert (header.kind, header.meta, header.parents) == ("run-state", META, {"dataset": "d" * 64})
    assert (header.digest, header.schema_version, header.versions) == (written.digest, "1.0", written.versions)
    assert {"costar", "h5py", "numpy", "torch", "scikit-learn", "scipy"} <= set(header.versions)


def test_a_header_that_is_read_again_is_the_files_of_now_and_the_callers_alone(tmp_path):
    path, settle = tmp_path / "a.h5", lambda: time.sleep(0.15)  # after it, what was read is kept
    write(path, sample_arrays(), meta={"n": 1})
    settle()
    for _ in range(3):
        header = read_header(path)
        assert header.meta == META | {"n": 1}
        header.meta["n"] = 0
    write(tmp_path / "b.h5", sample_arrays(), meta={"n": 2})  # as large
    (tmp_path / "b.h5").replace(path)
    settle()
    assert [read_header(path).meta["n"] for _ in range(3)] == [2, 2, 2]
    with path.open("r+b") as file:  # in place: the same inode
        file.seek(30)
        file.write(b"!")
    settle()
    with pytest.raises(ArtifactError):
        read_header(path)


def test_same_content_gives_same_bytes_in_any_order_and_process(tmp_path):
    arrays = sample_arrays()
    first = write(tmp_path / "a.h5", arrays, meta={"x": 1, "y": [1.5]}, parents={"b": "1", "a": "2"})
    backwards = dict(reversed(arrays.items()))
    second = write(tmp_path / "b.h5", backwards, meta={"y": (1.5,), "x": 1}, parents={"a": "2", "b": "1"})
    code = (
        "import sys, time; time.sleep(1.1)\n"
        "from pathlib import Path\n"
        "from tests.artifact.crafting import sample_arrays, write\n"
        "meta, parents = {'x': 1, 'y': [1.5]}, {'b': '1', 'a': '2'}\n"
        "print(write(Path(sys.argv[1]), sample_arrays(), meta=meta, parents=parents).digest)"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(__file__).parents[2])}
    third = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "c.h5"], capture_output=True, text=True, check=True, env=environment
    )
    assert first.digest == second.digest == third.stdout.strip()
    contents = {(tmp_path / name).read_bytes() for name in ("a.h5", "b.h5", "c.h5")}
    assert len(contents) == 1


def test_digest_depends_on_every_part_of_the_content(tmp_path):
    arrays = sample_arrays()
    changed = arrays | {"sigma": np.array(0.5)}
    digests = [
        write(tmp_path / "0.h5", arrays).digest,
        write(tmp_path / "1.h5", arrays, meta={"x": 1}).digest,
        write(tmp_path / "2.h5", arrays, parents={"dataset": "a"}).digest,
        write(tmp_path / "3.h5", changed).digest,
        write(tmp_path / "4.h5", arrays | {"sigma": np.array(0.25, np.float32)}).digest,
        write(tmp_path / "5.h5", arrays | {"plan": arrays["plan"].reshape(6, 3000)}).digest,
        write(tmp_path / "6.h5", {("q" if n == "plan" else n): a for n, a in arrays.items()}).digest,
    ]
    assert len(set(digests)) == len(digests)


def test_any_hdf5_tool_opens_the_file(tmp_path):
    arrays = sample_arrays()
    write(tmp_path / "a.h5", arrays)
    with h5py.File(tmp_path / "a.h5") as file:
        np.testing.assert_array_equal(file["arrays/source/train/outcomes"][:], arrays["source/train/outcomes"])
        np.testing.assert_array_equal(file["arrays/plan"][:], arrays["plan"])
        assert [name.decode() for name in file["arrays/names"][:]] == list(arrays["names"])
        assert json.loads(file["manifest"][:].tobytes())["arrays"]["plan"]["shape"] == [3000, 6]


def test_paper_sized_data_set_is_small_and_needs_no_second_copy(tmp_path):
    rng = np.random.default_rng(0)
    sequences = rng.integers(0, 4, (64, 6), dtype=np.uint8)
    arrays = {f"source/train/panel/{n}": np.zeros((2, 3), np.float32) for n in ("covariates", "statics", "treatments")}
    arrays |= {f"source/train/panel/{n}": np.arange(2) for n in ("length", "subject_id")}
    arrays["source/train/panel/outcomes"] = rng.lognormal(size=(13_000, 60, 1)).astype(np.float32)
    for domain in ("source", "target"):
        for name, n_queries, horizon in (("one_step", 200_000, 1), ("sequence", 500_000, 6)):
            group, rows = f"{domain}/test/queries/{name}", np.arange(n_queries)
            arrays |= {
                f"{group}/subject": (rows // 500).astype(np.int32),
                f"{group}/origin": (rows % 59).astype(np.int16),
                f"{group}/plan": np.eye(4, dtype=np.uint8)[sequences[rows % 64, :horizon]],
                f"{group}/outcomes": rng.lognormal(size=(n_queries, horizon, 1)).astype(np.float32),
                f"{group}/scored": np.ones((n_queries, horizon), bool),
            }
    raw_bytes = sum(array.nbytes for array in arrays.values())
    meta = {"name": "tumor", "schema": {}, "horizon": 6, "parts": {}, "config": {}, "fingerprint": "f"}
    tracemalloc.start()
    write_artifact(tmp_path / "a.h5", kind="dataset", arrays=arrays, meta=meta)
    wrote, _ = tracemalloc.get_traced_memory(), tracemalloc.reset_peak()
    verify_artifact(tmp_path / "a.h5")
    verified, _ = tracemalloc.get_traced_memory(), tracemalloc.reset_peak()
    read = read_artifact(tmp_path / "a.h5", kind="dataset")
    loaded = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert raw_bytes > 60e6
    assert (tmp_path / "a.h5").stat().st_size < 60e6
    assert wrote[1] < 8e6  # HDF5's own buffers are a chunk or two
    assert verified[1] < 8e6
    assert loaded[1] < 1.1 * raw_bytes + 8e6
    last = "target/test/queries/sequence/plan"
    np.testing.assert_array_equal(read.arrays[last], arrays[last])


def test_description_is_json_and_says_what_is_there(tmp_path):
    written = write(tmp_path / "a.h5", sample_arrays(), meta={"config": {"seed": 3}}, parents={"dataset": "d" * 64})
    description = json.loads(json.dumps(describe(tmp_path / "a.h5"), allow_nan=False))
    assert description["kind"] == "run-state"
    assert description["digest"] == written.digest
    assert description["config"] == {"seed": 3}
    assert "config" not in description["meta"]
    assert description["parents"] == {"dataset": "d" * 64}
    assert description["file_bytes"] == (tmp_path / "a.h5").stat().st_size
    plan = next(array for array in description["arrays"] if array["name"] == "plan")
    assert (plan["dtype"], plan["shape"], plan["bytes"]) == ("uint8", [3000, 6], 18_000)
    assert 0 < plan["stored_bytes"] < 18_000


def test_content_that_an_artifact_cannot_hold_is_refused_before_writing(tmp_path):
    path = tmp_path / "a.h5"
    with pytest.raises(ValueError, match="'x': arrays of object cannot be stored in an artifact"):
        write(path, {"x": np.array([{}], dtype=object)})
    with pytest.raises(ValueError, match="complex128"):
        write(path, {"x": np.array([1j])})
    with pytest.raises(ValueError, match="datetime64"):
        write(path, {"x": np.array(["2020-01-01"], "M8[D]")})
    with pytest.raises(ValueError, match="/history/loss: nan is not a JSON number"):
        write(path, {}, meta={"history": {"loss": [float("nan")]}})
    with pytest.raises(ValueError, match="/1: the key"):
        write(path, {}, meta={"1": {2: 3}})
    for name in ("", "/x", "x/", "a//b", "../x", "a/.", "a b", "ü", "x" * 200):
        with pytest.raises(ValueError, match="not a name for an array"):
            write(path, {name: np.zeros(2)})
    with pytest.raises(ValueError, match="both an array and a group"):
        write(path, {"a": np.zeros(2), "a/b": np.zeros(2)})
    with pytest.raises(ValueError, match="store large things as arrays"):
        write(path, {}, meta={"x": "y" * 9_000_000})
    assert list(tmp_path.iterdir()) == []


def test_numpy_scalars_in_meta_become_numbers(tmp_path):
    write(tmp_path / "a.h5", {}, meta={"a": np.float32(0.5), "b": np.int64(3), "c": (np.bool_(True),)})
    meta = read_artifact(tmp_path / "a.h5").meta
    assert (meta["a"], meta["b"], meta["c"]) == (0.5, 3, [True])
