"""Pretraining, and fitting any method, from data set to artifact content."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.models import Config, FinetuneConfig, PretrainConfig, RuntimeConfig
from costar_cli.data import Dataset, Domain, Panel, Part, Scaler
from costar_cli.data.check import check_dataset, outliers
from costar_cli.data.compatible import other_data, require_compatible, same_data
from costar_cli.data.findings import shown
from costar_cli.data.indication import indications, suspects
from costar_cli.data.panel import join_panels
from costar_cli.data.record import ModelRecord
from costar_cli.data.support import MOST_KEPT, Support, never_together
from costar_cli.data.transforms import OutcomeTransforms
from costar_cli.data.truncated import STRETCH, Stretches, is_long
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import MismatchError, TrainingError
from costar_cli.inference import (
    LEAST_MEMBERS,
    OutcomeFacts,
    Reactions,
    calibrate,
    facts_of,
    halves,
    held_out,
    learn_support,
    learn_survival,
    survival_of,
)
from costar_cli.methods.base import FitTask, FittedModel
from costar_cli.methods.entry import Method
from costar_cli.methods.registry import METHODS, REFERENCE
from costar_cli.methods.shared import processes
from costar_cli.methods.shared.outcome_forms import choose_forms
from costar_cli.methods.shared.trained import model_arrays
from costar_cli.methods.shared.transformed import on_transforms
from costar_cli.reporting import Reporter, warnings_of
from costar_cli.training.fit import FitRun, Selected
from costar_cli.training.identity import RunIdentity
from costar_cli.training.log import TrainingLog, no_log
from costar_cli.training.run_files import forget_runs
from costar_cli.training.runtime import Runtime
from costar_cli.training.selection import ValidationWindows


@contextmanager
def _naming_outliers(dataset: Dataset) -> Iterator[None]:
    """Have an error of training name the values that no unit explains, which are its likely cause."""
    try:
        yield
    except TrainingError as error:
        error.details += tuple(map(str, outliers(dataset)))
        raise


@dataclass(frozen=True)
class Trained:
    """The content of an encoder or model artifact, as `write_artifact` takes it."""

    arrays: dict[str, NDArray[np.generic]]
    meta: dict[str, Any]
    parents: dict[str, str]


def pretrain(
    dataset: Dataset,
    config: PretrainConfig,
    runtime_config: RuntimeConfig,
    *,
    checkpoint: Path | None,
    identity: RunIdentity,
    reporter: Reporter,
    fresh: bool = False,
    log: TrainingLog | None = None,
    set_aside: int | None = None,
) -> Trained:
    """Pretrain encoders on the source domain's series, and on the target's if asked to (spec COSTAR-8 to 13, 28 to 31).

    `set_aside` are the updates of a preset that chosen epochs put aside.

    Raises:
        MismatchError: the target's series are asked for, and the data set has none.
    """
    from costar_cli.data.tensors import PanelTensors  # noqa: PLC0415 - closed forms are fitted without torch
    from costar_cli.methods.costar.pretraining import PretrainStage  # noqa: PLC0415
    from costar_cli.training.checkpoint import Checkpoint  # noqa: PLC0415
    from costar_cli.training.loop import tell_of_epochs, train_members  # noqa: PLC0415

    runtime = Runtime.resolve(runtime_config)
    runtime.tell_of_graphs(runtime_config, reporter)
    check_dataset(dataset, reporter)
    support = Support.of(dataset.panel("source", "train"), dataset.schema)
    _warn_of_unseen(support, dataset, reporter)
    transforms = OutcomeTransforms.fit(dataset.panel("source", "train"), dataset.schema)
    learned = transforms.dataset(dataset) if transforms else dataset
    learnt = learned.panel("source", "train")
    scaler = Scaler.fit(learnt, learned.schema)
    counts = {"source/train": learnt.n_subjects}
    if config.unlabelled_target:
        target = learned.panels.get(Part("target", "train"))
        if target is None:
            raise MismatchError(
                "the data set has no target subjects to learn histories from",
                where="pretrain.unlabelled_target",
                fix="leave it out, or use a data set with the split target/train",
            )
        counts["target/train"] = target.n_subjects
        learnt = join_panels([learnt, target])
    panels = [learnt, learned.panel("source", "val")]
    if cut := is_long(learnt):
        panels = [Stretches.of(panel).panel for panel in panels]
    train, validation = (
        PanelTensors.from_panel(panel, scaler, device=runtime.device, dtype=runtime.dtype) for panel in panels
    )
    relative = config.encoder.inputs == "relative"
    needs_forms = relative or "next_step" in config.pretext
    forms = choose_forms(learned.panel("source", "train"), learned.schema, scaler) if needs_forms else ()
    stage = PretrainStage(dataset.schema.dims, config, train, validation, forms)
    if fresh and checkpoint is not None:
        forget_runs(checkpoint)
        processes.wait()
    run = Checkpoint(checkpoint, identity, reporter=reporter, stage=stage, making=runtime.making())
    tell_of_epochs(stage, set_aside, reporter)
    with _naming_outliers(dataset):
        trained = train_members(stage, config.members, runtime, run, reporter, log=log.of_part() if log else no_log)
    record = ModelRecord(
        method=REFERENCE,
        made_with=tuple(run.makings),
        encoder=config.encoder.model_dump(),
        pretrained_on=counts,
        support=support,
        reference=stage.reference(),
        log_n_reference={
            "log N, training": stage.reference(),
            "log N, validation": stage.reference(validation=True),
        },
        stages=(trained.record(stage.name),),
        stretch=STRETCH if cut else None,
        unlabelled_target_subjects=counts["target/train"] if config.unlabelled_target else None,
        facts={"forms": [form.to_meta() for form in forms]} if relative else {},
        **_facts_of_run(dataset, trained.history, config.members, identity.fingerprint, config, runtime),
    )
    given = Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    arrays = model_arrays(trained.params, given) | (transforms.to_arrays() if transforms else {})
    return Trained(arrays, record.to_meta(), {"dataset": dataset.digest})


def finetune(
    dataset: Dataset,
    config: FinetuneConfig,
    runtime_config: RuntimeConfig,
    *,
    domain: Domain,
    start: FittedModel | None,
    checkpoint: Path | None,
    identity: RunIdentity,
    reporter: Reporter,
    fresh: bool = False,
    method: Method | None = None,
    settings: Config | None = None,
    part_settings: Mapping[str, Config | None] | None = None,
    log: TrainingLog | None = None,
    judged: bool = True,
    set_aside: int | None = None,
) -> Trained:
    """Fit a method to the labelled subjects of one domain (spec PANEL-12, NET-3).

    Args:
        dataset: where the subjects are; of the source's training subjects too if the method learns from them again.
        config: settings of all methods.
        runtime_config: device and arithmetic.
        domain: `source` for the supervised stage, `target` for few-shot adaptation.
        start: a pretrained encoder, or the source model for `target`; none trains from scratch.
        checkpoint: file of the run state; later stages have files beside it. None for a fit that nothing continues.
        identity: inputs, settings and version, which an interrupted run must share to be continued.
        reporter: hears of progress.
        fresh: start over instead of continuing an interrupted run.
        method: what to fit; COSTAR by default.
        settings: the method's own settings.
        part_settings: those of the methods that it combines, by name; their defaults where there are none.
        log: is told of every epoch.
        judged: end with what held-out subjects say: calibrated intervals and the support of plans.
        set_aside: the updates of a preset that chosen epochs put aside.

    Raises:
        MismatchError: `start` was trained on other variables or horizon, or has fewer members than asked for; an
            interrupted run had other inputs or settings.
        UsageError: settings that contradict what to start from.
    """
    method = method or METHODS[REFERENCE]
    parts = method.parts(settings, start.record if start else None)
    by_arrays = all(METHODS[part].by_arrays for part in parts) if parts else method.by_arrays
    runtime = Runtime.of_arrays(runtime_config) if by_arrays else Runtime.resolve(runtime_config)
    check_dataset(dataset, reporter)
    _check_start(dataset, start)
    support = _support(dataset, domain, start, reporter)
    scaler = start.scaler if start else Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    closed_form = (
        METHODS.in_closed_form(method.name, parts) if parts else method.closed_form
    )  # it may be in no registry
    if not closed_form:
        runtime.tell_of_graphs(runtime_config, reporter)
    members = 1 if closed_form else config.members or (start.members if start else 1)
    validation, calibrated = dataset.panel(domain, "val"), closed_form or members >= LEAST_MEMBERS
    halved = calibrated and config.calibrate_on == "half" and method.selects_on_validation
    selecting, calibrating = halves(validation) if halved else (validation, validation)
    panels = {**dataset.panels, Part(domain, "val"): selecting}
    task = FitTask(
        dataset.schema, dataset.horizon, domain, panels, scaler, config, settings, members, start, runtime,
        part_settings or {},
    )  # fmt: skip
    if fresh and checkpoint is not None:
        forget_runs(checkpoint)
        processes.wait()
    windows = ValidationWindows.of(selecting, dataset.horizon, scaler)
    run = FitRun(method, task, windows, checkpoint, identity, runtime, reporter, log=log, set_aside=set_aside)
    with _naming_outliers(dataset):
        selected = run.select(run.fit())
    if start is not None and len(selected.kept_source_members) == members:
        support = start.record.support  # these weights have learned nothing of the target's treatments
    if selected.kept_source_members:
        kept = selected.kept_source_members
        whose = "" if len(kept) == members else f" for member{'s' * (len(kept) > 1)} {', '.join(map(str, kept))}"
        reporter.say(Diagnostic.of("source-weights-kept", whose=whose))
    warnings = _warn(dataset, run.method, start, selected, reporter)
    parents = {"dataset": dataset.digest}
    if start is not None:
        parents["model" if run.few_shot else "encoder"] = start.digest
    doubtful = suspects(indications(dataset.panel(domain, "train"), dataset.schema))
    record = replace(
        _record(dataset, run, selected, config, members),
        calibrated_on=None if selecting is calibrating else {f"{domain}/val": calibrating.n_subjects},
        support=support,
        indication=tuple(doubtful),
    )
    apart = (selecting is not calibrating or not method.selects_on_validation) and not _pretrained_on(start, domain)
    if any(outcome.transform for outcome in dataset.schema.outcomes):
        for said in on_transforms(run.model(selected.fitted, record.settings)):
            reporter.say(said)
    attached: dict[str, NDArray[np.generic]] = {}
    if judged:
        attached, record, doubt = _judge(dataset, run, selected, record, calibrating, apart=apart)
        if doubt:
            reporter.say(Diagnostic.of("fit-doubtful", warning=doubt))
            warnings.append(doubt)
    record = replace(record, warnings=tuple(warnings))
    return Trained(run.arrays(selected.fitted) | attached, record.to_meta(), parents)


def _pretrained_on(start: FittedModel | None, domain: Domain) -> bool:
    """Return whether the domain's validation subjects decided which weights of an encoder to start from are kept."""
    if start is None or start.horizon or domain != "source":
        return False
    stopped = any("patience" in (stage.ended_by or ()) for stage in start.record.stages or ())
    return stopped or (start.record.config or {})["keep"] == "best"


def _judge(
    dataset: Dataset, run: FitRun, selected: Selected, record: ModelRecord, panel: Panel, *, apart: bool
) -> tuple[dict[str, NDArray[np.generic]], ModelRecord, str]:
    """Return what held-out subjects say of what a fit ends with: arrays and record of its file, and what is doubtful.

    They are the calibration of its intervals (spec BAND-3), the support of plans (spec SUPPORT-6) and the hazards of
    ends (spec SURV-2, SURV-11). Facts about outcomes stand in the calibration, where there is none in the support, and
    where there is neither by themselves.
    Beside them stands whether differences between plans are effects (spec SUPPORT-10).
    """
    task = run.task
    facts = facts_of(task.start) if task.start else None
    if facts is None:  # source-train is not at hand in few-shot, unless the method learns from it again
        train = dataset.panels.get(Part("source", "train"), task.panels[task.train])
        facts = OutcomeFacts.of(train, dataset.schema, task.scaler)
    model = run.model(selected.fitted, record.settings)
    held = held_out(model, panel, facts)
    support = learn_support(model, task.panels[task.train], held, facts, domain=task.domain)
    practice = support.practice if support else None
    calibration = calibrate(model, held, facts, domain=task.domain, apart=apart, practice=practice)
    same_ends = task.start is not None and task.start.schema.ends == dataset.schema.ends
    start = survival_of(task.start) if task.start and same_ends and run.few_shot else None
    survival, doubt = learn_survival(model, task.panels[task.train], panel, facts, domain=task.domain, start=start)
    arrays: dict[str, NDArray[np.generic]] = {}
    for found in (calibration, support, survival):
        arrays |= found.to_arrays() if found else {}
    of_outcomes = {"facts": facts.to_meta()}
    record = replace(
        record,
        reactions=Reactions.of(model, task.panels[task.train]).to_meta(),
        calibration=calibration.to_meta() if calibration else None,
        practice=support.to_meta() | ({} if calibration else of_outcomes) if support else None,
        outcome_facts=None if calibration or support else of_outcomes,
        survival=survival.to_meta() if survival else None,
    )
    return arrays, record, doubt


def _record(dataset: Dataset, run: FitRun, selected: Selected, config: FinetuneConfig, members: int) -> ModelRecord:
    """Return what the file of a model says before held-out subjects have been asked."""
    task, start, fitted = run.task, run.task.start, selected.fitted
    # counts of another data set say nothing of this one's
    before = start.record if start is not None and same_data(start.parents, dataset) is not False else ModelRecord()
    n_train, n_validation = (task.panels[part].n_subjects for part in (task.train, task.validation))
    init = "scratch" if start is None else start.record.init or "pretrained"
    if selected.is_source and start is not None:  # the source's model was kept as it is
        settings = dict(start.record.settings or {})
    else:
        settings = task.settings.model_dump(mode="json") if task.settings else {}
    return ModelRecord.of_fit(
        fitted.meta,
        method=run.method.name,
        init=init if run.method.pretrained else "none",
        domain=task.domain,
        horizon=task.horizon,
        stages=tuple(run.stages),
        made_with=tuple(run.makings or [run.runtime.making()]),
        stopped_by_budget=tuple(stage.name for stage in run.stages if stage.ended_by_budget),
        settings=settings,
        trained_on={**(before.trained_on or {}), f"{task.domain}/train": n_train},
        selected_on={**(before.selected_on or {}), f"{task.domain}/val": n_validation},
        unlabelled_target_subjects=start.record.unlabelled_target_subjects if start else None,
        validation=selected.validation.record if selected.validation else None,
        kept_source_members=selected.kept_source_members if run.few_shot else None,
        stretch=STRETCH if task.in_stretches else None,
        **_facts_of_run(dataset, run.history, members, run.identity.fingerprint, config, run.runtime),
    )


def _warn(
    dataset: Dataset, method: Method, start: FittedModel | None, selected: Selected, reporter: Reporter
) -> list[str]:
    """Say what makes a model doubtful: what it started from, its fit, and how it does on validation.

    Returns:
        These warnings, and the one about other data, which the verbs have given before they trained.
    """
    inherited = warnings_of("what it started from", start.record.warnings) if start else []
    loses = selected.validation.warning if selected.validation else None
    of_method = method.doubts(dataset.schema, selected.fitted.meta.get("decoder"))
    doubts = [doubt for doubt in of_method if not any(str(doubt) in str(one) for one in inherited)]
    of_fit = [Diagnostic.of("fit-doubtful", warning=warning) for warning in selected.fitted.warnings]
    warnings = [*inherited, *doubts, *of_fit, *([loses] if loses else [])]
    for warning in warnings:
        reporter.say(warning)
    other = other_data("what it started from", start.parents, dataset) if start else None
    return [str(warning) for warning in (*warnings, *([other] if other else []))]


def _check_start(dataset: Dataset, start: FittedModel | None) -> None:
    if start is None:
        return
    what = "the model to start from" if start.horizon else "the encoder to start from"
    require_compatible(dataset, start.schema, model=what, horizon=start.horizon or None, exactly=True)


def _support(dataset: Dataset, domain: Domain, start: FittedModel | None, reporter: Reporter) -> Support | None:
    """Return what the training subjects of all stages were given, None where the source's are unknown."""
    support: Support | None = Support.of(dataset.panel(domain, "train"), dataset.schema)
    if start is not None and domain == "target":
        source = start.record.support
        support = support | source if support and source else None
    if support is not None:
        _warn_of_unseen(support, dataset, reporter)
    return support


def _warn_of_unseen(support: Support, dataset: Dataset, reporter: Reporter) -> None:
    """Name the treatments that no training subject was given, or not by themselves."""
    if support.seen is None:
        reporter.say(Diagnostic.of("combinations-unchecked", "training subjects", most=MOST_KEPT))
    unseen = support.unseen(dataset.schema.treatments)
    never, alone = ([lack.what for lack in unseen if lack.kind == kind] for kind in ("never", "others"))
    lacking = [f"no training subject received {shown(never)}"] if never else []
    for what in (*lacking, never_together(unseen, "a training subject")):
        if what:
            reporter.say(Diagnostic.of("unseen-treatment", what=what))
    for group in support.always_together(dataset.schema.treatments):
        reporter.say(Diagnostic.of("always-together", names=shown(group)))
    if alone:
        reporter.say(Diagnostic.of("never-alone", names=shown(alone)))


def _facts_of_run(
    dataset: Dataset,
    history: dict[str, list[object]],
    members: int,
    fingerprint: str,
    config: Config,
    runtime: Runtime,
) -> dict[str, Any]:
    """Return the facts of an encoder or a model that are about its data and its run, as fields of a record."""
    return {
        "fingerprint": fingerprint,
        "dataset_name": dataset.name,
        # of a table, so that new subjects can be read as it was
        "preprocessing": dataset.config.get("preprocessing") or None,
        "schema": dataset.schema,
        "config": config.model_dump(),
        "members": members,
        "precision": runtime.precision,
        "device": runtime.kind,
        "history": history,
    }
