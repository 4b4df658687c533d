"""Progress of workflows: a live bar where a person watches, a rare plain line where a log file does."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from costar_cli.reporting import Task
from costar_cli.ui.output import Output
from costar_cli.ui.text import is_interactive

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["OutputReporter"]

HEARTBEAT_S = 60.0


class OutputReporter:
    """The reporter that verbs hand to workflows: notes and warnings go to the sink, tasks to stderr.

    Args:
        out: the sink of the verb.
    """

    def __init__(self, out: Output) -> None:
        self._out = out
        self._live: Progress | None = None
        self._logging = False

    def note(self, message: str) -> None:
        """Pass a note on."""
        self._out.note(message)

    def warn(self, message: str) -> None:
        """Pass a warning on."""
        self._out.warn(message)

    @contextmanager
    def task(self, title: str, *, total: int | None = None, done: int = 0, unit: str = "step") -> Iterator[Task]:
        """Show a task while the context lasts; tasks inside tasks share the screen."""
        if self._out.quiet:
            yield _SilentTask()
        elif is_interactive(sys.stderr):
            with self._bar(title, total, done, unit) as task:
                yield task
        elif self._logging:
            yield _SilentTask()
        else:
            self._logging = True
            task = _LoggedTask(self._out, title, total, done, unit)
            try:
                yield task
                task.end()
            finally:
                self._logging = False

    @contextmanager
    def _bar(self, title: str, total: int | None, done: int, unit: str) -> Iterator[Task]:
        outermost = self._live is None
        progress = self._live or _new_progress()
        self._live = progress
        row = progress.add_task(title, total=total, completed=done, unit=_plural(unit), metrics="")
        if outermost:
            progress.start()
        try:
            yield _BarTask(progress, row)
        finally:
            if outermost:
                progress.stop()
                self._live = None
            else:
                progress.remove_task(row)


class _SilentTask:
    def advance(self, units: int = 1, **metrics: float) -> None:
        """Say nothing."""


class _BarTask:
    def __init__(self, progress: "Progress", row: "TaskID") -> None:
        self._progress = progress
        self._row = row

    def advance(self, units: int = 1, **metrics: float) -> None:
        """Move the bar."""
        if metrics:
            self._progress.update(self._row, advance=units, metrics=describe(metrics))
        else:
            self._progress.update(self._row, advance=units)


class _LoggedTask:
    """A task in a log: one line at its end, and one a minute while it runs."""

    def __init__(self, out: Output, title: str, total: int | None, done: int, unit: str) -> None:
        self._out = out
        self._title = title
        self._total = total
        self._done = done
        self._unit = unit
        self._metrics: dict[str, float] = {}
        self._begun = self._spoken = time.monotonic()

    def advance(self, units: int = 1, **metrics: float) -> None:
        """Count, and speak once a minute."""
        self._done += units
        self._metrics = metrics or self._metrics
        if time.monotonic() - self._spoken > HEARTBEAT_S:
            self._spoken = time.monotonic()
            self._speak("")

    def end(self) -> None:
        """Say that the task is done."""
        self._speak("done, ")

    def _speak(self, lead: str) -> None:
        of = "" if self._total is None else f" of {self._total:,}"
        elapsed_s = time.monotonic() - self._begun
        metrics = f", {describe(self._metrics)}" if self._metrics else ""
        self._out.note(f"{self._title}: {lead}{self._done:,}{of} {_plural(self._unit)}, {elapsed_s:.0f} s{metrics}")


def describe(metrics: dict[str, float]) -> str:
    """Return metrics as people read them; `log_n` is what guessing scores, the line to get below."""
    shown = [f"{name.replace('_', ' ')} {value:.4g}" for name, value in metrics.items() if name != "log_n"]
    if "log_n" in metrics:
        shown.append(f"guessing {metrics['log_n']:.4g}")
    return "  ".join(shown)


def _plural(unit: str) -> str:
    return f"{unit[:-1]}ies" if unit.endswith("y") else f"{unit}s"


def _new_progress() -> "Progress":
    from rich.console import Console  # noqa: PLC0415 - only where a person watches
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[metrics]}", markup=False),
        console=Console(stderr=True),
    )
