"""Parts of a Parquet table are looked at before they are read: sealed by costar, and read by another process first."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from costar_cli.errors import ArtifactError, MismatchError, cut
from costar_cli.files.sandbox import tried_by
from costar_cli.files.tables import is_sealed, metadata_of, write_together

__all__ = ["check_readable", "unchanged"]

LONGEST: Final = 300  # letters of what polars says of a file


def check_readable(parts: Sequence[Path], *, fix: str) -> None:
    """See that parts can be read into this process: somebody may have made what ends it, or damaged them.

    Raises:
        ArtifactError: one is no regular file, damaged, or not to be read; parts have different columns.
    """
    if odd := [part for part in parts if not part.is_file()]:
        raise ArtifactError("a part is no regular file", where=_listed(odd), fix=fix)
    if odd := [part for part in parts if not is_sealed(part)]:
        problem = "a part is damaged, or was not made by this version of costar"
        raise ArtifactError(problem, where=_listed(odd), fix=fix)
    if (said := _tried(parts)) is not None:
        alone = next((part for part in parts if _tried([part]) is not None), None)
        problem = f"parts cannot be read: {cut(said.splitlines()[0], LONGEST)}"
        raise ArtifactError(problem, where=_listed([alone] if alone else parts), fix=fix)


@contextmanager
def unchanged(parts: Sequence[Path]) -> Iterator[Callable[[], None]]:
    """Yield what sees, whenever it is called, that parts are the files that they were when the context began.

    An error within it is that of a part that is another one by then, where one is.

    Raises:
        MismatchError: one was replaced or changed.
    """
    before = {part: _version(part) for part in parts}

    def check() -> None:
        if odd := [part for part, version in before.items() if _version(part) != version]:
            fix = "run the same command again once nobody writes parts"
            raise MismatchError("a part was replaced while it was read", where=_listed(odd), fix=fix)

    try:
        yield check
    except Exception:
        check()
        raise


def _version(path: Path) -> tuple[int, ...] | None:
    with suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return None


def _listed(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths[:6]))


def _tried(parts: Sequence[Path]) -> str | None:
    return tried_by(__name__, asked=json.dumps([str(part) for part in parts]))


def main() -> int:
    """Read the files that stdin lists as they will be read, write them nowhere, and tell what is wrong with them."""
    import polars as pl  # noqa: PLC0415 - slow to import

    parts = [Path(name) for name in json.load(sys.stdin)]
    try:
        for part in parts:
            metadata_of(part)
        with Path(os.devnull).open("wb") as nowhere:
            write_together(parts, nowhere, {})
    except (pl.exceptions.PolarsError, OSError) as error:
        sys.stdout.write(str(error))
        return 1
    return 0
