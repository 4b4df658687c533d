"""What an evaluation found, rows of RMSE per step, ours beside the naive and the published ones; and its file."""

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from costar_cli.config.choices import SetupName
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import ArtifactError
from costar_cli.evaluation.bootstrap import INTERVAL_KIND
from costar_cli.evaluation.calibrated import of_bands
from costar_cli.evaluation.doses import DoseCheck
from costar_cli.evaluation.dropout import DropoutWeights
from costar_cli.evaluation.effects import EFFECT_SCORES
from costar_cli.evaluation.metrics import AVERAGED_STEPS, PerStep, SquaredErrors, Truth
from costar_cli.evaluation.natural import NaturalCourse
from costar_cli.evaluation.probabilities import ProbabilityScore
from costar_cli.evaluation.rows import (
    ABOUT_RATIO,
    Record,
    ReportRow,
    Unit,
    document_of,
    errors_in_words,
)
from costar_cli.evaluation.sums import COUNTS, ERRORS, columns_of
from costar_cli.files import Artifact, read_artifact, write_artifact
from costar_cli.files.frames import FrameName, frame_name, make_frame
from costar_cli.reporting import both_errors, is_worse
from costar_cli.reporting.display import Displayed

if TYPE_CHECKING:
    from costar_cli.files.frames import Frame


@dataclass(frozen=True, repr=False)
class EvaluationReport(Displayed):
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
    natural: tuple[NaturalCourse, ...] = ()
    probabilities: tuple[ProbabilityScore, ...] = ()
    dropout: tuple[DropoutWeights, ...] = ()
    doses: tuple[DoseCheck, ...] = ()

    @property
    def headline(self) -> str:
        """Return the data set, and which models are scored."""
        labels = dict.fromkeys(row.label for row in self.rows if row.basis == "ours")
        return f"{self.dataset}, {self.horizon} steps, scores of {', '.join(labels)}"

    @property
    def few_units(self) -> list[Diagnostic]:
        """Return, per test part with few units, why there is no interval or how far it can be trusted."""
        without = {row.test: row.no_interval for row in self.rows if row.no_interval}
        careful = {row.test: row.caution for row in self.rows if row.caution}
        return [
            *(Diagnostic.of("no-interval", part, why=why) for part, why in without.items()),
            *(Diagnostic.of("interval-uncertain", part, why=why) for part, why in careful.items()),
        ]

    @property
    def about_ratio(self) -> str | None:
        """Return what ratios are to, with the standard error of the row; None where there is none."""
        bounds = {(row.setup, row.truth): row for row in self.rows if row.basis == "limit"}
        kinds = len({truth for _, truth in bounds}) > 1
        errors = {f"{setup}, {truth}" if kinds else setup: row.se for (setup, truth), row in bounds.items()}
        label = self.limit_label
        return None if label is None else ABOUT_RATIO.format(label=label) + errors_in_words(errors)

    @property
    def limit_label(self) -> str | None:
        """Return what the row is called with which ratios are formed, None where there is none."""
        return next((row.label for row in self.rows if row.basis == "limit"), None)

    def ratio_to_limit(self, row: ReportRow) -> PerStep | None:
        """Return a scored row's errors divided by those of what knows the simulator (spec LIMIT-4).

        None where there is no such row, and for published rows, which rest on other data.
        """
        limit = None if row.published else self._beside(row, lambda other: other.basis == "limit")
        return None if limit is None else row.mean.ratio_to(limit.mean)

    def losers(self) -> list[tuple[ReportRow, str]]:
        """Return our rows that lose to the last value carried forward on average, each with both errors in words."""
        found = []
        for row in self.rows:
            rival = self._last_value_beside(row)
            own, other = row.mean.average, None if rival is None else rival.mean.average
            if own is not None and other is not None and is_worse(own, other):
                found.append((row, both_errors(own, other)))
        return found

    def _last_value_beside(self, row: ReportRow) -> ReportRow | None:
        """Return the row of the last value carried forward that one of ours is compared with."""
        rival = self._beside(row, lambda other: other.is_last_value) if row.basis == "ours" else None
        return None if rival is row else rival

    def _beside(self, row: ReportRow, which: Callable[[ReportRow], bool]) -> ReportRow | None:
        """Return the first row of the same set-up and queries that is such a one."""
        beside = (other for other in self.rows if (other.setup, other.truth) == (row.setup, row.truth))
        return next((other for other in beside if which(other)), None)

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

    def to_rows(self) -> list[Record]:
        """Return one flat record per row, the same keys in each: for tables and CSV."""
        names = sorted({found.period for row in self.rows for found in row.periods})
        records = []
        for row in self.rows:
            by_period = {found.period: found.mean.average for found in row.periods}
            flat = row.flat_record(self.horizon, ratio=self.ratio_to_limit(row))
            if any(row.effects for row in self.rows):
                of = {name: getattr(row.effects, name, None) for name in EFFECT_SCORES}
                flat |= {f"avg_{name}": values.average if values else None for name, values in of.items()}
            records.append(flat | {f"avg_mean {name}": by_period.get(name) for name in names})
        return records

    def to_frame(self, frame: FrameName = "pandas") -> "Frame":
        """Return a row per row of the report and step, and one for the average over steps, whose step is missing."""
        rows = [
            record
            for row in self.rows
            for record in row.tidy_records(self.horizon, unit=self.unit.label, ratio=self.ratio_to_limit(row))
        ]
        columns: dict[str, object] = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
        numbers = ("step", "mean", "sd", "ensemble", "lower", "upper", "se", "ratio_to_limit")
        columns |= {name: np.array([row[name] for row in rows], dtype=np.float64) for name in numbers}  # None is NaN
        return make_frame(columns, frame_name(None, frame))

    def to_csv(self) -> str:
        """Return the rows as CSV text with a header, data set first and unit last; unknown values are empty."""
        rows: list[Record] = [{"dataset": self.dataset, **row, "unit": self.unit.label} for row in self.to_rows()]
        out = io.StringIO()
        writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON document, without the squared errors."""
        losers = [row for row, _ in self.losers()]
        rows = []
        for row in self.rows:
            document, ratio = document_of(row), self.ratio_to_limit(row)
            for name in ("unweighted", "effects"):
                if document[name] is None:
                    del document[name]
            compared = self._last_value_beside(row) is not None
            document["worse_than_last_value"] = any(row is loser for loser in losers) if compared else None
            rows.append(document | {"ratio_to_limit": document_of(ratio) if ratio else None})
        probabilities, dropout = map(document_of, self.probabilities), map(document_of, self.dropout)
        doses = [document_of(check) for check in self.doses]
        return {
            "dataset": self.dataset,
            "dataset_digest": self.dataset_digest,
            "horizon": self.horizon,
            "step": self.step,
            "averaged_steps": min(self.horizon, AVERAGED_STEPS),
            "unit": document_of(self.unit),
            "level": self.level,
            "interval_kind": INTERVAL_KIND,
            "config": dict(self.config),
            "warnings": list(self.warnings),
            "rows": rows,
            "natural_course": [document_of(course) for course in self.natural],
            **({"probabilities": list(probabilities)} if self.probabilities else {}),
            **({"dropout": list(dropout)} if self.dropout else {}),
            **({"doses": doses} if doses else {}),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the report of a document that `to_json` made.

        Raises:
            LookupError, ValueError, TypeError: it is none.
        """
        rows = []
        for row in TypeAdapter(tuple[ReportRow, ...]).validate_python(document["rows"]):
            # older versions counted bands that do not exist as covering all
            factual = row.factual and replace(row.factual, calibration=of_bands(row.factual.calibration))
            rows.append(replace(row, calibration=of_bands(row.calibration), factual=factual))
        if not rows:
            raise ValueError("no rows")
        return cls(
            dataset=document["dataset"],
            dataset_digest=document["dataset_digest"],
            horizon=document["horizon"],
            step=document["step"],
            unit=TypeAdapter(Unit).validate_python(document["unit"]),
            level=document["level"],
            config=dict(document["config"]),
            warnings=tuple(document["warnings"]),
            rows=tuple(rows),
            natural=TypeAdapter(tuple[NaturalCourse, ...]).validate_python(document.get("natural_course", ())),
            probabilities=TypeAdapter(tuple[ProbabilityScore, ...]).validate_python(document.get("probabilities", ())),
            dropout=TypeAdapter(tuple[DropoutWeights, ...]).validate_python(document.get("dropout", ())),
            doses=TypeAdapter(tuple[DoseCheck, ...]).validate_python(document.get("doses", ())),
        )


def write_evaluation(
    path: Path,
    report: EvaluationReport,
    *,
    parents: Mapping[str, str],
    fingerprint: str,
    config: Mapping[str, Any],
    overwrite: bool = False,
) -> Artifact:
    """Write a report as an `evaluation` artifact.

    Arrays: `rmse [rows,R,H]` and `interval [rows,2,H+1]` (lower and upper bound; the last column is the average), NaN
    where unknown, over all rows of the report; `rows/<i>/members|ensemble|count`, the squared errors of row i, in
    squared outcome units (or squared sd, in the standardised space), before the unit's factor; `rows/<i>/cluster`,
    the units to which its subjects belong, where they are not units of their own; `rows/<i>/weight`, the sums of the
    weights of its answers, where they were weighed for dropout. `config` is what the report was asked
    for with, so that another question can be told from it.
    """
    rmse = np.full((len(report.rows), max(len(row.members) for row in report.rows), report.horizon), np.nan)
    interval = np.full((len(report.rows), 2, report.horizon + 1), np.nan)
    for i, row in enumerate(report.rows):
        for r, member in enumerate(row.members):
            rmse[i, r] = member.array[:-1]
        if row.lower is not None and row.upper is not None:
            interval[i] = row.lower.array, row.upper.array
    arrays: dict[str, NDArray[np.generic]] = {"rmse": rmse, "interval": interval}
    for i, errors in enumerate(report.errors):
        if errors is not None:
            arrays |= {f"rows/{i:03d}/{name}": column for name, column in errors.columns.items()}
    meta = {"report": report.to_json(), "fingerprint": fingerprint, "config": dict(config)}
    return write_artifact(path, kind="evaluation", arrays=arrays, meta=meta, parents=parents, overwrite=overwrite)


def read_evaluation(path: Path, *, errors: bool = True) -> EvaluationReport:
    """Read a report back, with its squared errors if asked for.

    Raises:
        ArtifactError: the file is missing, damaged, no evaluation, or incomplete.
    """
    artifact = read_artifact(path, kind="evaluation", only=None if errors else ("rmse",))
    try:
        report = EvaluationReport.from_json(artifact.meta["report"])
        kept: list[SquaredErrors | None] = []
        for i in range(len(report.rows)):
            there = columns_of(artifact.arrays, f"rows/{i:03d}")
            columns: dict[str, Any] = {
                name: there[name].astype(np.int64 if name in COUNTS else np.float64) for name in ERRORS if name in there
            }
            kept.append(SquaredErrors(**columns) if columns else None)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        problem = f"the evaluation is incomplete or damaged ({type(error).__name__})"
        fix = "`costar evaluate --overwrite` makes it again"
        raise ArtifactError(problem, where=str(path), fix=fix) from error
    return EvaluationReport(**{**vars(report), "errors": tuple(kept)}) if errors else report
