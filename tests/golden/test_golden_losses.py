"""Golden losses: 20 steps of each stage in float64; a change of the code that changes them is no refactoring.

`python -m tests.golden.test_golden_losses` writes the files anew, for a change that means to.
"""

import json
from pathlib import Path

import pytest
import torch

from costar_cli.config.models import EncoderConfig, FinetuneConfig, PretrainConfig, RuntimeConfig
from costar_cli.data import Scaler
from costar_cli.data.tensors import PanelTensors
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.methods.base import Stage
from costar_cli.methods.costar.pretraining import PretrainStage
from costar_cli.methods.costar.supervised import SupervisedStage
from costar_cli.reporting import NullReporter
from costar_cli.training import Runtime
from costar_cli.training.group import GroupState
from costar_cli.training.loop import training_step

STEPS = 20
FILES = {name: Path(__file__).parent / f"{name}.json" for name in ("pretrain", "finetune")}


def stage(name: str) -> Stage:
    config = TumorConfig(train=48, val=8, test=1, target_train=1, target_val=1, target_test=1, steps=30, seed=7)
    dataset = simulate_tumor(config, NullReporter())
    scaler = Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    train, val = (
        PanelTensors.from_panel(dataset.panel("source", split), scaler, dtype=torch.float64)
        for split in ("train", "val")
    )
    encoder = EncoderConfig(width=12, heads=2, layers=2, clip_distance=5)
    if name == "pretrain":
        return PretrainStage(dataset.schema.dims, PretrainConfig(encoder=encoder, batch_size=12, seed=7), train, val)
    finetune = FinetuneConfig(batch_size=12, seed=7)
    return SupervisedStage(dataset.schema.dims, 6, finetune, encoder, train=train, validation=val)


def losses(name: str) -> list[float]:
    runtime = Runtime.resolve(RuntimeConfig(device="cpu", precision="float64"))
    chosen = stage(name)
    state = GroupState.fresh(chosen, [0], runtime)
    recorded = []
    for state.step in range(STEPS):
        rows = torch.arange(12)[None] + 12 * (state.step % 4)
        recorded.append(float(training_step(chosen, state, rows, runtime)[0]))
    return recorded


@pytest.mark.parametrize("name", FILES)
def test_losses_of_the_first_steps_stay_what_they_were(name):
    golden = json.loads(FILES[name].read_text())
    assert losses(name) == pytest.approx(golden["losses"], rel=golden["relative_tolerance"])


if __name__ == "__main__":
    for name, path in FILES.items():
        content = {"losses": losses(name), "relative_tolerance": 1e-6, "torch": torch.__version__, "steps": STEPS}
        path.write_text(json.dumps(content, indent=1) + "\n")
