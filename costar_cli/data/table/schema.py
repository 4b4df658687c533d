"""The schema of somebody's own table: what each column means, and how a data set is made of the rows."""

from datetime import date
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from costar_cli.data.expression import Condition, parse_condition
from costar_cli.data.levels import Scalar
from costar_cli.data.registry import RESERVED_NAMES
from costar_cli.data.schema import JOINT
from costar_cli.data.table.schema_column import OF_STEPS, ColumnSchema, Line, Role, Section, TimeSchema
from costar_cli.data.visits import AFTER, AT

Moment = Annotated[int | float | str, BeforeValidator(lambda value: str(value) if isinstance(value, date) else value)]
SERIES = "(one series)"  # what messages call the column of the subject where all rows are one series
DatasetName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 _.-]{0,63}$")]


class DomainSchema(Section):
    """Which subjects belong to the source and which to the target, unless a column has the role `domain`."""

    source: str | None = Field(None, description="Condition of the source, for example `age < 65`; by default the rest")
    target: str | None = Field(None, description="Condition of the target, for example `age >= 85`")

    @model_validator(mode="after")
    def _understood(self) -> Self:
        for key in ("source", "target"):
            if (text := getattr(self, key)) is not None:
                try:
                    parse_condition(text)
                except ValueError as error:
                    raise ValueError(f"`{key} = {text!r}`: {error}") from None
        if self.source is not None and self.target is None:
            raise ValueError("`target` is missing: say who the target is")
        return self

    def condition(self, domain: Literal["source", "target"]) -> Condition | None:
        """Return a domain's condition, where there is one."""
        text = self.source if domain == "source" else self.target
        return None if text is None else parse_condition(text)


class Fractions(Section):
    """Shares of the subjects; they sum to 1."""

    train: float = Field(0.7, gt=0, lt=1, description="Share of the subjects to train on")
    val: float = Field(0.15, gt=0, lt=1, description="Share of the subjects to select on")
    test: float = Field(0.15, ge=0, lt=1, description="Share of the subjects to test on")

    @model_validator(mode="after")
    def _sum(self) -> Self:
        if abs(self.train + self.val + self.test - 1) > 1e-9:
            raise ValueError(f"train, val and test sum to {self.train + self.val + self.test:g}, not to 1")
        return self


class SplitSchema(Fractions):
    """How subjects are split, unless a column has the role `split`, or steps by their time (spec TABLE-12)."""

    by: Literal["subject", "time"] = Field(
        "subject",
        description="What is split: the subjects, or by `time` the steps of each: train before `val_from`, val from "
        "there on, test from `test_from` on, with all earlier steps as history",
    )
    val_from: Moment | None = Field(
        None, description="Where val begins in time, a date or number; by default after the share `train` of the rows"
    )
    test_from: Moment | None = Field(
        None, description="Where test begins in time; by default after the shares `train` and `val` of the rows"
    )

    seed: int = Field(0, ge=0, lt=2**63, description="Seed of the draw; `--seed` overrides it")
    target: Fractions | None = Field(None, description="Shares in the target domain")
    few_shot: int | float | None = Field(
        None,
        gt=0,
        description="Target training subjects to keep: a share below 1, or a number of subjects; all by default",
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        few = self.few_shot
        if few is not None and (isinstance(few, bool) or (few >= 1 and not float(few).is_integer())):
            raise ValueError("`few_shot` is a share below 1, or a whole number of subjects")
        dates = [key for key in ("val_from", "test_from") if getattr(self, key) is not None]
        if self.by == "subject" and dates:
            raise ValueError(f'{" and ".join(f"`{key}`" for key in dates)}: give `by = "time"`, too')
        if self.by == "time" and self.target is not None:
            raise ValueError("`[split.target]`: by time, source and target are split at the same moments")
        return self


class TreatmentsSchema(Section):
    """How several treatments are combined."""

    mode: Literal["multilabel", "multiclass"] | None = Field(
        None,
        description="`multilabel`: one 0/1 number per treatment, when all are binary; `multiclass`: one class per "
        "combination; by default the first where it applies",
    )
    classes: list[list[Scalar]] | None = Field(
        None, min_length=2, description="Combinations of levels; by default those that occur in source-train"
    )


class QueriesSchema(Section):
    """The queries of the test parts, and the columns of a file of known queries."""

    rolling_origin: bool | None = Field(
        None,
        description="Whether every step of the test subjects is an origin whose observed "
        "continuation is predicted; by default unless `--queries` is given",
    )
    set: Line = Field("set", description="Column with the name of the query set, if there is one")
    query: Line = Field("query", description="Column that tells several queries of one subject and origin apart")
    origin: Line = Field("origin", description="Column of the time of the last known row")
    step: Line = Field(
        "step",
        description="Column of the step; the treatment of step 1 is given at the origin, "
        "and its outcome is one step later",
    )
    scored: Line = Field(
        "scored", description="Column of 0/1: whether the outcome is scored; by default wherever it is known"
    )


class EventsSchema(Section):
    """A table that is a log: a row per event, with its subject, time, code and value."""

    code: Line = Field(description="Column that says what happened; `column` of a variable is its code, or its name")
    value: Line | None = Field(None, description="Column of the events' values, where any are used")


class StaticsSchema(Section):
    """How the file of statics belongs to the table."""

    # Not a path: it would be an input that no digest knows, and wrong on another machine.
    on: Line | None = Field(
        None, description="Column of both files by which `--statics` is joined, such as a store; by default the subject"
    )


class ErrorUnitSchema(Section):
    """The unit in which errors are reported: RMSE times `factor`."""

    factor: float = Field(1.0, gt=0, description="Factor by which the RMSE is multiplied")
    label: str = Field("", max_length=60, description="Name of the unit")
    space: Literal["original", "standardized"] = Field(
        "original", description="`standardized` divides each outcome by its sd in source-train"
    )


class TableSchema(Section):
    """The whole file."""

    name: DatasetName = Field(description=f"Name of the data set; not {', '.join(RESERVED_NAMES)}")
    horizon: int = Field(6, ge=1, le=1_000, description="Steps predicted from an origin")
    min_length: int = Field(2, ge=1, le=32_767, description="Subjects with fewer steps are left out")
    max_length: int | None = Field(None, ge=1, le=32_767, description="Later steps of a subject are left out")
    missing: Literal["error", "fill"] = Field(
        "error", description="How missing covariates and statics are treated, unless the column has its own `missing`"
    )
    blank: list[str] = Field(
        ["NA", "NaN", "null"],
        description="Texts that stand for a missing value, in upper or lower case; an empty cell always does",
    )
    decimal: Literal[".", ","] = Field(".", description="Decimal mark of numbers in texts, for example `,` in 49,8")
    thousands: Literal["", ",", ".", " ", "'"] = Field(
        "", description="Mark between thousands of numbers in texts, for example `,` in 1,049.8; none by default"
    )
    comment: str = Field(
        "",
        max_length=5,
        pattern=r"^\S*$",
        description="What lines of a CSV file begin with that are no rows, for example `#`; none by default",
    )
    constant: Literal["drop", "keep"] = Field(
        "drop", description="How covariates and statics that never change in source-train are treated"
    )
    subject: list[Line] | None = Field(
        None,
        description="Columns that say together whose row it is, in place of a column of role `subject`: their values, "
        f"joined by `{JOINT}`, are the subject's name; `[]` where all rows are one series",
    )
    columns: dict[Line, ColumnSchema] = Field(description="Each column that is used, by its name in the file")
    time: TimeSchema = Field(TimeSchema(), description="How times become steps")
    domain: DomainSchema = Field(
        DomainSchema(), description="Which subjects belong to the target, unless a column has the role `domain`"
    )
    split: SplitSchema = Field(
        SplitSchema(), description="How subjects are split, unless a column has the role `split`"
    )
    treatments: TreatmentsSchema = Field(TreatmentsSchema(), description="How several treatments are combined")
    queries: QueriesSchema = Field(QueriesSchema(), description="Queries of the test splits")
    events: EventsSchema | None = Field(None, description="Where the table is a log: a row per event")
    statics: StaticsSchema = Field(StaticsSchema(), description="How the file of statics is joined")
    error_unit: ErrorUnitSchema | None = Field(
        None, description="By default the outcome's unit; with several outcomes, standard deviations"
    )

    @field_validator("subject")
    @classmethod
    def _several(cls, subject: list[str] | None) -> list[str] | None:
        if subject is not None and len(subject) == 1:
            raise ValueError(f'one column is a subject by its role: `"{subject[0]}" = {{ role = "subject" }}`')
        return subject

    @model_validator(mode="after")
    def _marks(self) -> Self:
        if self.decimal == self.thousands:
            raise ValueError(f"`decimal` and `thousands` are both {self.decimal!r}: say which it is")
        return self

    @model_validator(mode="after")
    def _visits(self) -> Self:
        taken = [name for name in self.named("treatment") if name in (AFTER, AT)]
        if self.time.gaps == "elapsed" and taken:
            said = f'`[columns.{taken[0]}]`: with `gaps = "elapsed"` plans say by `{taken[0]}` when a visit is'
            raise ValueError(f'{said}: call the treatment something else, with `column = "{taken[0]}"`')
        return self

    def named(self, *roles: Role) -> list[str]:
        """Return the columns of these roles, in the order of the schema; a subject of several columns is one."""
        joint = [JOINT.join(self.subject) or SERIES] if self.subject is not None and "subject" in roles else []
        return joint + [name for name, column in self.columns.items() if column.role in roles]

    def in_file(self, name: str) -> str:
        """Return what the file calls a column."""
        column = self.columns.get(name)
        return (column and (column.at or column.column)) or name

    @property
    def file_columns(self) -> set[str]:
        """Return all columns of files that are read."""
        log = self.events
        keys = (*(self.subject or ()), self.statics.on, *((log.code, log.value) if log else ()))
        plain = set(self.columns) - set(self.named(*OF_STEPS) if log else ())
        return {key for key in (*keys, self.time.stop) if key} | {self.in_file(name) for name in plain}

    @property
    def leveled(self) -> list[str]:
        """Return the treatments with named levels."""
        return [name for name in self.named("treatment") if not self.columns[name].is_dose]

    @property
    def doses(self) -> list[str]:
        """Return the treatments that are numbers."""
        return [name for name in self.named("treatment") if self.columns[name].is_dose]
