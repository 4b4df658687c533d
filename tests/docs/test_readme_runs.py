"""The README's commands work, and the output that it shows is the program's."""

import subprocess

import pytest

from docs import readme_tour
from tests.cli.cli_world import REPOSITORY, environment
from tests.docs.pages import README, runnable_blocks, skeleton

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


@pytest.fixture(scope="module")
def transcript(tmp_path_factory: pytest.TempPathFactory, script_path: str) -> list[str]:
    """What the runnable blocks print, run one after the other in one shell, in a folder that holds the examples."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "examples").symlink_to(REPOSITORY / "examples")
    script = "set -euo pipefail\n" + "\n".join(block.script for block in runnable_blocks(README))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment(PATH=script_path, **SMALL), check=False, **pipes
    )
    assert done.returncode == 0, done.stdout
    return [skeleton(line) for line in done.stdout.splitlines()]


def test_the_tour_is_there() -> None:
    scripts = "".join(block.script for block in runnable_blocks(README))
    verbs = ["simulate tumor", "pretrain", "finetune", "evaluate", "whatif", "inspect", "verify"]
    assert [verb for verb in verbs if f"costar {verb}" not in scripts] == []


def test_every_line_of_output_is_one_that_the_program_prints(transcript: list[str]) -> None:
    shown = [line for block in runnable_blocks(README) for line in block.output]
    assert len(shown) > 30
    assert [line for line in shown if skeleton(line) not in transcript] == []


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
