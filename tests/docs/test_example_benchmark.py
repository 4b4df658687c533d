"""examples/benchmark.sh does what it says."""

import json
from pathlib import Path

import pytest

from tests.docs.test_examples_run import Script


@pytest.mark.slow
def test_the_benchmark_script_compares_methods_and_makes_nothing_twice(tmp_path: Path, run_script: Script) -> None:
    done = run_script("benchmark.sh", tmp_path / "out", cwd=tmp_path, COSTAR_BENCHMARK_METHODS="ridge,last-value")
    assert done.returncode == 0, done.stderr
    documents = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.json")}
    assert {name: document["status"] for name, document in documents.items()} == {
        "benchmark": "done",
        "again": "up_to_date",
    }
    lines = done.stdout.splitlines()
    assert any(line.startswith("ridge/source/10") and "to do" in line for line in lines)
    assert sum(line.startswith("zero-shot") for line in lines) == 2
    assert lines[-1] == "up_to_date"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
