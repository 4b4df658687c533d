"""The body of `costar finetune`: what a model is made from, and making it; and models as later verbs load them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from costar_cli.cli.hints import after_loss, next_command, other_method, other_than
from costar_cli.cli.session import MADE_BY, BuildStep, Session
from costar_cli.cli.training import make_trained, on_effects, show_training
from costar_cli.cli.workspace import Workspace
from costar_cli.config.choices import DomainName, InitName
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import ArtifactError, CostarError, UsageError
from costar_cli.methods.registry import AUTO, METHODS, REFERENCE, SHORT_LIST
from costar_cli.reporting import is_worse

if TYPE_CHECKING:
    from costar_cli.api.fitting import FitPlan
    from costar_cli.cli.session import Flags
    from costar_cli.files import Artifact
    from costar_cli.methods.base import FittedModel
    from costar_cli.training import Trained, TrainingLog

__all__ = [
    "FinetuneFiles",
    "ModelPlan",
    "combination",
    "load_models",
    "make_model",
    "name_models",
    "plan_model",
    "run_finetune",
]


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
        method: str,
        init: InitName | None,
        domain: DomainName,
        *,
        data: Path | None,
        start: Path | None,
        out: Path | None,
    ) -> Self:
        """Return the files given, and the workspace's for the rest."""
        if init is not None and not METHODS[method].pretrained:
            raise UsageError(f"only COSTAR is pretrained, {method} is not", where="--from", fix="leave it out")
        same = (" --from scratch" if init == "scratch" else "") + (f" --method {method}" if method != REFERENCE else "")
        kind, fix = "encoder", ""
        default: Path | None = workspace.encoder
        if domain == "target":
            kind, fix = "model", f"`costar finetune{same}` makes it: the target model starts from the source model"
            default = workspace.model(method, init or "pretrained", "source")
        elif same:
            if start is not None and not METHODS[method].combines:
                raise UsageError(
                    f"`{same.strip()}` does not use a starting model", where="--start", fix="leave one of them out"
                )
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


def combination(method: str, parts: str | None, minutes: float | None) -> "tuple[str, Flags]":
    """Return the method of a name, the combination of the short list for `auto`, and the flags that say of what.

    Raises:
        UsageError: flags of a combination for a method that is none.
    """
    name = METHODS.combining.name if method == AUTO else method
    entry = METHODS[name]
    given = {"--parts": parts, "--minutes": minutes}
    if not entry.combines:
        if named := [flag for flag, value in given.items() if value is not None]:
            combining = METHODS.combining.name
            fix = f"leave it out, or choose `--method {combining}` or `--method {AUTO}`"
            problem = f"`{named[0]}` applies to `{combining}` and `{AUTO}` only"
            raise UsageError(problem, where=f"--method {method}", fix=fix)
        return name, {}
    if method == AUTO and parts is None:
        parts = SHORT_LIST
    settings = entry.settings_class
    return name, {settings: {"parts": parts, "minutes": minutes}} if settings else {}


def run_finetune(
    session: Session,
    files: FinetuneFiles,
    method: str,
    domain: DomainName,
    *,
    init: InitName | None = None,
    overwrite: bool,
    fresh: bool,
    log: Path | None = None,
) -> None:
    """Make a model, or see that it is up to date, and say so."""
    from costar_cli.data.record import ModelRecord

    plan = plan_model(session, files, method, domain)
    artifact, status = make_model(session, plan, overwrite=overwrite, fresh=fresh, log=log)
    place = session.workspace
    data = other_than(files.data, place.data)
    more = []
    if domain == "source" and plan.has_target:
        chosen = (["--method", method] if method != REFERENCE else []) + (["--from", init] if init else [])
        start = other_than(files.out, place.model(method, init or "pretrained"))
        more = [next_command(session.given, "finetune", *chosen, "--domain", "target", data=data, start=start)]
    evaluate = next_command(session.given, "evaluate", data=data, model=other_than(files.out, *place.models()))
    record = ModelRecord.of(artifact)
    validation = record.validation
    if validation is not None and is_worse(validation.score, validation.last_value):
        start_file = other_than(files.start, place.encoder, *place.models()) if files.start else None
        again = {"data": data, "start": start_file, "out": other_than(files.out, *place.models())}
        show_training(session, record, status, *after_loss(session, record, again))
        return
    # what adjusts and has clipped weights needs a smaller `msm.clip`, no other method
    if on_effects(record) and (record.reactions or {})["adjusts"] != "all":
        more += other_method(session, record, data, adjusting=True)
    show_training(session, record, status, *more, evaluate)


def plan_model(session: Session, files: FinetuneFiles, method: str, domain: DomainName) -> ModelPlan:
    """Return what a model is made from.

    Raises:
        ArtifactError: the data set, or what to start from, is missing.
        MismatchError: what to start from was trained on other variables, treatments, units or another horizon.
    """
    from costar_cli.api.fitting import plan_fit
    from costar_cli.data.compatible import require_fitting

    header = session.read("dataset", files.data)
    files = _with_encoder(session, files, method, domain)
    start = None
    if files.start is not None:
        start = session.read(files.start_kind, files.start, fix=files.start_fix)
        require_fitting(header, start, called=f"the {start.kind} to start from", exactly=True)
        _warn_of_other_data(session, start, header.digest)
    elif METHODS[method].pretrained:
        _warn_of_other_shape(session)
    fit = plan_fit(session.settings, method, domain, dataset=header.digest, start=start)
    step = session.step("model", files.out, parents=fit.parents, config=fit.identity)
    has_target = {"target/train", "target/val"} <= set(header.meta.get("parts", ()))
    return ModelPlan(files, fit, step, has_target)


def _with_encoder(session: Session, files: FinetuneFiles, method: str, domain: DomainName) -> FinetuneFiles:
    """Return the files of a combination with the workspace's encoder, if there is one and a part can start from it."""
    from costar_cli.config.models import FinetuneConfig
    from costar_cli.data.record import ModelRecord
    from costar_cli.settings.resolve import method_settings

    encoder = session.workspace.encoder
    if not METHODS[method].combines or domain == "target" or files.start is not None or not encoder.exists():
        return files
    own = method_settings(session.settings, method, session.settings[FinetuneConfig])
    parts = METHODS[method].parts(own, ModelRecord())
    return replace(files, start=encoder) if any(METHODS[part].pretrained for part in parts) else files


def make_model(
    session: Session, plan: ModelPlan, *, overwrite: bool, fresh: bool, log: Path | None = None
) -> tuple["Artifact", str]:
    """Train and store a model, or see that it is up to date; return it and which of the two."""
    if log is not None and all(METHODS[name].closed_form for name in plan.fit.part_settings or (plan.fit.method,)):
        session.out.note("this method has no epochs to log")
        log = None
    train = partial(_train, session, plan, fresh=fresh)
    return make_trained(session, plan.step, train, overwrite=overwrite, fresh=fresh, log=log)


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
        session.out.say(Diagnostic.of("encoder-differs", differences="; ".join(differences)))


def _pretrained_shape(path: Path) -> dict[str, Any]:
    """Return the shape of the encoder in a file; nothing where there is none that can be read."""
    from costar_cli.data.record import ModelRecord
    from costar_cli.files import read_header

    try:
        return dict(ModelRecord.of(read_header(path)).encoder or {}) if path.exists() else {}
    except CostarError:
        return {}


def _warn_of_other_data(session: Session, start: "Artifact", dataset: str) -> None:
    from costar_cli.data.compatible import other_data

    warning = other_data(f"the {start.kind}", start.parents, dataset)
    if warning:
        session.out.say(warning)


def _train(session: Session, plan: ModelPlan, log: "TrainingLog | None", *, fresh: bool) -> "Trained":
    from costar_cli.files import read_artifact

    files = plan.files
    dataset = session.load_dataset(files.data, queries=False, truth=False, parts=plan.fit.parts)
    start = read_artifact(files.start, kind=files.start_kind) if files.start is not None else None
    if start is not None and files.start is not None:
        session.require_same(files.start, start.digest)
    return plan.fit.run(dataset, start, checkpoint=plan.step.run, reporter=session.reporter, fresh=fresh, log=log)


def name_models(paths: Sequence[Path], workspace: Path) -> dict[str, Path]:
    """Return models by name: the file's name, with its folder where two files are called alike.

    Raises:
        ArtifactError: there is no model.
        UsageError: a model is given more than once.
    """
    if not paths:
        raise ArtifactError("no model found", where=str(workspace), fix=MADE_BY["model"])
    stems = [path.stem for path in paths]
    named = {path.stem if stems.count(path.stem) == 1 else str(path.with_suffix("")): path for path in paths}
    if len(named) < len(paths):
        raise UsageError("a model is given more than once", where="--model", fix="give each model once")
    return named


def load_models(session: Session, headers: dict[str, "Artifact"], named: dict[str, Path]) -> dict[str, "FittedModel"]:
    """Load models onto the device of the settings, by name, and warn of those that record less than today's do."""
    from costar_cli.config.models import RuntimeConfig
    from costar_cli.data.record import ModelRecord
    from costar_cli.methods import load_model
    from costar_cli.training.runtime import Runtime

    for name, header in headers.items():
        record = ModelRecord.of(header)
        known = {"what its training subjects received": record.support, "its validation error": record.validation}
        missing = [words for words, fact in known.items() if fact is None]
        if missing and record.made_with is None:
            what = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'}"
            session.out.say(Diagnostic.of("older-version", name, missing=what))
    device = Runtime.resolve(session.settings[RuntimeConfig]).device
    loaded = {name: load_model(path, device=str(device)) for name, path in named.items()}
    for name, path in named.items():
        session.require_same(path, loaded[name].digest)
    return loaded
