"""`costar benchmark`: cells that are kept, tables that come out the same however often it was interrupted."""

import csv
import io
import json
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cli_world import Run, refuse_writes, start_process

from costar_cli.cli.app import main
from costar_cli.errors import TrainingError
from costar_cli.methods import METHODS
from costar_cli.methods.regression.ridge import RidgeMethod
from costar_cli.reporting import text as ui_text
from costar_cli.reporting.output import Output
from costar_cli.training import loop

Call = Callable[..., Run]

TINY = """
[simulate.tumor]
train = 24
val = 8
test = 6
target_train = 8
target_val = 6
target_test = 5
steps = 12
horizon = 3
[pretrain]
epochs = 1
[finetune]
epochs = 1
[evaluate]
bootstrap = 100
[runtime]
threads = 1
"""
METHODS_ALONE = ["--methods", "costar,ridge,last-value"]
METHOD_WORDS = [*METHODS_ALONE, "--members", "2"]
FILES = ["benchmark.json", "cells.csv", "comparisons.csv", "ledger.json", "results.csv", "tables.md", "tables.tex"]


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("settings") / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="session")
def done(settings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a complete benchmark; look, but do not write."""
    folder = tmp_path_factory.mktemp("benchmark") / "tumor"
    words = ["benchmark", "tumor", *METHOD_WORDS, "--config", str(settings), "--folder", str(folder), "--quiet"]
    assert main([*words, "--no-plots"]) == 0
    return folder


def rows(folder: Path, name: str = "results.csv") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((folder / name).read_text())))


def timeless(folder: Path) -> dict[str, str]:
    """The files of a benchmark that do not tell how long it took."""
    return {name: (folder / name).read_text() for name in ("results.csv", "comparisons.csv", "tables.tex")}


def test_the_tables_hold_every_method_in_every_setup_and_no_published_row_of_other_data(done: Path) -> None:
    assert {row["basis"] for row in rows(done)} == {"ours", "limit"}
    ours = {(row["setup"], row["method"]): row for row in rows(done) if row["basis"] == "ours"}
    assert [row["setup"] for row in rows(done) if row["basis"] == "limit"] == ["zero-shot", "few-shot", "supervised"]
    names = ["Last value carried forward", "Ridge regression", "COSTAR"]
    assert list(ours) == [(setup, name) for setup in ("zero-shot", "few-shot", "supervised") for name in names]
    assert {row["runs"] for (_, name), row in ours.items() if name == "COSTAR"} == {"2"}
    assert {row["name"] for row in rows(done, "comparisons.csv")} == {"ridge", "last-value"}
    assert sorted(path.name for path in done.iterdir() if path.is_file() and path.name[0] != ".") == FILES


def test_costs_are_known_for_every_cell(done: Path) -> None:
    costs = {row["cell"]: row for row in rows(done, "cells.csv")}
    assert "costar/encoder/10" in costs
    assert all(float(row["wall_s"]) > 0 and float(row["memory_mb"]) > 50 for row in costs.values())
    assert {row["partial"] for row in costs.values()} == {"False"}
    assert costs["costar/source/10"]["epochs"] == "1.0"
    assert int(costs["costar/source/10"]["parameters"]) > 10_000
    assert costs["last-value/source/10"]["parameters"] == "0"
    assert costs["ridge/source/10"]["epochs"] == ""


def test_a_second_run_makes_nothing_and_says_so(done: Path, settings: Path, call: Call) -> None:
    before = {path: path.stat().st_mtime_ns for path in done.rglob("*.h5")}
    run = call("benchmark", "tumor", *METHOD_WORDS, "-c", settings, "--folder", done, "--no-plots", "--json")
    document = run.document
    assert (run.code, document["status"], document["result"]["made"]) == (0, "up_to_date", 0)
    assert {path: path.stat().st_mtime_ns for path in done.rglob("*.h5")} == before
    assert [table["setup"] for table in document["result"]["tables"]] == ["zero-shot", "few-shot", "supervised"]
    assert document["config"]["benchmark.methods"] == {"value": METHOD_WORDS[1], "origin": "--methods"}
    assert document["result"]["tables"] == json.loads((done / "benchmark.json").read_text())["tables"]


def test_what_is_made_already_is_shown_from_a_folder_that_cannot_be_written(
    done: Path, settings: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_writes(monkeypatch, done)
    words = ["benchmark", "tumor", "-c", settings, "--folder", done]
    run = call(*words, *METHOD_WORDS)
    assert run.code == 0, run.err
    assert "COSTAR" in run.out
    assert "the tables are shown, not written: the disk is read-only" in run.err
    more = call(*words, "--methods", "costar,ridge,last-value,msm", "--members", "2")
    assert (more.code, "the disk is read-only" in more.err) == (8, True)


def test_cells_are_what_the_verbs_make(done: Path, settings: Path, call: Call) -> None:
    place = ["-w", done / "seed-10", "-c", settings, "--json"]
    for words in (
        ["simulate", "tumor"],
        ["pretrain", "--members", "2"],
        ["finetune", "--members", "2"],
        ["finetune", "--members", "2", "--domain", "target"],
        ["finetune", "--members", "2", "--method", "ridge"],
    ):
        assert call(*words, *place).document["status"] == "up_to_date", words


def test_cells_can_be_listed_and_nothing_is_made(done: Path, settings: Path, tmp_path: Path, call: Call) -> None:
    words = ["benchmark", "tumor", *METHOD_WORDS, "-c", settings, "--list"]
    there = call(*words, "--folder", done, "--json").document["result"]["cells"]
    assert {cell["state"] for cell in there} == {"done"}
    other = call(*words, "--folder", done, "--data-seeds", "2", "--json").document["result"]["cells"]
    assert {cell["cell"][-2:]: cell["state"] for cell in other} == {"10": "done", "11": "to do"}
    listed = call(*words, "--folder", done, "--data-seeds", "10, 101", "--json").document["result"]["cells"]
    assert {cell["cell"].rsplit("/", 1)[-1]: cell["state"] for cell in listed} == {"10": "done", "101": "to do"}
    three = ["benchmark", "tumor", *METHODS_ALONE, "--members", "3", "-c", settings, "--list"]
    stale = call(*three, "--folder", done, "--json").document["result"]["cells"]
    assert {cell["state"] for cell in stale if cell["cell"].startswith("costar")} == {"stale"}
    text = call(*words)
    assert re.search(r"^costar/encoder/10 +to do  ", text.out, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_single_ablations_are_chosen_by_name(call: Call) -> None:
    words = ["benchmark", "tumor", "--methods", "costar,ssl-none", "--setups", "zero-shot", "--list", "--json"]
    cells = [cell["cell"] for cell in call(*words).document["result"]["cells"]]
    assert cells == ["data/10", "costar/encoder/10", "costar/source/10", "ssl-none/source/10"]


def test_other_settings_do_not_replace_what_is_there(done: Path, settings: Path, call: Call) -> None:
    before = {path: path.read_bytes() for path in done.rglob("*") if path.is_file()}
    run = call("benchmark", "tumor", *METHODS_ALONE, "-c", settings, "--folder", done, "--members", "3")
    assert run.code == 5
    assert "--overwrite" in run.err
    assert "costar/encoder/10" in run.err
    assert {path: path.read_bytes() for path in done.rglob("*") if path.is_file()} == before


class BrokenMethod(RidgeMethod):
    def fit(self, task: object) -> None:
        raise TrainingError("the loss is not finite", where="ridge", fix="lower `--learning-rate`")


def test_a_failing_cell_stops_nothing_but_those_that_need_it(
    settings: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["benchmark", "tumor", "--methods", "ridge,last-value", "-c", settings, "--folder", tmp_path / "b"]
    monkeypatch.setitem(METHODS._by_name, "ridge", replace(METHODS["ridge"], estimator=BrokenMethod()))
    run = call(*words, "--json")
    document = run.document
    assert (run.code, document["status"]) == (9, "failed")
    assert document["error"]["problem"] == "1 of 5 cells failed"
    assert document["error"]["details"] == [
        "ridge/source/10: the loss is not finite (ridge)",
        "1 more cells depend on these",
    ]
    labels = {row["name"] for table in document["result"]["tables"] for row in table["rows"]}
    assert labels == {"last-value"}
    failures = {failure["cell"]: failure["blocked"] for failure in document["result"]["failures"]}
    assert failures == {"ridge/source/10": False, "ridge/target/10": True}
    assert (tmp_path / "b" / "plots" / "horizons.png").exists()
    listed = {cell["cell"]: cell for cell in call(*words, "--list", "--json").document["result"]["cells"]}
    assert listed["ridge/source/10"]["error"] == "the loss is not finite"
    monkeypatch.undo()
    again = call(*words, "--json", "--no-plots").document
    assert (again["status"], again["result"]["made"], again["result"]["failures"]) == ("done", 2, [])


def wait_for(process: object, path: Path) -> None:
    until = time.monotonic() + 100
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.005)


def test_a_killed_benchmark_continues_to_the_same_tables(settings: Path, tmp_path: Path, call: Call) -> None:
    folder, whole = tmp_path / "b", tmp_path / "whole"
    words = ["benchmark", "tumor", "--methods", "ridge,last-value", "--setups", "zero-shot", "-c", settings]
    words += ["--no-plots", "--folder"]
    killed = start_process(*words, folder, cwd=tmp_path)
    wait_for(killed, folder / "seed-10" / "model-ridge.h5")
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert not (folder / "results.csv").exists()
    before = {path: path.stat().st_mtime_ns for path in (folder / "seed-10").glob("model-ridge.h5")}
    last = call(*words, folder, "--json")
    assert (last.code, last.document["error"]) == (0, None)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert call(*words, whole).code == 0
    assert timeless(folder) == timeless(whole)


@pytest.mark.slow
def test_an_interrupted_benchmark_says_how_to_continue_and_continues_within_a_training_run(
    done: Path, settings: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["benchmark", "tumor", "--methods", "costar", "--members", "2", "--no-plots", "-c", settings]
    words += ["--folder", tmp_path / "b"]
    taken, step = [0], loop.training_step

    def interrupted_step(*args: object) -> object:
        taken[0] += 1
        if taken[0] == 2:
            signal.raise_signal(signal.SIGINT)
        return step(*args)

    monkeypatch.setattr(loop, "training_step", interrupted_step)
    stopped = call(*words, "--json")
    assert (stopped.code, stopped.document["status"]) == (130, "interrupted")
    assert "run the same command to continue" in stopped.err
    listed = {cell["cell"]: cell["state"] for cell in call(*words, "--list", "--json").document["result"]["cells"]}
    assert listed["costar/encoder/10"] == "started"
    assert call(*words, "--json").document["status"] == "done"
    for name in ("encoder.h5", "model.h5", "model-target.h5"):
        assert (tmp_path / "b" / "seed-10" / name).read_bytes() == (done / "seed-10" / name).read_bytes()
    costs = {row["cell"]: row for row in rows(tmp_path / "b", "cells.csv")}
    assert costs["costar/encoder/10"]["partial"] == "False"  # the time before Ctrl-C is known


def test_an_interrupted_run_with_other_settings_is_refused_with_the_flag_of_the_benchmark(
    settings: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["benchmark", "tumor", "--methods", "costar", "--members", "1", "--no-plots", "--json"]
    words += ["--folder", tmp_path / "b"]

    step = loop.training_step

    def interrupted_step(*args: object) -> object:
        signal.raise_signal(signal.SIGINT)
        return step(*args)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "training_step", interrupted_step)
        assert call(*words, "-c", settings).code == 130
    other = tmp_path / "other.toml"
    other.write_text(TINY.replace("[pretrain]\nepochs = 1", "[pretrain]\nepochs = 1\nlearning_rate = 0.5"))
    document = call(*words, "-c", other).document
    [failure] = [failure for failure in document["result"]["failures"] if not failure["blocked"]]
    assert failure["cell"] == "costar/encoder/10"
    assert "add `--overwrite` to start over" in failure["error"]["fix"]
    assert "--fresh" not in failure["error"]["fix"]
    last = call(*words, "-c", other, "--overwrite")
    assert last.document["status"] == "done", last.err


def test_people_read_tables_and_pipes_get_one_line_per_row(done: Path, settings: Path, call: Call) -> None:
    run = call("benchmark", "tumor", *METHOD_WORDS, "-c", settings, "--folder", done, "--no-plots")
    lines = run.out.splitlines()
    assert sum(line.startswith("COSTAR ") for line in lines) >= 3
    assert sum(line.startswith("Methods, ") for line in lines) == 3
    marked = [line for line in lines if line.startswith(("COSTAR ", "Ridge", "Last"))]
    assert any("*" in line for line in marked)
    assert any("+" in line for line in marked)
    assert "next  costar whatif --workspace" in run.err


def test_the_question_to_ask_next_goes_to_the_best_model_that_beats_the_last_value(
    done: Path, settings: Path, call: Call
) -> None:
    run = call("benchmark", "tumor", *METHOD_WORDS, "-c", settings, "--folder", done, "--no-plots", "--json")
    [question] = run.document["next"]
    errors = {(row["setup"], row["name"]): float(row["avg"]) for row in rows(done)}
    assert errors["zero-shot", "ridge"] < min(errors["zero-shot", name] for name in ("costar", "last-value"))
    assert errors["supervised", "ridge"] < errors["supervised", "last-value"]
    place = f"--workspace {done / 'seed-10'} --config {settings}"
    model = done / "seed-10" / "model-ridge.h5"
    assert question == f"costar whatif {place} --subject ID --plan plan.json --model {model}"


@pytest.mark.slow
def test_models_that_all_lose_warn_once_per_cell_and_training_is_suggested(
    settings: Path, tmp_path: Path, call: Call
) -> None:
    wild = tmp_path / "wild.toml"
    rash = "learning_rate = 0.3\ndecoder = 'non_autoregressive'\noptimiser = { warmup = 0, averaging = 0 }\n"
    wild.write_text(settings.read_text().replace("[finetune]\n", f"[finetune]\n{rash}"))
    words = ["benchmark", "tumor", "--methods", "costar,last-value", "--members", 1, "-c", wild, "--no-plots"]
    for made in (6, 0):  # the second run says it again
        document = call(*words, "--folder", tmp_path / "b", "--json").document
        assert document["result"]["made"] == made
        lost = [warning for warning in document["warnings"] if "worse than the last value" in warning]
        source, target = lost
        assert re.fullmatch(
            r"COSTAR, source, seed 10: worse than the last value carried forward in "
            r"zero-shot [\d.]+ against [\d.]+, supervised [\d.]+ against [\d.]+, validation [\d.]+ against [\d.]+",
            source,
        )
        assert target.startswith("COSTAR, target, seed 10: worse than the last value carried forward in few-shot ")
        place = tmp_path / "b" / "seed-10"
        flags = f"--workspace {place} --config {wild}"
        assert document["next"] == [
            f"costar finetune {flags} --members 1 --epochs 2 --overwrite --out {place / 'longer-model.h5'}",
            f"costar finetune {flags} --method {METHODS.suggested()[0]}",
        ]
    longer, other = (command.split()[1:] for command in document["next"])
    assert call(*longer).code == 0
    assert call(*other, "--members", "1").code == 0
    assert call(*words, "--folder", tmp_path / "b", "--json").document["status"] == "up_to_date"


def test_tables_fit_a_terminal_of_100_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(ui_text, "_is_styled", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    headers = ["Method", *(f"τ={h}" for h in range(1, 7)), "Avg", "Gain", "Runs"]
    cells = [ui_text.Cell("12.345", "0.123", mark) for mark in ("best", "second", "", "", "", "", "")]
    row = ["Last value carried [forward]", *cells, "-105.4%", "25"]
    ui_text.show_styled(Output(), "A title", headers, {"": [row], "published, different protocol": [row]})
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 100
    assert sum(line.count("12.345") for line in lines) == 14
    assert sum(line.count("±0.123") for line in lines) == 14
    assert any("[forward]" in line for line in lines)


def test_a_file_of_a_data_set_can_be_benchmarked_where_it_lies(data: Path, tmp_path: Path, call: Call) -> None:
    words = ["benchmark", data, "--methods", "ridge,last-value", "--setups", "supervised", "--no-plots", "--json"]
    document = call(*words).document
    folder = tmp_path / "costar-workspace" / "benchmark" / "data-default"
    assert document["result"]["folder"] == str(folder.relative_to(tmp_path))
    assert [table["setup"] for table in document["result"]["tables"]] == ["supervised"]
    assert sorted(path.name for path in (folder / "seed-10").glob("*.h5")) == [
        "model-last-value.h5", "model-ridge.h5", "scores-last-value.h5", "scores-ridge.h5",
    ]  # fmt: skip
    assert call(*words, "--data-seeds", "2").code == 2


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["tumour"], 2, "did you mean `tumor`"),
        (["nowhere.h5"], 4, "file not found"),
        (["tumor", "--methods", "costr"], 2, "did you mean `costar`"),
        (["tumor", "--setups", "zero"], 2, "zero-shot"),
        (["tumor", "--data-seeds", "0"], 2, "benchmark.data_seeds"),
        (["tumor", "--data-seeds", "10,101,10"], 2, "a seed occurs twice"),
        (["tumor", "--data-seeds", "ten"], 2, "`10,101,1010`"),
        (["tumor", "--methods", "costar,ssl-nonne"], 2, "did you mean `ssl-none`"),
        (["tumor", "--methods", "ssl-none", "--setups", "few-shot"], 2, "ablations are scored in zero-shot"),
    ],
)
def test_what_cannot_be_benchmarked_is_one_clear_error(
    words: list[str], code: int, message: str, tmp_path: Path, call: Call
) -> None:
    run = call("benchmark", *words)
    assert run.code == code
    assert message in run.err
    assert list(tmp_path.iterdir()) == []


def test_a_model_is_no_data_set(trained: Path, call: Call) -> None:
    run = call("benchmark", trained / "model.h5")
    assert (run.code, "holds a model" in run.err) == (4, True)


def test_a_sweep_makes_a_benchmark_per_strength_and_takes_the_one_that_is_there(
    settings: Path, tmp_path: Path, call: Call
) -> None:
    place = ["--config", settings, "--folder", tmp_path / "b", "--no-plots", "--setups", "zero-shot"]
    words = ["benchmark", "tumor", "--methods", "ridge", *place]
    assert call(*words).code == 0
    listed = call(*words, "--gamma", "0,10", "--list", "--json").document["result"]["cells"]
    states = {row["cell"]: row["state"] for row in listed}
    assert [states[f"gamma-{value}/ridge/source/10"] for value in (0, 10)] == ["to do", "done"]
    run = call(*words, "--gamma", "10,0", "--json")
    assert run.code == 0, run.err
    result = run.document["result"]
    assert (result["values"], result["made"]) == ([0.0, 10.0], 4)  # the last value at 10, all three cells at 0
    assert [row["name"] for row in result["rows"]] == ["last-value", "ridge", "limit"]
    assert result["rows"][1]["mean"][1] == result["benchmarks"][1]["tables"][0]["rows"][1]["mean"]["average"]
    assert (tmp_path / "b" / "gamma-0" / "tables.md").exists()
    assert {"sweep.csv", "sweep.md", "sweep.tex"} <= {path.name for path in (tmp_path / "b").iterdir()}
    again = call(*words, "--gamma", "0,10", "--json").document
    assert (again["status"], again["result"]["rows"]) == ("up_to_date", result["rows"])


@pytest.mark.parametrize(
    ("data", "values", "said"),
    [
        ("tumor", "0,,2", "'' is no number"),
        ("tumor", "0,a,-1", "'a' is no number"),
        ("tumor", "2,0,2", "2 occurs twice"),
        ("tumor", "0,1000", "1000: gamma"),
        ("m5", "0,2", "m5 has no confounding strength"),
    ],
)
def test_strengths_that_cannot_be_swept_are_refused(data: str, values: str, said: str, call: Call) -> None:
    run = call("benchmark", data, "--gamma", values, "--list")
    assert run.code == 2
    assert said in run.err
    assert "--gamma" in run.err
