"""Who is asked about under which plans: subjects, origins and plans read together, and seen to fit."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from costar_cli.config.nearest import did_you_mean
from costar_cli.data import Dataset, Location, Panel, PanelSchema
from costar_cli.data.compatible import require_compatible
from costar_cli.data.findings import shown
from costar_cli.data.schema import step_word
from costar_cli.data.support import WITH_OTHERS, Support, UnseenTreatment, never_together
from costar_cli.methods.base import FittedModel
from costar_cli.plans import IndexTimes, Origin, PlanRequest, TreatmentPlan, step_of
from costar_cli.plans.index_times import Begin
from costar_cli.plans.untrusted import Problems
from costar_cli.questions.subjects import Cohort, check_table, join_places, names_of, with_plans
from costar_cli.reporting import Reporter

MOST_COMPARED = 2_000  # plans of one subject, each with a thousand draws for differences

Unseen = dict[str, dict[str, list[UnseenTreatment]]]
ReadPlans = Callable[[Begin], PlanRequest]
"""Reads plans, once it is known from which moments they begin."""


@dataclass(frozen=True, slots=True)
class Places:
    """What messages call the places where plans and origins were given."""

    plans: str = "--plan"
    origin: str = "--origin"
    document: str = ""
    request: str = "--plan"


def read_request(
    models: Mapping[str, FittedModel],
    panel: Panel,
    places: Sequence[Location],
    read: ReadPlans,
    *,
    dataset: Dataset | None,
    origin: Origin | None,
    levels: Sequence[float],
    reference: str | None = None,
    compared: bool = False,
    where: Places = Places(),
    alone: bool = False,
    skip: bool = False,
    reporter: Reporter | None = None,
) -> tuple[Cohort, PlanRequest]:
    """Return the moments that are asked about and the plans, and see that they fit, before anything is computed.

    Args:
        models: that are asked, by label; they fit the data set before plans are read as it understands them.
        panel: the subjects.
        places: where each is in a data set; none of subjects of no data set.
        read: reads the plans.
        dataset: where the subjects are, None for subjects of none.
        origin: the last known step; that of the plans by default, or each subject's last.
        levels: of limits.
        reference: the name of the plan that others are compared with.
        compared: each plan is compared with another.
        where: what messages call the places where things were given.
        alone: a single subject is asked about: of a table of plans its own are read, and errors name it.
        skip: leave out subjects that lack the origin, or plans of their own, with a warning.
        reporter: told of them.

    Raises:
        MismatchError: a model of other variables, treatments or units than the data set's.
        UsageError: plans that cannot be read, are too long or too many, levels out of range, no such reference plan;
            subjects without the origin or without plans.
    """
    if dataset is not None:
        for label, model in models.items():
            require_compatible(dataset, model.schema, model=f"model `{label}`")
    schema = next(iter(models.values())).schema if dataset is None else dataset.schema
    if alone and origin is not None:
        origin = step_of(panel, origin, where=where.origin)
    problems = Problems()
    request = read(partial(IndexTimes.of, panel, where=where.plans if origin is None else where.origin))
    start: Origin = "last" if request.origin is None else request.origin
    start = start if origin is None else origin
    if alone:
        request = request.of(panel.names[0])
        start = step_of(panel, start, where=where.plans)
        _check_alone(problems, panel, start, schema, of_plans=origin is None and request.origin is not None)
    elif request.by_subject and dataset is not None:
        places = with_plans(dataset, places, request, skip=skip, where=where.plans, reporter=reporter)
        panel = join_places(dataset, places)
    elif request.by_subject:
        check_table(names_of(panel), names_of(panel), request, where=where.plans)
    check_request(problems, models, request, levels, reference=reference, compared=compared)
    _raise(problems, f"subject {panel.names[0]}" if alone else where.request)
    of_plans = origin is None and request.origin is not None
    named = where.document if where.document and of_plans else where.origin
    return Cohort.of(
        panel, names_of(panel), places, origin=start, skip=skip, where=named, terminal=schema.terminal,
        reporter=reporter,
    ), request  # fmt: skip


def _check_alone(problems: Problems, panel: Panel, origin: int, schema: PanelSchema, *, of_plans: bool) -> None:
    """Add that a single subject lacks the origin, or that its series has ended there."""
    name, last = panel.names[0], int(panel.length[0]) - 1
    event = schema.terminal.get(int(panel.ends[0]))
    if not 0 <= origin <= last:
        fix = "it is the `origin` of the plans: `--origin last`, or `origin=` in Python, overrides it" * of_plans
        problems.add(f"origin {origin} is outside the series of subject {name}: choose 0 to {last}", fix=fix)
    elif event is not None and origin == last:
        dates = panel.dates(np.array([0]), np.array([origin]))
        when = f"{step_word(schema.step)} {origin}" + (f" ({dates[0]})" if dates is not None and dates[0] else "")
        fix = f"ask from an earlier origin, such as `--origin {origin - 1}`" if origin else ""
        problems.add(f"the series of subject {name} ended on {when}: {event}", fix=fix)


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


def _raise(problems: Problems, where: str) -> None:
    """Raise what was collected, if anything; a single problem names the flag that it is about.

    Raises:
        UsageError: there was a problem.
    """
    [line, *others] = problems.lines or [""]
    for begins, flag in {"level ": "--level", "there is no plan ": "--reference"}.items():
        where = flag if line.startswith(begins) and not others else where
    problems.raise_any("the request does not fit", where=where, fix=problems.fix)


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
    supports = {label: Support.from_meta(model.meta) for label, model in models.items()}
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
