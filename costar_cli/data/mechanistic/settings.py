"""Cohorts of differential equations: their settings, and what the registry tells of them (docs/spec/mechanistic.md)."""

from typing import Final

from pydantic import Field

from costar_cli.data.base import KNOWS_HIDDEN_STATE, CohortConfig, DataSource, Limit


class GlucoseConfig(CohortConfig):
    """Glucose under meals and boluses of insulin (docs/spec/glucose.md)."""

    steps: int = Field(48, ge=3, le=1_000, description="Half hours simulated per patient")
    horizon: int = Field(6, ge=2, le=100, description="Half hours predicted from an origin")


class HIVConfig(CohortConfig):
    """HIV under two drugs (docs/spec/hiv.md)."""

    steps: int = Field(40, ge=3, le=1_000, description="Steps of five days simulated per patient")


class WarfarinConfig(CohortConfig):
    """INR under daily warfarin (docs/spec/warfarin.md)."""

    target_gamma: float = Field(0.25, ge=0, le=10, description="Confounding strength of the target domain's policy")
    steps: int = Field(40, ge=3, le=1_000, description="Days simulated per patient")
    horizon: int = Field(7, ge=2, le=100, description="Days predicted from an origin")


def _source(name: str, label: str, about: str, dataset: str, settings: type[CohortConfig]) -> DataSource:
    return DataSource(
        name=name,
        label=label,
        summary=f"Simulate {about}, with counterfactual test sets.",
        settings=settings,
        make="costar_cli.data.mechanistic.simulate:simulate_mechanistic",
        dataset=dataset,
        truth="costar_cli.data.mechanistic.simulate:mechanistic_truth",
        limit=Limit(predict="costar_cli.data.mechanistic.simulate:mechanistic_mean", label=KNOWS_HIDDEN_STATE),
        examples=(f"costar simulate {name} --gamma 2 --preset quick",),
        panel="Cohort",
    )


GLUCOSE: Final = _source(
    "glucose", "glucose", "glucose under meals and boluses of insulin", "glucose-insulin", GlucoseConfig
)
HIV: Final = _source("hiv", "HIV", "HIV under two drugs", "hiv-drugs", HIVConfig)
WARFARIN: Final = _source("warfarin", "warfarin", "INR under daily warfarin", "warfarin-inr", WarfarinConfig)
