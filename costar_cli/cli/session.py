"""What every verb does before and after its work: settings, inputs, lock, "up to date", and what to say."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer

from costar_cli.api.outputs import check_artifact_name, check_places
from costar_cli.cli import options
from costar_cli.cli.workspace import DEFAULT_WORKSPACE, Workspace
from costar_cli.config.choices import ExperimentName, PresetName
from costar_cli.config.nearest import nearest
from costar_cli.errors import ArtifactError, CostarError, MismatchError, StorageError
from costar_cli.reporting import launched
from costar_cli.reporting.output import Output
from costar_cli.reporting.progress import OutputReporter

if TYPE_CHECKING:
    from costar_cli.config.models import Config
    from costar_cli.data import Dataset
    from costar_cli.files import Artifact
    from costar_cli.settings.resolve import Settings

    Flags = Mapping[type[Config], Mapping[str, object]]

NOTHING: Final["Flags"] = MappingProxyType({})
RUNTIME: Final = ("device", "precision", "threads", "group", "max_memory")  # flags of verbs that train
CARRIED: Final = ("workspace", "preset", "config")  # what a later verb has to be told again
MADE_BY: Final[Mapping[str, str]] = {
    "dataset": "`costar simulate` or `costar ingest` makes one",
    "encoder": "`costar pretrain` makes one, or train `--from scratch`",
    "model": "`costar finetune` makes one",
}


def open_output(
    ctx: typer.Context, *, json: bool, quiet: bool = False, show: str | None = None, workspace: Path | None = None
) -> Output:
    """Return the run's sink, told which verb runs and how it shall speak."""
    out = ctx.obj if isinstance(ctx.obj, Output) else Output()
    verb = ctx.command_path.partition(" ")[2]
    out.begin(verb, json=json, quiet=quiet, show=options.topics_of(verb, show), workspace=workspace)
    return out


def open_session(
    ctx: typer.Context,
    flags: "Flags",
    *,
    workspace: Path,
    json: bool,
    quiet: bool,
    show: str | None = None,
    preset: PresetName | None = None,
    config: Path | None = None,
    data: Path | None = None,
) -> "Session":
    """Resolve the settings of a verb and return everything that its body needs.

    Where the verb works on a data set, `data` names its file: what a preset means depends on the data set.

    Raises:
        UsageError: settings that are not valid, all of them at once.
    """
    out = open_output(ctx, json=json, quiet=quiet, show=show, workspace=workspace)
    name = None
    if data is not None and data.exists():
        from costar_cli.files import read_header

        with suppress(CostarError, OSError):  # whatever is wrong with it is said where it is read
            name = read_header(data).meta.get("name")
    dataset = name if isinstance(name, str) else None
    settings = open_settings(out, flags, preset=preset, config=config, dataset=dataset)
    place = Workspace(workspace, held=bool(launched("RANK")))
    session = Session(out, place, settings, OutputReporter(out).watch(), repeated_flags(ctx))
    if config is not None:
        session.inputs.append(Input("configuration", config))
    return session


def open_settings(
    out: Output, flags: "Flags", *, preset: PresetName | None, config: Path | None, dataset: str | None,
    protocol: ExperimentName | None = None,
) -> "Settings":  # fmt: skip
    """Resolve the settings of a verb, pass on what is to be said of them, and record them.

    Raises:
        UsageError: settings that are not valid, all of them at once.
    """
    from costar_cli.settings.resolve import resolve

    settings = resolve(flags, preset=preset, file=config, environ=os.environ, dataset=dataset, protocol=protocol)
    for warning in settings.warnings:
        out.say(warning)
    out.config(settings.describe(flags))
    return settings


def repeated_flags(ctx: typer.Context) -> dict[str, str]:
    """Return what of `CARRIED` was given as a flag; what the environment says, it says to later verbs too."""
    sources = {name: ctx.get_parameter_source(name) for name in CARRIED}
    typed = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    return {name: str(ctx.params[name]) for name in typed}


class Input(NamedTuple):
    """A file that a verb reads, which it never replaces: what it is, and its digest if that makes what it is for."""

    what: str
    path: Path
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class RunFlags:
    """The flags of every verb that asks models and trains nothing."""

    workspace: options.WorkspaceOpt = DEFAULT_WORKSPACE
    config: options.ConfigFileOpt = None
    device: options.DeviceOpt = None
    threads: options.ThreadsOpt = None
    json: options.JsonFlag = False
    quiet: options.QuietFlag = False
    show: options.ShowOpt = None

    def open(self, ctx: typer.Context, more: "Flags" = NOTHING) -> "Session":
        """Return the session of the verb; `more` are flags of its own settings."""
        from costar_cli.config.models import RuntimeConfig

        flags: Flags = {**more, RuntimeConfig: {"device": self.device, "threads": self.threads}}
        return open_session(
            ctx, flags, workspace=self.workspace, json=self.json, quiet=self.quiet, show=self.show,
            config=self.config,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FitFlags(RunFlags):
    """The flags of every verb that trains models."""

    overwrite: options.OverwriteFlag = False
    preset: options.PresetOpt = None
    seed: options.SeedOpt = None
    precision: options.PrecisionOpt = None
    group: options.GroupOpt = None
    max_memory: options.MemoryOpt = None


@dataclass(frozen=True, kw_only=True)
class TrainingFlags(FitFlags):
    """The flags of the two verbs that train one model."""

    log: options.LogOpt = None
    fresh: options.FreshFlag = False
    members: options.MembersOpt = None
    epochs: options.EpochsOpt = None
    patience: options.PatienceOpt = None
    batch_size: options.BatchSizeOpt = None
    learning_rate: options.LearningRateOpt = None

    def start(self, ctx: typer.Context, stage: "type[Config]", data: Path, more: "Flags" = NOTHING) -> "Session":
        """Return the session of a verb that trains a stage on a data set; `more` are flags of other settings.

        Raises:
            UsageError: settings that are not valid, all of them at once.
        """
        from costar_cli.config.models import RuntimeConfig

        of_stage = ("epochs", "patience", "batch_size", "learning_rate", "members", "seed")
        own = {name: getattr(self, name) for name in of_stage} | dict(more.get(stage, {}))
        flags: Flags = {**more, stage: own, RuntimeConfig: {name: getattr(self, name) for name in RUNTIME}}
        session = open_session(
            ctx, flags, workspace=self.workspace, json=self.json, quiet=self.quiet, show=self.show,
            preset=self.preset, config=self.config, data=data,
        )  # fmt: skip
        session.out.hold()
        return session


@dataclass(frozen=True)
class Session:
    """One run of one verb; `given` are the flags that a later verb needs again, `inputs` what was read so far."""

    out: Output
    workspace: Workspace
    settings: "Settings"
    reporter: OutputReporter
    given: Mapping[str, str] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)

    def read(self, kind: str, path: Path, *, role: str = "", fix: str = "", outcomes: bool = True) -> "Artifact":
        """Return the header of an input, and say that it is read.

        Args:
            kind: the kind of artifact that it must be.
            path: its file.
            role: what the input is to the verb; its kind by default.
            fix: the command that makes such a file, if not the usual one.
            outcomes: whether a data set needs some; one that its file does not describe is left to whoever loads it.

        Raises:
            ArtifactError: the file is missing, is no artifact, or is one of another kind.
            DataError: a data set has events alone.
        """
        header = read_kind(kind, path, fix=fix)
        self.tell_read(role or kind, path, header.digest, kind, what="data set" if kind == "dataset" else kind)
        described = header.meta.get("schema")
        if kind == "dataset" and outcomes and isinstance(described, Mapping) and not described.get("outcomes"):
            from pydantic import ValidationError

            from costar_cli.data.compatible import require_outcomes
            from costar_cli.data.schema import PanelSchema

            with suppress(ValidationError):
                require_outcomes(PanelSchema.model_validate(described), str(path))
        return header

    def tell_read(self, role: str, path: Path, digest: str = "", kind: str = "", *, what: str = "") -> None:
        """Say that a file is read, and remember it, so that it is not replaced; `what` is it, if not its role."""
        self.inputs.append(Input(what or role, path, digest))
        self.out.read(role, path, digest, kind)

    def load_dataset(self, path: Path, **options: Any) -> "Dataset":  # noqa: ANN401 - those of `read_dataset`
        """Return the data set of a file whose header was read.

        Raises:
            ArtifactError: the file cannot be read.
            MismatchError: it is another one by now.
        """
        from costar_cli.data.store import read_dataset

        dataset = read_dataset(path, **options)
        self.require_same(path, dataset.digest)
        return dataset

    def require_same(self, path: Path, digest: str) -> None:
        """See that what was loaded from a file is what was said and recorded to be read.

        Raises:
            MismatchError: another process has replaced the file in between.
        """
        known = next((one.digest for one in reversed(self.inputs) if one.path == path), "")
        if known not in ("", digest):
            problem = f"the file was replaced while it was read: its digest was {known[:8]}, and is {digest[:8]}"
            raise MismatchError(problem, where=str(path), fix="run the same command again")

    def read_by(self, step: "BuildStep | None" = None) -> list[tuple[str, Path]]:
        """Return what was read so far and by what name to call it, of inputs with digests only those of a step."""
        of_step = None if step is None else {"", *step.parents.values()}
        return [(one.what, one.path) for one in self.inputs if of_step is None or one.digest in of_step]

    def step(self, kind: str, path: Path, *, parents: Mapping[str, str], config: Mapping[str, Any]) -> "BuildStep":
        """Return what the verb is about to make."""
        from costar_cli.files import fingerprint

        mark = fingerprint(kind, parents=parents, config=config)
        return BuildStep(kind, path, dict(parents), dict(config), mark, self.workspace.run_state(path))

    @contextmanager
    def making(
        self, step: "BuildStep", *, overwrite: bool, again: bool = False, check: Callable[[], None] | None = None
    ) -> "Iterator[Artifact | None]":
        """Yield the header of a file that is up to date; else hold the workspace while the file is made: yield None.

        What is up to date needs no lock, so that it is found in a read-only workspace, too. What a quick `check` finds
        wrong with the inputs is told before that the file may not be replaced.

        Raises:
            UsageError: the file is named like a table, a page or a figure.
            MismatchError: it is one of the inputs, or may not be replaced.
            StorageError: it is no regular file, or cannot be written.
        """
        check_places([("--out", step.path)], read=self.read_by(step))
        check_artifact_name(step.path)
        try:
            current = step.find(overwrite=overwrite, again=again)
        except MismatchError:
            if check is not None:
                check()
            raise
        if current:
            yield current
            return
        with self.writing(step.path):
            yield step.find(overwrite=overwrite, again=again)  # another process may have made it meanwhile

    @contextmanager
    def writing(self, path: Path) -> Iterator[None]:
        """Hold the workspace while the verb writes, and see first that it can write there, and nowhere else."""
        with self.workspace.lock():
            self.check_writable(path)
            yield

    def check_writable(self, path: Path) -> None:
        """See that a file can be written where it is to be, and nowhere else.

        Raises:
            StorageError: it cannot.
        """
        self.workspace.refuse_links(path)
        folder = path.parent
        if not folder.is_dir():
            raise StorageError("the folder does not exist", where=str(folder), fix=f"`mkdir -p {folder}`")
        if not os.access(folder, os.W_OK):
            raise StorageError("the folder cannot be written", where=str(folder), fix="choose another with --out")


@dataclass(frozen=True)
class BuildStep:
    """A file that a verb makes of its inputs and settings; `run` holds the state of an interrupted attempt."""

    kind: str
    path: Path
    parents: Mapping[str, str]
    config: Mapping[str, Any]
    fingerprint: str
    run: Path

    def find(self, *, overwrite: bool, again: bool = False) -> "Artifact | None":
        """Return the header of the file if it is up to date, None if it is to be made.

        Args:
            overwrite: a file made from something else may be replaced.
            again: make it even if it is up to date.

        Raises:
            MismatchError: the file was made from something else, and may not be replaced.
        """
        if not self.path.exists():
            return None
        from costar_cli.files import flatten, read_header
        from costar_cli.files.spec import a_kind

        try:
            header = read_header(self.path)
        except ArtifactError as error:
            if overwrite:
                return None
            raise MismatchError(
                f"the output exists and cannot be read: {error.problem}", where=str(self.path), fix=_REPLACE
            ) from error
        if header.kind == self.kind and header.meta.get("fingerprint") == self.fingerprint:
            return None if again else header
        if overwrite:
            return None
        other_run = self._other_run()
        parents = [
            f"{role}: {header.parents.get(role, 'none')[:8]} before, {self.parents.get(role, 'none')[:8]} now"
            for role in sorted(set(header.parents) | set(self.parents))
            if header.parents.get(role) != self.parents.get(role)
        ]
        own = {name: header.meta[name] for name in ("settings", "domain") if name in header.meta}
        there, now = flatten({**header.meta.get("config", {}), **own}), flatten(self.config)
        changed = [name for name in sorted(set(there) & set(now)) if there[name] != now[name]]
        settings = [f"{name}: was {_shown(there[name])}, now {_shown(now[name])}" for name in changed]
        raise MismatchError(
            f"the output exists and was made from other inputs or settings (it holds {a_kind(header.kind)})",
            where=str(self.path),
            fix=_REPLACE.replace("--overwrite", "--overwrite --fresh") if other_run else _REPLACE,
            details=[*parents, *settings, *other_run],
        )

    def _other_run(self) -> list[str]:
        """Return that an interrupted run would be refused, too, and how it differs; nothing where none would be."""
        if not self.run.exists():
            return []
        from costar_cli.files import read_header
        from costar_cli.training import RunIdentity

        now = RunIdentity.of(self.kind, parents=self.parents, config=self.config)
        try:
            before = RunIdentity.from_json(read_header(self.run).meta)
        except ArtifactError:  # one that cannot be read is not continued
            return []
        if before is None or now.only_trains_longer(before):
            return []
        return [f"interrupted run in {self.run}: {line}" for line in now.differences(before)]


def read_kind(kind: str, path: Path, *, fix: str = "") -> "Artifact":
    """Return the header of a file that must be an artifact of a kind.

    Raises:
        ArtifactError: the file is missing, is no artifact, or is one of another kind.
    """
    fix = fix or MADE_BY[kind]
    if not path.exists():
        folder = path.parent
        readable = os.access(folder, os.R_OK | os.X_OK)
        here = [other.name for other in folder.iterdir() if other.is_file()] if readable else []
        names = {name for name in here if name.endswith(path.suffix or ".h5")}
        while (near := nearest(path.name, sorted(names))) is not None:  # one of the same kind may have been meant
            from costar_cli.files import read_header

            with suppress(CostarError, OSError):  # one that cannot be read is none
                if read_header(folder / near).kind == kind:
                    fix = f"did you mean `{folder / near}`? If not: {fix}"
                    break
            names.remove(near)
        raise ArtifactError("file not found" if near else f"no {kind} found", where=str(path), fix=fix)
    from costar_cli.files import read_header
    from costar_cli.files.spec import a_kind

    header = read_header(path)
    if header.kind != kind:
        problem = f"the file holds {a_kind(header.kind)}, not {a_kind(kind)}"
        raise ArtifactError(problem, where=str(path), fix=fix)
    return header


_REPLACE = "add --overwrite to replace it, or write elsewhere with --out or --workspace"


def _shown(value: object) -> object:
    """Return a setting as people read it."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "not set" if value is None else value
