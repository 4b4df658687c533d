"""Messages, help, descriptions and pages are written as a technical writer would, without words of costar's own."""

import ast
import re
from html.parser import HTMLParser

import pytest
from cli_world import REPOSITORY
from test_cli_settings import strings

from costar_cli.cli.app import app
from costar_cli.diagnostics import CATALOGUE, SHORT
from costar_cli.settings.keys import all_keys
from docs.word_count import counts

BANNED = re.compile(
    r"\b(told|said|somebody|whoever|what is no|of which|stands|anew|as can be|all the same|"
    r"lights?|like practice|choosing it loses|best with|died out|counting once|chance-level|puts? aside|"
    r"as stated|stated coverage|stopped by budget|ended by budget|its budget|names others|how sure|stands? alone|"
    r"heaps?|keeps? (?:its|their) levels?|are off|can(?:not)? be told|were pruned)\b",
    re.IGNORECASE,
)
TEMPLATES = REPOSITORY / "costar_cli" / "report" / "pages" / "templates"
QUOTED = re.compile(r"""//[^\n]*|"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`""")


def in_code() -> list[tuple[str, str]]:
    """Every sentence that a module may print, with the module's name."""
    files = (REPOSITORY / "costar_cli").rglob("*.py")
    return [(path.name, text) for path in files for text in strings(ast.parse(path.read_text("utf-8"))) if " " in text]


class Shown(HTMLParser):
    """Collects what a page shows: its text, and the attributes that browsers show or read aloud."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.within = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.within = tag
        self.texts += [value or "" for name, value in attrs if name in ("aria-label", "title", "placeholder")]

    def handle_endtag(self, tag: str) -> None:
        self.within = ""

    def handle_data(self, data: str) -> None:
        if self.within not in ("style", "script"):
            self.texts.append(data)


def in_templates() -> list[tuple[str, str]]:
    """Every text of the pages' templates and scripts."""
    found = []
    for path in TEMPLATES.iterdir():
        text = path.read_text("utf-8")
        if path.suffix == ".js":
            texts = ["".join(quoted) for quoted in QUOTED.findall(text)]
        elif path.suffix == ".css":
            continue
        else:
            shown = Shown()
            shown.feed(text)
            texts = shown.texts
        found += [(path.name, one.strip()) for one in texts if one.strip()]
    return found


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


def in_pages() -> list[tuple[str, str]]:
    """Every line of the pages that people write; HDF5's heap is a term."""
    lines = [(page, line) for page in counts() for line in (REPOSITORY / page).read_text("utf-8").splitlines()]
    return [(page, re.sub(r"\b(?:B-tree or (?:a )?heap|trees or heaps)\b", "", line)) for page, line in lines]


@pytest.mark.parametrize("texts", [in_code, in_templates, in_help, in_diagnostics, in_pages])
def test_no_text_has_a_banned_word(texts) -> None:
    found = texts()
    assert len(found) > 20
    assert [(where, text) for where, text in found if BANNED.search(text)] == []


def test_texts_of_templates_are_read_from_markup_and_script() -> None:
    texts = dict.fromkeys(in_templates())
    assert ("explore.html", "Keep this answer") in texts
    assert ("explore.html", "Previous subject") in texts
    assert ("explore.js", "Copied: paste it into a shell.") in texts
    assert any(name == "explore.js" and "has no estimate on" in text for name, text in texts)
    assert not any("system-ui" in text for name, text in texts if name == "page.html.jinja")


@pytest.mark.parametrize(
    "text",
    ["no plan can be told apart", "lights of the plan", "Whoever is not there", "Heaps at both ends", "as stated"],
)
def test_a_banned_word_is_found(text: str) -> None:
    assert BANNED.search(text)
