"""Settings of the retail panel: `simulate.m5` and `ingest.m5` (docs/spec/retail.md, docs/spec/world.md)."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from costar_cli.config.choices import CategoryName, EdgesName
from costar_cli.config.models import Config

__all__ = ["M5Config", "RetailConfig"]

CONFOUNDING: Final = "What sways prices: latent demand, this strongly (0: nothing), or `observed` sales alone"


class M5Config(Config):
    """The panel of M5: which items are source and target, and how prices become treatments."""

    source_category: CategoryName = Field("FOODS", description="Items of the source domain")
    target_category: CategoryName = Field("HOUSEHOLD", description="Items of the target domain")
    edges: EdgesName = Field("fixed", description="Edges of the price classes: the paper's, or of source-train")
    horizon: int = Field(6, ge=2, le=39, description="Weeks predicted from an origin (the paper's tau = 1..6)")
    source_test: float = Field(0.10, gt=0, lt=1, description="Share of the source's items to test on")
    source_val: float = Field(0.10, gt=0, lt=1, description="Share of the source's other items to select on")
    target_test: float = Field(0.50, gt=0, lt=1, description="Share of the target's items to test on")
    target_val: float = Field(0.20, gt=0, lt=1, description="Share of the target's other items to select on")
    few_shot: float = Field(0.10, gt=0, lt=1, description="Share of all target items to fine-tune on")
    train_items: int | None = Field(None, ge=1, description="At most this many source items to train on")
    val_items: int | None = Field(None, ge=1, description="At most this many source items to select on")
    test_items: int | None = Field(None, ge=1, description="At most this many source items to test on")
    target_train_items: int | None = Field(None, ge=1, description="At most this many target items to fine-tune on")
    target_val_items: int | None = Field(None, ge=1, description="At most this many target items to select on")
    target_test_items: int | None = Field(None, ge=1, description="At most this many target items to test on")
    seed: int = Field(10, ge=0, lt=2**63, description="Seed of the splits by item, and of what is simulated")
    few_shot_seed: int | None = Field(None, ge=0, lt=2**63, description="Seed of the few-shot draw, if another")

    @model_validator(mode="after")
    def _two_domains(self) -> Self:
        if self.source_category == self.target_category:
            raise ValueError(f"source_category and target_category are both {self.source_category}")
        return self


class RetailConfig(M5Config):
    """The embedded retail world, and the counterfactual queries that it can answer."""

    scale: float = Field(0.25, gt=0, le=1, description="Share of M5's 3,049 items; at least 8 per department")
    confounding: Annotated[float, Field(ge=0, le=10)] | Literal["observed"] = Field(1.0, description=CONFOUNDING)
    origins: int = Field(8, ge=1, le=60, description="Origins with counterfactual queries per test sequence")
    classes: int = Field(5, ge=1, le=20, description="Price classes asked about per origin, other than the factual one")
    random_plans: int = Field(4, ge=0, le=100, description="Plans per origin with a random price class each week")
    constant_plans: int = Field(2, ge=0, le=20, description="Plans per origin that keep one price class")

    @model_validator(mode="after")
    def _some_plans(self) -> Self:
        if not self.random_plans + self.constant_plans:
            raise ValueError("random_plans and constant_plans are both 0: there would be no plans to score")
        return self
