"""Parts of a benchmark for arrays of jobs: each makes some jobs in a folder of its own, and all are merged."""

import json
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from costar_cli.cli.benchmarking.cost_log import CostLog
from costar_cli.cli.workspace import Workspace
from costar_cli.errors import MismatchError
from costar_cli.files import read_header, verify_artifact, write_bytes
from costar_cli.files.shards import Shard, check_parts, find_parts

NOTE: Final = "part.json"  # of a part's folder: which part it is, whatever the folder is called


def note_shard(folder: Path, shard: Shard) -> None:
    """Write down in a part's folder which part it is, unless it says so.

    Raises:
        StorageError: the disk is full or read-only.
    """
    if _noted(folder) != str(shard):
        Workspace(folder).make()
        write_bytes(folder / NOTE, (json.dumps({"shard": str(shard)}) + "\n").encode())


def _noted(folder: Path) -> str | None:
    """Return which part a folder is, None where it does not say."""
    path = folder / NOTE
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        if path.is_file():
            return str(json.loads(path.read_bytes())["shard"])
    return None


def merge_shards(folder: Path) -> list[Path]:
    """Bring the artifacts and times of all parts into the benchmark's folder; return the files that were copied.

    What several parts have made alike, data and encoders, is there once.

    Raises:
        UsageError: there are no parts, parts of two divisions, or not all of them.
        MismatchError: a part is not the one that its folder's name says, or a file differs between parts, or from the
            one in the folder; nothing is copied then.
        ArtifactError: what a part made is damaged; nothing is copied then.
        LockedError: another process works in the benchmark's folder, or still makes a part.
    """
    made = "`costar benchmark ... --shard I/N --folder FOLDER` makes them"
    shards = find_parts(folder, what="a benchmark", fix=made)
    parts = list(shards.values())
    found: dict[Path, tuple[Path, str]] = {}
    with ExitStack() as held:
        for place in (folder, *parts):
            held.enter_context(Workspace(place).lock())
        check_parts(shards, {shard: _noted(part) for shard, part in shards.items()}, fix=made)
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
            verify_artifact(found[target][0])
        for target in copied:
            Workspace(target.parent).make()
            write_bytes(target, found[target][0].read_bytes())
        cost_log = CostLog(folder / "ledger.json")
        for part in parts:
            cost_log.adopt(CostLog(part / "ledger.json"))
    return copied
