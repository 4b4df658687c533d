"""Collect every problem of an input, then raise them as one error."""

from collections.abc import Sequence

from costar_cli.config.nearest import nearest
from costar_cli.errors import UsageError

__all__ = ["Problems", "did_you_mean"]

MAX_SHOWN = 50
MAX_STEPS_NAMED = 8


class Problems:
    """Problems by place; the same problem in several steps of a plan becomes one line."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, str], list[int]] = {}
        self._left_out = 0
        self._fixes: dict[str, None] = {}

    def add(self, problem: str, where: str = "", step: int | None = None, *, fix: str = "") -> None:
        """Add a problem; `where` is the plan, `step` counts from 1, `fix` is said once for all that share it."""
        if fix:
            self._fixes[fix] = None
        key = (where, problem)
        if key not in self._steps and self.full:
            self._left_out += 1
            return
        self._steps.setdefault(key, []).extend([] if step is None else [step])

    @property
    def full(self) -> bool:
        """Return whether further problems are only counted, so that finding hints for them is wasted."""
        return len(self._steps) >= MAX_SHOWN

    @property
    def lines(self) -> list[str]:
        """Return one line per problem."""
        lines = [_line(where, problem, steps) for (where, problem), steps in self._steps.items()]
        return lines + [f"and {self._left_out:,} more"] * bool(self._left_out)

    @property
    def fix(self) -> str | None:
        """Return the fixes of the problems, each once."""
        return "; ".join(self._fixes) or None

    def raise_any(self, summary: str, *, where: str, fix: str | None = None) -> None:
        """Raise what was collected, if anything.

        Raises:
            UsageError: there was a problem; a single one is the error itself, several are its details.
        """
        lines = self.lines
        if len(lines) == 1:
            raise UsageError(lines[0], where=where, fix=fix)
        if lines:
            count = len(self._steps) + self._left_out
            raise UsageError(f"{summary}: {count:,} problems", where=where, fix=fix, details=lines)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return `; did you mean 'x'?`, or nothing when no known name is close."""
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def _line(where: str, problem: str, steps: list[int]) -> str:
    named = ", ".join(str(step) for step in steps[:MAX_STEPS_NAMED]) + ", ..." * (len(steps) > MAX_STEPS_NAMED)
    place = f"{where}, step{'s' * (len(steps) > 1)} {named}" if steps else where
    return f"{place}: {problem}" if place else problem
