"""The linear-Gaussian panel: its settings, and what the registry tells of it (docs/spec/linear.md)."""

from typing import ClassVar, Final

from pydantic import Field

from costar_cli.data.base import EXPERT, DataSource, DropsConfounder, Limit


class LinearGaussianConfig(DropsConfounder):
    """A linear system under time-varying confounding, whose effects are known in closed form."""

    additions: ClassVar[tuple[str, ...]] = (*DropsConfounder.additions, "doses")
    gamma: float = Field(1.0, ge=0, le=10, description="Confounding strength of the source domain's policy")
    target_gamma: float = Field(0.0, ge=0, le=10, description="Confounding strength of the target domain's policy")
    treatment_effect: float = Field(-1.0, ge=-10, le=10, description="Direct effect on the next outcome")
    doses: bool = Field(
        False,
        description="Give doses that grow with the need for them, instead of a treatment that is on or off",
        json_schema_extra={"flag": "--doses"},
    )
    train: int = Field(1_000, ge=1, le=1_000_000, description="Source subjects for training")
    val: int = Field(300, ge=1, le=1_000_000, description="Source subjects for validation")
    test: int = Field(300, ge=1, le=1_000_000, description="Source subjects for testing")
    target_train: int = Field(50, ge=1, le=1_000_000, description="Target subjects for few-shot training")
    target_val: int = Field(300, ge=1, le=1_000_000, description="Target subjects for few-shot validation")
    target_test: int = Field(300, ge=1, le=1_000_000, description="Target subjects for testing")
    steps: int = Field(30, ge=3, le=1_000, description="Steps simulated per subject")
    horizon: int = Field(6, ge=2, le=100, description="Steps predicted from an origin")
    origins: int = Field(
        6, ge=1, le=1_000, description="Origins with counterfactual queries per test subject", json_schema_extra=EXPERT
    )
    random_plans: int = Field(
        2, ge=0, le=100, description="Plans per origin with random treatment at each step", json_schema_extra=EXPERT
    )
    seed: int = Field(10, ge=0, lt=2**63, description="Seed of the simulation")


LINEAR: Final = DataSource(
    name="linear",
    label="linear system",
    summary="Simulate a linear system under confounding, with expected outcomes in closed form as test sets.",
    settings=LinearGaussianConfig,
    make="costar_cli.data.linear.simulate:simulate_linear",
    dataset="linear-gaussian",
    truth="costar_cli.data.linear.simulate:linear_gaussian_truth",
    noisy="costar_cli.data.linear.simulate:linear_gaussian_outcomes",
    limit=Limit(predict="costar_cli.data.linear.simulate:linear_gaussian_truth"),  # expectations already
    examples=("costar simulate linear --gamma 4 --preset quick",),
    panel="Cohort",
)
