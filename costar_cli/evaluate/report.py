"""What an evaluation found: rows of RMSE per step, ours beside the naive and the published ones."""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from costar_cli.evaluate.bootstrap import INTERVAL_KIND, Interval
from costar_cli.evaluate.metrics import AVERAGED_STEPS, SquaredErrors, average_over_steps
from costar_cli.evaluate.published import PublishedRow
from costar_cli.evaluate.score import Truth
from costar_cli.evaluate.setups import SetupName
from costar_cli.frames import FrameName, frame_name, make_frame
from costar_cli.methods.registry import LAST_VALUE, METHODS
from costar_cli.reporting import both_errors, is_worse

if TYPE_CHECKING:
    from costar_cli.frames import Frame

__all__ = [
    "ABOUT_BUDGET",
    "BUDGET_SIGN",
    "Basis",
    "EvaluationReport",
    "PerStep",
    "Provenance",
    "ReportRow",
    "Unit",
    "json_values",
    "ratios",
    "with_budget_sign",
]

BUDGET_SIGN = "†"
ABOUT_BUDGET = "stopped by budget: training ended at the limit on epochs or updates, not by early stopping"

# The last one is in old files: no row is published beside other data than the paper's.
Basis = Literal["ours", "naive", "limit", "published, different protocol", "published, different data"]
Row = dict[str, str | int | float | bool | None]


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of every error in a report: `factor` times the RMSE in `space`, divided per outcome by `denominator`."""

    label: str
    factor: float
    space: Literal["original", "standardized"]
    denominator: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PerStep:
    """A statistic for each step, and of the average over tau = 1..6; None where it is unknown."""

    steps: tuple[float | None, ...]
    average: float | None

    @classmethod
    def of(cls, steps_H: NDArray[np.floating], average: float) -> Self:
        """Return the statistic with NaN as None."""
        return cls(tuple(_known(value) for value in steps_H), _known(average))


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a scored row's model comes from, and which labels it has seen.

    `labelled_target_subjects` counts those the model was selected on too. `same_data` is None where no digest is
    known, and False where the model was trained on another data set than the one it is scored on.
    `stopped_by_budget` says whether a stage ended because epochs or updates ran out, None where that is not known or
    nothing is trained step by step.
    """

    method: str
    init: str
    domain: str
    trained_on: dict[str, int]
    labelled_target_subjects: int
    model_digest: str
    dataset_digest: str
    same_data: bool | None
    stopped_by_budget: bool | None = None


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One line of the table.

    `mean` and `sd` (ddof = 1; None with one member) are over members, `ensemble` is the RMSE of the members' mean
    prediction, `lower` and `upper` bound `mean`, `no_interval` says in words why nothing does, and `caution` how far to
    trust them where subjects or clusters are few. `members` holds the RMSE of each member, `outcomes` the mean RMSE of
    each single outcome where there are several. `query_sets` and `scored` say, per step, what was scored.
    """

    setup: SetupName
    label: str
    basis: Basis
    mean: PerStep
    sd: PerStep | None = None
    ensemble: PerStep | None = None
    lower: PerStep | None = None
    upper: PerStep | None = None
    members: tuple[PerStep, ...] = ()
    outcomes: dict[str, PerStep] = field(default_factory=dict)
    truth: Truth | None = None
    test: str | None = None
    subjects: int | None = None
    query_sets: tuple[str | None, ...] = ()
    scored: tuple[int, ...] = ()
    provenance: Provenance | None = None
    no_interval: str | None = None
    caution: str | None = None

    @property
    def stopped_by_budget(self) -> bool | None:
        """Return whether the model's training was stopped by its budget; None for a closed form and where unknown."""
        method = METHODS.get(self.provenance.method) if self.provenance else None
        if self.provenance is None or (method and method.closed_form):
            return None
        return self.provenance.stopped_by_budget

    @property
    def marked_label(self) -> str:
        """Return the label, with a sign where training was stopped by its budget."""
        return with_budget_sign(self.label, self.stopped_by_budget)

    @property
    def published(self) -> bool:
        """Return whether the row was printed in the paper."""
        return self.basis.startswith("published")

    @property
    def is_last_value(self) -> bool:
        """Return whether the row carries the last value forward: the anchor, or a model of that method."""
        return self.basis == "naive" or (self.provenance is not None and self.provenance.method == LAST_VALUE)

    @classmethod
    def scored_row(
        cls,
        errors: SquaredErrors,
        interval: Interval | None,
        *,
        factor: float,
        outcome_names: Sequence[str],
        **fields: Any,  # noqa: ANN401  # the descriptive fields of the row
    ) -> Self:
        """Return the row of a model's squared errors, in the report's unit."""
        rmse_RH = factor * errors.rmse()
        average_R = average_over_steps(rmse_RH)
        ensemble_H = factor * errors.ensemble_rmse()
        outcome_HY = factor * errors.outcome_rmse().mean(axis=0)
        several = len(average_R) > 1
        return cls(
            mean=PerStep.of(rmse_RH.mean(axis=0), float(average_R.mean())),
            sd=PerStep.of(rmse_RH.std(axis=0, ddof=1), float(average_R.std(ddof=1))) if several else None,
            ensemble=PerStep.of(ensemble_H, float(average_over_steps(ensemble_H))),
            lower=PerStep.of(factor * interval.lower, factor * interval.average[0]) if interval else None,
            upper=PerStep.of(factor * interval.upper, factor * interval.average[1]) if interval else None,
            members=tuple(PerStep.of(*pair) for pair in zip(rmse_RH, average_R, strict=True)),
            outcomes={
                name: PerStep.of(column, float(average_over_steps(column)))
                for name, column in zip(outcome_names, outcome_HY.T, strict=True)
                if len(outcome_names) > 1
            },
            subjects=int(errors.count.any(axis=1).sum()),
            scored=tuple(int(n) for n in errors.count.sum(axis=0)),
            **fields,
        )

    @classmethod
    def published_row(cls, published: PublishedRow, setup: SetupName, horizon: int) -> Self:
        """Return a printed row, averaged over the steps that our rows average, whatever the paper averaged."""
        average = published.average_over(1, min(horizon, AVERAGED_STEPS))
        same_average = average is not None and published.average is not None and abs(average - published.average) < 1e-3
        return cls(
            setup=setup,
            label=published.row,
            basis="published, different protocol",
            mean=PerStep(published.mean[:horizon], average),
            sd=PerStep(published.sd[:horizon], published.average_sd if same_average else None),
        )


@dataclass(frozen=True)
class EvaluationReport:
    """An evaluation; `errors` holds each row's squared errors (None for published rows), for later paired tests."""

    dataset: str
    dataset_digest: str
    horizon: int
    unit: Unit
    level: float
    rows: tuple[ReportRow, ...]
    warnings: tuple[str, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)
    step: str = "step"
    errors: tuple[SquaredErrors | None, ...] = field(default=(), compare=False, repr=False)

    @property
    def few_units(self) -> list[str]:
        """Return in words, per test part with few units, why there is no interval or how far it can be trusted."""
        without = {row.test: row.no_interval for row in self.rows if row.no_interval}
        careful = {row.test: row.caution for row in self.rows if row.caution}
        return [
            *(
                f"no interval on {part}: {why} for an interval with the stated coverage"
                for part, why in without.items()
            ),
            *(f"intervals on {part}: {why}" for part, why in careful.items()),
        ]

    @property
    def limit_label(self) -> str | None:
        """Return what the row is called with which ratios are formed, None where there is none."""
        return next((row.label for row in self.rows if row.basis == "limit"), None)

    def ratio_to_limit(self, row: ReportRow) -> PerStep | None:
        """Return a scored row's errors divided by those of what knows the simulator (spec LIMIT-4).

        None where there is no such row, and for published rows, which rest on other data.
        """
        if row.published:
            return None
        beside = (other for other in self.rows if other.basis == "limit" and _together(other, row))
        limit = next(beside, None)
        return None if limit is None else ratios(row.mean, limit.mean)

    def losers(self) -> list[tuple[ReportRow, str]]:
        """Return our rows that lose to the last value carried forward on average, each with both errors in words."""
        rivals = ((row, self._last_value_beside(row)) for row in self.rows)
        averages = ((row, row.mean.average, rival.mean.average) for row, rival in rivals if rival is not None)
        return [
            (row, both_errors(own, other))
            for row, own, other in averages
            if own is not None and other is not None and is_worse(own, other)
        ]

    def _last_value_beside(self, row: ReportRow) -> ReportRow | None:
        """Return the row of the last value carried forward that one of ours is compared with."""
        if row.basis != "ours":
            return None
        found = (other for other in self.rows if other.is_last_value and _together(other, row))
        rival = next(found, None)
        return None if rival is row else rival

    def row(self, setup: SetupName, label: str, truth: Truth | None = None) -> ReportRow:
        """Return a row by set-up and label.

        Raises:
            KeyError: there is none.
        """
        return self.rows[self._index(setup, label, truth)]

    def errors_of(self, setup: SetupName, label: str, truth: Truth | None = None) -> SquaredErrors:
        """Return a scored row's squared errors, which `paired_difference` compares.

        Raises:
            KeyError: there is no such row, or its errors were not kept.
        """
        errors = self.errors[self._index(setup, label, truth)] if self.errors else None
        if errors is None:
            raise KeyError(f"no squared errors for {label} in {setup}")
        return errors

    def _index(self, setup: SetupName, label: str, truth: Truth | None) -> int:
        for i, row in enumerate(self.rows):
            if (row.setup, row.label) == (setup, label) and truth in (None, row.truth) and not row.published:
                return i
        raise KeyError(f"no row for {label} in {setup}")

    def to_rows(self) -> list[Row]:
        """Return one flat record per row, the same keys in each: for tables and CSV."""
        return [_flat(row, self) for row in self.rows]

    def to_frame(self, frame: FrameName = "pandas") -> "Frame":
        """Return a row per row of the report and step, and one for the average over steps, whose step is missing."""
        rows = [tidy for row in self.rows for tidy in _tidy(row, self)]
        columns: dict[str, object] = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
        numbers = ("step", "mean", "sd", "ensemble", "lower", "upper", "ratio_to_limit")
        columns |= {name: np.array([row[name] for row in rows], dtype=np.float64) for name in numbers}  # None is NaN
        return make_frame(columns, frame_name(None, frame))

    def to_csv(self) -> str:
        """Return the rows as CSV text with a header, data set first and unit last; unknown values are empty."""
        rows: list[Row] = [{"dataset": self.dataset, **row, "unit": self.unit.label} for row in self.to_rows()]
        out = io.StringIO()
        writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON document, without the squared errors."""
        return {
            "dataset": self.dataset,
            "dataset_digest": self.dataset_digest,
            "horizon": self.horizon,
            "step": self.step,
            "averaged_steps": min(self.horizon, AVERAGED_STEPS),
            "unit": json_values(asdict(self.unit)),
            "level": self.level,
            "interval_kind": INTERVAL_KIND,
            "config": dict(self.config),
            "warnings": list(self.warnings),
            "rows": [
                json_values(asdict(row))
                | {
                    "worse_than_last_value": self._worse_than_last_value(row),
                    "ratio_to_limit": json_values(asdict(ratio)) if (ratio := self.ratio_to_limit(row)) else None,
                }
                for row in self.rows
            ],
        }

    def _worse_than_last_value(self, row: ReportRow) -> bool | None:
        """Return whether a row of ours loses to the last value carried forward; None where they are not compared."""
        rival = self._last_value_beside(row)
        return None if rival is None else _worse(row, rival)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the report of a document that `to_json` made."""
        return cls(
            dataset=document["dataset"],
            dataset_digest=document["dataset_digest"],
            horizon=document["horizon"],
            step=document["step"],
            unit=TypeAdapter(Unit).validate_python(document["unit"]),
            level=document["level"],
            config=dict(document["config"]),
            warnings=tuple(document["warnings"]),
            rows=TypeAdapter(tuple[ReportRow, ...]).validate_python(document["rows"]),
        )


def with_budget_sign(label: str, stopped_by_budget: bool | None) -> str:  # noqa: FBT001 - what a row says of itself
    """Return a label, with a sign where training was stopped by its budget."""
    return f"{label} {BUDGET_SIGN}" if stopped_by_budget else label


def ratios(mean: PerStep, limit: PerStep) -> PerStep:
    """Return errors divided by those of the best possible prediction; None where that has no error, or none known."""
    steps = [_ratio(own, best) for own, best in zip(mean.steps, limit.steps, strict=False)]
    return PerStep(tuple(steps), _ratio(mean.average, limit.average))


def _ratio(own: float | None, best: float | None) -> float | None:
    return own / best if own is not None and best else None


def _worse(row: ReportRow, rival: ReportRow) -> bool:
    own, other = row.mean.average, rival.mean.average
    return own is not None and other is not None and is_worse(own, other)


def _together(row: ReportRow, other: ReportRow) -> bool:
    return (row.setup, row.truth) == (other.setup, other.truth)


def _tidy(row: ReportRow, report: EvaluationReport) -> Iterator[Row]:
    """Yield what a row says of each step, then of their average."""
    statistics = {"mean": row.mean, "sd": row.sd, "ensemble": row.ensemble, "lower": row.lower, "upper": row.upper}
    for h in (*range(report.horizon), None):
        yield {
            "setup": row.setup,
            "model": row.label,
            "basis": row.basis,
            "truth": row.truth,
            "test": row.test,
            "step": None if h is None else h + 1,
            **{name: _of_step(values, h) for name, values in statistics.items()},
            "members": len(row.members) or None,
            "unit": report.unit.label,
            "ratio_to_limit": _of_step(report.ratio_to_limit(row), h),
        }


def _of_step(values: PerStep | None, step: int | None) -> float | None:
    if values is None:
        return None
    return values.average if step is None else values.steps[step] if step < len(values.steps) else None


def _flat(row: ReportRow, report: EvaluationReport) -> Row:
    ratio = report.ratio_to_limit(row)
    flat: Row = {
        "setup": row.setup,
        "label": row.label,
        "basis": row.basis,
        "truth": row.truth,
        "test": row.test,
        "members": len(row.members) or None,
        "labelled_target_subjects": row.provenance.labelled_target_subjects if row.provenance else None,
    }
    statistics = {"mean": row.mean, "sd": row.sd, "lower": row.lower, "upper": row.upper, "ensemble": row.ensemble}
    for h in range(report.horizon):
        for name, values in statistics.items():
            flat[f"tau{h + 1}_{name}"] = values.steps[h] if values and h < len(values.steps) else None
    flat |= {f"avg_{name}": values.average if values else None for name, values in statistics.items()}
    return flat | {
        "no_interval": row.no_interval,
        "caution": row.caution,
        "stopped_by_budget": row.stopped_by_budget,
        "ratio_to_limit": ratio.average if ratio else None,
    }


def json_values(value: Any) -> Any:  # noqa: ANN401  # JSON in, JSON out
    """Return tuples as lists, and numbers that are not finite as null, all the way down."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): json_values(item) for key, item in value.items()}
    return [json_values(item) for item in value] if isinstance(value, list | tuple) else value


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
