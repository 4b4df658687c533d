"""The benchmark of averages: what a run of some worlds leaves of the table."""

import json
from pathlib import Path

from benchmarks import averages
from benchmarks.comparing import Row, read


def row(world: str, coverage: str, method: str = "mixed") -> Row:
    return {"world": world, "method": method, "coverage": coverage}


def test_a_run_of_one_method_keeps_the_rows_of_others_and_how_they_were_made(tmp_path: Path) -> None:
    out = tmp_path / "averages.csv"
    averages.keep(out, "linear", "mixed", [row("linear", "0.1"), row("linear", "0.2")], 1.0)
    averages.keep(out, "tumor", "growth", [row("tumor", "0.7", "growth")], 4.0)
    averages.keep(out, "tumor", "mixed", [row("tumor", "0.8")], 2.0)
    averages.keep(out, "linear", "mixed", [row("linear", "0.9")], 3.0)
    assert read(out) == [row("tumor", "0.8"), row("tumor", "0.7", "growth"), row("linear", "0.9")]
    about = json.loads(out.with_suffix(".json").read_text("utf-8"))
    assert {name: own["seconds"] for name, own in about.items()} == {
        "linear mixed": 3.0, "tumor growth": 4.0, "tumor mixed": 2.0
    }  # fmt: skip


def test_the_stored_table_is_in_the_form_that_a_run_writes(tmp_path: Path) -> None:
    stored = read(averages.OUT)
    about = json.loads(averages.OUT.with_suffix(".json").read_text("utf-8"))
    for name, own in about.items():
        world, method = name.split()
        rows = [r for r in stored if (r["world"], r["method"]) == (world, method)]
        averages.keep(tmp_path / "averages.csv", world, method, rows, own["seconds"])
    assert (tmp_path / "averages.csv").read_bytes() == averages.OUT.read_bytes()
    again = json.loads((tmp_path / "averages.json").read_text("utf-8"))
    assert {name: set(own) for name, own in again.items()} == {name: set(own) for name, own in about.items()}
