"""Open an artifact so far that it is known what it holds, and that its structure is sound; no array is read."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from costar_cli.artifact.chunks import unpack
from costar_cli.artifact.digest import sha256
from costar_cli.artifact.dtypes import stored_tag
from costar_cli.artifact.header import Header, read_file_header
from costar_cli.artifact.limits import MAX_MANIFEST_BYTES
from costar_cli.artifact.manifest import Manifest
from costar_cli.artifact.problems import damaged, reading, wrong_kind
from costar_cli.artifact.structure import Member, survey

__all__ = ["OpenArtifact", "open_artifact"]


@dataclass(frozen=True, slots=True)
class OpenArtifact:
    """An open file: what it says of itself, and its arrays by name."""

    header: Header
    manifest: Manifest
    members: dict[str, Member]


@contextmanager
def open_artifact(path: Path, *, kind: str | None = None) -> Iterator[OpenArtifact]:
    """Open an artifact, check its structure and its manifest, and close it when the context ends.

    Raises:
        ArtifactError: it cannot be read, is unsafe or damaged, or is not of the `kind` asked for.
    """
    with reading(path, kind=kind):
        header = read_file_header(path)
    if kind is not None and header.kind != kind:
        raise wrong_kind(header.kind, kind, path)
    with reading(path, kind=header.kind), h5py.File(path, "r", locking=False) as file:
        found = survey(file["/"].id, path, header.kind)
        manifest = _read_manifest(found.pop("manifest", None), header, path)
        members = {name.removeprefix("arrays/"): member for name, member in found.items()}
        _check_members(manifest, found, members, path)
        yield OpenArtifact(header, manifest, members)


def _read_manifest(member: Member | None, header: Header, path: Path) -> Manifest:
    if member is None:
        raise damaged("the manifest is missing", path, kind=header.kind)
    if member.tag != "uint8" or len(member.shape) != 1 or member.raw_bytes > MAX_MANIFEST_BYTES:
        raise damaged(f"the manifest is not up to {MAX_MANIFEST_BYTES:,} bytes of text", path, kind=header.kind)
    data = np.empty(member.raw_bytes, np.uint8)
    unpack(member, data)
    text = data.tobytes()
    if sha256(text) != header.digest:
        raise damaged("the manifest is damaged: another digest than in the header", path, "manifest", kind=header.kind)
    try:
        manifest = Manifest.from_bytes(text)
    except ValueError as error:
        raise damaged(f"the manifest is unusable: {error}", path, "manifest", kind=header.kind) from None
    if problems := manifest.problems():
        problem, *details = problems
        raise damaged(f"the content is not that of its kind: {problem}", path, kind=header.kind, details=details[:20])
    if (manifest.kind, manifest.schema_version) != (header.kind, header.schema_version):
        raise damaged("header and manifest disagree", path, "manifest", kind=header.kind)
    return manifest


def _check_members(manifest: Manifest, found: dict[str, Member], members: dict[str, Member], path: Path) -> None:
    expected = {f"arrays/{name}" for name in manifest.arrays}
    details = [f"/{name}: missing" for name in sorted(expected - set(found))]
    details += [f"/{name}: not in the manifest" for name in sorted(set(found) - expected)]
    for name, entry in manifest.arrays.items():
        if (member := members.get(name)) is None:
            continue
        if (member.tag, list(member.shape)) != (stored_tag(entry.dtype), entry.shape):
            details.append(f"/arrays/{name}: {member.tag} {member.shape}, not {entry.dtype} {tuple(entry.shape)}")
    if details:
        kind = manifest.kind
        raise damaged("the arrays are not those of the manifest", path, "arrays", kind=kind, details=details[:20])
