"""What verbs import: closed forms answer without torch, which costs seconds before the first number."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.contract.outputs import PLANS, SEARCH, WORLD

MIXED, RIDGE = "--model model-mixed.h5", "--model model-ridge.h5"
COMMANDS = (
    f"whatif -s 45 --plan chemo.json {MIXED} {RIDGE} --csv one.csv",
    f"whatif --subjects source/test --skip-unknown --plan chemo.json --average {MIXED}",
    f"whatif --subjects source/test --skip-unknown --plan chemo.json --average {RIDGE}",
    f"whatif -s 45 --origin 6 --plan rules.json {MIXED}",
    f"search -s 45 --origin 6 {MIXED} {SEARCH}",
    f"evaluate {MIXED} {RIDGE} --no-plots --out scores.h5",
    "inspect data.h5",
    "inspect model-mixed.h5",
    "verify model-mixed.h5",
    "simulate tumor --train 12 --val 4 --test 4 --steps 10 --horizon 3 -o d.h5",
)
RUN = """
import json, shlex, sys
from costar_cli.cli.app import main
for command in json.loads(sys.argv[1]):
    code = main([*shlex.split(command), "--quiet"])
    print(json.dumps([command, code, "torch" in sys.modules]), file=sys.stderr)
"""


def called(commands: Sequence[str], folder: Path) -> list[tuple[str, int, bool]]:
    """Run commands in one new process; return each with its exit code, and whether torch was imported by then."""
    shutil.copytree(WORLD / "tumor", place := folder / "tumor")
    for name, content in PLANS.items():
        (place / name).write_text(json.dumps(content))
    environment = {**os.environ, "COSTAR_WORKSPACE": "."}
    words = [sys.executable, "-c", RUN, json.dumps(commands)]
    run = subprocess.run(words, capture_output=True, text=True, cwd=place, env=environment, check=True, timeout=300)
    return [tuple(json.loads(line)) for line in run.stderr.splitlines() if line.startswith("[")]


def test_closed_forms_answer_without_torch(tmp_path: Path) -> None:
    assert called(COMMANDS, tmp_path) == [(command, 0, False) for command in COMMANDS]


def test_networks_are_answered_by_torch(tmp_path: Path) -> None:
    assert called([ask := "whatif -s 45 --plan chemo.json --model model.h5"], tmp_path) == [(ask, 0, True)]
