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
    from costar_cli.data.table.preprocessing import Preprocessing
    from costar_cli.files import Artifact


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
    rows = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in part.values()] for part in parts]
    session.out.table(["split", *list(parts[0])[1:]], rows, keys=1)
    data = other_than(path, session.workspace.data)
    quick = next_command(session.given, "finetune", "--method", "auto", "--minutes", QUICK_MINUTES, data=data)
    session.out.next(*([then] if then else [quick, next_command(session.given, "pretrain", data=data)]))
    result = {"name": stored.name, "parts": parts, "kept": stored.kept}
    session.out.done(result, status="up_to_date" if current else "done")


def read_like(session: Session, like: Path) -> tuple["Preprocessing", "Artifact"]:
    """Return how the data of a model, or a data set, were read, and the header of its file; say that it is read."""
    from costar_cli.data.table.preprocessing import preprocessing_at

    preprocessing, header = preprocessing_at(like)
    what = "data set" if header.kind == "dataset" else header.kind
    session.tell_read("like", like, header.digest, header.kind, what=what)
    return preprocessing, header


def make_new(
    session: Session,
    out: Path | None,
    build: "Callable[[], Dataset]",
    *,
    like: Path,
    read: tuple["Preprocessing", "Artifact"],
    parents: Mapping[str, str],
    overwrite: bool,
    check: Callable[[], None] | None = None,
) -> None:
    """Make a data set of subjects that are new to a model as `make_dataset` does; `read` is from `read_like`."""
    from costar_cli.data.dataset import LIKE

    preprocessing, header = read
    path, model = out or session.workspace.new, like if header.kind == "model" else None
    asked = ("--subjects", "all", "--origin", "last", "--plan", "plan.json")  # plan.json may say a later origin
    then = next_command(session.given, "whatif", *asked, data=path, model=model)
    if not preprocessing.panel.outcomes:
        then = next_command(session.given, "effect", "--plan", "plans.json", data=path)
    config, parents = {LIKE: preprocessing.digest}, {**parents, "like": header.digest}
    make_dataset(session, path, build, config=config, overwrite=overwrite, parents=parents, then=then, check=check)


def make_source(
    session: Session,
    source: "DataSource",
    out: Path | None,
    *,
    overwrite: bool,
    file: Path | None = None,
    export: Path | None = None,
    like: Path | None = None,
) -> None:
    """Make a data set of the registry as `make_dataset` does, simulated or of a file.

    Args:
        session: the run, with the data set's settings.
        source: the data set's entry.
        out: file to write; None for the workspace's.
        overwrite: replace files made from something else.
        file: what to make it of, where not all is simulated.
        export: where to write the simulated world first, in the form of the real one.
        like: the model, or its data set, to whose subjects those of the file are new.
    """
    from costar_cli.api.data import plan_data
    from costar_cli.data.base import called

    settings, reporter = session.settings[source.settings], session.reporter
    if like is not None and file is not None and source.input is not None and source.input.like is not None:
        read = read_like(session, like)
        kind = source.input
        parents = read_inputs(session, kind.inputs(file), form=kind.form, expected=kind.expected)
        new = partial(called(source.input.like), file, read[0], reporter)
        make_new(session, out, new, like=like, read=read, parents=parents, overwrite=overwrite)
        return
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
