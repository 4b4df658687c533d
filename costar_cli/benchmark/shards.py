"""Parts of a benchmark for arrays of jobs: each makes some cells in a folder of its own, and all are merged."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from costar_cli.artifact import read_header, write_bytes
from costar_cli.artifact.shards import Shard, find_parts
from costar_cli.benchmark.cells import Cell
from costar_cli.benchmark.ledger import Ledger
from costar_cli.errors import MismatchError
from costar_cli.workspace import Workspace

__all__ = ["cells_of", "merge_shards"]


def cells_of(shard: Shard, cells: Sequence[Cell]) -> list[Cell]:
    """Return a part's cells of a benchmark, in order: every N-th pair of data and method, with its needs."""
    pairs = list(dict.fromkeys((cell.seed, cell.contender) for cell in cells if cell.is_scored))
    own = set(pairs[shard.number - 1 :: shard.of])
    needed = {need for cell in cells if (cell.seed, cell.contender) in own and cell.is_scored for need in cell.needs}
    needed |= {need for cell in cells if cell.key in needed for need in cell.needs}
    return [cell for cell in cells if cell.key in needed or ((cell.seed, cell.contender) in own and cell.is_scored)]


def merge_shards(folder: Path) -> list[Path]:
    """Bring the artifacts and times of all parts into the benchmark's folder; return the files that were copied.

    What several parts have made alike, data and encoders, is there once.

    Raises:
        UsageError: there are no parts, parts of two divisions, or not all of them.
        MismatchError: a file differs between parts, or from the one in the folder; nothing is copied then.
        LockedError: another process works in the benchmark's folder, or still makes a part.
    """
    made = "`costar benchmark ... --shard I/N --folder FOLDER` makes them"
    parts = find_parts(folder, what="a benchmark", fix=made)
    found: dict[Path, tuple[Path, str]] = {}
    with ExitStack() as held:
        for place in (folder, *parts):
            held.enter_context(Workspace(place).lock())
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
