"""Which encoder a configuration means."""

from collections.abc import Mapping
from typing import Final

from costar_cli.config.choices import ArchitectureName
from costar_cli.config.models import EncoderConfig
from costar_cli.methods.costar.encoder import CostarEncoder
from costar_cli.methods.costar.representation import Dims, HistoryEncoder
from costar_cli.methods.costar.stream_encoder import StreamEncoder
from costar_cli.methods.costar.vanilla_encoder import VanillaEncoder

__all__ = ["make_encoder"]

_ARCHITECTURES: Final[Mapping[ArchitectureName, type[HistoryEncoder]]] = {
    "costar": CostarEncoder,
    "vt": VanillaEncoder,
    "vt_relative": VanillaEncoder,
    "ct": StreamEncoder,
}


def make_encoder(dims: Dims, config: EncoderConfig) -> HistoryEncoder:
    """Return a freshly initialised encoder.

    Args:
        dims: numbers of covariates, treatments, outcomes and statics; covariates and statics may be 0.
        config: its architecture and shape.
    """
    return _ARCHITECTURES[config.architecture](dims, config)
