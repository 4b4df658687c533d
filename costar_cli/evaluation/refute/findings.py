"""What a refutation finds: expected and found values with intervals, and a verdict on each (spec REFUTE-3)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, Self

import numpy as np
from scipy.stats import chi2
from scipy.stats import t as student

LEVEL: Final = 0.95  # of the intervals of what refits find on average

Verdict = Literal["pass", "fail", "inconclusive"]
WORST: Final[Sequence[Verdict]] = ("fail", "inconclusive", "pass")


def verdict_of(lower: float, upper: float, margin: float) -> Verdict:
    """Return whether an interval of a difference lies within a margin around zero, outside of it, or neither."""
    if -margin <= lower and upper <= margin:
        return "pass"
    return "fail" if lower > margin or upper < -margin else "inconclusive"


@dataclass(frozen=True, slots=True)
class Finding:
    """One quantity of one test: what is expected, and what was found.

    `found` is a mean over refits with its interval `lower` to `upper`, `sd` the spread of single refits. A difference
    from `expected` up to `margin` passes. `values` are those of the refits; None where there are none.
    """

    test: str
    quantity: str
    unit: str
    expected: float
    found: float | None
    lower: float | None
    upper: float | None
    sd: float | None
    margin: float
    verdict: Verdict
    values: tuple[float, ...] = ()
    note: str = ""

    @classmethod
    def of_refits(
        cls, test: str, quantity: str, values: Sequence[float], *, expected: float, margin: float, unit: str = "sd"
    ) -> Self:
        """Return the finding of a quantity of several refits; of fewer than two nothing follows."""
        if len(values) < 2:
            return cls.without(test, quantity, "fewer than two refits", expected=expected, margin=margin, unit=unit)
        found, sd = float(np.mean(values)), float(np.std(values, ddof=1))
        half = float(student.ppf((1 + LEVEL) / 2, len(values) - 1)) * sd / len(values) ** 0.5
        lower, upper = found - half, found + half
        verdict = verdict_of(lower - expected, upper - expected, margin)
        return cls(test, quantity, unit, expected, found, lower, upper, sd, margin, verdict, tuple(map(float, values)))

    def of_spread(self) -> Self:
        """Return a finding of refits that is also about their spread: single ones, too, should lie within the margin.

        It fails where the lower limit of the sd's interval is beyond the margin, and passes only where the sd is not.
        """
        if self.sd is None or self.sd <= self.margin:
            return self
        freedom = len(self.values) - 1
        clearly = self.sd * float(freedom / chi2.ppf((1 + LEVEL) / 2, freedom)) ** 0.5 > self.margin
        note = f"single refits scatter by {self.sd:.2g} {self.unit}, the margin is {self.margin:.2g}"
        verdict: Verdict = "fail" if clearly or self.verdict == "fail" else "inconclusive"
        return replace(self, verdict=verdict, note=note)

    @classmethod
    def exact(cls, test: str, quantity: str, found: float, *, margin: float) -> Self:
        """Return the finding of a quantity that is known without chance and should be zero."""
        verdict: Verdict = "pass" if found <= margin else "fail"
        return cls(test, quantity, "sd", 0.0, found, found, found, None, margin, verdict)

    @classmethod
    def without(
        cls, test: str, quantity: str, why: str, *, expected: float = 0.0, margin: float = 0.0, unit: str = "sd"
    ) -> Self:
        """Return the finding where nothing could be found, and why."""
        return cls(test, quantity, unit, expected, None, None, None, None, margin, "inconclusive", (), why)

    @property
    def excess(self) -> float:
        """Return how far the interval reaches from what is expected, in margins."""
        if self.lower is None or self.upper is None:
            return 0.0
        return max(self.expected - self.lower, self.upper - self.expected) / max(self.margin, 1e-12)


@dataclass(frozen=True, slots=True)
class Refutation:
    """All findings about one model, in the order of the tests; `notes` say what the refits leave out."""

    model: str
    method: str
    refits: int
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Return the verdict of each test: the worst of its findings."""
        return {test: min((f.verdict for f in found), key=WORST.index) for test, found in self.by_test().items()}

    def by_test(self) -> dict[str, list[Finding]]:
        """Return the findings by test, the one that decides its verdict first."""
        tests: dict[str, list[Finding]] = {}
        for finding in sorted(self.findings, key=lambda f: (WORST.index(f.verdict), -f.excess)):
            tests.setdefault(finding.test, []).append(finding)
        order = list(dict.fromkeys(finding.test for finding in self.findings))
        return {test: tests[test] for test in order}

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON data."""
        return {**asdict(self), "verdicts": self.verdicts}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_json` returned."""
        facts = {name: value for name, value in document.items() if name != "verdicts"}
        found = tuple(Finding(**{**one, "values": tuple(one["values"])}) for one in facts["findings"])
        return cls(**{**facts, "findings": found, "notes": tuple(facts["notes"])})
