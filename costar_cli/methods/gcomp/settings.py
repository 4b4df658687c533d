"""Settings of step-by-step g-computation."""

from typing import Final, Literal

from pydantic import Field

from costar_cli.config.models import Config

Learner = Literal["auto", "ridge", "boosting"]
MOST_LAGS: Final = 100


class GcompConfig(Config):
    """Step-by-step g-computation over a learner (spec GCOMP-1 to 7)."""

    learner: Learner = Field(
        "auto",
        description="What predicts a step: ridge (logistic) regressions, boosted trees, or for each variable the "
        "simplest that errs as little as the best, by cross-validation over subjects (auto)",
    )
    lags: int = Field(4, ge=1, le=MOST_LAGS, description="Past values of each variable used as predictors")
    samples: int = Field(40, ge=2, le=100_000, description="Simulated courses that a prediction is the mean of")
    folds: int = Field(5, ge=2, le=100, description="Folds of the cross-validation over subjects")
    rows: int = Field(
        50_000, ge=100, description="Maximum training steps of each variable, spread evenly over subjects"
    )
    trees: int = Field(300, ge=1, le=10_000, description="Maximum trees of each variable")
    leaves: int = Field(16, ge=2, le=32, description="Maximum leaves of a tree")
    leaf_rows: int = Field(20, ge=1, description="Minimum training rows of a leaf")
    learning_rate: float = Field(0.1, gt=0, le=1, description="Share of a tree that is added")
    penalty: float = Field(1.0, ge=0, description="L2 penalty on the values of leaves")
    patience: int = Field(15, ge=1, description="Early stopping: trees without improvement of the validation loss")
