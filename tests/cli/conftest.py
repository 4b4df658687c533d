import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_world import PLAN, REPOSITORY, TINY_COHORT, Run

from costar_cli.cli.app import main


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """Run the command line in this process."""

    def run(*args: object) -> Run:
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return Run(code, out, err)

    return run


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path) -> Iterator[None]:
    """Run every test in an empty folder, so that no default workspace is found or left behind."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield
    os.chdir(before)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a data set, an encoder, and models of both domains; look, but do not write."""
    root = tmp_path_factory.mktemp("cli") / "trained"
    place = ["--workspace", str(root), "--quiet", "--threads", "1", "--members", "2"]
    assert main(["simulate", "tumor", *TINY_COHORT, "--workspace", str(root), "--quiet"]) == 0
    assert main(["pretrain", "--epochs", "1", *place]) == 0
    assert main(["finetune", "--epochs", "2", *place]) == 0
    assert main(["finetune", "--epochs", "1", "--domain", "target", *place]) == 0
    return root


@pytest.fixture
def data(trained: Path) -> Path:
    """A small data set's file."""
    return trained / "data.h5"


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan file that fits the small data set."""
    path = tmp_path / "plan.json"
    path.write_text(PLAN)
    return path


@pytest.fixture
def repository() -> Path:
    return REPOSITORY
