"""Which outcome predictor a configuration means."""

from collections.abc import Mapping
from typing import Final

from costar_cli.config.choices import DecoderName
from costar_cli.config.models import EncoderConfig
from costar_cli.methods.costar.autoregressive import AutoregressivePredictor
from costar_cli.methods.costar.predictor import OutcomePredictor
from costar_cli.methods.costar.representation import Dims

__all__ = ["DEFAULT_DECODER", "known_decoder", "outcome_head"]

DEFAULT_DECODER: Final[DecoderName] = "non_autoregressive"

_HEADS: Final[Mapping[DecoderName, type[OutcomePredictor]]] = {
    DEFAULT_DECODER: OutcomePredictor,
    "autoregressive": AutoregressivePredictor,
    "autoregressive_one_step": AutoregressivePredictor,
}


def outcome_head(
    dims: Dims, horizon: int, encoder: EncoderConfig, hidden: int, *, decoder: DecoderName = DEFAULT_DECODER
) -> OutcomePredictor:
    """Return a freshly initialised outcome predictor."""
    return _HEADS[decoder](dims[1], dims[2], width=encoder.width, horizon=horizon, hidden=hidden)


def known_decoder(name: object) -> DecoderName:
    """Return the decoder of this name.

    Raises:
        ValueError: there is none.
    """
    found = next((known for known in _HEADS if known == name), None)
    if found is None:
        raise ValueError(f"no such decoder: {name!r}")
    return found
