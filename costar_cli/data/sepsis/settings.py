"""Sepsis in intensive care: its settings, and what the registry tells of it (docs/spec/sepsis.md)."""

from typing import Final

from pydantic import Field

from costar_cli.data.base import CohortConfig, DataSource, Limit


class SepsisConfig(CohortConfig):
    """Sepsis in intensive care, the process of the package icu-sepsis (docs/spec/sepsis.md)."""

    steps: int = Field(20, ge=3, le=1_000, description="Steps of four hours simulated per patient, at most")
    horizon: int = Field(5, ge=2, le=100, description="Steps of four hours predicted from an origin")


SEPSIS: Final = DataSource(
    name="sepsis",
    label="sepsis",
    summary="Simulate sepsis in intensive care (needs `costar[icu-sepsis]`), with expected outcomes as test sets.",
    settings=SepsisConfig,
    make="costar_cli.data.sepsis.simulate:simulate_sepsis",
    dataset="icu-sepsis",
    truth="costar_cli.data.sepsis.simulate:sepsis_truth",
    noisy="costar_cli.data.sepsis.simulate:sepsis_outcomes",
    limit=Limit(predict="costar_cli.data.sepsis.simulate:sepsis_truth"),  # expectations already
    examples=("costar simulate sepsis --preset quick",),
    panel="Cohort",
)
