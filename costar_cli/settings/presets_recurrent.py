"""The paper's sizes and training of RMSN, CRN and G-Net per data set (spec SIZE-3 to 5); tumours are defaults.

Sizes and learning rates hold under every preset; so do batches, except where `quick` takes smaller ones. Epochs and
patience are the paper's under `paper` alone.
"""

from collections.abc import Mapping

__all__ = ["RECURRENT_EPOCHS", "RECURRENT_SIZES"]

Values = Mapping[str, object]


def _under(section: str, **networks: Values) -> dict[str, object]:
    """Return the keys of the networks of a method."""
    return {
        f"{section}.{network}.{name}": value for network, values in networks.items() for name, value in values.items()
    }


def _rmsn(
    width: int, dropout: float, layers: int, max_grad_norm: float, batch_size: int, learning_rate: float
) -> Values:
    """Return a network of RMSN, in the order of the paper's table."""
    return {
        "width": width,
        "dropout": dropout,
        "layers": layers,
        "max_grad_norm": max_grad_norm,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
    }


def _sizes(
    width: int | None,
    representation: int,
    hidden: int,
    layers: int,
    dropout: float,
    batch_size: int,
    learning_rate: float,
) -> Values:
    """Return another network, in the order of the paper's table; a decoder of CRN has no width of its own."""
    return {
        **({} if width is None else {"width": width}),
        "representation": representation,
        "hidden": hidden,
        "layers": layers,
        "dropout": dropout,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
    }


def _both_crn(encoder: Values, decoder: Values) -> dict[str, object]:
    return _under("crn", encoder=encoder, decoder=decoder) | _under("crn_erm", encoder=encoder, decoder=decoder)


_RMSN_ICU = _under(
    "rmsn",
    treatment=_rmsn(6, 0.1, 2, 0.5, 256, 0.01),
    history=_rmsn(74, 0.5, 2, 1.0, 64, 0.001),
    encoder=_rmsn(
        74, 0.1, 2, 1.0, 64, 0.001
    ),  # of the released configuration: its parameter count is the paper's (spec SIZE-3)
    decoder=_rmsn(196, 0.1, 1, 0.5, 1024, 1e-4),
)
_RMSN_RETAIL = _under(
    "rmsn",
    treatment=_rmsn(44, 0.4, 1, 2.0, 128, 0.001),
    history=_rmsn(92, 0.5, 2, 0.5, 128, 0.01),
    encoder=_rmsn(46, 0.1, 2, 0.5, 128, 1e-4),
    decoder=_rmsn(45, 0.1, 1, 4.0, 256, 1e-4),
)
_CRN_ICU = _both_crn(_sizes(74, 74, 37, 1, 0.1, 64, 0.001), _sizes(None, 98, 98, 2, 0.1, 256, 1e-4))
_CRN_RETAIL = _both_crn(_sizes(46, 46, 46, 2, 0.1, 128, 0.001), _sizes(None, 90, 22, 1, 0.1, 256, 1e-4))
_GNET_ICU = _under("gnet", network=_sizes(148, 74, 74, 1, 0.1, 256, 0.01))
_GNET_RETAIL = _under("gnet", network=_sizes(144, 72, 72, 2, 0.1, 256, 0.001))

RECURRENT_SIZES: Mapping[str, Values] = {
    "mimic": _RMSN_ICU | _CRN_ICU | _GNET_ICU,
    "mimic-factual": _RMSN_ICU | _CRN_ICU | _GNET_ICU,
    "m5": _RMSN_RETAIL | _CRN_RETAIL | _GNET_RETAIL,
}


def _epochs(rmsn: tuple[int, int], crn: tuple[int, int], crn_erm: tuple[int, int], gnet: tuple[int, int]) -> Values:
    """Return epochs and patience of every network; a patience as long as the training is none."""
    networks = {
        "rmsn": (rmsn, ("treatment", "history", "encoder", "decoder")),
        "crn": (crn, ("encoder", "decoder")),
        "crn_erm": (crn_erm, ("encoder", "decoder")),
        "gnet": (gnet, ("network",)),
    }
    return {
        f"{section}.{network}.{name}": value
        for section, (training, names) in networks.items()
        for network in names
        for name, value in zip(("epochs", "patience"), training, strict=True)
    }


_EPOCHS_ICU = _epochs(rmsn=(400, 400), crn=(200, 20), crn_erm=(400, 400), gnet=(100, 20))  # spec SIZE-4

RECURRENT_EPOCHS: Mapping[str, Values] = {
    "tumor": _epochs(rmsn=(100, 100), crn=(100, 100), crn_erm=(100, 100), gnet=(100, 100)),
    "mimic": _EPOCHS_ICU,
    "mimic-factual": _EPOCHS_ICU,
    "m5": _epochs(rmsn=(100, 20), crn=(100, 20), crn_erm=(100, 20), gnet=(100, 20)),
}
