"""The report of one subject: each model's answers, what is known of the subject, and what a reader should know."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.requests import WhatIfRequest
from costar_cli.data import Dataset, Location, Panel, TreatmentEncoding
from costar_cli.data.compatible import same_data
from costar_cli.data.visits import elapsed_dose, visit_dates
from costar_cli.inference import DRAWS, resolve, simulation_mode
from costar_cli.methods.base import FittedModel
from costar_cli.plans import PlanRequest, TreatmentPlan
from costar_cli.questions.answers import ModelAnswers, answer_cohort
from costar_cli.questions.diagnostics import notes_on, notes_on_rules, trained_on_subject, warnings_about
from costar_cli.questions.report import SubjectHistory, WhatIfReport
from costar_cli.questions.request import possible_plans, refuse_unseen, unseen_in_plans
from costar_cli.questions.subjects import Cohort
from costar_cli.questions.truth import true_answers
from costar_cli.reporting import Reporter

Floats = NDArray[np.float64]


def report_on(
    dataset: Dataset,
    models: Mapping[str, FittedModel],
    cohort: Cohort,
    plans: PlanRequest,
    request: WhatIfRequest,
    reporter: Reporter,
) -> WhatIfReport:
    """Return the report of a cohort of one subject at one origin, of whose warnings the reporter hears.

    Raises:
        UsageError: a plan of treatments that no training subject was given, `widen` where too few subjects are left.
        TrainingError: a model predicts values that are not finite.
    """
    [location], origin = cohort.places, int(cohort.origin_M[0])
    label, model = next(iter(models.items()))
    shifted: dict[str, TreatmentPlan] = {}  # what plans make of the natural treatment, where it is known beforehand
    shifts = [plan for plan in plans.plans if not isinstance(plan, TreatmentPlan) and plan.reads_natural]
    if shifts := [plan for plan in shifts if simulation_mode(plan, model, label) == "fixed"]:
        moments = cohort.moments(np.zeros(len(shifts), dtype=np.int64))
        resolved = resolve(label, model, moments, shifts, given=cohort.panel)
        shifted = {plan.name: plan for plan in resolved.plans_Q}
    possible = possible_plans(plans, shifted)
    unseen = unseen_in_plans(models, possible)
    if not request.unsupported:
        refuse_unseen(unseen)
    warnings = warnings_about(models, cohort, plans, dataset=dataset, plans=possible, rule_draws=DRAWS)
    for warning in warnings:
        reporter.say(warning)
    reference = request.reference or plans.plans[0].name
    found: list[ModelAnswers] = []
    with reporter.task("estimate", total=len(models), unit="model") as task:
        for label, model in models.items():
            [answers] = answer_cohort(
                label, model, cohort, plans, levels=request.levels, reference=reference, widen=request.widen,
                rule_draws=DRAWS,
            )  # fmt: skip
            lacks = {plan: [lack.what for lack in of_plan] for plan, of_plan in unseen.get(label, {}).items()}
            seen, same = trained_on_subject(model, dataset, location), same_data(model.parents, dataset)
            found.append(replace(answers, trained_on_subject=seen, same_data=same, unsupported=lacks))
            task.advance()
    first = found[0]
    fixed, truth = tuple(first.plans_Q), None
    if request.truth:
        truth_QHY = true_answers(dataset, first)
        truth = tuple(truth_HY[: len(plan)] for truth_HY, plan in zip(truth_QHY, fixed, strict=True))
    report = WhatIfReport(
        dataset=dataset.name,
        schema=dataset.schema,
        history=_history(cohort.panel, location, origin, dataset.schema.treatments, fixed),
        plans=fixed,
        rules=first.rules,
        models=tuple(found),
        levels=request.levels,
        reference=reference,
        observed=_observed(cohort.panel, origin, first),
        truth=truth,
        abstain=request.abstain,
        parents={"dataset": dataset.digest} | {f"model/{label}": model.digest for label, model in models.items()},
        sources=dataset.parents,
    )
    on_rules = notes_on_rules(models, plans.plans, dataset, truth=request.truth, answers=found)
    return replace(report, diagnostics=(*warnings, *on_rules, *notes_on(report, dataset, models, location)))


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


def _observed(panel: Panel, origin: int, answers: ModelAnswers) -> tuple[Floats, ...]:
    """Return what was observed under each plan `[steps,Y]`, as long as it is what was really given; NaN otherwise.

    Of rules that holds where their treatments are known beforehand.
    """
    encoding, found = answers.schema.treatments, []
    for plan, went in zip(answers.plans_Q, answers.simulated_Q, strict=True):
        observed = np.full((len(plan), panel.outcomes.shape[2]), np.nan)
        if went is None or went[0].how == "fixed":
            steps = min(len(plan), int(panel.length[0]) - 1 - origin)
            given = encoding.decode(panel.treatments[0, origin : origin + steps])
            same = np.logical_and.accumulate((given == plan.values[:steps]).all(axis=1))
            observed[:steps][same] = _known(panel)[origin + 1 : origin + 1 + steps][same]
        found.append(observed)
    return tuple(found)
