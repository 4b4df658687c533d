"""The site: every page stands in its navigation, and it builds strictly where mkdocs-material is installed."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.cli_world import REPOSITORY

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
