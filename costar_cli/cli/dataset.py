"""How verbs make a data set, or see that it is up to date."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from costar_cli.api.outputs import check_places, digest_of
from costar_cli.cli.hints import next_command, other_than
from costar_cli.cli.session import Session

QUICK_MINUTES: Final = "2"

if TYPE_CHECKING:
    from costar_cli.data import Dataset
    from costar_cli.data.base import DataSource


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
        then: the command to suggest; by default the quickest model that is worth having, and COSTAR's first step.
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
    data = other_than(path, session.workspace.data)
    quick = next_command(session.given, "finetune", "--method", "auto", "--minutes", QUICK_MINUTES, data=data)
    session.out.next(*([then] if then else [quick, next_command(session.given, "pretrain", data=data)]))
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
