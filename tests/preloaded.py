"""Processes of `costar` that start at once: forks of one process that has imported everything, torch included.

A fork has arguments, folder, environment, streams and an exit code of its own, as `python -m costar_cli` has. What it
spares is two seconds of imports, of which the scripts of the documentation would wait for some fifty.
"""

import json
import os
import pkgutil
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

import pytest

__all__ = ["preloaded_costar"]

# Libraries that verbs import when they need them.
LATER = ("scipy.optimize", "scipy.stats", "matplotlib.backends.backend_agg", "polars", "filelock", "jinja2")
LATER += ("sklearn.decomposition", "sklearn.ensemble", "sklearn.linear_model", "sklearn.manifold")

# What stands in for `costar` on the path: it hands its own arguments and streams to the process that forks.
SHIM = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as door:
    door.connect({address!r})
    socket.send_fds(door, [b"!"], [0, 1, 2])
    door.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode())
    door.shutdown(socket.SHUT_WR)
    code = door.recv(16)
sys.exit(int(code) if code else "the process ended without an exit code")
"""


@pytest.fixture(scope="session")
def preloaded_costar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a `costar` that starts at once, to stand first on the path."""
    folder = tmp_path_factory.mktemp("bin")
    address, command = f"{folder}/door", folder / "costar"
    command.write_text(SHIM.format(python=sys.executable, address=address))
    command.chmod(0o755)
    environment = {"PYTHONWARNINGS": "error", **os.environ}
    server = subprocess.Popen([sys.executable, "-m", "tests.preloaded", address], env=environment)
    until = time.monotonic() + 100
    while not Path(address).exists():
        assert server.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    yield folder
    server.terminate()
    server.wait()


def serve(address: str) -> None:
    """Import everything, then fork for every command that asks."""
    for module in pkgutil.walk_packages(import_module("costar_cli").__path__, "costar_cli."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    for name in LATER:
        import_module(name)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{address}.new")
        door.listen(8)
        Path(f"{address}.new").rename(address)
        while True:
            caller, _ = door.accept()
            if os.fork() == 0:
                door.close()
                answer(caller)
            caller.close()
            reap()


def reap() -> None:
    """Let the forks that have ended go."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def answer(caller: socket.socket) -> None:
    """Run the command that a caller asks for, on the caller's streams, and end with its exit code."""
    from costar_cli.cli.app import main

    _, streams, _, _ = socket.recv_fds(caller, 1, 3)
    asked = b"".join(iter(lambda: caller.recv(2**16), b""))
    words, folder, environment = json.loads(asked)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    code = 1
    with as_streams():
        try:
            code = main(words)
        except BaseException:
            traceback.print_exc()
    with suppress(OSError):
        caller.sendall(str(code).encode())
    os._exit(code)


@contextmanager
def as_streams() -> Iterator[None]:
    """Let Python's streams be those of the process."""
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    yield
    sys.stdout.flush()
    sys.stderr.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
