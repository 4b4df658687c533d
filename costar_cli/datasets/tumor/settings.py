"""Settings of the tumour growth cohort: `simulate.tumor` (docs/spec/tumor.md)."""

from pydantic import Field

from costar_cli.config.choices import PlansName
from costar_cli.config.models import Config

__all__ = ["TumorConfig"]


class TumorConfig(Config):
    """The tumour growth cohort (docs/spec/tumor.md)."""

    gamma: float = Field(10.0, ge=0, le=100, description="Confounding strength of the source domain's policy")
    target_gamma: float = Field(0.0, ge=0, le=100, description="Confounding strength of the target domain's policy")
    train: int = Field(10_000, ge=1, le=1_000_000, description="Source patients to train on")
    val: int = Field(1_000, ge=1, le=1_000_000, description="Source patients to select on")
    test: int = Field(1_000, ge=1, le=1_000_000, description="Source patients to test on")
    target_train: int = Field(100, ge=1, le=1_000_000, description="Target patients for few-shot fine-tuning")
    target_val: int = Field(1_000, ge=1, le=1_000_000, description="Target patients to select on in few-shot")
    target_test: int = Field(1_000, ge=1, le=1_000_000, description="Target patients to test on")
    steps: int = Field(60, ge=3, le=1_000, description="Days simulated per patient")
    horizon: int = Field(6, ge=2, le=100, description="Days predicted from an origin (the paper's tau = 1..6)")
    plans: PlansName = Field("sliding", description="Treatment sequences of the test queries")
    paired: bool = Field(False, description="Give source and target the same virtual patients and noise")
    seed: int = Field(10, ge=0, lt=2**63, description="Seed of the simulation")
