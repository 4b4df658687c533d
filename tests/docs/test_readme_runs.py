"""The commands of the README and of the tour work, and the output that they show is the program's."""

import subprocess
from pathlib import Path

import pytest

from docs import readme_tour
from docs.word_count import words
from tests.cli.cli_world import REPOSITORY, environment
from tests.docs.pages import FENCED, README, runnable_blocks, skeleton

TOUR = REPOSITORY / "docs" / "tour.md"

SMALL = {
    "COSTAR_SIMULATE_TUMOR_TRAIN": "24",
    "COSTAR_SIMULATE_TUMOR_VAL": "24",  # too few calibrate no band at 90 %
    "COSTAR_SIMULATE_TUMOR_TEST": "30",
    "COSTAR_SIMULATE_TUMOR_TARGET_TRAIN": "6",
    "COSTAR_SIMULATE_TUMOR_TARGET_VAL": "6",
    "COSTAR_SIMULATE_TUMOR_TARGET_TEST": "24",  # fewer than 20 have no intervals
    "COSTAR_PRETRAIN_EPOCHS": "1",
    "COSTAR_FINETUNE_EPOCHS": "1",
}


def printed(page: Path, folder: Path, script_path: str, **variables: str) -> str:
    """Run a page's blocks one after the other in one shell, in a folder that holds the examples; return the output."""
    (folder / "examples").symlink_to(REPOSITORY / "examples")
    blocks = (f"echo '{readme_tour.BEGINS}'\n{block.script}" for block in runnable_blocks(page))
    script = "set -euo pipefail\n" + "\n".join(blocks)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    env = environment(PATH=script_path, **SMALL, **variables)
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=env, check=False, **pipes)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize(
    ("page", "variables", "verbs", "least"),
    [
        (README, {"COLUMNS": "80"}, ["check", "ingest table", "finetune --method auto --minutes 2", "whatif"], 8),
        (
            TOUR,
            {"COLUMNS": "80"},
            ["simulate tumor", "pretrain", "finetune", "evaluate", "whatif", "inspect", "verify"],
            30,
        ),
    ],
    ids=["README", "tour"],
)
def test_the_commands_run_and_every_line_of_output_is_one_that_they_print(
    page: Path, variables: dict[str, str], verbs: list[str], least: int, tmp_path: Path, script_path: str
) -> None:
    assert [verb for verb in verbs if f"costar {verb}" not in page.read_text("utf-8")] == []
    shown = [line for block in runnable_blocks(page) for line in block.output]
    assert len(shown) >= least
    transcript = printed(page, tmp_path, script_path, **variables)
    assert readme_tour.rewritten(page.read_text("utf-8"), transcript)[1] == []  # each line has a partner, in order


def test_the_readme_is_short_and_fits_a_terminal() -> None:
    text = README.read_text("utf-8")
    assert words(text) <= 900
    assert max(len(line) for block in FENCED.finditer(text) for line in block["text"].splitlines()) <= 80


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in README.read_text()
        assert f"\n{target}: " in makefile


def test_the_tour_is_rewritten_line_by_line_where_numbers_or_columns_change() -> None:
    page = "<!-- run -->\n```sh\nx\n```\n\n```text\n...\nmember  epochs\n     1       6\nnext  costar y\n```\nend\n"
    printed = f"{readme_tour.BEGINS}\nnote  z\nmember  epochs  updates\n     1       7       20\nnext  costar y\n"
    text, lost = readme_tour.rewritten(page, printed)
    assert "...\nmember  epochs  updates\n     1       7       20\nnext  costar y\n```\nend" in text
    assert lost == []
    assert readme_tour.rewritten(page, f"{readme_tour.BEGINS}\nnothing\n") == (
        page,
        ["member  epochs", "     1       6", "next  costar y"],
    )


@pytest.mark.slow
def test_the_page_on_search_prints_what_it_shows(tmp_path: Path, script_path: str) -> None:
    (block,) = runnable_blocks(REPOSITORY / "docs" / "search.md")
    env = environment(PATH=script_path, COLUMNS="80")
    done = subprocess.run(
        ["bash", "-ec", block.script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = [skeleton(line) for line in done.stdout.splitlines()]
    assert len(block.output) > 10
    assert [line for line in block.output if skeleton(line) not in printed] == []
    assert (tmp_path / "search.png").stat().st_size > 10_000
