"""A small language of conditions over columns, such as `age >= 85 and not site = 'north'`; nothing is ever evaluated.

condition  := conjunction { "or" conjunction }
conjunction := negation { "and" negation }
negation   := "not" negation | "(" condition ")" | value comparison value
comparison := "<" | "<=" | ">" | ">=" | "=" | "==" | "!="
value      := number | 'text' | "text" | true | false | column | `any column`
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

LONGEST: Final = 1_000
DEEPEST: Final = 40

Operator = Literal["<", "<=", ">", ">=", "==", "!="]
Use = Literal["number", "binary", "text"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A number, a text, or a truth value."""

    value: float | str | bool


@dataclass(frozen=True, slots=True)
class Compare:
    """`left operator right`, at least one of them a column."""

    left: "Column | Constant"
    operator: Operator
    right: "Column | Constant"

    @property
    def use(self) -> Use:
        """Return how columns are read: as the literal's type; two columns are compared as numbers."""
        for side in (self.left, self.right):
            if isinstance(side, Constant):
                return "binary" if isinstance(side.value, bool) else "text" if isinstance(side.value, str) else "number"
        return "number"


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    condition: "Condition"


@dataclass(frozen=True, slots=True)
class All:
    """Every one of them."""

    conditions: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True)
class Any:
    """At least one of them."""

    conditions: "tuple[Condition, ...]"


Condition: TypeAlias = Compare | Not | All | Any

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<text>'[^']*'|"[^"]*")
    | (?P<quoted>`[^`]+`)
    | (?P<word>[^\W\d]\w*)
    | (?P<operator><=|>=|==|!=|<|>|=)
    | (?P<bracket>[()])
    )""",
    re.VERBOSE,
)


def parse_condition(text: str) -> Condition:
    """Return the condition that a text says.

    Raises:
        ValueError: the text is no condition; the message names the place.
    """
    if len(text) > LONGEST:
        raise ValueError(f"a condition of more than {LONGEST:,} characters")
    parser = _Parser(_tokens(text))
    condition = parser.condition(0)
    if parser.token.kind != "end":
        raise ValueError(f"`and` or `or` expected before {parser.token.shown}")
    return condition


def column_uses(condition: Condition) -> dict[str, set[Use]]:
    """Return the columns that a condition asks for, and how it reads each of them."""
    uses: dict[str, set[Use]] = {}
    for comparison in _comparisons(condition):
        for side in (comparison.left, comparison.right):
            if isinstance(side, Column):
                uses.setdefault(side.name, set()).add(comparison.use)
    return uses


def _comparisons(condition: Condition) -> Iterator[Compare]:
    if isinstance(condition, Compare):
        yield condition
    elif isinstance(condition, Not):
        yield from _comparisons(condition.condition)
    else:
        for part in condition.conditions:
            yield from _comparisons(part)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str

    @property
    def shown(self) -> str:
        return "the end" if self.kind == "end" else f"`{self.text}`"


def _tokens(text: str) -> list[_Token]:
    tokens, place = [], 0
    text = text.rstrip()
    while place < len(text):
        found = _TOKEN.match(text, place)
        if not found or not found.lastgroup:
            raise ValueError(f"`{text[place:].strip()[:12]}` is not understood")
        tokens.append(_Token(found.lastgroup, found[found.lastgroup]))
        place = found.end()
    return [*tokens, _Token("end", "")]


class _Parser:
    """Recursive descent over a list of tokens; `and`, `or`, `not`, `true` and `false` are words in any case."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._place = 0

    @property
    def token(self) -> _Token:
        return self._tokens[self._place]

    def take(self, kind: str, *texts: str) -> _Token | None:
        """Return the next token and go on, if it is one of these."""
        token = self.token
        if token.kind != kind or (texts and token.text.lower() not in texts):
            return None
        self._place += 1
        return token

    def condition(self, depth: int) -> Condition:
        if depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} levels deep")
        parts = [self.conjunction(depth)]
        while self.take("word", "or"):
            parts.append(self.conjunction(depth))
        return parts[0] if len(parts) == 1 else Any(tuple(parts))

    def conjunction(self, depth: int) -> Condition:
        parts = [self.negation(depth)]
        while self.take("word", "and"):
            parts.append(self.negation(depth))
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def negation(self, depth: int) -> Condition:
        if self.take("word", "not"):
            if depth > DEEPEST:
                raise ValueError(f"nested more than {DEEPEST} levels deep")
            return Not(self.negation(depth + 1))
        if self.take("bracket", "("):
            inside = self.condition(depth + 1)
            if not self.take("bracket", ")"):
                raise ValueError(f"`)` expected before {self.token.shown}")
            return inside
        return self.comparison()

    def comparison(self) -> Compare:
        left = self.value()
        operator = self.take("operator")
        if operator is None:
            raise ValueError(f"a comparison such as `>=` expected before {self.token.shown}")
        right = self.value()
        if isinstance(left, Constant) and isinstance(right, Constant):
            raise ValueError(f"`{operator.text}` compares two constants: name a column")
        spelt: dict[str, Operator] = {"<": "<", "<=": "<=", ">": ">", ">=": ">=", "=": "==", "==": "==", "!=": "!="}
        return Compare(left, spelt[operator.text], right)

    def value(self) -> Column | Constant:
        if token := self.take("number"):
            return Constant(float(token.text))
        if token := self.take("text"):
            return Constant(token.text[1:-1])
        if token := self.take("quoted"):
            return Column(token.text[1:-1].strip())
        if token := self.take("word", "true", "false"):
            return Constant(token.text.lower() == "true")
        if self.token.text.lower() not in ("and", "or", "not") and (token := self.take("word")):
            return Column(token.text)
        raise ValueError(f"a column or a constant expected before {self.token.shown}")
