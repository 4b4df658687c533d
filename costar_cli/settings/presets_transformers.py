"""Sizes and training of CT, CT(ERM) and EDCT per data set (spec SIZE-6, SIZE-7); tumours are the defaults.

Sizes and learning rates hold under every preset; so do batches, except where `quick` takes smaller ones. Epochs and
patience are the paper's under `paper` alone. The paper has no EDCT: its sizes for hospital stays are those of the
release that CT comes from, and the retail panel, for which there are none, takes the same.
"""

from collections.abc import Mapping

__all__ = ["TRANSFORMER_EPOCHS", "TRANSFORMER_SIZES"]

Values = Mapping[str, object]


def _under(network: str, values: Values) -> dict[str, object]:
    return {f"{network}.{name}": value for name, value in values.items()}


def _both_ct(values: Values) -> dict[str, object]:
    return _under("ct.network", values) | _under("ct_erm.network", values)


_CT_ICU = _both_ct(
    {
        "width": 24,
        "representation": 88,
        "hidden": 44,
        "layers": 1,
        "heads": 3,
        "clip_distance": 20,
        "dropout": 0.1,
        "batch_size": 64,
        "learning_rate": 0.01,
    }
)
_CT_RETAIL = _both_ct(
    {
        "width": 24,
        "representation": 94,
        "hidden": 47,
        "layers": 2,
        "heads": 2,
        "clip_distance": 30,
        "dropout": 0.1,
        "batch_size": 64,
        "learning_rate": 0.001,
    }
)
_EDCT_ENCODER: Values = {
    "width": 42,
    "representation": 150,
    "hidden": 300,
    "layers": 2,
    "heads": 3,
    "clip_distance": 20,
    "dropout": 0.2,
    "batch_size": 128,
    "learning_rate": 0.01,
}
_EDCT_DECODER: Values = {
    "representation": 49,
    "hidden": 24,
    "layers": 1,
    "heads": 2,
    "clip_distance": 20,
    "dropout": 0.4,
    "batch_size": 512,
    "learning_rate": 1e-4,
}
_EDCT = _under("edct.encoder", _EDCT_ENCODER) | _under("edct.decoder", _EDCT_DECODER)

TRANSFORMER_SIZES: Mapping[str, Values] = {
    "mimic": _CT_ICU | _EDCT,
    "mimic-factual": _CT_ICU | _EDCT,
    "m5": _CT_RETAIL | _EDCT,
}


def _epochs(ct: tuple[int, int], ct_erm: tuple[int, int], edct: tuple[int, int]) -> Values:
    """Return epochs and patience of every network; a patience as long as the training is none."""
    networks = {"ct.network": ct, "ct_erm.network": ct_erm, "edct.encoder": edct, "edct.decoder": edct}
    return {
        f"{network}.{name}": value
        for network, training in networks.items()
        for name, value in zip(("epochs", "patience"), training, strict=True)
    }


_EPOCHS_ICU = _epochs(ct=(200, 20), ct_erm=(400, 400), edct=(200, 20))

TRANSFORMER_EPOCHS: Mapping[str, Values] = {
    "tumor": _epochs(ct=(150, 150), ct_erm=(150, 150), edct=(100, 100)),
    "mimic": _EPOCHS_ICU,
    "mimic-factual": _EPOCHS_ICU,
    "m5": _epochs(ct=(100, 20), ct_erm=(100, 20), edct=(100, 20)),
}
