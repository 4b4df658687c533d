"""When the visits of a plan are: `after` so long, or `at` a date, as the time until the next visit (spec PLAN-8)."""

import re
from typing import Final

import numpy as np

from costar_cli.data.calendar import Date
from costar_cli.data.dose import Dose
from costar_cli.data.visits import AFTER, AT
from costar_cli.plans.index_times import KEEPS_DATES, IndexTimes
from costar_cli.plans.untrusted import JsonObject, Problems, shown

FORMS: Final = 'write {"after": 14}, {"after": "14 days"} or {"at": "2024-03-01"}'
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
            self.problems.add(f"both `{keys[0]}` and `{keys[1]}`", self.where, number, fix=FORMS)
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
        self.problems.add(f"`after` cannot be {shown(told)}", self.where, number, fix=FORMS)
        return None

    def until(self, told: object, number: int) -> float | None:
        """Return how long it is from the step before until a date, None where that is not known."""
        date, moments = Date.parse(told), self.moments
        if date is None or self.dose.microseconds is None:
            self.problems.add(
                f"`at` must be a date such as 2024-03-01, not {shown(told)}", self.where, number, fix=FORMS
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
