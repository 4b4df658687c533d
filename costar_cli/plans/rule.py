"""Rules of treatment: what is given depends on the course so far (spec PLAN-4).

`M` counts courses: a subject in a draw. Rules are read in `read.py` and played in `rollout.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.nearest import did_you_mean
from costar_cli.data import PanelSchema, TreatmentEncoding, Values
from costar_cli.data.expression import Column, Condition, Side, Use
from costar_cli.errors import UsageError
from costar_cli.plans.shift import DIGITS

STEP: Final = "step"
PLANNED: Final = "plan_step"
MOST_SHOWN: Final = 12

Floats = NDArray[np.float64]
Levels = Values
Options = tuple[Floats, Levels]
"""What a plan may give at a step: chances `[K,M]`, which sum to 1 over the K options, and levels `[K,M,names]`."""


@dataclass(frozen=True, eq=False, slots=True)
class Course:
    """Where M courses stand when the next treatment is decided.

    Attributes:
        columns: outcomes, statics and covariates `[M]` by name, and `step` and `plan_step`.
        given_MTA: levels of the treatments at the steps before, the last one last.
        usual_MA: the natural treatment: what the data gave at this step, or last where these have ended.
        encoding: of the treatments; conditions count steps with a level, and add doses up.
        chance_MC: numbers between 0 and 1, one per choice of a rule; only `decide` reads them.
        probability_MA: of each treatment other than its reference, given the course; only plans of odds read them.
    """

    columns: Mapping[str, Floats]
    given_MTA: Levels
    usual_MA: Levels
    encoding: TreatmentEncoding
    chance_MC: Floats | None = None
    probability_MA: Floats | None = None

    def side(self, value: Side, _: Use) -> Any:  # noqa: ANN401
        """Return what a side of a comparison stands for: a number, or one per course."""
        if not isinstance(value, Column):
            return float(value)
        if value.last is None:
            return self.columns[value.name]
        place = self.encoding.all_names.index(value.name)
        window_MT = self.given_MTA[:, -value.last :, place]
        return ((window_MT != 0) if place < len(self.encoding.names) else window_MT).sum(axis=1)


@dataclass(frozen=True, slots=True)
class Choice:
    """The levels that a rule gives where a condition holds, if chance has it."""

    values: tuple[float, ...]
    condition: Condition | None = None
    probability: float = 1.0


@dataclass(frozen=True, eq=False, slots=True)
class PlanRule:
    """A rule for so many steps: the first choice that holds is given, otherwise the last values."""

    name: str
    steps: int
    choices: tuple[Choice, ...]
    otherwise: tuple[float, ...]
    text: str

    def __len__(self) -> int:
        return self.steps

    @property
    def reads_natural(self) -> bool:
        """Return whether what is given depends on the natural treatment."""
        return False

    @property
    def has_chance(self) -> bool:
        """Return whether what is given is left to chance."""
        return any(0 < choice.probability < 1 for choice in self.choices)

    def reads(self, names: Sequence[str]) -> list[str]:
        """Return which of some columns the conditions read."""
        read = {column.name for choice in self.choices if choice.condition for column in choice.condition.columns}
        return [name for name in names if name in read]

    @property
    def window(self) -> int:
        """Return how many earlier steps the conditions read."""
        read = [column.last or 1 for choice in self.choices if choice.condition for column in choice.condition.columns]
        return max(read, default=1)

    @property
    def possible(self) -> Levels:
        """Return all that the rule may give, `[k, names]`."""
        likely = [choice.values for choice in self.choices if choice.probability > 0]
        return np.unique(np.array([*likely, self.otherwise]), axis=0)

    def options(self, step: int, course: Course) -> Options:  # noqa: ARG002 - conditions read it as `plan_step`
        """Return how likely each choice `[K,M]`, and then what is given otherwise, is, and its levels `[K,M,names]`."""
        left_M, chance_KM = np.ones(len(course.usual_MA)), []
        for choice, holds_M in zip(self.choices, self._holding(course), strict=True):
            chance_KM.append(left_M * choice.probability * holds_M)
            left_M = left_M * (1 - choice.probability * holds_M)
        return np.stack([*chance_KM, left_M]), self._values(course)

    def decide(self, course: Course) -> Levels:
        """Return the levels `[M, names]` that courses are given at their step, by the chance that they have."""
        assert course.chance_MC is not None  # noqa: S101 - whoever plays a rule draws them
        every_M = np.arange(len(course.usual_MA))
        taken_KM = [
            holds_M & (chance_M < choice.probability)
            for choice, holds_M, chance_M in zip(self.choices, self._holding(course), course.chance_MC.T, strict=True)
        ]
        first_M = np.argmax([*taken_KM, np.ones(len(every_M), dtype=bool)], axis=0)
        decided_MA: Levels = self._values(course)[first_M, every_M]
        return decided_MA

    def _holding(self, course: Course) -> list[NDArray[np.bool_]]:
        """Return where the condition of each choice holds `[M]`."""
        always_M = np.ones(len(course.usual_MA), dtype=bool)
        return [always_M & (c.condition.holds(course.side) if c.condition else True) for c in self.choices]

    def _values(self, course: Course) -> Levels:
        """Return the levels `[K,M,names]` of each choice, and what is given otherwise."""
        rows = [*(choice.values for choice in self.choices), self.otherwise]
        values_KA = np.array(rows, dtype=course.usual_MA.dtype)
        return np.repeat(values_KA[:, None], len(course.usual_MA), axis=1)


@dataclass(frozen=True, eq=False, slots=True)
class PlanShift:
    """A shift of what would be given anyway, for so many steps, to the nearest level that there is (spec PLAN-3).

    `table` has, by treatment, the level that each level becomes; `moves`, by dose, a number and whether it is a share:
    doses are moved exactly, and not below 0 where none ever was.
    """

    name: str
    steps: int
    table: Mapping[str, tuple[int, ...]]
    text: str
    encoding: TreatmentEncoding = field(repr=False)
    moves: Mapping[str, tuple[float, bool]] = field(default_factory=dict)

    choices: tuple[Choice, ...] = ()
    has_chance: bool = False
    reads_natural: bool = True
    window: int = 1

    def __len__(self) -> int:
        return self.steps

    def options(self, step: int, course: Course) -> Options:  # noqa: ARG002
        """Return the shifted levels as the one option `[1,M,names]`; see `decide`."""
        return np.ones((1, len(course.usual_MA))), self.decide(course)[None]

    def reads(self, names: Sequence[str]) -> list[str]:  # noqa: ARG002
        """Return no column: a shift reads none."""
        return []

    @property
    def possible(self) -> Levels:
        """Return nothing given: what a shift gives is known once the subject is."""
        return np.zeros((1, len(self.encoding.all_names)), dtype=self.encoding.value_type)

    def decide(self, course: Course) -> Levels:
        """Return the shifted levels `[M, names]`; a combination that never occurs stays as it was.

        Raises:
            UsageError: a dose is moved to one that cannot be given.
        """
        n, shifted_MA = len(self.encoding.names), course.usual_MA.copy()
        for name, levels in self.table.items():
            i = self.encoding.names.index(name)
            shifted_MA[:, i] = np.array(levels)[shifted_MA[:, i].astype(np.int64)]
        if self.encoding.classes:
            classes_KA = np.array(self.encoding.classes)
            known_M = (shifted_MA[:, None, :n] == classes_KA).all(axis=2).any(axis=1)
            shifted_MA[:, :n] = np.where(known_M[:, None], shifted_MA[:, :n], course.usual_MA[:, :n])
        for i, dose in enumerate(self.encoding.doses, start=n):
            if dose.name in self.moves:
                by, is_share = self.moves[dose.name]
                moved_M = shifted_MA[:, i] * (1 + by / 100) if is_share else shifted_MA[:, i] + by
                nearest_M = dose.nearest(moved_M.round(DIGITS))
                shifted_MA[:, i] = nearest_M
                ends = (float(nearest_M.min()), float(nearest_M.max())) if len(nearest_M) and not dose.elapsed else ()
                for value in ends:
                    if problem := dose.problem(value):
                        text = f"plan {self.name!r} moves {dose.name} to {value:g}: {problem}"
                        raise UsageError(text, where="--plan", fix="shift it by less")
        return shifted_MA


Rule = PlanRule | PlanShift


def condition_problem(condition: Condition, schema: PanelSchema | None, encoding: TreatmentEncoding) -> str:
    """Return what a rule's condition reads that no rule can read; empty if there is nothing."""
    treatments, known = encoding.all_names, [*_columns(schema), STEP, PLANNED]
    for column in condition.columns:
        if column.last is not None and column.name not in treatments:
            near = did_you_mean(column.name, treatments, lead="; ", quoted=True)
            return f"`{column.name} in last {column.last}` counts no treatment{near}"
        if column.last is None and column.name in treatments:
            return f"`{column.name}` is what the rule decides: write `{column.name} in last 1` for the step before"
        if column.last is None and column.name not in known:
            near = did_you_mean(column.name, known, lead="; ", quoted=True)
            return f"there is no column `{column.name}`{near}"
    if texts := [name for name, uses in condition.uses.items() if "text" in uses]:
        return f"`{texts[0]}` is a number, and is compared with a text"
    return ""


def readable(schema: PanelSchema | None, encoding: TreatmentEncoding) -> str:
    """Return what rules may read, for a message."""
    columns = _columns(schema)
    shown = [*columns[:MOST_SHOWN], *["..."] * (len(columns) > MOST_SHOWN), STEP, PLANNED]
    return f"rules read {', '.join(shown)}, and `NAME in last K` of {', '.join(encoding.all_names)}"


def _columns(schema: PanelSchema | None) -> list[str]:
    return [v.name for v in (*schema.outcomes, *schema.statics, *schema.covariates)] if schema else []
