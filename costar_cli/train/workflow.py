"""The two training stages of COSTAR, from data set to artifact content."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.models import EncoderConfig, FinetuneConfig, PretrainConfig, RuntimeConfig
from costar_cli.errors import MismatchError, UsageError
from costar_cli.methods.costar.model import CostarModel, params_to_arrays
from costar_cli.methods.costar.pretraining import PretrainStage
from costar_cli.methods.costar.supervised import SupervisedStage
from costar_cli.methods.members import Params
from costar_cli.panel import Dataset, Domain, PanelSchema, Scaler
from costar_cli.panel.check import check_dataset
from costar_cli.panel.tensors import PanelTensors
from costar_cli.reporting import Reporter
from costar_cli.train.checkpoint import Checkpoint
from costar_cli.train.loop import TrainedMembers, train_members
from costar_cli.train.runtime import Runtime

__all__ = ["Trained", "finetune", "pretrain", "require_same_schema"]


@dataclass(frozen=True)
class Trained:
    """The content of an encoder or model artifact: `write_artifact(path, kind=..., **trained.content)`."""

    arrays: dict[str, NDArray[np.generic]]
    meta: dict[str, Any]
    parents: dict[str, str]

    @property
    def n_parameters(self) -> int:
        """Return the number of trainable parameters of one member."""
        return sum(v[0].size for name, v in self.arrays.items() if name.startswith("params/"))


def pretrain(
    dataset: Dataset,
    config: PretrainConfig,
    runtime_config: RuntimeConfig,
    *,
    checkpoint: Path,
    fingerprint: str,
    reporter: Reporter,
    fresh: bool = False,
) -> Trained:
    """Pretrain encoders on the source domain's series, without labels (spec models A.9, A.12)."""
    runtime = Runtime.resolve(runtime_config)
    check_dataset(dataset, reporter)
    scaler = Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    train, validation = _panels(dataset, "source", scaler, runtime)
    stage = PretrainStage(dataset.schema.dims, config, train, validation)
    run = Checkpoint(checkpoint, fingerprint, reporter=reporter, fresh=fresh)
    trained = train_members(stage, config.members, runtime, run, reporter)
    meta = _meta(dataset, config.encoder, trained, fingerprint, config.model_dump(), runtime)
    meta |= {"method": "costar", "pretrained_on": {"source/train": stage.n_train}, "reference": stage.reference()}
    meta["log_n_reference"] = {
        "log N, training": stage.reference(),
        "log N, validation": stage.reference(validation=True),
    }
    return Trained(_arrays(trained.params, scaler), meta, {"dataset": dataset.digest})


def finetune(
    dataset: Dataset,
    config: FinetuneConfig,
    runtime_config: RuntimeConfig,
    *,
    domain: Domain,
    start: CostarModel | None,
    checkpoint: Path,
    fingerprint: str,
    reporter: Reporter,
    fresh: bool = False,
) -> Trained:
    """Train encoder and outcome predictor on labelled subjects of one domain (spec models A.10, A.12).

    Args:
        dataset: where the subjects are.
        config: settings of the stage.
        runtime_config: device and arithmetic.
        domain: `source` for the supervised stage, `target` for few-shot adaptation.
        start: a pretrained encoder, or the source model for `target`; none trains from scratch.
        checkpoint: file of the run state.
        fingerprint: of inputs, config and version.
        reporter: hears of progress.
        fresh: start over instead of continuing an interrupted run.

    Raises:
        MismatchError: `start` was trained on other variables, or has fewer members than asked for.
        UsageError: `config.encoder` contradicts the encoder to start from.
    """
    runtime = Runtime.resolve(runtime_config)
    check_dataset(dataset, reporter)
    encoder = _encoder_config(dataset, config, start)
    members = config.members or (start.members if start else 1)
    scaler = start.scaler if start else Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    train, validation = _panels(dataset, domain, scaler, runtime)
    few_shot = start is not None and start.horizon > 0
    hidden = start.hidden if start and few_shot else config.hidden
    stage = SupervisedStage(
        dataset.schema.dims,
        dataset.horizon,
        config.model_copy(update={"hidden": hidden}),
        encoder,
        train=train,
        validation=validation,
        start_R=_start(start, members),
        drop_last=domain == "source",
        name="finetune" if domain == "source" else "finetune on target",
    )
    run = Checkpoint(checkpoint, fingerprint, reporter=reporter, fresh=fresh)
    trained = train_members(stage, members, runtime, run, reporter)
    meta = _meta(dataset, encoder, trained, fingerprint, config.model_dump(), runtime)
    same_data = start is not None and (start.parents or {}).get("dataset") == dataset.digest
    before = (start.meta or {}) if start and same_data else {}  # counts of another data set say nothing of this one's
    meta |= {
        "method": "costar",
        "init": _init(start),
        "domain": domain,
        "horizon": dataset.horizon,
        "hidden": hidden,
        "trained_on": {**before.get("trained_on", {}), f"{domain}/train": stage.n_train},
        "selected_on": {**before.get("selected_on", {}), f"{domain}/val": stage.n_validation},
    }
    if start and not same_data:
        meta["warnings"] = [
            f"started from a model of another data set ({(start.parents or {}).get('dataset', '?')[:8]})"
        ]
    parents = {"dataset": dataset.digest}
    if start:
        parents["model" if few_shot else "encoder"] = start.digest
    return Trained(_arrays(trained.params, scaler), meta, parents)


def require_same_schema(schema: PanelSchema, other: PanelSchema, *, where: str) -> None:
    """Stop when two artifacts speak of different variables.

    Raises:
        MismatchError: naming what differs.
    """
    mine, theirs = schema.model_dump(), other.model_dump()
    differing = [key for key in mine if mine[key] != theirs[key] and key != "error_unit"]
    if differing:
        raise MismatchError(
            "the model was trained on other variables than this data set has",
            where=where,
            fix="train on this data set, or name the data set that the model belongs to",
            details=[f"{key}: data set has {_brief(mine[key])}, model has {_brief(theirs[key])}" for key in differing],
        )


def _brief(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(map(str, value.get("names", [])))
    if isinstance(value, list | tuple):
        return ", ".join(str(v["name"]) if isinstance(v, dict) else str(v) for v in value) or "none"
    return str(value)


def _panels(dataset: Dataset, domain: Domain, scaler: Scaler, runtime: Runtime) -> tuple[PanelTensors, PanelTensors]:
    train, validation = (
        PanelTensors.from_panel(dataset.panel(domain, split), scaler, device=runtime.device, dtype=runtime.dtype)
        for split in ("train", "val")
    )
    return train, validation


def _encoder_config(dataset: Dataset, config: FinetuneConfig, start: CostarModel | None) -> EncoderConfig:
    if start is None:
        return config.encoder or EncoderConfig()
    require_same_schema(dataset.schema, start.schema, where="the encoder or model to start from")
    if start.horizon and start.horizon != dataset.horizon:
        raise MismatchError(
            f"the source model predicts {start.horizon} steps, the data set asks for {dataset.horizon}",
            fix="train a source model on this data set with `costar finetune`",
        )
    if config.encoder not in (None, start.encoder_config):
        raise UsageError(
            "the encoder is already trained with another shape",
            where="finetune.encoder",
            fix="leave it out, or use `--from scratch`",
        )
    return start.encoder_config


def _start(start: CostarModel | None, members: int) -> Params | None:
    if start is None:
        return None
    if members > start.members:
        raise MismatchError(
            f"{members} members were asked for, but there are only {start.members} to start from",
            where="--members",
            fix=f"use `--members {start.members}` or fewer, or pretrain more",
        )
    return {n: v[:members] for n, v in start.params.items() if not n.startswith("predictor.")}


def _init(start: CostarModel | None) -> str:
    if start is None:
        return "scratch"
    return str((start.meta or {}).get("init", "pretrained"))


def _arrays(params: Params, scaler: Scaler) -> dict[str, NDArray[np.generic]]:
    return params_to_arrays(params) | {f"scaler/{name}": value for name, value in scaler.to_arrays().items()}


def _meta(
    dataset: Dataset,
    encoder: EncoderConfig,
    trained: TrainedMembers,
    fingerprint: str,
    config: Mapping[str, Any],
    runtime: Runtime,
) -> dict[str, Any]:
    return {
        "fingerprint": fingerprint,
        "dataset_name": dataset.name,
        "schema": dataset.schema.model_dump(mode="json"),
        "encoder": encoder.model_dump(),
        "config": dict(config),
        "members": len(trained.history["best_epoch"]),
        "precision": runtime.precision,
        "device": runtime.device.type,
        "history": trained.history,
    }
