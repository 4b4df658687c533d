"""What the two training verbs share: their files, what makes two runs the same, and the summary at the end."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from costar_cli.config.choices import DomainName, InitName, MethodName
from costar_cli.errors import ArtifactError, CostarError, UsageError
from costar_cli.reporting import warnings_of
from costar_cli.steps.hints import other_than
from costar_cli.steps.remedies import other_method, train_longer
from costar_cli.steps.session import BuildStep, Session
from costar_cli.workspace import Workspace

if TYPE_CHECKING:
    from costar_cli.api.fitting import FitPlan
    from costar_cli.artifact import Artifact
    from costar_cli.train import Trained

__all__ = [
    "MAKE_DATA",
    "FinetuneFiles",
    "ModelPlan",
    "make_model",
    "plan_model",
    "run_finetune",
    "say_up_to_date",
    "show_training",
    "store_trained",
]

MAKE_DATA = "`costar simulate` or `costar ingest` makes one"


@dataclass(frozen=True)
class FinetuneFiles:
    """What `finetune` reads and writes; `start` is an encoder, a source model, or nothing."""

    data: Path
    start: Path | None
    start_kind: str
    start_fix: str
    out: Path

    @classmethod
    def choose(
        cls,
        workspace: Workspace,
        method: MethodName,
        init: InitName | None,
        domain: DomainName,
        *,
        data: Path | None,
        start: Path | None,
        out: Path | None,
    ) -> Self:
        """Return the files given, and the workspace's for the rest."""
        if method != "costar" and init is not None:
            raise UsageError(f"only COSTAR is pretrained, {method} is not", where="--from", fix="leave it out")
        same = (" --from scratch" if init == "scratch" else "") + (f" --method {method}" if method != "costar" else "")
        kind, fix = "encoder", "`costar pretrain` makes one, or train `--from scratch`"
        default: Path | None = workspace.encoder
        if domain == "target":
            kind, fix = "model", f"`costar finetune{same}` makes it: the target's model starts from the source's"
            default = workspace.model(method, init or "pretrained", "source")
        elif same:
            if start is not None:
                raise UsageError(f"`{same.strip()}` starts from nothing", where="--start", fix="leave one of them out")
            default = None
        path = out or workspace.model(method, init or "pretrained", domain)
        return cls(data or workspace.data, start or default, kind, fix, path)


@dataclass(frozen=True)
class ModelPlan:
    """A model to make, from and in which files; `has_target` says whether it could be adapted to a target."""

    files: FinetuneFiles
    fit: "FitPlan"
    step: BuildStep
    has_target: bool


def run_finetune(
    session: Session,
    files: FinetuneFiles,
    method: MethodName,
    domain: DomainName,
    *,
    init: InitName | None = None,
    overwrite: bool,
    fresh: bool,
) -> None:
    """Make a model, or see that it is up to date, and say so."""
    plan = plan_model(session, files, method, domain)
    artifact, status = make_model(session, plan, overwrite=overwrite, fresh=fresh)
    place = session.workspace
    data = other_than(files.data, place.data)
    more = []
    if domain == "source" and plan.has_target:
        chosen = (["--method", method] if method != "costar" else []) + (["--from", init] if init else [])
        start = other_than(files.out, place.model(method, init or "pretrained"))
        more = [session.next_command("finetune", *chosen, "--domain", "target", data=data, start=start)]
    evaluate = session.next_command("evaluate", data=data, model=other_than(files.out, *place.models()))
    validation = artifact.meta.get("validation")
    if validation is not None and validation["score"] > validation["last_value"]:
        start_file = other_than(files.start, place.encoder, *place.models()) if files.start else None
        again = {"data": data, "start": start_file, "out": other_than(files.out, *place.models())}
        longer = train_longer(session, artifact.meta, again)
        show_training(session, artifact, status, *longer, *other_method(session, artifact.meta, data))
        return
    show_training(session, artifact, status, *more, evaluate)


def plan_model(session: Session, files: FinetuneFiles, method: MethodName, domain: DomainName) -> ModelPlan:
    """Return what a model is made from.

    Raises:
        ArtifactError: the data set, or what to start from, is missing.
    """
    from costar_cli.api.fitting import plan_fit

    header = session.read("dataset", files.data, "dataset", MAKE_DATA)
    start = None
    if files.start is not None:
        start = session.read(files.start_kind, files.start, files.start_kind, files.start_fix)
        _warn_of_other_data(session, start, header.digest)
    elif method == "costar":
        _warn_of_other_shape(session)
    fit = plan_fit(session.settings, method, domain, dataset=header.digest, start=start)
    step = session.step("model", files.out, parents=fit.parents, config=fit.identity)
    has_target = {"target/train", "target/val"} <= set(header.meta.get("parts", ()))
    return ModelPlan(files, fit, step, has_target)


def make_model(session: Session, plan: ModelPlan, *, overwrite: bool, fresh: bool) -> tuple["Artifact", str]:
    """Train and store a model, or see that it is up to date; return it and which of the two."""
    step = plan.step
    with session.making(step, overwrite=overwrite, again=fresh) as artifact:
        if artifact:
            say_up_to_date(session, step, artifact)
            return artifact, "up_to_date"
        trained = _train(session, plan, fresh=fresh)
        return store_trained(session, step, trained, overwrite=overwrite or fresh), "done"


def _warn_of_other_shape(session: Session) -> None:
    """Warn where the workspace holds an encoder of another shape than one from scratch gets.

    Two such models would differ in more than pretraining.
    """
    from costar_cli.api.fitting import pretrained_shape

    here, there = pretrained_shape(session.settings).model_dump(), _pretrained_shape(session.workspace.encoder)
    differences = [
        f"{name} {here[name]}, not {there[name]}" for name in here if here[name] != there.get(name, here[name])
    ]
    if differences:
        session.out.warn(
            f"from scratch, the encoder has another shape than the workspace's pretrained one "
            f"({'; '.join(differences)}): give `finetune` the `pretrain.encoder` settings of `pretrain` to compare them"
        )


def _pretrained_shape(path: Path) -> dict[str, Any]:
    """Return the shape of the encoder in a file; nothing where there is none that can be read."""
    from costar_cli.artifact import read_header

    try:
        return dict(read_header(path).meta.get("encoder", {})) if path.exists() else {}
    except CostarError:
        return {}


def _warn_of_other_data(session: Session, start: "Artifact", dataset: str) -> None:
    from costar_cli.panel.compatible import other_data

    warning = other_data(f"the {start.kind}", start.parents, dataset)
    if warning:
        session.out.warn(warning)


def _train(session: Session, plan: ModelPlan, *, fresh: bool) -> "Trained":
    from costar_cli.artifact import read_artifact
    from costar_cli.panel.store import read_dataset

    files = plan.files
    dataset = read_dataset(files.data, queries=False, truth=False, parts=plan.fit.parts)
    start = read_artifact(files.start, kind=files.start_kind) if files.start is not None else None
    checkpoint = session.workspace.run_state(files.out)
    return plan.fit.run(dataset, start, checkpoint=checkpoint, reporter=session.reporter, fresh=fresh)


def store_trained(session: Session, step: BuildStep, trained: "Trained", *, overwrite: bool) -> "Artifact":
    """Write what was trained, and forget the run's state."""
    from costar_cli.artifact import read_header, write_artifact
    from costar_cli.train import forget_runs

    try:
        before = read_header(step.path) if step.path.exists() else None
    except ArtifactError:
        before = None
    artifact = write_artifact(
        step.path,
        kind=step.kind,
        arrays=trained.arrays,
        meta=trained.meta,
        parents=trained.parents,
        overwrite=overwrite,
    )
    forget_runs(session.workspace.run_state(step.path))
    session.out.wrote(step.kind, step.path, artifact.digest)
    if before is not None and before.meta.get("fingerprint") == step.fingerprint and before.digest != artifact.digest:
        _tell_why_digests_differ(session, before, artifact)
    return artifact


def _tell_why_digests_differ(session: Session, before: "Artifact", now: "Artifact") -> None:
    """Say what made another file of the same inputs and settings: threads, versions, or nothing that is promised."""
    from costar_cli.artifact.lineage import making_differences, makings_of

    (*_, here), there = makings_of(now.meta), makings_of(before.meta)
    lines = making_differences(there, here)
    what = f"the digest was {before.digest[:8]} before"
    if lines or not there:
        session.out.note(f"{what}: {'; '.join(lines) or 'that file does not say with what it was made'}")
    elif len(there) == len(makings_of(now.meta)) == 1 and here["device"] == "cpu":
        session.out.warn(f"{what}, with the same seed, threads and versions: it should be the same, please report this")


def _note_making(session: Session, artifact: "Artifact") -> None:
    """Note, of a file that is up to date, with what it was made where this run would use something else."""
    from costar_cli.artifact.lineage import known_threads, making_differences, making_here, makings_of
    from costar_cli.config.models import RuntimeConfig

    threads = known_threads(session.settings[RuntimeConfig].threads)
    here = {name: value for name, value in making_here("", threads or 0).items() if name != "device"}
    lines = making_differences(makings_of(artifact.meta), here | {"threads": threads})
    if lines:
        session.out.note(f"it was made otherwise ({'; '.join(lines)}): made again here, its digest may be another")


def say_up_to_date(session: Session, step: BuildStep, artifact: "Artifact") -> None:
    """Say that an encoder or model is there already, and what its training warned of."""
    session.out.up_to_date(step.kind, step.path, artifact.digest)
    _note_making(session, artifact)
    for warning in warnings_of(f"{step.kind} `{step.path.stem}`", artifact.meta):
        session.out.warn(warning)


def show_training(session: Session, artifact: "Artifact", status: str, *next_commands: str) -> None:
    """Print one line per member, suggest what to do next, and end the verb."""
    rows = _members(artifact.meta)
    if rows:  # a closed-form fit has no epochs to tell of
        session.out.table([field.replace("_", " ") for field in _FIELDS], rows, keys=1)
    reference, validation = artifact.meta.get("reference"), artifact.meta.get("validation")
    if reference is not None:
        session.out.text(f"guessing scores {reference:.4g} on a training batch")
    if validation is not None:
        session.out.text(_validation_line(validation))
    session.out.next(*next_commands)
    members = [dict(zip(_FIELDS, row, strict=True)) for row in rows]
    stages = [
        {"name": stage["name"], "updates": stage.get("steps", []), "ended_by": stage.get("ended_by", [])}
        for stage in artifact.meta.get("stages", [])
    ]
    facts = {key: artifact.meta[key] for key in _FACTS if key in artifact.meta}
    session.out.done({"members": members, "reference_loss": reference, "stages": stages, **facts}, status=status)


def _validation_line(validation: Mapping[str, Any]) -> str:
    """Return how the model does on validation, in words."""
    steps = f"{validation['horizon']} step{'s' * (validation['horizon'] != 1)}"
    source = f", source model {validation['source']:.3f}" if "source" in validation else ""
    return (
        f"validation RMSE in sd over {steps} from {validation['windows']:,} origins: {validation['score']:.3f}{source},"
        f" last value carried forward {validation['last_value']:.3f}"
    )


_FACTS = ("validation", "kept_source_members", "stopped_by_budget")
_FIELDS = ("member", "epochs", "kept_epoch", "train_loss", "validation_loss", "updates", "ended_by")


def _members(meta: Mapping[str, Any]) -> list[list[object]]:
    """Return the fields of each member, of the last stage of its training.

    The epoch is the one whose weights are kept, counted from 1, and the losses are those there; 0 stands for the
    weights of the source's model, which have none. `ended_by` is `patience` or `budget` (epochs or updates ran out).
    Updates and what ended them are unknown in older files.
    """
    history, last = meta["history"], (meta.get("stages") or [{}])[-1]
    keeps_last = meta["config"].get("keep") == "last"
    n_members = len(history["train_loss"])
    rows: list[list[object]] = []
    for r in range(n_members):
        train_loss, validation_loss, best = (history[key][r] for key in ("train_loss", "validation_loss", "best_epoch"))
        epochs = len(train_loss)
        kept = epochs - 1 if keeps_last or not 0 <= best < epochs else best
        losses: list[float | None] = [train_loss[kept], validation_loss[kept]]
        if r + 1 in meta.get("kept_source_members", ()):
            kept, losses = -1, [None, None]
        steps, ended_by = (last.get(key, [None] * n_members)[r] for key in ("steps", "ended_by"))
        rows.append([r + 1, epochs, kept + 1, *losses, steps, ended_by])
    return rows
