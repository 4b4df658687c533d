"""What scoring leaves of predictions, and the report that follows from it without them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from costar_cli.config.models import EvaluateConfig
from costar_cli.data import PanelSchema
from costar_cli.evaluation.bootstrap import bootstrap_interval, caution_about_units, standard_error, too_few_units
from costar_cli.evaluation.calibrated import WINDOWS, BandSums
from costar_cli.evaluation.dropout import DropoutWeights
from costar_cli.evaluation.metrics import SquaredErrors
from costar_cli.evaluation.natural import CourseAnswers
from costar_cli.evaluation.periods import PeriodSums
from costar_cli.evaluation.probabilities import EventAnswers, answers_of_binary
from costar_cli.evaluation.report import EvaluationReport
from costar_cli.evaluation.rows import Basis, Provenance, ReportRow, Unit
from costar_cli.evaluation.score import Truth
from costar_cli.evaluation.setups import SetupName
from costar_cli.evaluation.sums import cut, joined
from costar_cli.reporting import WORSE_THAN_LAST_VALUE, Reporter

__all__ = ["Scored", "Scores"]


@dataclass(frozen=True, eq=False)
class Scored:
    """How a model, or what knows the simulator, did in one set-up: a row for each kind of truth.

    `query_sets` names the set that serves each step. Only models that were evaluated have a natural `course` and
    `ends`; `unweighed` are errors without weights, by kind of question, where there are weights.
    """

    setup: SetupName
    label: str
    basis: Basis
    test: str
    query_sets: Mapping[Truth, tuple[str | None, ...]]
    errors: Mapping[Truth, SquaredErrors]
    provenance: Provenance | None = None
    bands: BandSums | None = None
    course: CourseAnswers | None = None
    periods: PeriodSums | None = None
    unweighed: Mapping[str, SquaredErrors] = field(default_factory=dict)
    ends: tuple[EventAnswers, ...] = ()

    def cut(self, subjects: range) -> "Scored":
        """Return sums with the rows of some subjects of the test part alone; other sums are of these only."""
        rows = slice(subjects.start, subjects.stop)
        bands = self.bands and replace(self.bands, scores={k: cut(one, rows) for k, one in self.bands.scores.items()})
        errors = {truth: cut(sums, rows) for truth, sums in self.errors.items()}
        unweighed = {kind: cut(sums, rows) for kind, sums in self.unweighed.items()}
        return replace(self, errors=errors, bands=bands, unweighed=unweighed)

    @classmethod
    def joined(cls, parts: Sequence["Scored"]) -> "Scored":
        """Return what shards did as one; what knows the simulator has no rows where it failed in a shard.

        Raises:
            ValueError: sums do not fit together.
        """
        first, periods = parts[0], [part.periods.sums for part in parts if part.periods]
        known = [truth for truth in first.errors if all(truth in part.errors for part in parts)]
        return replace(
            first,
            errors={truth: joined([part.errors[truth] for part in parts]) for truth in known},
            bands=first.bands and joined([part.bands for part in parts]),
            course=first.course and joined([part.course for part in parts]),
            periods=first.periods and replace(first.periods, sums=joined(periods, along=False)),
            unweighed=joined([part.unweighed for part in parts]),
            ends=tuple(map(joined, zip(*(part.ends for part in parts), strict=True))),
        )

    @property
    def names(self) -> dict[str, Any]:
        """Return what its rows are called."""
        return {"setup": self.setup, "label": self.label, "test": self.test}

    def rows(
        self, unit: Unit, schema: PanelSchema, config: EvaluateConfig
    ) -> Iterator[tuple[ReportRow, SquaredErrors]]:
        """Yield a row, with its errors, per kind of truth."""
        periods = self.periods.scores(unit.factor) if self.periods else {}
        for truth, errors in self.errors.items():
            bands = self.bands.summary(truth, unit.factor) if self.bands else None
            interval = bootstrap_interval(errors, level=config.level, replicates=config.bootstrap, seed=config.seed)
            unweighed = self.unweighed.get(truth)
            row = ReportRow.scored_row(
                errors,
                interval,
                factor=unit.factor,
                outcome_names=[variable.name for variable in schema.outcomes],
                **self.names,
                basis=self.basis,
                truth=truth,
                query_sets=self.query_sets[truth],
                provenance=self.provenance,
                no_interval=too_few_units([errors]) if config.bootstrap else None,
                caution=caution_about_units([errors]) if interval else None,
                calibration=bands.calibration if bands else {},
                bands=bands.details if bands else None,
                factual=self.bands.summary(WINDOWS, unit.factor) if self.bands else None,
                lights=self.bands.light_scores(truth, unit.factor) if self.bands and not bands else {},
                periods=periods.get(truth, ()),
                se=standard_error(errors, unit.factor) if self.basis == "limit" else None,
                unweighted=unweighed.mean_rmse(unit.factor) if unweighed else None,
            )
            yield row, errors


@dataclass(frozen=True, eq=False)
class Scores:
    """All rows of one evaluation, in order: what was scored, and published rows; and what they share."""

    dataset: str
    dataset_digest: str
    horizon: int
    schema: PanelSchema
    unit: Unit
    config: EvaluateConfig
    rows: tuple[Scored | ReportRow, ...]
    warnings: tuple[str, ...] = ()
    dropout: tuple[DropoutWeights, ...] = ()

    def report(self, reporter: Reporter) -> EvaluationReport:
        """Return the report; `reporter` is told what speaks against its rows."""
        rows: list[tuple[ReportRow, SquaredErrors | None]] = []
        for one in self.rows:
            rows += one.rows(self.unit, self.schema, self.config) if isinstance(one, Scored) else [(one, None)]
        ours = [one for one in self.rows if isinstance(one, Scored)]
        named = [(one.names, one) for one in ours]
        report = EvaluationReport(
            dataset=self.dataset,
            dataset_digest=self.dataset_digest,
            horizon=self.horizon,
            unit=self.unit,
            level=self.config.level,
            rows=tuple(row for row, _ in rows),
            warnings=self.warnings,
            config=self.config.model_dump(mode="json"),
            step=self.schema.step,
            errors=tuple(errors for _, errors in rows),
            natural=tuple(
                one.course.summary(self.schema.outcomes, level=self.config.level, **names)
                for names, one in named
                if one.course
            ),
            probabilities=tuple(event.score(**names) for names, one in named for event in self._events(one)),
            dropout=self.dropout,
        )
        said = [*report.few_units, *_losses(report)]
        for warning in said:
            reporter.warn(warning)
        return replace(report, warnings=(*report.warnings, *said))

    def _events(self, one: Scored) -> Iterator[EventAnswers]:
        """Yield the ends of series and the binary outcomes of which a model predicts probabilities."""
        yield from one.ends
        if one.course is not None:
            yield from answers_of_binary(one.course, self.schema)


def _losses(report: EvaluationReport) -> list[str]:
    """Return a warning for each row whose error is larger than that of the last value carried forward."""
    return [f"{row.label} in {row.setup}: {WORSE_THAN_LAST_VALUE} ({errors})" for row, errors in report.losers()]
