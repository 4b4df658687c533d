"""Settings of the transformer baselines CT and EDCT; the defaults are those for tumours (spec SIZE-6, SIZE-7)."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from costar_cli.config.models import Config, heads_divide_width
from costar_cli.methods.shared.settings import (
    BatchSize,
    Dropout,
    Hidden,
    LearningRate,
    NetworkConfig,
    OutputsConfig,
    Representation,
)

Balancing = Literal["reversal", "confusion", "none"]

TokenWidth = Annotated[int, Field(ge=2, le=4096, description="Width of the tokens, a multiple of heads")]
Blocks = Annotated[int, Field(ge=1, le=64, description="Transformer blocks")]
Heads = Annotated[int, Field(ge=1, le=64, description="Attention heads")]
ClipDistance = Annotated[
    int, Field(ge=1, le=1000, description="Largest relative position; longer distances are clipped to it")
]
AlphaMax = Annotated[float, Field(ge=0, description="Weight of the balancing losses at the end of training")]
Averaging = Annotated[float, Field(ge=0, lt=1, description="Decay of the moving average of the weights (0: none)")]


class TransformerConfig(NetworkConfig):
    """The shape of a transformer with a balancing head."""

    width: TokenWidth = 16
    representation: Representation = 16
    hidden: Hidden = 16
    layers: Blocks = 1
    heads: Heads = 2
    clip_distance: ClipDistance = 15
    dropout: Dropout = 0.1

    _heads_divide_width = model_validator(mode="after")(heads_divide_width)


class CtNetworkConfig(TransformerConfig):
    """The network of CT."""

    dropout: Dropout = 0.2
    batch_size: BatchSize = 64


class CtErmNetworkConfig(CtNetworkConfig):
    """The network of CT without balancing."""

    width: TokenWidth = 12
    representation: Representation = 2
    hidden: Hidden = 12
    dropout: Dropout = 0.1


class CausalTransformerConfig(Config):
    """What CT has with and without balancing."""

    averaging: Averaging = 0.99
    outputs: OutputsConfig = OutputsConfig()
    network: CtNetworkConfig = CtNetworkConfig()

    @property
    def balance(self) -> tuple[Balancing, float]:
        """Return what balances, and its weight at the end of training."""
        return "none", 0.0


class CtConfig(CausalTransformerConfig):
    """Causal transformer (spec CT-1 to 7)."""

    alpha: AlphaMax = 0.01

    @property
    def balance(self) -> tuple[Balancing, float]:
        """Return domain confusion with its weight."""
        return "confusion", self.alpha


class CtErmConfig(CausalTransformerConfig):
    """Causal transformer without balancing (spec CT-1 to 7)."""

    network: CtErmNetworkConfig = CtErmNetworkConfig()


class EdctEncoderConfig(TransformerConfig):
    """The encoder of EDCT: history to balanced representations, and one step ahead."""

    width: TokenWidth = 18
    representation: Representation = 18
    hidden: Hidden = 18
    layers: Blocks = 2
    batch_size: BatchSize = 64
    learning_rate: LearningRate = 1e-3


class EdctDecoderConfig(NetworkConfig):
    """The decoder of EDCT: the steps after the first. It is as wide as the encoder's representation."""

    representation: Representation = 12
    hidden: Hidden = 48
    layers: Blocks = 2
    heads: Heads = 2
    clip_distance: ClipDistance = 15
    dropout: Dropout = 0.1
    batch_size: BatchSize = 256
    learning_rate: LearningRate = 1e-4


class EdctConfig(Config):
    """Encoder-decoder causal transformer (spec EDCT-1 to 5)."""

    balancing: Balancing = Field(
        "reversal", description="Balancing objective: what removes treatment information from the representation"
    )
    alpha: AlphaMax = 1.0
    averaging: Averaging = 0.0
    encoder: EdctEncoderConfig = EdctEncoderConfig()
    decoder: EdctDecoderConfig = EdctDecoderConfig()

    @model_validator(mode="after")
    def _heads_divide_the_decoders_width(self) -> Self:
        if self.encoder.representation % self.decoder.heads:
            raise ValueError(
                f"encoder.representation {self.encoder.representation}, the decoder's width, is not a multiple of "
                f"decoder.heads {self.decoder.heads}"
            )
        return self
