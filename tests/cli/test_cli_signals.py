"""Signals end a run with a message, a document and a code, from the first import to the last line."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from costar_cli.artifact.tables import table_file
from costar_cli.errors import ExitCode, StorageError
from tests.cli.cli_world import environment

WHILE_IMPORTING = """
import signal, sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            signal.raise_signal({number})
sys.meta_path.insert(0, Stop())
"""
IN_A_VERB = """
import signal
from costar_cli import app
app._run = lambda *_: signal.raise_signal({number})
"""
RUN = (
    "import runpy, sys\nsys.argv = ['costar', 'doctor', '--json']\nrunpy.run_module('costar_cli', run_name='__main__')"
)


@pytest.mark.parametrize("moment", [WHILE_IMPORTING, IN_A_VERB], ids=["import", "verb"])
@pytest.mark.parametrize(
    ("number", "code", "problem"),
    [
        (signal.SIGINT, ExitCode.INTERRUPTED, "interrupted"),
        (signal.SIGTERM, ExitCode.TERMINATED, "terminated"),
        (signal.SIGHUP, ExitCode.HUNG_UP, "the terminal was closed"),
    ],
    ids=["SIGINT", "SIGTERM", "SIGHUP"],
)
def test_a_signal_is_told_in_order(tmp_path: Path, moment: str, number: int, code: ExitCode, problem: str) -> None:
    (tmp_path / "stopped.py").write_text(moment.format(number=int(number)) + RUN)
    command = [sys.executable, "-m", "stopped"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == code == 128 + number
    assert done.stderr.startswith(f"error: {problem}\n")
    document = json.loads(done.stdout)
    assert (document["status"], document["error"]["exit_code"]) == ("interrupted", code)


def test_closed_streams_lead_nowhere(tmp_path: Path) -> None:
    command = f"{sys.executable} -m costar_cli doctor <&- >&- 2>&-"
    assert subprocess.run(command, shell=True, cwd=tmp_path, env=environment(), check=False).returncode == 0  # noqa: S602


def test_a_table_on_a_full_disk_is_a_storage_error(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        for kind in ("csv", "parquet", "jsonl"):
            with (
                pytest.raises(StorageError, match="larger than the system allows"),
                table_file(tmp_path / f"t.{kind}") as t,
            ):
                t.write({"a": range(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not any(tmp_path.iterdir())
