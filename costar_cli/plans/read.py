"""From an untrusted file of plans to plans and rules that a data set understands (spec PLAN-1 to 4)."""

from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import numpy as np

from costar_cli.config.nearest import did_you_mean
from costar_cli.errors import UsageError
from costar_cli.panel import PanelSchema, TreatmentEncoding
from costar_cli.panel.expression import parse_rule
from costar_cli.panel.levels import are_doses, find_level, known_levels
from costar_cli.plans.plan import AnyPlan, PlanRequest, TreatmentPlan
from costar_cli.plans.rule import Choice, PlanRule, PlanShift, condition_problem, readable, shifted_levels
from costar_cli.plans.untrusted import MAX_BYTES, JsonObject, Problems, parse_json, read_bounded, shown

MAX_STEPS_READ: Final = 1_000
MAX_TABLE_BYTES: Final = 400_000_000
MAX_NAME_CHARACTERS: Final = 100
FEW: Final = 6  # alternatives that fit in one line of a message
SHAPE = 'write {"origin": 30, "plans": {"name": [{"treatment": 1}, {}]}}, or one plan as a list: [{"treatment": 1}, {}]'
CLASSES = "only doses that occur in the data can be asked about: bin doses before `costar ingest table`"
TABLE: Final = ".csv"
REPEAT: Final = ("repeat", "times", "until")
NO_DATES: Final = "; data sets keep no dates: their steps are numbered"
SHIFT: Final = ("shift", "times", "until")
RULE: Final = ("rule", "else", "with probability", "times", "until")
FORMS: Final = {
    "repeat": '{"repeat": {"treatment": 1}, "times": 6}',
    "shift": '{"shift": {"treatment": "-5 %"}, "times": 6}',
    "rule": '{"rule": "treatment if outcome > 30", "else": {}, "times": 6}',
}


def read_plan_file(path: Path) -> bytes:
    """Return the content of a file of plans, JSON or a table by its ending; of standard input for `-`.

    Raises:
        UsageError: the file is missing, a folder, empty, or too large.
        StorageError: it cannot be read.
    """
    return read_bounded(path, flag="--plan", most=MAX_TABLE_BYTES if path.suffix.lower() == TABLE else MAX_BYTES)


def read_plans(path: Path, schema: TreatmentEncoding | PanelSchema, *, horizon: int) -> PlanRequest:
    """Read and check a file of plans; `horizon` is the most steps that the models answer.

    Raises:
        UsageError: every problem of the file at once, each with plan, step and name.
        StorageError: the file cannot be read.
    """
    return parse_plans(read_plan_file(path), schema, horizon=horizon, where=str(path))


def parse_plans(
    data: bytes | str,
    schema: TreatmentEncoding | PanelSchema,
    *,
    horizon: int,
    where: str = "plan.json",
    origin: int | None = None,
    last: int | None = None,
) -> PlanRequest:
    """Parse and check the text of a file of plans; see `read_plans`.

    Args:
        data: JSON, or a table where the name of the file ends in `.csv`.
        schema: the treatments that plans may give, and with them the columns that rules may read.
        horizon: the most steps that the models answer.
        where: what messages call the file.
        origin: that somebody asks for beside the file, which overrides the file's.
        last: the subject's last step, which is the origin if nobody says another; None of several subjects.
    """
    if where.lower().endswith(TABLE):
        from costar_cli.plans.table import parse_table  # noqa: PLC0415 - polars takes a while, and JSON needs none

        encoding = schema if isinstance(schema, TreatmentEncoding) else schema.treatments
        return parse_table(data, encoding, horizon=horizon, where=where)
    document = parse_json(data, where=where)
    if isinstance(document, list) or (isinstance(document, JsonObject) and set(document) & set(FORMS)):
        document = _single(document)
    if not isinstance(document, JsonObject):
        raise UsageError(f"a plan file holds an object or a list, not {shown(document)}", where=where, fix=SHAPE)
    problems = Problems()
    said = _origin(document, problems)
    start = next((step for step in (origin, said, last) if step is not None), None)
    plans = _Checker(schema, horizon, problems, start).plans(document)
    misshapen = not isinstance(document.get("plans"), JsonObject) or set(document) - {"origin", "plans"}
    fix = SHAPE if misshapen or problems.fix is None else problems.fix
    problems.raise_any("the plan does not match the data set", where=where, fix=fix)
    return PlanRequest(plans, said)


def _single(plan: list[object] | JsonObject) -> JsonObject:
    """Return the document of one plan that stands alone in its file."""
    if isinstance(plan, list) or "origin" not in plan:
        return JsonObject(plans=JsonObject(plan=plan))
    rest = JsonObject({key: value for key, value in plan.items() if key != "origin"})
    rest.repeated = plan.repeated
    return JsonObject(origin=plan["origin"], plans=JsonObject(plan=rest))


def _in_words(said: JsonObject) -> str:
    """Return a rule as one line: its texts, and what is given where none holds."""
    rules = said["rule"] if isinstance(said["rule"], list) else [said["rule"]]
    words = []
    for rule in rules:
        text, chance = (
            (rule.get("rule"), rule.get("with probability")) if isinstance(rule, JsonObject) else (rule, None)
        )
        chance = said.get("with probability") if chance is None else chance
        words.append(str(text) + (f" with probability {chance}" if chance is not None else ""))
    other = said.get("else")
    if isinstance(other, JsonObject) and "rule" in other:
        words.append(_in_words(other))
    elif isinstance(other, JsonObject) and other:
        words.append(" and ".join(name if level in (1, True) else f"{name} = {level}" for name, level in other.items()))
    else:
        words.append("none")
    return "; else ".join(words)


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
    fix += NO_DATES if isinstance(origin, str) else ""
    problems.add(f"`origin` must be a whole number, the index of a step, not {shown(origin)}", fix=fix)
    return None


class _Checker:
    """Turns parsed JSON into plans and collects what is wrong with it."""

    def __init__(
        self, schema: TreatmentEncoding | PanelSchema, horizon: int, problems: Problems, start: int | None
    ) -> None:
        self.schema = None if isinstance(schema, TreatmentEncoding) else schema
        self.encoding = schema if isinstance(schema, TreatmentEncoding) else schema.treatments
        self.horizon = horizon
        self.problems = problems
        self.start = start
        self.known = _treatments(self.encoding)

    def plans(self, document: JsonObject) -> tuple[AnyPlan, ...]:
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
        checked = [self.plan(name, steps) for name, steps in named.items()]
        return tuple(plan for plan in checked if plan is not None)

    def plan(self, name: str, said: object) -> AnyPlan | None:
        where = f"plan {shown(name)}"
        if not name.strip() or not name.isprintable() or len(name) > MAX_NAME_CHARACTERS:
            self.problems.add(f"a name of 1 to {MAX_NAME_CHARACTERS} printable characters is needed", where)
        if isinstance(said, JsonObject) and "rule" in said:
            return self.rule(name, said, where)
        if isinstance(said, JsonObject) and "shift" in said:
            return self.shift(name, said, where)
        if not isinstance(said, list) and not self.is_repetition(said):
            forms = "or an object with `repeat`, `shift` or `rule`"
            fix = "; ".join(FORMS.values())
            self.problems.add(f"must be a list of steps {forms}, not {shown(said)}", where, fix=fix)
            return None
        steps = list(islice(self.steps(said if isinstance(said, list) else [said], where), MAX_STEPS_READ + 1))
        return self.fixed(name, steps, where)

    def fixed(self, name: str, steps: list[object], where: str) -> TreatmentPlan | None:
        if not 1 <= len(steps) <= self.horizon:
            count = f"{len(steps):,}" if len(steps) <= MAX_STEPS_READ else f"more than {MAX_STEPS_READ:,}"
            has = f"has {count} steps" if steps else "has no steps"
            fix = f"give 1 to {self.horizon} steps, or train on data of a longer `horizon`"
            self.problems.add(f"{has}; the model answers plans of 1 to {self.horizon}", where, fix=fix)
        rows = [self.step(step, where, i) for i, step in enumerate(steps[:MAX_STEPS_READ], start=1)]
        values = np.array([row for row in rows if row is not None], dtype=np.int64)
        return TreatmentPlan(name, values) if len(values) else None

    def is_repetition(self, said: object) -> bool:
        return isinstance(said, JsonObject) and "repeat" in said and "repeat" not in self.encoding.names

    def steps(self, said: list[object], where: str, before: int = 0) -> Iterator[object]:
        """Yield the steps that a list stands for; `before` counts those of the plan before it."""
        for part in said:
            if not isinstance(part, JsonObject) or not self.is_repetition(part):
                before += 1
                yield part
                continue
            self.check_keys(part, REPEAT, where)
            again = part["repeat"]
            own = self.steps(again if isinstance(again, list) else [again], where, before)
            first = list(islice(own, MAX_STEPS_READ + 1))
            count = self.lasting(part, where, before, each=len(first))
            before += count
            yield from islice(cycle(first), count)

    def check_keys(self, said: JsonObject, known: tuple[str, ...], where: str) -> None:
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
            self.problems.add(f"`until` {said['until']} leaves no step: {before} steps come before it", where)
        return max(1, left)

    def times(self, times: object, where: str) -> int:
        if isinstance(times, int) and not isinstance(times, bool) and times >= 1:
            return times
        self.problems.add(f"`times` must be a whole number from 1, not {shown(times)}", where)
        return 1

    def until(self, until: object, where: str) -> int:
        """Return how many steps a plan has whose last outcome is that of a step; `end` is the horizon's."""
        if until == "end":
            return self.horizon
        if not isinstance(until, int) or isinstance(until, bool):
            fix = 'give the number of a step, or "end"' + NO_DATES
            self.problems.add(f"`until` must be the number of a step or 'end', not {shown(until)}", where, fix=fix)
        elif self.start is None:
            fix = 'add "origin" to the file or --origin to the command, or write "times"'
            self.problems.add(f"`until` {until} means nothing where each subject has its own origin", where, fix=fix)
        elif not self.start < until <= self.start + self.horizon:
            steps = f"{self.start + 1} to {self.start + self.horizon}"
            self.problems.add(f"`until` {until} is not among the steps that the model predicts, {steps}", where)
        else:
            return until - self.start
        return self.horizon

    def rule(self, name: str, said: JsonObject, where: str) -> PlanRule | None:
        choices, otherwise = self.choices(said, where)
        steps = self.own_steps(said, where)
        if otherwise is None or any(choice is None for choice in choices):
            return None
        return PlanRule(name, steps, tuple(c for c in choices if c), tuple(otherwise), _in_words(said))

    def own_steps(self, said: JsonObject, where: str) -> int:
        steps = self.lasting(said, where)
        if steps > self.horizon:
            fix = f"give 1 to {self.horizon} steps, or train on data of a longer `horizon`"
            self.problems.add(f"has {steps:,} steps; the model answers plans of 1 to {self.horizon}", where, fix=fix)
        return min(steps, self.horizon)

    def choices(
        self, said: JsonObject, where: str, *, inner: bool = False
    ) -> tuple[list[Choice | None], list[int] | None]:
        """Return the choices of a rule and of the rules in its `else`, and what is given where none holds."""
        self.check_keys(said, RULE[:3] if inner else RULE, where)
        rules = said["rule"] if isinstance(said["rule"], list) else [said["rule"]]
        if not rules:
            self.problems.add("`rule` is empty", where, fix=FORMS["rule"])
        choices: list[Choice | None] = []
        for number, rule in enumerate(rules, start=1):
            place = f"{where}, rule {number}" if len(rules) > 1 else where
            own = rule if isinstance(rule, JsonObject) else JsonObject(rule=rule)
            self.check_keys(own, ("rule", "with probability"), place)
            chance = own.get("with probability", said.get("with probability", 1))
            choices.append(self.choice(own.get("rule"), chance, place))
        other = said.get("else", JsonObject())
        if isinstance(other, JsonObject) and "rule" in other:
            further, otherwise = self.choices(other, f"{where}, else", inner=True)
            return [*choices, *further], otherwise
        return choices, self.step(other, f"{where}, else")

    def choice(self, rule: object, chance: object, where: str) -> Choice | None:
        if not isinstance(chance, int | float) or isinstance(chance, bool) or not 0 <= chance <= 1:
            self.problems.add(f"`with probability` must be a number from 0 to 1, not {shown(chance)}", where)
            return None
        if not isinstance(rule, str):
            self.problems.add(f"a rule must be a text, not {shown(rule)}", where, fix=FORMS["rule"])
            return None
        try:
            given, condition = parse_rule(rule)
        except ValueError as error:
            self.problems.add(f"{shown(rule)}: {error}", where, fix=FORMS["rule"])
            return None
        if condition and (problem := condition_problem(condition, self.schema, self.encoding)):
            self.problems.add(f"{shown(rule)}: {problem}", where, fix=readable(self.schema, self.encoding))
            return None
        values = self.step(JsonObject(given), where)
        return None if values is None else Choice(tuple(values), condition, float(chance))

    def shift(self, name: str, said: JsonObject, where: str) -> PlanShift | None:
        self.check_keys(said, SHIFT, where)
        moved, steps = said["shift"], self.own_steps(said, where)
        if not isinstance(moved, JsonObject) or not moved:
            self.problems.add(f"`shift` must be an object such as {FORMS['shift']}, not {shown(moved)}", where)
            return None
        table: dict[str, tuple[int, ...]] = {}
        nearest = []
        for treatment, amount in moved.items():
            if treatment not in self.encoding.names:
                near = self.hint(treatment, self.encoding.names)
                self.problems.add(f"no treatment {shown(treatment)}{near}", where, fix=self.known)
                continue
            i = self.encoding.names.index(treatment)
            levels = self.encoding.levels[i]
            allowed = sorted({row[i] for row in self.encoding.classes} or set(range(len(levels))))
            try:
                table[treatment], exact = shifted_levels(levels, allowed, amount)
            except ValueError as error:
                self.problems.add(f"{shown(treatment)} by {shown(amount)}: {error}", where, fix=self.known)
                continue
            nearest += [] if exact else [treatment]
        words = ", ".join(f"{treatment} by {amount}" for treatment, amount in moved.items())
        words += f" (nearest level of {' and '.join(nearest)})" * bool(nearest)
        return PlanShift(name, steps, table, f"shifts {words}", self.encoding)

    def step(self, step: object, where: str, number: int | None = None) -> list[int] | None:
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

    def value(self, value: object, name: str, levels: tuple[str, ...], where: str, number: int | None) -> int | None:
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

    def check_combination(self, values: list[int], where: str, number: int | None) -> None:
        classes = self.encoding.classes
        if not classes or tuple(values) in classes:
            return
        known = ", ".join(self.encoding.columns[:FEW]) + (f" and {len(classes) - FEW} more" * (len(classes) > FEW))
        named = zip(self.encoding.names, self.encoding.levels, values, strict=True)
        wanted = ", ".join(f"{name}={levels[value]}" for name, levels, value in named)
        problem = f"the combination {wanted} does not occur in the data set; known: {known}"
        self.problems.add(problem, where, number, fix=self.known)
