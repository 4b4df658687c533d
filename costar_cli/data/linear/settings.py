"""The linear-Gaussian panel: its settings, and what the registry tells of it (docs/spec/linear.md)."""

from typing import ClassVar, Final

from pydantic import Field

from costar_cli.data.base import CohortConfig, DataSource, DropsConfounder, Limit


class LinearGaussianConfig(CohortConfig, DropsConfounder):
    """A linear system under time-varying confounding, whose effects are known in closed form."""

    additions: ClassVar[tuple[str, ...]] = (*DropsConfounder.additions, "doses")
    treatment_effect: float = Field(-1.0, ge=-10, le=10, description="Direct effect on the next outcome")
    doses: bool = Field(
        False,
        description="Give doses that grow with the need for them, instead of a treatment that is on or off",
        json_schema_extra={"flag": "--doses"},
    )


LINEAR: Final = DataSource(
    name="linear",
    label="linear system",
    summary="Simulate a linear system under confounding, with expected outcomes in closed form as test sets.",
    settings=LinearGaussianConfig,
    make="costar_cli.data.linear.simulate:simulate_linear",
    dataset="linear-gaussian",
    truth="costar_cli.data.linear.simulate:linear_gaussian_truth",
    noisy="costar_cli.data.linear.simulate:linear_gaussian_outcomes",
    limit=Limit(
        predict="costar_cli.data.linear.simulate:linear_gaussian_truth",  # expectations already
        quantiles="costar_cli.data.linear.simulate:linear_gaussian_quantiles",
    ),
    examples=("costar simulate linear --gamma 4 --preset quick",),
    panel="Cohort",
)
