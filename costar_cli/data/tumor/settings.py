"""The tumour growth cohort: its settings, and what the registry tells of it (docs/spec/tumor.md)."""

from typing import ClassVar, Final, Literal

from pydantic import Field, model_validator

from costar_cli.data.base import DataSource, DropsConfounder, Limit, Possible, Protocol


class TumorConfig(DropsConfounder):
    """The tumour growth cohort (docs/spec/tumor.md)."""

    additions: ClassVar[tuple[str, ...]] = (*DropsConfounder.additions, "ends", "visits", "twin")

    gamma: float = Field(10.0, ge=0, le=100, description="Confounding strength of the source domain's policy")
    target_gamma: float = Field(0.0, ge=0, le=100, description="Confounding strength of the target domain's policy")
    train: int = Field(10_000, ge=1, le=1_000_000, description="Source patients for training")
    val: int = Field(1_000, ge=1, le=1_000_000, description="Source patients for validation")
    test: int = Field(1_000, ge=1, le=1_000_000, description="Source patients for testing")
    target_train: int = Field(100, ge=1, le=1_000_000, description="Target patients for few-shot training")
    target_val: int = Field(1_000, ge=1, le=1_000_000, description="Target patients for few-shot validation")
    target_test: int = Field(1_000, ge=1, le=1_000_000, description="Target patients for testing")
    steps: int = Field(60, ge=3, le=1_000, description="Days simulated per patient")
    horizon: int = Field(6, ge=2, le=100, description="Days predicted from an origin (the paper's tau = 1..6)")
    plans: Literal["sliding", "random", "fixed"] = Field(
        "sliding", description="Treatment sequences of the test queries"
    )
    twin: bool = Field(
        False,
        description="Target is the source's randomised twin: the same patients and noise, treatments by a fair coin",
        json_schema_extra={"flag": "--twin"},
    )
    paired: bool = Field(
        False,
        description="Source and target share patients and noise",
        json_schema_extra={"flag": "--paired/--unpaired"},
    )
    ends: bool = Field(
        False,
        description="Keep why each series ends: death, recovery, or neither",
        json_schema_extra={"flag": "--ends"},
    )
    visits: int | None = Field(
        None, ge=2, le=60, description="See and treat patients on random days alone, on average so many days apart"
    )
    seed: int = Field(10, ge=0, lt=2**63, description="Seed of the simulation")

    @model_validator(mode="before")
    @classmethod
    def _of_twin(cls, values: object) -> object:
        """Return the settings of a twin: sizes and draws of the source, no confounding."""
        if not isinstance(values, dict) or not values.get("twin"):
            return values
        sizes = {f"target_{name}": values[name] for name in ("train", "val", "test") if name in values}
        defaults = {f"target_{name}": cls.model_fields[name].default for name in ("train", "val", "test")}
        return {**values, **defaults, **sizes, "target_gamma": 0.0, "paired": True}


PROTOCOL: Final = Protocol(  # spec TUMOR-7
    settings={
        "gamma": 10.0,
        "target_gamma": 0.0,
        "train": 10_000,
        "val": 1_000,
        "test": 1_000,
        "target_train": 100,
        "target_val": 1_000,
        "target_test": 1_000,
        "steps": 60,
        "horizon": 6,
        "plans": "sliding",
    }
)

TUMOR: Final = DataSource(
    name="tumor",
    label="tumour",
    summary="Simulate tumour growth under chemotherapy and radiotherapy, with counterfactual test sets.",
    settings=TumorConfig,
    make="costar_cli.data.tumor.simulate:simulate_tumor",
    truth="costar_cli.data.tumor.simulate:tumor_truth",
    limit=Limit(
        predict="costar_cli.data.tumor.simulate:tumor_limit",
        unknown_with=("visit_day",),
        quantiles="costar_cli.data.tumor.simulate:tumor_quantiles",
    ),
    examples=("costar simulate tumor --gamma 10", "costar simulate tumor --preset quick --workspace demo"),
    panel="Cohort",
    protocol=PROTOCOL,
    possible={"tumour_volume": Possible(least=0), "patient_type": Possible(values=(1, 2, 3))},
)
