"""A sound artifact to change."""

from pathlib import Path

import pytest

from tests.artifact.crafting import OLD, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file that holds `OLD`."""
    write(tmp_path / "a.h5", OLD)
    return tmp_path / "a.h5"
