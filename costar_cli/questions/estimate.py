"""Estimate a subject's outcomes under treatment plans."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.nearest import did_you_mean
from costar_cli.errors import TrainingError
from costar_cli.methods.base import FittedModel
from costar_cli.panel import Dataset, Location, Panel, PanelSchema, Queries, TreatmentEncoding
from costar_cli.panel.compatible import require_compatible, same_data
from costar_cli.panel.schema import step_word
from costar_cli.panel.visits import elapsed_dose, visit_dates
from costar_cli.plans import AnyPlan, Moments, PlanRequest, Resolved, TreatmentPlan, resolve, step_of
from costar_cli.plans.untrusted import Problems
from costar_cli.questions.notes import Unseen, lacking, notes_on, trained_on_subject, unseen_in_plans, warnings_on
from costar_cli.questions.report import ModelAnswer, SubjectHistory, WhatIfReport
from costar_cli.questions.rules import possible_plans, rule_notes, true_of_rule, truth_known
from costar_cli.questions.support import judge_plans
from costar_cli.questions.widen import widened
from costar_cli.reporting import NullReporter, Reporter
from costar_cli.uncertainty import (
    Ask,
    Estimates,
    asks_once,
    calibration_of,
    differences,
    draws,
    estimate,
    interval_kind,
    is_joint,
)

Floats = NDArray[np.float64]
_FLAGS: Final = {"level ": "--level", "there is no plan ": "--reference"}  # how a problem begins, and what gave it
MOST_REPORTED: Final = 2_000  # plans of one subject, each with a thousand draws for differences


def estimate_outcomes(
    dataset: Dataset,
    models: Mapping[str, FittedModel],
    request: PlanRequest | Callable[[], PlanRequest],
    *,
    subject: int | str,
    origin: int | None = None,
    level: float | Sequence[float] = 0.9,
    truth: bool = False,
    reference: str | None = None,
    unsupported: bool = False,
    abstain: bool = False,
    widen: bool = False,
    reporter: Reporter | None = None,
) -> WhatIfReport:
    """Estimate the outcomes of one subject under every plan, with every model.

    Args:
        dataset: where the subject is, in whatever domain and split.
        models: fitted models by the label under which to report them.
        request: the plans, checked against the data set's treatments; or what reads and checks them, once it is known
            that data set and models mean the same by them.
        subject: number or label of the subject.
        origin: index of the last known step; overrides the request's, and defaults to the subject's last step.
        level: probability between `lower` and `upper`, or several; tables have all of them, the first as `lower`.
        truth: add the simulator's answer and the error.
        reference: the plan that others are compared with; the first by default.
        unsupported: answer plans that give what no training subject was given, too, and mark them.
        abstain: leave out the numbers of answers that the data do not support, those with a red light.
        widen: bands for plans under another policy than the one that was followed (spec BAND-8).
        reporter: told about progress and about what may make the estimates wrong.

    Raises:
        UsageError: an unknown subject or plan, an origin or plan out of range, truth of observed data, a plan of
            treatments that no training subject was given, `widen` where too few subjects are left.
        MismatchError: a model of other variables, treatments or units than the data set's.
        TrainingError: a model predicts values that are not finite.
    """
    for label, model in models.items():
        require_compatible(dataset, model.schema, model=f"model `{label}`")
    levels = tuple(level) if isinstance(level, Sequence) else (level,)
    location = dataset.find_subject(subject)
    panel = dataset.panel_of(location)
    request = (request() if callable(request) else request).of(panel.names[0])
    start = origin
    if start is None:
        start = step_of(panel, "last" if request.origin is None else request.origin, where="--plan")
    of_plans = origin is None and request.origin is not None
    ended = ended_at(panel, start, dataset.schema)
    _check(
        models, request, panel=panel, origin=start, levels=levels, reference=reference, of_plans=of_plans, ended=ended
    )
    moments_P = Moments.of(panel, start).take([0] * len(request.plans))
    asked = {label: resolve(label, model, moments_P, request.plans) for label, model in models.items()}
    first = next(iter(asked.values()))
    plans, possible = first.plans_Q, possible_plans(request.plans, first.plans_Q)
    unseen = unseen_in_plans(models, possible)
    if not unsupported:
        refuse_unseen(unseen)
    told = reporter or NullReporter()
    history = _history(panel, location, start, dataset.schema.treatments, plans)
    warnings = warnings_on(dataset, models, possible, history, ordered=plans)
    for warning in warnings:
        told.warn(warning)
    answers = _answers(asked, reference, dataset, location, unseen, widen=widen, reporter=told)
    rules = {plan.name: plan for plan in request.plans if not isinstance(plan, TreatmentPlan)}
    report = WhatIfReport(
        dataset=dataset.name,
        schema=dataset.schema,
        history=history,
        plans=plans,
        rules=rules,
        models=answers,
        levels=levels,
        reference=reference or request.plans[0].name,
        observed=_observed(panel, start, first, dataset.schema.treatments),
        truth=true_outcomes(dataset, location, start, request.plans) if truth else None,
        notes=(),
        warnings=warnings,
        abstain=abstain,
        parents={"dataset": dataset.digest} | {f"model/{label}": model.digest for label, model in models.items()},
        sources=dataset.parents,
    )
    own = rule_notes(models, request.plans, dataset, truth=truth, answers=answers)
    return replace(report, notes=(*own, *notes_on(report, dataset, models, location)))


def _check(
    models: Mapping[str, FittedModel],
    request: PlanRequest,
    *,
    panel: Panel,
    origin: int,
    levels: Sequence[float],
    reference: str | None,
    of_plans: bool,
    ended: str,
) -> None:
    problems = Problems()
    if not models:
        problems.add("no model given")
    last = int(panel.length[0]) - 1
    if not 0 <= origin <= last:
        problem = f"origin {origin} is outside the series of subject {panel.names[0]}: choose 0 to {last}"
        fix = "it is the `origin` of the plans: `--origin last`, or `origin=` in Python, overrides it"
        problems.add(problem, fix=fix if of_plans else "")
    if ended:
        problems.add(ended, fix=f"ask from an earlier origin, such as `--origin {origin - 1}`" if origin else "")
    check_request(models, request, levels, problems)
    names = [plan.name for plan in request.plans]
    if len(names) > MOST_REPORTED:
        problem = f"{len(names):,} plans are too many for the report of one subject: at most {MOST_REPORTED:,}"
        fix = "ask about a cohort for a table of answers, which `--subjects FILE` may list a single subject for"
        problems.add(problem, fix=fix)
    if reference is not None and reference not in names:
        there = f"the plans are {', '.join(map(repr, names))}"
        near = did_you_mean(reference, names, lead="; ", quoted=True)
        problems.add(f"there is no plan {reference!r} to compare with{near}", fix=there)
    flags = [flag for begins, flag in _FLAGS.items() if problems.lines and problems.lines[0].startswith(begins)]
    where = flags[0] if flags and len(problems.lines) == 1 else f"subject {panel.names[0]}"
    problems.raise_any("the request does not fit", where=where, fix=problems.fix)


def ended_at(panel: Panel, origin: int, schema: PanelSchema) -> str:
    """Return in words that the first subject's series ended with the origin, by a terminal event; else nothing."""
    event = schema.terminal.get(int(panel.ends[0]))
    if event is None or origin != panel.length[0] - 1:
        return ""
    dates = panel.dates(np.array([0]), np.array([origin]))
    when = f"{step_word(schema.step)} {origin}" + (f" ({dates[0]})" if dates is not None and dates[0] else "")
    return f"the series of subject {panel.names[0]} ended on {when}: {event}"


def check_request(
    models: Mapping[str, FittedModel], request: PlanRequest, levels: Sequence[float], problems: Problems
) -> None:
    """Add what is wrong with a question, whoever is asked about: levels, or plans that are too long."""
    if not levels:
        problems.add("no level given", fix="give one between 0 and 1, such as 0.9")
    for level in levels:
        if 0 < level < 1:
            continue
        meant = level / 100 if 1 < level < 100 else 0.9
        problems.add(
            f"level {level:g} is not above 0 and below 1", fix=f"choose one between 0 and 1, such as {meant:g}"
        )
    for label, model in models.items():
        for plan in request.plans:
            if len(plan) > model.horizon:
                problems.add(f"plan {plan.name!r} has {len(plan)} steps; model {label!r} answers 1 to {model.horizon}")


def refuse_unseen(unseen: Unseen) -> None:
    """Stop where plans give what no training subject was given.

    Raises:
        UsageError: naming each plan, and what nobody was given.
    """
    problems = Problems()
    for label, plans in unseen.items():
        for name, lacks in plans.items():
            for words in lacking(f"plan {name!r}", lacks, f"training subject of model {label!r}"):
                problems.add(words, fix="omit it, or add --unsupported to extrapolate")
    problems.raise_any("the models have not learned the effects of these plans", where="--plan", fix=problems.fix)


def ask_plans(model: FittedModel, moments_Q: Moments, plans_Q: Sequence[TreatmentPlan]) -> Queries:
    """Return questions about moments, each under its plan.

    Steps beyond a plan's own mean nothing: it is padded with its last step, which no earlier prediction sees.
    """
    distinct = list({id(plan): plan for plan in plans_Q}.values())
    place = {id(plan): i for i, plan in enumerate(distinct)}
    horizon = max(map(len, distinct))
    values = np.stack([np.pad(plan.values, ((0, horizon - len(plan)), (0, 0)), "edge") for plan in distinct])
    return moments_Q.queries(model.schema.treatments.encode(values)[[place[id(plan)] for plan in plans_Q]])


def estimate_plans(
    label: str,
    model: FittedModel,
    panel: Panel,
    queries: Queries,
    plans: Sequence[TreatmentPlan],
    *,
    ask: Ask | None = None,
) -> Estimates:
    """Return the estimates of what `ask_plans` asks.

    `plans` are those of each query, or those that all subjects have; `ask` predicts as the `rollout` of a model or of
    its part does.

    Raises:
        TrainingError: a prediction is not finite.
    """
    found = estimate(model, panel, queries, ask=ask)
    own_PH = np.arange(queries.horizon) < np.array([len(plan) for plan in plans])[:, None]
    odd_QH = ~np.isfinite(found.members_RQHY).all(axis=(0, -1)) & np.tile(own_PH, (len(queries) // len(plans), 1))
    if odd_QH.any():
        name = panel.names[int(queries.subject[odd_QH.any(axis=1).argmax()])]
        raise TrainingError(
            f"model `{label}` predicts values that are not finite for subject {name}",
            fix="retrain it, with a lower --learning-rate if it diverged",
        )
    return found


def _answers(
    asked: Mapping[str, Resolved],
    reference: str | None,
    dataset: Dataset,
    location: Location,
    unseen: Unseen,
    *,
    widen: bool,
    reporter: Reporter,
) -> tuple[ModelAnswer, ...]:
    """Return each model's answer, with what it was trained on and what of the plans it never saw."""
    answers = []
    with reporter.task("estimate", total=len(asked), unit="model") as task:
        for label, one in asked.items():
            answer = _answer(label, one, reference, widen=widen)
            seen, same = trained_on_subject(one.model, dataset, location), same_data(one.model.parents, dataset)
            lacks = {plan: [lack.what for lack in of_plan] for plan, of_plan in unseen.get(label, {}).items()}
            answers.append(replace(answer, trained_on_subject=seen, same_data=same, unsupported=lacks))
            task.advance()
    return tuple(answers)


def _answer(label: str, asked: Resolved, reference: str | None, *, widen: bool) -> ModelAnswer:
    model, panel, plans = asked.model, asked.moments.panel, asked.plans_Q
    queries, ask = ask_plans(model, asked.moments, plans), asks_once(panel)
    common, calibration = estimate_plans(label, model, panel, queries, plans, ask=ask), calibration_of(model)
    found = asked.estimated(common)
    apart = effective = None
    if calibration and widen:
        calibration, effective = widened(label, calibration, found, plans)
    if calibration and len(plans) > 1 and is_joint(model):
        names = [plan.name for plan in plans]
        minus = np.full(len(plans), names.index(reference) if reference else 0)
        drawn_SPHY = asked.drawn(draws(model, panel, queries, ask=ask))
        apart = differences(drawn_SPHY, found, np.arange(len(plans)), minus)
    members_RPHY = found.members_RQHY.astype(np.float64)
    own = tuple(members_RPHY[:, i, : len(plan)] for i, plan in enumerate(plans))
    return ModelAnswer(
        label=label, method=model.method, trained_on_subject=None, predictions=own, estimates=found,
        calibration=calibration, apart=apart, interval_kind=interval_kind(model),
        lights=judge_plans(model, panel, queries, common, plans), effective=effective,
        goes_on=asked.going_on(queries, common),
        played=tuple(went and went[0] for went in asked.played_Q),
    )  # fmt: skip


def _history(
    panel: Panel, location: Location, origin: int, encoding: TreatmentEncoding, plans: Sequence[TreatmentPlan]
) -> SubjectHistory:
    longest = max(plans, key=len)
    step_T = np.arange(origin + len(longest) + 1)
    dates = panel.dates(np.zeros_like(step_T), step_T)
    if dates is not None and (dose := elapsed_dose(encoding)):
        place = encoding.all_names.index(dose.name)
        gaps = [plan.values[:, place] for plan in plans]
        same = all(np.array_equal(gap, longest.values[: len(gap), place]) for gap in gaps)
        ahead = visit_dates(
            panel, dose, np.zeros(1, int), np.array([origin]), longest.values[None, :, place].astype(np.float64)
        )
        dates[origin + 1 :] = ahead[0] if same and ahead is not None else None
    return SubjectHistory(
        subject=int(panel.subject_id[0]),
        name=panel.names[0],
        part=location.part,
        length=int(panel.length[0]),
        origin=origin,
        outcomes=_known(panel)[: origin + 1],
        treatments=encoding.decode(panel.treatments[0, :origin]),
        dates=() if dates is None else tuple(dates),
    )


def _known(panel: Panel) -> Floats:
    """Return the first subject's outcomes `[T,Y]`, NaN where they were not observed."""
    known: Floats = np.where(panel.observed_outcomes[0], panel.outcomes[0], np.nan).astype(np.float64)
    return known


def _observed(panel: Panel, origin: int, asked: Resolved, encoding: TreatmentEncoding) -> tuple[Floats, ...]:
    """Return what was observed under each plan, or by a rule whose treatments are known beforehand."""
    return tuple(
        _observed_under(panel, origin, plan, encoding, known=went is None or went[0].how == "fixed")
        for plan, went in zip(asked.plans_Q, asked.played_Q, strict=True)
    )


def _observed_under(
    panel: Panel, origin: int, plan: TreatmentPlan, encoding: TreatmentEncoding, *, known: bool
) -> Floats:
    """Return what was observed, as long as a plan that is known beforehand is what was really given; NaN otherwise."""
    observed = np.full((len(plan), panel.outcomes.shape[2]), np.nan)
    if not known:
        return observed
    steps = min(len(plan), int(panel.length[0]) - 1 - origin)
    given = encoding.decode(panel.treatments[0, origin : origin + steps])
    same = np.logical_and.accumulate((given == plan.values[:steps]).all(axis=1))
    observed[:steps][same] = _known(panel)[origin + 1 : origin + 1 + steps][same]
    return observed


def true_outcomes(
    dataset: Dataset, location: Location, origin: int, plans: Sequence[AnyPlan]
) -> tuple[NDArray[np.float64], ...]:
    """Return the outcomes `[steps,Y]` that the simulator gives under each plan; rules act on what it says.

    Raises:
        UsageError: the data set was observed, not simulated.
    """
    answer = truth_known(dataset, location.part)
    width, panel = len(dataset.schema.outcomes), dataset.panel_of(location)
    answers = (
        answer(dataset, location.part, location.row, origin, plan.values)
        if isinstance(plan, TreatmentPlan)
        else true_of_rule(dataset, Moments.of(panel, origin), [location], plan)
        for plan in plans
    )
    return tuple(
        np.asarray(y, dtype=np.float64).reshape(len(plan), width) for y, plan in zip(answers, plans, strict=True)
    )
