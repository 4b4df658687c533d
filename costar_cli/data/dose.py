"""Doses: treatments that are numbers, and the columns that stand for them (spec PANEL-16)."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import ConfigDict, Field, StringConstraints, model_validator

from costar_cli.config.models import WithAdditions

FROZEN = ConfigDict(frozen=True, extra="forbid")
Name = Annotated[str, StringConstraints(pattern=r"^\S(.*\S)?$")]  # one line, no space around it
Finite = Annotated[float, Field(allow_inf_nan=False)]
Basis = Literal["identity", "log1p", "splines"]
Floats = NDArray[np.float64]

DIGITS: Final = 6  # of a dose that is read back from an encoded one: float32 has seven
KNOTS: Final = (0.05, 0.35, 0.65, 0.95)  # quantiles of the doses given, as Harrell places four knots
FEWEST: Final = 3  # knots of a curve that bends
TIMES: Final = ("step", "second", "minute", "hour", "day", "week", "month", "year")  # units that have a plural
ABSURD: Final = 10  # a dose beyond so many times the largest is a slip


class Dose(WithAdditions):
    """A treatment that is a number, of which 0 means that none is given.

    `low` and `high` are what source-train was given, `levels` the doses that there are where these are few and ordered.
    The first of the encoded columns grows with the dose and tells it. Where steps are uneven, `elapsed` makes of it the
    time until the next one, in their unit, and is how long that usually is.
    """

    model_config = FROZEN
    additions: ClassVar[tuple[str, ...]] = ("elapsed", "microseconds")

    name: Name
    unit: str = ""
    low: Finite = Field(description="Least dose of source-train")
    high: Finite = Field(description="Greatest dose of source-train")
    basis: Basis = "identity"
    scale: float = Field(1.0, gt=0, allow_inf_nan=False, description="What columns are divided by: a power of two")
    knots: tuple[Finite, ...] = Field((), description="Of natural cubic splines, in the dose's unit, ascending")
    levels: tuple[Finite, ...] = Field((), description="All doses that there are, ascending; empty where any may be")
    elapsed: float | None = Field(None, gt=0, allow_inf_nan=False, description="Usual time until the next step")
    microseconds: int | None = Field(None, gt=0, description="Of a unit of that time, where the data have dates")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"dose {self.name} needs a range")
        if (self.basis == "splines") != bool(self.knots) or (self.knots and len(self.knots) < FEWEST):
            raise ValueError(f"dose {self.name}: splines need {FEWEST} knots or more, and nothing else has any")
        if any(list(values) != sorted(set(values)) for values in (self.knots, self.levels)):
            raise ValueError(f"dose {self.name}: knots and levels ascend")
        if self.basis == "log1p" and self.low <= -1:
            raise ValueError(f"dose {self.name}: log1p needs doses above -1")
        return self

    @classmethod
    def learn(
        cls, name: str, given_M: Floats, *, unit: str = "", basis: Basis = "identity", levels: Sequence[float] = ()
    ) -> Self:
        """Return a dose as source-train was given it: its range, its scale, and where its effect may bend.

        Raises:
            ValueError: it never changes, or has too few different values for splines.
        """
        low, high = float(given_M.min()), float(given_M.max())
        if low == high:
            raise ValueError(f"it is always {low:g}")
        if basis == "log1p" and low <= -1:
            raise ValueError("log1p needs doses above -1")
        knots: tuple[float, ...] = ()
        if basis == "splines":
            knots = tuple(np.unique(np.quantile(given_M[given_M != 0], KNOTS)).tolist())
            if len(knots) < FEWEST:
                raise ValueError("it has too few different values for splines")
        size = np.sqrt(np.mean(np.log1p(given_M) ** 2 if basis == "log1p" else given_M**2))
        scale = 2.0 ** round(float(np.log2(size))) if size > 0 else 1.0
        return cls(
            name=name, unit=unit, low=low, high=high, basis=basis, scale=scale, knots=knots, levels=tuple(levels)
        )

    @property
    def width(self) -> int:
        """Return the number of encoded columns."""
        return max(len(self.knots) - 1, 1)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return a readable name per encoded column."""
        first = f"log(1 + {self.name})" if self.basis == "log1p" else self.name
        return (first, *(f"{self.name}, spline {i}" for i in range(2, self.width + 1)))

    def text(self, value: float) -> str:
        """Return a dose with its unit: `2.5 mg`."""
        return f"{value:.{DIGITS}g} {self.unit}".rstrip()

    def span(self, value: float) -> str:
        """Return a time until the next step in words: `1 day`, `2.5 weeks`."""
        return self.text(value) + ("s" if value != 1 and self.unit in TIMES else "")

    def encode(self, values: ArrayLike) -> Floats:
        """Return the columns `[..., width]` of doses `[...]`; of no dose they are zeros.

        Raises:
            ValueError: a dose of which there is no logarithm.
        """
        dose = np.asarray(values, dtype=np.float64)
        if self.basis == "log1p":
            if (dose <= -1).any():
                raise ValueError(f"dose {self.name} must be above -1: its logarithm log(1 + dose) is taken")
            return np.asarray(np.log1p(dose)[..., None] / self.scale)
        bent = [self._bend(dose, k) - self._bend(np.zeros(1), k) for k in range(len(self.knots) - 2)]
        return np.asarray(np.stack([dose, *bent], axis=-1) / self.scale)

    def decode(self, first: ArrayLike) -> Floats:
        """Return the doses `[...]` that the first of their columns tells, to six digits."""
        column = np.asarray(first, dtype=np.float64) * self.scale
        dose = np.expm1(column) if self.basis == "log1p" else column
        size = 10.0 ** (DIGITS - 1 - np.floor(np.log10(np.abs(np.where(dose == 0, 1.0, dose)))))
        return np.asarray(np.round(dose * size) / size)

    def nearest(self, dose: NDArray[np.floating]) -> Floats:
        """Return what can be given instead of doses `[...]`: none below 0 where none ever was, the nearest level."""
        possible = np.maximum(dose.astype(np.float64), 0.0 if self.low >= 0 else -np.inf)
        if not self.levels:
            return np.asarray(possible)
        known = np.unique([0.0, *self.levels])
        return np.asarray(known[np.abs(possible[..., None] - known).argmin(axis=-1)])

    def problem(self, value: float) -> str:
        """Return what is wrong with a dose that somebody wants to give; empty if nothing is."""
        known = (0.0, *self.levels)
        problems = {
            "a dose is a finite number": not np.isfinite(value),
            f"it takes {', '.join(f'{level:g}' for level in self.levels)}": self.levels and value not in known,
            "the next step is later": self.elapsed is not None and value <= 0,
            "a dose is not negative": value < 0 <= self.low,
            "it is above -1, since its logarithm log(1 + dose) is taken": self.basis == "log1p" and value <= -1,
            f"it is more than {ABSURD} times what was ever given: {self.range}": (
                abs(value) > ABSURD * max(abs(self.low), abs(self.high))
            ),
        }
        return next((problem for problem, applies in problems.items() if applies), "")

    @property
    def range(self) -> str:
        """Return what was given, for messages: `0 to 12.5 mg`."""
        return f"{self.low:.{DIGITS}g} to {self.text(self.high)}"

    def _bend(self, dose: Floats, k: int) -> Floats:
        """Return the k-th natural cubic spline that is linear beyond the last knots (Harrell 2015, eq. 2.24)."""
        knots = np.array(self.knots)
        last, span = knots[-1], knots[-1] - knots[-2]

        def cube(x: Floats) -> Floats:
            return np.asarray(np.maximum(x, 0.0) ** 3)

        tail = cube(dose - knots[-2]) * (last - knots[k]) - cube(dose - last) * (knots[-2] - knots[k])
        return np.asarray((cube(dose - knots[k]) - tail / span) / (last - knots[0]) ** 2)
