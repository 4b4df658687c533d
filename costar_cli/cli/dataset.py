"""What verbs do with a data set: make it or see that it is up to date, describe it, write it as tables."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costar_cli.api.outputs import check_outputs, check_page, check_places, digest_of
from costar_cli.cli.hints import next_command, other_than
from costar_cli.cli.session import Session, read_kind
from costar_cli.config.choices import FormatName
from costar_cli.errors import CostarError, MismatchError, StorageError
from costar_cli.reporting.output import Output

if TYPE_CHECKING:
    from costar_cli.data import Dataset
    from costar_cli.data.base import DataSource
    from costar_cli.data.report import DataReport
    from costar_cli.files import Artifact
    from costar_cli.inference.overlap import Overlap

__all__ = ["check_described", "make_dataset", "make_source", "read_inputs", "run_export", "run_report"]


def read_inputs(
    session: Session, files: Mapping[str, Path], *, form: str | None = None, expected: str | None = None
) -> dict[str, str]:
    """Return the digest of each input file by its role, and say that it is read.

    Args:
        session: the run.
        files: the files, by role.
        form: what kind of file each is; by its ending, if not given.
        expected: how to put it right where there is no such file.

    Raises:
        DataError: it is a pipe or a device, or missing, and what to do then is known.
        StorageError: a file cannot be read.
    """
    from costar_cli.api.data import digests_of

    digests: dict[str, str] = {}
    for role, path in files.items():
        digests |= digests_of({role: path}, expected)
        session.tell_read(role, path, digests[role], form or path.suffix.lower().removeprefix("."))
    return digests


def make_dataset(
    session: Session,
    out: Path | None,
    build: "Callable[[], Dataset]",
    *,
    config: Mapping[str, Any],
    overwrite: bool,
    parents: Mapping[str, str] | None = None,
    then: str | None = None,
    check: Callable[[], None] | None = None,
) -> None:
    """Make a data set, or see that it is up to date; print what each part holds, and end the verb.

    Args:
        session: the run.
        out: file to write; None for the workspace's.
        build: makes the data set; called only if it is to be made.
        config: settings that make this data set this one.
        overwrite: replace a file made from something else.
        parents: digests of the input files, by role, where there are any.
        then: the command to suggest; `pretrain` by default.
        check: raises where it is soon found that the input files cannot be used.
    """
    path = out or session.workspace.data
    step = session.step("dataset", path, parents=parents or {}, config=config)
    with session.making(step, overwrite=overwrite, check=check) as current:
        from costar_cli.data.store import count_dataset, write_dataset

        if current:
            session.out.up_to_date("dataset", path, current.digest)
        else:
            dataset = replace(build(), fingerprint=step.fingerprint, parents=step.parents)
            for one in session.inputs:
                if one.digest:
                    session.require_same(one.path, digest_of(one.path))
            made = write_dataset(path, dataset, overwrite=overwrite)
            session.out.wrote("dataset", path, made.digest)
    stored = count_dataset(path)
    names = list(dict.fromkeys(name for part in stored.parts for name in part.queries))
    parts = [
        {"part": str(part.part), "subjects": part.subjects, "steps": part.steps}
        | {name: part.queries.get(name) for name in names}
        for part in stored.parts
    ]
    session.out.table(list(parts[0]), [list(part.values()) for part in parts], keys=1)
    pretrain = next_command(session.given, "pretrain", data=other_than(path, session.workspace.data))
    session.out.next(then or pretrain)
    result = {"name": stored.name, "parts": parts, "kept": stored.kept}
    session.out.done(result, status="up_to_date" if current else "done")


def make_source(
    session: Session,
    source: "DataSource",
    out: Path | None,
    *,
    overwrite: bool,
    file: Path | None = None,
    export: Path | None = None,
) -> None:
    """Make a data set of the registry as `make_dataset` does, simulated or of a file.

    Args:
        session: the run, with the data set's settings.
        source: the data set's entry.
        out: file to write; None for the workspace's.
        overwrite: replace files made from something else.
        file: what to make it of, where not all is simulated.
        export: where to write the simulated world first, in the form of the real one.
    """
    from costar_cli.api.data import plan_data
    from costar_cli.data.base import called

    settings, reporter = session.settings[source.settings], session.reporter
    plan, parents = plan_data(source, settings, file, reporter), {}
    build = plan.build
    if file is not None and source.input is not None:
        parents = read_inputs(session, plan.files, form=source.input.form, expected=source.input.expected)
    elif export is not None and source.export is not None and source.make is not None:
        to = None if export.is_dir() else export
        check_places([("--out", out or session.workspace.data), ("--export", to)], read=session.read_by())
        called(source.export.check)(export, overwrite=overwrite)
        world = called(source.export.world)(settings, reporter)
        for role, path in called(source.export.write)(export, world, reporter).items():
            session.out.wrote(role, path, kind=source.export.form)
        build = partial(called(source.make), settings, reporter, world)
    make_dataset(session, out, build, config=plan.config, overwrite=overwrite, parents=parents)


TERMINAL = Path("-")


def run_report(out: Output, file: Path, target: Path) -> dict[str, Any]:
    """Describe a data set in tables on stdout (`-`), or in a page; return the numbers."""
    from costar_cli.data.report import describe_dataset
    from costar_cli.inference.overlap import describe_overlap

    dataset = _dataset(file)
    report, overlap = describe_dataset(dataset), describe_overlap(dataset)
    if target == TERMINAL:
        _show(out, report, overlap)
    else:
        from costar_cli.files import write_bytes
        from costar_cli.report.pages import report_page

        write_bytes(target, report_page(report, overlap).encode())
        out.wrote("report", target, kind="html")
    return {**report.to_json(), "overlap": overlap.to_json()}


def check_described(
    file: Path, kind: str, report: Path | None, export: Path | None, form: FormatName, *, overwrite: bool
) -> None:
    """See, before any work, that the page and the tables about a file can be written, and replace nothing.

    Raises:
        ArtifactError: tables are asked for of what is no data set.
        MismatchError: an output is the file, or what it was made from, or exists and may not be replaced.
        StorageError: an output is no regular file, or the folder of the page does not exist, or that of tables is none.
        UsageError: the page and a table have the same name.
    """
    page, tables = None if report == TERMINAL else report, list[tuple[str, Path]]()
    if export is not None:
        from costar_cli.data.table.export import export_files

        scores = "an evaluation holds scores alone: `costar evaluate --predictions FILE` writes what they are of"
        header = read_kind("dataset", file, fix=scores if kind == "evaluation" else "")
        if export.exists() and not export.is_dir():
            raise StorageError(f"`{export}` is no folder", where="--export", fix="choose another name")
        files = export_files(export, form)
        if _is_schema_of(header, files["schema"]):
            problem = f"`{files['schema']}` is the schema behind the data set that is read"
            raise MismatchError(problem, where="--export", fix="choose another folder")
        tables = [("--export", path) for path in files.values()]
    read = [("data set" if kind == "dataset" else kind, file)]
    check_places([("--report", page), *tables], read=read)
    there = [(flag, path) for flag, path in tables if path.exists()]  # the folder of the others may be made
    check_outputs([("--report", page), *there], read=(), overwrite=overwrite)
    check_page(page, flag="--report")


def _is_schema_of(header: "Artifact", path: Path) -> bool:
    """Return whether a file says, in whatever words, what the schema said by which a table became a data set."""
    from costar_cli.data.table import table_config
    from costar_cli.data.table.schema_file import read_schema

    config = header.meta.get("config")
    if not isinstance(config, Mapping) or not path.is_file():
        return False
    with suppress(CostarError, OSError):
        said = table_config(read_schema(path, accept_guesses=True), None)
        return said.items() <= config.items()
    return False


def run_export(out: Output, file: Path, folder: Path, form: FormatName, *, overwrite: bool) -> list[str]:
    """Write a data set as tables with a schema that reads them back; return the paths."""
    from costar_cli.data.table.export import export_dataset

    paths = export_dataset(_dataset(file), folder, form, overwrite=overwrite)
    for path in paths:
        out.wrote(path.stem, path, kind=path.suffix.removeprefix("."))
    known = [path for path in paths if path.stem == "queries"]
    schema = next(path for path in paths if path.stem == "schema")
    out.next(next_command({}, "ingest table", str(paths[0]), schema=schema, queries=known))
    return [str(path) for path in paths]


def _dataset(file: Path) -> "Dataset":
    from costar_cli.data.store import read_dataset

    read_kind("dataset", file)
    return read_dataset(file, truth=False)


def _show(out: Output, report: "DataReport", overlap: "Overlap") -> None:
    from costar_cli.report.pages import report_tables

    for i, table in enumerate(report_tables(report, overlap)):
        out.text(*[""] * bool(i))
        out.table(table.headers, table.rows, title=table.title)
    if report.findings:
        out.text("")
        rows = [[finding.severity, str(finding)] for finding in report.findings]
        out.table(["findings", ""], rows)
