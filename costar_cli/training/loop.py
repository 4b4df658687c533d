"""The training loop: any stage, R members, exact resume (spec NET-1 to 3, NET-18 to 20)."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass
from typing import Literal

import torch
from torch import Tensor

from costar_cli.data.record import StageRecord
from costar_cli.errors import TrainingError
from costar_cli.methods.base import Stage
from costar_cli.methods.shared import processes
from costar_cli.methods.shared.members import Params
from costar_cli.methods.shared.microbatches import cores_for_microbatches
from costar_cli.methods.shared.stage import EpochSchedule
from costar_cli.reporting import Reporter, Task
from costar_cli.training.checkpoint import Checkpoint, FinishedGroup, Interrupt
from costar_cli.training.divided import Divided, own_groups
from costar_cli.training.graphs import CudaRecorder, ReplayedSteps
from costar_cli.training.group import GroupState
from costar_cli.training.log import EpochLog, no_log
from costar_cli.training.runtime import Runtime
from costar_cli.training.selection import WeightScorer
from costar_cli.training.step import pace_of, stream_of, training_step

EndedBy = Literal["patience", "budget"]
Steps = Callable[[Tensor], Tensor]  # take one optimiser step of every member on rows `[R,B]`; return losses `[R]`


@dataclass(frozen=True)
class Selection:
    """What selects an epoch's weights: a judge of complete models, or the stage's own validation loss.

    With `from_start` the weights that members start from are a candidate, too.
    """

    scorer: WeightScorer | None = None
    from_start: bool = False


BY_OWN_LOSS = Selection()


@dataclass(frozen=True)
class TrainedMembers:
    """The kept parameters of all members, `[R,...]` by name on the CPU, and their histories.

    `steps` are the optimiser steps that each member took, `ended_by` says what ended its training: patience, or the
    budget of epochs or updates. `passes` over the rows were allowed.
    """

    params: Params
    history: dict[str, list[object]]
    steps: list[int]
    ended_by: list[EndedBy]
    passes: float

    def record(self, stage: str) -> StageRecord:
        """Return what an artifact tells of the stage."""
        steps, ended_by = tuple(self.steps), tuple(self.ended_by)
        return StageRecord(name=stage, history=self.history, steps=steps, ended_by=ended_by, passes=self.passes)


def train_members(
    stage: Stage,
    members: int,
    runtime: Runtime,
    checkpoint: Checkpoint,
    reporter: Reporter,
    selection: Selection = BY_OWN_LOSS,
    log: EpochLog = no_log,
) -> TrainedMembers:
    """Train all members of a stage, a group at a time, continuing an interrupted run where it stopped.

    Several processes divide the groups, or share each one if there are fewer. Every epoch is told to `log`, those of
    the interrupted run first.

    Raises:
        TrainingError: a loss or gradient is not finite.
        KeyboardInterrupt: the run was interrupted; its state is saved.
    """
    processes.wait()  # the state of an interrupted run is read by all before the first one replaces it
    finished, pending = checkpoint.finished_groups(), checkpoint.pending_groups()
    done = {member for group in (*(ended.members for ended in finished), *pending) for member in group}
    # Groups left unfinished come first. The size of others may differ from that of the interrupted run: results do not
    # depend on it. Where it can be, there is a group for each process.
    rest = [member for member in range(members) if member not in done]
    wanted = processes.count() - len(pending)
    count = max(wanted if wanted <= len(rest) else 0, -(-len(rest) // runtime.group_size(stage, members)))
    groups = [*pending, *(rest[k * len(rest) // count : (k + 1) * len(rest) // count] for k in range(count))]
    divided = own_groups(groups)
    own = groups if divided is None else divided
    pace = pace_of(stage)
    for ended in finished:
        log(stage, ended.members, ended.records, None)
    n_rounds = len(finished) + len(own)
    with (
        Interrupt() as interrupt,
        cores_of(runtime),
        reporter.task(stage.name, total=n_rounds * pace.steps, done=len(finished) * pace.steps) as task,
        ExitStack() as others,
    ):
        keeper: Checkpoint | Divided = checkpoint
        if divided:
            keeper = others.enter_context(Divided(stage, checkpoint, interrupt, log, reporter))
            log = keeper.log
        for group in own:
            state = GroupState.fresh(stage, group, runtime)
            checkpoint.restore(state)
            log(stage, state.members, state.records, None)
            task.advance(pace.before(state.epoch) + state.step)
            going: GroupState | None = state
            while going is not None:
                state = going
                steps = stepping(stage, state, runtime, reporter)
                train_group(stage, state, runtime, keeper, task, interrupt, selection, log, steps)
                over, going = state.parted(pace.epochs)
                keeper.finish(over, going)
            task.advance(pace.steps - pace.before(state.epoch))
            interrupt.stop_if_requested()
    return _assembled(checkpoint.finished_groups(), pace)


def tell_of_epochs(stage: Stage, set_aside: int | None, reporter: Reporter) -> None:
    """Say how long a stage is at most where a preset's number of `updates` was put aside by chosen epochs."""
    if set_aside is not None:
        pace = pace_of(stage)
        steps = f"{pace.steps:,} update{'s' * (pace.steps != 1)} at most"
        said = f"the preset's {set_aside:,} do not apply where `epochs` are chosen"
        reporter.note(f"{stage.name}: {pace.epochs:,} epoch{'s' * (pace.epochs != 1)}, {steps}; {said}")


def _assembled(finished: list[FinishedGroup], pace: EpochSchedule) -> TrainedMembers:
    """Return all members in order, whatever the groups in which they were trained."""
    order = torch.tensor([member for group in finished for member in group.members]).argsort()
    params = {name: torch.cat([group.kept[name] for group in finished])[order] for name in finished[0].kept}
    records = [record for group in finished for record in group.records]
    ordered = [records[at] for at in order.tolist()]
    keys: tuple[str, ...] = ("train_loss", "validation_loss", "best_epoch")
    keys += tuple(key for key in ("selection_score", "start_score") if getattr(ordered[0], key) not in (None, []))
    history = {key: [asdict(record)[key] for record in ordered] for key in keys}
    return TrainedMembers(
        params,
        history,
        steps=[pace.before(len(record.train_loss)) for record in ordered],
        ended_by=["patience" if record.stopped else "budget" for record in ordered],
        passes=pace.steps / pace.steps_per_pass,
    )


def train_group(
    stage: Stage,
    state: GroupState,
    runtime: Runtime,
    keeper: Checkpoint | Divided,
    task: Task,
    interrupt: Interrupt,
    selection: Selection,
    log: EpochLog,
    steps: Steps,
) -> None:
    """Run epochs until all are done, or every member has stopped; on a CPU, where each one costs, until one has."""
    if selection.from_start and state.records[0].start_score is None:
        score_start(stage, state, runtime, selection.scorer)
    pace, passes = pace_of(stage), _Passes(stage, state.members)
    is_over = any if runtime.kind == "cpu" else all
    while state.epoch < pace.epochs and not is_over(record.stopped for record in state.records):
        begun, begun_s = pace.before(state.epoch), time.monotonic()
        while begun + state.step < pace.before(state.epoch + 1):
            rows_RB = passes.rows(begun + state.step).to(runtime.device)
            state.loss_sum_R += steps(rows_RB)
            state.step += 1
            so_far = float(state.loss_sum_R.mean()) / state.step
            task.advance(1, **_who(state), epoch=state.epoch + 1, training_loss_so_far=so_far, **_guessing(stage))
            keeper.save_if_due(state, interrupted=interrupt.agreed)
        finish_epoch(stage, state, runtime, selection.scorer)
        log(stage, state.members, state.records, time.monotonic() - begun_s)
        trained = [record for record in state.records if len(record.validation_loss) == state.epoch]
        losses = {
            "training_loss": sum(record.train_loss[-1] for record in trained) / len(trained),
            "validation_loss": sum(record.validation_loss[-1] for record in trained) / len(trained),
        }
        task.advance(0, **_who(state), epoch=state.epoch, **losses, **_guessing(stage))
        keeper.save_if_due(state, interrupted=interrupt.agreed)


def cores_of(runtime: Runtime) -> AbstractContextManager[None]:
    """Return the context in which steps are taken."""
    return cores_for_microbatches(runtime.threads) if runtime.kind == "cpu" else nullcontext()


def stepping(stage: Stage, state: GroupState, runtime: Runtime, reporter: Reporter) -> Steps:
    """Return what takes the steps of a group: recorded ones where these are asked for."""
    if runtime.graphs:
        return ReplayedSteps(stage, state, runtime, CudaRecorder(), reporter)
    return lambda rows_RB: training_step(stage, state, rows_RB, runtime)


class _Passes:
    """Which rows each member sees at which step: passes over all rows, each in an order of its own."""

    def __init__(self, stage: Stage, members: list[int]) -> None:
        self._stage, self._members, self._per_pass = stage, members, pace_of(stage).steps_per_pass
        self._pass, self._orders_RN = -1, torch.empty(0)

    def rows(self, step: int) -> Tensor:
        """Return the rows `[R,B]` of a step, counted from the stage's first."""
        number, batch = divmod(step, self._per_pass)
        if number != self._pass:
            streams = [stream_of(self._stage, "shuffle", member, number, 0) for member in self._members]
            self._orders_RN = torch.stack([stream.permutation(self._stage.n_train) for stream in streams])
            self._pass = number
        size = self._stage.config.batch_size
        return self._orders_RN[:, batch * size : (batch + 1) * size]


def score_start(stage: Stage, state: GroupState, runtime: Runtime, scorer: WeightScorer | None) -> None:
    """Make the weights that members start from a candidate: they are kept until an epoch is better."""
    with torch.no_grad():
        weights_R = stage.weights(state.learned, state.state)
    score_R = processes.first_says(
        validate(stage, state, runtime) if scorer is None else scorer(weights_R, state.members)
    )
    _require_finite_scores(stage, state, score_R)
    for record, score in zip(state.records, score_R, strict=True):
        record.start_score = score


def finish_epoch(stage: Stage, state: GroupState, runtime: Runtime, scorer: WeightScorer | None = None) -> None:
    """Validate, record, keep weights, and begin the next epoch."""
    train_R = (state.loss_sum_R / state.step).tolist()
    validation_R = processes.first_says(validate(stage, state, runtime))
    with torch.no_grad():
        weights_R = stage.weights(state.learned, state.state)
    score_R: Sequence[float | None] = [None] * len(train_R) if scorer is None else scorer(weights_R, state.members)
    score_R = processes.first_says(score_R)
    _require_finite_scores(stage, state, validation_R)
    _require_finite_scores(stage, state, score_R)
    for row, record in enumerate(state.records):
        if record.stopped:
            continue
        improved = record.add_epoch(train_R[row], validation_R[row], stage.config.patience, score_R[row])
        if improved or stage.keep == "last":
            state.keep(row, weights_R)
    state.loss_sum_R.zero_()
    state.epoch += 1
    state.step = 0


def validate(stage: Stage, state: GroupState, runtime: Runtime) -> list[float]:
    """Return each member's loss over the validation subjects, without side effects."""
    n_members = len(state.members)
    error_R = torch.zeros(n_members, dtype=torch.float64, device=runtime.device)
    weight_R = torch.zeros_like(error_R)
    rows_N = torch.arange(stage.n_validation, device=runtime.device)
    for index, rows_B in enumerate(torch.split(rows_N, stage.config.validation_batch_size)):
        streams = [stream_of(stage, "validation", member, state.epoch, index) for member in state.members]
        with runtime.autocast():
            loss_R, batch_weight_R = stage.validation_loss(
                state.learned, state.state, rows_B.expand(n_members, -1), streams
            )
        error_R += loss_R.double() * batch_weight_R.double()
        weight_R += batch_weight_R.double()
    return [float(x) for x in (error_R / weight_R.clamp(min=1)).tolist()]


def _require_finite_scores(stage: Stage, state: GroupState, score_R: Sequence[float | None]) -> None:
    """See that the members in training can be told apart by their errors on validation.

    Raises:
        TrainingError: an error is not finite.
    """
    for member, record, score in zip(state.members, state.records, score_R, strict=True):
        if not record.stopped and score is not None and not math.isfinite(score):
            raise TrainingError(
                "the error on validation is not finite",
                where=f"{stage.name}, member {member}, epoch {state.epoch + 1}",
                fix="correct the extreme values of validation subjects, if there are any, or lower `--learning-rate`",
            )


def _who(state: GroupState) -> dict[str, float]:
    """Return the number of a member that is trained alone; losses of several are their mean."""
    return {"member": state.members[0] + 1} if len(state.members) == 1 else {}


def _guessing(stage: Stage) -> dict[str, float]:
    reference = stage.reference()
    return {} if reference is None else {"guessing": reference}
