"""What each preset changes in the settings; everything else keeps the default of `models.py`.

`paper` is the paper's protocol, which is what the defaults already say: sizes, 200 epochs, patience 20, five members.
`default` keeps the paper's data and shortens the training to what two CPU cores do in about 20 minutes.
`quick` is a demonstration: it shows that everything works, not what the method can do. Its networks are trained by the
number of optimiser steps, the same for each of them and whatever the number of subjects.
"""

from collections.abc import Mapping

from costar_cli.config.choices import PresetName
from costar_cli.settings.presets_recurrent import RECURRENT_EPOCHS, RECURRENT_SIZES
from costar_cli.settings.presets_transformers import TRANSFORMER_EPOCHS, TRANSFORMER_SIZES

__all__ = ["DEFAULT_PRESET", "FOR_DATA", "PRESETS", "preset_settings"]

DEFAULT_PRESET: PresetName = "default"

_PAPER_SIZES = {
    "simulate.tumor.train": 10_000,
    "simulate.tumor.val": 1_000,
    "simulate.tumor.test": 1_000,
    "simulate.tumor.target_train": 100,
    "simulate.tumor.target_val": 1_000,
    "simulate.tumor.target_test": 1_000,
}


def _retail_items(train: int, val: int, test: int, target: tuple[int, int, int]) -> dict[str, object]:
    """Return limits for both ways to the retail panel, whose steps are dear on a CPU; an item has about 39 subjects."""
    few, few_val, few_test = target
    limits = {"train_items": train, "val_items": val, "test_items": test}
    limits |= {"target_train_items": few, "target_val_items": few_val, "target_test_items": few_test}
    return {f"{verb}.m5.{name}": n for verb in ("simulate", "ingest") for name, n in limits.items()}


# A few hundred subjects in the paper's batches are too few steps to learn anything from. Decoders' rows are origins, of
# which there are enough.
_FEW_SUBJECTS = {
    "pretrain.batch_size": 32,
    "finetune.batch_size": 8,
    "rmsn.treatment.batch_size": 16,
    "rmsn.history.batch_size": 16,
    "rmsn.encoder.batch_size": 16,
    "crn.encoder.batch_size": 16,
    "crn_erm.encoder.batch_size": 16,
    "gnet.network.batch_size": 16,
    "ct.network.batch_size": 16,
    "ct_erm.network.batch_size": 16,
    "edct.encoder.batch_size": 16,
}

PRESETS: Mapping[PresetName, Mapping[str, object]] = {
    "quick": {
        "simulate.tumor.train": 300,
        "simulate.tumor.val": 100,
        "simulate.tumor.test": 100,
        "simulate.tumor.target_train": 60,
        "simulate.tumor.target_val": 100,
        "simulate.tumor.target_test": 100,
        "simulate.linear.train": 300,
        "simulate.linear.val": 100,
        "simulate.linear.test": 100,
        "simulate.linear.target_val": 100,
        "simulate.linear.target_test": 100,
        "simulate.linear.steps": 20,
        "simulate.mimic.stays": 3_000,
        "simulate.mimic.hours": 36,
        "simulate.mimic.horizon": 6,
        "ingest.mimic.patients": 400,
        "ingest.mimic.hours": 36,
        "simulate.m5.scale": 0.01,
        **_retail_items(3, 1, 3, (1, 1, 6)),
        "pretrain.epochs": 6,
        "pretrain.members": 2,
        "finetune.epochs": 16,
        "finetune.updates": 640,
        "finetune.members": 2,
        **_FEW_SUBJECTS,
    },
    "default": {
        **_PAPER_SIZES,
        "simulate.mimic.stays": 12_000,
        "simulate.m5.scale": 0.1,
        **_retail_items(20, 6, 12, (10, 6, 24)),
        "pretrain.epochs": 6,
        "pretrain.members": 2,
        "finetune.epochs": 24,
        "finetune.members": 2,
    },
    "paper": {
        **_PAPER_SIZES,
        "simulate.mimic.stays": 36_000,
        "simulate.mimic.center": False,
        "simulate.m5.scale": 1.0,
        "pretrain.epochs": 200,
        "pretrain.patience": 20,
        "pretrain.members": 5,
        "finetune.epochs": 200,
        "finetune.select_on": "own-loss",
        "finetune.patience": 20,
        "finetune.members": 5,
    },
}

# What a preset changes when models are trained on a data set of this name (spec SIZE-1).
_SMALL_VALIDATION = {"pretrain.validation_batch_size": 128, "finetune.validation_batch_size": 128}
_ICU_MODEL = {
    **_SMALL_VALIDATION,
    "pretrain.encoder.width": 36,
    "pretrain.encoder.heads": 3,
    "finetune.encoder.width": 36,
    "finetune.encoder.heads": 3,
}
_RETAIL_MODEL = {
    **_SMALL_VALIDATION,
    "pretrain.encoder.width": 36,
    "pretrain.encoder.layers": 2,
    "finetune.encoder.width": 36,
    "finetune.encoder.layers": 2,
    "finetune.step_weights": "uniform",
}
# By data set: what holds under every preset, and what `paper` and `quick` add. Later entries win.
_MODELS: tuple[Mapping[str, Mapping[str, object]], ...] = (
    {"tumor": {}, "mimic": _ICU_MODEL, "mimic-factual": _ICU_MODEL, "m5": _RETAIL_MODEL},
    RECURRENT_SIZES,
    TRANSFORMER_SIZES,
)
_RETAIL_EPOCHS = {
    f"{stage}.{name}": n for stage in ("pretrain", "finetune") for name, n in (("epochs", 20), ("patience", 5))
}
_PAPER_TRAINING: tuple[Mapping[str, Mapping[str, object]], ...] = (
    {"m5": _RETAIL_EPOCHS, "mimic": {"finetune.decoder": "non_autoregressive"}},
    RECURRENT_EPOCHS,
    TRANSFORMER_EPOCHS,
)
_QUICK_RETAIL = {"pretrain.epochs": 3, "finetune.epochs": 8, "finetune.updates": 160}  # 94 tokens a week are dear
_QUICK_TRAINING: tuple[Mapping[str, Mapping[str, object]], ...] = (
    dict.fromkeys(_MODELS[0], _FEW_SUBJECTS),
    {"m5": _QUICK_RETAIL},
)
_ADDED = {"paper": _PAPER_TRAINING, "quick": _QUICK_TRAINING}


def _for_data(dataset: str, preset: PresetName) -> dict[str, object]:
    layers = (*_MODELS, *_ADDED.get(preset, ()))
    return {key: value for layer in layers for key, value in layer.get(dataset, {}).items()}


FOR_DATA: Mapping[str, Mapping[PresetName, Mapping[str, object]]] = {
    dataset: {preset: _for_data(dataset, preset) for preset in PRESETS} for dataset in _MODELS[0]
}


def preset_settings(name: PresetName, dataset: str | None = None) -> dict[str, tuple[object, str]]:
    """Return what a preset sets, with who says so: in general, then for the data set at hand."""
    general = {key: (value, f"preset {name}") for key, value in PRESETS[name].items()}
    special = FOR_DATA.get(dataset or "", {}).get(name, {})
    return general | {key: (value, f"preset {name} for {dataset}") for key, value in special.items()}
