"""Run state on disk: what lets the same command continue after Ctrl-C, SIGTERM or SIGKILL."""

import signal
import threading
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
import torch
from numpy.typing import NDArray

from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import STOPS, ArtifactError, MismatchError, SignalHandler
from costar_cli.files import Artifact, read_artifact, write_artifact
from costar_cli.files.digest import Making, making_differences, makings_of
from costar_cli.methods.base import Stage
from costar_cli.methods.shared import processes
from costar_cli.methods.shared.members import Params
from costar_cli.reporting import Reporter
from costar_cli.training.group import GroupState, MemberRecord
from costar_cli.training.identity import RunIdentity
from costar_cli.training.run_files import START_OVER

Arrays = dict[str, NDArray[np.generic]]


class SavedGroup(NamedTuple):
    """Members whose training can go on: where they are, and `GroupState.to_arrays`."""

    position: dict[str, Any]
    arrays: Arrays

    @classmethod
    def of(cls, state: GroupState) -> "SavedGroup":
        """Save a group."""
        records = [asdict(record) for record in state.records]
        position = {"members": state.members, "epoch": state.epoch, "step": state.step, "records": records}
        return cls(position, state.to_arrays())

    def restore(self, state: GroupState) -> None:
        """Put a fresh group where this one is."""
        state.load_arrays(self.arrays)
        state.epoch, state.step = self.position["epoch"], self.position["step"]
        state.records = [MemberRecord(**record) for record in deepcopy(self.position["records"])]


class FinishedGroup(NamedTuple):
    """Members whose training is complete: the weights to return `[members,...]`, their histories.

    `end` is their state at the end where only the number of epochs ended them: with more epochs they go on from there.
    """

    members: list[int]
    kept: Params
    records: list[MemberRecord]
    end: SavedGroup | None = None


class Interrupt(SignalHandler):
    """Turns the first SIGINT, SIGTERM or SIGHUP into a request that the loop honours between two steps.

    A second one acts at once. Outside the main thread, where handlers cannot be set, nothing changes. In the end the
    first is handed on to whoever handled it before, who may want to tell it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *STOPS):
                if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` asks
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self.came is not None and callable(self._previous.get(self.came)):
            signal.raise_signal(self.came)

    def stop_if_requested(self) -> None:
        """Raise `KeyboardInterrupt` when a signal has come."""
        if self.agreed:
            raise KeyboardInterrupt

    @property
    def agreed(self) -> bool:
        """Return whether a signal has come to any of the processes that train together."""
        return processes.anywhere(self.came is not None)

    def _again(self, number: int) -> None:  # noqa: ARG002 - which one makes no difference
        raise KeyboardInterrupt


class Checkpoint:
    """The run state of one training stage.

    Args:
        path: file of the run state; None keeps nothing, for a fit that is not to be continued.
        identity: of the run. A state of another run is not continued, except by one that only has more epochs.
        reporter: told when a run continues.
        stage: what is trained: its epochs, and whether a schedule spans them.
        seconds: least time between two saves.
        followed: a later stage has begun from what this one ended with.
        making: what trains in this process.

    Raises:
        MismatchError: the interrupted run had other inputs or settings; listing them.
    """

    def __init__(
        self,
        path: Path | None,
        identity: RunIdentity,
        *,
        reporter: Reporter,
        stage: Stage | None = None,
        seconds: float = 15.0,
        followed: bool = False,
        making: Making | None = None,
    ) -> None:
        self._path, self._identity, self._seconds = path, identity, seconds
        self._reporter, self._stage, self._followed = reporter, stage, followed
        self._saved_at = time.monotonic()
        self._finished: list[FinishedGroup] = []
        self._waiting: list[SavedGroup] = []  # where groups that are not complete were when last heard of
        self.makings: list[Making] = []
        if path is not None and path.exists():
            self._load(path, reporter)
        if making is not None and making not in self.makings:
            if self.makings and (self._waiting or self._finished):
                lines = "; ".join(making_differences(self.makings, making))
                reporter.note(
                    f"the run was started in a different environment ({lines}): rounding, and so the digest, may differ"
                )
            self.makings.append(making)

    def finished_groups(self) -> list[FinishedGroup]:
        """Return the groups that an earlier run completed."""
        return list(self._finished)

    def pending_groups(self) -> list[list[int]]:
        """Return the groups of members that an earlier run left unfinished."""
        return [list(group.position["members"]) for group in self._waiting]

    def restore(self, state: GroupState) -> None:
        """Continue the group that an earlier run left unfinished, if this is one."""
        for group in self._waiting:
            if group.position["members"] == state.members:
                group.restore(state)
                return

    def complete(self, state: GroupState) -> FinishedGroup:
        """Return what is to be remembered of a complete group."""
        kept = {n: v.cpu() for n, v in state.kept.items()}
        may_go_on = not (state.done or self._why_no_longer())
        return FinishedGroup(state.members, kept, state.records, SavedGroup.of(state) if may_go_on else None)

    def finish(self, state: GroupState, rest: GroupState | None = None) -> None:
        """Remember a complete group, and where the rest of it goes on."""
        self.learn([self.complete(state)], [] if rest is None else [SavedGroup.of(rest)])
        self.save(None)

    def learn(self, finished: Sequence[FinishedGroup], going: Sequence[SavedGroup]) -> None:
        """Learn which groups processes have completed, and where they are with others."""
        self._finished += finished
        known = {member for group in finished for member in group.members}
        known |= {member for group in going for member in group.position["members"]}
        self._waiting = [*going, *(group for group in self._waiting if known.isdisjoint(group.position["members"]))]

    def save_if_due(self, state: GroupState, *, interrupted: bool) -> None:
        """Save when enough time has passed, or when interrupted, and then stop.

        Raises:
            KeyboardInterrupt: after saving, when interrupted.
        """
        if interrupted or self.is_due:
            self.save(state)
        if interrupted:
            if self._path is not None:
                self._reporter.note(f"progress saved at epoch {state.epoch + 1}, step {state.step + 1}")
            raise KeyboardInterrupt

    @property
    def is_due(self) -> bool:
        """Return whether enough time has passed since the last save."""
        return time.monotonic() - self._saved_at >= self._seconds

    @property
    def _epochs(self) -> int | None:
        return self._stage.config.epochs if self._stage else None

    def _why_no_longer(self) -> str | None:
        """Return why more epochs would make this stage another one from its first step on, if they would."""
        if self._stage is None:
            return None
        if self._stage.config.updates is not None:
            return f"stage `{self._stage.name}` lasts a number of `updates`, and epochs are equal shares of it"
        if self._stage.config.optimiser.schedule != "constant":
            return f"the learning rate of stage `{self._stage.name}` follows a schedule over all epochs"
        if self._stage.scheduled:
            return f"the balancing of stage `{self._stage.name}` follows a schedule over all epochs"
        return None

    def save(self, state: GroupState | None) -> None:
        """Write all that is known, and where this process is with a group; the first process writes for all."""
        if self._path is None or processes.rank():
            return
        arrays: Arrays = {}
        for index, group in enumerate(self._finished):
            arrays |= {f"finished/{index}/{name}": value.numpy() for name, value in group.kept.items()}
            arrays |= _under(f"end/{index}", group.end.arrays if group.end else {})
        current = None if state is None else SavedGroup.of(state)
        waiting = [group for group in self._waiting if state is None or group.position["members"] != state.members]
        for index, left in enumerate(waiting):
            arrays |= _under(f"waiting/{index}", left.arrays)
        meta: dict[str, Any] = {
            **self._identity.to_json(),
            "epochs": self._epochs,
            "made_with": self.makings,
            "finished": [
                {
                    "members": group.members,
                    "records": [asdict(record) for record in group.records],
                    "end": group.end.position if group.end else None,
                }
                for group in self._finished
            ],
            "waiting": [left.position for left in waiting],
            "current": None if current is None else current.position,
        }
        arrays |= _under("current", current.arrays if current else {})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_artifact(self._path, kind="run-state", arrays=arrays, meta=meta, overwrite=True)
        self._saved_at = time.monotonic()

    def _load(self, path: Path, reporter: Reporter) -> None:
        try:
            artifact = read_artifact(path, kind="run-state")
        except ArtifactError as error:
            reporter.say(Diagnostic.of("run-state-unreadable", problem=error.problem))
            return
        meta = artifact.meta
        self.makings = makings_of(meta)
        longer = False
        if meta["fingerprint"] != self._identity.fingerprint:
            before = RunIdentity.from_json(meta)
            if before is None or not self._identity.only_trains_longer(before):
                self._refuse(meta)
            longer = meta["epochs"] != self._epochs  # otherwise another network's epochs are more
            if longer and (reason := self._why_no_longer()):
                self._refuse(meta, reason)
        for index, group in enumerate(meta["finished"]):
            end = group.get("end")
            saved = SavedGroup(end, _within(artifact, f"end/{index}")) if end else None
            if longer and saved is not None:
                self._waiting.append(saved)
                continue
            params = {name: torch.from_numpy(value) for name, value in _within(artifact, f"finished/{index}").items()}
            records = [MemberRecord(**record) for record in group["records"]]
            self._finished.append(FinishedGroup(group["members"], params, records, saved))
        if longer and self._waiting and self._followed:
            self._refuse(meta, "a later stage has already started from the result of the shorter training")
        current = meta["current"]
        if current is not None:
            self._waiting.insert(0, SavedGroup(current, _within(artifact, "current")))
        self._waiting += [
            SavedGroup(position, _within(artifact, f"waiting/{index}"))
            for index, position in enumerate(meta.get("waiting", []))
        ]
        if self._waiting:
            position = self._waiting[0].position
            how = f" with {self._epochs} epochs instead of {meta['epochs']}" if longer else ""
            reporter.note(f"continuing at epoch {position['epoch'] + 1}, step {position['step'] + 1}{how}")
        elif self._finished:
            reporter.note(f"continuing after {sum(len(group.members) for group in self._finished)} finished members")

    def _refuse(self, meta: Mapping[str, Any], *reasons: str) -> NoReturn:
        before = RunIdentity.from_json(meta)
        lines = [] if before is None else self._identity.differences(before)
        flags = None if before is None else self._identity.flags_of(before)
        had = f"`{flags}`" if flags else "its inputs and settings"
        unknown = (
            "what differs is unknown: that run was started by a version of costar that did not record its settings"
        )
        raise MismatchError(
            "an interrupted run with other inputs or settings is here",
            where=str(self._path),
            fix=f"to continue it, use {had}; or add {START_OVER} to start over",
            details=[*(lines or [unknown]), *reasons],
        )


def _under(group: str, arrays: Arrays) -> Arrays:
    return {f"{group}/{name}": value for name, value in arrays.items()}


def _within(artifact: Artifact, group: str) -> Arrays:
    prefix = f"{group}/"
    return {n.removeprefix(prefix): np.array(v) for n, v in artifact.arrays.items() if n.startswith(prefix)}
