"""Settings of the growth GRU: `growth`."""

from typing import Literal

from pydantic import Field

from costar_cli.config.choices import SelectionName
from costar_cli.config.models import (
    Averaging,
    Clipping,
    Config,
    OptimiserConfig,
    Schedule,
    Warmup,
    WeightDecay,
)
from costar_cli.methods.shared.settings import (
    BatchSize,
    CarryOvers,
    Covariates,
    Dropout,
    Hidden,
    LearningRate,
    OutputsConfig,
    TunedNetworkConfig,
    Width,
)


class GrowthOptimiserConfig(OptimiserConfig):
    """AdamW with warm-up, cosine, averaged weights and clipped gradients (spec GROWTH-6)."""

    weight_decay: WeightDecay = 0.3
    warmup: Warmup = 50
    schedule: Schedule = "cosine"
    averaging: Averaging = 0.99
    max_grad_norm: Clipping = 1.0


class GrowthNetworkConfig(TunedNetworkConfig):
    """The network: a GRU, and the structured decoder of its states."""

    width: Width = 48
    hidden: Hidden = 64
    carry_overs: CarryOvers = 2
    fading: int = Field(0, ge=0, le=8, description="Effects that fade from the origin on, at learnt rates")
    covariates: Covariates = "forecast"
    dropout: Dropout = 0.5
    input_dropout: float = Field(
        0.3, ge=0, lt=1, description="Dropout rate of covariates and statics, each for whole series"
    )
    batch_size: BatchSize = 32
    learning_rate: LearningRate = 6e-3
    few_shot_rate: float = Field(0.1, gt=0, le=1, description="Learning rate in few-shot, as a share of the source's")
    optimiser: GrowthOptimiserConfig = GrowthOptimiserConfig()

    @property
    def outputs(self) -> OutputsConfig:
        """Return the settings of the decoder."""
        return OutputsConfig(
            decoder="structured", hidden=self.hidden, carry_overs=self.carry_overs, covariates=self.covariates
        )


class GrowthConfig(Config):
    """Growth GRU (spec GROWTH-1 to 6)."""

    form: Literal["auto", "relative", "additive", "local"] = Field(
        "auto",
        description="How outcomes change in a step: by a share of their level, by an amount, or by an amount in the "
        "scale of the subject's own history; `auto` decides by the outcomes of the training subjects",
    )
    select_on: SelectionName = Field(
        "own-loss",
        description="What selects an epoch's weights: the loss on validation subjects, in the scale in which outcomes "
        "change, or the error in sds as for other methods (`finetune.select_on`)",
    )
    network: GrowthNetworkConfig = GrowthNetworkConfig()
