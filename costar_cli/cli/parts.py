"""Parts of averages and effects: which are made or read, beside the table that all of them become."""

from pathlib import Path
from typing import TYPE_CHECKING

from costar_cli.api.outputs import Files, check_outputs
from costar_cli.cli.session import Session
from costar_cli.errors import UsageError

if TYPE_CHECKING:
    from costar_cli.files.shards import Shard


def check_whole(shard: "Shard | None", whole: Path | None, figures: Files, *, merge: bool) -> None:
    """See that parts have a name, and that a part draws nothing.

    Raises:
        UsageError: a part is to be made and all to be read at once, the table has no name, or a part has a figure.
    """
    flag = "--merge" if merge else "--shard"
    if shard is not None and merge:
        raise UsageError("both --shard and --merge are given", where="--merge", fix="make all parts, then give --merge")
    if (shard is not None or merge) and whole is None:
        raise UsageError("parts are called like the table of all", where=flag, fix="name it with --csv FILE")
    if shard is not None and (drawn := [name for name, path in figures if path is not None]):
        fix = f"leave out {drawn[0]}, and give it with --merge"
        raise UsageError(f"{drawn[0]} shows all parts", where=drawn[0], fix=fix)


def check_part(shard: "Shard", whole: Path, read: Files) -> None:
    """See that the file of a part can be written; whether it may be replaced depends on what it holds.

    Raises:
        StorageError: a folder does not exist, or the file is no regular one.
        MismatchError: it is read.
    """
    from costar_cli.files.parts import part_path

    check_outputs([("--csv", part_path(whole, shard))], read=read, overwrite=True)


def end_part(session: Session, shard: "Shard", whole: Path, *, made: bool) -> None:
    """Say which file a part is, or that it was there already, and what comes after all parts."""
    from costar_cli.files import read_header
    from costar_cli.files.parts import part_path

    path = part_path(whole, shard)
    digest = read_header(path).digest
    if made:
        session.out.wrote("part", path, digest)
    else:
        session.out.up_to_date("part", path, digest)
    session.out.note("once all parts are there, the same command ends with --merge in place of --shard")
    session.out.done({"shard": str(shard), "whole": str(whole)}, status="done" if made else "up_to_date")
