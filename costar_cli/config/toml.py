"""TOML files that anybody may have written: bounded in size and depth before they are parsed."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

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


def read_toml(path: Path, what: str, *, fix: str | None = None) -> tuple[str, dict[str, Any]]:
    """Return the text and the tables of a file, which messages call `what`, with `fix` for a file of another kind.

    Raises:
        UsageError: the file is missing, no TOML, of over a megabyte, or nested more than 32 deep.
    """

    def refused(problem: str) -> UsageError:
        return UsageError(f"the {what} {problem}", where=str(path), fix=fix)

    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise refused("does not exist") from None
    except IsADirectoryError:
        raise refused("is a folder") from None
    if len(content) > MOST_BYTES:
        raise refused(f"is larger than {MOST_BYTES:,} bytes")
    try:
        text = content.decode("utf-8")
        if _too_deep(text):
            raise refused(f"is nested more than {DEEPEST} levels deep")
        return text, tomllib.loads(text)
    except UnicodeDecodeError:
        raise refused("is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:  # also of a number of thousands of digits
        raise refused(f"is not TOML: {error}") from None


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
