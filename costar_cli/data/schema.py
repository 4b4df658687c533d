"""What the columns of a panel mean: names, units, kinds, and how treatments are coded."""

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, Field, model_validator

from costar_cli.config.models import WithAdditions
from costar_cli.data.dose import FROZEN, Dose, Name
from costar_cli.data.levels import is_on_off

Values = NDArray[np.int64 | np.float64]  # of treatments, as plans give them: integers, floats where there are doses

JOINT: Final = "/"  # between the parts of a subject's name
TreatmentMode = Literal["multiclass", "multilabel"]
Transform = Literal["log", "log1p", "difference"]


class Variable(WithAdditions):
    """One covariate, outcome or static feature: one number per subject (and step).

    An outcome with a `transform` stands in panels as the data have it; models learn it transformed (spec PANEL-18).
    """

    model_config = FROZEN
    additions: ClassVar[tuple[str, ...]] = ("transform",)

    name: Name
    unit: str = ""
    kind: Literal["continuous", "count", "binary", "ordinal"] = "continuous"
    standardize: bool = Field(True, description="Whether models see (value - mean) / sd of source-train")
    transform: Transform | None = None


def transformed_unit(transform: Transform | None, unit: str) -> str:
    """Return the unit of what models see of a variable: `log(EUR)`."""
    if transform in (None, "difference"):
        return unit
    return f"{transform}({unit})" if unit else str(transform)


def labelled(name: str, unit: str) -> str:
    """Return what figures and pages call a variable: `tumour volume (cm3)`."""
    words = name.replace("_", " ").strip() or name
    return f"{words} ({unit})" if unit else words


class TreatmentEncoding(WithAdditions):
    """How named treatments become the `da` numbers that models see.

    `names` are what a plan calls those with levels; each takes an integer value 0..len(levels)-1, where 0 is the
    reference ("not given"). In `multilabel` mode the encoded columns are the values themselves. In `multiclass` mode
    exactly one column is 1: the one whose row of `classes` equals the values. The columns of `doses`, treatments that
    are numbers, stand behind these; values are then floats.
    """

    model_config = FROZEN
    additions: ClassVar[tuple[str, ...]] = ("doses",)

    mode: TreatmentMode
    names: tuple[Name, ...]
    levels: tuple[tuple[Name, ...], ...]
    classes: tuple[tuple[int, ...], ...] = ()
    doses: tuple[Dose, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.levels) != len(self.names):
            raise ValueError("one tuple of levels per treatment name")
        if not self.all_names or len(set(self.all_names)) < len(self.all_names):
            raise ValueError("treatments need at least one name, each used once")
        if any(len(levels) < 2 or len(set(levels)) < len(levels) for levels in self.levels):
            raise ValueError("a treatment needs two or more levels, each named once")
        if (self.mode == "multiclass") != bool(self.classes):
            raise ValueError("multiclass treatments need `classes`, and no others take them")
        if self.mode == "multilabel" and any(len(levels) != 2 for levels in self.levels):
            raise ValueError("multilabel treatments are binary")
        if any(len(row) != len(self.names) for row in self.classes):
            raise ValueError("one value per treatment name in each class")
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("each class is listed once")
        sizes = [len(levels) for levels in self.levels]
        if any(not 0 <= value < size for row in self.classes for value, size in zip(row, sizes, strict=True)):
            raise ValueError("a class uses a level that its treatment does not have")
        return self

    @property
    def all_names(self) -> tuple[str, ...]:
        """Return what plans call treatments: those with levels, then the doses."""
        return (*self.names, *(dose.name for dose in self.doses))

    @property
    def value_type(self) -> type[np.int64 | np.float64]:
        """Return the type of plans' values."""
        return np.float64 if self.doses else np.int64

    @property
    def idle(self) -> Values:
        """Return the values `[names]` of a step without treatment: 0, and how long it usually is until the next one."""
        values = [0] * len(self.names) + [dose.elapsed or 0 for dose in self.doses]
        return np.array(values, dtype=self.value_type)

    @property
    def level_width(self) -> int:
        """Return the number of encoded columns of treatments with levels."""
        return len(self.classes) if self.mode == "multiclass" else len(self.names)

    @property
    def width(self) -> int:
        """Return `da`, the number of encoded columns."""
        return self.level_width + sum(dose.width for dose in self.doses)

    @property
    def dose_columns(self) -> tuple[int, ...]:
        """Return the first encoded column of each dose."""
        return tuple(accumulate((dose.width for dose in self.doses), initial=self.level_width))[:-1]

    @property
    def columns(self) -> tuple[str, ...]:
        """Return a readable name per encoded column."""
        of_doses = tuple(column for dose in self.doses for column in dose.columns)
        if self.mode == "multilabel":
            return self.names + of_doses
        return tuple(self.describe_levels(row) for row in self.classes) + of_doses

    def describe(self, values: ArrayLike) -> str:
        """Return one step's treatment values as text, for example `chemotherapy+radiotherapy` or `dose=2.5 mg`.

        Where levels are called otherwise than off and on, or the like, the level is named, the reference too. How long
        it is until the next visit stands behind them: `chemotherapy (7 days to the next)`.
        """
        values_ = np.asarray(values)
        of_levels = self.describe_levels(values_[: len(self.names)]) if self.names else "none"
        given = [] if of_levels == "none" else [of_levels]
        of_doses = list(zip(self.doses, values_[len(self.names) :], strict=True))
        given += [f"{dose.name}={dose.text(value)}" for dose, value in of_doses if value and dose.elapsed is None]
        gaps = [f" ({dose.span(value)} to the next)" for dose, value in of_doses if value and dose.elapsed is not None]
        return "".join(["+".join(given) or "none", *gaps])

    def describe_levels(self, values: ArrayLike) -> str:
        """Return the values of treatments with levels as text."""
        given = [
            name if is_on_off(levels) else f"{name}={levels[int(value)]}"
            for name, levels, value in zip(self.names, self.levels, np.asarray(values), strict=True)
            if value or not is_on_off(levels)
        ]
        return "+".join(given) or "none"

    def encode(self, values: ArrayLike) -> NDArray[np.float32]:
        """Encode values `[..., names]`, integers but for doses, to `[..., da]`.

        Raises:
            ValueError: a value that is not a level or no dose, or a combination of values that has no class.
        """
        if not self.doses:
            return self._encode_levels(values)
        given = np.asarray(values, dtype=np.float64)
        n = len(self.names)
        of_doses = [dose.encode(given[..., n + i]) for i, dose in enumerate(self.doses)]
        return np.concatenate([self._encode_levels(given[..., :n]), *of_doses], axis=-1, dtype=np.float32)

    def _encode_levels(self, values: ArrayLike) -> NDArray[np.float32]:
        values_ = np.asarray(values, dtype=np.int64)
        if ((values_ < 0) | (values_ >= [len(levels) for levels in self.levels])).any():
            raise ValueError("a treatment value that is not one of its levels")
        if self.mode == "multilabel":
            return values_.astype(np.float32)
        match = (values_[..., None, :] == np.asarray(self.classes)).all(axis=-1)
        if not match.any(axis=-1).all():
            raise ValueError("a combination of treatments that has no class")
        encoded: NDArray[np.float32] = match.astype(np.float32)
        return encoded

    def decode(self, encoded: ArrayLike) -> Values:
        """Return the values `[..., names]` of encoded treatments `[..., da]`, integers but for doses.

        All-zero rows give zeros.
        """
        encoded_ = np.asarray(encoded)
        if not self.doses:
            return self._decode_levels(encoded_)
        doses = zip(self.doses, self.dose_columns, strict=True)
        of_doses = [dose.decode(encoded_[..., column])[..., None] for dose, column in doses]
        return np.concatenate([self._decode_levels(encoded_[..., : self.level_width]), *of_doses], axis=-1)

    def _decode_levels(self, encoded_: NDArray[Any]) -> NDArray[np.int64]:
        if self.mode == "multilabel":
            return encoded_.astype(np.int64)
        values = np.asarray(self.classes, dtype=np.int64)[encoded_.argmax(axis=-1)]
        return np.where(encoded_.any(axis=-1, keepdims=True), values, 0)


class End(BaseModel):
    """Why a series ends before its study does: an event after which nothing follows, or a loss of follow-up."""

    model_config = FROZEN

    name: Name
    terminal: bool = Field(True, description="Whether the subject has no later outcomes, as after death")


class ErrorUnit(BaseModel):
    """The unit in which a data set reports its error: RMSE times `factor`, called `label`."""

    model_config = FROZEN

    factor: float = 1.0
    label: str = ""
    space: Literal["original", "standardized"] = "original"


class PanelSchema(WithAdditions):
    """The columns shared by every panel of a data set; without outcomes only effects on its events are estimated."""

    model_config = FROZEN
    additions: ClassVar[tuple[str, ...]] = ("ends", "subject")

    covariates: tuple[Variable, ...] = ()
    treatments: TreatmentEncoding
    outcomes: tuple[Variable, ...]
    statics: tuple[Variable, ...] = ()
    step: str = Field("step", description="What one time step is, for example `day`")
    error_unit: ErrorUnit = ErrorUnit()
    ends: tuple[End, ...] = Field((), description="Why series end, by the codes 1, 2, ... of `Panel.end`")
    subject: tuple[Name, ...] = Field((), description="The columns whose values, joined by `/`, are subjects' names")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.outcomes and not self.terminal:
            raise ValueError("at least one outcome, or an event with which series end")
        variables = [v.name for v in (*self.covariates, *self.outcomes, *self.statics)]
        names = [*variables, *self.treatments.all_names]
        if twice := sorted(name for name, count in Counter(names).items() if count > 1):
            raise ValueError(f"each column needs its own name: {', '.join(twice)}")
        if len({end.name for end in self.ends}) < len(self.ends):
            raise ValueError("each end of series needs its own name")
        return self

    def keys_of(self, names: Sequence[str], taken: Collection[str] = ()) -> dict[str, list[str | None]]:
        """Return the columns of which subjects' names are made: nothing where that is one, None of other names.

        Those that would be called as one of the `taken` get a `_` behind them.
        """
        split = [name.split(JOINT) for name in names]
        whole = [parts if len(parts) == len(self.subject) else [None] * len(self.subject) for parts in split]
        free = [f"{column}_" if column in taken else column for column in self.subject]
        return {column: [parts[i] for parts in whole] for i, column in enumerate(free)}

    @property
    def terminal(self) -> dict[int, str]:
        """Return what terminal events are called, by their codes."""
        return {code: end.name for code, end in enumerate(self.ends, start=1) if end.terminal}

    @property
    def has_binary(self) -> bool:
        """Return whether some outcome is binary."""
        return any(outcome.kind == "binary" for outcome in self.outcomes)

    @property
    def dims(self) -> tuple[int, int, int, int]:
        """Return `(dx, da, dy, dv)`."""
        return len(self.covariates), self.treatments.width, len(self.outcomes), len(self.statics)


def step_word(unit: str) -> str:
    """Return what stands before a step's number: `day`, but `step` where the unit has a number or signs (`6 hours`)."""
    return unit if unit.replace(" ", "").isalpha() else "step"


def step_axis(unit: str) -> str:
    """Return what heads a column or an axis of steps: `day`, `step (6 hours each)`."""
    return unit if step_word(unit) == unit else f"step ({unit} each)"


def steps_of(n: int, unit: str) -> str:
    """Return a number of steps: `1 day`, `3 days`, `3 steps of 6 hours`."""
    if n != 1:
        return f"{n} {steps_axis(unit)}"
    return f"1 {unit}" if step_word(unit) == unit else f"1 step of {unit}"


def steps_axis(unit: str) -> str:
    """Return what heads an axis that counts steps: `days`, `steps of 6 hours`."""
    if step_word(unit) != unit:
        return f"steps of {unit}"
    return unit if unit.endswith("s") else f"{unit}s"
