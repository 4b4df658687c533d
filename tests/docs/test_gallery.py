"""The pages of the gallery run as they stand, and come near the truth that their tables were made with."""

import csv
import subprocess
from pathlib import Path
from statistics import mean

import pytest

from tests.cli.cli_world import REPOSITORY, environment
from tests.docs.pages import runnable_blocks

PAGES = {  # picture, plan, reference, and bounds of the first step's difference; the truth is in the middle
    "shelves": ("shelves.png", "once", "none", (37, 54)),
    "fluids": ("fluids.png", "one bag", "wait", (3, 5)),
    "glucose": ("glucose.png", "basal", "no insulin", (-28, -20)),
    "trial": ("trial.png", "dose=100", "dose=0", (-12, -8)),
    "visits": ("visits.png", "drug now", "no drug", (-10.2, -8.2)),
    "theophylline": ("theophylline.png", "320 now", "nothing", (5.9, 7.2)),
}
GALLERY = REPOSITORY / "docs" / "gallery"


def test_the_gallery_lists_its_pages_and_each_has_a_figure_and_a_licence() -> None:
    assert sorted(path.stem for path in GALLERY.glob("*.md")) == sorted(["README", *PAGES])
    for name in PAGES:
        text = (GALLERY / f"{name}.md").read_text("utf-8")
        assert f"[{name}.md]" in (GALLERY / "README.md").read_text("utf-8")
        assert f"../img/gallery-{name}.png" in text
        assert "Apache-2.0" in text
        assert "| truth |" in text


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_goes_from_a_table_to_its_decision(name: str, tmp_path: Path, script_path: str) -> None:
    picture, plan, reference, (low, high) = PAGES[name]
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    (block,) = runnable_blocks(GALLERY / f"{name}.md")
    done = subprocess.run(
        ["bash", "-ec", block.script], cwd=tmp_path, env=environment(PATH=script_path), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / picture).stat().st_size > 10_000
    with (tmp_path / "answers.csv").open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    compared = [row for row in rows if (row["plan"], row["reference"]) == (plan, reference)]
    first = [row for row in compared if row["step"] == "1" and row["outcome"] != "survival"]
    assert low < mean(float(row["estimate"]) for row in first) < high
