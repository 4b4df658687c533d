"""A writer that is interrupted, killed, or not alone: the path holds a complete artifact, old or new."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from costar_cli.files import atomic, read_artifact, tables, verify_artifact
from costar_cli.files.atomic import replacing, scratch_file, scratch_folder, write_bytes
from costar_cli.files.tables import table_file
from tests.artifact.crafting import NEW, assert_old_and_alone, sample_arrays, write

WRITERS = {atomic.__file__, tables.__file__}
REPOSITORY = Path(__file__).parents[2]


@pytest.mark.usefixtures("system")
def test_what_a_killed_writer_left_is_removed_and_a_living_one_is_not_disturbed(path):
    abandoned, foreign = path.parent / ".a.h5.01234567.tmp", path.parent / ".a.h5.notes.tmp"
    other = path.parent / ".b.h5.01234567.tmp"
    for file in (abandoned, foreign, other):
        file.touch()
    with replacing(path) as temp:
        os.pwrite(temp.fd, b"unfinished", 0)
        write(path, NEW, overwrite=True)
        assert temp.path.exists()
    assert path.read_bytes() == b"unfinished"
    assert not abandoned.exists()
    assert foreign.exists()
    assert other.exists()


def test_interrupt_waits_for_hdf5_and_goes_to_the_handler_that_was_there(path, monkeypatch):
    os_write, heard = os.write, []

    def interrupt(*arguments):
        signal.raise_signal(signal.SIGINT)
        return os_write(*arguments)

    monkeypatch.setattr(os, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(path, NEW, overwrite=True)
    assert_old_and_alone(path)
    previous = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        write(path, NEW, overwrite=True)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert heard
    np.testing.assert_array_equal(read_artifact(path).arrays["plan"], NEW["plan"])


@pytest.mark.usefixtures("system")
def test_threads_may_write(tmp_path):
    errors = []

    def work(i):
        try:
            write(tmp_path / f"{i}.h5", sample_arrays(i))
            verify_artifact(tmp_path / f"{i}.h5")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


WRITER = """
import os, sys
from pathlib import Path
from tests.artifact.crafting import sample_arrays, write
path, versions = Path(sys.argv[1]), [sample_arrays(1), sample_arrays(2)]
print("ready", flush=True)
for i in range(1_000_000):
    write(path, versions[i % 2], overwrite=True)
"""

CRASHES = """
import os, sys
from pathlib import Path
from costar_cli.files import read_header
from tests.artifact.crafting import sample_arrays, write
path, arrays = Path(sys.argv[1]), sample_arrays(2)
for name in ("write", "ftruncate", "fsync", "replace", "close"):
    original = getattr(os, name)
    write(path, sample_arrays(1), overwrite=True)
    for last in range(200):
        child = os.fork()
        if child == 0:
            calls = 0
            def crash(*arguments, **options):
                global calls
                calls += 1
                if calls > last:
                    os._exit(9)
                return original(*arguments, **options)
            setattr(os, name, crash)
            write(path, arrays, overwrite=True)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(name, last, code, read_header(path).digest, flush=True)
        if code == 0:
            break
        write(path, sample_arrays(1), overwrite=True)
"""


def start(code, path):
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True, env=environment)


def test_killed_at_random_moments_leaves_a_complete_file(path):
    digests = {write(path.parent / f"{i}.h5", sample_arrays(i)).digest for i in (1, 2)}
    rng = np.random.default_rng(0)
    for _ in range(6):
        with start(WRITER, path) as process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0.01, 0.12))
            process.kill()
        assert verify_artifact(path).digest in digests
    write(path, NEW, overwrite=True)
    assert sorted(p.name for p in path.parent.iterdir()) == ["1.h5", "2.h5", "a.h5"]


def test_crashed_before_any_system_call_leaves_a_complete_file(path):
    old, new = verify_artifact(path).digest, write(path.parent / "new.h5", NEW).digest
    with start(CRASHES, path) as process:
        lines = [line.split() for line in process.communicate()[0].splitlines()]
    assert process.returncode == 0
    outcomes = {name: [(code, digest) for n, _, code, digest in lines if n == name] for name, *_ in lines}
    assert set(outcomes) == {"write", "ftruncate", "fsync", "replace", "close"}
    for name, results in outcomes.items():
        *crashed, complete = results
        assert complete == ("0", new)
        assert crashed
        assert all(code == "9" for code, _ in crashed)
        after_the_move = {"fsync": 1, "close": len(crashed)}.get(name, 0)
        assert {digest for _, digest in crashed[: len(crashed) - after_the_move]} <= {old}
        assert {digest for _, digest in crashed} <= {old, new}


def _bytes(path: Path) -> None:
    write_bytes(path, b"whole")


def _table(path: Path) -> None:
    with table_file(path) as table:
        table.write({"n": [1]})


def _scratch(path: Path) -> None:
    with scratch_file(path.parent, "table") as waiting:
        waiting.write_bytes(b"rows")


def _folder(path: Path) -> None:
    with scratch_folder(path.parent, "export") as made:
        (made / "piece").write_bytes(b"rows")


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # an interrupt just before `with`
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("work", [_bytes, _table, _scratch, _folder])
def test_an_interrupt_at_any_line_leaves_no_temporary_file(tmp_path, work):
    path = tmp_path / "a.parquet"
    for last in range(1000):
        lines = 0

        def interrupt(frame, event, _argument, *, last=last):
            nonlocal lines
            lines += event == "line"
            if lines > last:
                sys.settrace(None)
                raise KeyboardInterrupt
            return interrupt if frame.f_code.co_filename in WRITERS else None

        before, handler = sys.gettrace(), signal.getsignal(signal.SIGINT)
        sys.settrace(interrupt)
        try:
            work(path)
        except KeyboardInterrupt:
            pass
        else:
            break
        finally:
            sys.settrace(before)
            signal.signal(signal.SIGINT, handler)
        assert [left.name for left in tmp_path.iterdir() if left != path] == [], f"line {last}"
    assert last > 5


def test_lock_of_the_temporary_file_is_held_while_writing(tmp_path):
    with replacing(tmp_path / "a") as temp, temp.path.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
