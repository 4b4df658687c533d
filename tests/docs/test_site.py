"""The site: every page stands in its navigation, and it builds strictly where mkdocs-material is installed."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from docs.word_count import counts
from tests.cli.cli_world import REPOSITORY
from tests.docs.pages import FENCED, LINK, anchors

DOCS = REPOSITORY / "docs"
NAVIGATION = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (REPOSITORY / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
MADE = {"python-reference.md"}  # by docs/site_hooks.py, from docstrings


def test_every_page_stands_once_in_the_navigation() -> None:
    assert len(NAVIGATION) == len(set(NAVIGATION))
    listed = {name for name in NAVIGATION if not name.startswith("repo/")} - MADE
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert {page for page in pages if not re.match(r"adr/0", page)} == listed
    outside = [name.removeprefix("repo/") for name in NAVIGATION if name.startswith("repo/")]
    assert [name for name in outside if not (REPOSITORY / name).is_file()] == []


MOST_WORDS = 45_000  # of prose and tables: who adds a passage cuts another
HOW_TO = re.findall(
    r"\S+\.md", (REPOSITORY / "mkdocs.yml").read_text("utf-8").split("- How to:")[1].split("- Understand:")[0]
)


def test_pages_stay_short() -> None:
    found = counts()
    assert sum(found.values()) <= MOST_WORDS, found
    assert found["README.md"] <= 900


def test_a_page_of_how_to_is_one_task_of_at_most_400_words() -> None:
    found = counts()
    assert len(HOW_TO) > 20
    assert {page: found[f"docs/{page}"] for page in HOW_TO if found[f"docs/{page}"] > 400} == {}


QUESTIONS = {  # of newcomers: where each is answered, and words that the answer has
    "continuous doses?": ("doses.md", 'kind = "continuous"'),
    "is my data suitable?": ("suitable.md", "costar check"),
    "what does the band mean?": ("uncertainty.md", "90 % of new subjects"),
    "tuning?": ("tuning.md", "--method auto"),
    "an average effect with an interval?": ("effects.md", "costar effect"),
    "compare my own method?": ("for-ml.md#compare-your-own-method", "check_method"),
    "cite?": ("cite.md", "@article"),
    "GPU or cluster?": ("tuning.md#gpu-or-cluster", "torchrun"),
    "assumptions?": ("assumptions.md", "no hidden confounding"),
    "can I trust it for patients?": ("assumptions.md#can-i-trust-it-for-patients", "no medical device"),
}


def links(page: str) -> set[str]:
    """Where the links of a page of docs/ lead, as seen from docs/, anchors kept."""
    text = FENCED.sub("", (DOCS / page).read_text("utf-8"))
    folder = os.path.dirname(page)
    found = [(match["target"] or os.path.basename(page), match["anchor"]) for match in LINK.finditer(text)]
    return {
        os.path.normpath(os.path.join(folder, target)) + (f"#{anchor}" if anchor else "")
        for target, anchor in found
        if "://" not in target
    }


@pytest.mark.parametrize("question", QUESTIONS)
def test_ten_questions_are_answered_within_two_clicks_of_the_first_page(question: str) -> None:
    answer, told = QUESTIONS[question]
    page, _, anchor = answer.partition("#")
    first = links("index.md")
    assert answer in first  # one click
    assert "faq.md" in first
    assert answer in links("faq.md")  # and two
    text = (DOCS / page).read_text("utf-8")
    assert not anchor or anchor in anchors(DOCS / page)
    assert told in text


@pytest.mark.slow
@pytest.mark.skipif(find_spec("material") is None, reason="needs mkdocs-material, which `make docs` installs")
def test_the_site_builds_strictly_and_can_be_searched(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    paths = {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=REPOSITORY, env=os.environ | paths, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "search" / "search_index.json").stat().st_size > 100_000
    reference = (tmp_path / "python-reference.html").read_text("utf-8")
    assert 'id="estimate_outcomes"' in reference
    assert "fonts.googleapis" not in reference
