"""Other encoders and the other decoder from the command line: settings, nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import TINY_COHORT, Run

from costar_cli.artifact import read_artifact
from costar_cli.exit_codes import ExitCode

SETTINGS = """
[pretrain]
epochs = 1
members = 2
encoder.architecture = "ct"
[finetune]
epochs = 1
decoder = "autoregressive"
[runtime]
threads = 1
"""


def test_an_ablation_is_trained_adapted_scored_and_asked(call: Callable[..., Run], plan: Path, monkeypatch):
    Path("costar.toml").write_text(SETTINGS)
    settings = ("--config", "costar.toml", "--json")
    assert call("simulate", "tumor", *TINY_COHORT, "--json").code == 0
    for verb in (["pretrain"], ["finetune"]):
        assert call(*verb, *settings).document["status"] == "done"
    folder = Path("costar-workspace")
    assert read_artifact(folder / "encoder.h5").meta["encoder"]["architecture"] == "ct"
    assert read_artifact(folder / "model.h5").meta["encoder"]["architecture"] == "ct"
    adapt = ("finetune", "--domain", "target", "--epochs", "1", "--threads", "1", "--json")
    monkeypatch.setenv("COSTAR_FINETUNE_DECODER", "non_autoregressive")
    refused = call(*adapt)
    assert refused.code == ExitCode.MISMATCH
    assert "has the decoder autoregressive" in refused.document["error"]["problem"]
    monkeypatch.delenv("COSTAR_FINETUNE_DECODER")
    assert call(*adapt).document["status"] == "done"
    assert read_artifact(folder / "model-target.h5").meta["decoder"] == "autoregressive"
    rows = call("evaluate", "--no-plots", "--bootstrap", "0", *settings).document["result"]["rows"]
    assert {row["setup"] for row in rows if row["basis"] == "ours"} == {"zero-shot", "few-shot", "supervised"}
    asked = call("whatif", "--subject", "53", "--plan", plan, "--json")
    assert asked.code == 0
    assert asked.document["status"] == "done"


@pytest.mark.parametrize("architecture", ["vt", "vt_relative"])
def test_a_plain_transformer_is_trained_from_scratch(
    architecture: str, call: Callable[..., Run], data: Path, monkeypatch
):
    monkeypatch.setenv("COSTAR_FINETUNE_ENCODER_ARCHITECTURE", architecture)
    monkeypatch.setenv("COSTAR_FINETUNE_DECODER", "autoregressive_one_step")
    train = ("finetune", "--from", "scratch", "--data", data, "--epochs", "1", "--members", "1", "--threads", "1")
    assert call(*train, "--out", "model.h5", "--json").document["status"] == "done"
    meta = read_artifact(Path("model.h5")).meta
    assert (meta["encoder"]["architecture"], meta["decoder"]) == (architecture, "autoregressive_one_step")
