"""Answers to a cohort's questions, chunk after chunk of subjects, so that memory is bounded; and their tidy rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.artifact.shards import WHOLE, Shard
from costar_cli.methods.base import FittedModel
from costar_cli.panel import Dataset, PanelSchema, Queries
from costar_cli.panel.compatible import other_data, require_compatible
from costar_cli.panel.findings import counted
from costar_cli.panel.support import Support
from costar_cli.panel.visits import elapsed_dose, visit_dates
from costar_cli.plans import COHORT_DRAWS, AnyPlan, Moments, PlanRequest, Rule, TreatmentPlan, resolve
from costar_cli.plans.untrusted import Problems
from costar_cli.questions.estimate import ask_plans, check_request, estimate_plans, refuse_unseen
from costar_cli.questions.notes import lacking, on_indication, on_reactions, unseen_in_plans
from costar_cli.questions.rules import true_of_rule, truth_known
from costar_cli.questions.subjects import Cohort
from costar_cli.reporting import warnings_of
from costar_cli.uncertainty import (
    LIGHTS,
    TOO_FEW,
    Bands,
    Estimates,
    GoesOn,
    Lights,
    calibration_of,
    interval_kind,
    support_of,
)

MOST_QUERIES: Final = 8_192  # answered at once: their histories, predictions and lights take some hundred MB
MOST_MOMENTS: Final = 1_024  # likewise, of histories that are encoded

OWN: Final = frozenset(
    [
        *("setup", "method", "model", "queries", "kind", "dataset", "part", "domain", "split", "subject", "label"),
        *("origin", "plan", "step", "time", "date", "outcome", "unit", "estimate", "lower", "upper", "level"),
        *("interval_kind", "precision", "practice", "support", "survival", "truth", "members_sd"),
    ]
)  # columns of tables of answers, as which those of subjects may not be called
Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class CohortAnswers:
    """One model's answers to a chunk of a cohort: Q questions, each about a moment and a plan.

    Attributes:
        label: what the model is called.
        schema: its columns.
        interval_kind: what the limits are where there are any, or why the model has none.
        cohort: the chunk's subjects and moments.
        moment_Q: the moment of each question.
        plans_Q: its plan; of a rule the most common course of treatment.
        queries: the questions, padded to the longest plan.
        estimates: the answers.
        levels: of the limits.
        bands: the limits, None where the model has none.
        lights: whether the data support the answers, None where the model does not know.
        rules: the rules among the plans, by name.
        goes_on: how likely series are to go on, None where the model knows of no end.
        unmeasured_QHY: which answers are to steps at which no training subject has the outcome.
    """

    label: str
    schema: PanelSchema
    interval_kind: str
    cohort: Cohort
    moment_Q: NDArray[np.int64]
    plans_Q: Sequence[TreatmentPlan]
    queries: Queries
    estimates: Estimates
    levels: tuple[float, ...]
    bands: Bands | None
    lights: Lights | None
    rules: Mapping[str, Rule] = field(default_factory=dict)
    goes_on: GoesOn | None = None
    unmeasured_QHY: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.moment_Q)

    @cached_property
    def worst_Q(self) -> NDArray[np.int8] | None:
        """Return the worst light of each question's own steps, a place in `LIGHTS`; None where there are none."""
        return None if self.lights is None else np.where(self.own_QHY, self.lights.light_QHY, 0).max(axis=(1, 2))

    @cached_property
    def steps_Q(self) -> NDArray[np.int64]:
        """Return the length of each question's plan."""
        return np.array([len(plan) for plan in self.plans_Q], dtype=np.int64)

    @cached_property
    def own_QHY(self) -> NDArray[np.bool_]:
        """Return which answers are to steps of the plan itself."""
        own_QH = np.arange(self.queries.horizon) < self.steps_Q[:, None]
        return np.broadcast_to(own_QH[..., None], self.estimates.mean_QHY.shape)

    @cached_property
    def limited_QHY(self) -> NDArray[np.bool_]:
        """Return which answers have limits at some level."""
        if self.bands is None:
            return np.zeros(self.estimates.mean_QHY.shape, dtype=bool)
        limits = np.stack([self.bands.lower_LQHY, self.bands.upper_LQHY])
        return np.asarray(np.isfinite(limits).all(axis=0).any(axis=0))


def answer_cohort(
    label: str,
    model: FittedModel,
    cohort: Cohort,
    request: PlanRequest,
    *,
    levels: Sequence[float] = (0.9,),
    shard: Shard = WHOLE,
) -> Iterator[CohortAnswers]:
    """Yield a model's answers about every moment of a cohort under every plan, some thousand questions at a time.

    Rules are played in 200 draws for each moment. A shard has whole chunks, so that its answers are those of one run.

    Raises:
        TrainingError: a prediction is not finite.
        ArtifactError: the model's file is damaged.
        UsageError: a rule reads outcomes, and the model predicts no course.
    """
    calibration, support, kind = calibration_of(model), support_of(model), interval_kind(model)
    for moments, plans_M in _chunks(cohort, request, shard):
        chunk = cohort.take(moments)
        moment_Q = np.repeat(np.arange(len(chunk)), [len(plans) for plans in plans_M])
        every_Q = [plan for plans in plans_M for plan in plans]
        moments_Q = chunk.moments(moment_Q)
        asked = resolve(label, model, moments_Q, every_Q, given=chunk.panel, n=COHORT_DRAWS)
        plans_Q, queries = asked.plans_Q, ask_plans(model, moments_Q, asked.plans_Q)
        common = estimate_plans(label, model, moments_Q.panel, queries, plans_Q)
        found = asked.estimated(common)
        bands = calibration.bands(found, levels) if calibration else None
        lights = support.lights(moments_Q.panel, queries, common) if support else None
        yield CohortAnswers(
            label, model.schema, kind, chunk, moment_Q, plans_Q, queries, found, tuple(levels), bands, lights,
            {plan.name: plan for plan in every_Q if not isinstance(plan, TreatmentPlan)},
            asked.going_on(queries, common),
            support.unmeasured(queries, len(model.schema.outcomes)) if support else None,
        )  # fmt: skip


def _chunks(cohort: Cohort, request: PlanRequest, shard: Shard) -> Iterator[tuple[slice, list[Sequence[AnyPlan]]]]:
    """Yield a shard's moments that are answered together, with the plans of each."""
    plans_M = plans_of(cohort, request)
    every = list(_bounds(plans_M))
    for place in shard.own(len(every)):
        moments, some = every[place]
        yield moments, [plans[some] for plans in plans_M[moments]]


def _bounds(plans_M: Sequence[Sequence[AnyPlan]]) -> Iterator[tuple[slice, slice]]:
    """Yield which moments, and which of their plans, are answered together; of very many plans, some at a time."""
    first = 0
    while first < len(plans_M):
        stop, count = first + 1, len(plans_M[first])
        while stop < min(len(plans_M), first + MOST_MOMENTS) and count + len(plans_M[stop]) <= MOST_QUERIES:
            count, stop = count + len(plans_M[stop]), stop + 1
        for begin in range(0, max(map(len, plans_M[first:stop])), MOST_QUERIES):
            yield slice(first, stop), slice(begin, begin + MOST_QUERIES)
        first = stop


def plans_of(cohort: Cohort, request: PlanRequest) -> list[Sequence[AnyPlan]]:
    """Return the plans that are asked about at each moment."""
    if not request.by_subject:
        return [request.plans] * len(cohort)
    own_N: list[Sequence[AnyPlan]] = [request.by_subject[str(name)] for name in cohort.names]
    return [own_N[row] for row in cohort.subject_M.tolist()]


def count_questions(cohort: Cohort, request: PlanRequest, shard: Shard = WHOLE) -> int:
    """Return how many pairs of a moment and a plan a shard asks about."""
    return sum(sum(map(len, plans_M)) for _, plans_M in _chunks(cohort, request, shard))


def _dates(answers: CohortAnswers, q: NDArray[np.integer], h: NDArray[np.integer]) -> NDArray[np.object_] | None:
    """Return when answers are, as text: of visits at any time, as far apart as plans say; None without dates."""
    panel, at_M = answers.cohort.panel, answers.moment_Q
    subject, origin = answers.cohort.subject_M[at_M], answers.cohort.origin_M[at_M]
    dose = elapsed_dose(answers.schema.treatments)
    if dose is None:
        return panel.dates(subject[q], origin[q] + h + 1)
    place = answers.schema.treatments.all_names.index(dose.name)
    gap_QH = np.ones((len(answers), answers.queries.horizon))
    for gap_H, plan in zip(gap_QH, answers.plans_Q, strict=True):  # encoded plans have rounded ones
        gap_H[: len(plan)] = plan.values[:, place]
    found = visit_dates(panel, dose, subject, origin, gap_QH)
    return None if found is None else found[q, h]


def tidy_columns(
    answers: CohortAnswers, *, truth_QHY: NDArray[np.float64] | None = None, abstain: bool = False
) -> Columns:
    """Return the columns of a tidy table: a row per question, step of its plan and outcome.

    They are `subject`, `label`, the columns of which names are made where these are several, for subjects of a data set
    `domain` and `split`, then `origin`, `plan`, `step` (from 1), `time` (origin + step), of data with dates its `date`,
    `outcome`, `unit`, `estimate`, `lower`, `upper`, `level`, `interval_kind`, the lights `precision`, `practice` and
    `support`, and `truth` where it is given; limits at further levels are called `lower_0.5`. Models that know of ends
    add `survival`, of several `ended_NAME`, too. With `abstain`, answers that the data do not support have no numbers.
    """
    cohort, found = answers.cohort, answers.estimates
    q, h, y = np.nonzero(answers.own_QHY)
    at_M, outcomes = answers.moment_Q[q], answers.schema.outcomes
    subject, origin = cohort.subject_M[at_M], cohort.origin_M[at_M]
    columns: Columns = {"subject": _objects(cohort.names)[subject], "label": _objects(cohort.panel.names)[subject]}
    keys = answers.schema.keys_of(cohort.panel.names, OWN)
    columns |= {name: _objects(key)[subject] for name, key in keys.items()}
    if cohort.places:
        columns["domain"] = _objects([place.part.domain for place in cohort.places])[subject]
        columns["split"] = _objects([place.part.split for place in cohort.places])[subject]
    columns |= {
        "origin": origin,
        "plan": _objects([plan.name for plan in answers.plans_Q])[q],
        "step": h + 1,
        "time": origin + h + 1,
        **({"date": dates} if (dates := _dates(answers, q, h)) is not None else {}),
        "outcome": _objects([outcome.name for outcome in outcomes])[y],
        "unit": _objects([outcome.unit for outcome in outcomes])[y],
        "estimate": found.mean_QHY[q, h, y],
    }
    for i, level in enumerate(answers.levels):
        limits = np.full((2, len(q)), np.nan)
        if answers.bands:
            limits = np.stack([x[i, q, h, y] for x in (answers.bands.lower_LQHY, answers.bands.upper_LQHY)])
            limits[:, ~np.isfinite(limits).all(axis=0)] = np.nan
        further = f"_{level:g}" * (i > 0)
        columns |= {f"lower{further}": limits[0], f"upper{further}": limits[1]}
        if not i:
            columns["level"] = np.where(np.isnan(limits[0]), np.nan, level)
            columns["interval_kind"] = _kinds(answers, q, h, y)
    columns |= _marks(answers.lights, q, h, y)
    if answers.goes_on:
        columns |= {name: values_QH[q, h] for name, values_QH in answers.goes_on.columns.items()}
    if abstain:
        red = columns["support"] == LIGHTS[2]
        shown = ("estimate", "lower", "upper", "level")
        columns |= {name: np.where(red, np.nan, columns[name]) for name in columns if name.partition("_")[0] in shown}
    return columns if truth_QHY is None else columns | {"truth": truth_QHY[q, h, y]}


def _kinds(
    answers: CohortAnswers, q: NDArray[np.integer], h: NDArray[np.integer], y: NDArray[np.integer]
) -> NDArray[np.object_]:
    """Return what the limits of each answer are, or why it has none at any level."""
    if answers.bands is None:
        return _objects([answers.interval_kind] * len(q))
    limited = answers.limited_QHY[q, h, y]
    kinds: NDArray[np.object_] = _objects([TOO_FEW, answers.interval_kind])[limited.astype(np.int64)]
    return kinds


def _marks(lights: Lights | None, q: NDArray[np.integer], h: NDArray[np.integer], y: NDArray[np.integer]) -> Columns:
    if lights is None:
        return {name: _objects([None] * len(q)) for name in ("precision", "practice", "support")}
    names = _objects([*LIGHTS, None])  # the last, at -1, is `NOT_JUDGED`
    return {
        "precision": names[lights.precision_QHY[q, h, y]],
        "practice": names[lights.practice_QH[q, h]],
        "support": names[lights.light_QHY[q, h, y]],
    }


def join_columns(chunks: Sequence[Columns]) -> Columns:
    """Return the columns of several tables, one below the other."""
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


def true_answers(dataset: Dataset, answers: CohortAnswers) -> NDArray[np.float64]:
    """Return what the simulator says `[Q,H,Y]`, not a number beyond a plan's own steps.

    Raises:
        UsageError: no simulator knows it.
    """
    truth_QHY, cohort = np.full(answers.estimates.mean_QHY.shape, np.nan), answers.cohort
    part_N = _objects([str(place.part) for place in cohort.places])
    row_N = np.array([place.row for place in cohort.places])
    subject_Q, origin_Q = cohort.subject_M[answers.moment_Q], cohort.origin_M[answers.moment_Q]
    moments_Q = Moments(cohort.panel, subject_Q, origin_Q)
    rule_Q = np.array([answers.rules.get(plan.name) for plan in answers.plans_Q], dtype=object)
    for part in dict.fromkeys(place.part for place in cohort.places):
        answer, there_Q = truth_known(dataset, part), part_N[subject_Q] == str(part)
        for rule in answers.rules.values():
            at = np.flatnonzero(there_Q & (rule_Q == rule))
            if len(at):
                found = true_of_rule(dataset, moments_Q.take(at), cohort.places, rule)
                truth_QHY[at, : len(rule)] = found
        plain_Q = there_Q & (rule_Q == None)  # noqa: E711 - elementwise
        for steps in np.unique(answers.steps_Q[plain_Q]):
            at = np.flatnonzero(plain_Q & (answers.steps_Q == steps))
            values = np.stack([answers.plans_Q[k].values for k in at.tolist()])
            found = answer(dataset, part, row_N[subject_Q[at]], origin_Q[at], values)
            truth_QHY[at, :steps] = np.asarray(found, dtype=np.float64).reshape(len(at), steps, -1)
    return truth_QHY


def check_questions(
    dataset: Dataset,
    models: Mapping[str, FittedModel],
    request: PlanRequest,
    levels: Sequence[float],
    *,
    unsupported: bool,
) -> None:
    """See that models, data set, plans and levels fit, before anything is computed.

    Raises:
        MismatchError: a model of other variables, treatments or units than the data set's.
        UsageError: plans that are too long, levels out of range, or what no training subject was given.
    """
    for label, model in models.items():
        require_compatible(dataset, model.schema, model=f"model `{label}`")
    problems = Problems()
    check_request(models, request, levels, problems)
    problems.raise_any("the request does not fit", where="--plan", fix=problems.fix)
    if not unsupported:
        refuse_unseen(unseen_in_plans(models, as_told(request)))


def as_told(request: PlanRequest) -> Sequence[TreatmentPlan]:
    """Return the plans, those of a table as one that has each of its steps once, rules as all that they may give."""
    if not request.by_subject:
        return [p if isinstance(p, TreatmentPlan) else TreatmentPlan(p.name, p.possible) for p in request.plans]
    steps = np.concatenate([plan.values for plans in request.by_subject.values() for plan in plans])
    return [TreatmentPlan("of the table", np.unique(steps, axis=0))]


def warnings_about(
    dataset: Dataset,
    models: Mapping[str, FittedModel],
    cohort: Cohort,
    request: PlanRequest,
    *,
    shard: Shard = WHOLE,
) -> Iterator[str]:
    """Yield what may make the answers of a shard wrong, as `costar whatif` says it of one subject."""
    for label, model in models.items():
        if other := other_data(f"model `{label}`", model.parents, dataset):
            yield other
        yield from warnings_of(f"model `{label}`", model.meta)
    yield from doubts(models, cohort, request, shard=shard)


def doubts(
    models: Mapping[str, FittedModel], cohort: Cohort, request: PlanRequest, *, shard: Shard = WHOLE
) -> Iterator[str]:
    """Yield what of the plans was not learnt: what nobody was given, stopping what never stopped, effects."""
    several, told = len(models) > 1, as_told(request)
    for label, of_plans in unseen_in_plans(models, told).items():
        who = "training subject" + f" of model `{label}`" * several
        for plan, lacks in of_plans.items():
            for words in lacking(f"plan `{plan}`", lacks, who):
                yield f"{words}: its effect was not learned"
    for label, model in models.items():
        where = "the training data" + f" of model `{label}`" * several
        for plan, name, subjects in _stopped(model, cohort, request, shard):
            never = f"which, once started, never stopped in {where}: there are no data on stopping"
            yield f"plan `{plan}` stops {name} of {counted(subjects, 'subject')}, {never}"
    yield from on_indication(models, told)
    plans = max(len(plans) for plans in (request.plans, *request.by_subject.values()))
    yield from on_reactions(models, plans=plans, steps=request.horizon)


def _stopped(model: FittedModel, cohort: Cohort, request: PlanRequest, shard: Shard) -> Iterator[tuple[str, str, int]]:
    """Yield plan, treatment and number of subjects where a plan, or a rule as it mostly goes, stops what never did."""
    support, encoding = Support.from_meta(model.meta), model.schema.treatments
    if support is None or not support.absorbing(encoding):
        return
    before_M = np.maximum(cohort.origin_M - 1, 0)
    given_MA = encoding.decode(cohort.panel.treatments[cohort.subject_M, before_M])
    given_MA = np.where((cohort.origin_M > 0)[:, None], given_MA, 0)
    found: dict[tuple[str, str], set[int]] = {}
    for moments, plans_M in _chunks(cohort, request, shard):
        chunk, moment_Q = cohort.take(moments), np.repeat(np.arange(len(plans_M)), list(map(len, plans_M)))
        every_Q = [plan for plans in plans_M for plan in plans]
        asked = resolve("", model, chunk.moments(moment_Q), every_Q, given=chunk.panel, n=COHORT_DRAWS)
        for m, plan in zip((moments.start + moment_Q).tolist(), asked.plans_Q, strict=True):
            for name, _ in support.stops(given_MA[m : m + 1], plan.values, encoding):
                found.setdefault((plan.name, name), set()).add(int(cohort.subject_M[m]))
    for (plan_name, name), subjects in found.items():
        yield plan_name, name, len(subjects)


def _objects(values: Sequence[object]) -> NDArray[Any]:
    """Return an array of objects, which no text is cut in."""
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made
