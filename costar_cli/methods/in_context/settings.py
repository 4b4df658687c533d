"""Settings of the in-context model."""

from pydantic import Field

from costar_cli.config.models import Config


class InContextConfig(Config):
    """A network trained once on simulated worlds, conditioned on a data set in closed form (spec CONTEXT-1 to 6)."""

    subjects: int = Field(
        1_000, ge=10, le=100_000, description="Most training subjects that the model is conditioned on, drawn at random"
    )
    rows: int = Field(50_000, ge=100, description="Maximum training steps of them, spread evenly over subjects")
    samples: int = Field(20, ge=2, le=100_000, description="Simulated courses that a prediction is the mean of")
