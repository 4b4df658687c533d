"""Write docs/diagnostics.md from the catalogue of diagnostics; `--check` says whether it is up to date.

python docs/diagnostics_reference.py [--check]
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from costar_cli.diagnostics import CATALOGUE, Diagnostic

TARGET = Path(__file__).with_name("diagnostics.md")
ABOUT = """\
# Warnings, notes and findings

What a reader of results should know has a code, the same in all versions, and a sentence. On the terminal it is a line
on stderr; a long note is a shorter line with its code, as in `[bands-cover]`, which `--show all` prints whole. Under
`--json` the member `diagnostics` has `code`, `severity`, `subject` (what it is about), `text` and `fix` of each, and
`warnings` the texts of the warnings alone. In Python, reports of what-ifs and searches have them in
`report.diagnostics`, and their texts in `report.warnings` and `report.notes`; evaluations have the texts of warnings. A
warning that a file keeps as text is found again under its code by its words, else it is `recorded`.

This page is made from `costar_cli/diagnostics.py`; names in braces stand for what a line tells of the case.
"""
SECTIONS = {
    "warning": (
        "Warnings",
        "A result may be wrong. Some are notes, or errors of data, where they matter less or more.",
    ),
    "note": ("Notes", "What a reader of the results would like to know."),
    "error": ("Errors of data", "The data cannot be used; all of them are told at once."),
}


class Fact:
    """Stands for any fact of a sentence: it is shown as its name in braces."""

    def __init__(self, name: str) -> None:
        self.name = f"{{{name}}}"

    def __str__(self) -> str:
        return self.name

    def __format__(self, form: str) -> str:
        return self.name


def sentence(code: str) -> str:
    """Return the line of a code, with the names of its facts."""
    entry = CATALOGUE[code]
    names = {*re.findall(r"{(\w+)", entry.text + entry.fix)}
    facts = {name: Fact(name) for name in names - {"subject"}}
    return str(Diagnostic.of(code, *[Fact("subject")] * ("subject" in names), **facts))


def main() -> int:
    """Write the page, or compare it."""
    text = "\n".join(render()) + "\n"
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text, "utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text("utf-8") == text:
        return 0
    sys.stderr.write(f"{TARGET} is not up to date: run `python docs/diagnostics_reference.py`\n")
    return 1


def render() -> Iterator[str]:
    """Yield the lines of the page."""
    yield ABOUT.rstrip()
    for severity, (title, about) in SECTIONS.items():
        yield from ("", f"## {title}", "", about, "", "| code | line |", "|---|---|")
        for code, entry in CATALOGUE.items():
            if entry.severity == severity:
                yield f"| `{code}` | {sentence(code).replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    sys.exit(main())
