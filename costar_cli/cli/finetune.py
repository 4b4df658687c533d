"""`costar finetune`: learn to predict outcomes under treatment plans."""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from costar_cli.cli import options
from costar_cli.cli.hints import after_loss, next_command, other_method, other_than
from costar_cli.cli.options import EXPERT, FILES, expanded, setting
from costar_cli.cli.session import BuildStep, Session, TrainingFlags
from costar_cli.cli.training import make_trained, on_effects, show_training
from costar_cli.cli.workspace import Workspace
from costar_cli.config.choices import DomainName, InitName, StepWeights
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import CostarError, UsageError
from costar_cli.methods.entry import AUTO
from costar_cli.methods.registry import METHODS, REFERENCE, SHORT_LIST
from costar_cli.reporting import is_worse

if TYPE_CHECKING:
    from costar_cli.api.fitting import FitPlan
    from costar_cli.cli.session import Flags
    from costar_cli.files import Artifact
    from costar_cli.training import Trained, TrainingLog


@expanded
def finetune(
    ctx: typer.Context,
    run: TrainingFlags,
    domain: Annotated[
        DomainName,
        typer.Option("--domain", help="Train on the source domain, or adapt its model to few target subjects"),
    ] = "source",
    init: Annotated[
        InitName | None,
        typer.Option("--from", help="Start COSTAR from the pretrained encoder (default), or from random weights"),
    ] = None,
    method: options.MethodOpt = REFERENCE,
    data: options.DataOpt = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--start", help="Encoder or source model to start from (default: the workspace's)", rich_help_panel=FILES
        ),
    ] = None,
    out: options.OutOpt = None,
    parts: options.PartsOpt = None,
    minutes: options.MinutesOpt = None,
    step_weights: Annotated[StepWeights | None, setting("--step-weights", panel=EXPERT)] = None,
) -> None:
    """Fit a method to labelled subjects.

    Interrupted, the same command continues where it stopped.
    """
    from costar_cli.config.models import FinetuneConfig
    from costar_cli.data.record import ModelRecord
    from costar_cli.settings.resolve import unused_settings

    method, combined = combination(method, parts, minutes)
    files = FinetuneFiles.choose(Workspace(run.workspace), method, init, domain, data=data, start=start, out=out)
    session = run.start(ctx, FinetuneConfig, files.data, {**combined, FinetuneConfig: {"step_weights": step_weights}})
    if unused := unused_settings(session.settings, method):
        session.out.say(Diagnostic.of("settings-unused", METHODS[method].label, names=", ".join(unused)))
    plan = plan_model(session, files, method, domain)
    artifact, status = make_model(session, plan, overwrite=run.overwrite, fresh=run.fresh, log=run.log)
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
    show_training(session, record, status, *more[:1], evaluate, *more[1:])


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


def plan_model(session: Session, files: FinetuneFiles, method: str, domain: DomainName) -> ModelPlan:
    """Return what a model is made from.

    Raises:
        ArtifactError: the data set, or what to start from, is missing.
        MismatchError: what to start from was trained on other variables, treatments, units or another horizon.
    """
    from costar_cli.api.fitting import plan_fit, pretrained_shape
    from costar_cli.config.models import FinetuneConfig
    from costar_cli.data.compatible import other_data, require_fitting
    from costar_cli.data.record import ModelRecord
    from costar_cli.files import read_header
    from costar_cli.settings.resolve import method_settings

    header = session.read("dataset", files.data)
    starts = files.start is not None or domain == "target"
    if METHODS[method].combines and not starts and session.workspace.encoder.exists():
        # parts of a combination start from the workspace's encoder, if one of them can
        own = method_settings(session.settings, method, session.settings[FinetuneConfig])
        if any(METHODS[part].pretrained for part in METHODS[method].parts(own, ModelRecord())):
            files = replace(files, start=session.workspace.encoder)
    start = None
    if files.start is not None:
        start = session.read(files.start_kind, files.start, fix=files.start_fix)
        require_fitting(header, start, called=f"the {start.kind} to start from", exactly=True)
        if warning := other_data(f"the {start.kind}", start.parents, header.digest):
            session.out.say(warning)
    elif METHODS[method].pretrained:
        # an encoder of another shape than one from scratch gets: the models would differ in more than pretraining
        path, there = session.workspace.encoder, dict[str, Any]()
        with suppress(CostarError):  # an encoder that cannot be read differs in nothing
            there = dict(ModelRecord.of(read_header(path)).encoder or {}) if path.exists() else {}
        here = pretrained_shape(session.settings).model_dump()
        differences = [
            f"{name} {here[name]}, not {there[name]}" for name in here if here[name] != there.get(name, here[name])
        ]
        if differences:
            session.out.say(Diagnostic.of("encoder-differs", differences="; ".join(differences)))
    fit = plan_fit(session.settings, method, domain, dataset=header.digest, start=start)
    step = session.step("model", files.out, parents=fit.parents, config=fit.identity)
    has_target = {"target/train", "target/val"} <= set(header.meta.get("parts", ()))
    return ModelPlan(files, fit, step, has_target)


def make_model(
    session: Session, plan: ModelPlan, *, overwrite: bool, fresh: bool, log: Path | None = None
) -> tuple["Artifact", str]:
    """Train and store a model, or see that it is up to date; return it and which of the two."""
    if log is not None and METHODS.in_closed_form(plan.fit.method, plan.fit.part_settings):
        session.out.note("this method has no epochs to log")
        log = None

    def train(to: "TrainingLog | None") -> "Trained":
        from costar_cli.files import read_artifact

        files = plan.files
        dataset = session.load_dataset(files.data, queries=False, truth=False, parts=plan.fit.parts)
        start = read_artifact(files.start, kind=files.start_kind) if files.start is not None else None
        if start is not None and files.start is not None:
            session.require_same(files.start, start.digest)
        return plan.fit.run(dataset, start, checkpoint=plan.step.run, reporter=session.reporter, fresh=fresh, log=to)

    return make_trained(session, plan.step, train, overwrite=overwrite, fresh=fresh, log=log)
