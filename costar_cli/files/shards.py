"""Parts of a piece of work for arrays of jobs: part I of N, where it writes, and where all of them are."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from costar_cli.errors import MismatchError, UsageError

__all__ = ["Shard", "check_parts", "find_parts"]

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
