"""The worked example of a target trial runs as it stands, prints what it shows, and comes near the truth it names."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.cli_world import REPOSITORY, environment
from tests.docs.pages import runnable_blocks, skeleton
from tests.pages.reading import read_alone

PAGE = REPOSITORY / "docs" / "target.md"
TRUTH = {
    ("pressure", "wait"): 143.7, ("pressure", "start"): 123.4, ("stroke", "wait"): 0.0889, ("stroke", "start"): 0.0369,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_example_runs_and_its_intervals_hold_the_truth(tmp_path: Path, script_path: str) -> None:
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    (block,) = runnable_blocks(PAGE)
    env = environment(PATH=script_path, COLUMNS="80")
    done = subprocess.run(
        ["bash", "-ec", block.script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = [skeleton(line) for line in done.stdout.splitlines()]
    assert [line for line in block.output if skeleton(line) not in printed] == []
    with (tmp_path / "effects.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["step"] == "4" and row["quantity"] in ("mean", "risk")]
    assert len(rows) == 2 * len(TRUTH)
    for row in rows:
        truth, sd = TRUTH[row["outcome"], row["plan"]], float(row["se"])
        assert abs(float(row["estimate"]) - truth) < 2.5 * sd
    text = read_alone((tmp_path / "target.html").read_text("utf-8")).text
    for words in ("Target trial", "with pressure >= 150 and drug in last 1 = 0", "until stroke, or until lost"):
        assert words in text
    assert (tmp_path / "target.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_truth_on_the_page_is_the_generators() -> None:
    script = REPOSITORY / "examples" / "own-data" / "make_clinic.py"
    done = subprocess.run([sys.executable, script, "--truth"], capture_output=True, text=True, check=True)
    for (outcome, plan), value in TRUTH.items():
        line = next(line for line in done.stdout.splitlines() if line.startswith(plan))
        pressure, risk = (part.split()[-1] for part in line.split("; "))
        assert float(pressure if outcome == "pressure" else risk) == pytest.approx(value)
        assert (f"{value:.1f} mmHg" if outcome == "pressure" else f"{100 * value:.1f} %") in PAGE.read_text("utf-8")
