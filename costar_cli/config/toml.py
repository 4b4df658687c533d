"""TOML files that anybody may have written: bounded in size and depth before they are parsed."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from costar_cli.config.bounded import RefusedError, TooLargeError, read_bounded, said_of
from costar_cli.errors import UsageError

MOST_BYTES: Final = 1_000_000
DEEPEST: Final = 32  # tables and lists within each other
# Strings of TOML, which may hold what looks like a comment, and comments.
STRING_OR_COMMENT: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?!")|'
    r"'''.*?'''(?!')|"
    r'"(?:\\.|[^"\\\n])*"|'
    r"'[^'\n]*'|"
    r"#[^\n]*",
    re.DOTALL,
)
_NO_KEY: Final = re.compile(r"[^\w.\- \t]")
_BRACKETS: Final = re.compile(r"[\[{]|[\]}]")


def read_toml(
    path: Path, what: str, *, fix: str | None = None, most: int = MOST_BYTES, shorter: str | None = None
) -> tuple[str, dict[str, Any]]:
    """Return the text and the tables of a file.

    Args:
        path: the file.
        what: what messages call it.
        fix: what to do about a file of another kind.
        most: bytes that it may have.
        shorter: what to do about a file with more; `fix` by default.

    Raises:
        UsageError: the file is missing, no TOML, too large, or nested more than 32 deep.
    """

    def refused(problem: str) -> UsageError:
        return UsageError(f"the {what} {problem}", where=str(path), fix=fix)

    try:
        content = read_bounded(path, most)
    except TooLargeError as error:
        raise UsageError(f"the {what} {error}", where=str(path), fix=shorter or fix) from None
    except RefusedError as error:
        raise refused(str(error)) from None
    try:
        text = content.decode("utf-8")
        if _too_deep(text):
            raise refused(f"is nested more than {DEEPEST} levels deep")
        return text, tomllib.loads(text)
    except UnicodeDecodeError:
        raise refused("is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:  # also of a number of thousands of digits
        raise refused(f"is not TOML: {said_of(error)}") from None


def _too_deep(text: str) -> bool:
    """Return whether dotted keys or brackets go too deep; the parser takes time squared for the former."""
    plain = STRING_OR_COMMENT.sub("x", text)
    if any(words.count(".") >= DEEPEST for words in _NO_KEY.split(plain)):
        return True
    depth = 0
    for bracket in _BRACKETS.finditer(plain):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > DEEPEST:
            return True
    return False
