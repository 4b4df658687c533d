"""Every benchmark runs at toy size and says what it promises; how fast it was is nobody's business here."""

import fnmatch
import json
import math
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import all as all_benchmarks
from benchmarks import guard
from benchmarks.machine import ROOT, machine_slug
from benchmarks.measure import Child, run_child

DOCUMENT = {"benchmark", "command", "date", "commit", "dirty", "machine", "versions", "load_average", "load", "busy",
            "options", "figures", "details", "unit_s"}  # fmt: skip
FIGURES = {
    "start": {"version", "help", "whatif", "average", "search"},
    "simulate": {"ratio_to_loop", "ratio_to_numpy_loop", "simulate_s", "largest_difference_cm3"},
    "simulate_mimic": {"simulate_s", "simulate_rss_mb", "read_rss_mb", "from_extract_rss_mb", "data_mb"},
    "pretrain_step": {
        "ratio_to_literal",
        "group_ratio_to_literal",
        "finetune_ratio_to_literal",
        "finetune_group_ratio_to_literal",
        "step_s",
        "share_views",
        "share_encoders_forward",
        "share_contrast",
        "share_backward",
        "share_optimiser",
        "step_gflop",
        "gflops",
        "peak_gflops",
        "share_of_peak",
        "peak_rss_mb",
        "import_rss_mb",
        "step_rss_mb",
    },
    "default_preset": {"simulate_s", "pretrain_epoch_s", "finetune_epoch_s", "preset_min"},
    "quick_preset": {"linear_cpu_s", "linear_peak_mb"},
    "scoring": {
        "ratio",
        "ratio_to_literal",
        "ratio_to_cropped",
        "queries",
        "score_s",
        "encode_s",
        "re_encode_s",
        "largest_difference",
        "peak_rss_mb",
    },
    "mixed": {"fit_s", "answer_s", "spread_ratio", "covers_alone_1_same", "covers_others_1_same"},
    "boosting": {"linear_time", "linear_error", "linear_lightgbm_time", "linear_lightgbm_error"},
    "rollouts": {"queries", "queries_per_s_costar", "ratio_costar", "queries_per_s_last_value", "difference_costar"},
    "evaluate_memory": {"evaluate_rss_mb", "evaluate_s", "data_mb", "inspect_rss_mb"},
    "ingest_m5": {"ingest_s", "ingest_rss_mb", "again_s", "simulate_s", "simulate_rss_mb", "files_mb", "data_mb"},
    "ingest_table": {"rows", "csv_gb", "peak_mb", "mapped_mb", "cpu_s"},
    "ingest_events": {"events", "steps", "parquet_mb", "ingest_s", "cpu_s", "ingest_rss_mb"},
    "whatif": {"ratio_mixed_process", "without_ms_mixed_process", "ratio_mixed_command", "without_ms_mixed_command"},
    "members": {"pretrain_ratio", "pretrain_together_s", "pretrain_apart_s", "finetune_ratio", "finetune_times_one"},
    "cohort_whatif": {"mixed_s", "mixed_rss_mb", "costar_s", "costar_rss_mb", "million_s", "million_rss_mb"},
    "growth": {
        "time_pretraining_subjects",
        "memory_mixed_steps",
        "time_scores_covariates",
        "memory_pretraining_members",
    },
    "growth_commands": {"whatif_cpu", "averages_memory", "evaluate_cpu_slope", "effect_memory_slope"},
    "large": {"simulate_cpu_s", "pretrain_mb", "whatif-costar_cpu_s", "elapsed_s", "cpu_s"},
    "search": {"mixed_many", "mixed_one", "costar_many", "costar_one"},
    "profile_steps": {"ms_pretrain", "floor_finetune", "python_mixed", "literal_ct", "group_ct", "hours_paper"},
    "fused_lstm": {"compiling_s", "crn_encoder_ours", "quick_literal"},
    "processes": {"pretrain_divided_over_shared", "finetune_divided_over_shared", "pretrain_cpu_divided_over_shared"},
}


LONG = (
    "boosting",
    "cohort_whatif",
    "default_preset",
    "evaluate_memory",
    "fused_lstm",
    "growth",
    "growth_commands",
    "ingest_events",
    "ingest_m5",
    "large",
    "mixed",
    "pretrain_step",
    "processes",
    "profile_steps",
    "quick_preset",
    "rollouts",
    "scoring",
    "search",
    "simulate_mimic",
    "start",
    "whatif",
)  # ten seconds or more each


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in all_benchmarks.BENCHMARKS]
)
def test_quick_run_writes_and_prints_one_document(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("COSTAR_PRESET", "COSTAR_CONFIG", "COSTAR_WORKSPACE"):
        monkeypatch.delenv(variable, raising=False)
    out = tmp_path / "results" / f"{name}.json"
    import_module(f"benchmarks.{name}").main(["--quick", "--json", "--threads", "1", "--out", str(out)])
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(out.read_text())
    assert set(document) == DOCUMENT
    assert document["benchmark"] == name
    assert document["command"].startswith(f"python -m benchmarks.{name} --quick")
    assert document["machine"]["threads"] == 1
    assert document["versions"].keys() >= {"python", "costar", "torch", "numpy"}
    assert document["load"].keys() == {"before", "after"}
    figures = document["figures"]
    assert set(figures) >= FIGURES[name]
    assert all(math.isfinite(figure["value"]) for figure in figures.values())
    assert all((figure["met"] is None) == (figure["goal"] is None) for figure in figures.values())


def test_every_part_of_the_pretraining_step_is_timed() -> None:
    from benchmarks import pretrain_step
    from benchmarks.cohort import Steps, pretrain_stage
    from costar_cli.config.models import PretrainConfig, RuntimeConfig
    from costar_cli.training.runtime import Runtime

    dataset = pretrain_step.training_data(20, steps=12)
    runtime = Runtime.resolve(RuntimeConfig(device="cpu"))
    steps = Steps(pretrain_stage(dataset, PretrainConfig(batch_size=8), runtime), [0], runtime)
    parts = pretrain_step.time_parts(steps, repeats=1)
    assert set(parts) == set(pretrain_step.PARTS)
    assert all(seconds > 0 for seconds in parts.values())  # every hook still hits the code that it names


def test_all_stores_results_by_machine_and_writes_their_table(tmp_path: Path) -> None:
    all_benchmarks.main(["--quick", "--only", "simulate", "--results", str(tmp_path)])
    (path,) = tmp_path.glob("simulate-*.json")
    document = json.loads(path.read_text())
    assert path.stem == f"simulate-{machine_slug(document['machine'])}"
    table = (tmp_path / "README.md").read_text()
    assert "### Simulating a cohort" in table
    assert document["command"] in table
    assert "--out" not in table
    assert "Toy sizes" in table


def test_a_failing_benchmark_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: str) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(all_benchmarks, "run_child", fail)
    with pytest.raises(SystemExit, match="failed: simulate, members"):
        all_benchmarks.main(["--only", "simulate", "members", "--results", str(tmp_path)])


def test_the_stored_table_is_the_one_of_the_stored_documents() -> None:
    documents = all_benchmarks.stored(all_benchmarks.RESULTS)
    table = all_benchmarks.RESULTS / "README.md"
    if documents or table.exists():
        assert table.read_text() == all_benchmarks.render(documents)
    assert not any(document["options"]["quick"] for document in documents)


def test_scripts_say_how_to_use_them(capsys: pytest.CaptureFixture[str]) -> None:
    for name in all_benchmarks.BENCHMARKS:
        with pytest.raises(SystemExit) as done:
            import_module(f"benchmarks.{name}").main(["--help"])
        assert done.value.code == 0
        assert f"python -m benchmarks.{name}" in capsys.readouterr().out
        assert f"| `{name}` |" in (ROOT / "benchmarks" / "README.md").read_text()


@pytest.mark.slow
def test_one_command_makes_the_pretraining_table(tmp_path: Path) -> None:
    sizes = [
        "--train=24",
        "--val=8",
        "--test=20",
        "--target-train=6",
        "--target-val=6",
        "--target-test=20",
        "--steps=20",
    ]
    script = ["-m", "benchmarks.pretraining", "--data=tumor", "--seeds=3", "--pretexts=masked,target"]
    script += ["--pretrain-updates=2", "--finetune-updates=2", "--members=2"]
    run_child(*script, f"--folder={tmp_path / 'w'}", f"--out={tmp_path / 'p'}", "--sizes", *sizes)
    stored = json.loads((tmp_path / "p.json").read_text())
    assert {(row["setup"], row["pretext"]) for row in stored["against scratch"]} == {
        (setup, pretext) for setup in ("zero-shot", "supervised") for pretext in ("scratch", "masked,target")
    }
    assert stored["commit"]
    assert {row["pairs"] for row in stored["against scratch"]} == {2}
    assert (tmp_path / "p.csv").read_text().count("\n") == 9


@pytest.mark.parametrize(
    ("now", "unit", "at_most", "unit_s", "code"),
    [
        (100.0, "x", False, 1.0, 0), (60.0, "x", False, 1.0, 1), (60.0, "x", False, 9.0, 1),
        (60.0, "times", True, 1.0, 0), (140.0, "times", True, 1.0, 0), (170.0, "times", True, 1.0, 1),
        (60.0, "s", False, 1.0, 0), (170.0, "s", True, 1.0, 1), (170.0, "s", False, 1.5, 0),
        (110.0, "s", False, 0.5, 0), (170.0, "s", False, 0.5, 1),
        (170.0, "MB", False, 1.0, 1), (170.0, "MB", True, 9.0, 1),
    ],
)  # fmt: skip
def test_the_guard_fails_where_a_ratio_is_clearly_worse_than_the_stored_one(
    now: float, unit: str, unit_s: float, code: int, *, at_most: bool, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    after, before = (
        {"figures": {"of_loop": {"value": value, "unit": unit, "at_most": at_most}}, "unit_s": work_s, "busy": False}
        for value, work_s in ((now, unit_s), (110.0, 1.0))
    )
    before["options"] = {"threads": 1}
    monkeypatch.setattr(guard, "GUARDED", {"simulate": ("of_*",)})
    monkeypatch.setattr(guard, "stored", lambda _: before)
    monkeypatch.setattr(guard, "run_child", lambda *_: Child(1.0, 1.0, json.dumps(after)))
    assert guard.main(["--only", "simulate"]) == code
    *_, last, verdict = capsys.readouterr().out.splitlines()
    assert last.endswith("SLOWER" if code else "as fast")
    assert verdict == f"slower in two runs: {'simulate, of_loop' if code else 'none'}"


def test_the_guard_asks_again_before_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = iter([50.0, 100.0])

    def run(*_: str) -> Child:
        figure = {"value": next(runs), "unit": "x", "at_most": False}
        return Child(1.0, 1.0, json.dumps({"figures": {"of_loop": figure}, "unit_s": 1.0, "busy": False}))

    before = {"figures": {"of_loop": {"value": 100.0}}, "unit_s": 1.0, "options": {"threads": 1}}
    monkeypatch.setattr(guard, "GUARDED", {"simulate": ("of_*",)})
    monkeypatch.setattr(guard, "stored", lambda _: before)
    monkeypatch.setattr(guard, "run_child", run)
    assert guard.main(["--only", "simulate"]) == 0
    assert next(runs, None) is None


@pytest.mark.parametrize("name", guard.GUARDED)
def test_every_figure_that_is_guarded_is_stored(name: str) -> None:
    document = guard.stored(name)
    for pattern in guard.GUARDED[name]:
        found = fnmatch.filter(document["figures"], pattern)
        assert found, pattern
        assert all(document["figures"][key]["value"] > 0 for key in found)
        assert document.get("unit_s", 0) > 0 or not {document["figures"][key]["unit"] for key in found} & guard.TIMES
