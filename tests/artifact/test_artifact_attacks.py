"""Arrays made to mislead: each is turned away with one clear error, quickly, without reading what it points at."""

import os
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t

from costar_cli.errors import ArtifactError, UsageError
from costar_cli.files import read_artifact, read_header, structure, verify_artifact
from costar_cli.files.digest import array_sha256
from tests.artifact.crafting import declare, refused, tamper, write

Change = Callable[[h5py.File], object]


def refused_data(path: Path, words: str, group: str) -> None:
    """Check that the doors that read arrays refuse the file, while its header is sound."""
    read_header(path)
    tracemalloc.start()
    for read in (read_artifact, verify_artifact):
        with pytest.raises(ArtifactError) as caught:
            read(path)
        assert words in " ".join([caught.value.problem, *caught.value.details])
        assert group in (caught.value.where or "")
    assert tracemalloc.get_traced_memory()[1] < 100e6
    tracemalloc.stop()


def dataset_of(type_id: object, space: object | None = None, plist: object | None = None) -> Change:
    return lambda f: h5d.create(f["arrays"].id, b"evil", type_id, space or h5s.create_simple((4,)), plist)


def external(f: h5py.File) -> None:
    f.create_dataset("arrays/evil", (4,), "u1", external=[("/etc/passwd", 0, 4)])


def virtual(f: h5py.File) -> None:
    layout = h5py.VirtualLayout((4,), "u1")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (4,))
    f.create_virtual_dataset("arrays/evil", layout)


def compact(f: h5py.File) -> None:
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_layout(h5d.COMPACT)
    dataset_of(h5t.STD_U8LE, None, plist)(f)


def foreign_filter(f: h5py.File) -> None:
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_chunk((4,))
    plist.set_filter(32_001, h5py.h5z.FLAG_OPTIONAL)
    dataset_of(h5t.STD_U8LE, None, plist)(f)


def committed(f: h5py.File) -> None:
    f["arrays/type"] = np.dtype("u1")
    f.create_dataset("arrays/evil", (4,), f["arrays/type"])


def cycle(f: h5py.File) -> None:
    f["arrays/source/again"] = f["arrays"]


def many(f: h5py.File) -> None:
    for i in range(60):
        f.create_group(f"arrays/g{i}")


STRUCTURES: dict[str, tuple[Change, str, str]] = {
    "soft link": (lambda f: f.__setitem__("arrays/evil", h5py.SoftLink("/arrays/plan")), "a soft link", "/arrays/evil"),
    "dangling soft link": (lambda f: f.__setitem__("evil", h5py.SoftLink("/nowhere")), "a soft link", "/evil"),
    "external link": (
        lambda f: f.__setitem__("arrays/evil", h5py.ExternalLink("/etc/passwd", "/")),
        "an external link",
        "/arrays/evil",
    ),
    "hard link to an array": (
        lambda f: f.__setitem__("arrays/evil", f["arrays/plan"]),
        "a second hard link",
        "/arrays",
    ),
    "hard link to a group above": (cycle, "a second hard link", "/arrays"),
    "external storage": (external, "stored in other files", "/arrays/evil"),
    "virtual array": (virtual, "a virtual array", "/arrays/evil"),
    "compact layout": (compact, "compact layout", "/arrays/evil"),
    "foreign filter": (foreign_filter, "a filter other than", "/arrays/evil"),
    "named type": (committed, "", "/arrays/"),
    "attribute": (lambda f: f["arrays/plan"].attrs.__setitem__("x", 1), "attributes", "/arrays/plan"),
    "object reference": (dataset_of(h5t.STD_REF_OBJ), "reference", "/arrays/evil"),
    "region reference": (dataset_of(h5t.STD_REF_DSETREG), "reference", "/arrays/evil"),
    "variable text": (dataset_of(h5t.py_create(h5py.string_dtype(), logical=True)), "variable", "/arrays/evil"),
    "variable length": (dataset_of(h5t.vlen_create(h5t.STD_U8LE)), "variable-length", "/arrays/evil"),
    "compound": (dataset_of(h5t.py_create(np.dtype("u1,f4"))), "compound", "/arrays/evil"),
    "enumeration": (dataset_of(h5t.py_create(np.dtype("?"), logical=True)), "enumerated", "/arrays/evil"),
    "opaque": (dataset_of(h5t.create(h5t.OPAQUE, 4)), "opaque", "/arrays/evil"),
    "array type": (dataset_of(h5t.array_create(h5t.STD_U8LE, (3,))), "array", "/arrays/evil"),
    "bit field": (dataset_of(h5t.STD_B8LE), "bit field", "/arrays/evil"),
    "big-endian": (dataset_of(h5t.IEEE_F32BE), "another layout", "/arrays/evil"),
    "null space": (dataset_of(h5t.STD_U8LE, h5s.create(h5s.NULL)), "without a shape", "/arrays/evil"),
    "strange name": (lambda f: f.create_group("arrays/a b\u202e"), "not a name", "/arrays/a b"),
    "name of dots": (lambda f: f.create_group("arrays/..."), "not a name", "/arrays/..."),
    "deep groups": (lambda f: f.create_group("arrays/" + "/".join("a" * 60)), "not a name", "/arrays/a/a"),
    "extendable": (lambda f: f.create_dataset("arrays/evil", (4,), "u1", maxshape=(None,)), "extendable", "evil"),
    "extra array": (lambda f: f.create_dataset("arrays/evil", data=[1]), "/arrays/evil: not in the manifest", ""),
    "array outside": (lambda f: f.create_dataset("evil", data=[1]), "/evil: not in the manifest", ""),
    "missing array": (lambda f: f.__delitem__("arrays/plan"), "/arrays/plan: missing", ""),
    "missing manifest": (lambda f: f.__delitem__("manifest"), "manifest is missing", ""),
    "all missing": (lambda f: f.clear(), "manifest is missing", ""),
}


@pytest.mark.parametrize("attack", STRUCTURES)
def test_structure_other_than_plain_arrays_is_refused(path, attack):
    change, words, group = STRUCTURES[attack]
    tamper(path, change)
    refused(path, words, group)


def test_virtual_array_of_a_pipe_does_not_block(path, tmp_path):
    os.mkfifo(tmp_path / "pipe")

    def change(f: h5py.File) -> None:
        here, there = (h5s.create_simple((n,), (h5s.UNLIMITED,)) for n in (0, 9))
        for space in (here, there):
            space.select_hyperslab((0,), (1,), block=(h5s.UNLIMITED,))
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_virtual(here, str(tmp_path / "pipe").encode(), b"x", there)
        dataset_of(h5t.STD_U8LE, h5s.create_simple((0,), (h5s.UNLIMITED,)), plist)(f)

    tamper(path, change)
    refused(path, "a virtual array", "/arrays/evil")


def test_too_many_groups_are_refused(path, monkeypatch):
    monkeypatch.setattr("costar_cli.files.structure.MAX_OBJECTS", 50)
    tamper(path, many)
    refused(path, "more than 50 groups and arrays")


@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        ((2**40,), {"chunks": (2**18,)}, "nothing stored"),
        ((2**62, 2**62), {"chunks": (1, 2**18)}, ""),
        ((10**6, 10**6), {"chunks": (100, 1000)}, "are not runs"),
        ((2**40,), {}, "in one piece"),
        ((2**31,), {"chunks": (2**31,)}, "chunks of 2,147,483,648 bytes"),
        ((2**24,), {"chunks": (64,)}, "chunks of 64 bytes"),
        ((1000,), {}, "0 bytes stored"),
    ],
)
def test_absurd_declarations_are_refused(path, shape, options, words):
    tamper(path, lambda f: f.create_dataset("arrays/evil", shape, "u1", **options))
    declare(path, "evil", "uint8", shape)
    refused(path, words, "/arrays/evil")


def test_absurd_text_width_is_refused(path):
    tamper(path, lambda f: f.create_dataset("arrays/evil", (3,), h5py.string_dtype("utf-8", 2**30)))
    refused(path, "is not an artifact type", "/arrays/evil")


def zeros(n_chunks: int, stored_chunks: int, chunk: bytes, width: int = 2**18) -> Change:
    """Return an array of `n_chunks`, the first of which hold `chunk` as their stored bytes."""

    def change(f: h5py.File) -> None:
        evil = f.create_dataset("arrays/evil", (n_chunks * width,), "u1", chunks=(width,), compression="gzip")
        for i in range(stored_chunks):
            evil.id.write_direct_chunk((i * width,), chunk)

    return change


def test_more_memory_than_allowed_is_refused(path, monkeypatch):
    tamper(path, zeros(2**15, 1, zlib.compress(bytes(2**18))))
    declare(path, "evil", "uint8", (2**33,))
    error = refused(path, "8.6 GB of memory, more than the 8 GB allowed")
    assert "COSTAR_MAX_ARTIFACT_GB" in (error.fix or "")
    monkeypatch.setenv("COSTAR_MAX_ARTIFACT_GB", "9")
    refused(path, "would unpack to")
    monkeypatch.setenv("COSTAR_MAX_ARTIFACT_GB", "lots")
    with pytest.raises(UsageError, match="'lots' is not a size"):
        read_header(path)


def test_little_data_that_unpacks_to_much_is_refused(path):
    tamper(path, zeros(2**12, 2**12, zlib.compress(bytes(2**18), 9)))
    declare(path, "evil", "uint8", (2**30,))
    refused(path, "would unpack to 1,0")


def test_honest_arrays_may_compress_a_thousandfold(tmp_path):
    plan = np.zeros((20_000_000,), np.uint8)
    write(tmp_path / "a.h5", {"plan": plan})
    assert (tmp_path / "a.h5").stat().st_size < 40_000
    np.testing.assert_array_equal(read_artifact(tmp_path / "a.h5").arrays["plan"], plan)


def test_writer_stores_uncompressed_what_would_look_like_a_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(structure, "FREE_BYTES", 1_000_000)
    write(tmp_path / "a.h5", {"plan": np.zeros((2_000_000,), np.uint8)})
    assert (tmp_path / "a.h5").stat().st_size > 2_000_000
    assert not read_artifact(tmp_path / "a.h5").arrays["plan"].any()


@pytest.mark.parametrize(
    ("stored_chunks", "chunk", "words"),
    [
        (2, zlib.compress(bytes(50_000_000)), "unpacks to more than it declares"),
        (2, zlib.compress(bytes(2**18))[:-3], "a chunk is truncated"),
        (2, zlib.compress(bytes(1000)), "holds 1,000 bytes"),
        (2, b"no zlib", "compressed bytes are damaged"),
        (2, bytes(2**20), "1,048,576 bytes stored"),
        (1, zlib.compress(bytes(2**18)), "in the 2 chunks"),
        (2, zlib.compress(bytes(2**18)), "its digest differs"),
    ],
)
def test_chunks_other_than_declared_are_refused(path, stored_chunks, chunk, words):
    tamper(path, zeros(2, stored_chunks, chunk))
    declare(path, "evil", "uint8", (2**19,))
    refused_data(path, words, "/arrays/evil")


def store(f: h5py.File, name: str, data: np.ndarray, dtype: np.dtype) -> None:
    dataset = f.create_dataset(name, data.shape, dtype)
    dataset.id.write(h5s.ALL, h5s.ALL, data, dataset.id.get_type())


def test_booleans_and_text_are_checked(path):
    two, latin = np.full(3, 2, np.uint8), np.array([b"\xe4"])
    for name, data, dtype in (("evil", two, "bool"), ("wicked", latin, "utf8[1]")):
        stored = h5py.string_dtype("utf-8", 1) if dtype == "utf8[1]" else data.dtype
        tamper(path, store, f"arrays/{name}", data, stored)
        declare(path, name, dtype, data.shape, array_sha256(data))
    with pytest.raises(ArtifactError, match="damaged") as caught:
        read_artifact(path, only=["evil"])
    assert caught.value.details == ("booleans other than 0 and 1",)
    with pytest.raises(ArtifactError, match="damaged") as caught:
        read_artifact(path, only=["wicked"])
    assert "/arrays/wicked" in (caught.value.where or "")
