"""Read a file in a process of its own first, where a damaged or hostile one may end the process or fill its memory.

The other process reads everything of an artifact but the arrays, with little memory. Only the B-trees and heaps in
which HDF5 keeps the names of large groups need this: a changed one makes it read and write anywhere, or take all
memory. Files of costar 0.3 and before have them; `write.py` avoids them up to 512 names in a group. Whether a file has
any is looked up in its bytes, where these are few; large files are read there first whatever they hold.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

import h5py

from costar_cli.errors import ArtifactError, CostarError, UsageError
from costar_cli.files.header import damaged, reading
from costar_cli.files.structure import survey

UNSAFE: Final = (b"BTHD", b"FRHP", b"TREE", b"HEAP")  # how each B-tree and each heap begins, new and old
BLOCK_BYTES: Final = 1 << 20
LOOKED_THROUGH: Final = 1 << 26  # bytes of a file; looking takes some 3 s a GB, the other process half a second
CODE: Final = "import sys; sys.path.insert(0, sys.argv[1]); from {module} import main; sys.exit(main())"
LIMIT_S: Final = 20.0
MEMORY_BYTES: Final = 700_000_000  # of addresses; Python with h5py takes 150 MB of these


def tried(arguments: Sequence[str], *, asked: str = "", limit_s: float | None = None) -> str | None:
    """Run Python with these arguments to read a file; return None where it could, and otherwise why not."""
    command = [sys.executable, "-P", *arguments]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment = os.environ if limit_s is None else one_thread
    try:
        done = subprocess.run(  # noqa: S603 - no shell
            command, input=asked.encode(), capture_output=True, check=False, timeout=limit_s, env=environment
        )
    except subprocess.TimeoutExpired:
        return f"it would take more than {limit_s:g} s"
    said = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode < 0:
        with suppress(ValueError):
            return f"it ends the process that reads it ({signal.Signals(-done.returncode).name})"
    return said or "it ends the process that reads it" if done.returncode else None


def tried_by(module: str, *arguments: str, asked: str = "", limit_s: float | None = None) -> str | None:
    """Run a module's `main` on arguments, from `sys.argv[2]` on, and on stdin, and return what `tried` does."""
    command = ["-c", CODE.format(module=module), str(Path(__file__).parents[2]), *arguments]
    return tried(command, asked=asked, limit_s=limit_s)


def check_safe(path: Path, kind: str) -> None:
    """Check that HDF5 may open a file in this process.

    Raises:
        ArtifactError: it may not.
    """
    found = path.stat()
    if (said := _refusal(path, kind, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))) is None:
        return
    try:
        told = json.loads(said)
    except ValueError:
        raise damaged("the file is damaged", path, kind=kind, details=[said]) from None
    error = UsageError if told["type"] == UsageError.__name__ else ArtifactError
    raise error(told["problem"], where=told["where"], fix=told["fix"], details=told["details"])


@lru_cache(maxsize=256)
def _refusal(path: Path, kind: str, _version: tuple[int, ...]) -> str | None:
    if path.stat().st_size <= LOOKED_THROUGH and not _holds_any(path, UNSAFE):
        return None
    return tried_by(__name__, str(path), kind, limit_s=LIMIT_S)


def _holds_any(path: Path, words: Sequence[bytes]) -> bool:
    kept = b""
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            joined = kept + block
            if any(word in joined for word in words):
                return True
            kept = joined[1 - len(words[0]) :]
    return False


def limit_memory(most_bytes: int) -> None:
    """Let this process have so many bytes of addresses, and leave no image of its memory when it crashes."""
    with suppress(ImportError, ValueError, OSError):  # Windows has no such limits
        import resource  # noqa: PLC0415

        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> int:
    """Read what HDF5 reads of a file before the arrays, and tell the error if there is one."""
    path, kind = Path(sys.argv[2]), sys.argv[3]
    limit_memory(MEMORY_BYTES)
    try:
        with reading(path, kind=kind), h5py.File(path, "r", locking=False) as file:
            survey(file["/"].id, path, kind)
    except CostarError as error:
        sys.stdout.write(json.dumps(error.to_json()))
        return 1
    return 0
