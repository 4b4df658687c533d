"""Small worlds for training tests: a tumour cohort, stages on it, and a run of them."""

from pathlib import Path

import numpy as np

from costar_cli.config.models import EncoderConfig, FinetuneConfig, PretrainConfig, RuntimeConfig
from costar_cli.data import Dataset, Scaler
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.costar.model import CostarModel
from costar_cli.methods.costar.pretraining import PretrainStage
from costar_cli.methods.costar.supervised import SupervisedStage
from costar_cli.reporting import NullReporter
from costar_cli.training import Trained, finetune, pretrain
from tests.fits import artifact_of, identity_of

__all__ = [
    "CPU",
    "ENCODER",
    "EXACT",
    "FINETUNE",
    "LEAVING",
    "ONE_BY_ONE",
    "PRETRAIN",
    "as_model",
    "close",
    "panels",
    "pretrain_stage",
    "run_finetune",
    "run_pretrain",
    "same",
    "supervised_stage",
]

ENCODER = EncoderConfig(width=8, heads=2, clip_distance=4)
PRETRAIN = PretrainConfig(encoder=ENCODER, epochs=3, batch_size=16, members=2, seed=5)
FINETUNE = FinetuneConfig(epochs=4, batch_size=8, patience=3, hidden=16, seed=5)
CPU = RuntimeConfig(device="cpu")
LEAVING = {"members": 3, "epochs": 9, "patience": 2, "learning_rate": 0.05}  # members stop after different epochs
ONE_BY_ONE = CPU.model_copy(update={"group": 1})  # members are trained one after another
# Adam makes full steps of gradients that are pure rounding error (a key's bias has none but that), so runs that round
# differently are compared in float64, where such steps vanish.
EXACT = RuntimeConfig(device="cpu", precision="float64")


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


def run_pretrain(
    dataset: Dataset, path: Path | None = None, runtime: RuntimeConfig | None = None, **changes: object
) -> Trained:
    """Pretrain; `path` is a folder for the run state, where one is to continue it."""
    fresh, log = bool(changes.pop("fresh", False)), changes.pop("log", None)
    config = PRETRAIN.model_copy(update=changes)
    run = {"checkpoint": path and path / "pretrain.h5", "identity": identity_of(config), "reporter": NullReporter()}
    return pretrain(dataset, config, runtime or ONE_BY_ONE, fresh=fresh, log=log, **run)


def run_finetune(
    dataset: Dataset,
    path: Path | None = None,
    start: CostarModel | None = None,
    runtime: RuntimeConfig | None = None,
    **changes: object,
) -> Trained:
    domain, method = changes.pop("domain", "source"), changes.pop("method", None)
    log = changes.pop("log", None)
    config = FINETUNE.model_copy(update={"encoder": None if start else ENCODER, **changes})
    run = {"checkpoint": path and path / "finetune.h5", "identity": identity_of(config), "reporter": NullReporter()}
    where = {"domain": domain, "start": start, "method": method}
    return finetune(dataset, config, runtime or ONE_BY_ONE, log=log, **where, **run)


def as_model(trained: Trained, digest: str = "d") -> CostarModel:
    return CostarModel.from_artifact(artifact_of(trained, digest))


def same(a, b) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[n], b[n]) for n in a)


def close(a, b, atol=1e-7) -> None:
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-5, atol=atol, err_msg=name)
