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
    except (FileNotFoundError, NotADirectoryError) as error:
        what = a_kind(kind).removeprefix("a ").removeprefix("an ") if kind else "artifact"
        fix = f"`{KINDS[kind].made_by}` creates it" if kind else "check the path"
        raise ArtifactError(f"there is no {what} here", where=str(path), fix=fix) from error
    except IsADirectoryError as error:
        fix = "give the path of the file in it"
        raise ArtifactError("a folder, not a file", where=str(path), fix=fix) from error
    except PermissionError as error:
        raise ArtifactError("no permission to read the file", where=str(path), fix=f"`chmod u+r {path}`") from error
    except OSError as error:
        if error.filename is not None:  # from the system, not from HDF5
            problem = f"the file cannot be read: {error.strerror}"
            raise ArtifactError(problem, where=str(path), fix="check the path") from error
        raise damaged("the file is damaged", path, name, kind=kind, details=[_brief(error)]) from error
    except MemoryError as error:
        raise ArtifactError("not enough memory to read the artifact", where=place(path, name)) from error
    except (RuntimeError, LookupError, ValueError, TypeError, OverflowError) as error:
        raise damaged("the file is damaged", path, name, kind=kind, details=[_brief(error)]) from error


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
    text = block[:HEADER_BYTES]
    if not text.startswith(MAGIC):
        other = "an HDF5 file, but not a costar artifact" if HDF5_MAGIC in text[:520] else "not a costar artifact"
        raise foreign(other if text else "the file is empty", path)
    if (schema := SCHEMA.match(text)) and (order := version_order(schema[1].decode())):
        has = f"the artifact has schema version {schema[1].decode()}, which"
        if order < 0:
            raise foreign(f"{has} this version of costar no longer reads", path)
        problem = f"{has} is newer than this version of costar reads"
        raise ArtifactError(problem, where=str(path), fix="install a newer costar")
    lines = LINES.fullmatch(text.decode("latin-1"))
    if not lines or len(text) < HEADER_BYTES or sha256(lines["checked"].encode()) != lines["check"]:
        raise damaged("the header is damaged", path)
    kind, whole_bytes = lines["kind"], int(lines["bytes"])
    if kind not in KINDS:
        raise foreign(f"unknown kind of artifact, {kind[:40]!r}", path)
    if total_bytes < whole_bytes:
        raise damaged(f"the file is truncated: {total_bytes:,} of {whole_bytes:,} bytes", path, kind=kind)
    if block[HEADER_BYTES:-1] != HDF5_MAGIC or block[-1] not in (2, 3):
        raise damaged("the header is not followed by HDF5 of the expected version", path, kind=kind)
    versions = dict(pair.split("=", 1) for pair in lines["versions"].split(" ") if "=" in pair)
    return Header(kind, lines["schema"], lines["digest"], versions, whole_bytes, lines["sha256"])


def body_sha256(path: Path) -> str:
    """Return the SHA-256 of the file behind its header."""
    return file_sha256(path, start=HEADER_BYTES)
