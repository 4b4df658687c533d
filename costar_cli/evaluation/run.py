"""The evaluation workflow: every model in every set-up that applies, the naive anchor, and the published rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.choices import SetupName
from costar_cli.config.models import EvaluateConfig
from costar_cli.data import Dataset, Part, Queries
from costar_cli.data.base import Limit, called
from costar_cli.data.compatible import other_data, require_compatible, same_data
from costar_cli.data.registry import potential_outcomes_of
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import MismatchError
from costar_cli.evaluation.bands import BandTest
from costar_cli.evaluation.doses import dose_columns, has_doses
from costar_cli.evaluation.dropout import StayWeights, hazards_of_losses
from costar_cli.evaluation.effects import EffectSums
from costar_cli.evaluation.foreign import ForeignModel
from costar_cli.evaluation.limit import known_limit, score_limit
from costar_cli.evaluation.metrics import Periods, SquaredErrors, Truth
from costar_cli.evaluation.natural import Course, course_columns, course_windows
from costar_cli.evaluation.probabilities import answer_ends
from costar_cli.evaluation.published import is_published_data, published_row
from costar_cli.evaluation.report import EvaluationReport
from costar_cli.evaluation.rows import Basis, Provenance, ReportRow, Unit
from costar_cli.evaluation.score import TestPart, score
from costar_cli.evaluation.scores import Scored, Scores
from costar_cli.evaluation.setups import Candidate, Job, Setup, plan_jobs
from costar_cli.evaluation.sums import Sums, cut
from costar_cli.files.shards import WHOLE, Shard
from costar_cli.inference import calibration_of, facts_of, support_of, survival_of
from costar_cli.methods.base import FittedModel
from costar_cli.methods.registry import METHODS
from costar_cli.methods.regression.naive import LastValue
from costar_cli.reporting import NullReporter, Reporter, Task, warnings_of


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
    return score_models(dataset, models, config, setups=setups, reporter=reporter).summary(reporter)


def score_models(
    dataset: Dataset,
    models: Sequence[Candidate],
    config: EvaluateConfig,
    *,
    setups: Sequence[SetupName] | None,
    reporter: Reporter,
    shard: Shard = WHOLE,
) -> Scores:
    """Return what the report of an evaluation is made of, or what a shard of the subjects of each part adds to it.

    Other arguments are those of `run_evaluation`.
    """
    jobs = plan_jobs(dataset, models, setups)
    used = list({id(job.candidate): job.candidate for job in jobs}.values())
    for candidate in used:
        model = candidate.model
        require_compatible(dataset, model.schema, model=f"model {candidate.label}", horizon=model.horizon)
    warnings = _warnings(dataset, jobs, used)
    for warning in warnings:
        reporter.say(warning)
    parts = {job.setup.test: part_to_score(dataset, job.setup.test, shard) for job in jobs}
    asked = ((part.panel, queries) for part in parts.values() for queries in part.query_sets.values())
    weights = stay_weights(parts, dataset, used) if config.ipcw else {}
    context = _ScoringContext(dataset, config, _unit(dataset, used), parts, Periods.of(asked), weights)
    naive = LastValue(horizon=dataset.horizon, schema=dataset.schema, scaler=used[0].model.scaler)
    limits = {part: limit for part in parts if (limit := known_limit(dataset, part))}
    total = sum(parts[part].n_queries for part in [*(job.setup.test for job in jobs), *parts, *limits])
    rows: list[Scored | ReportRow] = []
    with reporter.task("Scoring", total=total, unit="query") as task:
        anchors = {part: context.anchor(naive, part, task) for part in parts}
        bounds = {part: context.bound(limit, part, task, reporter) for part, limit in limits.items()}
        for setup in dict.fromkeys(job.setup for job in jobs):
            candidates = [job.candidate for job in jobs if job.setup == setup]
            rows += [context.scored(candidate, setup, task) for candidate in candidates]
            if naive.method not in {candidate.model.method for candidate in candidates}:
                rows.append(replace(anchors[setup.test], setup=setup.name))
            if setup.test in bounds:
                rows.append(replace(bounds[setup.test], setup=setup.name))
            if is_published_data(dataset.name, dataset.config):
                methods = dict.fromkeys(candidate.model.method for candidate in candidates)
                printed = (published_row(dataset.name, setup.name, method) for method in methods)
                rows += [ReportRow.published_row(row, setup.name, dataset.horizon) for row in printed if row]
    return Scores(
        dataset=dataset.name,
        dataset_digest=dataset.digest,
        horizon=dataset.horizon,
        schema=dataset.schema,
        unit=context.unit,
        config=config,
        rows=tuple(rows),
        warnings=tuple(map(str, warnings)),
        dropout=tuple(of.summary for of in weights.values()),
        shard=str(shard),
    )


@dataclass(frozen=True)
class _ScoringContext:
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

    def scored(self, candidate: Candidate, setup: Setup, task: Task) -> Scored:
        """Return what a model that is evaluated did in a set-up."""
        model, test, weights = candidate.model, self.parts[setup.test], self.weights.get(setup.test)
        windows = None if isinstance(model, ForeignModel) else course_windows(test.panel, test.horizon, test.own)
        survival = survival_of(model) if self.dataset.schema.ends == model.schema.ends else None
        course, schema = None, self.dataset.schema
        if windows is not None:
            bands = has_doses(schema) and facts_of(model) is not None and calibration_of(model) is not None
            course = Course.blank(windows, test.panel.outcomes.shape[2], bands=bands)
        row = self.anchor(model, setup.test, task, course)
        sums = dict(row.sums)
        if windows is not None and course is not None:
            weight_QS = weights.at(windows) if weights else None
            columns = course_columns(test.panel, windows, course.means_QSY, weight_QS)
            columns |= dose_columns(schema, test.panel, windows, course.bands) if course.bands else {}
            sums |= {f"course/{name}": column for name, column in columns.items()}
        events = list(answer_ends(model, survival, test, weights)) if survival else []
        sums |= {
            f"ends/{i}/{name}": column for i, (_, answers) in enumerate(events) for name, column in answers.items()
        }
        stopped = model.record.stopped_by_budget  # versions that do not know what ended training count no updates
        provenance = Provenance(
            method=model.method,
            init=candidate.init,
            domain=candidate.domain,
            trained_on=dict(model.trained_on),
            labelled_target_subjects=candidate.labelled_target_subjects,
            unlabelled_target_subjects=candidate.unlabelled_target_subjects,
            model_digest=model.digest,
            dataset_digest=model.parents.get("dataset", ""),
            same_data=same_data(model.parents, self.dataset),
            stopped_by_budget=bool(stopped) if model.record.stages and stopped is not None else None,
        )
        ends, label = tuple(event for event, _ in events), candidate.label
        return replace(row, setup=setup.name, label=label, basis="ours", provenance=provenance, sums=sums, ends=ends)

    def anchor(self, model: FittedModel, part: Part, task: Task, course: Course | None = None) -> Scored:
        """Return what a model, such as the naive anchor, did on a test part, of the first set-up."""
        test, facts, weights = self.parts[part], facts_of(model), self.weights.get(part)
        bands, also = None, dict[str, SquaredErrors]()
        if facts:
            of_panel = test.panel, test.horizon, self._scale["denominator_Y"]
            calibration = model.stated if isinstance(model, ForeignModel) else calibration_of(model)
            bands = BandTest(model, facts, *of_panel, calibration, support_of(model), weights, test.quantiles)
        more: Any = {"bands": bands, "course": course, "periods": self.periods, "weights": weights, "also": also}
        effects = test.effects(model.members)
        errors = score(model, test, **self._scale, task=task, effects=effects, **more)
        sums = bands.sums if bands else {}
        row = self._row(METHODS.label(model.method), part, errors, "naive", effects, also, sums)
        absorbed = (
            {kind: float(none / max(answers, 1)) for kind, (answers, none) in bands.absorbed.items()} if bands else {}
        )
        groups = {name: labels for name, (labels, _) in bands.groupings.items()} if bands else {}
        names = self.periods.names if self.periods else ()
        return replace(row, groups=groups, absorbed_share=absorbed, periods=names)

    def bound(self, limit: Limit, part: Part, task: Task, reporter: Reporter) -> Scored:
        """Return what the simulator itself would have done, of the first set-up."""
        where = self.dataset, limit, part, self.parts[part]
        errors, effects = score_limit(*where, **self._scale, task=task, reporter=reporter)
        return self._row(limit.label, part, errors, "limit", effects)

    def _row(
        self, label: str, part: Part, errors: Mapping[Truth, SquaredErrors], basis: Basis,
        effects: EffectSums | None, also: Mapping[str, SquaredErrors] | None = None, bands: Sums | None = None,
    ) -> Scored:  # fmt: skip
        test = self.parts[part]
        by_folder = {f"errors/{truth}": replace(of, cluster=test.panel.cluster) for truth, of in errors.items()}
        by_folder |= also or {}
        sums = {f"{folder}/{name}": column for folder, of in by_folder.items() for name, column in of.columns.items()}
        sums |= effects.columns(test.panel.cluster) if effects else {}
        sets = {truth: test.sets_by_step(truth) for truth in test.serving}
        return Scored("zero-shot", label, basis, str(part), sets, cut(sums | dict(bands or {}), test.own))


def stay_weights(
    parts: Mapping[Part, TestPart], dataset: Dataset, candidates: Sequence[Candidate]
) -> dict[Part, StayWeights]:
    """Return the weights against dropout of test parts.

    Raises:
        UsageError: the data name no loss of follow-up, or no model knows its hazard.
    """
    hazards = hazards_of_losses(dataset.schema, candidates)
    return {part: StayWeights.of(hazards, test.panel, test=str(part)) for part, test in parts.items()}


def part_to_score(dataset: Dataset, part: Part, shard: Shard = WHOLE) -> TestPart:
    """Return a test part of a data set, with what its bands are scored on; a shard scores some of its subjects."""
    noisy = potential_outcomes_of(dataset.name) if dataset.truth.get(part) else None

    def happened(queries: Queries) -> NDArray[np.floating]:
        assert noisy is not None  # noqa: S101 - it is asked only then
        plan = dataset.schema.treatments.decode(queries.plan)
        return np.asarray(noisy(dataset, part, queries.subject, queries.origin, plan))

    limit = known_limit(dataset, part)
    law = called(limit.quantiles) if limit is not None and limit.quantiles is not None else None
    remembered: dict[bytes, NDArray[np.float32]] = {}  # all models are asked the same, some 20,000 queries

    def quantiles(queries: Queries, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        assert law is not None  # noqa: S101 - it is asked only then
        key = blake2b(b"".join(of.tobytes() for of in (queries.subject, queries.origin, queries.plan, shares))).digest()
        if key not in remembered:
            plan = dataset.schema.treatments.decode(queries.plan)
            answer = law(dataset, part, queries.subject, queries.origin, plan, shares)
            remembered[key] = np.asarray(answer, dtype=np.float32)
        return remembered[key].astype(np.float64)

    panel, sets = dataset.panel(*part), dataset.queries[part]
    of_simulator = happened if noisy else None, shard, quantiles if law else None
    return TestPart.of(panel, sets, dataset.horizon, *of_simulator)


def _unit(dataset: Dataset, candidates: Sequence[Candidate]) -> Unit:
    """Return the data set's error unit; the standardised space divides by the source-train sd that the models share."""
    unit = dataset.schema.error_unit
    denominator = candidates[0].model.scaler.error_scale(dataset.schema)
    if unit.space == "standardized":
        odd = [c.label for c in candidates if not np.allclose(c.model.scaler.outcomes[1], denominator, rtol=1e-6)]
        if odd:
            raise MismatchError(
                f"models {candidates[0].label} and {odd[0]} standardise outcomes differently",
                fix="evaluate models together that were trained on one data set",
            )
    return Unit(unit.label, unit.factor, unit.space, tuple(float(value) for value in denominator))


def _warnings(dataset: Dataset, jobs: Sequence[Job], candidates: Sequence[Candidate]) -> list[Diagnostic]:
    """Return what speaks against the models: other data, what their training warned of, labels that they have seen."""
    warnings = []
    for candidate in candidates:
        name = f"model {candidate.label} ({candidate.domain})"
        other = other_data(name, candidate.model.parents, dataset)
        warnings += [other] if other else []
        warnings += warnings_of(name, candidate.model.record.warnings)
    return warnings + [
        Diagnostic.of("labels-seen", job.candidate.label, count=job.candidate.labelled_target_subjects)
        for job in jobs
        if job.setup.name == "zero-shot" and job.candidate.labelled_target_subjects
    ]
