"""Reads rules and shifts of treatment from parsed JSON (spec PLAN-3, PLAN-4)."""

from collections.abc import Collection
from typing import Final

from costar_cli.data.expression import parse_rule
from costar_cli.plans.rule import Choice, PlanRule, PlanShift, condition_problem, moved_by, readable, shifted_levels
from costar_cli.plans.steps import StepReader
from costar_cli.plans.untrusted import JsonObject, shown

SHIFT: Final = ("shift", "times", "until")
RULE: Final = ("rule", "else", "with probability", "times", "until")
FORMS: Final = {
    "repeat": '{"repeat": {"treatment": 1}, "times": 6}',
    "at": '{"at": {"2024-03-08": {"treatment": 1}}, "until": "end"}',
    "shift": '{"shift": {"treatment": "-5 %"}, "times": 6}',
    "rule": '{"rule": "treatment if outcome > 30", "else": {}, "times": 6}',
}


class RuleReader(StepReader):
    """Turns parsed JSON into rules and shifts."""

    def rule(self, name: str, said: JsonObject, where: str) -> PlanRule | None:
        """Return the rule that a plan is, None where something is wrong with it."""
        choices, otherwise = self.choices(said, where)
        steps = self.own_steps(said, where)
        if otherwise is None or any(choice is None for choice in choices):
            return None
        doses = [dose.name for dose in self.encoding.doses]
        return PlanRule(name, steps, tuple(c for c in choices if c), tuple(otherwise), _in_words(said, doses))

    def choices(
        self, said: JsonObject, where: str, *, inner: bool = False
    ) -> tuple[list[Choice | None], list[float] | None]:
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
        """Return what one text gives, with its probability."""
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


def _in_words(said: JsonObject, doses: Collection[str]) -> str:
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
        words.append(_in_words(other, doses))
    elif isinstance(other, JsonObject) and other:
        words.append(" and ".join(name if level in (1, True) and name not in doses else f"{name} = {level}"
                                  for name, level in other.items()))  # fmt: skip
    else:
        words.append("none")
    return "; else ".join(words)
