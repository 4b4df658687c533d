"""Refutation: refits on worlds with a known answer, and a verdict on what they find (spec REFUTE-1 to 4)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, stdtrit

from costar_cli.config.models import RefuteConfig
from costar_cli.data import Dataset, Part
from costar_cli.data.windows import FactualWindows, factual_windows
from costar_cli.errors import CostarError, DataError
from costar_cli.evaluation.worlds import (
    Contrast,
    contrasts,
    dummy_outcome,
    effects,
    errors,
    future_treatments,
    later_changes,
    part_of,
    placebo_treatment,
    random_covariate,
)
from costar_cli.methods.base import FittedModel
from costar_cli.reporting import Reporter, Task

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
        half = float(stdtrit(len(values) - 1, (1 + LEVEL) / 2)) * sd / len(values) ** 0.5
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
        clearly = self.sd * float(freedom / (2 * gammaincinv(freedom / 2, (1 + LEVEL) / 2))) ** 0.5 > self.margin
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


Floats = NDArray[np.float64]
Refit = Callable[[Dataset, int], FittedModel]
"""Fits the method again: to the source's subjects of a data set, with a seed."""

MOST_WINDOWS: Final = 400  # origins of the test subjects that effects are averaged over
HALF: Final = 0.5  # of the subjects are in each refit: the spread of refits is then the standard error of all of them
FLOOR: Final = 0.02  # sd: differences of effects that are no difference
ROUNDING: Final = 1e-3  # sd: of float32, over a horizon of steps
LEAST_GAIN: Final = 0.03  # share of the error: less than that is no gain
FAILS: Final = (CostarError, ArithmeticError, np.linalg.LinAlgError)

REFIT: Final = "cheap refit"
PLACEBO, COVARIATE, DUMMY, SUBSETS, FUTURE = (
    "placebo treatment", "random covariate", "dummy outcome", "random subsets", "future treatments",
)  # fmt: skip
WORLDS: Final[Mapping[str, Callable[[Dataset, np.random.Generator], Dataset]]] = {
    PLACEBO: placebo_treatment,
    COVARIATE: random_covariate,
    DUMMY: dummy_outcome,
    FUTURE: future_treatments,
}
ABOUT_REACTION: Final = (
    "later treatments tell of earlier outcomes: the policy reacts to what happens inside a plan, or treatments are "
    "recorded late; a method that reads a whole plan at once takes that for effects"
)


def n_refits(config: RefuteConfig) -> int:
    """Return how many refits a refutation takes."""
    return 1 + config.refits * (1 + len(WORLDS))


def refute(
    model: FittedModel, data: Dataset, refit: Refit, config: RefuteConfig, *, seed: int, reporter: Reporter, label: str
) -> list[Finding]:
    """Return what the tests find about a model and about refits of its method.

    Args:
        model: the model itself, of which the last test is.
        data: source-train and source-val to refit on, source-test to measure effects on (source-val without one).
        refit: fits the method.
        config: how often, and to how many subjects.
        seed: of what is drawn.
        reporter: hears of progress.
        label: what the model is called.

    A refit that fails leaves its test inconclusive, with the reason.

    Raises:
        DataError: no subject has a step to ask about, or all had the same treatments.
    """
    held_out = Part("source", "test" if Part("source", "test") in data.panels else "val")
    windows = _windows(data, held_out)
    asked = contrasts(data.panel("source", "train"), data.schema, windows.queries.horizon)
    if not asked:
        raise DataError("all training subjects had the same treatments: there is no effect to refute")
    with reporter.task(f"refute {label}", total=n_refits(config), unit="refit") as task:
        run = _Run(model, data, refit, config, seed, held_out, asked, task)
        run.fit_whole()
        for repetition in range(1, config.refits + 1):
            run.repeat(repetition)
    # whether the model itself reads what acts only after the answers
    plan, record = later_changes(model, windows, asked, model.scaler.outcomes[1])
    later = {"later steps of the plan": plan, "what is recorded after the origin": record}
    of_plans = [Finding.exact(FUTURE, name, moved, margin=ROUNDING) for name, moved in later.items()]
    return [*run.of_refit(windows), *run.of_effects(), *of_plans, run.of_gain()]


@dataclass
class _Run:
    """A refutation under way: what refits found so far, by test, and why others failed."""

    model: FittedModel
    data: Dataset
    refit: Refit
    config: RefuteConfig
    seed: int
    held_out: Part
    asked: Sequence[Contrast]
    task: Task
    whole_CY: Floats | None = None
    effects: dict[str, list[Floats]] = field(default_factory=dict)
    gains: list[float] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def sd_Y(self) -> Floats:
        sd_Y: Floats = self.model.scaler.outcomes[1]
        return sd_Y

    def fit_whole(self) -> None:
        """Fit to all subjects: what the others are compared with."""
        fitted = self._fit(SUBSETS, part_of(self.data, self.config.subjects, 1.0, self._rng(0)), 0)
        if fitted is not None:
            self.whole_CY = self._effects(SUBSETS, *fitted)

    def repeat(self, repetition: int) -> None:
        """Fit to a random half of the subjects, as they are and in every world."""
        half = part_of(self.data, self.config.subjects, HALF, self._rng(repetition))
        base = self._fit(SUBSETS, half, repetition)
        base_CY = self._effects(SUBSETS, *base) if base else None
        if base_CY is not None:
            self.effects.setdefault(SUBSETS, []).append(base_CY)
        for test, made in WORLDS.items():
            fitted = self._fit(test, made(half, self._rng(repetition, test)), repetition)
            if fitted is None or base is None:
                continue
            if test == FUTURE:
                error, before = (float(np.sqrt(errors(*one, self.sd_Y).mean())) for one in (fitted, base))
                self.gains.append(1 - error / before if before > 0 else 0.0)
                continue
            found_CY = self._effects(test, *fitted)
            if found_CY is not None and base_CY is not None and self.whole_CY is not None:
                moved_CY = found_CY - base_CY + self.whole_CY if test == COVARIATE else found_CY
                self.effects.setdefault(test, []).append(moved_CY)

    def of_refit(self, windows: FactualWindows) -> Iterator[Finding]:
        """Yield whether the refit to all subjects finds the effects that the model itself finds."""
        own_CY = self._effects(REFIT, self.model, windows)
        if own_CY is None or self.whole_CY is None:
            yield Finding.without(REFIT, "effects", self.failures.get(REFIT) or self.failures[SUBSETS])
            return
        for c, y, name in self._named():
            own, found = float(own_CY[c, y]), float(self.whole_CY[c, y])
            alike = abs(found - own) <= (margin := self._margin(own))
            verdict: Verdict = "pass" if alike else "inconclusive"
            note = "" if alike else "what refits show may not hold of the model, whose effects are others"
            yield Finding(REFIT, name, "sd", own, found, found, found, None, margin, verdict, (), note)

    def of_effects(self) -> Iterator[Finding]:
        """Yield what the tests of effects found, by contrast and outcome."""
        for test, is_whole in {PLACEBO: False, COVARIATE: True, DUMMY: False, SUBSETS: True}.items():
            for c, y, name in self._named():
                whole = 0.0 if self.whole_CY is None else float(self.whole_CY[c, y])
                values = [float(found_CY[c, y]) for found_CY in self.effects.get(test, ())]
                expected, margin = whole if is_whole else 0.0, self._margin(whole)
                found = Finding.of_refits(test, name, values, expected=expected, margin=margin)
                yield self._explained(found.of_spread() if test == SUBSETS else found)

    def _named(self) -> Iterator[tuple[int, int, str]]:
        outcomes = self.data.schema.outcomes
        for c, y in np.ndindex(len(self.asked), len(outcomes)):
            yield c, y, f"{self.asked[c].name}, {outcomes[y].name}" if len(outcomes) > 1 else self.asked[c].name

    def _margin(self, effect: float) -> float:
        return max(self.config.margin * abs(effect), FLOOR)

    def of_gain(self) -> Finding:
        """Return what treatments beyond the horizon add: no more than an open question follows from a gain."""
        found = Finding.of_refits(
            FUTURE, "gain as predictors", self.gains, expected=0.0, margin=LEAST_GAIN, unit="share of the error"
        )
        if found.upper is not None and found.upper <= LEAST_GAIN:
            return replace(found, verdict="pass")
        if found.lower is not None and found.lower > LEAST_GAIN:
            # A policy that reacts to outcomes makes tomorrow's treatment tell of today's outcome, so that this gain is
            # no failure. Correcting it by a model of the policy helps nothing: given the history, both tell the same.
            return replace(found, verdict="inconclusive", note=ABOUT_REACTION)
        return self._explained(found)

    def _explained(self, finding: Finding) -> Finding:
        """Return a finding with the reason why refits failed, where some did: then nothing passes."""
        why = self.failures.get(finding.test) or self.failures.get(SUBSETS)
        if why is None:
            return finding
        return replace(finding, note=why, verdict="fail" if finding.verdict == "fail" else "inconclusive")

    def _fit(self, test: str, data: Dataset, repetition: int) -> tuple[FittedModel, FactualWindows] | None:
        """Return the method fitted again, with the questions to ask it; None where it fails, which is kept."""
        try:
            return self.refit(data, self.seed + repetition), _windows(data, self.held_out)
        except FAILS as error:
            self._failed(test, error)
            return None
        finally:
            self.task.advance()

    def _effects(self, test: str, model: FittedModel, windows: FactualWindows) -> Floats | None:
        try:
            return effects(model, windows, self.asked, self.sd_Y)
        except FAILS as error:
            self._failed(test, error)
            return None

    def _failed(self, test: str, error: Exception) -> None:
        self.failures[test] = f"a refit failed: {error.problem if isinstance(error, CostarError) else error}"

    def _rng(self, repetition: int, world: str = "") -> np.random.Generator:
        return np.random.default_rng([self.seed, repetition, *world.encode()])


def _windows(data: Dataset, part: Part) -> FactualWindows:
    windows = factual_windows(data.panels[part], data.horizon, most=MOST_WINDOWS)
    if windows is None:
        raise DataError(f"no subject of {part} has a step to ask about")
    return windows
