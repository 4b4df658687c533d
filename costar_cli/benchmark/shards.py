"""Parts of a benchmark for arrays of jobs: each makes some cells in a folder of its own, and all are merged."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from costar_cli.artifact import read_header, write_bytes
from costar_cli.benchmark.cells import Cell
from costar_cli.benchmark.ledger import Ledger
from costar_cli.errors import MismatchError, UsageError
from costar_cli.workspace import Workspace

__all__ = ["Shard", "merge_shards"]

FOLDER = re.compile(r"shard-(\d+)-of-(\d+)")


@dataclass(frozen=True)
class Shard:
    """Part `number` of `of`, from 1: every `of`-th pair of a data set and a method, with what these are made from."""

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
            raise UsageError(f"no part of a benchmark: {text!r}", where="--shard", fix="give `I/N`, I from 1 to N")
        return cls(int(found[1]), int(found[2]))

    @property
    def folder(self) -> str:
        """Return the name of the part's folder in that of the benchmark."""
        return f"shard-{self.number}-of-{self.of}"

    def cells(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the part's cells of a benchmark, in order."""
        pairs = list(dict.fromkeys((cell.seed, cell.contender) for cell in cells if cell.is_scored))
        own = set(pairs[self.number - 1 :: self.of])
        needed = {
            need for cell in cells if (cell.seed, cell.contender) in own and cell.is_scored for need in cell.needs
        }
        needed |= {need for cell in cells if cell.key in needed for need in cell.needs}
        return [cell for cell in cells if cell.key in needed or ((cell.seed, cell.contender) in own and cell.is_scored)]


def merge_shards(folder: Path) -> list[Path]:
    """Bring the artifacts and times of all parts into the benchmark's folder; return the files that were copied.

    What several parts have made alike, data and encoders, is there once.

    Raises:
        UsageError: there are no parts, parts of two divisions, or not all of them.
        MismatchError: a file differs between parts, or from the one in the folder; nothing is copied then.
        LockedError: another process works in the benchmark's folder.
    """
    parts = _parts(folder)
    found: dict[Path, tuple[Path, str]] = {}
    with Workspace(folder).lock():
        places = [folder, *parts]
        for path in (path for place in places for path in sorted(place.glob("seed-*/*.h5"))):
            place = next(one for one in reversed(places) if path.is_relative_to(one))
            target, digest = folder / path.relative_to(place), read_header(path).digest
            first, known = found.setdefault(target, (path, digest))
            if known != digest:
                raise MismatchError(
                    f"two parts made {target.name} differently",
                    where=f"{first}, {path}",
                    fix="run all parts with the same settings, costar and kind of machine",
                )
        copied = [target for target, (path, _) in found.items() if path != target]
        for target in copied:
            Workspace(target.parent).make()
            write_bytes(target, found[target][0].read_bytes())
        ledger = Ledger(folder / "ledger.json")
        for part in parts:
            ledger.adopt(Ledger(part / "ledger.json"))
    return copied


def _parts(folder: Path) -> list[Path]:
    """Return the folders of all parts, in order."""
    found = {(int(m[2]), int(m[1])): path for path in folder.glob("shard-*") if (m := FOLDER.fullmatch(path.name))}
    divisions = sorted({of for of, _ in found})
    if len(divisions) != 1:
        what = "no parts of a benchmark here" if not divisions else f"parts of {len(divisions)} divisions are here"
        fix = "`costar benchmark ... --shard I/N --folder FOLDER` makes them" if not divisions else "keep those of one"
        raise UsageError(what, where=str(folder), fix=fix)
    (of,) = divisions
    missing = [f"{number}/{of}" for number in range(1, of + 1) if (of, number) not in found]
    if missing:
        raise UsageError(
            f"{len(missing)} of {of} parts are missing", where=", ".join(missing[:6]), fix="run them with --shard"
        )
    return [found[of, number] for number in range(1, of + 1)]
