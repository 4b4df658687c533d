"""The body of `costar merge` for answers and evaluations: the parts of a table, or of what was scored, as one."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costar_cli.artifact import read_header
from costar_cli.artifact.parts import check_readable, unchanged
from costar_cli.artifact.seals import is_sealed
from costar_cli.artifact.shards import check_parts, find_parts
from costar_cli.artifact.tables import QUESTION, SHARD, metadata_of, table_file
from costar_cli.errors import ArtifactError, MismatchError
from costar_cli.outputs import check_places

if TYPE_CHECKING:
    from costar_cli.reporting import Reporter

__all__ = ["merge_answers", "merge_evaluation"]


def merge_answers(path: Path) -> Sequence[Path]:
    """Write the rows of all parts of a Parquet table, part behind part, to `path`; return the parts.

    They are scanned, not held in memory. Nothing is written where `path` has these answers already; none is returned.

    Raises:
        UsageError: not all parts are there.
        ArtifactError: a part is no regular file, damaged, or cannot be read.
        MismatchError: a part is not the one that its name says; they answer different questions, or are not costar's;
            another table is at `path`; a part was replaced while it was read.
        StorageError: the folder is read-only or full, or `path` is no regular file.
    """
    fix = f"`costar whatif --subjects ... --shard I/N --csv {path}`, or `costar evaluate --predictions`, makes them"
    parts = find_parts(path.parent, f"{path.stem}.", path.suffix, what=f"`{path.name}`", fix=fix)
    check_places([("WHOLE", path)], read=[("part", part) for part in parts.values()])
    with unchanged(list(parts.values())) as check:
        check_readable(list(parts.values()), fix=fix)
        noted = {shard: metadata_of(part) for shard, part in parts.items()}
        asked = {shard: facts.get(QUESTION) for shard, facts in noted.items()}
        question, *_ = asked.values()
        if odd := [parts[shard] for shard, said in asked.items() if said is None or said != question]:
            raise MismatchError(
                "the parts do not answer one question",
                where=", ".join(map(str, dict.fromkeys([*list(parts.values())[:1], *odd[:5]]))),
                fix="make all parts with the same data, models, plans and options",
            )
        check_parts(parts, {shard: facts.get(SHARD) for shard, facts in noted.items()}, fix=fix)
        if path.exists():
            known = metadata_of(path) if is_sealed(path) else {}
            if known.get(QUESTION) == question and SHARD not in known:
                return []
            raise MismatchError(f"`{path}` exists, and is another table or damaged", where=str(path), fix="remove it")
        with table_file(path, metadata={QUESTION: str(question)}, check=check) as table:
            for part in parts.values():
                table.take(part)
    return list(parts.values())


def merge_evaluation(path: Path, reporter: "Reporter") -> Sequence[Path]:
    """Write the evaluation that all parts of the test subjects make to `path`; return the parts.

    Nothing is written where `path` is this evaluation already; none is returned.

    Raises:
        UsageError: not all parts are there.
        ArtifactError: a part is damaged, incomplete, or none of an evaluation.
        MismatchError: a part is not the one that its name says; they are of different evaluations; something else is
            at `path`.
        StorageError: the folder is read-only or full, or `path` is no regular file.
    """
    from costar_cli.evaluate.parts import join_parts, read_part
    from costar_cli.evaluate.store import write_evaluation

    fix = "`costar evaluate --shard I/N` makes them"
    paths = find_parts(path.parent, f"{path.stem}.", path.suffix, what=f"`{path.name}`", fix=fix)
    check_places([("WHOLE", path)], read=[("part", part) for part in paths.values()])
    parts = {shard: read_part(part) for shard, part in paths.items()}
    first, *_ = parts.values()
    if odd := [str(paths[shard]) for shard, part in parts.items() if part.fingerprint != first.fingerprint]:
        raise MismatchError(
            "the parts are not of one evaluation",
            where=", ".join(dict.fromkeys([str(next(iter(paths.values()))), *odd[:5]])),
            fix="make all parts with the same data, models and options",
        )
    check_parts(paths, {shard: part.shard for shard, part in parts.items()}, fix=fix)
    if path.exists():
        if _is_made(path, first.fingerprint):
            return []
        raise MismatchError(f"`{path}` exists, and is another file or damaged", where=str(path), fix="remove it")
    report = join_parts({paths[shard]: part for shard, part in parts.items()}, reporter)
    told: Any = {"parents": first.parents, "fingerprint": first.fingerprint, "config": first.config}
    write_evaluation(path, report, **told)
    return list(paths.values())


def _is_made(path: Path, fingerprint: str) -> bool:
    try:
        header = read_header(path)
    except ArtifactError:
        return False
    return header.kind == "evaluation" and header.meta.get("fingerprint") == fingerprint
