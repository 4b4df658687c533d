"""Signals end a run with a message, a document and a code, from the first import to the last line."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from costar_cli.errors import ExitCode, StorageError
from costar_cli.files.tables import table_file
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
from costar_cli.cli import app
app._run = lambda *_: signal.raise_signal({number})
"""
LOST_WHILE_IMPORTING = """
import signal, sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            try:
                signal.raise_signal({number})
            except BaseException:
                pass
sys.meta_path.insert(0, Stop())
"""
LOST_IN_A_VERB = """
import signal
from costar_cli.cli import app
from costar_cli.reporting import NullTask
class Lost:
    def __del__(self):
        signal.raise_signal({number})
def run(*_):
    Lost()
    while True:
        NullTask().advance()
app._run = run
"""
WRAPPED_IN_AN_IMPORT = """
import signal, sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            try:
                signal.raise_signal({number})
            except BaseException as error:
                raise RuntimeError("wrapped") from error
sys.meta_path.insert(0, Stop())
"""
WRAPPED_IN_A_VERB = """
import signal
from pydantic import BaseModel, model_serializer
from costar_cli.cli import app
class Signalled(BaseModel):
    @model_serializer
    def signalled(self):
        signal.raise_signal({number})
app._run = lambda *_: Signalled().model_dump()
"""
PANIC_IN_A_VERB = """
import signal
from costar_cli.cli import app
class Panic(BaseException):
    pass
def run(*_):
    try:
        signal.raise_signal({number})
    except BaseException:
        raise Panic("called `Result::unwrap()` on an `Err` value") from None
app._run = run
"""
PANIC_ALONE = """
from costar_cli.cli import app
class Panic(BaseException):
    pass
def run(*_):
    raise Panic("called `Result::unwrap()` on an `Err` value")
app._run = run
"""
LOST_TWICE = """
import signal, time
from costar_cli.cli import app
from costar_cli.errors import SignalHandler
SignalHandler.AGAIN_S = 0
def run(*_):
    while True:
        try:
            signal.raise_signal({number})
        except BaseException:
            pass
app._run = run
"""
RUN = """
import runpy, sys
sys.argv = ["costar", "settings", "--json"]
runpy.run_module("costar_cli", run_name="__main__")
"""


MOMENTS = {"import": WHILE_IMPORTING, "verb": IN_A_VERB}
MOMENTS |= {"lost in an import": LOST_WHILE_IMPORTING, "lost in a verb": LOST_IN_A_VERB}
MOMENTS |= {"wrapped in an import": WRAPPED_IN_AN_IMPORT, "wrapped in a verb": WRAPPED_IN_A_VERB}
MOMENTS |= {"wrapped in a panic": PANIC_IN_A_VERB}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
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
    done = stopped(tmp_path, moment.format(number=int(number)))
    assert done.returncode == code == 128 + number
    assert done.stderr.startswith(f"error: {problem}\n")
    document = json.loads(done.stdout)
    assert (document["status"], document["error"]["exit_code"]) == ("interrupted", code)


def stopped(tmp_path: Path, moment: str, run: str = RUN, limit: str = "") -> subprocess.CompletedProcess[str]:
    (tmp_path / "stopped.py").write_text(moment + run)
    command = ["sh", "-c", f"{limit}exec {sys.executable} -m stopped"]
    return subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=60
    )


def test_a_panic_of_a_library_is_an_unexpected_error_with_a_document(tmp_path: Path) -> None:
    done = stopped(tmp_path, PANIC_ALONE)
    assert (done.returncode, "Traceback" in done.stderr) == (ExitCode.FAILURE, False)
    assert json.loads(done.stdout)["error"]["problem"].startswith("unexpected error (Panic: called")


def test_a_signal_after_the_result_is_told_changes_nothing(tmp_path: Path) -> None:
    sent = """
import signal
from costar_cli.reporting import output
write = output._write
def written(stream, text):
    write(stream, text)
    signal.raise_signal(signal.SIGTERM)
output._write = written
"""
    done = stopped(tmp_path, sent)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["status"] == "done"


AT_THE_END = """
import atexit, signal
from costar_cli.cli import app
class Last:
    def __del__(self, send=signal.raise_signal):
        for number in (2, 15, 1):
            send(number)
last = Last()
last.itself = last  # is found when modules are taken apart, not before
atexit.register(signal.raise_signal, signal.SIGTERM)
"""


@pytest.mark.parametrize("limit", ["", "ulimit -v 16000000; "], ids=["without a limit", "under a limit"])
def test_a_signal_at_the_very_end_of_the_process_changes_nothing(tmp_path: Path, limit: str) -> None:
    done = stopped(tmp_path, AT_THE_END, limit=limit)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["status"] == "done"


def test_a_signal_while_an_error_is_told_gives_one_document(tmp_path: Path) -> None:
    sent = """
import signal
from costar_cli.reporting import output
explain = output._explain
def explained(error):
    signal.raise_signal(signal.SIGTERM)
    return explain(error)
output._explain = explained
"""
    done = stopped(tmp_path, sent, RUN.replace('"settings"', '"verify", "nothing.h5"'))
    assert done.returncode == ExitCode.TERMINATED
    assert json.loads(done.stdout)["status"] == "interrupted"


def test_a_second_signal_ends_a_run_that_loses_every_exception(tmp_path: Path) -> None:
    done = stopped(tmp_path, LOST_TWICE.format(number=int(signal.SIGTERM)))
    assert (done.returncode, done.stdout) == (ExitCode.TERMINATED, "")


def test_a_verb_whose_first_exception_is_lost_ends_at_its_next_step(tmp_path: Path) -> None:
    sent = """
import signal, sys
from costar_cli.reporting.progress import LoggedTask
usual = LoggedTask.__post_init__
class Lost:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)
def begun(task):
    usual(task)
    Lost()
LoggedTask.__post_init__ = begun
"""
    run = RUN.replace('"settings"', '"simulate", "linear", "--preset", "quick"')
    done = stopped(tmp_path, sent, run)
    assert done.returncode == ExitCode.TERMINATED
    assert json.loads(done.stdout)["status"] == "interrupted"
    assert not (tmp_path / "costar-workspace" / "data.h5").exists()


def test_closed_streams_lead_nowhere(tmp_path: Path) -> None:
    command = f"{sys.executable} -m costar_cli settings <&- >&- 2>&-"
    assert subprocess.run(command, shell=True, cwd=tmp_path, env=environment(), check=False).returncode == 0  # noqa: S602


@pytest.mark.parametrize("words", ["--help", "--version", "whatif -h"])
def test_a_reader_of_a_page_who_leaves_is_no_error(tmp_path: Path, words: str) -> None:
    command = [sys.executable, "-m", "costar_cli", *words.split()]
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(command, cwd=tmp_path, env=environment(), stdout=writes, stderr=subprocess.PIPE, check=False)
    os.close(writes)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("words", "debug", "code"),
    [
        *(([], debug, ExitCode.USAGE) for debug in "01"),
        *((["verify", "nothing.h5"], debug, ExitCode.ARTIFACT) for debug in "01"),
        *((["verify", "nothing.h5", "--json"], debug, ExitCode.ARTIFACT) for debug in "01"),
        (["simulate", "linear", "--preset", "quick"], "0", ExitCode.OK),
        (["simulate", "linear", "--preset", "quick", "--json"], "0", ExitCode.OK),
    ],
)
def test_a_stderr_on_a_full_disk_changes_nothing_else(
    tmp_path: Path, words: list[str], debug: str, code: ExitCode
) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "costar_cli", *words]
        env = environment(COSTAR_DEBUG=debug)
        done = subprocess.run(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=full, check=False)
    assert done.returncode == code
    if "--json" in words:
        assert json.loads(done.stdout)["status"] == ("failed" if code else "done")


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
