"""Read what somebody else wrote: JSON bounded in size and depth, and all that is wrong with it as one error."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

from costar_cli.config.toml import RefusedError, said_of
from costar_cli.config.toml import read_bounded as read_bytes
from costar_cli.errors import MOST_DETAILS, StorageError, UsageError

MAX_BYTES = 1_000_000
MAX_DEPTH = 16
SHOWN_CHARACTERS = 60
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)

MAX_SHOWN = MOST_DETAILS
MAX_STEPS_NAMED = 8


class JsonObject(dict[str, object]):
    """A JSON object that remembers which of its keys were written more than once."""

    repeated: tuple[str, ...] = ()


def read_bounded(path: Path, *, flag: str, most: int = MAX_BYTES) -> bytes:
    """Return the content of a file of so many bytes at most, of standard input for `-`; `flag` names it to the user.

    Raises:
        UsageError: the file is missing, a folder, empty, or too large.
        StorageError: it cannot be read.
    """
    is_stdin = str(path) == "-"
    name = "standard input" if is_stdin else f"`{path}`"
    try:
        data = sys.stdin.buffer.read(most + 1) if is_stdin else read_bytes(path, most)
    except RefusedError as error:
        fix = f"give the path of a JSON file of at most {most:,} bytes"
        raise UsageError(f"{name} {error}", where=flag, fix=fix) from error
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot read {shown(str(path))}: {error}", where=flag) from error
    if len(data) > most:
        raise UsageError(f"{name} is larger than {most:,} bytes", where=flag, fix="give it fewer plans at once")
    if not data.strip():
        raise UsageError(f"{name} is empty", where=flag, fix="give it the text of a JSON file")
    return data


def parse_json(data: bytes | str, *, where: str, fix: str | None = None) -> object:
    """Parse a JSON document; objects come back as `JsonObject`; `fix` says how to write one.

    Raises:
        UsageError: too large, too deep, not UTF-8 or not JSON; the message gives line and column.
    """
    if len(data) > MAX_BYTES:
        raise UsageError(f"the document is larger than {MAX_BYTES:,} bytes", where=where, fix=fix)
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        depth = 0
        for token in _TOKENS.finditer(text):
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
            if depth > MAX_DEPTH:
                raise UsageError(f"nested more than {MAX_DEPTH} levels deep", where=where, fix=fix)
        parsed: object = json.loads(text, object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise UsageError(
            f"not UTF-8 text: byte {error.start} is {data[error.start]!r}", where=where, fix=fix
        ) from error
    except json.JSONDecodeError as error:
        place = f"{where}, line {error.lineno}, column {error.colno}"
        raise UsageError(f"not JSON: {error.msg}", where=place, fix=fix) from error
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits
        raise UsageError(f"not usable as JSON: {said_of(error)}", where=where, fix=fix) from error
    return parsed


def shown(value: object) -> str:
    """Return untrusted JSON as short text that is safe to print: no control characters, no lone surrogates."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."


def _object(pairs: list[tuple[str, object]]) -> JsonObject:
    made = JsonObject(pairs)
    if len(made) < len(pairs):
        made.repeated = tuple(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
    return made


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
        lines = []
        for (where, problem), steps in self._steps.items():
            some = ", ".join(str(step) for step in steps[:MAX_STEPS_NAMED]) + ", ..." * (len(steps) > MAX_STEPS_NAMED)
            place = f"{where}, step{'s' * (len(steps) > 1)} {some}" if steps else where
            lines.append(f"{place}: {problem}" if place else problem)
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
        if lines:
            count = len(self._steps) + self._left_out
            raise UsageError.of(lines, f"{summary}: {count:,} problems", where=where, fix=fix)
