"""The first 1024 bytes of an artifact: plain text that says what the file is, before HDF5 sees any of it.

`head -8 data.h5` shows it. HDF5 calls this a user block and starts to read behind it. Here, too: how a reader says what
is wrong with a file, and where.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from costar_cli.errors import ArtifactError, CostarError
from costar_cli.files.digest import file_sha256, sha256
from costar_cli.files.spec import KINDS, a_kind, version_order

HEADER_BYTES: Final = 1024
MAGIC: Final = b"costar artifact\n"
HDF5_MAGIC: Final = b"\x89HDF\r\n\x1a\n"
SCHEMA: Final = re.compile(rb"costar artifact\nschema (\d{1,6}\.\d{1,6})\n")
LINES: Final = re.compile(
    r"(?P<checked>costar artifact\nschema (?P<schema>[\d.]+)\nkind (?P<kind>[a-z-]+)\ndigest (?P<digest>[0-9a-f]{64})\n"
    r"versions (?P<versions>[!-~ ]*)\nbytes (?P<bytes>\d{1,18})\nsha256 (?P<sha256>[0-9a-f]{64})\n)"
    r"check (?P<check>[0-9a-f]{64})\n\0*",
    re.ASCII,
)


def place(path: Path, name: str = "") -> str:
    """Return a file, or a file and a group in it, as text."""
    return f"{path}: /{name}" if name else str(path)


def damaged(
    problem: str, path: Path, name: str = "", *, kind: str | None = None, details: Sequence[str] = ()
) -> ArtifactError:
    """Return the error for a file that is not what costar wrote."""
    again = f"make it again with `{KINDS[kind].made_by}`" if kind else "make it again"
    return ArtifactError(problem, where=place(path, name), fix=f"restore an intact copy, or {again}", details=details)


def foreign(problem: str, path: Path) -> ArtifactError:
    """Return the error for a file that costar did not write."""
    return ArtifactError(problem, where=str(path), fix="give the path of a file that costar wrote")


def wrong_kind(found: str, wanted: str, path: Path) -> ArtifactError:
    """Return the error for an artifact of another kind."""
    return ArtifactError(
        f"the file holds {a_kind(found)}, not {a_kind(wanted)}",
        where=str(path),
        fix=f"`{KINDS[wanted].made_by}` makes {a_kind(wanted)}",
    )


@contextmanager
def reading(path: Path, name: str = "", *, kind: str | None = None) -> Iterator[None]:
    """Turn whatever the operating system, h5py or numpy raise about a file into an ArtifactError."""
    try:
        yield
    except CostarError:
        raise
    except OSError as error:
        if known := _file_error(error, path, kind):
            raise known from error
        raise damaged("the file is damaged", path, name, kind=kind, details=[_brief(error)]) from error
    except MemoryError as error:
        raise ArtifactError("not enough memory to read the artifact", where=place(path, name)) from error
    except (RuntimeError, LookupError, ValueError, TypeError, OverflowError) as error:
        raise damaged("the file is damaged", path, name, kind=kind, details=[_brief(error)]) from error


def _file_error(error: OSError, path: Path, kind: str | None) -> ArtifactError | None:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        what = a_kind(kind) if kind else "artifact"
        fix = f"`{KINDS[kind].made_by}` creates it" if kind else "check the path"
        return ArtifactError(
            f"there is no {what.removeprefix('a ').removeprefix('an ')} here", where=str(path), fix=fix
        )
    if isinstance(error, IsADirectoryError):
        return ArtifactError("a folder, not a file", where=str(path), fix="give the path of the file in it")
    if isinstance(error, PermissionError):
        return ArtifactError("no permission to read the file", where=str(path), fix=f"`chmod u+r {path}`")
    if error.filename is not None:  # from the system, not from HDF5
        return ArtifactError(f"the file cannot be read: {error.strerror}", where=str(path), fix="check the path")
    return None


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


@dataclass(frozen=True, slots=True)
class Header:
    """What the text says: `total_bytes` of the file, and the SHA-256 of all behind the header."""

    kind: str
    schema_version: str
    digest: str
    versions: Mapping[str, str]
    total_bytes: int
    body_sha256: str

    def render(self) -> bytes:
        """Return the 1024 bytes.

        Raises:
            ValueError: the versions do not fit.
        """
        versions = " ".join(f"{name}={version}" for name, version in sorted(self.versions.items()))
        checked = (
            f"costar artifact\nschema {self.schema_version}\nkind {self.kind}\ndigest {self.digest}\n"
            f"versions {versions}\nbytes {self.total_bytes}\nsha256 {self.body_sha256}\n"
        ).encode("ascii")
        text = checked + f"check {sha256(checked)}\n".encode("ascii")
        if len(text) > HEADER_BYTES:
            raise ValueError("the software versions do not fit into the header of an artifact")
        return text.ljust(HEADER_BYTES, b"\0")


def read_file_header(path: Path) -> Header:
    """Read and check the header, and that what follows is HDF5 and all there.

    Raises:
        ArtifactError: it is no artifact, a newer one, cut short, or its header is damaged.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise foreign("not a regular file", path)  # to open a pipe would wait for ever
    with path.open("rb") as file:
        block = file.read(HEADER_BYTES + len(HDF5_MAGIC) + 1)
        total_bytes = file.seek(0, 2)
    header = _parse(block[:HEADER_BYTES], path)
    if total_bytes < header.total_bytes:
        raise damaged(f"the file is truncated: {total_bytes:,} of {header.total_bytes:,} bytes", path, kind=header.kind)
    if block[HEADER_BYTES:-1] != HDF5_MAGIC or block[-1] not in (2, 3):
        raise damaged("the header is not followed by HDF5 of the expected version", path, kind=header.kind)
    return header


def body_sha256(path: Path) -> str:
    """Return the SHA-256 of the file behind its header."""
    return file_sha256(path, start=HEADER_BYTES)


def _parse(block: bytes, path: Path) -> Header:
    if not block.startswith(MAGIC):
        other = "an HDF5 file, but not a costar artifact" if HDF5_MAGIC in block[:520] else "not a costar artifact"
        raise foreign(other if block else "the file is empty", path)
    if (schema := SCHEMA.match(block)) and version_order(version := schema[1].decode()):
        raise _other_schema(version, path)
    lines = LINES.fullmatch(block.decode("latin-1"))
    if not lines or len(block) < HEADER_BYTES or sha256(lines["checked"].encode()) != lines["check"]:
        raise damaged("the header is damaged", path)
    if lines["kind"] not in KINDS:
        raise foreign(f"unknown kind of artifact, {lines['kind'][:40]!r}", path)
    return Header(
        kind=lines["kind"],
        schema_version=lines["schema"],
        digest=lines["digest"],
        versions=dict(pair.split("=", 1) for pair in lines["versions"].split(" ") if "=" in pair),
        total_bytes=int(lines["bytes"]),
        body_sha256=lines["sha256"],
    )


def _other_schema(version: str, path: Path) -> ArtifactError:
    if version_order(version) > 0:
        return ArtifactError(
            f"the artifact has schema version {version}, which is newer than this version of costar reads",
            where=str(path),
            fix="install a newer costar",
        )
    return foreign(f"the artifact has schema version {version}, which this version of costar no longer reads", path)
