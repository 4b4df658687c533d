"""One fit, from its first stage to the model that it ends with: stages in order, selection, and "no move"."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.choices import SelectionName
from costar_cli.data.record import ModelRecord, StageRecord
from costar_cli.data.transforms import OutcomeTransforms
from costar_cli.data.truncated import STRETCH
from costar_cli.errors import Termination, UsageError
from costar_cli.files import Artifact
from costar_cli.files.digest import Making
from costar_cli.methods.base import FinalStage, FitTask, Fitted, FittedModel, FittedPart, Parameters, Stage
from costar_cli.methods.entry import Method
from costar_cli.methods.registry import METHODS
from costar_cli.methods.shared.outcome_forms import choose_forms
from costar_cli.methods.shared.trained import model_arrays
from costar_cli.methods.shared.transformed import inner_task
from costar_cli.reporting import Reporter
from costar_cli.training.effect_check import effect_check
from costar_cli.training.identity import RunIdentity
from costar_cli.training.log import TrainingLog, no_log
from costar_cli.training.run_files import stage_checkpoint
from costar_cli.training.runtime import Runtime
from costar_cli.training.selection import Validation, ValidationWindows, WeightScorer

if TYPE_CHECKING:  # closed forms are fitted without torch
    from torch import Tensor

    from costar_cli.methods.shared.members import Params
    from costar_cli.training.loop import TrainedMembers

HISTORY = ("train_loss", "validation_loss", "best_epoch")


def no_history() -> dict[str, list[object]]:
    """Return the history of a fit without stages."""
    return {key: [] for key in HISTORY}


@dataclass(frozen=True)
class Selected:
    """What a fit ends with, and how that does on validation.

    `kept_source_members` are the numbers, from 1, of few-shot members that are the source's, since their fit did no
    better; `is_source` says that a fit without members of its own is the source's altogether.
    """

    fitted: Fitted
    validation: Validation | None
    kept_source_members: tuple[int, ...] = ()
    is_source: bool = False


@dataclass
class FitRun:
    """Runs the stages of a fit one after another, each resumable: a finished one is read back, not run again.

    `windows` are what complete models are scored on; None where no validation subject has a step to predict.
    `first_stage` counts the stages of other parts of the same run, `begun` those that this fit and its parts have
    begun: each has a file of run state of its own, also where it failed. `log` is told of every epoch, and `part` is
    what it calls the part that this fit is of another one, empty for the whole. `set_aside` are the updates of a preset
    that chosen epochs put aside.
    """

    method: Method
    task: FitTask
    windows: ValidationWindows | None
    checkpoint: Path | None
    identity: RunIdentity
    runtime: Runtime
    reporter: Reporter
    history: dict[str, list[object]] = field(default_factory=no_history)
    stages: list[StageRecord] = field(default_factory=list)
    first_stage: int = 0
    begun: int = 0
    makings: list[Making] = field(default_factory=list)
    select_on: SelectionName | None = None
    log: TrainingLog | None = None
    part: str = ""
    set_aside: int | None = None

    @property
    def few_shot(self) -> bool:
        """Return whether the fit starts from a complete model."""
        return self.task.start is not None and self.task.start.horizon > 0

    @property
    def compares_own_loss(self) -> bool:
        """Return whether the fit's own loss tells it from the source's complete model.

        That takes a single stage, which starts from that model. The last of several stages reads what the others have
        learned since, so that its loss of the source's weights is not that of the source's model.
        """
        return len(self.stages) == 1 and self.select_on == "own-loss"

    def fit(self) -> Fitted:
        """Return what the fit ends with; `history` is then that of the last stage.

        Raises:
            UsageError: its parameters are not those of all members; an error of the method, not of who runs it.
        """
        task, _ = self._learned
        stages = self.method.fit(replace(task, fit_part=self.fit_part, effect_check=partial(effect_check, task)))
        try:
            step = next(stages)
            while True:
                trained = self._train(step)
                step = stages.send({name: v.to(self.runtime.device) for name, v in trained.params.items()})
        except StopIteration as end:
            fitted: Fitted = end.value
        # Models are stored and read as arrays of all members.
        if not fitted.params:
            fix = "return at least one array that leads with the member axis"
            raise UsageError(f"the fit of {self.method.name} returned no parameters", where="Fitted.params", fix=fix)
        members = self.task.members
        for name, value in fitted.params.items():
            shape = list(value.shape) if isinstance(value, np.ndarray) or hasattr(value, "detach") else None
            if shape is None or shape[:1] != [members]:
                what = f"a parameter of type {type(value).__name__}" if shape is None else f"an array of shape {shape}"
                said = f"the fit of {self.method.name} returned {what}"
                fix = f"return an array [{members},...] that leads with the member axis"
                raise UsageError(said, where=f"Fitted.params[{name!r}]", fix=fix)
        return fitted

    @cached_property
    def _learned(self) -> tuple[FitTask, OutcomeTransforms | None]:
        """Return the task with outcomes as the method learns them, and how they are transformed, if they are."""
        return inner_task(self.task) if self.method.transforms_outcomes else (self.task, None)

    def fit_part(self, method: str, start: FittedModel | None) -> FittedPart:
        """Fit another method as a part of this one, as it is fitted alone; its stages are stages of this run."""
        Termination.stop_if_signalled()
        part, before = METHODS[method], self.first_stage + self.begun
        settings = self.task.part_settings.get(method, part.default_settings())
        members = 1 if part.closed_form else self.task.members
        task = replace(self.task, settings=settings, members=members, start=start, part_settings={}, fit_part=None)
        run = replace(
            self, method=part, task=task, history=no_history(), stages=[], first_stage=before, begun=0, select_on=None,
            part=method,
        )  # fmt: skip
        self.reporter.note(f"fitting {part.label}")
        try:
            selected = run.select(run.fit())
        finally:
            self.begun += run.begun
        self.stages += [replace(stage, name=f"{method}: {stage.name}") for stage in run.stages]
        artifact = run.artifact(selected.fitted)
        return FittedPart(artifact, part.load(artifact, self.runtime.name), selected.fitted.warnings)

    def select(self, fitted: Fitted) -> Selected:
        """Return the fit with its validation; few-shot members that do no better than the source's give way to them."""
        start, members = self.task.start, self.task.members
        if self.windows is None:
            return Selected(fitted, None)
        model, queries = self.model(fitted), self.windows.queries
        score_R, last_value = self.windows.score(model), self.windows.last_value(model)
        validation = Validation(tuple(score_R.tolist()), last_value, len(queries), queries.horizon)
        if start is None or not self.few_shot:
            return Selected(fitted, validation)
        source_R = self.windows.score(start)[:members]
        validation = replace(validation, source=tuple(source_R.tolist()))
        if fitted.moved is not None:
            of_source = () if fitted.moved else tuple(range(1, members + 1))
            return Selected(fitted, validation, of_source, is_source=not fitted.moved)
        if self.compares_own_loss:
            kept_R = self._never_moved()
        else:
            windows = self._judging()
            assert windows is not None  # noqa: S101 - there are windows
            kept_R = ~(windows.score(model) < windows.score(start)[:members])
        learns = any(math.prod(value.shape) for value in fitted.params.values())
        if not kept_R.any() or not learns:
            return Selected(fitted, validation)
        numbers = tuple(int(r) + 1 for r in np.flatnonzero(kept_R))
        validation = replace(validation, members=tuple(np.where(kept_R, source_R, score_R).tolist()))
        if not kept_R.all():
            mixed = _mixed(fitted.params, start.params, kept_R)
            said = tuple(f"{warning} (adapted members)" for warning in fitted.warnings)
            return Selected(replace(fitted, params=mixed, warnings=said), validation, numbers)
        recorded = start.record.to_meta()
        facts = {key: recorded.get(key, value) for key, value in fitted.meta.items()}
        own = {name: value[:members] for name, value in start.params.items()}
        kept = replace(
            fitted, params=own, meta=facts, warnings=()
        )  # the rejected fit's warnings are about none of them
        return Selected(kept, validation, numbers, is_source=self.method.closed_form)

    def model(self, fitted: Fitted, settings: Mapping[str, Any] | None = None) -> FittedModel:
        """Return the complete model of what a fit ends with, as its artifact would give it."""
        return self.method.load(self.artifact(fitted, settings), self.runtime.name)

    def artifact(self, fitted: Fitted, settings: Mapping[str, Any] | None = None) -> Artifact:
        """Return what an artifact of the fit holds that its model is made from."""
        task = self.task
        own = task.settings.model_dump(mode="json") if task.settings else {}
        record = ModelRecord.of_fit(
            fitted.meta,
            method=self.method.name,
            horizon=task.horizon,
            schema=task.schema,
            config=task.config.model_dump(),
            settings=own if settings is None else settings,
            stretch=STRETCH if task.in_stretches else None,
        )
        return Artifact(kind="model", arrays=self.arrays(fitted), meta=record.to_meta())

    def arrays(self, fitted: Fitted) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of such an artifact."""
        _, transforms = self._learned
        made = model_arrays(fitted.params, self.task.scaler) | fitted.arrays
        return made if transforms is None else made | transforms.to_arrays()

    def _train(self, step: Stage | FinalStage) -> "TrainedMembers":
        from costar_cli.training.checkpoint import Checkpoint  # noqa: PLC0415 - closed forms have no stage
        from costar_cli.training.loop import Selection, tell_of_epochs, train_members  # noqa: PLC0415

        stage, scorer = (step.stage, self._scorer(step)) if isinstance(step, FinalStage) else (step, None)
        index = self.first_stage + self.begun
        self.begun += 1
        tell_of_epochs(stage, self.set_aside, self.reporter)
        own, following = (self.checkpoint and stage_checkpoint(self.checkpoint, i) for i in (index, index + 1))
        run = Checkpoint(
            own,
            self.identity.of_stage(index, stage.name),
            reporter=self.reporter,
            stage=stage,
            followed=following is not None and following.exists(),
            making=self.runtime.making(),
        )
        self.makings += [making for making in run.makings if making not in self.makings]
        selection = Selection(scorer, from_start=self.few_shot)
        log = self.log.of_part(self.part) if self.log else no_log
        trained = train_members(stage, self.task.members, self.runtime, run, self.reporter, selection, log)
        self.history = trained.history
        self.stages.append(trained.record(stage.name))
        return trained

    def _scorer(self, last: FinalStage) -> WeightScorer | None:
        """Return what scores complete models while their last stage is trained; None for its own loss."""
        import torch  # noqa: PLC0415 - closed forms have no stage

        self.select_on = last.select_on or self.task.config.select_on
        windows = self._judging()
        if windows is None or self.select_on == "own-loss":
            return None
        settings = last.settings.model_dump(mode="json") if last.settings else None

        def scorer(weights_R: "Params", members: Sequence[int]) -> list[float]:
            with torch.no_grad():
                score_R = windows.score(self.model(last.complete(weights_R, members), settings))
            return [float(score) for score in score_R]

        return scorer

    def _judging(self) -> ValidationWindows | None:
        """Return the windows on which weights are selected, in the scale that the settings name."""
        task = self.task
        if self.windows is None or self.select_on != "rolling-origin-relative":
            return self.windows
        return replace(self.windows, forms=choose_forms(task.panels[task.train], task.schema, task.scaler))

    def _never_moved(self) -> NDArray[np.bool_]:
        """Return which members kept the weights that they started from in the only stage, `[R]`."""
        (stage,) = self.stages
        return np.array(stage.history["best_epoch"]) < 0


def _mixed(params_R: Parameters, source_R: Parameters, kept_R: NDArray[np.bool_]) -> "Params":
    """Return parameters with some members' replaced by the source's.

    What models keep of their training data (G-Net's residuals) may differ in size: both are padded with zeros.
    """
    import torch  # noqa: PLC0415 - closed forms have one member

    rows = torch.from_numpy(np.flatnonzero(kept_R))
    mixed = {}
    for name in params_R:
        own, source = (torch.as_tensor(of[name]).detach().cpu() for of in (params_R, source_R))
        source = source.to(own.dtype)
        shape = [max(sizes) for sizes in zip(own.shape[1:], source.shape[1:], strict=True)]
        own = _padded(own, shape).clone()
        own[rows] = _padded(source, shape)[rows]
        mixed[name] = own
    return mixed


def _padded(value_R: "Tensor", shape: Sequence[int]) -> "Tensor":
    """Return values with zeros behind them along every axis but the first."""
    from torch.nn import functional  # noqa: PLC0415 - see above

    ends = [(0, wanted - size) for wanted, size in zip(shape, value_R.shape[1:], strict=True)]
    return functional.pad(value_R, [n for pair in reversed(ends) for n in pair])
