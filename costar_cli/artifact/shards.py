"""Parts of a piece of work for arrays of jobs: part I of N, where it writes, and tables of parts as one."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from costar_cli.artifact.tables import QUESTION, question_of, table_file
from costar_cli.errors import MismatchError, UsageError

__all__ = ["Shard", "find_parts", "merge_tables"]

NAME: Final = re.compile(r"shard-(\d+)-of-(\d+)")


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
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
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


def find_parts(folder: Path, before: str = "", after: str = "", *, what: str, fix: str) -> list[Path]:
    """Return the files or folders of all parts in a folder, in order.

    Args:
        folder: where they are.
        before: how their names begin, before `shard-I-of-N`.
        after: how they end.
        what: what they are parts of, for messages.
        fix: how they are made.

    Raises:
        UsageError: there are none, parts of two divisions, or not all of them.
    """
    names = {path: path.name[len(before) : len(path.name) - len(after)] for path in folder.glob("*shard-*")}
    framed = {path: name for path, name in names.items() if path.name == f"{before}{name}{after}"}
    found = {(int(m[2]), int(m[1])): path for path, name in framed.items() if (m := NAME.fullmatch(name))}
    divisions = sorted({of for of, _ in found})
    if len(divisions) != 1:
        problem = f"no parts of {what} here" if not divisions else f"parts of {len(divisions)} divisions are here"
        raise UsageError(problem, where=str(folder), fix=fix if not divisions else "keep those of one")
    (of,) = divisions
    missing = [str(Shard(number, of)) for number in range(1, of + 1) if (of, number) not in found]
    if missing:
        raise UsageError(
            f"{len(missing)} of {of} parts are missing", where=", ".join(missing[:6]), fix="run them with --shard"
        )
    return [found[of, number] for number in range(1, of + 1)]


def merge_tables(path: Path) -> Sequence[Path]:
    """Write the rows of all parts of a Parquet table, part behind part, to `path`; return the parts.

    They are scanned, not held in memory. Nothing is written where `path` has these answers already; none is returned.

    Raises:
        UsageError: not all parts are there.
        MismatchError: they answer different questions, or are not costar's; another table is at `path`.
        StorageError: the folder is read-only or full.
    """
    fix = f"`costar whatif --subjects ... --shard I/N --csv {path}` makes them"
    parts = find_parts(path.parent, f"{path.stem}.", path.suffix, what=f"`{path.name}`", fix=fix)
    asked = [question_of(part) for part in parts]
    if odd := [part for part, question in zip(parts, asked, strict=True) if question is None or question != asked[0]]:
        raise MismatchError(
            "the parts do not answer one question",
            where=", ".join(map(str, dict.fromkeys([parts[0], *odd[:5]]))),
            fix="make all parts with the same data, models, plans and options",
        )
    if path.exists():
        if question_of(path) == asked[0]:
            return []
        raise MismatchError(f"`{path}` exists, and is another table", where=str(path), fix="remove it")
    with table_file(path, metadata={QUESTION: str(asked[0])}) as table:
        for part in parts:
            table.take(part)
    return parts
