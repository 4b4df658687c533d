"""Other encoders and the other decoder from the command line: settings, nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import TINY_COHORT, Run

from costar_cli.errors import ExitCode
from costar_cli.files import read_artifact

PLAIN = """
[pretrain.encoder]
architecture = "vt"
width = 48
"""
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


def warned(run: Run) -> list[str]:
    """Warnings, without those of models that one epoch has taught too little."""
    return [warning for warning in run.document["warnings"] if "worse than the last value" not in warning]


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


def test_from_scratch_is_the_network_that_pretraining_would_have_made(
    call: Callable[..., Run], data: Path, monkeypatch
):
    Path("plain.toml").write_text(PLAIN)
    few = ("--data", data, "--epochs", "1", "--members", "1", "--threads", "1", "--json")
    train = ("finetune", "--from", "scratch", *few)
    assert call("pretrain", *few, "--config", "plain.toml").code == 0
    same = call(*train, "--config", "plain.toml")
    assert (same.document["status"], warned(same)) == ("done", [])
    folder = Path("costar-workspace")
    pretrained, scratch = (read_artifact(folder / f"{name}.h5").meta for name in ("encoder", "model-scratch"))
    assert scratch["encoder"] == pretrained["encoder"]
    assert (scratch["encoder"]["architecture"], scratch["encoder"]["width"]) == ("vt", 48)

    (warning,) = warned(call(*train, "--out", "default.h5"))
    assert "architecture costar, not vt; width 24, not 48" in warning
    assert read_artifact(Path("default.h5")).meta["encoder"]["architecture"] == "costar"

    monkeypatch.setenv("COSTAR_FINETUNE_ENCODER_WIDTH", "12")
    assert call(*train, "--config", "plain.toml", "--out", "own.h5").document["status"] == "done"
    own = read_artifact(Path("own.h5")).meta["encoder"]
    assert (own["architecture"], own["width"]) == ("costar", 12)


def test_an_encoder_that_pretraining_would_have_does_not_concern_other_methods(call: Callable[..., Run], data: Path):
    Path("plain.toml").write_text(PLAIN)
    train = ("finetune", "--method", "ridge", "--data", data, "--json")
    assert call(*train).document["status"] == "done"
    assert call(*train, "--config", "plain.toml").document["status"] == "up_to_date"


def list_of(call: Callable[..., Run], *words: str) -> tuple[set[str], str]:
    run = call("benchmark", "tumor", "--methods", "costar", "--ablations", "--list", "--folder", "bench", *words)
    assert run.code == 0, run.err
    return {line.split("/")[0].strip() for line in run.out.splitlines() if "/source/" in line}, run.err


def test_ablations_work_whatever_tokens_or_architecture_costar_has(call: Callable[..., Run], monkeypatch):
    everything, _ = list_of(call)
    assert {"encoder-vt", "encoder-temporal", "fpe-absolute", "ssl-none"} <= everything
    monkeypatch.setenv("COSTAR_PRETRAIN_ENCODER_POOL", "token")
    assert list_of(call)[0] == everything
    monkeypatch.delenv("COSTAR_PRETRAIN_ENCODER_POOL")
    monkeypatch.setenv("COSTAR_PRETRAIN_ENCODER_ARCHITECTURE", "vt")
    plain, told = list_of(call)
    assert everything - plain == {"encoder-vt", "encoder-temporal", "encoder-feature", "fpe-absolute"}
    assert "Encoder TB only has no effect with `architecture = vt`: skipped" in told
    assert "Encoder w/ VT equals COSTAR with these settings" in told
