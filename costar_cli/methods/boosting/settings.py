"""Settings of gradient boosting on lags and plan."""

from typing import ClassVar, Final

from pydantic import Field

from costar_cli.config.choices import TreeLibrary
from costar_cli.config.models import Config, WithAdditions

MOST_LAGS: Final = 1_000


class BoostingConfig(WithAdditions, Config):
    """Gradient boosting of regression trees on lags and plan (spec BOOST-1 to 5)."""

    additions: ClassVar[tuple[str, ...]] = ("library",)

    lags: int = Field(8, ge=1, le=MOST_LAGS, description="Past outcomes used as predictors")
    trees: int = Field(300, ge=1, le=10_000, description="Maximum trees of each outcome and step")
    leaves: int = Field(16, ge=2, le=32, description="Maximum leaves of a tree")
    leaf_rows: int = Field(20, ge=1, description="Minimum training rows of a leaf")
    learning_rate: float = Field(0.1, gt=0, le=1, description="Share of a tree that is added")
    penalty: float = Field(1.0, ge=0, description="L2 penalty on the values of leaves")
    patience: int = Field(15, ge=1, description="Early stopping: trees without improvement of the validation loss")
    rows: int = Field(
        100_000, ge=100, description="Maximum training origins of each outcome and step, spread evenly over subjects"
    )
    library: TreeLibrary = Field(
        "scikit-learn", description="What grows the trees: lightgbm (`costar[lightgbm]`) is two to six times as fast"
    )
