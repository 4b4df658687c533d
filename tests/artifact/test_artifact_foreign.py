"""Files that are no artifact of this costar, or say of themselves what is not so: each is one clear error."""

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from costar_cli.errors import ArtifactError
from costar_cli.files import read_artifact
from tests.artifact.crafting import edit_manifest, refused, replace_manifest, reseal, tamper

MANIFESTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "unusable"),
    "not JSON": (b"kind: dataset", "unusable"),
    "not UTF-8": (b'"\xff"', "unusable"),
    "not an object": (b"[]", "unusable"),
    "empty object": (b"{}", "kind: Field required"),
    "deep": (b"[" * 100_000, "unusable"),
    "deep but closed": (b"[" * 900 + b"]" * 900, "nested deeper"),
    "repeated key": (b'{"kind":1,"kind":2}', "a key appears twice"),
    "NaN": (b'{"meta":NaN}', "NaN is not"),
    "infinity": (b'{"meta":1e999}', "inf is not"),
    "lone surrogate": (b'{"meta":"\\ud800"}', "not Unicode"),
    "huge number": (b'{"meta":' + b"9" * 5000 + b"}", "unusable"),
    "too large": (b" " * (8 * 2**20 + 1), "not text of at most 8,388,608 bytes"),
}


@pytest.mark.parametrize("attack", MANIFESTS)
def test_manifest_other_than_plain_json_is_refused(path, attack):
    text, words = MANIFESTS[attack]
    replace_manifest(path, text)
    refused(path, words)


EDITS = {
    "shape": (
        lambda m: m["arrays"]["plan"].update(shape=[3000, 7]),
        "uint8 (3000, 6), not uint8 (3000, 7)",
    ),
    "dtype": (lambda m: m["arrays"]["plan"].update(dtype="int8"), "not int8"),
    "unknown dtype": (lambda m: m["arrays"]["plan"].update(dtype="object"), "'object' is not an artifact type"),
    "negative shape": (lambda m: m["arrays"]["plan"].update(shape=[-1]), "greater than or equal"),
    "bad digest": (lambda m: m["arrays"]["plan"].update(sha256="x"), "pattern"),
    "more in an entry": (lambda m: m["arrays"]["plan"].update(code="x"), "Extra inputs"),
    "more in the manifest": (lambda m: m.update(code="x"), "Extra inputs"),
    "array not there": (lambda m: m["arrays"].update(evil=m["arrays"]["plan"]), "/arrays/evil: missing"),
    "array not declared": (lambda m: m["arrays"].pop("plan"), "/arrays/plan: not in the manifest"),
    "unsafe name": (lambda m: m["arrays"].update({"../x": m["arrays"]["plan"]}), "not a name"),
    "another kind": (lambda m: m.update(kind="model"), "no array `params/**`"),
    "unknown kind": (lambda m: m.update(kind="virus"), "unknown kind"),
    "another schema": (lambda m: m.update(schema_version="0.9"), "disagree"),
    "no meta": (lambda m: m.update(meta={}), "no `finished` in meta"),
    "meta no object": (lambda m: m.update(meta=[]), "meta:"),
    "parents no text": (lambda m: m.update(parents={"dataset": 3}), "parents/dataset"),
}


@pytest.mark.parametrize("attack", EDITS)
def test_manifest_that_does_not_fit_is_refused(path, attack):
    change, words = EDITS[attack]
    edit_manifest(path, change)
    refused(path, words)


def test_manifest_of_another_type_is_refused(path):
    def change(f: h5py.File) -> None:
        del f["manifest"]
        f["manifest"] = np.zeros(4, np.float32)

    tamper(path, change)
    refused(path, "not text of at most")


def test_header_that_does_not_fit_is_refused(path):
    raw = path.read_bytes()
    reseal(path, kind="virus")
    refused(path, "unknown kind of artifact, 'virus'")
    path.write_bytes(raw)
    reseal(path, digest="0" * 64)
    refused(path, "its digest differs from the header")
    path.write_bytes(raw)
    reseal(path, kind="dataset")
    refused(path, "disagree")
    path.write_bytes(raw.replace(b"kind run-state", b"kind run-Xtate"))
    refused(path, "the header is damaged")
    path.write_bytes(raw[:1024] + bytes(len(raw) - 1024))
    refused(path, "not followed by HDF5")


def test_newer_schema_asks_for_an_upgrade(path):
    for version in ("1.1", "2.0", "10.0"):
        raw = path.read_bytes()
        path.write_bytes(raw.replace(b"schema 1.0\n", f"schema {version}\n".encode(), 1))
        error = refused(path, f"schema version {version}, which is newer than this version of costar reads")
        assert "install a newer costar" in (error.fix or "")
        path.write_bytes(raw)


def test_older_minor_schema_is_read_and_older_major_is_not(path, monkeypatch):
    monkeypatch.setattr("costar_cli.files.spec.SCHEMA_VERSION", "1.3")
    assert read_artifact(path).schema_version == "1.0"
    monkeypatch.setattr("costar_cli.files.spec.SCHEMA_VERSION", "2.0")
    refused(path, "no longer reads")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"name,age\n", "not a costar artifact"),
        (b"costar artifact", "not a costar artifact"),
        (b"costar artifact\n", "the header is damaged"),
        (b"\x89HDF\r\n\x1a\n" + bytes(4000), "an HDF5 file, but not a costar artifact"),
        (bytes(range(255, -1, -1)) * 20, "not a costar artifact"),
    ],
)
def test_foreign_files_are_named(tmp_path, content, words):
    (tmp_path / "x.h5").write_bytes(content)
    refused(tmp_path / "x.h5", words)


def test_foreign_hdf5_files_are_named(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = [1]
    refused(tmp_path / "x.h5", "an HDF5 file, but not a costar artifact")


def test_places_that_are_no_file_are_named(tmp_path):
    refused(tmp_path, "a folder, not a file")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "not a regular file")
    refused(Path("/dev/zero"), "not a regular file")
    refused(tmp_path / "none.h5", "there is no artifact here")
    (tmp_path / "file").touch()
    refused(tmp_path / "file" / "x.h5", "there is no artifact here")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    refused(tmp_path / "loop", "the file cannot be read: Too many levels of symbolic links")
    refused(tmp_path / ("x" * 300), "the file cannot be read: File name too long")


@pytest.mark.parametrize(
    ("kind", "verb"),
    [
        ("dataset", "costar simulate` or `costar ingest"),
        ("encoder", "costar pretrain"),
        ("model", "costar finetune"),
        ("evaluation", "costar evaluate"),
    ],
)
def test_missing_or_other_kind_names_the_verb_that_makes_it(path, tmp_path, kind, verb):
    with pytest.raises(ArtifactError, match=f"there is no {kind} here") as caught:
        read_artifact(tmp_path / "none.h5", kind=kind)
    assert caught.value.fix == f"`{verb}` creates it"
    with pytest.raises(ArtifactError, match=f"holds a run-state, not an? {kind}") as caught:
        read_artifact(path, kind=kind)
    assert f"`{verb}`" in (caught.value.fix or "")
    assert str(path) in (caught.value.where or "")
