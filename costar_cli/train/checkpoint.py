"""Run state on disk: what lets the same command continue after Ctrl-C, SIGTERM or SIGKILL."""

import signal
import threading
import time
from dataclasses import asdict
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from costar_cli.artifact import read_artifact, write_artifact
from costar_cli.errors import ArtifactError
from costar_cli.methods.members import Params
from costar_cli.reporting import Reporter
from costar_cli.train.group import GroupState, MemberRecord

__all__ = ["Checkpoint", "FinishedGroup", "Interrupt"]


class FinishedGroup(NamedTuple):
    """Members whose training is complete: the weights to return `[members,...]` and their histories."""

    members: list[int]
    kept: Params
    records: list[MemberRecord]


class Interrupt:
    """Turns the first SIGINT or SIGTERM into a request that the loop honours between two steps.

    The second one acts at once. Outside the main thread, where handlers cannot be set, nothing changes. In the end a
    SIGTERM is handed on to whoever handled it before, who may want to tell it from Ctrl-C.
    """

    def __init__(self) -> None:
        self.requested = False
        self._terminated = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._terminated and callable(self._previous.get(signal.SIGTERM)):
            signal.raise_signal(signal.SIGTERM)

    def stop_if_requested(self) -> None:
        """Raise `KeyboardInterrupt` when a signal has come."""
        if self.requested:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        self._terminated |= number == signal.SIGTERM
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


class Checkpoint:
    """The run state of one training stage.

    Args:
        path: file of the run state; removed when the stage is complete.
        fingerprint: of inputs, config and version; a state of another fingerprint is not continued.
        seconds: least time between two saves.
        fresh: start over, whatever is there.
        reporter: told when a run continues.
    """

    def __init__(
        self, path: Path, fingerprint: str, *, reporter: Reporter, seconds: float = 15.0, fresh: bool = False
    ) -> None:
        self._path, self._fingerprint, self._seconds = path, fingerprint, seconds
        self._reporter = reporter
        self._saved_at = time.monotonic()
        self._finished: list[FinishedGroup] = []
        self._pending: tuple[dict[str, Any], dict[str, NDArray[np.generic]]] | None = None
        if fresh:
            self.remove()
        elif path.exists():
            self._load(reporter)

    def finished_groups(self) -> list[FinishedGroup]:
        """Return the groups that an earlier run completed."""
        return list(self._finished)

    def pending_members(self) -> list[int]:
        """Return the members that an earlier run was training when it ended."""
        return [] if self._pending is None else list(self._pending[0]["members"])

    def restore(self, state: GroupState) -> None:
        """Continue the group that an earlier run left unfinished, if this is it."""
        if self._pending is None or self._pending[0]["members"] != state.members:
            return
        meta, arrays = self._pending
        state.load_arrays(arrays)
        state.epoch, state.step = meta["epoch"], meta["step"]
        state.records = [MemberRecord(**record) for record in meta["records"]]
        self._pending = None

    def finish(self, state: GroupState) -> FinishedGroup:
        """Remember a complete group."""
        kept = {n: v.cpu() for n, v in state.kept.items()}
        self._finished.append(FinishedGroup(state.members, kept, state.records))
        self._write(None)
        return self._finished[-1]

    def save_if_due(self, state: GroupState, *, interrupted: bool) -> None:
        """Save when enough time has passed, or when interrupted, and then stop.

        Raises:
            KeyboardInterrupt: after saving, when interrupted.
        """
        if interrupted or time.monotonic() - self._saved_at >= self._seconds:
            self._write(state)
        if interrupted:
            self._reporter.note(f"progress is saved at epoch {state.epoch + 1}, step {state.step + 1}")
            raise KeyboardInterrupt

    def remove(self) -> None:
        """Forget the run."""
        self._path.unlink(missing_ok=True)

    def _write(self, state: GroupState | None) -> None:
        arrays: dict[str, NDArray[np.generic]] = {}
        for index, group in enumerate(self._finished):
            arrays |= {f"finished/{index}/{name}": value.numpy() for name, value in group.kept.items()}
        meta: dict[str, Any] = {
            "fingerprint": self._fingerprint,
            "finished": [{"members": g.members, "records": [asdict(r) for r in g.records]} for g in self._finished],
            "current": None,
        }
        if state is not None:
            arrays |= {f"current/{name}": value for name, value in state.to_arrays().items()}
            meta["current"] = {
                "members": state.members,
                "epoch": state.epoch,
                "step": state.step,
                "records": [asdict(record) for record in state.records],
            }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_artifact(self._path, kind="run-state", arrays=arrays, meta=meta, overwrite=True)
        self._saved_at = time.monotonic()

    def _load(self, reporter: Reporter) -> None:
        try:
            artifact = read_artifact(self._path, kind="run-state")
        except ArtifactError as error:
            reporter.warn(f"the run state is unreadable and is not continued: {error.problem}")
            return
        if artifact.meta["fingerprint"] != self._fingerprint:
            reporter.note("inputs or settings changed since the interrupted run: starting over")
            return
        for index, group in enumerate(artifact.meta["finished"]):
            prefix = f"finished/{index}/"
            params = {
                name.removeprefix(prefix): torch.from_numpy(np.array(value))
                for name, value in artifact.arrays.items()
                if name.startswith(prefix)
            }
            records = [MemberRecord(**record) for record in group["records"]]
            self._finished.append(FinishedGroup(group["members"], params, records))
        current = artifact.meta["current"]
        if current is not None:
            arrays = {
                n.removeprefix("current/"): np.array(v) for n, v in artifact.arrays.items() if n.startswith("current/")
            }
            self._pending = (current, arrays)
            reporter.note(f"continuing at epoch {current['epoch'] + 1}, step {current['step'] + 1}")
        elif self._finished:
            reporter.note(f"continuing after {sum(len(group.members) for group in self._finished)} finished members")
