"""Rules of treatment: what is given depends on the course so far (spec PLAN-4).

`M` counts courses: a subject in a draw. Rules are read in `read.py` and played in `rollout.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.nearest import did_you_mean
from costar_cli.data import PanelSchema, TreatmentEncoding, Values
from costar_cli.data.expression import Column, Comparison, Condition, Side, Use
from costar_cli.data.levels import known_levels
from costar_cli.errors import UsageError
from costar_cli.plans.shift import DIGITS, level_numbers

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
        chance_MC: numbers between 0 and 1, the `n_chances` of a plan; only `decide` reads them.
        probability_MA: of each treatment other than its reference, given the course; only plans of odds read them.
    """

    columns: Mapping[str, Floats]
    given_MTA: Levels
    usual_MA: Levels
    encoding: TreatmentEncoding
    chance_MC: Floats | None = None
    probability_MA: Floats | None = None

    def side(self, value: Side, use: Use) -> Any:  # noqa: ANN401
        """Return what a side of a comparison stands for: a number or a text, or one per course."""
        if not isinstance(value, Column):
            return value if use == "text" else float(value)
        if value.natural:  # what a treatment would be anyway: a dose, or what its level is called
            place = self.encoding.all_names.index(value.name)
            usual_M = self.usual_MA[:, place]
            if place >= len(self.encoding.names):
                return usual_M
            levels = self.encoding.levels[place]
            return np.array(levels if use == "text" else level_numbers(levels))[usual_M.astype(np.int64)]
        if value.last is None:
            return self.columns[value.name]
        place = self.encoding.all_names.index(value.name)
        window_MT = self.given_MTA[:, -value.last :, place]
        return ((window_MT != 0) if place < len(self.encoding.names) else window_MT).sum(axis=1)


@dataclass(frozen=True, slots=True)
class Choice:
    """The treatments that a rule gives where a condition holds, if chance has it.

    Each is its value, plus the natural one times its factor; there are no `factors` where nothing natural is given.
    """

    values: tuple[float, ...]
    condition: Condition | None = None
    probability: float = 1.0
    factors: tuple[float, ...] = ()

    @property
    def reads_natural(self) -> bool:
        """Return whether its treatments or its condition depend on the natural ones."""
        return bool(self.factors) or any(c.natural for c in (self.condition.columns if self.condition else ()))

    def levels(self, course: Course) -> Levels:
        """Return the levels `[M,names]` of courses; a combination that never occurs stays as it was."""
        made_MA = np.tile(np.array(self.values, dtype=course.usual_MA.dtype), (len(course.usual_MA), 1))
        if not self.factors:
            return made_MA
        for place, (factor, plus) in enumerate(zip(self.factors, self.values, strict=True)):
            if place in self.moved:
                dose = course.encoding.doses[place - len(course.encoding.names)]
                made_MA[:, place] = dose.nearest((factor * course.usual_MA[:, place] + plus).round(DIGITS))
            elif factor:
                made_MA[:, place] = course.usual_MA[:, place]
        return _occurring(course.encoding, made_MA, course.usual_MA)

    @property
    def moved(self) -> tuple[int, ...]:
        """Return which treatments are natural ones with another number: doses."""
        pairs = zip(self.factors, self.values, strict=False)
        return tuple(i for i, (factor, plus) in enumerate(pairs) if factor and (factor, plus) != (1, 0))


def _occurring(encoding: TreatmentEncoding, made_MA: Levels, usual_MA: Levels) -> Levels:
    """Return treatments whose levels are the natural ones where their combination never occurs."""
    if not encoding.classes:
        return made_MA
    n = len(encoding.names)
    known_M = (made_MA[:, None, :n] == np.array(encoding.classes)).all(axis=2).any(axis=1)
    return np.where(known_M[:, None] | (np.arange(made_MA.shape[1]) >= n), made_MA, usual_MA)


def _refuse_doses(plan: str, encoding: TreatmentEncoding, places: Sequence[int], values_MA: Levels) -> None:
    """Refuse doses that a plan moved to what cannot be given; how long it is until the next visit is moved freely."""
    for place in places:
        dose = encoding.doses[place - len(encoding.names)]
        ends = (values_MA[:, place].min(), values_MA[:, place].max()) if len(values_MA) and not dose.elapsed else ()
        for value in ends:
            if problem := dose.problem(float(value)):
                text = f"plan {plan!r} moves {dose.name} to {value:g}: {problem}"
                raise UsageError(text, where="--plan", fix="shift it by less")


@dataclass(frozen=True, eq=False, slots=True)
class PlanRule:
    """A rule for so many steps: the first choice that holds is given, otherwise the last one, which always holds."""

    name: str
    steps: int
    choices: tuple[Choice, ...]
    otherwise: Choice
    text: str

    def __len__(self) -> int:
        return self.steps

    @property
    def reads_natural(self) -> bool:
        """Return whether what is given depends on the natural treatment."""
        return any(choice.reads_natural for choice in (*self.choices, self.otherwise))

    @property
    def n_chances(self) -> int:
        """Return how many random numbers `decide` takes for a course at a step."""
        return len(self.choices)

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
        """Return all that the rule may give, `[k, names]`, whatever the natural treatment is; otherwise nothing."""
        likely = [choice for choice in self.choices if choice.probability > 0]
        fixed = [choice.values for choice in (*likely, self.otherwise) if not choice.factors]
        return np.unique(np.array(fixed or [(0,) * len(self.otherwise.values)]), axis=0)

    def options(self, step: int, course: Course) -> Options:  # noqa: ARG002 - conditions read it as `plan_step`
        """Return how likely each choice `[K,M]`, and then what is given otherwise, is, and its levels `[K,M,names]`.

        Raises:
            UsageError: a dose is moved to one that cannot be given.
        """
        left_M, chance_KM = np.ones(len(course.usual_MA)), []
        for choice, holds_M in zip(self.choices, self._holding(course), strict=True):
            chance_KM.append(left_M * choice.probability * holds_M)
            left_M = left_M * (1 - choice.probability * holds_M)
        chance_KM.append(left_M)
        every = zip((*self.choices, self.otherwise), chance_KM, strict=True)
        return np.stack(chance_KM), np.stack([self._levels(choice, course, chance_M > 0) for choice, chance_M in every])

    def decide(self, course: Course) -> Levels:
        """Return the levels `[M, names]` that courses are given at their step, by the chance that they have.

        Raises:
            UsageError: a dose is moved to one that cannot be given.
        """
        assert course.chance_MC is not None  # noqa: S101 - whoever plays a rule draws them
        left_M, decided_MA = np.ones(len(course.usual_MA), dtype=bool), np.empty_like(course.usual_MA)
        for choice, holds_M, chance_M in zip(self.choices, self._holding(course), course.chance_MC.T, strict=True):
            taken_M = left_M & holds_M & (chance_M < choice.probability)
            decided_MA[taken_M] = self._levels(choice, course, taken_M)[taken_M]
            left_M &= ~taken_M
        decided_MA[left_M] = self._levels(self.otherwise, course, left_M)[left_M]
        return decided_MA

    def _holding(self, course: Course) -> list[NDArray[np.bool_]]:
        """Return where the condition of each choice holds `[M]`."""
        always_M = np.ones(len(course.usual_MA), dtype=bool)
        return [always_M & (c.condition.holds(course.side) if c.condition else True) for c in self.choices]

    def _levels(self, choice: Choice, course: Course, taken_M: NDArray[np.bool_]) -> Levels:
        """Return the levels `[M,names]` of a choice, which some courses may take: their doses are checked."""
        levels_MA = choice.levels(course)
        _refuse_doses(self.name, course.encoding, choice.moved, levels_MA[taken_M])
        return levels_MA


@dataclass(frozen=True, eq=False, slots=True)
class PlanShift:
    """A shift of the natural treatment, for so many steps, to the nearest level that there is (spec PLAN-3).

    Nothing is shifted in the natural course. `table` has, by treatment, the level that each level becomes; `moves`, by
    dose, a number and whether it is a share: doses are moved exactly, and not below 0 where none ever was.
    """

    name: str
    steps: int
    table: Mapping[str, tuple[int, ...]]
    text: str
    encoding: TreatmentEncoding = field(repr=False)
    moves: Mapping[str, tuple[float, bool]] = field(default_factory=dict)

    n_chances: ClassVar[int] = 0
    has_chance: ClassVar[bool] = False
    reads_natural: ClassVar[bool] = True
    window: ClassVar[int] = 1

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
        shifted_MA = _occurring(self.encoding, shifted_MA, course.usual_MA)
        for i, dose in enumerate(self.encoding.doses, start=n):
            if dose.name in self.moves:
                by, is_share = self.moves[dose.name]
                moved_M = shifted_MA[:, i] * (1 + by / 100) if is_share else shifted_MA[:, i] + by
                shifted_MA[:, i] = dose.nearest(moved_M.round(DIGITS))
                _refuse_doses(self.name, self.encoding, [i], shifted_MA)
        return shifted_MA


@dataclass(frozen=True, eq=False, slots=True)
class PlanOdds:
    """The odds with which a treatment is given, times a ratio, for so many steps (Kennedy 2019; spec PLAN-10).

    The treatment is off or on; the others are what they would be anyway.
    """

    name: str
    steps: int
    treatment: str
    ratio: float
    text: str
    encoding: TreatmentEncoding = field(repr=False)

    n_chances: ClassVar[int] = 1
    has_chance: ClassVar[bool] = True
    window: ClassVar[int] = 1

    def __len__(self) -> int:
        return self.steps

    @property
    def reads_natural(self) -> bool:
        """Return whether what is given depends on the natural treatment: where there are others."""
        return len(self.encoding.all_names) > 1

    @property
    def possible(self) -> Levels:
        """Return nothing given: with what the treatment comes is known once the subject is."""
        return np.zeros((1, len(self.encoding.all_names)), dtype=self.encoding.value_type)

    def reads(self, names: Sequence[str]) -> list[str]:  # noqa: ARG002
        """Return no column: whatever the probability of treatment depends on."""
        return []

    def options(self, step: int, course: Course) -> Options:  # noqa: ARG002
        """Return how likely the treatment is not given and is given `[2,M]`, and the levels `[2,M,names]`.

        Raises:
            UsageError: the probability of treatment is not known.
        """
        if course.probability_MA is None:
            problem = f"plan {self.name!r} multiplies the odds of {self.treatment}, which are not known here"
            raise UsageError(problem, where="--plan", fix="ask `costar effect`, which models how treatment is chosen")
        place = self.encoding.names.index(self.treatment)
        usual_M = course.probability_MA[:, place]
        given_M = self.ratio * usual_M / (1 - usual_M + self.ratio * usual_M)
        values_KMA = np.stack([course.usual_MA, course.usual_MA])
        values_KMA[:, :, place] = [[0], [1]]
        return np.stack([1 - given_M, given_M]), values_KMA

    def decide(self, course: Course) -> Levels:
        """Return the levels `[M, names]` that courses are given, by the chance that they have; see `options`."""
        assert course.chance_MC is not None  # noqa: S101 - whoever plays a plan draws them
        (_, given_M), values_KMA = self.options(0, course)
        decided_MA: Levels = np.where((course.chance_MC[:, 0] < given_M)[:, None], values_KMA[1], values_KMA[0])
        return decided_MA


Rule = PlanRule | PlanShift | PlanOdds


def condition_problem(condition: Condition, schema: PanelSchema | None, encoding: TreatmentEncoding) -> str:
    """Return what a rule's condition reads that no rule can read; empty if there is nothing."""
    treatments, known = encoding.all_names, [*_columns(schema), STEP, PLANNED]
    for column in condition.columns:
        name = column.name
        if column.natural and name not in treatments:
            return f"`natural {name}` is no treatment{did_you_mean(name, treatments, lead='; ', quoted=True)}"
        if column.last is not None and name not in treatments:
            near = did_you_mean(name, treatments, lead="; ", quoted=True)
            return f"`{name} in last {column.last}` counts no treatment{near}"
        if column == Column(name) and name in treatments:
            instead = f"write `{name} in last 1` for the step before, `natural {name}` for what would be given anyway"
            return f"`{name}` is what the rule decides: {instead}"
        if column == Column(name) and name not in known:
            return f"there is no column `{name}`{did_you_mean(name, known, lead='; ', quoted=True)}"
    return next(filter(None, (_comparison_problem(each, encoding) for each in condition.comparisons)), "")


def _comparison_problem(comparison: Comparison, encoding: TreatmentEncoding) -> str:
    """Return what is wrong with how sides are compared: a number with a text, or a level that there is not."""
    levels = dict(zip(encoding.names, encoding.levels, strict=True))
    is_text = comparison.use == "text"
    for column in comparison.columns:
        of = levels.get(column.name) if column.natural else None
        if is_text and of is None:
            return f"`{'natural ' * column.natural}{column.name}` is a number, and is compared with a text"
        if is_text and of is not None:
            text = next(str(side) for side in (comparison.left, comparison.right) if not isinstance(side, Column))
            if text not in of:
                near = did_you_mean(text, of, lead="; ", quoted=True) or f"; it takes {known_levels(of)}"
                return f"`natural {column.name}` is never {text!r}{near}"
            if comparison.operator not in ("=", "==", "!="):
                return f"levels in quotes are compared by `=` or `!=`, not `{comparison.operator}`"
        elif of is not None and level_numbers(of) is None:
            return f"the levels of `{column.name}` are no numbers: compare `natural {column.name}` with one in quotes"
    return ""


def readable(schema: PanelSchema | None, encoding: TreatmentEncoding) -> str:
    """Return what rules may read, for a message."""
    columns = _columns(schema)
    shown = [*columns[:MOST_SHOWN], *["..."] * (len(columns) > MOST_SHOWN), STEP, PLANNED]
    of = ", ".join(encoding.all_names)
    return f"rules read {', '.join(shown)}, and `NAME in last K` and `natural NAME` of {of}"


def _columns(schema: PanelSchema | None) -> list[str]:
    return [v.name for v in (*schema.outcomes, *schema.statics, *schema.covariates)] if schema else []
