"""At 80 columns no table of results wraps or loses a column; in a pipe each row stays one line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import TINY_COHORT, Run
from test_cli_output import run_in_terminal

from costar_cli.reporting.text import fold_first, render_table

Call = Callable[..., Run]


@pytest.fixture
def workspace(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "w"))


def table_lines(out: str) -> list[str]:
    """Lines of tables: sentences and files are no tables."""
    return [line for line in out.splitlines() if "  " in line and not line.startswith(("wrote", "up to date"))]


def test_headline_tables_fit_into_80_columns_with_every_column(
    workspace: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    verbs = {
        "simulate": ["simulate", "tumor", *TINY_COHORT, "-w", workspace],
        "pretrain": ["pretrain", "-w", workspace, "--epochs", 1, "--members", 2, "--show", "members"],
        "evaluate": ["evaluate", "-w", workspace, "--no-plots", "--show", "all"],
        "benchmark": ["benchmark", workspace / "data.h5", "--methods", "last-value,ridge", "--no-plots", "-w", "b"],
    }
    expected = {
        "simulate": ["split", "subjects", "one_step"],
        "pretrain": ["kept epoch", "validation loss"],
        "evaluate": ["zero-shot", "few-shot", "model", "average", "interval", "tau=1", "tau=2", "tau=3"],
        "benchmark": ["wall s", "peak MB", "params"],
    }
    for verb, words in verbs.items():
        run = call(*words)
        assert run.code == 0, run.err
        lines = table_lines(run.out)
        assert max(map(len, lines)) <= 80, [line for line in lines if len(line) > 80]
        assert all(any(title in line for line in run.out.splitlines()) for title in expected[verb]), (verb, run.out)


def plans_of(folder: Path, number: int) -> Path:
    path = folder / "plans.json"
    path.write_text(json.dumps({"plans": {f"a plan with a name {i}": [{}, {}] for i in range(number)}}))
    return path


def test_the_plans_of_a_whatif_fit_into_80_columns_each_beside_its_truth(
    workspace: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    asked = ["--subject", 1, "--origin", 4, "--plan", plans_of(tmp_path, 6), "--truth", "--show", "all"]
    run = call("whatif", "-w", workspace, *asked)
    assert run.code == 0, run.err
    lines = table_lines(run.out)
    assert max(map(len, lines)) <= 80, [line for line in lines if len(line) > 80]
    heads = [line for line in lines if line.startswith("day ")]
    assert sum(head.count("a plan") for head in heads) == 6 + 5  # estimates, and differences from the first
    assert all(head.count("truth") == head.count("a plan") for head in heads)


def test_models_compared_in_a_whatif_fit_into_80_columns(
    workspace: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    models = [Path(shutil.copy(workspace / "model.h5", tmp_path / f"a model with a name {i}.h5")) for i in range(4)]
    words = [word for path in models for word in ("--model", path)]
    run = call("whatif", "-w", workspace, "--subject", 1, "--plan", plans_of(tmp_path, 2), *words)
    assert run.code == 0, run.err
    lines = table_lines(run.out)
    assert max(map(len, lines)) <= 80, [line for line in lines if len(line) > 80]
    assert all(path.stem in run.out for path in models)


def test_blocks_of_columns_hold_every_cell_under_its_header() -> None:
    headers = ["setup", "model", *(f"tau={h}" for h in range(9))]
    rows = [[setup, f"model {i}", *(f"{i}.{h}" for h in range(9))] for setup in ("one", "two") for i in range(2)]
    lines = render_table(headers, rows, width=30, keys=2)
    assert all(len(line) <= 30 for line in lines)
    assert lines[:5] == [
        "setup  model    tau=0  tau=1",
        "one    model 0    0.0    0.1",
        "one    model 1    1.0    1.1",
        "two    model 0    0.0    0.1",
        "two    model 1    1.0    1.1",
    ]
    lines = render_table(headers, rows, width=20, keys=2)  # no room for both keys: the first one stands above, named
    assert all(len(line) <= 20 for line in lines)
    assert lines[:4] == ["model    tau=0", "setup one", "model 0    0.0", "model 1    1.0"]
    assert sum("tau=8" in line for line in lines) == 1
    ratings = [
        ["watch", "75 %", "precision", "green"],
        ["", "", "practice", "amber"],
        ["both", "6 %", "precision", "red"],
    ]
    lines = render_table(["plan", "like practice", "light", "30"], ratings, width=20, keys=3)
    assert lines[1:5] == [
        "plan watch, like practice 75 %",
        "precision  green",
        "practice   amber",
        "plan both, like practice 6 %",
    ]
    assert render_table(headers, rows, keys=2)[1].split() == ["one", "model", "0", *(f"0.{h}" for h in range(9))]


def test_long_names_of_rows_fold_before_a_table_is_split() -> None:
    headers = ["plan", "estimate", "support"]
    rows = [["basal-bolus, steroid stopped", "146", "rare"], ["basal", "143", "often"]]
    lines = render_table(headers, fold_first(headers, rows, 41), width=41, keys=1)
    assert lines == [
        "plan                  estimate  support",
        "basal-bolus, steroid       146  rare",
        "stopped",
        "basal                      143  often",
    ]
    assert fold_first(headers, rows, None) == fold_first(headers, rows, 80) == rows
    assert fold_first(headers, rows, 30) == rows, "too narrow to fold: the table is split"


LINES = (
    "from costar_cli.reporting.output import Output\n"
    "Output('ingest').text('', '[columns]\\nage = 1  # ' + 'long ' * 20 + '\\nsex = 2')\n"
)


def test_a_text_of_several_lines_keeps_them_in_a_terminal() -> None:
    out, _ = run_in_terminal(LINES, COLUMNS="80", NO_COLOR="1")
    lines = out.replace("\r", "").splitlines()
    assert lines[:2] == ["", "[columns]"]
    assert lines[2].startswith("age = 1  # long")
    assert lines[-1] == "sex = 2"
    assert max(map(len, lines)) <= 80


STYLED = (
    "from costar_cli.reporting.output import Output\n"
    "from costar_cli.reporting.text import Cell, show_styled\n"
    "headers = ['method', *[f'tau={h}' for h in range(12)], 'average']\n"
    "row = ['COSTAR without relative encoding', *[Cell(f'{100 + h}.123', '0.456') for h in range(13)]]\n"
    "show_styled(Output('benchmark'), 'zero-shot', headers, {'': [row]})\n"
)


def test_a_styled_table_fits_into_a_terminal_of_80_columns() -> None:
    out, _ = run_in_terminal(STYLED, COLUMNS="80", NO_COLOR="")
    lines = out.replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 80 + len("\x1b[1m\x1b[0m") * 13
    assert all(f"tau={h}" in out and f"{100 + h}.123" in out for h in range(12))
    assert out.count("average") == 1
