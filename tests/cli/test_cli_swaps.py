"""What is recorded is what was loaded: a file that is replaced while a verb reads it is an error."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import Run, write_ward

from costar_cli.cli.session import Session
from costar_cli.errors import ExitCode
from costar_cli.files import read_artifact, write_artifact

Call = Callable[..., Run]
PLACE = Path("costar-workspace")
WARD = ["patient,day,pressure,drug", *(f"{n},{day},{n + day},none" for n in range(40) for day in range(9))]
ASK = ["--plan", "plan.json"]


def another(file: Path) -> Path:
    """A file of the same kind with other content."""
    found, path = read_artifact(file), file.with_name("other.h5")
    meta = {**found.meta, "fingerprint": "another"}
    write_artifact(path, kind=found.kind, arrays=found.arrays, meta=meta, parents=found.parents)
    return path


def swap_when_told(monkeypatch: pytest.MonkeyPatch, swaps: dict[Path, Path]) -> None:
    """Replace a file by another one as soon as a verb has read its header or its digest."""
    really = Session.tell_read

    def tell_read(session: Session, role: str, path: Path, digest: str = "", kind: str = "", *, what: str = "") -> None:
        really(session, role, path, digest, kind, what=what)
        if path in swaps:
            os.replace(swaps.pop(path), path)

    monkeypatch.setattr(Session, "tell_read", tell_read)


READ_DATA: list[list[object]] = [["pretrain", "-o", "e.h5"], ["finetune", "--method", "ridge", "-o", "m.h5"]]
READ_BOTH: list[list[object]] = [
    ["finetune", "--domain", "target", "--start", PLACE / "model.h5", "-o", "m.h5"],
    ["evaluate", "--model", PLACE / "model.h5", "--no-plots", "--bootstrap", 0, "-o", "v.h5"],
    ["whatif", "-s", 1, *ASK, "--out", "q.h5"],
    ["whatif", "--subjects", "all", *ASK, "--csv", "q.csv"],
    ["search", "-s", 1, "--minimise", "tumour_volume at end", "--csv", "q.csv"],
]


@pytest.mark.parametrize(
    ("words", "swapped"),
    [*((words, "data.h5") for words in READ_DATA + READ_BOTH), *((words, "model.h5") for words in READ_BOTH)],
)
def test_an_artifact_that_is_replaced_while_it_is_read_is_an_error(
    words: list[object], swapped: str, trained: Path, plan: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained, PLACE)
    before = {path.name for path in plan.parent.iterdir()}
    swap_when_told(monkeypatch, {PLACE / swapped: another(PLACE / swapped)})
    run = call(*words)
    assert run.code == ExitCode.MISMATCH, run.err
    assert "was replaced while it was read" in run.err
    assert {path.name for path in plan.parent.iterdir()} == before


def test_a_table_that_is_replaced_while_it_is_read_is_an_error(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest = write_ward(Path(), WARD, horizon=2)
    (tmp_path / "other.csv").write_text("\n".join([*WARD, "90,0,1,none", "90,1,1,none"]) + "\n")
    swap_when_told(monkeypatch, {Path("t.csv"): Path("other.csv")})
    run = call(*ingest)
    assert run.code == ExitCode.MISMATCH, run.err
    assert "was replaced while it was read" in run.err
    assert not (PLACE / "data.h5").exists()
