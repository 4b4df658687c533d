"""A question about a domain on which the model was never validated is answered with what is known of it there."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import Run, write_ward

from costar_cli.cli.app import main
from costar_cli.files import read_header

Call = Callable[..., Run]


@pytest.fixture(scope="module")
def opposite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace of patients whom the drug helps in the north and does nothing for in the south."""
    folder = tmp_path_factory.mktemp("opposite")
    rows = ["patient,day,site,pressure,drug"]
    for n in range(120):
        site, pressure = ("north", 5.0) if n < 60 else ("south", 0.0)
        level = 50.0 + n % 7
        for day in range(10):
            given = (3 * n + day * day) % 5 < 2
            rows.append(f"p{n},{day},{site},{level:.1f},{'drug' if given else 'none'}")
            level += pressure * given + 0.3 * ((n + day) % 3 - 1)
    ingest = write_ward(folder, rows, horizon=2, more='site = { role = "domain", target = "south" }')
    place = ["--workspace", str(folder / "w"), "--quiet"]
    assert main([*ingest, *place]) == 0
    assert main(["finetune", "--method", "ridge", "--threads", "1", *place]) == 0
    (folder / "plan.json").write_text(json.dumps([{"drug": "drug"}, {}]))
    return folder


def ask(call: Call, folder: Path, subject: str, *words: object) -> Run:
    place = ["-w", folder / "w", "--model", folder / "w" / "model-ridge.h5", "--plan", folder / "plan.json"]
    return call("whatif", "--subject", subject, *place, *words, "--json")


def test_a_model_that_loses_to_the_last_value_on_the_subjects_domain_is_warned_of(
    opposite: Path, tmp_path: Path, call: Call
) -> None:
    run = ask(call, opposite, "p100", "--out", tmp_path / "answer.h5")
    assert run.document["result"]["domain"] == "target"
    [warning] = run.document["warnings"]
    found = re.fullmatch(
        r"model `model-ridge` on target subjects \(\d+ origins\): "
        r"worse than the last value carried forward on validation \((\S+) against (\S+)\)",
        warning,
    )
    assert found
    assert float(found[1]) > float(found[2])
    assert f"warning: {warning}" in run.err
    assert run.document["result"]["warnings"] == read_header(tmp_path / "answer.h5").meta["warnings"] == [warning]
    note = "model `model-ridge` was validated on source subjects only, and this one is of the target"
    assert note in run.document["result"]["notes"]


def test_on_the_domain_of_its_validation_nothing_is_added(opposite: Path, call: Call) -> None:
    run = ask(call, opposite, "p3")
    assert run.document["result"]["domain"] == "source"
    assert run.document["warnings"] == []
    assert not any("validated" in note for note in run.document["result"]["notes"])
