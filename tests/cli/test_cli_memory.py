"""Under a limit on its memory a command that libraries end without a word still ends with one document."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.cli_world import environment, write_ward

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not hold processes to such limits")

RUN = "import sys\nfrom costar_cli.cli import app\nfrom costar_cli.__main__ import run\n{then}\nsys.exit(run())"
ENDS = {
    "aborts": ("import os; app.main = os.abort", "SIGABRT"),
    "exits": ("import os; app.main = lambda: os._exit(1)", "exit code 1"),
    "is killed": ("import os, signal; app.main = lambda: os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
}


def limited(
    *words: object, cwd: Path, code: str = "", limit: str = "RLIMIT_DATA", n_bytes: int = 2**40, **names: str
) -> "subprocess.Popen[str]":
    start = ["-c", RUN.format(then=code)] if code else ["-m", "costar_cli"]
    return subprocess.Popen(
        [sys.executable, *start, *map(str, words)],
        cwd=cwd,
        env=environment() | names,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(resource.setrlimit, getattr(resource, limit), (n_bytes, n_bytes)),  # noqa: PLW1509
    )


def document(process: "subprocess.Popen[str]") -> dict[str, Any]:
    try:
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()  # with its child
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.fixture
def ward_words(tmp_path: Path) -> list[str]:
    rows = [f"p{i},{t},{('none', 'drug')[(i + t) % 2]},{i * t % 7}" for i in range(30) for t in range(6)]
    return [*write_ward(tmp_path, ["patient,day,drug,pressure", *rows], horizon=2), "--json"]


@pytest.mark.parametrize(
    ("ends", "how", "verb", "code"),
    [(*ENDS["aborts"], "ingest", 3), (*ENDS["exits"], "ingest", 3), (*ENDS["is killed"], "finetune", 6)],
    ids=ENDS,
)
def test_a_command_that_ends_without_a_word_is_told_of(
    tmp_path: Path, ends: str, how: str, verb: str, code: int
) -> None:
    process = limited(verb, "--json", cwd=tmp_path, code=ends)
    error = document(process)["error"]
    assert process.returncode == error["exit_code"] == code
    assert f"({how})" in error["problem"]
    assert error["where"] == "this process, under `ulimit -d`"


def test_a_signal_without_a_name_is_told_by_its_number(tmp_path: Path) -> None:
    ends = "import os, signal; app.main = lambda: os.kill(os.getpid(), signal.SIGRTMIN + 2)"
    problem = document(limited("doctor", "--json", cwd=tmp_path, code=ends))["error"]["problem"]
    assert f"(signal {signal.SIGRTMIN + 2})" in problem


def test_a_file_that_is_called_like_a_verb_is_no_verb(tmp_path: Path) -> None:
    process = limited("verify", "ingest", "--json", cwd=tmp_path, code=ENDS["aborts"][0])
    assert document(process)["error"]["exit_code"] == process.returncode == 6


def test_of_several_processes_the_first_alone_prints_a_document(tmp_path: Path) -> None:
    names = {"TORCHELASTIC_RUN_ID": "t", "WORLD_SIZE": "2", "RANK": "1"}
    out, err = limited("pretrain", "--json", cwd=tmp_path, code=ENDS["aborts"][0], **names).communicate(timeout=60)
    assert out == ""
    assert err.startswith("process 1: error: the command ended without saying why")


def test_a_command_that_ends_in_order_is_as_without_a_limit(tmp_path: Path) -> None:
    process = limited("verify", "nothing.h5", "--json", cwd=tmp_path)
    assert document(process)["error"]["exit_code"] == process.returncode == 4
    version = limited("--version", cwd=tmp_path)
    assert version.communicate(timeout=60)[0].startswith("costar ")
    assert version.returncode == 0


def test_a_process_that_dies_once_it_has_told_its_end_is_not_told_of_again(tmp_path: Path) -> None:
    dies = """
import os
from costar_cli.reporting.output import Output
finish = Output._finish
def last(*words, **named):
    finish(*words, **named)
    os.abort()
Output._finish = last
"""
    process = limited("verify", "nothing.h5", "--json", cwd=tmp_path, code=dies)
    assert document(process)["error"]["exit_code"] == process.returncode == 4


@pytest.mark.parametrize("name", ["OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"])
@pytest.mark.parametrize(
    ("n_bytes", "chosen", "threads"), [(400_000_000, None, "1"), (400_000_000, "2", "2"), (2**40, None, "None")]
)
def test_under_a_tight_limit_libraries_begin_no_threads_but_those_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, n_bytes: int, chosen: str | None, threads: str
) -> None:
    monkeypatch.delenv(name, raising=False)
    asks = f"import os; app.main = lambda: print(os.environ.get('{name}')) or 0"
    process = limited(cwd=tmp_path, code=asks, n_bytes=n_bytes, **({name: chosen} if chosen else {}))
    assert process.communicate(timeout=60)[0] == f"{threads}\n"


@pytest.mark.parametrize(("limit", "n_bytes"), [("RLIMIT_AS", 900_000_000), ("RLIMIT_DATA", 160_000_000)])
def test_polars_is_not_asked_to_read_what_a_limit_forbids(
    tmp_path: Path, ward_words: list[str], limit: str, n_bytes: int
) -> None:
    process = limited(*ward_words, cwd=tmp_path, limit=limit, n_bytes=n_bytes)
    error = document(process)["error"]
    assert process.returncode == error["exit_code"] == 3
    assert "GB to read t.csv" in error["problem"]
    assert "`ulimit -" in error["where"]


def test_a_small_table_that_fits_is_read_under_a_limit_on_addresses(tmp_path: Path, ward_words: list[str]) -> None:
    process = limited(*ward_words, cwd=tmp_path, limit="RLIMIT_AS", n_bytes=1_600_000_000, POLARS_MAX_THREADS="4")
    assert document(process)["status"] == "done"
    assert process.returncode == 0


SLEEP = "import time\napp._run = lambda *_: print('ready', file=sys.stderr, flush=True) or time.sleep(60)"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_reach_the_command(tmp_path: Path, number: signal.Signals) -> None:
    process = limited("doctor", "--json", cwd=tmp_path, code=SLEEP)
    assert process.stderr is not None
    assert process.stderr.readline() == "ready\n"
    process.send_signal(number)
    assert document(process)["status"] == "interrupted"
    assert process.returncode == 128 + number


LASTING = """
import sys, time
from costar_cli.errors import SignalHandler
SignalHandler.AGAIN_S = 0.0
def last(*_):
    print("ready", file=sys.stderr, flush=True)
    while True:
        time.sleep(0.01)
def lasting(*_):
    try:
        last()
    except KeyboardInterrupt:
        {then}
        last()
app.{name} = lasting
"""
BEFORE = LASTING.format(name="_run", then="pass")
AFTER = LASTING.format(name="main", then='print("told", flush=True)')
UNPREPARED = """
import sys, time
from costar_cli import __main__
__main__.run_here = lambda: print("ready", file=sys.stderr, flush=True) or time.sleep(60)
"""


@pytest.mark.parametrize(("code", "printed"), [(BEFORE, ""), (AFTER, "told\n")], ids=["before", "after"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_the_command_without_another_document(
    tmp_path: Path, code: str, printed: str, number: signal.Signals
) -> None:
    process = limited("doctor", "--json", cwd=tmp_path, code=code)
    assert process.stderr is not None
    for _ in range(2):
        assert process.stderr.readline() == "ready\n"
        process.send_signal(number)
    assert process.communicate(timeout=60) == (printed, "")
    assert process.returncode == 128 + number


def test_a_signal_that_nothing_handles_yet_is_no_lack_of_memory(tmp_path: Path) -> None:
    process = limited("doctor", "--json", cwd=tmp_path, code=UNPREPARED)
    assert process.stderr is not None
    assert process.stderr.readline() == "ready\n"
    (child,) = psutil.Process(process.pid).children()
    child.terminate()
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 143


def test_a_command_whose_starter_is_gone_does_nothing(tmp_path: Path) -> None:
    gone = "import os; os.getppid = lambda: -1; app.main = lambda: print('worked')"
    out, _ = limited("doctor", cwd=tmp_path, code=gone).communicate(timeout=60)
    assert out == ""


def test_a_killed_command_leaves_no_process(tmp_path: Path) -> None:
    process = limited("doctor", cwd=tmp_path, code=SLEEP)
    assert process.stderr is not None
    assert process.stderr.readline() == "ready\n"
    (child,) = psutil.Process(process.pid).children()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    begun = time.monotonic()
    with suppress(psutil.NoSuchProcess):
        while child.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < begun + 60
            time.sleep(0.01)
