"""With what a file was trained: recorded, shown, and compared when it would be made again."""

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from cli_world import TINY_COHORT, Run

from costar_cli import __version__
from costar_cli.files import digest, read_artifact, read_header, write_artifact

Call = Callable[..., Run]
TRAIN = ["pretrain", "--epochs", 1, "--members", 1]


@pytest.fixture
def made(call: Call) -> Path:
    """An encoder that was trained with one thread."""
    assert call("simulate", "tumor", *TINY_COHORT).code == 0
    assert call(*TRAIN, "--threads", 1).code == 0
    return Path("costar-workspace") / "encoder.h5"


def test_threads_and_versions_are_recorded_and_shown(made: Path, call: Call) -> None:
    (stored,) = read_header(made).meta["made_with"]
    assert (stored["threads"], stored["device"], stored["costar"]) == (1, "cpu", __version__)
    assert {"numpy", "torch", "scikit-learn", "scipy"} <= set(stored)
    assert (stored["scikit-learn"], stored["scipy"]) == (version("scikit-learn"), version("scipy"))
    assert f"cpu, 1 thread, costar {__version__}, numpy {stored['numpy']}" in call("inspect", made).out
    digest = read_header(made).digest
    assert call(*TRAIN, "--threads", 1, "--fresh").code == 0
    assert read_header(made).digest == digest


def test_an_up_to_date_file_of_other_threads_or_versions_stays_so_and_says_it(
    made: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = call(*TRAIN, "--threads", 1)
    assert "different environment" not in same.err
    other = call(*TRAIN, "--threads", 2, "--show", "notes")
    assert other.out.startswith("up to date")
    assert "threads: was 1, now 2" in other.err
    newer = {**digest.software_versions(), "torch": "99.0"}
    monkeypatch.setattr(digest, "software_versions", lambda: newer)
    later = call(*TRAIN, "--threads", 1, "--show", "notes")
    assert later.out.startswith("up to date")
    assert "now 99.0" in later.err


def test_made_again_with_other_threads_a_file_of_another_digest_says_why(made: Path, call: Call) -> None:
    before = read_header(made).digest
    run = call(*TRAIN, "--threads", 2, "--fresh")
    assert (run.code, read_header(made).digest != before) == (0, True)
    assert f"the digest was {before[:8]} before: threads: was 1, now 2" in run.err


def test_another_digest_of_the_same_threads_and_versions_is_a_warning(made: Path, call: Call) -> None:
    artifact = read_artifact(made)
    meta = {**artifact.meta, "reference": 0.0}
    write_artifact(
        made, kind="encoder", arrays=dict(artifact.arrays), meta=meta, parents=artifact.parents, overwrite=True
    )
    run = call(*TRAIN, "--threads", 1, "--fresh", "--json")
    assert any("seed, threads and versions are the same" in warning for warning in run.document["warnings"])
