"""Progress of workflows: a live bar on a terminal, otherwise a line at least every 30 seconds."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import Termination
from costar_cli.reporting import NullTask, Task, plain
from costar_cli.reporting.output import Output
from costar_cli.reporting.text import in_words, is_interactive

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

EVERY_S = 25.0  # who looks every 30 seconds always finds a new line
POLL_S = 1.0

WIDE = 100  # columns of a terminal that has room for a long bar


@dataclass(eq=False)
class LoggedTask:
    """A task whose state can be told at any time: units `done`, of a `total` where that is known.

    `clock` tells seconds since some moment, `beat` is called after each report.
    """

    title: str
    total: int | None
    done: int
    unit: str
    clock: Callable[[], float]
    beat: Callable[[], None]
    metrics: dict[str, float] = field(default_factory=dict)
    pace_from: tuple[float, int] | None = None  # behind what an interrupted run had done

    def __post_init__(self) -> None:
        self.begun = self.clock()

    def advance(self, units: int = 1, **metrics: float) -> None:
        """Count, and let the log know when it is time."""
        Termination.stop_if_signalled()
        self.done += units
        self.metrics = metrics or self.metrics
        if self.pace_from is None:
            self.pace_from = (self.clock(), self.done)
        self.beat()

    def state(self) -> str:
        """Return what is done, with metrics and the time that is left."""
        words = self._words("" if not self.total else f" ({self.done / self.total:.0%})")
        if self.total is not None and self.pace_from is not None and self.done > self.pace_from[1]:
            since, before = self.pace_from
            left_s = (self.total - self.done) * (self.clock() - since) / (self.done - before)
            words.append(f"about {in_words(left_s)} left")
        return ", ".join(words)

    def end(self) -> str:
        """Return what was done, and how long it took."""
        count, *metrics = self._words("")
        return ", ".join([f"{self.title}: done", count, f"{self.clock() - self.begun:.0f} s", *metrics])

    def _words(self, share: str) -> list[str]:
        of = "" if self.total is None else f" of {self.total:,}"
        shown = describe(self.metrics)
        return [f"{self.done:,}{of} {plural(self.unit)}{share}", *([shown] if shown else [])]


class Heartbeat:
    """Tells a log that a run is alive, whether or not its tasks report."""

    def __init__(self, out: Output, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._out, self._clock = out, clock
        self._tasks: list[LoggedTask] = []
        self._begun = self._spoken = clock()
        self._speaking = threading.Lock()

    def start(self) -> None:
        """Speak until the verb ends, also while no task reports."""
        ended = threading.Event()

        def run() -> None:
            with suppress(OSError):  # a log that cannot be written stops no work
                while not ended.wait(POLL_S):
                    self.beat()

        def stop() -> None:
            ended.set()
            thread.join()

        thread = threading.Thread(target=run, name="heartbeat", daemon=True)

        thread.start()
        self._out.at_close(stop)

    @contextmanager
    def task(self, title: str, total: int | None, done: int, unit: str) -> Iterator[LoggedTask]:
        """Follow a task while the context lasts; the end of an outermost one is a line of its own."""
        task = LoggedTask(title, total, done, unit, self._clock, self.beat)
        self._tasks.append(task)
        try:
            yield task
            if len(self._tasks) == 1:
                self._out.note(task.end())
        finally:
            self._tasks.remove(task)

    def beat(self) -> None:
        """Say what runs, if the last line is old."""
        with self._speaking:
            if self._clock() - self._spoken >= EVERY_S:
                self._spoken = self._clock()
                tasks = [f"{task.title}: {task.state()}" for task in list(self._tasks)]
                self._out.progress("; ".join(tasks) or f"running for {in_words(self._clock() - self._begun)}")


def describe(metrics: dict[str, float]) -> str:
    """Return metrics as people read them; `log_n` is what chance-level loss, the line to get below."""
    shown = [f"{name.replace('_', ' ')} {value:.4g}" for name, value in metrics.items() if name != "log_n"]
    if "log_n" in metrics:
        shown.append(f"chance {metrics['log_n']:.4g}")
    return "  ".join(shown)


def plural(unit: str) -> str:
    """Return several of a unit: `queries`, `steps`."""
    return f"{unit[:-1]}ies" if unit.endswith("y") else f"{unit}s"


class OutputReporter:
    """The reporter that verbs hand to workflows: notes and diagnostics go to the sink, tasks to stderr."""

    def __init__(self, out: Output, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._live: Progress | None = None
        self._heartbeat = Heartbeat(out, clock=clock)

    def watch(self) -> Self:
        """Write a line every 30 seconds until the verb ends, where stderr is not a terminal."""
        if not self._out.quiet and not is_interactive(sys.stderr):
            self._heartbeat.start()
        return self

    def note(self, message: str) -> None:
        """Pass a note on, as a line of a log: on the screen of a verb the bar shows how the work goes."""
        if not (self._out.holds and is_interactive(sys.stderr)):
            self._out.note(message)

    def say(self, diagnostic: Diagnostic) -> None:
        """Pass a diagnostic on."""
        self._out.say(diagnostic)

    @contextmanager
    def task(self, title: str, *, total: int | None = None, done: int = 0, unit: str = "step") -> Iterator[Task]:
        """Show a task while the context lasts; tasks inside tasks share the screen."""
        if self._out.quiet:
            yield NullTask()
            return
        if not is_interactive(sys.stderr):
            with self._heartbeat.task(title, total, done, unit) as logged:
                yield logged
            return
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


class _BarTask:
    def __init__(self, progress: "Progress", row: "TaskID") -> None:
        self._progress = progress
        self._row = row

    def advance(self, units: int = 1, **metrics: float) -> None:
        """Move the bar."""
        Termination.stop_if_signalled()
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
            return Text(plain(self._told(task)), no_wrap=True, overflow="ellipsis")

    console = Console(stderr=True)
    return Progress(
        Yielding(lambda task: task.description),
        BarColumn(bar_width=24 if console.width >= WIDE else 6),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(elapsed_when_finished=True, table_column=Column(no_wrap=True)),
        Yielding(lambda task: f"{task.fields['unit']}  {task.fields['metrics']}"),
        console=console,
        transient=True,
    )
