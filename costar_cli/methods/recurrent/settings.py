"""Settings of the recurrent baselines RMSN, CRN, G-Net, IGC-Net, SDR-Net and Causal CPC.

Defaults of the first three are the paper's for tumours (spec SIZE-3 to 5).
"""

from pydantic import Field

from costar_cli.config.models import Averaging, Config, OptimiserConfig, Schedule
from costar_cli.methods.shared.settings import (
    BatchSize,
    Dropout,
    Hidden,
    Layers,
    LearningRate,
    MaxGradNorm,
    NetworkConfig,
    OutputsConfig,
    Representation,
    TunedNetworkConfig,
    Width,
)


class RecurrentConfig(NetworkConfig):
    """A network that reads a sequence with a variational LSTM."""

    layers: Layers = 1
    dropout: Dropout = 0.1


class RmsnNetworkConfig(RecurrentConfig):
    """One of the four networks of RMSN."""

    width: Width = 24
    max_grad_norm: MaxGradNorm = 1.0


class RmsnTreatmentConfig(RmsnNetworkConfig):
    """The numerator of the weights: treatments from earlier treatments."""

    width: Width = 8
    dropout: Dropout = 0.5
    batch_size: BatchSize = 128
    learning_rate: LearningRate = 0.01


class RmsnHistoryConfig(RmsnNetworkConfig):
    """The denominator of the weights: treatments from the whole history."""

    max_grad_norm: MaxGradNorm = 2.0
    batch_size: BatchSize = 128
    learning_rate: LearningRate = 0.01


class RmsnEncoderConfig(RmsnNetworkConfig):
    """The network that predicts one step."""

    max_grad_norm: MaxGradNorm = 0.5
    batch_size: BatchSize = 64
    learning_rate: LearningRate = 0.01


class RmsnDecoderConfig(RmsnNetworkConfig):
    """The network that predicts the steps after the first."""

    width: Width = 48
    max_grad_norm: MaxGradNorm = 0.5
    batch_size: BatchSize = 256
    learning_rate: LearningRate = 1e-4


class RmsnConfig(Config):
    """Recurrent marginal structural network (spec RMSN-1 to 6)."""

    outputs: OutputsConfig = OutputsConfig()
    treatment: RmsnTreatmentConfig = RmsnTreatmentConfig()
    history: RmsnHistoryConfig = RmsnHistoryConfig()
    encoder: RmsnEncoderConfig = RmsnEncoderConfig()
    decoder: RmsnDecoderConfig = RmsnDecoderConfig()


class CrnEncoderConfig(RecurrentConfig):
    """The encoder of CRN: history to balanced representation, and one step ahead."""

    width: Width = 18
    dropout: Dropout = 0.2
    representation: Representation = 3
    hidden: Hidden = 12
    batch_size: BatchSize = 256


class CrnDecoderConfig(RecurrentConfig):
    """The decoder of CRN: the steps after the first. It is as wide as the encoder's representation."""

    dropout: Dropout = 0.2
    representation: Representation = 3
    hidden: Hidden = 3
    batch_size: BatchSize = 256


class CrnConfig(Config):
    """Counterfactual recurrent network (spec CRN-1 to 4)."""

    outputs: OutputsConfig = OutputsConfig()
    alpha: float = Field(1.0, ge=0, description="Weight of the balancing loss at the end of training")
    encoder: CrnEncoderConfig = CrnEncoderConfig()
    decoder: CrnDecoderConfig = CrnDecoderConfig()


class CrnErmEncoderConfig(CrnEncoderConfig):
    """The encoder of CRN without balancing."""

    width: Width = 24
    dropout: Dropout = 0.1
    representation: Representation = 18
    hidden: Hidden = 18
    learning_rate: LearningRate = 0.01


class CrnErmDecoderConfig(CrnDecoderConfig):
    """The decoder of CRN without balancing."""

    dropout: Dropout = 0.1
    representation: Representation = 6
    hidden: Hidden = 6


class CrnErmConfig(Config):
    """Counterfactual recurrent network without balancing (spec CRN-3, SIZE-4)."""

    outputs: OutputsConfig = OutputsConfig()
    encoder: CrnErmEncoderConfig = CrnErmEncoderConfig()
    decoder: CrnErmDecoderConfig = CrnErmDecoderConfig()


class GNetNetworkConfig(RecurrentConfig):
    """The network of G-Net."""

    width: Width = 24
    representation: Representation = 3
    hidden: Hidden = 48
    components: int = Field(
        1, ge=1, le=1024, description="Networks that share the outputs, each given the outputs of the earlier ones"
    )


class GNetConfig(Config):
    """G-Net: g-computation with a recurrent network (spec GNET-1 to 5)."""

    holdout: float = Field(
        0.1, gt=0, lt=1, description="Share of the training subjects held out to draw residuals from"
    )
    samples: int = Field(50, ge=1, le=100_000, description="Simulated futures per query")
    network: GNetNetworkConfig = GNetNetworkConfig()


class IgcOptimiserConfig(OptimiserConfig):
    """Adam with a cosine and averaged weights: the last ones are kept (spec IGC-4)."""

    schedule: Schedule = "cosine"
    averaging: Averaging = 0.99


class IgcNetworkConfig(RecurrentConfig, TunedNetworkConfig):
    """The network of IGC-Net."""

    width: Width = 24
    representation: Representation = 12
    hidden: Hidden = 24
    # Later heads go on learning after the first: with 20 they find 97 % of a known effect, with 40 all of it.
    patience: int | None = Field(40, ge=1, description="Early stopping: epochs without improvement of the first head")
    batch_size: BatchSize = 32
    learning_rate: LearningRate = 0.01
    optimiser: IgcOptimiserConfig = IgcOptimiserConfig()


class IgcNetConfig(Config):
    """IGC-Net: iterated g-computation with a recurrent network (spec IGC-1 to 5)."""

    network: IgcNetworkConfig = IgcNetworkConfig()


class SdrPropensityConfig(RecurrentConfig):
    """The network that says how likely treatments were."""

    width: Width = 24
    batch_size: BatchSize = 128
    learning_rate: LearningRate = 0.01


class SdrNetConfig(IgcNetConfig):
    """SDR-Net: sequentially doubly robust regressions with a recurrent network (spec SDR-1 to 4)."""

    propensity: SdrPropensityConfig = SdrPropensityConfig()
    largest_weight: float = Field(20, ge=0, description="Largest weight of what corrects a pseudo-outcome (0: none)")


class CausalCpcEncoderConfig(RecurrentConfig):
    """The encoder of Causal CPC, and its contrastive training."""

    width: Width = 24
    features: int = Field(12, ge=1, le=4096, description="Width of the local features that the recurrent layers read")
    batch_size: BatchSize = 64


class CausalCpcDecoderConfig(NetworkConfig):
    """The decoder of Causal CPC, and the training of encoder and decoder on outcomes."""

    dropout: Dropout = 0.1
    representation: Representation = 18
    hidden: Hidden = 18
    origins: int = Field(6, ge=1, le=1000, description="Origins that are drawn of each series at a step of training")
    batch_size: BatchSize = 32
    learning_rate: LearningRate = 0.005


class CausalCpcConfig(Config):
    """Causal CPC: contrastive predictive coding, then outcomes (spec CPC-1 to 6)."""

    alpha: float = Field(
        1.0, ge=0, description="Weight of the upper bound on what representations tell of treatments; 0: none"
    )
    encoder: CausalCpcEncoderConfig = CausalCpcEncoderConfig()
    decoder: CausalCpcDecoderConfig = CausalCpcDecoderConfig()
