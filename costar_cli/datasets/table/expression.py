"""A small language of conditions over columns, such as `age >= 85 and not site = 'north'`; nothing is ever evaluated.

condition  := conjunction { "or" conjunction }
conjunction := negation { "and" negation }
negation   := "not" negation | "(" condition ")" | value comparison value
comparison := "<" | "<=" | ">" | ">=" | "=" | "==" | "!="
value      := number | 'text' | "text" | true | false | column | `any column`
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Final, Literal

import polars as pl

LONGEST: Final = 1_000
DEEPEST: Final = 40
OPERATORS: Final = {"<": lt, "<=": le, ">": gt, ">=": ge, "=": eq, "==": eq, "!=": ne}

Use = Literal["number", "binary", "text"]


@dataclass(frozen=True, eq=False, slots=True)
class Condition:
    """A condition for polars, whose columns are called `0`, `1`, ... in the order of `uses`.

    `uses` says how each column is read: as the constants that it is compared with; two columns are compared as numbers.
    """

    expression: pl.Expr
    uses: Mapping[str, set[Use]]

    def holds(self, columns: Mapping[str, pl.Series]) -> pl.Series:
        """Return where the condition holds, null where it compares a column that has no value."""
        frame = pl.DataFrame({str(i): columns[name] for i, name in enumerate(self.uses)})
        return frame.select(self.expression).to_series()


class _Column(str):
    """The name of a column."""

    __slots__ = ()


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
    expression = parser.condition(0)
    if parser.token.kind != "end":
        raise ValueError(f"`and` or `or` expected before {parser.token.shown}")
    return Condition(expression, parser.uses)


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
        self.uses: dict[str, set[Use]] = {}

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

    def condition(self, depth: int) -> pl.Expr:
        if depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} levels deep")
        parts = [self.conjunction(depth)]
        while self.take("word", "or"):
            parts.append(self.conjunction(depth))
        return reduce(or_, parts)

    def conjunction(self, depth: int) -> pl.Expr:
        parts = [self.negation(depth)]
        while self.take("word", "and"):
            parts.append(self.negation(depth))
        return reduce(and_, parts)

    def negation(self, depth: int) -> pl.Expr:
        if self.take("word", "not"):
            if depth > DEEPEST:
                raise ValueError(f"nested more than {DEEPEST} levels deep")
            return ~self.negation(depth + 1)
        if self.take("bracket", "("):
            inside = self.condition(depth + 1)
            if not self.take("bracket", ")"):
                raise ValueError(f"`)` expected before {self.token.shown}")
            return inside
        return self.comparison()

    def comparison(self) -> pl.Expr:
        left = self.value()
        operator = self.take("operator")
        if operator is None:
            raise ValueError(f"a comparison such as `>=` expected before {self.token.shown}")
        right = self.value()
        constant = next((side for side in (left, right) if not isinstance(side, _Column)), 0.0)
        use: Use = "binary" if isinstance(constant, bool) else "text" if isinstance(constant, str) else "number"
        if not any(isinstance(side, _Column) for side in (left, right)):
            raise ValueError(f"`{operator.text}` compares two constants: name a column")
        comparison: pl.Expr = OPERATORS[operator.text](self.side(left, use), self.side(right, use))
        return comparison

    def side(self, value: _Column | float | str, use: Use) -> pl.Expr:
        if not isinstance(value, _Column):
            return pl.lit(float(value) if isinstance(value, bool) else value)
        self.uses.setdefault(value, set()).add(use)
        return pl.col(str(list(self.uses).index(value)))

    def value(self) -> _Column | float | str:
        if token := self.take("number"):
            return float(token.text)
        if token := self.take("text"):
            return token.text[1:-1]
        if token := self.take("quoted"):
            return _Column(token.text[1:-1].strip())
        if token := self.take("word", "true", "false"):
            return token.text.lower() == "true"
        if self.token.text.lower() not in ("and", "or", "not") and (token := self.take("word")):
            return _Column(token.text)
        raise ValueError(f"a column or a constant expected before {self.token.shown}")
