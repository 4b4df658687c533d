from pathlib import Path

import pytest

from costar_cli.app import main
from tests.cli.cli_world import REPOSITORY

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
