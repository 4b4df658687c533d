"""What the pages refer to exists: commands, flags, files, headings, tests."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import typer
from matplotlib.colors import to_rgb
from PIL import Image

from costar_cli.cli.app import app
from costar_cli.methods.registry import METHODS
from costar_cli.report.figures.style import PLAN_COLOURS
from costar_cli.settings.keys import all_keys
from tests.cli.cli_world import REPOSITORY
from tests.docs.pages import FENCED, LINK, PAGES, README, REFERENCE, anchors, commands

DECISIONS = sorted((REPOSITORY / "docs" / "adr").glob("[0-9]*.md"))
IN_CODE = re.compile(r"(?<![\w./])(?:[a-z_-]+/)+[\w*-]+\.(?:py|md|toml|csv)\b")  # paths in code and text


def flags() -> dict[str, set[str]]:
    """The options of every verb, for example of `simulate tumor`."""
    root = typer.main.get_command(app)
    found = {"": root}
    for name, command in root.commands.items():
        found |= {f"{name} {inner}": leaf for inner, leaf in getattr(command, "commands", {}).items()} or {
            name: command
        }
    return {
        verb: {"--help"} | {flag for p in command.params for flag in (*p.opts, *p.secondary_opts)}
        for verb, command in found.items()
    }


def in_pages(pattern: re.Pattern[str], prepared: Callable[[str], str] = str) -> Iterator[tuple[Path, re.Match[str]]]:
    """What a pattern finds in each page."""
    return ((page, match) for page in PAGES for match in pattern.finditer(prepared(page.read_text("utf-8"))))


def test_commands_and_flags_exist() -> None:
    known = flags()
    wrong = []
    for page, words in ((path, line) for path in PAGES for line in commands(path)):
        plain = [word for word in words[1:] if not word.startswith("-") and not word.isupper()]  # no NAME, no FILE
        verb = next((verb for verb in known if verb and plain[: len(verb.split())] == verb.split()), "")
        used = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        if (plain and not verb and plain not in (["simulate"], ["ingest"])) or used - known[verb]:
            wrong.append((page.name, " ".join(words)))
    assert wrong == []


def test_links_lead_somewhere() -> None:
    dead, anchors_of = [], cache(anchors)
    for page, match in in_pages(LINK, lambda text: FENCED.sub("", text)):
        if "://" in match["target"]:
            continue
        target = (page.parent / match["target"]).resolve() if match["target"] else page
        known = anchors_of(target) if target.suffix == ".md" and target.exists() else set()
        if not target.exists() or (match["anchor"] and match["anchor"] not in known):
            dead.append((page.name, match[0]))
    assert dead == []


def test_files_and_tests_that_are_named_exist() -> None:
    missing = []
    for page, match in in_pages(REFERENCE):
        files = list(REPOSITORY.glob(match["path"].rstrip("/").replace("NAME", "*")))  # a name of the reader's choice
        texts = [file.read_text("utf-8") for file in files if match["name"] and file.is_file()]
        if not files or (match["name"] and not any(f"def {match['name']}(" in text for text in texts)):
            missing.append((page.name, match[0]))
    assert missing == []


def test_files_that_code_names_exist() -> None:
    """From the repository's root, from the package's, or from the file's own folder."""
    folders = [REPOSITORY / name for name in ("costar_cli", "simulators", "benchmarks")]
    missing = [
        f"{file.relative_to(REPOSITORY).as_posix()}: {name}"
        for folder in folders
        for file in sorted([*folder.rglob("*.py"), *folder.rglob("*.toml")])
        for name in IN_CODE.findall(file.read_text("utf-8"))
        if not any(list(base.glob(name)) for base in (REPOSITORY, REPOSITORY / "costar_cli", file.parent))
    ]
    assert missing == []


def test_settings_that_are_named_exist() -> None:
    known, setting = all_keys(), re.compile(r"`((?:simulate.tumor|pretrain|finetune|evaluate|runtime)\.[a-z_.]+)`")
    named = [(page.name, match[1]) for page, match in in_pages(setting)]
    assert named
    assert [(page, name) for page, name in named if name not in known] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, todo = set(), [README]
    while todo:
        page = todo.pop()
        reached.add(page)
        found = (page.parent / match["target"] for match in LINK.finditer(page.read_text("utf-8")))
        todo += [target for path in found if (target := path.resolve()) in PAGES and target not in reached]
    assert set(PAGES) - reached == set()


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"costar"}))
def test_pages_that_list_methods_name_each(method: str) -> None:
    """The README by name; the index by a link to a page that says how to call it."""
    section = README.read_text("utf-8").partition("\n## Data and methods\n")[2].partition("\n## ")[0]
    assert f"`{method}`" in section
    index = REPOSITORY / "docs" / "index.md"
    pages = re.findall(r"\]\((methods/[\w-]+\.md)\)", index.read_text("utf-8"))
    texts = [(index.parent / page).read_text("utf-8") for page in pages]
    assert any(re.search(rf"--method\s{method}(?![\w-])", text) for text in texts)


def test_decisions_are_numbered_few_dated_and_complete() -> None:
    numbers = [path.name[:5] for path in DECISIONS]
    assert numbers == [f"{number:04}-" for number in range(1, len(DECISIONS) + 1)]
    assert 20 < len(DECISIONS) <= 40  # a local reason is a comment beside its line
    form = r"# .+\n\n\d{4}-\d\d-\d\d\n\n\*\*Context\.\*\* .+\n\n\*\*Choice\.\*\* .+\n\n\*\*Consequence\.\*\* .+\n"
    wrong = [path.name for path in DECISIONS if not re.fullmatch(form, path.read_text("utf-8"), re.DOTALL)]
    assert wrong == []


def test_the_index_of_decisions_has_each_once_under_its_title() -> None:
    index = (REPOSITORY / "docs" / "adr" / "README.md").read_text("utf-8")
    listed = re.findall(r"^- \[(\d+)\]\((\1-.+\.md)\) (.+)$", index, re.MULTILINE)
    titles = {path.name: path.read_text("utf-8").partition("\n")[0].removeprefix("# ") for path in DECISIONS}
    assert sorted(listed) == [(name[:4], name, title) for name, title in titles.items()]


def test_pictures_are_small_and_used() -> None:
    pictures = list((REPOSITORY / "docs" / "img").iterdir())
    text = "".join(page.read_text("utf-8") for page in PAGES)
    assert pictures
    assert [p.name for p in pictures if f"img/{p.name}" not in text or p.stat().st_size > 200_000] == []


def test_the_changelog_keeps_its_form() -> None:
    lines = (REPOSITORY / "CHANGELOG.md").read_text("utf-8").splitlines()
    headings = [line for line in lines if line.startswith("#")]
    assert headings[:2] == ["# Changelog", "## [Unreleased]"]
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Artifact schema"}
    assert {heading.removeprefix("### ") for heading in headings if heading.startswith("### ")} <= kinds
    for release in "\n".join(lines).split("\n## [")[2:]:  # what is not released is merged when it is
        assert len(re.findall(r"^- ", release, re.MULTILINE)) <= 10, release[:8]


def test_the_picture_of_the_readme_has_the_colours_that_plans_have_now() -> None:
    """A quick guard: `tests/pages/test_browser.py`, which is slow, draws it again and compares."""
    image = np.asarray(Image.open(REPOSITORY / "docs" / "img" / "whatif.png").convert("RGB")) / 255
    for colour in PLAN_COLOURS[:3]:
        assert (np.abs(image - np.array(to_rgb(colour))).max(axis=-1) < 0.02).sum() > 60, colour


PRINTED = {"text", "console"}  # languages of blocks that quote a program's output


def printed_lines(text: str) -> list[str]:
    """The lines of a page that quote output: of blocks in such a language, or of commands behind a `$`."""
    blocks = [
        block for block in FENCED.finditer(text) if block["language"] in PRINTED or block["text"].startswith("$ ")
    ]
    return [line for block in blocks for line in block["text"].splitlines()]


def test_no_page_quotes_output_wider_than_80_columns() -> None:
    pages = [page for page in PAGES if page.parent.name != "spec"]
    lines = [(page.name, line) for page in pages for line in printed_lines(page.read_text("utf-8"))]
    assert len(lines) > 200
    assert [(page, line) for page, line in lines if len(line) > 80] == []


def test_a_wide_line_of_quoted_output_is_found() -> None:
    text = f"```text\n{'x' * 81}\n```\n\n```\n$ costar\n{'y' * 81}\n```\n\n```toml\n{'z' * 81}\n```\n"
    assert [line[0] for line in printed_lines(text) if len(line) > 80] == ["x", "y"]
