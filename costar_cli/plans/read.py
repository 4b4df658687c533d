"""From an untrusted file of plans to plans that a data set understands (spec PLAN-1 to 4, PLAN-10)."""

from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import numpy as np

from costar_cli.config.nearest import did_you_mean, nearest_by_edits
from costar_cli.data import PanelSchema, TreatmentEncoding, Values
from costar_cli.data.calendar import Date
from costar_cli.data.visits import elapsed_dose
from costar_cli.errors import UsageError
from costar_cli.plans.plan import AnyPlan, Begin, IndexTimes, Origin, PlanRequest, TreatmentPlan
from costar_cli.plans.policies import FORMS, NATURAL, PolicyReader
from costar_cli.plans.steps import FEW, VisitReader
from costar_cli.plans.untrusted import MAX_BYTES, MAX_SHOWN, JsonObject, Problems, parse_json, read_bounded, shown

MAX_STEPS_READ: Final = 1_000
MAX_TABLE_BYTES: Final = 400_000_000
MAX_NAME_CHARACTERS: Final = 100
MAX_DIGITS: Final = 10  # of a step's number
SHAPE = 'write {"origin": 30, "plans": {"name": [{"treatment": 1}, {}]}}, or one plan as a list: [{"treatment": 1}, {}]'
TOP: Final = ("origin", "plans")
TABLE: Final = ".csv"
REPEAT: Final = ("repeat", "times", "until")
AT: Final = ("at", "times", "until")


def read_plan_file(path: Path, flag: str = "--plan") -> bytes:
    """Return the content of a file of plans, JSON or a table by its ending; of standard input for `-`.

    `flag` is what gave the file, for messages.

    Raises:
        UsageError: the file is missing, a folder, empty, or too large.
        StorageError: it cannot be read.
    """
    return read_bounded(path, flag=flag, most=MAX_TABLE_BYTES if path.suffix.lower() == TABLE else MAX_BYTES)


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
    origin: Origin | None = None,
    begin: Begin | None = None,
) -> PlanRequest:
    """Parse and check the text of a file of plans; see `read_plans`.

    Args:
        data: JSON, or a table where the name of the file ends in `.csv`.
        schema: the treatments that plans may give, and with them the columns that rules may read.
        horizon: the most steps that the models answer.
        where: what messages call the file.
        origin: that somebody asks for beside the file, which overrides the file's.
        begin: from an origin, by default the last step, to those of the subjects; without it there are no dates.

    Raises:
        UsageError: see `read_plans`; the origin is a date, and the subjects have none.
    """
    if where.lower().endswith(TABLE):
        from costar_cli.plans.table import parse_table  # noqa: PLC0415 - polars takes a while, and JSON needs none

        encoding = schema if isinstance(schema, TreatmentEncoding) else schema.treatments
        start = _start(origin, begin)
        moments = start if isinstance(start, IndexTimes) else None
        return parse_table(data, encoding, horizon=horizon, where=where, moments=moments)
    document = parse_json(data, where=where, fix=SHAPE)
    if isinstance(document, JsonObject) and document and all(_is_named_plan(*each) for each in document.items()):
        document = JsonObject(plans=document)  # named plans without the word
    elif isinstance(document, list) or (isinstance(document, JsonObject) and set(document) & set(FORMS)):
        plan, document = document, JsonObject()  # one plan that stands alone in its file
        if isinstance(plan, JsonObject) and "origin" in plan:
            document["origin"] = plan["origin"]
            rest = JsonObject({key: value for key, value in plan.items() if key != "origin"})
            rest.repeated = plan.repeated
            plan = rest
        document["plans"] = JsonObject(plan=plan)
    if not isinstance(document, JsonObject):
        raise UsageError(f"a plan file holds an object or a list, not {shown(document)}", where=where, fix=SHAPE)
    problems = Problems()
    for key in document.repeated:
        problems.add(f"{shown(key)} is written more than once")
    unknown = sorted(set(document) - set(TOP))
    for key in unknown if "plans" in document else unknown[:MAX_SHOWN]:
        hint = "" if problems.full else did_you_mean(key, TOP, lead="; ", quoted=True)
        if hint or "plans" in document:  # otherwise it is a plan in the wrong place
            problems.add(f"unknown key {shown(key)}{hint}")
    written = document.get("origin")
    said: int | Date | None = None
    if isinstance(written, int) and not isinstance(written, bool):
        said = written
    elif written is not None and not (said := Date.parse(written)):
        fix = "count the subject's steps from 0 up to the last one that is known, give its date, or leave `origin` out"
        problem = f"`origin` must be a whole number, the index of a step, or a date, not {shown(written)}"
        problems.add(problem, fix=fix)
    plans = _Checker(schema, horizon, problems, _start(said if origin is None else origin, begin)).plans(document)
    misshapen = not isinstance(document.get("plans"), JsonObject) or set(document) - set(TOP)
    fix = SHAPE if misshapen or problems.fix is None else problems.fix
    problems.raise_any("the plan does not match the data set", where=where, fix=fix)
    return PlanRequest(plans, said)


def _is_named_plan(name: str, said: object) -> bool:
    """Return whether a key of a file and what it says are a plan and its name, and no word of files mistyped."""
    steps, form = isinstance(said, list), isinstance(said, JsonObject) and bool(set(said) & set(FORMS))
    return (form or (steps and name not in FORMS)) and not nearest_by_edits(name, TOP)


def _start(origin: Origin | None, begin: Begin | None) -> int | IndexTimes | None:
    """Return the moments at which plans begin, or the step alone where no more is known."""
    step = origin if isinstance(origin, int) and origin >= 0 else None
    if begin is None or origin == "all":
        return step
    moments = begin("last" if origin is None else origin)
    inside = moments.take(~moments.outside_Q)
    return inside if len(inside) else step


class _Checker(PolicyReader):
    """Turns parsed JSON into plans and collects what is wrong with it."""

    def plans(self, document: JsonObject) -> tuple[AnyPlan, ...]:
        if "plans" not in document:
            loose = [shown(key) for key in list(document)[:MAX_SHOWN] if key != "origin" and not self.hint(key, TOP)]
            put = f": put {', '.join(loose[:FEW])}{' and the others' * (len(loose) > FEW)} under it" if loose else ""
            self.problems.add(f"there is no `plans`{put}")
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
        readers = {"rule": self.rule, "shift": self.shift, NATURAL: self.natural, "odds": self.odds}
        if isinstance(said, JsonObject) and (form := next((form for form in readers if form in said), None)):
            return readers[form](name, said, where)
        if isinstance(said, JsonObject) and "at" in said and "at" not in self.encoding.all_names:
            return self.fixed(name, self.dated(said, where), where)
        if not isinstance(said, list) and not self.is_repetition(said):
            *forms, last = (f"`{form}`" for form in FORMS)
            near = [self.hint(key, tuple(FORMS)) for key in said] if isinstance(said, JsonObject) else []
            what = f"an object with {', '.join(forms)} or {last}, not {shown(said)}{next(filter(None, near), '')}"
            self.problems.add(f"must be a list of steps or {what}", where, fix="; ".join(FORMS.values()))
            return None
        steps = list(islice(self.steps(said if isinstance(said, list) else [said], where), MAX_STEPS_READ + 1))
        return self.fixed(name, steps, where)

    def fixed(self, name: str, steps: list[object], where: str) -> TreatmentPlan | None:
        if not 1 <= len(steps) <= self.horizon:
            count = f"{len(steps):,}" if len(steps) <= MAX_STEPS_READ else f"more than {MAX_STEPS_READ:,}"
            has = f"has {count} steps" if steps else "has no steps"
            fix = f"give 1 to {self.horizon} steps, or train on data of a longer `horizon`"
            self.problems.add(f"{has}; the model answers plans of 1 to {self.horizon}", where, fix=fix)
        dose, some = elapsed_dose(self.encoding), steps[:MAX_STEPS_READ]
        if dose is not None:
            visits = VisitReader(dose, self.moments, self.problems, where)
            some = [visits.step(step, i) for i, step in enumerate(some, start=1)]
        rows = [self.step(step, where, i) for i, step in enumerate(some, start=1)]
        values: Values = np.array([row for row in rows if row is not None], dtype=self.encoding.value_type)
        return TreatmentPlan(name, values) if len(values) else None

    def dated(self, said: JsonObject, where: str) -> list[object]:
        """Return the steps of a plan that says what is given at some dates or steps of the data, else nothing."""
        self.check_keys(said, AT, where)
        given = said["at"]
        if not isinstance(given, JsonObject) or not given:
            self.problems.add(f"`at` must be an object such as {FORMS['at']}, not {shown(given)}", where)
            return [JsonObject()]
        for key in given.repeated:
            self.problems.add(f"`at` {shown(key)} is written more than once", where)
        steps: dict[int, object] = {}
        for key, step in given.items():
            ahead = self.ahead(int(key) if key.isdecimal() and len(key) < MAX_DIGITS else key, "`at`", where)
            if ahead is not None and not 0 <= ahead < self.horizon:
                self.problems.add(f"`at` {shown(key)} is not among the steps that a plan may give{self.of(0)}", where)
            elif ahead in steps:
                self.problems.add(f"`at` {shown(key)} is the same step as another", where)
            elif ahead is not None:
                steps[ahead] = step
        length = self.own_steps(said, where) if {"times", "until"} & set(said) else max(steps, default=0) + 1
        if late := [at for at in steps if at >= length]:
            self.problems.add(f"`at` names step {max(late) + 1} of the plan, which has {length}", where)
        return [steps.get(at, JsonObject()) for at in range(length)]

    def is_repetition(self, said: object) -> bool:
        return isinstance(said, JsonObject) and "repeat" in said and "repeat" not in self.encoding.all_names

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
