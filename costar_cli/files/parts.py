"""What parts of a computation leave for the whole: arrays in a file each, which the command that ends it reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from costar_cli.errors import ArtifactError, MismatchError
from costar_cli.files.read import Artifact, read_artifact, read_header
from costar_cli.files.shards import Shard, check_parts, find_parts, require_one
from costar_cli.files.write import write_artifact

SUFFIX: Final = ".h5"
FIX: Final = "run the same command with --shard I/N, and --overwrite where a file is in its place"


def part_path(whole: Path, shard: Shard) -> Path:
    """Return the file of a part of what becomes `whole`: `effects.shard-2-of-8.h5` of `effects.csv`."""
    return shard.beside(whole).with_suffix(SUFFIX)


def is_made(whole: Path, shard: Shard, question: str, *, overwrite: bool) -> bool:
    """Whether a part is there already; a job that is run again does nothing then.

    Raises:
        MismatchError: something else is in its place, and may not be replaced.
    """
    path = part_path(whole, shard)
    if overwrite or not path.exists():
        return False
    try:
        meta = read_header(path).meta
    except ArtifactError:
        meta = {}
    if (meta.get("fingerprint"), meta.get("shard")) != (question, str(shard)):
        problem = "the output exists, and is no part of this question"
        raise MismatchError(problem, where=str(path), fix="use --overwrite to replace it, or choose another name")
    return True


def write_part(
    whole: Path,
    shard: Shard,
    question: str,
    arrays: Mapping[str, NDArray[Any]],
    meta: Mapping[str, Any],
    parents: Mapping[str, str],
) -> Artifact:
    """Write what a part made; `question` is the fingerprint that all parts of the whole share.

    Raises:
        StorageError: the folder is read-only or full.
    """
    facts = {**meta, "shard": str(shard), "fingerprint": question}
    path = part_path(whole, shard)
    return write_artifact(path, kind="part", arrays=arrays, meta=facts, parents=parents, overwrite=True)


def read_parts(whole: Path, question: str) -> list[Artifact]:
    """Return all parts of a question, in order.

    Raises:
        UsageError: not all are there.
        ArtifactError: one is damaged, or no part.
        MismatchError: one is of another question, or not the part that its name says.
    """
    paths = find_parts(whole.parent, f"{whole.stem}.", SUFFIX, what=f"`{whole.name}`", fix=FIX)
    parts = {shard: read_artifact(path, kind="part") for shard, path in paths.items()}
    marks = {shard: str(part.meta["fingerprint"]) for shard, part in parts.items()}
    fix = "make all parts, and the whole, with the same data, models, plans and options"
    made = require_one(paths, marks, "do not answer one question", fix=fix)
    if made != question:
        raise MismatchError("the parts answer another question", where=str(next(iter(paths.values()))), fix=fix)
    check_parts(paths, {shard: str(part.meta["shard"]) for shard, part in parts.items()}, fix=FIX)
    return list(parts.values())
