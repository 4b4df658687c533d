"""costar on Windows, as far as Linux can tell: its modules see nothing of POSIX in imports, `os` and `signal`."""

import subprocess
import sys
from pathlib import Path

import pytest

WINDOWS = """
import builtins, os, signal, sys, types

MISSING_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
MISSING_NAMES = {
    "os": {
        "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "chown", "fchmod", "fchown", "fork", "geteuid", "getloadavg",
        "getpgid", "getuid", "killpg", "lchown", "mkfifo", "posix_fallocate", "pread", "preadv", "pwrite", "pwritev",
        "sched_getaffinity", "sched_setaffinity", "sendfile", "setsid", "statvfs", "uname", "wait4",
    },
    "signal": {"SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGUSR1", "SIGUSR2", "pthread_sigmask"},
}
OURS = ("costar_cli", "simulators")
real_import = builtins.__import__

def as_on_windows(module):
    seen = types.ModuleType(module.__name__)
    seen.__dict__.update({k: v for k, v in vars(module).items() if k not in MISSING_NAMES[module.__name__]})
    return seen

windows = {"os": as_on_windows(os), "signal": as_on_windows(signal)}
windows["os"].name = "nt"

def import_as_on_windows(name, importer=None, locals=None, fromlist=(), level=0):
    if str((importer or {}).get("__name__", "")).split(".")[0] in OURS:
        if name.split(".")[0] in MISSING_MODULES:
            raise ModuleNotFoundError(f"no module {name} on Windows, imported by {importer['__name__']}", name=name)
        if name in windows:
            return windows[name]
    return real_import(name, importer, locals, fromlist, level)

builtins.__import__ = import_as_on_windows
"""

IMPORT_ALL = """
import importlib, pkgutil
import costar_cli, simulators
for package in (costar_cli, simulators):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            print(module.name)
"""

RUN = """
from costar_cli.cli.app import main
sys.exit(main(sys.argv[1:]))
"""


def on_windows(code: str, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WINDOWS + code, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_every_module_can_be_imported_without_posix(tmp_path: Path) -> None:
    done = on_windows(IMPORT_ALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    imported = done.stdout.split()
    assert {"costar_cli.files.atomic", "costar_cli.training.checkpoint", "simulators.tumor"} <= set(imported)
    assert len(imported) > 100


def test_the_block_stops_what_windows_does_not_have(tmp_path: Path) -> None:
    lines = ("import fcntl", "from resource import getrlimit", "import os; os.fork()", "from signal import SIGKILL")
    for line in lines:
        done = on_windows(f"exec({line!r}, {{'__name__': 'costar_cli.pretend'}})", cwd=tmp_path)
        assert done.returncode == 1
        assert "Error: " in done.stderr


@pytest.mark.slow
def test_verbs_run_without_posix(tmp_path: Path) -> None:
    sizes = "train = 30\nval = 10\ntest = 5\ntarget_train = 8\ntarget_val = 5\ntarget_test = 5\nsteps = 12\n"
    (tmp_path / "small.toml").write_text(f"[simulate.linear]\n{sizes}")
    for words in (
        ["simulate", "linear", "--config", "small.toml"],
        ["finetune", "--method", "ridge"],
        ["simulate", "linear", "--config", "small.toml", "--gamma", 2, "--overwrite"],
        ["verify", "costar-workspace/data.h5"],
    ):
        done = on_windows(RUN, *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
