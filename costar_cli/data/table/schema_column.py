"""The schema of one column of a table: what it means, and which keys its role takes."""

import math
from collections.abc import Iterator
from typing import Annotated, Final, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from costar_cli.config.models import Config
from costar_cli.data.dose import Basis
from costar_cli.data.levels import Scalar, are_doses, label_of
from costar_cli.data.schema import Transform

Role = Literal[
    "subject", "time", "covariate", "treatment", "outcome", "static", "domain", "split", "cluster", "event", "censored"
]
Kind = Literal["continuous", "count", "binary", "ordinal", "categorical"]
Line = Annotated[str, StringConstraints(pattern=r"^\S(.*\S)?$", max_length=200)]
Aggregate = Literal["any", "count", "sum", "mean", "first", "last", "max", "min"]
OF_STEPS: Final[tuple[Role, ...]] = ("covariate", "treatment", "outcome")
ENDS: Final[tuple[Role, ...]] = ("event", "censored")

_NUMBER: Final = ("column", "factor", "offset", "aggregate")
_VARIABLE: Final = (
    "kind", "unit", "missing", "indicator", "standardize", "categories", "unseen", "transform", *_NUMBER
)  # fmt: skip
KEYS_OF_ROLE: Final[dict[str, tuple[str, ...]]] = {
    "subject": (),
    "time": (),
    "split": (),
    "cluster": (),
    "domain": ("source", "target"),
    "covariate": (*_VARIABLE, "shift"),
    "static": _VARIABLE,
    "outcome": ("kind", "unit", "missing", "indicator", "standardize", "transform", *_NUMBER),
    "treatment": (
        *("levels", "missing", "column", "shift", "aggregate"),
        *("kind", "unit", "basis", "range", "factor", "offset"),
    ),
    "event": ("categories", "column", "at"),
    "censored": ("column", "at"),
}


class Section(Config):
    """The base of every table of a schema: exact types, unknown keys are errors."""

    model_config = ConfigDict(strict=True)


class ColumnSchema(Section):
    """One column: `NAME = { role = "covariate", unit = "1/min" }`."""

    role: Role = Field(description="What the column is")
    kind: Kind | None = Field(
        None,
        description="Of covariates, statics, outcomes; `continuous` by default; `categorical` becomes 0/1 columns. A "
        "treatment that is `continuous` or `ordinal` is a dose, a number; without a kind it has named levels",
    )
    unit: str = Field("", max_length=60, description="Unit of a covariate, static, outcome or dose")
    basis: Basis = Field(
        "identity",
        description="How a dose acts: by its size, by its logarithm `log1p`, or along natural cubic `splines`",
    )
    range: list[float | int] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="Least and greatest dose that there may be; "
        "by default from 0 to ten times what is usual in source-train",
    )
    column: Line | None = Field(
        None, description="Column of the file from which it is read; by default the one of its own name"
    )
    aggregate: Aggregate | None = Field(
        None,
        description="What the events of a step become (see `events`): whether there was any, their number, or the sum, "
        "mean, first, last, max or min of their values; by default `any` of treatments, `sum` of doses and `last` of "
        "others. What the rows of a step become (see `bin`): likewise, by default `max` of treatments, in the order of "
        "`levels`, `sum` of continuous doses and `first` of others",
    )
    factor: float = Field(1.0, description="Factor that brings the file's numbers to `unit`")
    offset: float = Field(0.0, description="What is added after that")
    shift: int = Field(
        0,
        ge=-1,
        le=1_000,
        description="Steps by which a row's value counts later. `-1`: a treatment stands in the row of the measurement "
        "that followed it; `1`: a covariate of the step before",
    )
    transform: Transform | None = Field(
        None,
        description="What models see of a covariate, static or outcome: its logarithm, that of 1 + value, or the "
        "difference from the step before; of outcomes it is undone in all answers",
    )
    missing: Literal["error", "fill", "carry"] | None = Field(
        None,
        description="How a missing value is treated. `error`: it is refused; `fill`: the subject's "
        "last value, then source-train's mean, with a 0/1 column `NAME_observed`; of a treatment, its reference level "
        "or dose 0: not given. `carry`, of a treatment: the subject's last level or dose goes on; before the first "
        "one, none is given. Covariates and statics: the table's `missing`; outcomes and treatments: `error`",
    )
    indicator: bool = Field(True, description="Whether a filled column gets the 0/1 column `NAME_observed`")
    standardize: bool | None = Field(
        None, description="Whether models see (value - mean) / sd; by default all but binary columns"
    )
    categories: list[Scalar] | None = Field(
        None,
        min_length=1,
        description="Categories in order, or names of events; by default those of source-train, sorted",
    )
    unseen: Literal["error", "other"] = Field(
        "error",
        description="How a category that is not in `categories` is treated: refused, or given to a column `other`",
    )
    levels: list[Scalar] | None = Field(
        None, min_length=2, description="Levels of a treatment, the reference first, or doses; guessed by default"
    )
    at: Line | None = Field(
        None,
        description="Column with the time of an event or a loss of follow-up, blank where there was none; without it, "
        "marks stand in the rows at which it happens",
    )
    source: list[Scalar] | Scalar | None = Field(
        None, description="Values of a domain column that make a subject the source's; by default all others"
    )
    target: list[Scalar] | Scalar | None = Field(
        None, description="Values of a domain column that make a subject the target's"
    )

    @model_validator(mode="after")
    def _fits_its_role(self) -> Self:
        problems = []
        if wrong := sorted(self.model_fields_set - {"role", *KEYS_OF_ROLE[self.role]}):
            takes = ", ".join(f"`{key}`" for key in KEYS_OF_ROLE[self.role]) or "nothing else"
            article = "an" if self.role in ("outcome", "event") else "a"
            problems.append(f"{', '.join(f'`{key}`' for key in wrong)}: {article} {self.role} column takes {takes}")
        if self.role == "outcome" and "shift" in wrong:
            problems.append(
                "the lag of an outcome is known before it is predicted: make it a covariate beside the outcome, with "
                "its `column` and `shift = 1`"
            )
        of_others = '`missing = "carry"` belongs to a treatment: `fill` carries the last value of others'
        problems += [of_others] * (self.missing == "carry" and self.role != "treatment")
        if self.role == "outcome" and self.kind == "categorical":
            problems.append("an outcome is a number, not categorical")
        if self.role == "treatment":
            problems += self._dose_problems()
        categorical = {"categories"} if self.categories is not None else set()
        categorical |= {"unseen"} if self.unseen != "error" else set()
        if self.role in ("covariate", "static") and categorical and self.kind != "categorical":
            problems.append(f'`{min(categorical)}` belongs to `kind = "categorical"`')
        number = sorted({"factor", "offset", "transform"} & self.model_fields_set)
        if number and self.kind in ("binary", "categorical"):
            problems.append(f"`{number[0]}` belongs to numbers, not to `kind = {self.kind!r}`")
        if self.factor == 0 or not (math.isfinite(self.factor) and math.isfinite(self.offset)):
            problems.append("`factor` and `offset` are finite numbers, and `factor` is not 0")
        if self.role == "covariate" and self.shift < 0:
            problems.append("`shift` below 0 would make a covariate of what was not known yet")
        if self.role == "static" and self.transform == "difference":
            problems.append("a static has no step before, and so no difference")
        for key in ("levels", "categories"):
            labels = [label_of(value) for value in getattr(self, key) or ()]
            if len(set(labels)) < len(labels) or not all(
                label.strip() == label != "" and "\n" not in label for label in labels
            ):
                problems.append(f"`{key}` are names of one line without space around them, each once")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def aggregated(self) -> Aggregate:
        """Return what the events of a step become."""
        of_treatments: Aggregate = "sum" if self.is_dose else "any"
        return self.aggregate or (of_treatments if self.role == "treatment" else "last")

    @property
    def binned(self) -> Aggregate:
        """Return what the rows of a step become: what is measured is that before anything is given."""
        of_treatments: Aggregate = "sum" if self.kind == "continuous" else "max"
        return self.aggregate or (of_treatments if self.role == "treatment" else "first")

    @property
    def is_dose(self) -> bool:
        """Return whether the column is a treatment that is a number."""
        return self.role == "treatment" and self.kind is not None

    def _dose_problems(self) -> Iterator[str]:
        if self.kind not in (None, "continuous", "ordinal"):
            yield "a treatment is `continuous` or `ordinal`, a dose, or has no kind but named levels"
        if self.kind is None and (
            alone := sorted(self.model_fields_set & {"basis", "range", "unit", "factor", "offset"})
        ):
            yield f'`{alone[0]}` belongs to a dose: `kind = "continuous"` or "ordinal"'
        if self.kind == "continuous" and self.levels is not None:
            yield '`levels` belong to named levels, or to `kind = "ordinal"`'
        if self.kind == "ordinal" and not are_doses(self.labels("levels") or ()):
            yield 'the `levels` of `kind = "ordinal"` are numbers'
        if self.range is not None and not self.range[0] < self.range[1]:
            yield "`range` is a least and a greater dose"

    def labels(self, key: Literal["levels", "categories"]) -> tuple[str, ...] | None:
        """Return the names that the column's values are compared with."""
        values = getattr(self, key)
        return None if values is None else tuple(label_of(value) for value in values)

    def domain_values(self, domain: Literal["source", "target"]) -> tuple[str, ...] | None:
        """Return the values of a domain column that stand for a domain, None where they are not given."""
        values = getattr(self, domain)
        if values is None:
            return None
        return tuple(label_of(value) for value in (values if isinstance(values, list) else [values]))
