"""The evaluation workflow: every model in every set-up that applies, the naive anchor, and the published rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.models import EvaluateConfig
from costar_cli.datasets.base import Limit
from costar_cli.datasets.registry import noisy_of
from costar_cli.errors import MismatchError
from costar_cli.evaluate.bands import WINDOWS, BandTest
from costar_cli.evaluate.bootstrap import bootstrap_interval, caution_about_units, too_few_units
from costar_cli.evaluate.dropout import StayWeights, Unweighed, hazards_of_losses
from costar_cli.evaluate.limit import known_limit, score_limit
from costar_cli.evaluate.metrics import SquaredErrors
from costar_cli.evaluate.natural import CourseQuestions, NaturalCourse
from costar_cli.evaluate.periods import PeriodErrors, Periods
from costar_cli.evaluate.probabilities import ProbabilityScore, score_binary, score_ends
from costar_cli.evaluate.published import is_published_data, published_row
from costar_cli.evaluate.report import EvaluationReport
from costar_cli.evaluate.rows import Basis, Provenance, ReportRow, Unit
from costar_cli.evaluate.score import TestPart, Truth, score
from costar_cli.evaluate.setups import Candidate, Job, Setup, SetupName, plan_jobs
from costar_cli.methods.base import FittedModel
from costar_cli.methods.registry import METHODS
from costar_cli.methods.regression.naive import LastValue
from costar_cli.panel import Dataset, Part, Queries
from costar_cli.panel.compatible import other_data, require_compatible, same_data
from costar_cli.reporting import WORSE_THAN_LAST_VALUE, NullReporter, Reporter, Task, warnings_of
from costar_cli.uncertainty import calibration_of, facts_of, support_of, survival_of

__all__ = ["run_evaluation"]


@dataclass(frozen=True)
class _Scored:
    """What one model, or what knows the simulator, did on a test part; bands where it is calibrated."""

    errors: Mapping[Truth, SquaredErrors]
    bands: BandTest | None = None
    course: CourseQuestions | None = None
    periods: PeriodErrors | None = None
    unweighed: Unweighed | None = None


def run_evaluation(
    dataset: Dataset,
    models: Sequence[Candidate],
    config: EvaluateConfig,
    *,
    setups: Sequence[SetupName] | None = None,
    reporter: Reporter | None = None,
) -> EvaluationReport:
    """Score models on the test parts of a data set, in the set-ups that apply.

    Args:
        dataset: must hold the test parts with their queries; other parts are not read.
        models: trained models.
        config: bootstrap and batching.
        setups: the set-ups asked for, an error where one cannot be scored; None for all that can.
        reporter: told about progress and warnings.

    Returns:
        Rows by set-up: the models, last value carried forward (once, where it is a model, too), what the simulator
        itself would predict, where the data set holds its truth, and, where the data are the published ones, the
        published rows of the same methods.
    """
    reporter = reporter or NullReporter()
    jobs = plan_jobs(dataset, models, setups)
    used = _unique(jobs)
    for candidate in used:
        model = candidate.model
        require_compatible(dataset, model.schema, model=f"model {candidate.label}", horizon=model.horizon)
    warnings = _warnings(dataset, jobs)
    for warning in warnings:
        reporter.warn(warning)
    parts = {job.setup.test: part_to_score(dataset, job.setup.test) for job in jobs}
    asked = ((part.panel, queries) for part in parts.values() for queries in part.query_sets.values())
    weights = stay_weights(parts, dataset, used) if config.ipcw else {}
    bench = _Bench(dataset, config, _unit(dataset, used), parts, Periods.of(asked), weights)
    naive = LastValue(horizon=dataset.horizon, schema=dataset.schema, scaler=used[0].model.scaler)
    limits = {part: limit for part in parts if (limit := known_limit(dataset, part))}
    total = sum(parts[part].n_queries for part in [*(job.setup.test for job in jobs), *parts, *limits])
    rows: list[tuple[ReportRow, SquaredErrors | None]] = []
    courses: list[NaturalCourse | None] = []
    probabilities: list[ProbabilityScore] = []
    with reporter.task("Scoring", total=total, unit="query") as task:
        naive_scores = {part: bench.score(naive, part, task) for part in parts}
        limit_scores = {part: bench.score_limit(limit, part, task, reporter) for part, limit in limits.items()}
        for setup in dict.fromkeys(job.setup for job in jobs):
            candidates = [job.candidate for job in jobs if job.setup == setup]
            for candidate in candidates:
                scored = bench.score(candidate.model, setup.test, task)
                provenance = _provenance(candidate, dataset)
                rows += bench.rows(scored, setup, candidate.label, provenance)
                courses.append(bench.natural(scored, candidate.label, setup))
                probabilities += bench.probabilities(candidate.model, scored, candidate.label, setup)
            if naive.method not in {candidate.model.method for candidate in candidates}:
                rows += bench.rows(naive_scores[setup.test], setup, METHODS.label(naive.method), None)
            if setup.test in limits:
                rows += bench.rows(limit_scores[setup.test], setup, limits[setup.test].label, None, basis="limit")
            rows += [(row, None) for row in _published_rows(dataset, setup, candidates)]
    report = EvaluationReport(
        dataset=dataset.name,
        dataset_digest=dataset.digest,
        horizon=dataset.horizon,
        unit=bench.unit,
        level=config.level,
        rows=tuple(row for row, _ in rows),
        warnings=tuple(warnings),
        config=config.model_dump(mode="json"),
        step=dataset.schema.step,
        errors=tuple(errors for _, errors in rows),
        natural=tuple(course for course in courses if course),
        probabilities=tuple(probabilities),
        dropout=tuple(of.told for of in weights.values()),
    )
    said = [*report.few_units, *_losses(report)]
    for warning in said:
        reporter.warn(warning)
    return replace(report, warnings=(*report.warnings, *said))


@dataclass(frozen=True)
class _Bench:
    """What every row of one evaluation shares."""

    dataset: Dataset
    config: EvaluateConfig
    unit: Unit
    parts: dict[Part, TestPart]
    periods: Periods | None
    weights: Mapping[Part, StayWeights]

    @property
    def _scale(self) -> dict[str, Any]:
        return {"denominator_Y": np.array(self.unit.denominator), "batch_size": self.config.query_batch_size}

    def score(self, model: FittedModel, part: Part, task: Task) -> _Scored:
        """Return what a model did on a test part."""
        test, facts = self.parts[part], facts_of(model)
        told = test.panel, test.horizon, self._scale["denominator_Y"], calibration_of(model), support_of(model)
        weights = self.weights.get(part)
        bands = BandTest(model, facts, *told, weights) if facts else None
        course = CourseQuestions.of(test.panel, test.horizon)
        periods = PeriodErrors(self.periods, test.panel) if self.periods else None
        unweighed = Unweighed(weights) if weights else None
        also: Any = {"bands": bands, "course": course, "periods": periods, "unweighed": unweighed}
        return _Scored(self._clustered(score(model, test, **self._scale, task=task, **also), part), **also)

    def natural(self, scored: _Scored, label: str, setup: Setup) -> NaturalCourse | None:
        """Return what a model predicts under the treatments given, beside what was observed."""
        if scored.course is None:
            return None
        weights = self.weights.get(setup.test)
        named: Any = {"setup": setup.name, "label": label, "test": str(setup.test)}
        named["weight_QH"] = weights.at(scored.course.queries) if weights else None
        return scored.course.summary(self.dataset.schema.outcomes, level=self.config.level, **named)

    def probabilities(self, model: FittedModel, scored: _Scored, label: str, setup: Setup) -> list[ProbabilityScore]:
        """Return the scores of ends of series and of binary outcomes, where there are any."""
        named: Any = {"setup": setup.name, "label": label, "test": str(setup.test)}
        named["weights"] = self.weights.get(setup.test)
        part, schema = self.parts[setup.test], self.dataset.schema
        survival = survival_of(model) if schema.ends == model.schema.ends else None
        ends = score_ends(model, survival, part.panel, part.horizon, **named) if survival else ()
        return [*ends, *(score_binary(scored.course, schema, **named) if scored.course else ())]

    def score_limit(self, limit: Limit, part: Part, task: Task, reporter: Reporter) -> _Scored:
        """Return what the simulator itself would have done."""
        known = score_limit(self.dataset, limit, part, self.parts[part], **self._scale, task=task, reporter=reporter)
        return _Scored(self._clustered(known, part))

    def _clustered(self, scored: Mapping[Truth, SquaredErrors], part: Part) -> dict[Truth, SquaredErrors]:
        cluster = self.parts[part].panel.cluster
        return {truth: replace(errors, cluster=cluster) for truth, errors in scored.items()}

    def rows(
        self,
        scored: _Scored,
        setup: Setup,
        label: str,
        provenance: Provenance | None,
        basis: Basis = "naive",
    ) -> list[tuple[ReportRow, SquaredErrors]]:
        """Return a row, with its errors, per kind of truth."""
        config = self.config
        periods = scored.periods.scores(self.unit.factor) if scored.periods else {}
        unweighted = scored.unweighed.rmse(self.unit.factor) if scored.unweighed else {}
        rows = []
        for truth, errors in scored.errors.items():
            bands = scored.bands.summary(truth, self.unit.factor) if scored.bands else None
            lights = scored.bands.light_scores(truth, self.unit.factor) if scored.bands and not bands else {}
            interval = bootstrap_interval(errors, level=config.level, replicates=config.bootstrap, seed=config.seed)
            too_few = too_few_units([errors]) if config.bootstrap else None
            row = ReportRow.scored_row(
                errors,
                interval,
                factor=self.unit.factor,
                outcome_names=[variable.name for variable in self.dataset.schema.outcomes],
                setup=setup.name,
                label=label,
                basis="ours" if provenance else basis,
                truth=truth,
                test=str(setup.test),
                query_sets=self.parts[setup.test].sets_by_step(truth),
                provenance=provenance,
                no_interval=too_few,
                caution=caution_about_units([errors]) if interval else None,
                calibration=bands.calibration if bands else {},
                bands=bands.details if bands else None,
                factual=scored.bands.summary(WINDOWS, self.unit.factor) if scored.bands else None,
                lights=lights,
                periods=periods.get(truth, ()),
                unweighted=unweighted.get(truth),
            )
            rows.append((row, errors))
        return rows


def stay_weights(
    parts: Mapping[Part, TestPart], dataset: Dataset, candidates: Sequence[Candidate]
) -> dict[Part, StayWeights]:
    """Return the weights against dropout of test parts.

    Raises:
        UsageError: the data name no loss of follow-up, or no model knows its hazard.
    """
    hazards = hazards_of_losses(dataset.schema, candidates)
    return {part: StayWeights.of(hazards, test.panel, test=str(part)) for part, test in parts.items()}


def _unique(jobs: Sequence[Job]) -> list[Candidate]:
    return list({id(job.candidate): job.candidate for job in jobs}.values())


def part_to_score(dataset: Dataset, part: Part) -> TestPart:
    """Return a test part of a data set, with what its bands are scored on."""
    noisy = noisy_of(dataset.name) if dataset.truth.get(part) else None

    def happened(queries: Queries) -> NDArray[np.floating]:
        assert noisy is not None  # noqa: S101 - it is asked only then
        plan = dataset.schema.treatments.decode(queries.plan)
        return np.asarray(noisy(dataset, part, queries.subject, queries.origin, plan))

    return TestPart.of(dataset.panel(*part), dataset.queries[part], dataset.horizon, happened if noisy else None)


def _unit(dataset: Dataset, candidates: Sequence[Candidate]) -> Unit:
    """Return the data set's error unit; the standardised space divides by the source-train sd that the models share."""
    unit = dataset.schema.error_unit
    denominator = np.ones(len(dataset.schema.outcomes))
    if unit.space == "standardized":
        denominator = candidates[0].model.scaler.outcomes[1]
        odd = [c.label for c in candidates if not np.allclose(c.model.scaler.outcomes[1], denominator, rtol=1e-6)]
        if odd:
            raise MismatchError(
                f"models {candidates[0].label} and {odd[0]} standardise outcomes differently",
                fix="evaluate models together that were trained on one data set",
            )
    return Unit(unit.label, unit.factor, unit.space, tuple(float(value) for value in denominator))


def _warnings(dataset: Dataset, jobs: Sequence[Job]) -> list[str]:
    """Return what speaks against the models: other data, what their training warned of, labels that they have seen."""
    warnings = []
    for candidate in _unique(jobs):
        name = f"model {candidate.label} ({candidate.domain})"
        other = other_data(name, candidate.model.parents, dataset)
        warnings += [other] if other else []
        warnings += warnings_of(name, candidate.model.meta)
    return warnings + [
        f"{job.candidate.label} in zero-shot has seen {job.candidate.labelled_target_subjects} labelled target subjects"
        for job in jobs
        if job.setup.name == "zero-shot" and job.candidate.labelled_target_subjects
    ]


def _losses(report: EvaluationReport) -> list[str]:
    """Return a warning for each row whose error is larger than that of the last value carried forward."""
    return [f"{row.label} in {row.setup}: {WORSE_THAN_LAST_VALUE} ({errors})" for row, errors in report.losers()]


def _provenance(candidate: Candidate, dataset: Dataset) -> Provenance:
    model = candidate.model
    return Provenance(
        method=model.method,
        init=candidate.init,
        domain=candidate.domain,
        trained_on=dict(model.trained_on),
        labelled_target_subjects=candidate.labelled_target_subjects,
        unlabelled_target_subjects=candidate.unlabelled_target_subjects,
        model_digest=model.digest,
        dataset_digest=model.parents.get("dataset", ""),
        same_data=same_data(model.parents, dataset),
        stopped_by_budget=bool(model.meta.get("stopped_by_budget")) if _counts_updates(model.meta) else None,
    )


def _counts_updates(meta: Mapping[str, Any]) -> bool:
    """Return whether a model was trained step by step, by a version that knows what ended its training."""
    return bool(meta.get("stages")) and "stopped_by_budget" in meta


def _published_rows(dataset: Dataset, setup: Setup, candidates: Sequence[Candidate]) -> list[ReportRow]:
    """Return the printed rows of the methods among the candidates, each once, where the data are the published ones."""
    if not is_published_data(dataset.name, dataset.config):
        return []
    methods = dict.fromkeys(candidate.model.method for candidate in candidates)
    found = [published_row(dataset.name, setup.name, method) for method in methods]
    return [ReportRow.published_row(row, setup.name, dataset.horizon) for row in found if row]
