"""Small worlds for training tests: a tumour cohort, stages on it, and a run of them."""

from pathlib import Path

from costar_cli.config.models import EncoderConfig, FinetuneConfig, PretrainConfig, RuntimeConfig
from costar_cli.methods.costar.model import CostarModel
from costar_cli.methods.costar.pretraining import PretrainStage
from costar_cli.methods.costar.supervised import SupervisedStage
from costar_cli.panel import Dataset, Scaler
from costar_cli.panel.tensors import PanelTensors
from costar_cli.reporting import NullReporter
from costar_cli.train import Trained, finetune, pretrain

__all__ = [
    "ENCODER",
    "FINETUNE",
    "PRETRAIN",
    "as_model",
    "panels",
    "pretrain_stage",
    "run_finetune",
    "run_pretrain",
    "supervised_stage",
]

ENCODER = EncoderConfig(width=8, heads=2, clip_distance=4)
PRETRAIN = PretrainConfig(encoder=ENCODER, epochs=3, batch_size=16, members=2, seed=5)
FINETUNE = FinetuneConfig(epochs=4, batch_size=8, patience=3, hidden=16, seed=5)


def panels(dataset: Dataset) -> tuple[PanelTensors, PanelTensors]:
    scaler = Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    train, val = (PanelTensors.from_panel(dataset.panel("source", s), scaler) for s in ("train", "val"))
    return train, val


def pretrain_stage(dataset: Dataset, **changes: object) -> PretrainStage:
    return PretrainStage(dataset.schema.dims, PRETRAIN.model_copy(update=changes), *panels(dataset))


def supervised_stage(dataset: Dataset, **changes: object) -> SupervisedStage:
    train, val = panels(dataset)
    config = FINETUNE.model_copy(update=changes)
    return SupervisedStage(dataset.schema.dims, dataset.horizon, config, ENCODER, train=train, validation=val)


def run_pretrain(dataset: Dataset, path: Path, runtime: RuntimeConfig | None = None, **changes: object) -> Trained:
    config = PRETRAIN.model_copy(update=changes)
    run = {"checkpoint": path / "pretrain.h5", "fingerprint": "f", "reporter": NullReporter()}
    return pretrain(dataset, config, runtime or RuntimeConfig(device="cpu"), **run)


def run_finetune(
    dataset: Dataset,
    path: Path,
    start: CostarModel | None = None,
    runtime: RuntimeConfig | None = None,
    **changes: object,
) -> Trained:
    domain = changes.pop("domain", "source")
    config = FINETUNE.model_copy(update={"encoder": None if start else ENCODER, **changes})
    run = {"checkpoint": path / "finetune.h5", "fingerprint": "f", "reporter": NullReporter()}
    return finetune(dataset, config, runtime or RuntimeConfig(device="cpu"), domain=domain, start=start, **run)


def as_model(trained: Trained, digest: str = "d") -> CostarModel:
    from costar_cli.artifact import Artifact

    artifact = Artifact(
        kind="model",
        arrays=trained.arrays,
        meta=trained.meta,
        parents=trained.parents,
        digest=digest,
        schema_version="1.0",
        versions={},
        path=None,
    )
    return CostarModel.from_artifact(artifact)
