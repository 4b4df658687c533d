"""Messages, help and descriptions are written as a technical writer would, without words of costar's own."""

import ast
import re

import pytest
from cli_world import REPOSITORY
from test_cli_settings import strings

from costar_cli.cli.app import app
from costar_cli.diagnostics import CATALOGUE, SHORT
from costar_cli.settings.keys import all_keys

BANNED = re.compile(
    r"\b(told|said|somebody|whoever|what is no|of which|stands|anew|as can be|all the same|"
    r"lights?|like practice|choosing it loses|best with|died out|counting once|chance-level|puts? aside|"
    r"stated coverage|stopped by budget|ended by budget|names others|how sure|stands alone)\b",
    re.IGNORECASE,
)
PAGES = REPOSITORY / "costar_cli" / "report"  # whose words are those of pages and figures, not of the command line


def in_code() -> list[tuple[str, str]]:
    """Every sentence that a module may print, with the module's name."""
    files = [path for path in (REPOSITORY / "costar_cli").rglob("*.py") if PAGES not in path.parents]
    return [(path.name, text) for path in files for text in strings(ast.parse(path.read_text("utf-8"))) if " " in text]


def in_help() -> list[tuple[str, str]]:
    """What each verb says it does, and what each setting is."""
    from typer.main import get_command

    todo, found = [get_command(app)], []
    while todo:
        command = todo.pop()
        todo += getattr(command, "commands", {}).values()
        found.append((str(command.name), command.help or ""))
    return [*found, *((name, key.field.description or "") for name, key in all_keys().items())]


def in_diagnostics() -> list[tuple[str, str]]:
    entries = [(code, f"{entry.text} {entry.fix}") for code, entry in CATALOGUE.items()]
    return [*entries, *SHORT.items()]


@pytest.mark.parametrize("texts", [in_code, in_help, in_diagnostics])
def test_no_text_has_a_banned_word(texts) -> None:
    found = texts()
    assert len(found) > 20
    assert [(where, text) for where, text in found if BANNED.search(text)] == []


@pytest.mark.parametrize("text", ["no plan can be told apart", "lights of the plan", "Whoever is not there"])
def test_a_banned_word_is_found(text: str) -> None:
    assert BANNED.search(text)
