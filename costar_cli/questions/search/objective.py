"""What a search makes small or large: outcomes of a plan's course, and what its treatments cost (spec SEARCH-1)."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.nearest import did_you_mean
from costar_cli.data import PanelSchema, Values
from costar_cli.inference import OutcomeFacts
from costar_cli.plans.untrusted import Problems
from costar_cli.questions.search.constraints import FEW, Given, given_of

Statistic = Literal["at", "mean", "area", "maximum", "minimum", "above", "below", "within"]

WORDS: Final[dict[str, Statistic]] = {
    "mean": "mean", "average": "mean", "auc": "area", "cmax": "maximum", "cmin": "minimum",
    "maximum": "maximum", "max": "maximum", "minimum": "minimum", "min": "minimum",
}  # fmt: skip
TIMES: Final = ("above", "below", "within")  # numbers of steps
KINDS: Final = "`at end`, `at step N`, `mean`, `maximum`, `minimum`, `AUC`, `time above X`, `below X` or `in X to Y`"
_TERM = re.compile(
    r"(?P<name>.+?)\s+(?:at\s+(?P<end>end)|at\s+step\s+(?P<step>\S+)|"
    rf"(?P<word>{'|'.join(WORDS)})|time\s+(?P<side>above|below)\s+(?P<level>\S+)|"
    r"time\s+(?P<inside>in|within)\s+(?P<low>\S+)\s+to\s+(?P<high>\S+))\s*",
    re.IGNORECASE,
)
_WEIGHT = re.compile(r"\s*(?P<weight>\d+(?:\.\d*)?|\.\d+)\s*(?:\*|x\s|\s)\s*(?P<rest>\S.*)")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Term:
    """One number of a course: of an outcome, at a step (from 0) or over all; `weight` is negative to enlarge it."""

    outcome: int
    statistic: Statistic
    weight: float
    step: int = 0
    level: float = 0.0
    upper: float = 0.0

    def of(self, y_HY: Floats) -> Floats:
        """Return the number of each course, `[...]` of outcomes `[...,H,Y]`."""
        y_H = y_HY[..., self.outcome]
        if self.statistic == "at":
            return np.asarray(y_H[..., self.step])
        if self.statistic in ("above", "below"):
            beyond = y_H > self.level if self.statistic == "above" else y_H < self.level
            return np.asarray(beyond.sum(axis=-1, dtype=np.float64))
        if self.statistic == "within":
            return np.asarray(((y_H >= self.level) & (y_H <= self.upper)).sum(axis=-1, dtype=np.float64))
        if self.statistic in ("mean", "area"):
            return np.asarray(y_H.mean(axis=-1) if self.statistic == "mean" else y_H.sum(axis=-1))
        return np.asarray(y_H.max(axis=-1) if self.statistic == "maximum" else y_H.min(axis=-1))

    @property
    def linear(self) -> bool:
        """Return whether the number of a mean course is the mean number."""
        return self.statistic in ("at", "mean", "area")

    def unit(self, schema: PanelSchema) -> str:
        """Return the unit of the number."""
        own = schema.outcomes[self.outcome].unit
        return "steps" if self.statistic in TIMES else f"{own} steps".strip() if self.statistic == "area" else own

    def bounds(self, facts: OutcomeFacts | None, steps: int) -> tuple[float, float]:
        """Return the smallest and the largest number that can occur, with its weight."""
        low, high = (None, None) if facts is None else (facts.lower[self.outcome], facts.upper[self.outcome])
        times = steps if self.statistic == "area" else 1
        low, high = (None if bound is None else times * bound for bound in (low, high))
        if self.statistic in TIMES:
            low, high = 0.0, float(steps)
        low, high = -math.inf if low is None else low, math.inf if high is None else high
        ends = sorted((self.weight * low, self.weight * high))
        return ends[0], ends[1]


@dataclass(frozen=True, slots=True)
class Cost:
    """What each use of a treatment costs, or each unit of a dose, in units of the objective."""

    given: Given
    each: float


@dataclass(frozen=True, slots=True)
class Objective:
    """A sum of terms and costs. Searches make its `loss` small; `sign` turns losses into what people see.

    `sign` is -1 where all terms are to be large, so that more is better then.
    """

    terms: tuple[Term, ...]
    costs: tuple[Cost, ...]
    steps: int
    sign: int
    text: str
    unit: str

    @classmethod
    def parse(
        cls,
        schema: PanelSchema,
        steps: int,
        problems: Problems,
        *,
        minimise: Sequence[str] = (),
        maximise: Sequence[str] = (),
        cost: Sequence[str] = (),
    ) -> Self:
        """Read an objective as flags give it; what is wrong is added to the problems."""
        found = [(1, text, _term(text, "--minimise", 1.0, schema, steps, problems)) for text in minimise]
        found += [(-1, text, _term(text, "--maximise", -1.0, schema, steps, problems)) for text in maximise]
        if not found:
            fix = f'such as --minimise "{schema.outcomes[0].name} at end"'
            problems.add("no objective is given: add --minimise or --maximise", fix=fix)
        sign = 1 if minimise or not maximise else -1
        signed = [f"{'+' if side * sign > 0 else '-'} {' '.join(text.split())}" for side, text, _ in found]
        words = " ".join(signed).removeprefix("+ ")
        costs: list[Cost] = []
        for text in cost:
            name, _, number = text.strip().rpartition(" ")
            each = _number(number)
            if not name or each is None:
                problems.add(f"--cost: {text!r} is not a treatment and a number", fix='write --cost "TREATMENT 0.5"')
            elif given := given_of(name, "--cost", schema.treatments, problems):
                costs.append(Cost(given, each))
                what = given.name  # `chemotherapy` or `dose=5`; of any amount of a dose `mg of dose`
                if given.dose and given.level is None:
                    unit = schema.treatments.doses[given.treatment - len(schema.treatments.names)].unit
                    what = f"{unit or 'unit'} of {what}"
                words += f" {'+' if sign * each >= 0 else '-'} {abs(each):g} per {what}"
        terms = tuple(term for _, _, term in found if term)
        units = {term.unit(schema) for term in terms}
        verb = "minimise" if sign > 0 else "maximise"
        return cls(terms, tuple(costs), steps, sign, f"{verb} {words}", units.pop() if len(units) == 1 else "")

    def loss(self, y_HY: Floats, cost: Floats | float = 0.0) -> Floats:
        """Return what a search makes small, `[...]`, of courses `[...,H,Y]` and the costs of their plans."""
        return np.asarray(sum((term.weight * term.of(y_HY) for term in self.terms), np.asarray(cost, dtype=np.float64)))

    def shown(self, loss: Floats | float) -> Floats:
        """Return losses as people see them: a larger one is better where all terms are to be large."""
        return np.asarray(self.sign * np.asarray(loss) + 0.0)  # no difference is 0, not -0

    def costs_of(self, values_KA: Values) -> Floats:
        """Return what the treatments of one step cost, `[K]`."""
        every = [cost.each * cost.given.amount(values_KA) for cost in self.costs]
        return np.sum(every, axis=0) if every else np.zeros(len(values_KA))

    @property
    def linear(self) -> bool:
        """Return whether the loss of a mean course is the mean loss."""
        return all(term.linear for term in self.terms)

    @property
    def concerns(self) -> list[tuple[int, int]]:
        """Return the steps and outcomes on which it depends."""
        every = {(h, term.outcome) for term in self.terms for h in range(self.steps)
                 if term.statistic != "at" or h == term.step}  # fmt: skip
        return sorted(every)

    def reads_binary(self, schema: PanelSchema) -> bool:
        """Return whether any outcome that it depends on is binary."""
        return any(schema.outcomes[term.outcome].kind == "binary" for term in self.terms)

    @property
    def read(self) -> list[int]:
        """Return the steps whose outcomes it reads, the last one for what is over all of them."""
        return sorted({term.step if term.statistic == "at" else self.steps - 1 for term in self.terms})

    @property
    def single(self) -> tuple[tuple[int, int], float] | None:
        """Return step and outcome, and the weight, of an objective that is one outcome at one step, costs apart."""
        one = len(self.terms) == 1 and self.terms[0].statistic == "at"
        return (self.concerns[0], self.terms[0].weight) if one else None

    def bounds(self, facts: OutcomeFacts | None) -> tuple[float, float]:
        """Return the smallest and the largest loss that can occur, costs apart."""
        every = [term.bounds(facts, self.steps) for term in self.terms]
        return sum(low for low, _ in every), sum(high for _, high in every)


def _term(text: str, flag: str, sign: float, schema: PanelSchema, steps: int, problems: Problems) -> Term | None:
    names, weight, rest = [outcome.name for outcome in schema.outcomes], sign, text.strip()
    match, weighted = _TERM.fullmatch(rest), _WEIGHT.fullmatch(rest)
    if weighted and not (match and match["name"] in names):
        weight, rest = sign * float(weighted["weight"]), weighted["rest"]
        match = _TERM.fullmatch(rest)
    if match is None:
        such = f'such as {flag} "{rest if rest in names else names[0]} at end"'
        problems.add(f"{flag}: {text!r} does not say what of an outcome: end it with {KINDS}", fix=such)
    elif match["name"] not in names:
        near = did_you_mean(match["name"], names, lead="; ", quoted=True)
        known = f"outcomes are {', '.join(names[:FEW])}" + ", ..." * (len(names) > FEW)
        if match["name"].lower() == "survival" and any(end.terminal for end in schema.ends):
            known = "a search makes outcomes small or large; survival under each plan is shown next to its answers"
        problems.add(f"{flag}: there is no outcome {match['name']!r}{near}", fix=known)
    else:
        return _number_of(match, Term(names.index(match["name"]), "mean", weight), flag, steps, problems)
    return None


def _number_of(match: re.Match[str], term: Term, flag: str, steps: int, problems: Problems) -> Term | None:
    """Return the term with what the match says of its outcome."""
    made: Term | None = None
    if match["word"]:
        made = replace(term, statistic=WORDS[match["word"].lower()])
    elif match["side"]:
        if (level := _number(match["level"])) is None:
            such = f'such as {flag} "{match["name"]} time {match["side"].lower()} 30"'
            problems.add(f"{flag}: {match['level']!r} in {match[0]!r} is not a number", fix=such)
        else:
            made = replace(term, statistic="above" if match["side"].lower() == "above" else "below", level=level)
    elif match["inside"]:
        low, high = _number(match["low"]), _number(match["high"])
        if low is None or high is None or not low < high:
            such = f'such as {flag} "{match["name"]} time in 5 to 15"'
            problems.add(f"{flag}: {match[0]!r} does not name a number and a larger one", fix=such)
        else:
            made = replace(term, statistic="within", level=low, upper=high)
    else:
        step = steps if match["end"] else int(match["step"]) if match["step"].isdecimal() else 0
        if 1 <= step <= steps:
            made = replace(term, statistic="at", step=step - 1)
        else:
            fix = f"choose a step from 1 to {steps}"
            problems.add(f"{flag}: {match[0]!r} asks for a step that plans of {steps} steps do not have", fix=fix)
    return made


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
