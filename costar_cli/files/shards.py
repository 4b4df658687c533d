"""Parts of a piece of work for arrays of jobs: part I of N, where it writes, and where all of them are.

Parts of a Parquet table are looked at before they are read: sealed by costar, and read by another process first.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from costar_cli.errors import ArtifactError, MismatchError, UsageError, cut

NUMBER: Final = "([1-9][0-9]{0,5})"  # one way to write each, so that no two names are of one part
NAME: Final = re.compile(f"shard-{NUMBER}-of-{NUMBER}")
LIKE_ONE: Final = re.compile(r"shard-\d+-of-\d+")


@dataclass(frozen=True)
class Shard:
    """Part `number` of `of`, from 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a text such as `2/8`.

        Raises:
            UsageError: it is none.
        """
        found = re.fullmatch(f"{NUMBER}/{NUMBER}", text)
        if found is None or int(found[1]) > int(found[2]):
            raise UsageError(f"no part: {text!r}", where="--shard", fix="give `I/N`, I from 1 to N")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @property
    def name(self) -> str:
        """Return what a part's folder, or the ending of its file's stem, is called."""
        return f"shard-{self.number}-of-{self.of}"

    def beside(self, path: Path) -> Path:
        """Return the part's file of a file that all make: `answers.shard-2-of-8.parquet`."""
        return path.with_name(f"{path.stem}.{self.name}{path.suffix}")

    def own(self, count: int) -> range:
        """Return which of so many things, one behind the other, belong to the part."""
        return range((self.number - 1) * count // self.of, self.number * count // self.of)


WHOLE: Final = Shard(1, 1)


def find_parts(folder: Path, before: str = "", after: str = "", *, what: str, fix: str) -> dict[Shard, Path]:
    """Return the files or folders of all parts in a folder, in order.

    Args:
        folder: where they are.
        before: how their names begin, before `shard-I-of-N`.
        after: how they end.
        what: what they are parts of, for messages.
        fix: how they are made.

    Raises:
        UsageError: there are none, parts of two divisions, not all of them, or a name that is none of a part.
    """
    names = {path: path.name[len(before) : len(path.name) - len(after)] for path in sorted(folder.glob("*shard-*"))}
    framed = {path: name for path, name in names.items() if path.name == f"{before}{name}{after}"}
    found = {Shard(int(m[1]), int(m[2])): path for path, name in framed.items() if (m := NAME.fullmatch(name))}
    odd = [path for path, name in framed.items() if LIKE_ONE.fullmatch(name) and path not in found.values()]
    if odd := odd + [path for shard, path in found.items() if shard.number > shard.of]:
        where = ", ".join(map(str, odd[:6]))
        raise UsageError("no name of a part", where=where, fix="remove it, or run the part with --shard I/N")
    divisions = sorted({shard.of for shard in found})
    if len(divisions) != 1:
        problem = f"no parts of {what} here" if not divisions else f"parts of {len(divisions)} divisions are here"
        raise UsageError(problem, where=str(folder), fix=fix if not divisions else "keep those of one")
    every = [Shard(number, divisions[0]) for number in range(1, divisions[0] + 1)]
    if missing := [str(shard) for shard in every if shard not in found]:
        raise UsageError(
            f"{len(missing)} of {len(every)} parts {'is' if len(missing) == 1 else 'are'} missing",
            where=", ".join(missing[:6]),
            fix="run them with --shard",
        )
    return {shard: found[shard] for shard in every}


def check_parts(parts: Mapping[Shard, Path], noted: Mapping[Shard, str | None], *, fix: str) -> None:
    """See that each part is the one that its name says, and not another one that was copied or renamed.

    Args:
        parts: the parts by what their names say.
        noted: what was noted in each when it was made; None where nothing was.
        fix: how parts are made.

    Raises:
        MismatchError: one is another part, or does not say which it is.
    """
    odd = [f"{parts[shard]} {f'is part {said}' if said else 'does not say'}" for shard, said in noted.items()
           if said != str(shard)]  # fmt: skip
    if odd:
        raise MismatchError.of(odd, f"{len(odd)} files are not the parts that their names say", fix=fix)


def require_one(parts: Mapping[Shard, Path], marks: Mapping[Shard, str | None], problem: str, *, fix: str) -> str:
    """Return the mark that all parts share.

    Raises:
        MismatchError: some have another one, or none; the message names them.
    """
    first, *_ = marks.values()
    odd = [str(parts[shard]) for shard, of in marks.items() if of is None or of != first]
    if first is None or odd:
        where = ", ".join(dict.fromkeys([str(next(iter(parts.values()))), *odd[:5]]))
        raise MismatchError(f"the parts {problem}", where=where, fix=fix)
    return first


LONGEST: Final = 300  # letters of what polars says of a file


def check_readable(parts: Sequence[Path], *, fix: str) -> None:
    """See that parts can be read into this process: somebody may have made what ends it, or damaged them.

    Raises:
        ArtifactError: one is no regular file, damaged, or not to be read; parts have different columns.
    """
    from costar_cli.files.sandbox import tried_by  # noqa: PLC0415 - h5py
    from costar_cli.files.tables import is_sealed  # noqa: PLC0415

    if odd := [part for part in parts if not part.is_file()]:
        raise ArtifactError("a part is no regular file", where=_listed(odd), fix=fix)
    if odd := [part for part in parts if not is_sealed(part)]:
        problem = "a part is damaged, or was not made by this version of costar"
        raise ArtifactError(problem, where=_listed(odd), fix=fix)
    together, *one_by_one = (json.dumps([str(part) for part in some]) for some in (parts, *([part] for part in parts)))
    if (said := tried_by(__name__, asked=together)) is not None:
        each = zip(parts, one_by_one, strict=True)
        alone = next((part for part, asked in each if tried_by(__name__, asked=asked) is not None), None)
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


def main() -> int:
    """Read the files that stdin lists as they will be read, write them nowhere, and tell what is wrong with them."""
    import polars as pl  # noqa: PLC0415 - slow to import

    from costar_cli.files.tables import metadata_of, write_together  # noqa: PLC0415 - as polars

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
