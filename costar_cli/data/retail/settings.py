"""The retail panel: its settings, and what the registry tells of it (docs/spec/retail.md, docs/spec/world.md)."""

from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from costar_cli.config.models import Config, WithAdditions
from costar_cli.data.base import EXPERT, KNOWS_HIDDEN_STATE, DataSource, Export, InputFile, Limit, Protocol

CategoryName = Literal["FOODS", "HOBBIES", "HOUSEHOLD"]

CONFOUNDING: Final = (
    "Confounding of prices: strength of latent demand (0: none), or `observed` for recorded sales alone"
)


class M5Config(WithAdditions, Config):
    """The panel of M5: which items are source and target, and how prices become treatments."""

    additions: ClassVar[tuple[str, ...]] = ("price",)
    source_category: CategoryName = Field("FOODS", description="Category of the source items")
    target_category: CategoryName = Field("HOUSEHOLD", description="Category of the target items")
    edges: Literal["fixed", "fit"] = Field(
        "fixed", description="Price class edges: the paper's, or fitted to source-train"
    )
    price: Literal["classes", "dose"] = Field(
        "classes", description="What a price change is in plans: one of the classes, or a dose, any number"
    )
    horizon: int = Field(6, ge=2, le=39, description="Weeks predicted from an origin (the paper's tau = 1..6)")
    # The published split tests the source on the items that stopped the training; here these are other items.
    source_test: float = Field(
        0.10, gt=0, lt=1, description="Share of the source items for testing", json_schema_extra=EXPERT
    )
    source_val: float = Field(
        0.10, gt=0, lt=1, description="Share of the remaining source items for validation", json_schema_extra=EXPERT
    )
    target_test: float = Field(0.50, gt=0, lt=1, description="Share of the target items for testing")
    target_val: float = Field(0.20, gt=0, lt=1, description="Share of the remaining target items for validation")
    few_shot: float = Field(0.10, gt=0, lt=1, description="Share of all target items for few-shot training")
    train_items: int | None = Field(None, ge=1, description="Maximum source items for training")
    val_items: int | None = Field(
        None, ge=1, description="Maximum source items for validation", json_schema_extra=EXPERT
    )
    test_items: int | None = Field(None, ge=1, description="Maximum source items for testing", json_schema_extra=EXPERT)
    target_train_items: int | None = Field(
        None, ge=1, description="Maximum target items for few-shot training", json_schema_extra=EXPERT
    )
    target_val_items: int | None = Field(
        None, ge=1, description="Maximum target items for few-shot validation", json_schema_extra=EXPERT
    )
    target_test_items: int | None = Field(
        None, ge=1, description="Maximum target items for testing", json_schema_extra=EXPERT
    )
    seed: int = Field(10, ge=0, lt=2**63, description="Seed of the splits by item, and of what is simulated")
    few_shot_seed: int | None = Field(
        None, ge=0, lt=2**63, description="Seed of the few-shot draw (default: `seed`)", json_schema_extra=EXPERT
    )

    @model_validator(mode="after")
    def _two_domains(self) -> Self:
        if self.source_category == self.target_category:
            raise ValueError(f"source_category and target_category are both {self.source_category}")
        return self


class RetailConfig(M5Config):
    """The embedded retail world, and the counterfactual queries that it can answer."""

    scale: float = Field(0.25, gt=0, le=1, description="Share of M5's 3,049 items; at least 8 per department")
    confounding: Annotated[float, Field(ge=0, le=10)] | Literal["observed"] = Field(1.0, description=CONFOUNDING)
    # Drawn, not enumerated: 20 other classes at 46 origins of 26,000 subjects are 24 million questions of one week. The
    # factual class is left out of `one_step`, so that factual and counterfactual rows do not overlap.
    origins: int = Field(
        8, ge=1, le=60, description="Origins with counterfactual queries per test sequence", json_schema_extra=EXPERT
    )
    classes: int = Field(
        5, ge=1, le=20, description="Counterfactual price classes per origin", json_schema_extra=EXPERT
    )
    random_plans: int = Field(
        4, ge=0, le=100, description="Plans per origin with a random price class each week", json_schema_extra=EXPERT
    )
    constant_plans: int = Field(
        2, ge=0, le=20, description="Plans per origin with a constant price class", json_schema_extra=EXPERT
    )

    @model_validator(mode="after")
    def _some_plans(self) -> Self:
        if not self.random_plans + self.constant_plans:
            raise ValueError("random_plans and constant_plans are both 0: there would be no plans to score")
        return self


PROTOCOL: Final = Protocol(  # spec RETAIL-9
    settings={
        "embedded": False,
        "weekly_prices": 6_841_121,  # rows of Kaggle's sell_prices.csv
        "source_category": "FOODS",
        "target_category": "HOUSEHOLD",
        "edges": "fixed",
        "horizon": 6,
        "source_val": 0.10,
        "source_test": 0.10,
        "target_val": 0.20,
        "target_test": 0.50,
        "few_shot": 0.10,
        **{f"{part}_items": None for part in ("train", "val", "test", "target_train", "target_val", "target_test")},
    },
    truth="factual",
)

M5: Final = DataSource(
    name="m5",
    label="retail",
    summary="Simulate prices and sales in M5's stores, with the sales under other prices as test sets.",
    settings=RetailConfig,
    make="costar_cli.data.retail.m5:simulate_m5",
    truth="costar_cli.data.retail.truth:m5_truth",
    limit=Limit(predict="costar_cli.data.retail.truth:m5_limit", label=KNOWS_HIDDEN_STATE),
    examples=("costar simulate m5 --scale 0.1",),
    panel="Panel",
    export=Export(
        name="export",
        help="Folder to export the simulated world to, as CSV files of M5",
        world="costar_cli.data.retail.m5:simulate_world",
        check="costar_cli.data.retail.m5:check_export",
        write="costar_cli.data.retail.m5:export_csv",
        form="csv",
    ),
    protocol=PROTOCOL,
)

M5_FILES: Final = DataSource(
    name="m5",
    label="retail as observed",
    summary="Read Kaggle's M5 files as weekly sales of items in stores, by their prices.",
    settings=M5Config,
    examples=("costar ingest m5 m5-forecasting-accuracy",),
    panel="Panel",
    input=InputFile(
        name="folder",
        metavar="DIR",
        help="Folder of calendar.csv, sell_prices.csv and sales_train_*.csv",
        make="costar_cli.data.retail.m5:ingest_m5",
        files="costar_cli.data.retail.files:m5_files",
    ),
)
