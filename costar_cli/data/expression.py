"""A small language of conditions over columns, such as `age >= 85 and not site = 'north'`; nothing is ever evaluated.

condition  := conjunction { "or" conjunction }
conjunction := negation { "and" negation }
negation   := "not" negation | "(" condition ")" | value comparison value
comparison := "<" | "<=" | ">" | ">=" | "=" | "==" | "!="
value      := number | 'text' | "text" | true | false | column | `any column`

In rules of treatment a column may be counted, or be the natural treatment, and treatments stand before the condition.

rule       := "none" | "natural" | treatment { "and" treatment }  [ "if" condition ]
treatment  := name [ "=" ( constant | natural [ ( "+" | "-" | "*" ) number ] ) ]
natural    := "natural" name
column     := name [ "in" "last" number ] | natural
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any, Final, Literal

LONGEST: Final = 1_000
DEEPEST: Final = 40
OPERATORS: Final = {"<": lt, "<=": le, ">": gt, ">=": ge, "=": eq, "==": eq, "!=": ne}
LONGEST_WINDOW: Final = 1_000
WORDS: Final = ("and", "or", "not", "in", "if")  # that no name of a treatment follows `natural` as

Use = Literal["number", "binary", "text"]
Constant = bool | float | str


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its name, at how many of the `last` steps it was not 0, or what a treatment would be anyway."""

    name: str
    last: int | None = None
    natural: bool = False


Side = Column | Constant


@dataclass(frozen=True, slots=True)
class Natural:
    """What a treatment would be anyway, times a factor, plus a number."""

    name: str
    factor: float = 1.0
    plus: float = 0.0


Assigned = Mapping[str, Constant | Natural]
"""What a rule gives of each treatment that it names."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides, and how they are read: as the constant among them is, two columns as numbers."""

    operator: str
    left: Side
    right: Side

    @property
    def use(self) -> Use:
        """Return how the columns are read."""
        constant = next((side for side in (self.left, self.right) if not isinstance(side, Column)), 0.0)
        return "binary" if isinstance(constant, bool) else "text" if isinstance(constant, str) else "number"

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the sides that are columns."""
        return tuple(side for side in (self.left, self.right) if isinstance(side, Column))


@dataclass(frozen=True, slots=True)
class Opposite:
    """What holds where a condition does not."""

    inner: "Tree"


@dataclass(frozen=True, slots=True)
class Joined:
    """Conditions that hold all (`and`), or one of which does (`or`)."""

    word: Literal["and", "or"]
    parts: "tuple[Tree, ...]"


Tree = Comparison | Opposite | Joined


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as it was written, which arrays of any library can be held against."""

    tree: Tree

    @property
    def uses(self) -> Mapping[str, set[Use]]:
        """Return how each column is read, in the order of the text; two that are compared are read as numbers."""
        uses: dict[str, set[Use]] = {}
        for comparison in self.comparisons:
            for column in comparison.columns:
                uses.setdefault(column.name, set()).add(comparison.use)
        return uses

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns that are named, each once."""
        return tuple(dict.fromkeys(column for each in self.comparisons for column in each.columns))

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Return all comparisons, in the order of the text."""
        return tuple(_comparisons(self.tree))

    def holds(self, side: Callable[[Side, Use], Any]) -> Any:  # noqa: ANN401
        """Return where the condition holds; `side` gives what a column or a constant stands for, and what it is."""
        return _holds(self.tree, side)


def _comparisons(tree: Tree) -> Iterator[Comparison]:
    if isinstance(tree, Comparison):
        yield tree
    else:
        for part in tree.parts if isinstance(tree, Joined) else (tree.inner,):
            yield from _comparisons(part)


def _holds(tree: Tree, side: Callable[[Side, Use], Any]) -> Any:  # noqa: ANN401
    if isinstance(tree, Opposite):
        return ~_holds(tree.inner, side)
    if isinstance(tree, Joined):
        return reduce(and_ if tree.word == "and" else or_, [_holds(part, side) for part in tree.parts])
    return OPERATORS[tree.operator](side(tree.left, tree.use), side(tree.right, tree.use))


_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<text>'[^']*'|"[^"]*")
    | (?P<quoted>`[^`]+`)
    | (?P<word>[^\W\d]\w*)
    | (?P<operator><=|>=|==|!=|<|>|=)
    | (?P<bracket>[()])
    | (?P<sign>[-+*])
    )""",
    re.VERBOSE,
)


def parse_condition(text: str, past: Collection[str] | None = None) -> Condition:
    """Return the condition that a text says.

    Args:
        text: the condition.
        past: columns that may be counted over earlier steps; without `in last` they are those of the step before.

    Raises:
        ValueError: the text is no condition; the message names the place.
    """
    parser = _parser(text, "a condition", windows=past is not None)
    parser.past = past or ()
    return Condition(parser.whole())


def parse_rule(text: str) -> tuple[Assigned | None, Condition | None]:
    """Return the treatments that a text gives, and the condition under which it does, None for always.

    Treatments are none of all for `none`, and None for `natural`: what would be given anyway.

    Raises:
        ValueError: the text is no rule; the message names the place.
    """
    parser = _parser(text, "a rule", windows=True)
    given = parser.treatments()
    if not parser.take("word", "if"):
        if parser.token.kind != "end":
            raise ValueError(f"`if` expected before {parser.token.shown}")
        return given, None
    return given, Condition(parser.whole())


def _parser(text: str, what: str, *, windows: bool = False) -> "_Parser":
    if len(text) > LONGEST:
        raise ValueError(f"{what} of more than {LONGEST:,} characters")
    return _Parser(_tokens(text), windows=windows)


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

    def __init__(self, tokens: list[_Token], *, windows: bool = False) -> None:
        self._tokens = tokens
        self._place = 0
        self._windows = windows
        self.past: Collection[str] = ()

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

    def whole(self) -> Tree:
        tree = self.condition(0)
        if self.token.kind != "end":
            raise ValueError(f"`and` or `or` expected before {self.token.shown}")
        return tree

    def treatments(self) -> Assigned | None:
        if self.take("word", "none"):
            return {}
        if self.take("word", "natural"):
            return None
        given: dict[str, Constant | Natural] = {}
        while not given or self.take("word", "and"):
            name = self.name()
            if name is None:
                raise ValueError(f"a treatment expected before {self.token.shown}")
            if name in given:
                raise ValueError(f"`{name}` is given twice")
            given[name] = 1.0
            if self.take("operator", "="):
                level = self.value()
                if isinstance(level, Column) and not level.natural:
                    raise ValueError(
                        f"the level of `{name}` is a number or a text in quotes, not `{level.name}`; what would be "
                        f"given anyway is `natural {name}`"
                    )
                given[name] = self.moved(level.name) if isinstance(level, Column) else level
        return given

    def moved(self, name: str) -> Natural:
        """Return a natural treatment with the number that is added to it, taken from it, or multiplies it."""
        sign = self.take("sign")
        token = self.take("number")
        if token is None:
            if sign:
                raise ValueError(f"a number expected before {self.token.shown}")
            return Natural(name)
        number = float(token.text)
        if sign is None and token.text[0] not in "+-":
            raise ValueError(f"`+`, `-` or `*` expected before `{token.text}`")
        if sign and sign.text == "*":
            return Natural(name, factor=number)
        return Natural(name, plus=-number if sign and sign.text == "-" else number)

    def condition(self, depth: int) -> Tree:
        if depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} levels deep")
        parts = [self.conjunction(depth)]
        while self.take("word", "or"):
            parts.append(self.conjunction(depth))
        return parts[0] if len(parts) == 1 else Joined("or", tuple(parts))

    def conjunction(self, depth: int) -> Tree:
        parts = [self.negation(depth)]
        while self.take("word", "and"):
            parts.append(self.negation(depth))
        return parts[0] if len(parts) == 1 else Joined("and", tuple(parts))

    def negation(self, depth: int) -> Tree:
        if self.take("word", "not"):
            if depth > DEEPEST:
                raise ValueError(f"nested more than {DEEPEST} levels deep")
            return Opposite(self.negation(depth + 1))
        if self.take("bracket", "("):
            inside = self.condition(depth + 1)
            if not self.take("bracket", ")"):
                raise ValueError(f"`)` expected before {self.token.shown}")
            return inside
        return self.comparison()

    def comparison(self) -> Tree:
        left = self.value()
        operator = self.take("operator")
        if operator is None:
            raise ValueError(f"a comparison such as `>=` expected before {self.token.shown}")
        right = self.value()
        if not any(isinstance(side, Column) for side in (left, right)):
            raise ValueError(f"`{operator.text}` compares two constants: name a column")
        return Comparison(operator.text, left, right)

    def value(self) -> Side:
        if token := self.take("number"):
            return float(token.text)
        if token := self.take("text"):
            return token.text[1:-1]
        if token := self.take("word", "true", "false"):
            return token.text.lower() == "true"
        following = self._tokens[min(self._place + 1, len(self._tokens) - 1)]
        is_named = following.kind == "quoted" or (following.kind == "word" and following.text.lower() not in WORDS)
        natural = self._windows and is_named and self.take("word", "natural") is not None
        name = self.name()
        if name is None:
            raise ValueError(f"a column or a constant expected before {self.token.shown}")
        if natural:
            return Column(name, natural=True)
        return Column(name, self.window(name) or (1 if name in self.past else None))

    def name(self) -> str | None:
        if token := self.take("quoted"):
            return token.text[1:-1].strip()
        token = None if self.token.text.lower() in ("and", "or", "not") else self.take("word")
        return token.text if token else None

    def window(self, name: str) -> int | None:
        if not self._windows or not self.take("word", "in"):
            return None
        if not self.take("word", "last"):
            later = self.token.text.lower() in ("next", "future", "coming")
            raise ValueError(
                f"`{name} in {self.token.text}` reads the future: a rule knows what came before"
                if later
                else f"`in last` and a number of steps expected before {self.token.shown}"
            )
        token = self.take("number")
        steps = float(token.text) if token else 0.0
        if not (steps.is_integer() and 1 <= steps <= LONGEST_WINDOW):
            raise ValueError(f"`{name} in last` needs a whole number of steps, 1 to {LONGEST_WINDOW:,}")
        return int(steps)
