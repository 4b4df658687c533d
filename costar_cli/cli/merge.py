"""`costar merge`: the parts of a benchmark, or of a table of answers, as one."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costar_cli.api.outputs import check_places
from costar_cli.cli.options import JsonFlag, QuietFlag
from costar_cli.cli.session import open_output
from costar_cli.errors import ArtifactError, MismatchError, UsageError
from costar_cli.reporting.progress import OutputReporter

if TYPE_CHECKING:
    from costar_cli.files.shards import Shard
    from costar_cli.reporting import Reporter


def merge(
    ctx: typer.Context,
    whole: Annotated[
        Path,
        typer.Argument(metavar="WHOLE", help="Folder of a benchmark, FILE.parquet of answers, or an evaluation's file"),
    ],
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Bring together the parts that `costar benchmark`, `evaluate` or `whatif` made with --shard I/N.

    The same benchmark without --shard then finds its cells, and writes the tables. Parts of answers, such as
    answers.shard-1-of-8.parquet, become one file; so do those of an evaluation, which the same `costar evaluate`
    without --shard then shows and draws.
    """
    out = open_output(ctx, json=json, quiet=quiet)
    if whole.suffix.lower() == ".parquet" and not whole.is_dir():
        merged, place = merge_answers(whole), "file"
    elif whole.suffix.lower() == ".h5" and not whole.is_dir():
        merged, place = merge_evaluation(whole, OutputReporter(out)), "file"
    elif whole.is_file():
        fix = "give the folder of a benchmark, FILE.parquet of answers, or an evaluation's FILE.h5"
        fix += "; averages and effects are merged by their own command with --merge"
        raise UsageError("files of this kind have no parts", where=str(whole), fix=fix)
    else:
        from costar_cli.cli.benchmarking.cost_log import merge_shards

        merged, place = merge_shards(whole), "folder"
    out.text(f"{len(merged)} files merged into {whole}")
    out.done({place: str(whole), "merged": [str(path) for path in merged]}, status="done" if merged else "up_to_date")


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
    from costar_cli.files.shards import check_parts, check_readable, require_one, unchanged
    from costar_cli.files.tables import QUESTION, SHARD, is_sealed, metadata_of, table_file

    fix = f"`costar whatif --subjects ... --shard I/N --csv {path}`, or `costar evaluate --predictions`, makes them"
    parts = _parts_of(path, fix)
    with unchanged(list(parts.values())) as check:
        check_readable(list(parts.values()), fix=fix)
        noted = {shard: metadata_of(part) for shard, part in parts.items()}
        asked = {shard: facts.get(QUESTION) for shard, facts in noted.items()}
        fix_all = "make all parts with the same data, models, plans and options"
        question = require_one(parts, asked, "do not answer one question", fix=fix_all)
        check_parts(parts, {shard: facts.get(SHARD) for shard, facts in noted.items()}, fix=fix)
        if path.exists():
            facts = metadata_of(path) if is_sealed(path) else {}
            _require_whole(path, SHARD not in facts and facts.get(QUESTION) == question, "table")
            return []
        with table_file(path, metadata={QUESTION: question}, check=check) as table:
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
    from costar_cli.evaluation.report import write_evaluation
    from costar_cli.evaluation.scores import Scores
    from costar_cli.files import read_header
    from costar_cli.files.shards import check_parts, require_one

    fix = "`costar evaluate --shard I/N` makes them"
    paths = _parts_of(path, fix)
    parts = {shard: Scores.read(part) for shard, part in paths.items()}
    made = {shard: str(part.whole["fingerprint"]) for shard, part in parts.items()}
    fix_all = "make all parts with the same data, models and options"
    fingerprint = require_one(paths, made, "are not of one evaluation", fix=fix_all)
    check_parts(paths, {shard: part.shard for shard, part in parts.items()}, fix=fix)
    if path.exists():
        there = None
        with suppress(ArtifactError):
            header = read_header(path)
            there = str(header.meta.get("fingerprint")) if header.kind == "evaluation" else None
        _require_whole(path, there == fingerprint, "file")
        return []
    first, *_ = parts.values()
    report = Scores.merge({paths[shard]: part for shard, part in parts.items()}, reporter)
    told: Any = {"parents": first.parents, "fingerprint": fingerprint, "config": first.whole["config"]}
    write_evaluation(path, report, **told)
    return list(paths.values())


def _parts_of(path: Path, fix: str) -> "Mapping[Shard, Path]":
    from costar_cli.files.shards import find_parts

    parts = find_parts(path.parent, f"{path.stem}.", path.suffix, what=f"`{path.name}`", fix=fix)
    check_places([("WHOLE", path)], read=[("part", part) for part in parts.values()])
    return parts


def _require_whole(path: Path, is_whole: bool, what: str) -> None:
    """Raise a `MismatchError` where something else has the name of the whole."""
    if not is_whole:
        raise MismatchError(f"`{path}` exists, and is another {what} or damaged", where=str(path), fix="remove it")
