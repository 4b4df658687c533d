"""Members divided among processes: each trains its own, and all meet about once a second.

Members have nothing in common, so a process computes its own ones as it would alone, to the bit. When the processes
meet, they say which epochs have ended, whether a group is complete, and whether to stop. The first process then writes
the run state of all of them, which looks as if one process had trained one group after another: any number of
processes continues it, in this way or by shares of each batch. A file of state per process would need no meetings to
save, but rules about which file knows more after a run with another number of processes.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from copy import deepcopy
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import CostarError, UnforeseenError, as_costar_error
from costar_cli.methods.base import Stage
from costar_cli.methods.shared import processes
from costar_cli.reporting import Reporter
from costar_cli.training.checkpoint import Checkpoint, FinishedGroup, Interrupt, SavedGroup
from costar_cli.training.group import GroupState, MemberRecord
from costar_cli.training.log import EpochLog

MEET_S = 1.0  # at least between two meetings


def own_groups(groups: Sequence[list[int]]) -> list[list[int]] | None:
    """Return the groups that this process trains; None where processes train each one together, as there are too few.

    A process may have one group more than others, which then wait for it.
    """
    several = processes.count()
    return list(groups[processes.rank() :: several]) if 1 < several <= len(groups) else None


class Logged(NamedTuple):
    """Members whose epoch has ended, their records until then, and how many seconds it took."""

    members: Sequence[int]
    records: Sequence[MemberRecord]
    seconds: float | None


@dataclass(frozen=True)
class Word:
    """What a process says when all meet.

    `saves` asks for a save, `stops` for one and the end of training, `is_done` says that its groups are complete.
    """

    rows: Sequence[Logged]
    saves: bool
    stops: bool
    is_done: bool
    error: CostarError | None


class Divided:
    """Keeps the progress of groups that processes train apart, as a `Checkpoint` does of one process's.

    Within its context the process computes alone. Its end waits for the others, and tells them of an error.

    Args:
        stage: what is trained.
        checkpoint: knows the groups of all processes when the context ends.
        interrupt: says that a signal has come to this process.
        log: is told of all epochs, in the first process.
        reporter: told where the run stopped.
    """

    def __init__(
        self, stage: Stage, checkpoint: Checkpoint, interrupt: Interrupt, log: EpochLog, reporter: Reporter
    ) -> None:
        self._stage, self._checkpoint, self._interrupt = stage, checkpoint, interrupt
        self._log, self._reporter = log, reporter
        self._is_first = processes.rank() == 0
        self._rows: list[Logged] = []
        self._complete: list[FinishedGroup] = []  # that the others do not know yet
        self._rest: SavedGroup | None = None  # of the last one of them
        self._over = False
        self._met_at = time.monotonic()
        self._alone = ExitStack()

    def __enter__(self) -> Self:
        self._alone.enter_context(processes.apart())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._alone:
            if isinstance(error, Exception) and not self._over:
                with suppress(UnforeseenError):  # that the others cannot be reached says less than the error
                    self._meet(error=as_costar_error(error))
            elif error is not None and not self._over:
                self._meet(stops=True)
            while not self._over:
                self._meet(is_done=True, stops=self._interrupt.came is not None)

    def log(self, stage: Stage, members: Sequence[int], records: Sequence[MemberRecord], seconds: float | None) -> None:
        """Log epochs: the first process at once, others when all meet."""
        if self._is_first:
            self._log(stage, members, records, seconds)
        else:
            self._rows.append(Logged(list(members), deepcopy(list(records)), seconds))

    def save_if_due(self, state: GroupState, *, interrupted: bool) -> None:
        """Meet the others when it is time, or when interrupted.

        Raises:
            CostarError: training has failed in another process, or the first one cannot save or log.
            KeyboardInterrupt: a signal has come to one of them; all is saved.
        """
        if interrupted or time.monotonic() - self._met_at >= MEET_S:
            self._meet(state, stops=interrupted)

    def finish(self, state: GroupState, rest: GroupState | None = None) -> None:
        """Remember a complete group, and where the rest of it goes on: the others hear of both when all meet."""
        self._complete.append(self._checkpoint.complete(state))
        self._rest = None if rest is None else SavedGroup.of(rest)

    def _meet(
        self,
        state: GroupState | None = None,
        *,
        stops: bool = False,
        is_done: bool = False,
        error: CostarError | None = None,
    ) -> None:
        """Exchange words, and groups where one asks for it; then act on them, so that no error comes in between.

        A process with an error of its own keeps it. Others are told what the first one failed to write, if anything.

        Raises:
            CostarError: training has failed in another process, or the first one cannot save or log.
            KeyboardInterrupt: a signal has come to one of them.
        """
        saves = bool(self._complete) or (self._is_first and self._checkpoint.is_due)
        own = Word(self._rows, saves, stops, is_done, error)
        self._over = True  # as it stays if the others cannot be reached
        with processes.together():
            words = processes.said(own)
            errors = [word.error for word in words if word.error is not None]
            stopped = bool(errors) or any(word.stops for word in words)
            exchanged = stopped or any(word.saves for word in words)
            going = SavedGroup.of(state) if exchanged and state is not None else self._rest
            groups = processes.said((self._complete, going)) if exchanged else []
        self._over = stopped or all(word.is_done for word in words)
        self._rows = []
        if exchanged:
            self._complete, self._rest = [], None
        self._met_at = time.monotonic()
        failure = self._act(words, groups)
        if self._over:
            with processes.together():  # once one process has ended, `torchrun` ends the others
                failure = processes.said(failure)[0]
        if error is not None:
            if failure is not None and failure.problem != error.problem:
                self._reporter.say(Diagnostic.of("process-failed", problem=failure))
            return
        if failure is not None or errors:
            raise failure or errors[0]
        if stopped:
            where = "" if state is None else f" at epoch {state.epoch + 1}, step {state.step + 1}"
            self._reporter.note(f"progress saved{where}")
            raise KeyboardInterrupt

    def _act(
        self, words: Sequence[Word], groups: Sequence[tuple[list[FinishedGroup], SavedGroup | None]]
    ) -> CostarError | None:
        """Save what the processes gave, then log what others could not; return what kept the first one from that."""
        try:
            if groups:
                finished = [group for complete, _ in groups for group in complete]
                self._checkpoint.learn(finished, [going for _, going in groups if going is not None])
                if self._is_first:
                    self._checkpoint.save(None)
            if self._is_first:
                for row in (row for word in words for row in word.rows):
                    self._log(self._stage, *row)
        except Exception as error:  # the others wait to be told
            return as_costar_error(error)
        return None
