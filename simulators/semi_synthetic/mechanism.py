"""What drives outcomes and treatments, constant by constant (spec ICU-6, ICU-7, ICU-10)."""

from dataclasses import dataclass
from typing import Final

from simulators.icu import COVARIATES

__all__ = ["OUTCOMES", "TREATMENTS", "Mechanism", "OutcomeMechanism", "TreatmentMechanism", "columns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """A random Fourier function f of `covariates`, with kernel exp(-gamma |x-x'|²) and prior sd `scale` / 10.

    It counts `covariate_weight`.
    """

    name: str
    covariates: tuple[str, ...]
    gamma: float
    scale: float
    covariate_weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeMechanism(Mechanism):
    """An outcome without treatment: Z(t) = covariate_weight f(X(t)) + path_weight g(t) + trend_weight B(t).

    g is the patient's own Gaussian process path: Matérn covariance of smoothness 5/2 and length `path_hours`, variance
    1, plus white noise of variance `path_noise`. B is the patient's spline trend over the stay.
    """

    path_hours: float
    path_noise: float
    path_weight: float
    trend_weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TreatmentMechanism(Mechanism):
    """A treatment: when it is given, and what it does.

    It is given at t with probability sigmoid(bias + outcome_weight m(t) + covariate_weight f(X(t))): m is the mean of
    the confounding outcomes (`confounders`, positions in `OUTCOMES`) over hours max(0, t - look_back)..t. Given with
    probability p, it adds `full_effect` p / sqrt(d) to the outcomes in `acts_on`, d = 1..`effect_hours` hours later.
    """

    confounders: tuple[int, ...]
    look_back: int
    outcome_weight: float
    bias: float
    full_effect: float
    effect_hours: int
    acts_on: tuple[int, ...]

    def __post_init__(self) -> None:
        # simultaneous effects combine by their minimum, which means "the strongest" for lowering effects alone
        if self.full_effect >= 0:
            raise ValueError(f"treatment {self.name} must lower its outcomes: full_effect {self.full_effect} < 0")


# All constants: CT's configuration of the semi-synthetic benchmark, Melnychuk, Frauen & Feuerriegel 2022
OUTCOMES: Final = (
    OutcomeMechanism(
        name="y1",
        covariates=("heart rate", "glucose", "sodium"),
        gamma=0.005,
        scale=40.0,
        covariate_weight=0.9,
        path_hours=25.0,
        path_noise=0.005,
        path_weight=0.4,
        trend_weight=2.0,
    ),
    OutcomeMechanism(
        name="y2",
        covariates=("heart rate", "glucose", "anion gap"),
        gamma=0.005,
        scale=40.0,
        covariate_weight=1.0,
        path_hours=25.0,
        path_noise=0.001,
        path_weight=0.5,
        trend_weight=3.5,
    ),
)
TREATMENTS: Final = (
    TreatmentMechanism(
        name="t1",
        covariates=("blood urea nitrogen", "glucose", "sodium"),
        gamma=0.01,
        scale=30.0,
        confounders=(0,),
        look_back=3,
        outcome_weight=2.5,
        covariate_weight=2.5,
        bias=0.0,
        full_effect=-1.0,
        effect_hours=20,
        acts_on=(0,),
    ),
    TreatmentMechanism(
        name="t2",
        covariates=("systemic vascular resistance", "bicarbonate", "anion gap"),
        gamma=0.01,
        scale=30.0,
        confounders=(0, 1),
        look_back=3,
        outcome_weight=2.0,
        covariate_weight=0.25,
        bias=1.0,
        full_effect=-1.0,
        effect_hours=20,
        acts_on=(0, 1),
    ),
    TreatmentMechanism(
        name="t3",
        covariates=(
            "chloride urine",
            "glucose",
            "sodium",
            "systemic vascular resistance",
            "magnesium",
            "anion gap",
        ),
        gamma=0.01,
        scale=30.0,
        confounders=(1,),
        look_back=20,
        outcome_weight=1.5,
        covariate_weight=0.25,
        bias=0.0,
        full_effect=-0.75,
        effect_hours=7,
        acts_on=(1,),
    ),
)


def columns(mechanism: Mechanism) -> list[int]:
    """Return the positions of a mechanism's covariates among the 25."""
    return [COVARIATES.index(name) for name in mechanism.covariates]
