"""Settings of the regressions and of the naive anchors."""

from typing import Literal

from pydantic import Field

from costar_cli.config.models import Config

PlanForm = Literal["dose", "steps"]
MOST_STEPS = 1_000  # of a window
MOST_SEASON = 10_000  # steps


class MsmConfig(Config):
    """The marginal structural model (spec MSM-1 to 5)."""

    plan: PlanForm = Field(
        "dose", description="Treatment history in the outcome model: number of treated steps, or one term per step"
    )
    clip: float = Field(0.01, ge=0, lt=0.5, description="Share of the weights truncated at each end")
    iterations: int = Field(100, ge=1, le=100_000, description="Maximum iterations of a logistic regression")
    most_numbers: int = Field(
        40_000_000, ge=1_000, description="Maximum entries of a design matrix; larger ones use a random subset of rows"
    )


class RidgeConfig(Config):
    """Ridge regression on the recent window, by empirical risk minimisation."""

    window: int = Field(4, ge=1, le=MOST_STEPS, description="Steps of history used as predictors")


class SeasonalNaiveConfig(Config):
    """The value one season ago."""

    season: int | None = Field(
        None, ge=1, le=MOST_SEASON, description="Steps of a season (default: the one that repeats best in source-train)"
    )
