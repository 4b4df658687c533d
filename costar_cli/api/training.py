"""Training in the Python API: `pretrain` and `fit`, as the verbs `pretrain` and `finetune` do it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from costar_cli.api.calls import PathLikeText, Progress, one_of, reporting, require_data_set, resolved
from costar_cli.api.fitting import plan_fit, plan_pretraining
from costar_cli.api.model import Encoder, Model, model_on, of_training
from costar_cli.config.choices import DomainName, InitName, PresetName
from costar_cli.data.compatible import other_data
from costar_cli.data.dataset import Dataset, Part
from costar_cli.data.store import with_digest
from costar_cli.errors import MismatchError, UsageError
from costar_cli.files import Artifact, fingerprint
from costar_cli.methods.registry import METHODS, REFERENCE
from costar_cli.reporting import Reporter
from costar_cli.settings.resolve import Settings
from costar_cli.training import forget_runs

if TYPE_CHECKING:
    from costar_cli.training import TrainingLog

ENCODER, MODEL = "encoder.h5", "model.h5"  # states of runs


def pretrain(
    dataset: Dataset,
    *,
    preset: PresetName | None = None,
    config: PathLikeText | None = None,
    seed: int | None = None,
    members: int | None = None,
    progress: Progress = False,
    checkpoints: PathLikeText | None = None,
    log: PathLikeText | None = None,
    **settings: object,
) -> Encoder:
    """Pretrain COSTAR's encoders on the source domain's series, as `costar pretrain` does.

    Args:
        dataset: what to learn from.
        preset: `quick`, `default` or `paper`.
        config: a TOML file of settings; arguments overrule it.
        seed: of initialisation, shuffling, dropout and augmentation.
        members: ensemble members.
        progress: True for progress on stderr, or a `Reporter`.
        checkpoints: a folder in which an interrupted run is kept, so that the same call continues it; none by default.
        log: a file, `.csv` or `.jsonl`, or a folder for TensorBoard, to which every epoch of every member is written.
        **settings: settings of `pretrain` and `runtime`, such as `epochs=3` or `encoder={"width": 12}`.

    Raises:
        UsageError: an unknown setting, or a value that is not valid.
        DataError: the data set lacks subjects to learn from or to select on.
        MismatchError: the log exists and is none of this run.
    """
    require_data_set(dataset)
    given = _with_shared(settings, seed=seed, members=members)
    dataset = with_digest(dataset)
    chosen = resolved(given, ["pretrain", "runtime"], preset=preset, config=config, dataset=dataset.name)
    run = _mark(chosen, dataset, "encoder", {})
    with reporting(progress) as reporter, _logged(log, run) as to:
        states = _states(checkpoints)
        encoder = Encoder(_pretrained(dataset, chosen, states, reporter, to))
        _forget(states)
        return encoder


def fit(
    dataset: Dataset,
    method: str = REFERENCE,
    *,
    domain: DomainName = "source",
    init: InitName | None = None,
    start: Encoder | Model | None = None,
    preset: PresetName | None = None,
    config: PathLikeText | None = None,
    seed: int | None = None,
    members: int | None = None,
    progress: Progress = False,
    checkpoints: PathLikeText | None = None,
    log: PathLikeText | None = None,
    **settings: object,
) -> Model:
    """Fit a method to a domain's subjects, as `costar finetune` does; COSTAR is pretrained first.

    Args:
        dataset: what to learn from.
        method: `costar`, a baseline such as `crn`, or an anchor such as `ridge`.
        domain: `source`; or `target`, which adapts the source's model to few subjects of the target.
        init: `scratch` leaves COSTAR's pretraining out.
        start: an encoder that `pretrain` made, instead of pretraining here; the source's model for `target`.
        preset: `quick`, `default` or `paper`.
        config: a TOML file of settings; arguments overrule it.
        seed: of initialisation, shuffling, dropout and augmentation, in pretraining and fine-tuning.
        members: ensemble members of both.
        progress: True for progress on stderr, or a `Reporter`.
        checkpoints: a folder in which an interrupted run is kept, so that the same call continues it; none by default.
        log: a file, `.csv` or `.jsonl`, or a folder for TensorBoard, to which every epoch of every member is written.
        **settings: settings of `finetune` and `runtime` and of the method, such as `epochs=3` or `threads=1`; those of
            another section as a table, such as `pretrain={"epochs": 3}`. `costar settings` lists them.

    Raises:
        UsageError: an unknown method or setting, a value that is not valid, or choices that contradict each other.
        DataError: the data set lacks subjects to learn from.
        MismatchError: what to start from was trained on other variables, or has fewer members; the log exists and is
            none of this run.
        TrainingError: training diverged.
    """
    require_data_set(dataset)
    _check_choices(method, domain, init, start)
    dataset = with_digest(dataset)
    sections = ["finetune", "runtime", method.replace("-", "_")]
    given = _with_shared(settings, "pretrain", seed=seed, members=members)
    chosen = resolved(given, sections, preset=preset, config=config, dataset=dataset.name)
    run = _mark(
        chosen, dataset, "model", {"method": method, "domain": domain, "start": start.digest if start else init}
    )
    with reporting(progress) as reporter, _logged(log, run) as to:
        states = _states(checkpoints)
        begin = start.artifact if start is not None else None
        if begin is None and METHODS[method].pretrained and init != "scratch":
            begin = _pretrained(dataset, chosen, states, reporter, to)
        elif begin is not None and (warning := other_data(f"the {begin.kind}", begin.parents, dataset)):
            reporter.say(warning)
        plan = plan_fit(chosen, method, domain, dataset=dataset.digest, start=begin)
        own = _only(dataset, plan.parts)
        trained = plan.run(own, begin, checkpoint=states.get(MODEL), reporter=reporter, log=to)
        _forget(states)
        return model_on(of_training("model", trained), plan.runtime)


def _check_choices(method: str, domain: str, init: str | None, start: object) -> None:
    """Check the arguments that are no settings, and that they go together."""
    one_of(method, METHODS, "method", "method")
    one_of(domain, get_args(DomainName), "domain", "domain")
    if init is not None:
        one_of(init, get_args(InitName), "init", "way to start")
    if start is not None and not isinstance(start, Encoder | Model):
        raise UsageError(
            f"cannot start from {type(start).__name__}", where="start=", fix="give what `pretrain` or `fit` returned"
        )
    pretrained = METHODS[method].pretrained
    if not pretrained and init is not None:
        raise UsageError(f"only COSTAR is pretrained, {method} is not", where="init=", fix="leave it out")
    if domain == "target":
        if not isinstance(start, Model):
            fix = '`source = fit(dataset, ...)`, then `fit(dataset, ..., domain="target", start=source)`'
            raise UsageError("the target model starts from the source model", where="start=", fix=fix)
    elif start is not None and not METHODS[method].combines and (not pretrained or init == "scratch"):
        what = '`init="scratch"`' if pretrained else method
        raise UsageError(f"{what} takes nothing to start from", where="start=", fix="leave one of them out")
    elif isinstance(start, Model):
        raise UsageError(
            "the source's model starts from an encoder", where="start=", fix="give what `pretrain` returned"
        )


def _pretrained(
    dataset: Dataset, settings: Settings, states: Mapping[str, Path], reporter: Reporter, log: "TrainingLog | None"
) -> Artifact:
    plan = plan_pretraining(settings, dataset.digest)
    trained = plan.run(_only(dataset, plan.parts), checkpoint=states.get(ENCODER), reporter=reporter, log=log)
    return of_training("encoder", trained)


def _mark(settings: Settings, dataset: Dataset, kind: str, choices: Mapping[str, object]) -> str:
    """Return the mark of a run in its log: that of all settings, so that the same call continues it."""
    config = {section: one.model_dump(mode="json") for section, one in settings.configs.items() if section != "runtime"}
    return fingerprint(kind, parents={"dataset": dataset.digest}, config={**config, **choices})


def _logged(path: PathLikeText | None, run: str) -> "AbstractContextManager[TrainingLog | None]":
    """Return the log of a run, to be used in a `with` statement.

    Raises:
        UsageError: a file of another kind.
        MismatchError: the file exists and is no log of this run.
    """
    if path is None:
        return nullcontext()
    from costar_cli.training import TrainingLog, check_log

    try:
        check_log(Path(path), run, overwrite=False)
    except MismatchError as error:
        raise MismatchError(error.problem, where="log=", fix="choose another name, or delete it") from None
    return TrainingLog(Path(path), run)


def _states(checkpoints: PathLikeText | None) -> dict[str, Path]:
    """Return the files of run states in the caller's folder, which is made; none without a folder."""
    if checkpoints is None:
        return {}
    Path(checkpoints).mkdir(parents=True, exist_ok=True)
    return {name: Path(checkpoints) / name for name in (ENCODER, MODEL)}


def _forget(states: Mapping[str, Path]) -> None:
    """Delete the states of runs that are complete."""
    for path in states.values():
        forget_runs(path)


def _with_shared(settings: dict[str, object], *tables: str, **shared: object) -> dict[str, object]:
    """Return settings with those that are shared: as single ones, and in tables that do not say otherwise."""
    given = {name: value for name, value in shared.items() if value is not None}
    both = {**given, **settings}
    for table in tables if given else ():
        own = settings.get(table, {})
        both[table] = {**given, **own} if isinstance(own, dict) else own
    return both


def _only(dataset: Dataset, parts: Sequence[Part]) -> Dataset:
    """Return what a fit reads of a data set: some of its panels."""
    return replace(dataset, panels={part: dataset.panel(*part) for part in parts}, queries={}, truth={})
