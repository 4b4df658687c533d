"""What each preset changes in the settings; everything else keeps the default of `models.py`.

`paper` is the paper's protocol, which is what the defaults already say: sizes, 200 epochs, patience 20, five members.
`default` keeps the paper's data and shortens the training to what two CPU cores do in about 20 minutes.
`quick` is a demonstration: it shows that everything works, not what the method can do.
"""

from collections.abc import Mapping

from costar_cli.config.choices import PresetName

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

PRESETS: Mapping[PresetName, Mapping[str, object]] = {
    "quick": {
        "simulate.tumor.train": 300,
        "simulate.tumor.val": 100,
        "simulate.tumor.test": 100,
        "simulate.tumor.target_train": 60,
        "simulate.tumor.target_val": 100,
        "simulate.tumor.target_test": 100,
        "pretrain.epochs": 3,
        "pretrain.members": 2,
        "finetune.epochs": 8,
        "finetune.members": 2,
    },
    "default": {
        **_PAPER_SIZES,
        "pretrain.epochs": 4,
        "pretrain.members": 2,
        "finetune.epochs": 20,
        "finetune.members": 2,
    },
    "paper": {
        **_PAPER_SIZES,
        "pretrain.epochs": 200,
        "pretrain.patience": 20,
        "pretrain.members": 5,
        "finetune.epochs": 200,
        "finetune.patience": 20,
        "finetune.members": 5,
    },
}

# What a preset changes when models are trained on a data set of this name (spec models A.11).
_ICU_MODEL = {
    "pretrain.encoder.width": 36,
    "pretrain.encoder.heads": 3,
    "finetune.encoder.width": 36,
    "finetune.encoder.heads": 3,
}
_RETAIL_MODEL = {
    "pretrain.encoder.width": 36,
    "pretrain.encoder.layers": 2,
    "finetune.encoder.width": 36,
    "finetune.encoder.layers": 2,
    "finetune.step_weights": "uniform",
}
_ICU: Mapping[PresetName, Mapping[str, object]] = {"quick": _ICU_MODEL, "default": _ICU_MODEL, "paper": _ICU_MODEL}
_RETAIL: Mapping[PresetName, Mapping[str, object]] = {
    "quick": _RETAIL_MODEL,
    "default": _RETAIL_MODEL,
    "paper": _RETAIL_MODEL,
}

FOR_DATA: Mapping[str, Mapping[PresetName, Mapping[str, object]]] = {
    "mimic": _ICU,
    "mimic-factual": _ICU,
    "m5": _RETAIL,
}


def preset_settings(name: PresetName, dataset: str | None = None) -> dict[str, tuple[object, str]]:
    """Return what a preset sets, with who says so: in general, then for the data set at hand."""
    general = {key: (value, f"preset {name}") for key, value in PRESETS[name].items()}
    special = FOR_DATA.get(dataset or "", {}).get(name, {})
    return general | {key: (value, f"preset {name} for {dataset}") for key, value in special.items()}
