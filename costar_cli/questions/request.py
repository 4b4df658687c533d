"""Whether plans fit what is asked of which models, and what of them no training subject was given."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from costar_cli.config.nearest import did_you_mean
from costar_cli.data.findings import shown
from costar_cli.data.support import WITH_OTHERS, UnseenTreatment, never_together
from costar_cli.errors import UsageError
from costar_cli.methods.base import FittedModel
from costar_cli.plans import PlanOdds, PlanRequest, TreatmentPlan
from costar_cli.plans.untrusted import Problems

MOST_COMPARED = 2_000  # plans of one subject, each with a thousand draws for differences

Unseen = dict[str, dict[str, list[UnseenTreatment]]]


def check_request(
    problems: Problems,
    models: Mapping[str, FittedModel],
    request: PlanRequest,
    levels: Sequence[float],
    *,
    reference: str | None = None,
    compared: bool = False,
) -> None:
    """Add what does not fit: plans that are too long or too many, levels out of range, no such reference plan."""
    if not models:
        problems.add("no model given")
    if not levels:
        problems.add("no level given", fix="give one between 0 and 1, such as 0.9")
    for level in levels:
        if not 0 < level < 1:
            meant = level / 100 if 1 < level < 100 else 0.9
            fix = f"choose one between 0 and 1, such as {meant:g}"
            problems.add(f"level {level:g} is not above 0 and below 1", fix=fix)
    for plan in request.plans:
        if isinstance(plan, PlanOdds):
            problem = (
                f"plan {plan.name!r} multiplies the odds of {plan.treatment}, which models of outcomes do not know"
            )
            problems.add(problem, fix="ask `costar effect`, which models how treatment is chosen")
    every = [request.plans, *request.by_subject.values()]
    for label, model in models.items():
        for plan in {plan.name: plan for plans in every for plan in plans if len(plan) > model.horizon}.values():
            problems.add(f"plan {plan.name!r} has {len(plan)} steps; model {label!r} answers 1 to {model.horizon}")
    if compared and (count := max(map(len, every))) > MOST_COMPARED:
        problem = f"{count:,} plans are too many for the report of one subject: at most {MOST_COMPARED:,}"
        fix = "ask about a cohort for a table of answers, which `--subjects FILE` may list a single subject for"
        problems.add(problem, fix=fix)
    names = list(dict.fromkeys(plan.name for plan in every[0] or every[-1]))
    if reference is not None and not all(reference in {plan.name for plan in plans} for plans in every if plans):
        near = did_you_mean(reference, names, lead="; ", quoted=True)
        problem = f"there is no plan {reference!r} to compare with{near}"
        problems.add(problem, fix=f"the plans are {', '.join(map(repr, names))}")


def reference_place(names: Sequence[str], reference: str | None) -> int:
    """Return the place of the plan that others are compared with, by default the first.

    Raises:
        UsageError: there is none of that name.
    """
    if reference is not None and reference not in names:
        fix = f"the plans are {', '.join(map(repr, names))}"
        raise UsageError(f"there is no plan {reference!r} to compare with", where="--reference", fix=fix)
    return names.index(reference) if reference else 0


def possible_plans(request: PlanRequest, shifted: Mapping[str, TreatmentPlan] | None = None) -> list[TreatmentPlan]:
    """Return the plans, those of a table as one that has each of its steps once, rules as all that they may give.

    `shifted` has, by name, what shifts give a single subject, which is known beforehand.
    """
    if not request.by_subject:
        known = shifted or {}
        return [
            plan if isinstance(plan, TreatmentPlan) else known.get(plan.name) or TreatmentPlan(plan.name, plan.possible)
            for plan in request.plans
        ]
    steps = np.concatenate([plan.values for plans in request.by_subject.values() for plan in plans])
    return [TreatmentPlan("of the table", np.unique(steps, axis=0))]


def unseen_in_plans(models: Mapping[str, FittedModel], plans: Sequence[TreatmentPlan]) -> Unseen:
    """Return what no training subject was given, by model and plan; only where there is something."""
    supports = {label: model.record.support for label, model in models.items()}
    found: Unseen = {}
    for label, support in supports.items():
        encoding = models[label].schema.treatments
        lacks = {plan.name: own for plan in plans if support and (own := support.unseen_in(plan.values, encoding))}
        found |= {label: lacks} if lacks else {}
    return found


def describe_unseen(plan: str, lacks: Sequence[UnseenTreatment], who: str) -> Iterator[str]:
    """Yield what a plan gives that nobody of `who` was given: not at all, not by itself, not in the same step."""
    if never := [lack.what for lack in lacks if lack.kind == "never"]:
        yield f"{plan} gives {shown(never)}, which no {who} received"
    if alone := [lack.what for lack in lacks if lack.kind in WITH_OTHERS]:
        yield f"{plan} gives {shown(alone)}, which no {who} received without other treatments"
    if together := never_together(lacks, f"a {who}"):
        yield f"{plan}: {together}"


def refuse_unseen(unseen: Unseen) -> None:
    """Stop where plans give what no training subject was given.

    Raises:
        UsageError: naming each plan, and what nobody was given.
    """
    problems = Problems()
    for label, plans in unseen.items():
        for name, lacks in plans.items():
            for words in describe_unseen(f"plan {name!r}", lacks, f"training subject of model {label!r}"):
                problems.add(words, fix="omit it, or add --unsupported to extrapolate")
    problems.raise_any("the models have not learned the effects of these plans", where="--plan", fix=problems.fix)
