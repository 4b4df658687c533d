"""Reads plans that depend on the course or on chance: rules, shifts, the natural course, odds (spec PLAN-3, 4, 10)."""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from costar_cli.data.expression import Assigned, Condition, Natural, parse_rule
from costar_cli.plans.rule import Choice, PlanOdds, PlanRule, PlanShift, condition_problem, readable
from costar_cli.plans.shift import moved_by, shifted_levels
from costar_cli.plans.steps import StepReader
from costar_cli.plans.untrusted import JsonObject, shown

NATURAL: Final = "natural"
ABSENT: Final = object()  # of an `else` that is not written
SHIFT: Final = ("shift", "times", "until")
ODDS: Final = ("odds", "times", "until")
RULE: Final = ("rule", "else", "with probability", "times", "until")
FORMS: Final = {
    "repeat": '{"repeat": {"treatment": 1}, "times": 6}',
    "at": '{"at": {"2024-03-08": {"treatment": 1}}, "until": "end"}',
    "shift": '{"shift": {"treatment": "-5 %"}, "times": 6}',
    "natural": '{"natural": true, "times": 6}',
    "odds": '{"odds": {"treatment": 2}, "times": 6}',
    "rule": '{"rule": "treatment if outcome > 30", "else": {}, "times": 6}',
}


@dataclass(frozen=True, slots=True)
class _RuleText:
    """A text of a rule: what it gives, None for what would be given anyway, when, how likely, and its place."""

    given: Assigned | None
    condition: Condition | None
    probability: float
    where: str

    @property
    def reads_natural(self) -> bool:
        """Return whether it says `natural` somewhere."""
        read = self.condition.columns if self.condition else ()
        moved = self.given is None or any(isinstance(value, Natural) for value in self.given.values())
        return moved or any(column.natural for column in read)


class PolicyReader(StepReader):
    """Turns parsed JSON into rules, shifts, the natural course and plans of odds."""

    def rule(self, name: str, said: JsonObject, where: str) -> PlanRule | None:
        """Return the rule that a plan is, None where something is wrong with it.

        A rule that says `natural` somewhere changes what would be given anyway: what it does not name stays.
        """
        texts, other, place = self.texts(said, where)
        steps = self.own_steps(said, where)
        leaves = other == NATURAL or any(text.reads_natural for text in texts if text)
        choices = [text and self.choice(text, leaves=leaves) for text in texts]
        other = (NATURAL if leaves else JsonObject()) if other is ABSENT else other
        otherwise = self.otherwise(other, place)
        if otherwise is None or any(choice is None for choice in choices):
            return None
        doses = [dose.name for dose in self.encoding.doses]
        words = _in_words(said, doses, last=NATURAL if leaves else "none")
        return PlanRule(name, steps, tuple(c for c in choices if c), otherwise, words)

    def texts(self, said: JsonObject, where: str, *, inner: bool = False) -> tuple[list[_RuleText | None], object, str]:
        """Return the texts of a rule and of the rules in its `else`, what is given where none holds, and its place."""
        self.check_keys(said, RULE[:3] if inner else RULE, where)
        rules = said["rule"] if isinstance(said["rule"], list) else [said["rule"]]
        if not rules:
            self.problems.add("`rule` is empty", where, fix=FORMS["rule"])
        texts: list[_RuleText | None] = []
        for number, rule in enumerate(rules, start=1):
            place = f"{where}, rule {number}" if len(rules) > 1 else where
            own = rule if isinstance(rule, JsonObject) else JsonObject(rule=rule)
            self.check_keys(own, ("rule", "with probability"), place)
            chance = own.get("with probability", said.get("with probability", 1))
            texts.append(self.text(own.get("rule"), chance, place))
        other = said.get("else", ABSENT)
        if isinstance(other, JsonObject) and "rule" in other:
            further, other, place = self.texts(other, f"{where}, else", inner=True)
            return [*texts, *further], other, place
        return texts, other, f"{where}, else"

    def text(self, rule: object, chance: object, where: str) -> _RuleText | None:
        """Return what one text says, with its probability."""
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
        return _RuleText(given, condition, float(chance), where)

    def choice(self, text: _RuleText, *, leaves: bool) -> Choice | None:
        """Return the treatments of a text; what it does not name is not given, or stays if the rule `leaves` it."""
        if text.given is None:
            return replace(self.natural_choice, condition=text.condition, probability=text.probability)
        moved = {name: value for name, value in text.given.items() if isinstance(value, Natural)}
        problem = next(filter(None, map(self.moving_problem, moved, moved.values())), "")
        if problem:
            self.problems.add(problem, text.where, fix=self.known)
        left = set(self.encoding.all_names) - set(text.given) if leaves and text.given else set()
        fixed = JsonObject({name: value for name, value in text.given.items() if name not in moved})
        values = self.step(fixed, text.where, whole=not {*left, *moved} & set(self.encoding.names))
        if values is None or problem:
            return None
        natural = dict.fromkeys(left, Natural("")) | moved
        factors = [natural[name].factor if name in natural else 0.0 for name in self.encoding.all_names]
        values = [natural[name].plus if name in natural else v
                  for name, v in zip(self.encoding.all_names, values, strict=True)]  # fmt: skip
        return Choice(tuple(values), text.condition, text.probability, tuple(factors) if natural else ())

    def moving_problem(self, name: str, value: Natural) -> str:
        """Return what is wrong with a natural treatment that is given; empty if there is nothing."""
        for treatment in (name, value.name):
            if treatment not in self.encoding.all_names:
                return f"no treatment {shown(treatment)}{self.hint(treatment, self.encoding.all_names)}"
        if value.name != name:
            return f"{shown(name)} can be moved from `natural {name}`, not from `natural {value.name}`"
        if name in self.encoding.names and value != Natural(name):
            return f"only doses are computed with, and {shown(name)} has levels: move these by `shift`"
        return ""

    @property
    def natural_choice(self) -> Choice:
        """Return what would be given anyway, always."""
        n = len(self.encoding.all_names)
        return Choice((0.0,) * n, factors=(1.0,) * n)

    def otherwise(self, said: object, where: str) -> Choice | None:
        """Return what `else` gives."""
        if said == NATURAL:
            return self.natural_choice
        if isinstance(said, str):
            hint = self.hint(said, (NATURAL,))
            fix = f'write "else": {{}}, a step, or "else": "{NATURAL}" for what would be given anyway'
            self.problems.add(f"`else` cannot be {shown(said)}{hint}", where, fix=fix)
            return None
        values = self.step(said, where)
        return None if values is None else Choice(tuple(values))

    def natural(self, name: str, said: JsonObject, where: str) -> PlanShift:
        """Return the natural course: a shift of nothing."""
        self.check_keys(said, (NATURAL, *SHIFT[1:]), where)
        if said[NATURAL] is not True:
            problem = f"`natural` must be true, not {shown(said[NATURAL])}"
            self.problems.add(problem, where, fix=FORMS[NATURAL])
        return PlanShift(name, self.own_steps(said, where), {}, "natural course", self.encoding)

    def odds(self, name: str, said: JsonObject, where: str) -> PlanOdds | None:
        """Return the plan that multiplies the odds of a treatment, None where something is wrong with it."""
        self.check_keys(said, ODDS, where)
        ratios, steps = said["odds"], self.own_steps(said, where)
        if not isinstance(ratios, JsonObject) or len(ratios) != 1:
            problem = f"`odds` must be an object of one treatment, such as {FORMS['odds']}, not {shown(ratios)}"
            self.problems.add(problem, where, fix="give each treatment a plan of its own")
            return None
        [(treatment, ratio)] = ratios.items()
        if problem := self.odds_problem(treatment, ratio):
            self.problems.add(problem, where, fix=f"{FORMS['odds']}; {self.known}")
            return None
        words = f"odds of {treatment} times {ratio}"
        return PlanOdds(name, steps, treatment, float(str(ratio)), words, self.encoding)

    def odds_problem(self, treatment: str, ratio: object) -> str:
        """Return what is wrong with a ratio of the odds of a treatment; empty if there is nothing."""
        names, levels, classes = self.encoding.names, self.encoding.levels, self.encoding.classes
        if treatment not in self.encoding.all_names:
            return f"no treatment {shown(treatment)}{self.hint(treatment, self.encoding.all_names)}"
        if treatment not in names or len(levels[names.index(treatment)]) > 2:
            return f"{shown(treatment)} has no odds: it is more than given or not"
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio < math.inf:
            return f"the odds of {shown(treatment)} are multiplied by a number above 0, not {shown(ratio)}"
        place = names.index(treatment)
        switched = {(*row[:place], level, *row[place + 1 :]) for row in classes for level in (0, 1)}
        if switched - set(classes):
            return f"{shown(treatment)} cannot be switched by itself: some combinations of treatments never occur"
        return ""

    def shift(self, name: str, said: JsonObject, where: str) -> PlanShift | None:
        """Return the shift that a plan is, None where something is wrong with it."""
        self.check_keys(said, SHIFT, where)
        moved, steps = said["shift"], self.own_steps(said, where)
        if not isinstance(moved, JsonObject) or not moved:
            self.problems.add(f"`shift` must be an object such as {FORMS['shift']}, not {shown(moved)}", where)
            return None
        table: dict[str, tuple[int, ...]] = {}
        moves: dict[str, tuple[float, bool]] = {}
        nearest = []
        for treatment, amount in moved.items():
            if treatment not in self.encoding.all_names:
                near = self.hint(treatment, self.encoding.all_names)
                self.problems.add(f"no treatment {shown(treatment)}{near}", where, fix=self.known)
                continue
            if treatment not in self.encoding.names:
                try:
                    moves[treatment] = moved_by(amount)
                except ValueError as error:
                    self.problems.add(f"{shown(treatment)} by {shown(amount)}: {error}", where, fix=self.known)
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
        return PlanShift(name, steps, table, f"shifts {words}", self.encoding, moves)


def _in_words(said: JsonObject, doses: Collection[str], *, last: str) -> str:
    """Return a rule as one line: its texts, and what is given where none holds, `last` where it does not say."""
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
        words.append(_in_words(other, doses, last=last))
    elif isinstance(other, JsonObject) and other:
        words.append(" and ".join(name if level in (1, True) and name not in doses else f"{name} = {level}"
                                  for name, level in other.items()))  # fmt: skip
    else:
        words.append(last if other is None or other == NATURAL else "none")
    return "; else ".join(words)
