"""The tumour data and the untrained models that the benchmarks work on."""

import torch
from torch import Tensor

from costar_cli.config.models import EncoderConfig, FinetuneConfig, PretrainConfig, RuntimeConfig
from costar_cli.data import Dataset, Scaler
from costar_cli.data.tensors import PanelTensors
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.methods.base import Stage
from costar_cli.methods.costar.decoding import DecoderShape
from costar_cli.methods.costar.model import CostarModel
from costar_cli.methods.costar.pretraining import PretrainStage
from costar_cli.methods.costar.supervised import SupervisedStage
from costar_cli.methods.shared.members import stack_members
from costar_cli.reporting import NullReporter
from costar_cli.training.group import GroupState
from costar_cli.training.loop import cores_of, stepping
from costar_cli.training.runtime import Runtime

__all__ = [
    "MEMBERS",
    "Steps",
    "finetune_stage",
    "literal_inputs",
    "pretrain_stage",
    "train_panel",
    "training_data",
    "untrained_model",
]

MEMBERS = 5  # of a group: as many as the paper trains


def training_data(patients: int, *, steps: int = 60, seed: int = 10) -> Dataset:
    """Simulate a source cohort at gamma 10 to train on; the other parts are as small as can be."""
    few = {"val": 8, "test": 1, "target_train": 1, "target_val": 1, "target_test": 1}
    return simulate_tumor(TumorConfig(gamma=10.0, train=patients, steps=steps, seed=seed, **few), NullReporter())


def train_panel(dataset: Dataset, runtime: Runtime, split: str = "train") -> PanelTensors:
    """Return a scaled source panel on the device."""
    scaler = Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    panel = dataset.panel("source", "train" if split == "train" else "val")
    return PanelTensors.from_panel(panel, scaler, device=runtime.device, dtype=runtime.dtype)


def literal_inputs(panel: PanelTensors, rows_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what the literal steps of COSTAR read of some subjects: histories, statics, and which positions count."""
    history_BTS = panel.history_NTS[rows_B, :-1]
    active_BT = torch.arange(history_BTS.shape[1]) < (panel.length_N[rows_B] - 1)[:, None]
    return history_BTS, panel.v_NV[rows_B], active_BT


def pretrain_stage(dataset: Dataset, config: PretrainConfig, runtime: Runtime) -> PretrainStage:
    """Return the contrastive stage on the source cohort."""
    train, validation = train_panel(dataset, runtime), train_panel(dataset, runtime, "val")
    return PretrainStage(dataset.schema.dims, config, train, validation)


def finetune_stage(
    dataset: Dataset, config: FinetuneConfig, runtime: Runtime, encoder: EncoderConfig | None = None
) -> SupervisedStage:
    """Return the supervised stage, from scratch, on the source cohort."""
    train, validation = train_panel(dataset, runtime), train_panel(dataset, runtime, "val")
    return SupervisedStage(
        dataset.schema.dims, dataset.horizon, config, encoder or EncoderConfig(), train=train, validation=validation
    )


class Steps:
    """Training steps of a group of members, one per call, each on the same mini-batch with fresh randomness."""

    def __init__(self, stage: Stage, members: list[int], runtime: Runtime) -> None:
        self.stage, self.runtime = stage, runtime
        self.state = GroupState.fresh(stage, members, runtime)
        self._take = stepping(stage, self.state, runtime, NullReporter())
        order = torch.randperm(stage.n_train, generator=torch.Generator().manual_seed(0))
        self.rows_B = order[: stage.config.batch_size].to(runtime.device)

    def __call__(self) -> float:
        rows_RB = self.rows_B.expand(len(self.state.members), -1)
        with cores_of(self.runtime):
            loss_R = self._take(rows_RB)
        self.state.step += 1
        return float(loss_R.mean())


def untrained_model(dataset: Dataset, members: int = 1) -> CostarModel:
    """Return a source model with random weights: as fast as a trained one."""
    config = FinetuneConfig()
    stage = finetune_stage(dataset, config, Runtime.resolve(RuntimeConfig(device="cpu")))
    return CostarModel(
        params=stack_members(stage.initial(member)[0] for member in range(members)),
        schema=dataset.schema,
        scaler=Scaler.fit(dataset.panel("source", "train"), dataset.schema),
        encoder_config=EncoderConfig(),
        horizon=dataset.horizon,
        shape=DecoderShape(hidden=config.hidden),
    )
