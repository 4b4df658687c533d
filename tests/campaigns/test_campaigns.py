"""A few seconds of each campaign; `make campaign` runs them for half an hour."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource")
SECONDS = "2"


VERBS = pytest.param(["kills", "disks", "races", "numbers", "sealed"], marks=pytest.mark.slow)


@pytest.mark.parametrize("names", [["mutations", "text"], VERBS], ids=["files", "verbs"])
def test_campaigns_find_nothing(names: list[str]) -> None:
    command = [sys.executable, "-m", "tests.campaigns", SECONDS, "1", *names]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
