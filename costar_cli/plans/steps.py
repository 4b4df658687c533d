"""Reads the steps of plans, how long they last, and when visits are (spec PLAN-1, PLAN-8); problems are collected."""

import re
from decimal import Decimal
from typing import Final

import numpy as np

from costar_cli.config.nearest import did_you_mean
from costar_cli.data import PanelSchema, TreatmentEncoding
from costar_cli.data.calendar import Date
from costar_cli.data.dose import Dose
from costar_cli.data.findings import counted
from costar_cli.data.levels import are_doses, as_number, find_level, known_levels
from costar_cli.data.visits import AFTER, AT
from costar_cli.plans.plan import KEEPS_DATES, IndexTimes, date_of
from costar_cli.plans.untrusted import JsonObject, Problems, shown

FEW: Final = 6  # alternatives that fit in one line of a message
CLASSES = 'only levels that occur in the data can be asked about: ingest a dose as `kind = "continuous"`'


class StepReader:
    """Turns parsed JSON into steps of treatment levels."""

    def __init__(
        self, schema: TreatmentEncoding | PanelSchema, horizon: int, problems: Problems, start: int | IndexTimes | None
    ) -> None:
        self.schema = None if isinstance(schema, TreatmentEncoding) else schema
        self.encoding = schema if isinstance(schema, TreatmentEncoding) else schema.treatments
        self.horizon = horizon
        self.problems = problems
        self.moments = start if isinstance(start, IndexTimes) else None
        self.start = start.step if isinstance(start, IndexTimes) else start
        named = list(zip(self.encoding.names, self.encoding.levels, strict=True))
        known = [f"{name} ({known_levels(levels)})" for name, levels in named[:FEW]] + ["..."] * (len(named) > FEW)
        known += [f"{dose.name} (a number; {dose.range} were given)" for dose in self.encoding.doses]
        self.known = f"treatments of this data set: {', '.join(known)}"

    def check_keys(self, said: JsonObject, known: tuple[str, ...], where: str) -> None:
        """Add keys that are unknown, or written more than once."""
        for key in sorted(set(said) - set(known)):
            self.problems.add(f"unknown key {shown(key)}{self.hint(key, known)}", where)
        for key in said.repeated:
            self.problems.add(f"{shown(key)} is written more than once", where)

    def lasting(self, said: JsonObject, where: str, before: int = 0, *, each: int = 1) -> int:
        """Return the steps of what has `times`, of so many steps `each`, or `until`; one where that is not known."""
        if not each:
            self.problems.add("`repeat` is empty", where, fix="give it a step or a list of steps")
        if ("times" in said) == ("until" in said):
            both = "both `times` and `until`" if "times" in said else "neither `times` nor `until`: it never ends"
            fix = 'say how often, "times": 6, or up to which step, "until": "end" or "until": 36'
            self.problems.add(f"there is {both}", where, fix=fix)
            return 1
        if "times" in said:
            return self.times(said["times"], where) * each
        left = self.until(said["until"], where) - before
        if left < 1:
            come = counted(before, "step comes", "steps come")
            self.problems.add(f"`until` {said['until']} leaves no step: {come} before it", where)
        return max(1, left)

    def own_steps(self, said: JsonObject, where: str) -> int:
        """Return how many steps a rule or a shift has, at most the horizon."""
        steps = self.lasting(said, where)
        if steps > self.horizon:
            fix = f"give 1 to {self.horizon} steps, or train on data of a longer `horizon`"
            self.problems.add(f"has {steps:,} steps; the model answers plans of 1 to {self.horizon}", where, fix=fix)
        return min(steps, self.horizon)

    def times(self, times: object, where: str) -> int:
        """Return how often something is repeated, once where that is not understood."""
        if isinstance(times, int) and not isinstance(times, bool) and times >= 1:
            return times
        self.problems.add(f"`times` must be a whole number from 1, not {shown(times)}", where)
        return 1

    def until(self, until: object, where: str) -> int:
        """Return how many steps a plan has whose last outcome is that of a step or a date; `end` is the horizon's."""
        if until == "end":
            return self.horizon
        ahead = self.ahead(until, f"`until` {until}" if isinstance(until, int) else "`until`", where, end=True)
        if ahead is not None and not 1 <= ahead <= self.horizon:
            self.problems.add(f"`until` {until} is not among the steps that the model predicts{self.of(1)}", where)
        return ahead if ahead is not None and 1 <= ahead <= self.horizon else self.horizon

    def ahead(self, said: object, what: str, where: str, *, end: bool = False) -> int | None:
        """Return how many steps after the origin a step or a date, or its `end`, is, None where that is not known."""
        date = Date.parse(said) if self.moments is None else date_of(self.moments.panel, said)
        if date is None and isinstance(said, int) and not isinstance(said, bool):
            if self.start is None:
                fix = 'add "origin" to the file or --origin to the command, or write "times"'
                self.problems.add(f"{what} means nothing where each subject has its own origin", where, fix=fix)
            return None if self.start is None else said - self.start
        if date is None:
            forms = ["the number of a step", 'a date such as "2024-03-01"', *['"end"'] * end]
            problem = f"{what} must be {' or '.join(forms)}, not {shown(said)}"
            fix = f"give {' or '.join(forms)}"
            self.problems.add(problem, where, fix=fix)
            return None
        try:
            if self.moments is None:
                raise ValueError("no subjects with dates are asked about from one origin")
            steps = sorted(set(self.moments.steps_to(date, end=end).tolist()))
        except ValueError as error:
            self.problems.add(f"{what} cannot be the date {date}: {error}", where, fix=KEEPS_DATES)
            return None
        if len(steps) > 1:
            apart = f"{steps[0]} to {steps[-1]} steps after the origins of the subjects"
            fix = "give an origin that all subjects have at the same date, or write steps"
            self.problems.add(f"{what} {date} is {apart}", where, fix=fix)
        return steps[0] if len(steps) == 1 else None

    def of(self, first: int) -> str:
        """Return which steps a plan is about, for a message, from so many after the origin on."""
        return "" if self.start is None else f", {self.start + first} to {self.start + first + self.horizon - 1}"

    def step(self, step: object, where: str, number: int | None = None, *, whole: bool = True) -> list[float] | None:
        """Return the levels and doses of a step, None where something is wrong with it.

        Its combination is checked where it is the `whole` of what is given.
        """
        if not isinstance(step, JsonObject):
            problem = f"a step must be an object such as {{}} or {{{shown(self.encoding.all_names[0])}: 1}}"
            self.problems.add(f"{problem}, not {shown(step)}", where, number, fix=self.known)
            return None
        for key in step.repeated:
            self.problems.add(f"{shown(key)} is written more than once", where, number)
        if rules := {"rule", "shift", "natural", "odds"} & set(step) - set(self.encoding.all_names):
            fix = 'write {"name": {"rule": "treatment if outcome > 30", "times": 6}}, without a list'
            self.problems.add(f"`{min(rules)}` is the whole plan, not one of its steps", where, number, fix=fix)
            return None
        for key in step:
            if key not in self.encoding.all_names:
                hint = self.hint(key, self.encoding.all_names)
                self.problems.add(f"no treatment {shown(key)}{hint}", where, number, fix=self.known)
        values = [
            self.value(step[name], name, levels, where, number) if name in step else 0
            for name, levels in zip(self.encoding.names, self.encoding.levels, strict=True)
        ]
        doses = [self.dose(step[dose.name], dose, where, number) if dose.name in step else dose.elapsed or 0.0
                 for dose in self.encoding.doses]  # fmt: skip
        known = [value for value in values if value is not None]
        amounts = [dose for dose in doses if dose is not None]
        if len(known) < len(values) or len(amounts) < len(doses):
            return None
        if whole:
            self.check_combination(known, where, number)
        return [*known, *amounts]

    def dose(self, value: object, dose: Dose, where: str, number: int | None) -> float | None:
        """Return the number that a value of a dose is."""
        amount, problem = read_dose(value, dose)
        if problem:
            self.problems.add(f"{shown(dose.name)} cannot be {shown(value)}: {problem}", where, number, fix=self.known)
        return None if problem else amount

    def value(self, value: object, name: str, levels: tuple[str, ...], where: str, number: int | None) -> int | None:
        """Return the place of the level that a value names."""
        place = find_level(value, levels)
        if place is not None:
            return place
        hint = self.hint(value, levels) if isinstance(value, str) else ""
        problem = f"{shown(name)} cannot be {shown(value)}{hint or f'; it takes {known_levels(levels)}'}"
        dose = isinstance(value, int | float) and not isinstance(value, bool) and are_doses(levels)
        self.problems.add(problem, where, number, fix=f"{self.known}; {CLASSES}" if dose else self.known)
        return None

    def hint(self, name: str, known: tuple[str, ...]) -> str:
        """Return a guess at what was meant."""
        return "" if self.problems.full else did_you_mean(name, known, lead="; ", quoted=True)

    def check_combination(self, values: list[int], where: str, number: int | None) -> None:
        """Add a combination of treatments that does not occur in the data set."""
        classes = self.encoding.classes
        if not classes or tuple(values) in classes:
            return
        known = ", ".join(self.encoding.columns[:FEW]) + (f" and {len(classes) - FEW} more" * (len(classes) > FEW))
        named = zip(self.encoding.names, self.encoding.levels, values, strict=True)
        wanted = ", ".join(f"{name}={levels[value]}" for name, levels, value in named)
        problem = f"the combination {wanted} does not occur in the data set; known: {known}"
        self.problems.add(problem, where, number, fix=self.known)


def read_dose(value: object, dose: Dose) -> tuple[float, str]:
    """Return the number that a value of a dose is, and what is wrong with it; empty if nothing is."""
    spelt = as_number(value) if isinstance(value, str) else value
    if isinstance(spelt, bool) or not isinstance(spelt, int | float | Decimal):
        return 0.0, "it is a number"
    return float(spelt), dose.problem(float(spelt))


VISIT_FORMS: Final = 'write {"after": 14}, {"after": "14 days"} or {"at": "2024-03-01"}'
_DURATION: Final = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)\s*(s|seconds?|min|minutes?|h|hours?|d|days?|w|weeks?)")
_UNITS: Final = {"s": 10**6, "m": 60 * 10**6, "h": 3_600 * 10**6, "d": 86_400 * 10**6, "w": 7 * 86_400 * 10**6}


class VisitReader:
    """Turns `after` and `at` of the steps of one plan into the time until the next visit."""

    def __init__(self, dose: Dose, moments: IndexTimes | None, problems: Problems, where: str) -> None:
        self.dose, self.moments, self.problems, self.where = dose, moments, problems, where
        self.passed: float | None = 0.0  # since the origin; None where that is no longer known

    def step(self, said: object, number: int) -> object:
        """Return a step with the time until its outcome is seen under the name of the dose."""
        if not isinstance(said, JsonObject):
            return said
        keys = [key for key in (AFTER, AT, self.dose.name) if key in said]
        if len(keys) > 1:
            self.problems.add(f"both `{keys[0]}` and `{keys[1]}`", self.where, number, fix=VISIT_FORMS)
        gap: object = self.dose.elapsed
        if keys:
            told = said[keys[0]]
            gap = self.until(told, number) if keys[0] == AT else self.span(told, number) if keys[0] == AFTER else told
        known = gap if isinstance(gap, int | float) and not isinstance(gap, bool) else None
        self.passed = None if known is None or self.passed is None else self.passed + float(known)
        step = JsonObject({key: value for key, value in said.items() if key not in (AFTER, AT)})
        step.repeated = said.repeated
        step[self.dose.name] = self.dose.elapsed if gap is None else gap
        return step

    def span(self, told: object, number: int) -> object:
        """Return a number of units, which may be written as a duration."""
        if not isinstance(told, str):
            return told
        found = _DURATION.fullmatch(told.strip())
        if found and self.dose.microseconds:
            return float(found[1]) * _UNITS[found[2][0]] / self.dose.microseconds
        self.problems.add(f"`after` cannot be {shown(told)}", self.where, number, fix=VISIT_FORMS)
        return None

    def until(self, told: object, number: int) -> float | None:
        """Return how long it is from the step before until a date, None where that is not known."""
        date, moments = Date.parse(told), self.moments
        if date is None or self.dose.microseconds is None:
            self.problems.add(
                f"`at` must be a date such as 2024-03-01, not {shown(told)}", self.where, number, fix=VISIT_FORMS
            )
            return None
        if moments is None or moments.panel.calendar is None or self.passed is None:
            self.problems.add(
                f"`at` cannot be the date {date}: no dates are known", self.where, number, fix=KEEPS_DATES
            )
            return None
        length_Q = moments.panel.length[moments.subject_Q]
        origins = np.unique(moments.panel.calendar.at(moments.subject_Q, moments.origin_Q, length_Q))
        if len(origins) > 1:
            apart = f"the origins of the subjects are at {len(origins)} different times"
            fix = 'write {"after": 14}, or ask about one subject'
            self.problems.add(f"`at` {date}: {apart}", self.where, number, fix=fix)
            return None
        ahead = (date.begin - origins[0]).astype("m8[us]").astype(np.int64) / self.dose.microseconds - self.passed
        if ahead <= 0:
            self.problems.add(
                f"`at` {date} is not later than the step before", self.where, number, fix="order the visits"
            )
            return None
        return float(ahead)
