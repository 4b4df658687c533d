"""What verbs import: closed forms answer without torch, plotting and statistics, which cost a second or more."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from costar_cli.methods.registry import METHODS
from tests.contract.outputs import PLANS, SEARCH, WORLD

MIXED, RIDGE = "--model model-mixed.h5", "--model model-ridge.h5"
QUESTIONS = (
    f"whatif -s 45 --plan chemo.json {MIXED} {RIDGE} --csv one.csv",
    f"whatif --subjects source/test --skip-unknown --plan chemo.json --average {MIXED}",
    f"whatif --subjects source/test --skip-unknown --plan chemo.json --average {RIDGE}",
    f"whatif -s 45 --origin 6 --plan rules.json {MIXED}",
    f"search -s 45 --origin 6 {MIXED} {SEARCH}",
)
COMMANDS = (
    *QUESTIONS,
    f"evaluate {MIXED} {RIDGE} --no-plots --out scores.h5",
    f"evaluate {RIDGE} --no-plots --shard 1/2 --out part.h5",
    "inspect data.h5",
    "inspect data.h5 --queries queries.parquet",
    "check data.h5",
    "ingest table series.csv --init",
    "check series.csv --schema schema.toml",
    "inspect model-mixed.h5",
    "verify model-mixed.h5",
    "simulate tumor --train 12 --val 4 --test 4 --steps 10 --horizon 3 -o d.h5",
)
BY_ARRAYS = sorted(name for name, method in METHODS.items() if method.by_arrays and not method.needs)
FITS = (
    *(f"finetune --method {name} --overwrite --fresh" for name in BY_ARRAYS),
    "finetune --method stack --parts msm,ridge --overwrite --fresh",
    *(f"whatif -s 45 --plan chemo.json --model model-{name}.h5" for name in (*BY_ARRAYS, "stack")),
    "effect --subjects all --plan chemo.json --learner regression --unsupported",
    "benchmark data.h5 --methods msm,mixed,ridge --no-plots",
)
SERIES = "id,t,a,y\n" + "".join(
    f"{i},{t},{(i + t) % 2},{(7 * i + 3 * t) % 11}.5\n" for i in range(80) for t in range(8)
)
HEAVY = ("torch", "matplotlib", "pandas", "sklearn", "scipy.stats", "scipy.optimize", "rich.markdown")
RUN = """
import json, shlex, sys
from costar_cli.cli.app import main
for command in json.loads(sys.argv[1]):
    code = main([*shlex.split(command), "--quiet"])
    heavy = [name for name in json.loads(sys.argv[2]) if name in sys.modules]
    print(json.dumps([command, code, heavy]), file=sys.stderr)
"""


def called(commands: Sequence[str], folder: Path, modules: Sequence[str] = HEAVY) -> list[tuple[str, int, list[str]]]:
    """Run commands in one new process; return each with its exit code, and which modules were imported by then."""
    shutil.copytree(WORLD / "tumor", place := folder / "tumor")
    for name, content in PLANS.items():
        (place / name).write_text(json.dumps(content))
    (place / "series.csv").write_text(SERIES)
    environment = {**os.environ, "COSTAR_WORKSPACE": "."}
    words = [sys.executable, "-c", RUN, json.dumps(commands), json.dumps(modules)]
    run = subprocess.run(words, capture_output=True, text=True, cwd=place, env=environment, check=True, timeout=300)
    return [tuple(json.loads(line)) for line in run.stderr.splitlines() if line.startswith("[")]


def test_closed_forms_answer_without_torch(tmp_path: Path) -> None:
    ended = called(COMMANDS, tmp_path)
    assert [(command, code) for command, code, _ in ended] == [(command, 0) for command in COMMANDS]
    assert [command for command, _, heavy in ended if "torch" in heavy] == []


def test_closed_forms_are_fitted_and_effects_estimated_without_torch(tmp_path: Path) -> None:
    assert {"boosting", "last-value", "mean", "mixed", "msm", "ridge"} < set(BY_ARRAYS)
    assert called(FITS, tmp_path, ["torch"]) == [(command, 0, []) for command in FITS]


def test_questions_to_closed_forms_import_nothing_heavy(tmp_path: Path) -> None:
    assert called(QUESTIONS, tmp_path) == [(command, 0, []) for command in QUESTIONS]


def test_networks_are_answered_by_torch(tmp_path: Path) -> None:
    ((_, code, heavy),) = called(["whatif -s 45 --plan chemo.json --model model.h5"], tmp_path)
    assert (code, "torch" in heavy) == (0, True)


def test_a_verb_imports_no_other_verb_and_no_settings_of_methods_without_need(tmp_path: Path) -> None:
    ask = f"whatif -s 45 --plan chemo.json {MIXED}"
    others = ["costar_cli.cli.finetune", "costar_cli.cli.evaluate", "costar_cli.methods.recurrent.settings"]
    assert called([ask], tmp_path, others) == [(ask, 0, [])]


@pytest.mark.parametrize(("set_by_user", "threads"), [(None, "1"), ("2", "2")])
def test_products_have_one_thread_unless_the_user_says_otherwise(set_by_user: str | None, threads: str) -> None:
    """Threads of OpenBLAS spin: beside other work, averages of 20,000 subjects took up to 12 times the time."""
    code = (
        "from costar_cli.cli.app import main; main(['--version'])\n"
        "import numpy, threadpoolctl\n"
        "print(*{found['num_threads'] for found in threadpoolctl.threadpool_info() if found['user_api'] == 'blas'})"
    )
    env = {name: value for name, value in os.environ.items() if name not in {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"}}
    env |= {} if set_by_user is None else {"OPENBLAS_NUM_THREADS": set_by_user}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.split()[-1] == threads
