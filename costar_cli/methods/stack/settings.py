"""Settings of stacking: `stack`."""

from typing import Literal

from pydantic import Field

from costar_cli.config.models import Config

__all__ = ["StackConfig"]


class StackConfig(Config):
    """What is combined, and for how long it may be fitted (spec STACK-1 to 7)."""

    parts: str = Field(
        "closed-form",
        min_length=1,
        description="Methods to combine: names with commas, `short-list` for those that are worth trying anywhere, or "
        "`closed-form` for those of the short list that have no epochs",
    )
    weighting: Literal["plans", "observed"] = Field(
        "plans",
        description="What the errors are of that weights come from: of plans (validation windows weighed by inverse "
        "probability, so that treatments that react to outcomes inside of a window do not foretell them), or of what "
        "was observed",
    )
    minutes: float | None = Field(
        None,
        gt=0,
        description="Minutes after which no further method is begun; one that was begun is trained to its end",
    )
