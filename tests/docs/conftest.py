import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from costar_cli.cli.app import main
from tests.cli.cli_world import REPOSITORY, environment
from tests.preloaded import preloaded_costar

__all__ = ["preloaded_costar"]

COHORT = [
    *("--train", "24", "--val", "8", "--test", "6", "--target-train", "6", "--target-val", "6", "--target-test", "6"),
    *("--steps", "20"),
]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with models of both domains for plans of up to six days; look, but do not write."""
    root = tmp_path_factory.mktemp("docs") / "tiny"
    place = ["--workspace", str(root), "--quiet"]
    train = [*place, "--threads", "1", "--members", "2", "--epochs", "1"]
    assert main(["simulate", "tumor", *COHORT, *place]) == 0
    assert main(["pretrain", *train]) == 0
    assert main(["finetune", *train]) == 0
    assert main(["finetune", "--domain", "target", *train]) == 0
    return root


@pytest.fixture
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def script_path(preloaded_costar: Path) -> str:
    """The `PATH` on which scripts find `costar` and this Python."""
    return os.pathsep.join([str(preloaded_costar), str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.fixture
def run_script(script_path: str) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run a script of examples/ with these arguments, in a folder, with these variables."""

    def run(name: str, *args: object, cwd: Path, **settings: str) -> "subprocess.CompletedProcess[str]":
        command = ["bash", REPOSITORY / "examples" / name, *map(str, args)]
        env = environment(PATH=script_path, **settings)
        return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)

    return run
