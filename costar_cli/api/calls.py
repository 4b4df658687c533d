"""What every function of the Python API does with its arguments: settings, choices, and reports of progress."""

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, get_args

import numpy as np

from costar_cli.config.choices import PresetName
from costar_cli.config.nearest import did_you_mean
from costar_cli.data.compatible import require_outcomes
from costar_cli.data.dataset import Dataset
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import CostarWarning, UsageError
from costar_cli.reporting import NullReporter, Reporter, Task
from costar_cli.settings.resolve import Settings, from_arguments, resolve

PathLikeText = str | PathLike[str]
Progress = bool | Reporter
When = int | str | date | np.datetime64
"""An origin: a step, or a time as the data have it, a text or a date of Python, pandas or numpy."""


def one_of(value: object, known: Iterable[str], argument: str, what: str) -> None:
    """Check that an argument is one of the known names.

    Raises:
        UsageError: it is not; the message has the nearest one that is.
    """
    names = list(known)
    if value not in names:
        guess = did_you_mean(str(value), names, quoted=True)
        fix = f"{guess} choose from {', '.join(names)}".strip()
        raise UsageError(f"there is no {what} {value!r}", where=f"{argument}=", fix=fix)


def texts(said: str | Iterable[str], argument: str) -> tuple[str, ...]:
    """Return what is said in one text or in several.

    Raises:
        UsageError: it is no text.
    """
    several = [said] if isinstance(said, str) or not isinstance(said, Iterable) else list(said)
    for text in several:
        if not isinstance(text, str):
            raise UsageError(f"{text!r} is no text", where=f"{argument}=", fix="give a text, or a list of texts")
    return tuple(several)


def origin_of(origin: When | None) -> Any:  # noqa: ANN401 - a step or a text, or none
    """Return an origin as the command line takes it: dates as text, with their time of day where they have one."""
    if isinstance(origin, date):
        return origin.isoformat()
    if isinstance(origin, np.datetime64):
        text = str(origin)
        return text.rstrip("0").rstrip(".") if "." in text else text
    return origin


def levels_of(level: float | Sequence[float]) -> tuple[float, ...]:
    """Return one level or several as a tuple.

    Raises:
        UsageError: one is no number.
    """
    given: object = level  # untyped callers give anything
    levels: tuple[Any, ...] = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
    for one in levels:
        if isinstance(one, bool) or not isinstance(one, Real):
            raise UsageError(f"{one!r} is no number", where="level=", fix="give a number between 0 and 1, such as 0.9")
    return levels


def require_data_set(given: object, where: str = "dataset=", *, outcomes: bool = True) -> None:
    """See that an argument is a data set, and has `outcomes`, if it needs some.

    Raises:
        DataError: it has events alone.
        UsageError: it is something else, such as the path of one.
    """
    if not isinstance(given, Dataset):
        fix = "give what `costar.simulate`, `costar.read_table` or `costar.read_dataset` returns"
        raise UsageError(f"{type(given).__name__} is no data set", where=where, fix=fix)
    if outcomes:
        require_outcomes(given.schema, where)


def resolved(
    arguments: Mapping[str, object],
    sections: Sequence[str],
    *,
    preset: PresetName | None,
    config: PathLikeText | None = None,
    dataset: str | None = None,
) -> Settings:
    """Return the settings that keyword arguments, a preset and a file make; the environment has no say.

    Raises:
        UsageError: unknown settings, or values that are not valid, all of them at once.
    """
    if preset is not None:
        one_of(preset, get_args(PresetName), "preset", "preset")
    given = from_arguments({name: _plain(value) for name, value in arguments.items()}, sections)
    return resolve(given, preset=preset, file=None if config is None else Path(config), dataset=dataset)


def _plain(value: object) -> object:
    """Return a setting as TOML would give it: numbers of numpy as Python's."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return value.item() if isinstance(value, np.generic) else value


class _WarningReporter:
    """Warnings become Python warnings of one category; the rest goes to another reporter."""

    def __init__(self, inner: Reporter) -> None:
        self._inner = inner

    @contextmanager
    def task(self, title: str, *, total: int | None = None, done: int = 0, unit: str = "step") -> Iterator[Task]:
        with self._inner.task(title, total=total, done=done, unit=unit) as task:
            yield task

    def note(self, message: str) -> None:
        self._inner.note(message)

    def say(self, diagnostic: Diagnostic) -> None:
        if diagnostic.severity == "note":
            self._inner.say(diagnostic)
            return
        depth, frame = 1, sys._getframe()  # up to the code that called costar, to which the warning points
        ours = {"costar_cli", "contextlib"}
        while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in ours:
            depth, frame = depth + 1, frame.f_back
        warnings.warn(str(diagnostic), CostarWarning, stacklevel=depth)


@contextmanager
def reporting(progress: Progress) -> Iterator[Reporter]:
    """Yield the reporter that receives progress, notes and warnings.

    Args:
        progress: False for nobody, True for bars or lines on stderr; warnings are Python's then. Or a reporter of the
            caller's own, which hears the warnings, too.
    """
    if not isinstance(progress, bool):
        yield progress
    elif progress:
        from costar_cli.reporting.output import Output
        from costar_cli.reporting.progress import OutputReporter

        out = Output()
        try:
            yield _WarningReporter(OutputReporter(out).watch())
        finally:
            out.close()
    else:
        yield _WarningReporter(NullReporter())
