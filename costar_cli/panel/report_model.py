"""What a data report says: plain numbers, by part, domain, variable and step."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from costar_cli.panel.dataset import Domain
from costar_cli.panel.findings import Finding

__all__ = [
    "CourseOfOutcome",
    "DataReport",
    "LevelUse",
    "MissingValues",
    "OutcomeSummary",
    "PartSummary",
    "Shift",
]


@dataclass(frozen=True, slots=True)
class PartSummary:
    """A part: subjects, their steps, and how many questions are asked about them."""

    part: str
    subjects: int
    steps: int
    shortest: int
    median: float
    longest: int
    queries: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class MissingValues:
    """How much of a variable was missing: shares by part where a mask tells, counts where ingestion did."""

    variable: str
    share: float
    by_part: Mapping[str, float]
    carried: int | None = None
    learned: int | None = None


@dataclass(frozen=True, slots=True)
class LevelUse:
    """How often a treatment has a level, of the steps that have a next one: overall, and by step.

    `by_step` holds None where fewer than five subjects decide.
    """

    treatment: str
    level: str
    domain: Domain
    share: float
    by_step: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class CourseOfOutcome:
    """Quartiles of an outcome by step; None where fewer than five subjects are observed."""

    lower: tuple[float | None, ...]
    median: tuple[float | None, ...]
    upper: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class OutcomeSummary:
    """An outcome in a domain: moments, quantiles at 0, 5, 25, 50, 75, 95 and 100 %, histogram, course over time.

    All of it is about the steps where the outcome was observed, a share `observed` of all. The two domains share the
    `edges` of their histograms.
    """

    outcome: str
    unit: str
    domain: Domain
    observed: float
    mean: float
    sd: float
    quantiles: tuple[float, ...]
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    course: CourseOfOutcome


@dataclass(frozen=True, slots=True)
class Shift:
    """A variable in both domains, and its standardised mean difference.

    That is (target mean - source mean) / sqrt((source variance + target variance) / 2), over all observed steps (over
    subjects for statics); None where neither varies and the means differ.
    """

    role: str
    variable: str
    source_mean: float
    source_sd: float
    target_mean: float
    target_sd: float
    difference: float | None


@dataclass(frozen=True, slots=True)
class DataReport:
    """Everything that a data report shows."""

    name: str
    digest: str
    step: str
    horizon: int
    parts: tuple[PartSummary, ...]
    lengths: Mapping[Domain, tuple[int, ...]]
    missing: tuple[MissingValues, ...]
    treatments: tuple[LevelUse, ...]
    outcomes: tuple[OutcomeSummary, ...]
    shifts: tuple[Shift, ...]
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return asdict(self)
