"""A few seconds of each campaign; `make campaign` runs them for half an hour."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource")
SECONDS = "0.1"  # each: a case or more, which shows that it runs


def test_campaigns_find_nothing() -> None:
    command = [sys.executable, "-m", "tests.campaigns", SECONDS, "1"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_process_that_is_stopped_at_once_does_not_go_on_as_its_parent(tmp_path: Path) -> None:
    script = f"""
import os, signal
from tests.campaigns.driver import in_child
try:
    for _ in range(100):
        in_child(lambda: 0, stop=lambda pid: os.kill(pid, signal.SIGINT))
finally:
    with open({str(tmp_path / "ends")!r}, "a") as file:
        file.write("once")
"""
    subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], capture_output=True, check=True)
    assert (tmp_path / "ends").read_text() == "once"
