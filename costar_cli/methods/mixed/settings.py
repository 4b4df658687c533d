"""Settings of the mixed-effects growth model: `mixed`."""

from typing import Literal

from pydantic import Field

from costar_cli.config.models import Config


class MixedConfig(Config):
    """The mixed-effects growth model (spec MIXED-1 to 9)."""

    carry_overs: int = Field(1, ge=1, le=2, description="Learnt carry-overs of each treatment's effect")
    covariates: Literal["forecast", "none"] = Field(
        "forecast",
        description="Covariates and other outcomes act on growth where the likelihood says so, and are forecast by "
        "their own equations; or they do not act",
    )
    hidden: int = Field(16, ge=1, le=1_000, description="Hidden units of what the statics say about a subject")
    iterations: int = Field(1000, ge=1, le=100_000, description="Maximum iterations of the likelihood's optimiser")
