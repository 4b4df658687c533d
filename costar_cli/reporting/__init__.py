"""How workflows tell what they are doing, without knowing who listens."""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from costar_cli.diagnostics import Diagnostic, texts_of
from costar_cli.errors import Termination

# What drives a terminal, starts a line, turns the order of letters around, or hides text, but tabs and line ends.
CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
HARDLY_BETTER: Final = 0.05  # share of the error of the last value below which a gain is hardly one
ROUNDING = 1e-6  # relative; errors of predictions in float32 that are closer than this are equal


def plain(text: object) -> str:
    r"""Return text whose control characters are spelt out (`\x1b`), so that what files say cannot drive a terminal."""
    return CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), str(text))


def launched(name: str, default: int = 0) -> int:
    """Return a number that `torchrun` has set for its processes; elsewhere these names mean something else.

    `RANK` is 0 for the process that writes and speaks, and for one that trains alone.
    """
    return int(os.environ.get(name, default)) if "TORCHELASTIC_RUN_ID" in os.environ else default


def is_worse(error: float, rival: float) -> bool:
    """Return whether an error is larger than another, by more than float32 rounds."""
    return error > rival * (1 + ROUNDING)


def less_error(error: float, rival: float) -> float:
    """Return by which share an error is smaller than that of a rival; 0 where both are 0."""
    return 1 - error / rival if rival else 0.0


def than_last_value(error: float, rival: float) -> str:
    """Return in words by how much an error on outcomes as observed is smaller than that of the last value.

    Simulated outcomes are observed with noise, which no method predicts: evaluations against the truth differ.
    """
    gain = less_error(error, rival)
    more = "more" if is_worse(error, rival) else "less"
    words = f"{100 * abs(gain):.0f} % {more} error on observed outcomes than the last value"
    return f"{words}: hardly better" if 0 <= gain < HARDLY_BETTER else words


def both_errors(error: float, rival: float) -> str:
    """Return two errors in words, with three decimals or as many more as it takes to tell them apart."""
    shown = ((f"{error:.{digits}f}", f"{rival:.{digits}f}") for digits in range(3, 18))
    own, other = next((pair for pair in shown if pair[0] != pair[1]), (f"{error:.3f}", f"{rival:.3f}"))
    return f"{own} against {other}"


class Task(Protocol):
    """A piece of work with a known or unknown number of units."""

    def advance(self, units: int = 1, **metrics: float) -> None:
        """Report `units` more done; `metrics` replace the ones shown (for example `loss=1.2, log_n=32.9`).

        Raises:
            KeyboardInterrupt: a signal has come to end the run.
        """


class Reporter(Protocol):
    """Where progress, notes and warnings go; never where results go."""

    @contextmanager
    def task(self, title: str, *, total: int | None = None, done: int = 0, unit: str = "step") -> Iterator[Task]:
        """Show a task while the context lasts; `done` units were finished by an earlier run."""
        ...

    def note(self, message: str) -> None:
        """Say how the work goes; what readers of results should know is a diagnostic."""

    def say(self, diagnostic: Diagnostic) -> None:
        """Say what a reader of results should know; also recorded in `--json` documents."""


class NullTask:
    """A task that ignores reports, and like all tasks ends here where a signal asked for it."""

    def advance(self, units: int = 1, **metrics: float) -> None:
        """Ignore the report."""
        Termination.stop_if_signalled()


class NullReporter:
    """A reporter that keeps diagnostics and drops the rest; for library use and tests."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []

    @property
    def warnings(self) -> list[str]:
        """Return the warnings as people read them."""
        return list(texts_of(self.diagnostics, "warning"))

    @contextmanager
    def task(self, title: str, *, total: int | None = None, done: int = 0, unit: str = "step") -> Iterator[Task]:
        """Yield a task that ignores reports."""
        yield NullTask()

    def note(self, message: str) -> None:
        """Ignore the note."""

    def say(self, diagnostic: Diagnostic) -> None:
        """Keep it in `diagnostics`."""
        self.diagnostics.append(diagnostic)


def warnings_of(what: str, warnings: Iterable[str]) -> list[Diagnostic]:
    """Return the warnings that an artifact keeps of its making, each once and about it, such as "model `model`"."""
    return [Diagnostic.kept(warning, what) for warning in dict.fromkeys(warnings)]
