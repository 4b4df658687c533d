"""Tables that people read: no number is cut short, long lists have a place of their own, methods stand side by side."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli_world import TINY_COHORT, Run

from costar_cli.cli.benchmarking.export import show_report
from costar_cli.data import store
from costar_cli.data.store import read_dataset
from costar_cli.methods import METHODS
from costar_cli.reporting import text as ui_text
from costar_cli.reporting.output import Output
from tests.evaluate.benchmark_worlds import constant_errors, report, score, tables

Call = Callable[..., Run]

HEADERS = ["Method", *(f"τ={h}" for h in range(1, 7)), "Avg", "Gain", "Runs"]


def table_lines(
    width: int, number: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    monkeypatch.setattr(ui_text, "_is_styled", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    cells = [ui_text.Cell(number, "0.123", mark) for mark in ("best", "second", "", "", "", "", "")]
    row = ["Last value carried forward", *cells, "-105.4%", "25"]
    ui_text.show_styled(Output(), "A title", HEADERS, {"": [row], "published, different protocol": [row]})
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(("width", "number"), [(80, "12.345"), (60, "12.345"), (80, "12345.678"), (200, "12.345")])
def test_no_number_or_word_is_cut_short_however_narrow_the_terminal(
    width: int, number: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = table_lines(width, number, monkeypatch, capsys)
    text = "\n".join(lines)
    assert "…" not in text
    assert text.count(number) == text.count("±0.123") == 14
    assert all(word in text for word in ("carried", "forward", "published,", "protocol", "-105.4%"))


def test_the_papers_table_fits_eighty_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert max(map(len, table_lines(80, "12.345", monkeypatch, capsys))) <= 80


def shown(made: object, capsys: pytest.CaptureFixture[str]) -> str:
    show_report(Output(), made)  # type: ignore[arg-type]
    return capsys.readouterr().out


def test_what_averages_and_deviations_are_over_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    scores = [score(name, constant_errors(np.ones((2, 11)))) for name in ("costar", "msm")]
    made = report(tables(scores, horizon=11, name="other"), dataset="other", horizon=11)
    text = shown(made, capsys)
    assert "Avg over τ = 1..6 of 11" in text
    assert "± sd over the members of 2 data sets" in text
    one = shown(replace(made, seeds=(10,), horizon=3), capsys)
    assert "Avg over τ = 1..3;" in one
    assert "all trained on one data set" in one


def test_costs_are_shown_with_units_and_the_gpus_memory_where_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    made = report(tables([score("costar", constant_errors(np.ones((2, 6))))]))
    header, row = re.findall(r"^(?:cost per|COSTAR +source).*$", shown(made, capsys), re.MULTILINE)
    assert re.split(r" {2,}", header) == [
        "cost per data set",
        "cell",
        "wall s",
        "peak MB",
        "members",
        "params",
        "epochs",
        "updates",
    ]
    assert row.split() == ["COSTAR", "source", "12.5", "512", "2", "20,657", "11"]
    on_gpu = replace(made, costs=(replace(made.costs[0], device_memory_mb=2048.0),))
    header, row = re.findall(r"^(?:cost per|COSTAR +source).*$", shown(on_gpu, capsys), re.MULTILINE)
    assert "peak MB  GPU MB" in header
    assert row.split() == ["COSTAR", "source", "12.5", "512", "2,048", "2", "20,657", "11"]


def test_inspect_lists_many_levels_below_and_cuts_long_lists(tmp_path: Path, call: Call) -> None:
    place = ["--scale", "0.01", "--preset", "quick", "-w", tmp_path]
    assert call("simulate", "m5", *place, "--quiet").code == 0
    run = call("inspect", tmp_path / "data.h5", "--show", "all", "--arrays")
    lines = run.out.splitlines()
    assert any(re.fullmatch(r"treatments +price_change +22 levels, listed below +multiclass", line) for line in lines)
    assert "     0  no change" in lines
    assert any(re.fullmatch(r" +21  \S.*", line) for line in lines)
    settings = lines[lines.index("config") : lines.index("source/")]
    assert max(map(len, settings)) < 110
    assert any(re.fullmatch(r"price_edges +\[.*, \.\.\.\] \(21 values\)", line) for line in settings)


def test_a_data_set_that_is_up_to_date_is_counted_without_reading_it(
    trained: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = read_dataset(trained / "data.h5")
    monkeypatch.setattr(store, "read_dataset", lambda *_, **__: pytest.fail("the data set was read"))
    document = call("simulate", "tumor", *TINY_COHORT, "-w", trained, "--json").document
    assert document["status"] == "up_to_date"
    assert [(part["part"], part["subjects"], part["steps"]) for part in document["result"]["parts"]] == [
        (str(part), panel.n_subjects, int(panel.length.sum())) for part, panel in dataset.panels.items()
    ]
    asked = {str(part): len(sets["one_step"]) for part, sets in dataset.queries.items() if "one_step" in sets}
    counted = {part["part"]: part["one_step"] for part in document["result"]["parts"]}
    assert {part: number for part, number in counted.items() if number is not None} == asked


@pytest.mark.parametrize("method", [name for name, m in METHODS.items() if m.closed_form and not m.needs])
def test_closed_form_methods_are_the_same_cells_whatever_the_members(
    method: str, tmp_path: Path, trained: Path, call: Call
) -> None:
    words = ["finetune", "--data", trained / "data.h5", "--method", method, "-w", tmp_path, "--json"]
    assert call(*words, "--members", "2").document["status"] == "done"
    assert call(*words, "--members", "7").document["status"] == "up_to_date"
    assert call(*words).document["status"] == "up_to_date"


def test_models_are_compared_column_by_column_with_their_errors(trained: Path, plan: Path, call: Call) -> None:
    models = ["--model", trained / "model.h5", "--model", trained / "model-target.h5"]
    words = ["whatif", "-w", trained, "--subject", 30, "--plan", plan, *models, "--truth"]
    rows = call(*words, "--json").document["result"]["estimates"]
    errors = {name: [row["error"] for row in rows if row["model"] == name] for name in ("model", "model-target")}
    text = call(*words, "--quiet", "--show", "all").out
    table = text[: text.index("difference from")].splitlines()
    header, last = (next(line.split() for line in table if line.startswith(word)) for word in ("plan  ", "RMSE"))
    assert header == ["plan", "day", "model", "model-target", "truth"]
    found = [float(value) for value in last[1:]]
    wanted = [float(np.sqrt(np.mean(np.square(values)))) for values in errors.values()]
    assert found == pytest.approx(wanted, rel=0.01, abs=1e-3)
    assert sum(line.startswith(("watch ", "both ")) for line in table) == 4


def test_ablations_need_a_set_up_that_scores_them(tmp_path: Path, call: Call) -> None:
    words = ["benchmark", "tumor", "--preset", "quick", "--ablations", "--list", "--folder", tmp_path]
    run = call(*words, "--setups", "few-shot")
    assert (run.code, "zero-shot and supervised" in run.err) == (2, True)
    alone = call(*words, "--setups", "zero-shot", "--methods", "ridge", "--show", "notes")
    assert alone.code == 0
    assert "added COSTAR as reference" in alone.err
    assert any(line.startswith("costar/source/") for line in alone.out.splitlines())
