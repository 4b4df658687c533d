"""Settings of stacking: `stack`."""

from typing import Literal

from pydantic import Field

from costar_cli.config.models import Config


class StackConfig(Config):
    """What is combined, and for how long it may be fitted (spec STACK-1 to 7)."""

    parts: str = Field(
        "closed-form",
        min_length=1,
        description="Methods that `stack` and `auto` combine: names separated by commas, `short-list`, or "
        "`closed-form` (default; `auto`: `short-list`)",
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
        description="Minutes for the methods of `stack` and `auto`: those whose fit does not end by then are left "
        "out; the first one always ends",
    )
