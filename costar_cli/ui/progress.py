"""Progress of workflows: a live bar where a person watches, a plain line now and then where a log file does."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from costar_cli.reporting import Task
from costar_cli.ui.heartbeat import Heartbeat, describe, plural
from costar_cli.ui.output import Output
from costar_cli.ui.text import is_interactive

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["OutputReporter"]

WIDE = 100  # columns of a terminal that has room for a long bar


class OutputReporter:
    """The reporter that verbs hand to workflows: notes and warnings go to the sink, tasks to stderr.

    Args:
        out: the sink of the verb.
        clock: seconds since some moment.
    """

    def __init__(self, out: Output, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._live: Progress | None = None
        self._heartbeat = Heartbeat(out, clock=clock)

    def watch(self) -> Self:
        """Give signs of life until the verb ends, where nobody sees a bar."""
        if not self._out.quiet and not is_interactive(sys.stderr):
            self._heartbeat.start()
        return self

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
        else:
            with self._heartbeat.task(title, total, done, unit) as logged:
                yield logged

    @contextmanager
    def _bar(self, title: str, total: int | None, done: int, unit: str) -> Iterator[Task]:
        outermost = self._live is None
        progress = self._live or _new_progress()
        self._live = progress
        row = progress.add_task(title, total=total, completed=done, unit=plural(unit), metrics="")
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


def _new_progress() -> "Progress":
    """Return bars in which counter and time stay whole on narrow terminals; title and metrics give way."""
    from rich.console import Console  # noqa: PLC0415 - only where a person watches
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Task as RichTask  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    class Yielding(ProgressColumn):
        """Text on one line that is cut with an ellipsis where there is no room."""

        def __init__(self, told: Callable[[RichTask], str]) -> None:
            super().__init__()
            self._told = told

        def render(self, task: RichTask) -> Text:
            return Text(self._told(task), no_wrap=True, overflow="ellipsis")

    console = Console(stderr=True)
    return Progress(
        Yielding(lambda task: task.description),
        BarColumn(bar_width=24 if console.width >= WIDE else 6),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(elapsed_when_finished=True, table_column=Column(no_wrap=True)),
        Yielding(lambda task: f"{task.fields['unit']}  {task.fields['metrics']}"),
        console=console,
    )
