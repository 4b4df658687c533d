"""The linear system and the methods in closed form, through the command line."""

import json
from collections.abc import Callable
from pathlib import Path

from cli_world import Run

Call = Callable[..., Run]

SIZES = """
[simulate.linear]
train = 120
val = 30
test = 20
target_train = 15
target_val = 20
target_test = 20
steps = 12
origins = 2
horizon = 3
"""


def test_a_linear_system_is_simulated_fitted_scored_and_asked(tmp_path: Path, call: Call) -> None:
    Path("sizes.toml").write_text(SIZES, "utf-8")
    Path("plan.json").write_text('{"plans": {"never": [{}, {}], "always": [{"treatment": 1}, {"treatment": 1}]}}')
    made = call("simulate", "linear", "--gamma", 0.5, "--config", "sizes.toml", "--json").document
    assert made["config"]["simulate.linear.gamma"] == {"value": 0.5, "origin": "--gamma"}
    assert [part["subjects"] for part in made["result"]["parts"]] == [120, 30, 20, 15, 20, 20]
    for method in ("msm", "ridge", "last-value"):
        for domain in ("source", "target"):
            run = call("finetune", "--method", method, "--domain", domain, "--json")
            assert run.code == 0, run.err
            assert run.document["result"]["members"] == []
    again = call("finetune", "--method", "msm", "--json").document
    assert again["status"] == "up_to_date"
    scored = call("evaluate", "--no-plots", "--bootstrap", 0, "--show", "all")
    assert scored.code == 0, scored.err
    for label in ("MSM", "Ridge regression", "Last value carried forward"):
        assert f"zero-shot   {label}" in scored.out
    inspected = call("inspect", "costar-workspace/model-msm.h5", "--json").document["result"]["meta"]
    assert inspected["trained_on"] == {"source/train": 120}
    assert 0 < inspected["least_effective_share"] <= 1
    asked = call(
        "whatif",
        "--model",
        "costar-workspace/model-msm.h5",
        "--subject",
        150,
        "--plan",
        "plan.json",
        "--truth",
        "--json",
    )
    assert asked.code == 0, asked.err
    assert "always" in json.dumps(asked.document["result"])
    words = ("whatif", "--model", "costar-workspace/model-msm.h5", "--subject", 150, "--plan", "plan.json")
    bounds = call(*words, "--sensitivity", "--plot", "answer.png", "--json").document
    (found,) = bounds["result"]["sensitivity"]
    assert found["flips"][0]["plan"] == "always"
    assert Path(bounds["outputs"]["sensitivity"]["path"]).name == "answer-sensitivity.png"
    shown, whole = call(*words, "--sensitivity").out, call(*words, "--sensitivity", "--show", "all").out
    assert "difference from `never` under hidden confounding" in shown
    assert [("flips at" in text, "Gamma 2" in text, "Gamma 1.25" in text) for text in (shown, whole)] == [
        (True, True, False),
        (True, True, True),
    ]
    again = call(*words, "--sensitivity", "--plot", "answer.png")
    assert "add --overwrite" in again.err


def test_settings_of_the_linear_methods_are_settings(tmp_path: Path, call: Call) -> None:
    Path("sizes.toml").write_text(SIZES + '[msm]\nplan = "steps"\n[ridge]\nwindow = 2\n', "utf-8")
    call("simulate", "linear", "--config", "sizes.toml")
    call("finetune", "--method", "msm", "--config", "sizes.toml", "--quiet")
    call("finetune", "--method", "ridge", "--config", "sizes.toml", "--quiet")
    meta = [
        call("inspect", f"costar-workspace/model-{name}.h5", "--json").document["result"]["meta"]
        for name in ("msm", "ridge")
    ]
    assert (meta[0]["plan"], meta[1]["window"]) == ("steps", 2)
    assert meta[0]["settings"]["plan"] == "steps"


def test_evaluate_refutes_the_models_and_keeps_what_it_found(tmp_path: Path, call: Call) -> None:
    Path("sizes.toml").write_text(f"{SIZES}\n[refute]\nrefits = 2\n", "utf-8")
    assert call("simulate", "linear", "--config", "sizes.toml").code == 0
    assert call("finetune", "--method", "last-value").code == 0
    words = ("evaluate", "--refute", "--no-plots", "--bootstrap", 0, "--config", "sizes.toml")
    refuted = call(*words, "--json").document
    (found,) = refuted["result"]["refutations"]
    assert set(found["verdicts"].values()) == {"pass"}  # it says that treatments do nothing, and nothing contradicts it
    assert found["refits"] == found["settings"]["refits"] == 2
    assert Path(refuted["outputs"]["refutation"]["path"]).name == "refutation.h5"
    again = call(*words)
    assert "up to date  costar-workspace/refutation.h5" in again.out
    assert "placebo treatment" in again.out
    assert call("verify", "costar-workspace/refutation.h5").code == 0


def test_a_switch_that_is_off_is_a_setting_but_no_part_of_the_data_set(tmp_path: Path, call: Call) -> None:
    Path("sizes.toml").write_text(SIZES, "utf-8")
    made = call("simulate", "linear", "--config", "sizes.toml", "--json").document
    assert made["config"]["simulate.linear.drop_confounder"] == {"value": False, "origin": "default"}
    assert "drop_confounder" not in call("inspect", "costar-workspace/data.h5", "--json").out
    words = ("simulate", "linear", "--config", "sizes.toml", "--drop-confounder", "--overwrite", "--json")
    assert call(*words).document["config"]["simulate.linear.drop_confounder"]["value"] is True
    assert '"drop_confounder": true' in call("inspect", "costar-workspace/data.h5", "--json").out
