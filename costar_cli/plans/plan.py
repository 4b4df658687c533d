"""From an untrusted plan.json to treatment plans that a data set understands."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.nearest import did_you_mean
from costar_cli.errors import UsageError
from costar_cli.panel import TreatmentEncoding
from costar_cli.panel.levels import are_doses, find_level, known_levels
from costar_cli.plans.untrusted import JsonObject, Problems, parse_json, read_bounded, shown

__all__ = ["PlanRequest", "TreatmentPlan", "parse_plans", "read_plans"]

MAX_PLANS = 100
MAX_STEPS_READ = 1_000
MAX_NAME_CHARACTERS = 100
FEW = 6  # alternatives that fit in one line of a message
SHAPE = 'write {"origin": 30, "plans": {"name": [{"treatment": 1}, {}]}}, or one plan as a list: [{"treatment": 1}, {}]'
CLASSES = "only doses that occur in the data can be asked about: bin doses before `costar ingest table`"


@dataclass(frozen=True, eq=False, slots=True)
class TreatmentPlan:
    """A named sequence of treatments: `values [steps, names]`, integer levels as in `TreatmentEncoding`."""

    name: str
    values: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.values.shape[0])


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a plan.json asks: one or several plans, and the origin unless the subject's last step is meant."""

    plans: tuple[TreatmentPlan, ...]
    origin: int | None = None

    @property
    def horizon(self) -> int:
        """Return the number of steps of the longest plan."""
        return max(len(plan) for plan in self.plans)


def read_plans(path: Path, encoding: TreatmentEncoding, *, horizon: int) -> PlanRequest:
    """Read and check a plan file; `horizon` is the most steps that the models answer.

    Raises:
        UsageError: every problem of the file at once, each with plan, step and name.
        StorageError: the file cannot be read.
    """
    return parse_plans(read_bounded(path, flag="--plan"), encoding, horizon=horizon, where=str(path))


def parse_plans(
    data: bytes | str, encoding: TreatmentEncoding, *, horizon: int, where: str = "plan.json"
) -> PlanRequest:
    """Parse and check the text of a plan file; see `read_plans`."""
    document = parse_json(data, where=where)
    if isinstance(document, list):
        document = JsonObject(plans=JsonObject(plan=document))
    if not isinstance(document, JsonObject):
        raise UsageError(f"a plan file holds an object or a list, not {shown(document)}", where=where, fix=SHAPE)
    problems = Problems()
    origin = _origin(document, problems)
    plans = _Checker(encoding, horizon, problems).plans(document)
    misshapen = not isinstance(document.get("plans"), JsonObject) or set(document) - {"origin", "plans"}
    fix = SHAPE if misshapen or problems.fix is None else problems.fix
    problems.raise_any("the plan does not match the data set", where=where, fix=fix)
    return PlanRequest(plans, origin)


def _treatments(encoding: TreatmentEncoding) -> str:
    named = list(zip(encoding.names, encoding.levels, strict=True))
    levels = [f"{name} ({known_levels(levels)})" for name, levels in named[:FEW]] + ["..."] * (len(named) > FEW)
    return f"treatments of this data set: {', '.join(levels)}"


def _origin(document: JsonObject, problems: Problems) -> int | None:
    for key in document.repeated:
        problems.add(f"{shown(key)} is written more than once")
    for key in sorted(set(document) - {"origin", "plans"}):
        hint = "" if problems.full else did_you_mean(key, ("origin", "plans"), lead="; ", quoted=True)
        problems.add(f"unknown key {shown(key)}{hint}")
    origin = document.get("origin")
    if origin is None or (isinstance(origin, int) and not isinstance(origin, bool)):
        return origin
    fix = "count the subject's steps from 0 up to the last one that is known, or leave `origin` out for its last step"
    problems.add(f"`origin` must be a whole number, the index of a step, not {shown(origin)}", fix=fix)
    return None


class _Checker:
    """Turns parsed JSON into plans and collects what is wrong with it."""

    def __init__(self, encoding: TreatmentEncoding, horizon: int, problems: Problems) -> None:
        self.encoding = encoding
        self.horizon = horizon
        self.problems = problems
        self.known = _treatments(encoding)

    def plans(self, document: JsonObject) -> tuple[TreatmentPlan, ...]:
        if "plans" not in document:
            self.problems.add("there is no `plans`")
            return ()
        named = document["plans"]
        if not isinstance(named, JsonObject):
            self.problems.add(f"`plans` must be an object that maps each plan's name to its steps, not {shown(named)}")
            return ()
        for key in named.repeated:
            self.problems.add(f"plan {shown(key)} is written more than once")
        if not named:
            self.problems.add("`plans` is empty: there is nothing to estimate")
        if len(named) > MAX_PLANS:
            self.problems.add(f"{len(named):,} plans; at most {MAX_PLANS} at once")
        checked = [self.plan(name, steps) for name, steps in list(named.items())[:MAX_PLANS]]
        return tuple(plan for plan in checked if plan is not None)

    def plan(self, name: str, steps: object) -> TreatmentPlan | None:
        where = f"plan {shown(name)}"
        if not name.strip() or not name.isprintable() or len(name) > MAX_NAME_CHARACTERS:
            self.problems.add(f"a name of 1 to {MAX_NAME_CHARACTERS} printable characters is needed", where)
        if not isinstance(steps, list):
            self.problems.add(f"must be a list of steps, not {shown(steps)}", where)
            return None
        if not 1 <= len(steps) <= self.horizon:
            has = "has no steps" if not steps else f"has {len(steps):,} steps"
            fix = f"give 1 to {self.horizon} steps, or train on data of a longer `horizon`"
            self.problems.add(f"{has}; the model answers plans of 1 to {self.horizon}", where, fix=fix)
        rows = [self.step(step, where, i) for i, step in enumerate(steps[:MAX_STEPS_READ], start=1)]
        values = np.array([row for row in rows if row is not None], dtype=np.int64)
        return TreatmentPlan(name, values) if len(values) else None

    def step(self, step: object, where: str, number: int) -> list[int] | None:
        if not isinstance(step, JsonObject):
            problem = f"a step must be an object such as {{}} or {{{shown(self.encoding.names[0])}: 1}}"
            self.problems.add(f"{problem}, not {shown(step)}", where, number, fix=self.known)
            return None
        for key in step.repeated:
            self.problems.add(f"{shown(key)} is written more than once", where, number)
        for key in step:
            if key not in self.encoding.names:
                hint = self.hint(key, self.encoding.names)
                self.problems.add(f"no treatment {shown(key)}{hint}", where, number, fix=self.known)
        values = [
            self.value(step[name], name, levels, where, number) if name in step else 0
            for name, levels in zip(self.encoding.names, self.encoding.levels, strict=True)
        ]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        self.check_combination(known, where, number)
        return known

    def value(self, value: object, name: str, levels: tuple[str, ...], where: str, number: int) -> int | None:
        place = find_level(value, levels)
        if place is not None:
            return place
        hint = self.hint(value, levels) if isinstance(value, str) else ""
        problem = f"{shown(name)} cannot be {shown(value)}{hint or f'; it takes {known_levels(levels)}'}"
        dose = isinstance(value, int | float) and not isinstance(value, bool) and are_doses(levels)
        self.problems.add(problem, where, number, fix=f"{self.known}; {CLASSES}" if dose else self.known)
        return None

    def hint(self, name: str, known: tuple[str, ...]) -> str:
        return "" if self.problems.full else did_you_mean(name, known, lead="; ", quoted=True)

    def check_combination(self, values: list[int], where: str, number: int) -> None:
        classes = self.encoding.classes
        if not classes or tuple(values) in classes:
            return
        known = ", ".join(self.encoding.columns[:FEW]) + (f" and {len(classes) - FEW} more" * (len(classes) > FEW))
        named = zip(self.encoding.names, self.encoding.levels, values, strict=True)
        wanted = ", ".join(f"{name}={levels[value]}" for name, levels, value in named)
        problem = f"the combination {wanted} does not occur in the data set; known: {known}"
        self.problems.add(problem, where, number, fix=self.known)
