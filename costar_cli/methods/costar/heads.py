"""Which outcome predictor a configuration means."""

from collections.abc import Mapping
from typing import Final

from costar_cli.config.choices import DecoderName
from costar_cli.config.models import EncoderConfig
from costar_cli.methods.costar.autoregressive import AutoregressivePredictor
from costar_cli.methods.costar.predictor import OutcomePredictor, SteppedPredictor
from costar_cli.methods.costar.representation import Dims
from costar_cli.panel import TreatmentEncoding

__all__ = ["DEFAULT_DECODER", "decoder_for", "known_decoder", "outcome_head"]

DEFAULT_DECODER: Final[DecoderName] = "non_autoregressive"

_HEADS: Final[Mapping[DecoderName, type[OutcomePredictor]]] = {
    DEFAULT_DECODER: OutcomePredictor,
    "stepped": SteppedPredictor,
    "autoregressive": AutoregressivePredictor,
    "autoregressive_one_step": AutoregressivePredictor,
}


def outcome_head(
    dims: Dims, horizon: int, encoder: EncoderConfig, hidden: int, *, decoder: DecoderName = DEFAULT_DECODER
) -> OutcomePredictor:
    """Return a freshly initialised outcome predictor."""
    return _HEADS[decoder](dims[1], dims[2], width=encoder.width, horizon=horizon, hidden=hidden)


def decoder_for(treatments: TreatmentEncoding) -> DecoderName:
    """Return the decoder that suits treatments, where nobody asks for another.

    Classes are one-hot, no treatment included, and so tell steps apart; binary treatments that are all zero do not.
    """
    return "stepped" if treatments.mode == "multilabel" else DEFAULT_DECODER


def known_decoder(name: object) -> DecoderName:
    """Return the decoder of this name.

    Raises:
        ValueError: there is none.
    """
    found = next((known for known in _HEADS if known == name), None)
    if found is None:
        raise ValueError(f"no such decoder: {name!r}")
    return found
