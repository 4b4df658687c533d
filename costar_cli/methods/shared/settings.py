"""What the settings of one network of a baseline share."""

from typing import Annotated, Literal

from pydantic import Field

from costar_cli.config.choices import CovariatesName
from costar_cli.config.models import Config, FinetuneConfig, OptimiserConfig, TrainingConfig

BatchSize = Annotated[
    int, Field(ge=1, description="Batch size: rows (subjects, or origins of a decoder) per optimiser step and member")
]
LearningRate = Annotated[float, Field(gt=0, le=1, description="Adam's learning rate")]
MaxGradNorm = Annotated[float, Field(gt=0, description="Gradient clipping: maximum norm per member")]
Width = Annotated[int, Field(ge=1, le=4096, description="Units of each recurrent layer")]
Layers = Annotated[int, Field(ge=1, le=64, description="Recurrent layers")]
Dropout = Annotated[float, Field(ge=0, lt=1, description="Dropout rate, quantised to 1/256")]
Representation = Annotated[int, Field(ge=1, le=4096, description="Width of the representation")]
Hidden = Annotated[int, Field(ge=1, le=4096, description="Hidden units of the networks that read the representation")]


CarryOvers = Annotated[int, Field(ge=1, le=2, description="Learnt carry-overs of each treatment's effect")]
Covariates = Annotated[
    CovariatesName,
    Field(
        description="Forecast covariates with the outcomes, and learn each step from the truth before it, so that what "
        "covariates carry is neither lost nor taken for an effect; or leave them as the origin's state knows them",
    ),
]


class OutputsConfig(Config):
    """How the states of a network become outcomes (spec NET-21)."""

    decoder: Literal["published", "structured"] = Field(
        "published",
        description="As published; or effects, rolled out step by step in the scale in which outcomes change, with "
        "inputs and loss in that scale",
    )
    hidden: Hidden = 64
    carry_overs: CarryOvers = 1
    covariates: Covariates = "forecast"

    @property
    def structured(self) -> bool:
        """Return whether outcomes are rolled out."""
        return self.decoder == "structured"


class NetworkConfig(Config):
    """One network of a baseline: what differs from the settings that all methods share, None where nothing does."""

    epochs: int | None = Field(None, ge=1, le=100_000, description="Maximum epochs (default: `finetune.epochs`)")
    patience: int | None = Field(
        None, ge=1, description="Early stopping: epochs without improvement (default: `finetune.patience`)"
    )
    batch_size: BatchSize = 128
    learning_rate: LearningRate = 1e-3

    def training(self, shared: FinetuneConfig) -> TrainingConfig:
        """Return the settings of the stage that trains the network."""
        return TrainingConfig(
            epochs=self.epochs or shared.epochs,
            updates=shared.updates,
            patience=self.patience or shared.patience,
            batch_size=self.batch_size,
            validation_batch_size=shared.validation_batch_size,
            learning_rate=self.learning_rate,
            seed=shared.seed,
        )


class TunedNetworkConfig(NetworkConfig):
    """A network whose optimiser has settings, too."""

    optimiser: OptimiserConfig = OptimiserConfig()

    def training(self, shared: FinetuneConfig) -> TrainingConfig:
        """Return the settings of the stage that trains the network."""
        return super().training(shared).model_copy(update={"optimiser": self.optimiser})
