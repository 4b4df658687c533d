"""What each preset changes in the settings; everything else keeps the default of `models.py`.

`paper` is the paper's protocol, which is what the defaults already say: sizes, 200 epochs, patience 20, five members.
`default` keeps the paper's data and shortens the training to what two CPU cores do in about 20 minutes.
`quick` is a demonstration: it shows that everything works, not what the method can do.
"""

from collections.abc import Mapping

from costar_cli.config.choices import PresetName

__all__ = ["DEFAULT_PRESET", "PRESETS"]

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
