"""What a reader should know before believing a what-if: warnings of what makes it doubtful, and notes on the rest."""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

import numpy as np

from costar_cli.data import Dataset, Domain, Location
from costar_cli.data.compatible import other_data, same_data
from costar_cli.data.findings import counted
from costar_cli.data.indication import Indication
from costar_cli.data.registry import potential_outcomes_of
from costar_cli.data.schema import step_word
from costar_cli.data.support import UNCHECKED, Support
from costar_cli.diagnostics import Diagnostic
from costar_cli.files.shards import WHOLE, Shard
from costar_cli.inference import (
    BLACK_BOX,
    BY_LAW,
    CALIBRATED,
    COHORT_DRAWS,
    DRAWS,
    NO_LEVEL,
    RANGE,
    SEED,
    Calibration,
    Reactions,
    resolve,
    simulation_mode,
)
from costar_cli.methods.base import FittedModel
from costar_cli.methods.registry import METHODS
from costar_cli.methods.shared.transformed import on_transforms
from costar_cli.plans import AnyPlan, PlanRequest, TreatmentPlan
from costar_cli.questions.answers import ModelAnswers, chunks_of
from costar_cli.questions.report import WhatIfReport
from costar_cli.questions.request import describe_unseen, possible_plans, unseen_in_plans
from costar_cli.questions.subjects import Cohort
from costar_cli.reporting import warnings_of

__all__ = [
    "notes_on",
    "notes_on_transforms",
    "on_indication",
    "on_reactions",
    "on_widened",
    "trained_on_subject",
    "validated_on",
    "warnings_about",
    "warnings_on_plans",
]

FEWEST_EVENTS: Final = 20  # of training subjects, below which the probability of an end is hardly known


def trained_on_subject(model: FittedModel, dataset: Dataset, location: Location) -> bool | None:
    """Return whether the model was trained on the subject; None when it may have been, or on its earlier steps."""
    if _earlier_steps(dataset, location):
        return None
    count = _trained_count(model, dataset, location)
    if count is None or 0 < count < dataset.panels[location.part].n_subjects:
        return None
    return count > 0


def validated_on(model: FittedModel, dataset: Dataset, domain: Domain) -> bool | None:
    """Return whether subjects of the domain, of this data set, decided when training stopped; None if unknown."""
    selected = model.meta.get("selected_on")
    if not selected:
        return None
    return same_data(model.parents, dataset) is not False and bool(selected.get(f"{domain}/val"))


def warnings_about(
    models: Mapping[str, FittedModel],
    cohort: Cohort,
    request: PlanRequest,
    *,
    dataset: Dataset | None = None,
    plans: Sequence[TreatmentPlan] | None = None,
    shard: Shard = WHOLE,
    rule_draws: int = COHORT_DRAWS,
) -> tuple[Diagnostic, ...]:
    """Return what may make the answers wrong, each once.

    That is a model of another data set, what its training warned of (losing to the last value carried forward, too),
    and what of the plans was not learnt.

    Args:
        models: that answer, by label.
        cohort: who is asked about.
        request: under which plans.
        dataset: of the subjects; None for subjects of none.
        plans: what plans, rules and shifts may give; by default without knowing the subject.
        shard: which of the answers are meant.
        rule_draws: how often a rule is played for each moment.
    """
    found: list[Diagnostic] = []
    for label, model in models.items():
        other = dataset and other_data(f"model `{label}`", model.parents, dataset)
        found += [*([other] if other else []), *warnings_of(f"model `{label}`", model.meta)]
    found += warnings_on_plans(
        models, cohort, request, dataset=dataset, plans=plans, shard=shard, rule_draws=rule_draws
    )
    return tuple(dict.fromkeys(found))


def warnings_on_plans(
    models: Mapping[str, FittedModel],
    cohort: Cohort,
    request: PlanRequest,
    *,
    dataset: Dataset | None = None,
    plans: Sequence[TreatmentPlan] | None = None,
    shard: Shard = WHOLE,
    rule_draws: int = COHORT_DRAWS,
) -> Iterator[Diagnostic]:
    """Yield what of the plans was not learnt: what nobody was given, stopping what never stopped, effects.

    Arguments are those of `warnings_about`.
    """
    plans = possible_plans(request) if plans is None else plans
    yield from _on_unseen(dataset, models, plans)
    for label, model in models.items():
        for plan, name, when in _stopped(model, cohort, request, shard, rule_draws):
            yield Diagnostic.of("plan-stops", plan, treatment=name, when=when, model=label)
    yield from on_indication(models, plans)
    most = max(len(plans) for plans in (request.plans, *request.by_subject.values()))
    yield from on_reactions(models, plans=most, steps=request.horizon)


def notes_on(
    report: WhatIfReport, dataset: Dataset, models: Mapping[str, FittedModel], location: Location
) -> tuple[str, ...]:
    """Return notes on training subjects, what was not observed, what the limits mean, impossible values."""
    return (
        *_on_training(report, dataset, models, location),
        *_on_validation(dataset, models, location),
        *_on_unobserved(report),
        *_on_unmeasured(report),
        *_on_ends(report),
        *_on_unchecked(models),
        *notes_on_transforms(models),
        *notes_on_bands(report),
        *_on_lights(report),
        *_on_range(report, dataset),
    )


HOW = {
    "chance": "{n:,} draws of chance (seed {seed})",
    "mean course": "the mean course of model `{label}`, which draws none: its spread does not reach the rule",
    "drawn": "{n:,} courses that model `{label}` draws (seed {seed}): its estimate is their mean (g-formula)",
}


def rule_notes(
    models: Mapping[str, FittedModel],
    plans: Sequence[AnyPlan],
    dataset: Dataset,
    *,
    truth: bool,
    n: int = DRAWS,
    answers: Sequence[ModelAnswers] = (),
) -> Iterator[str]:
    """Yield what rules are played on, whose lights they have, what they read that is not simulated, and their truth.

    `answers` are those about one subject; of many subjects, each has its own.
    """
    share = {(of.label, went.rule.name): went.most_share(0) for of in answers for went in of.played if went}
    rules = [plan for plan in plans if not isinstance(plan, TreatmentPlan)]
    for rule in rules:
        for label, model in models.items():
            if (way := simulation_mode(rule, model, label)) != "fixed":
                yield f"rule `{rule.name}` was played on {HOW[way].format(n=n, label=label, seed=SEED)}"
                common = "its most common course of treatment" if answers else "each subject's most common course"
                took = share.get((label, rule.name))
                if model.meta.get("practice") and took != 1 and (way != "mean course" or rule.has_chance):
                    few = "however few draws took it" if took is None else f"which {100 * took:.3g} % of draws took"
                    yield f"lights of rule `{rule.name}` by model `{label}` are those of {common}, {few}"
        read = ", ".join(rule.reads([covariate.name for covariate in dataset.schema.covariates]))
        drawn = [label for label, model in models.items() if model.draws_covariates]
        if read and drawn:
            yield f"rule `{rule.name}` reads {read}, as {' and '.join(f'model `{label}`' for label in drawn)} draws it"
        held = [f"model `{label}`" for label in models if label not in drawn] + ["the simulator's truth"] * truth
        if read and held:
            what = f"held at the value at the origin by {' and '.join(held)}: there it is not simulated"
            yield f"rule `{rule.name}` reads {read}, {what}"
    if truth and rules and potential_outcomes_of(dataset.name):
        yield "the true rule acts on what would have happened with the subject's own noise; truths are expectations"


def notes_on_transforms(models: Mapping[str, FittedModel]) -> Iterator[str]:
    """Say how models learn transformed outcomes, and what their estimates are; by model where they differ."""
    said = {label: on_transforms(model) for label, model in models.items()}
    if len({*map(tuple, said.values())}) == 1:
        yield from next(iter(said.values()))
        return
    yield from (f"model `{label}`: {sentence}" for label, sentences in said.items() for sentence in sentences)


def _earlier_steps(dataset: Dataset, location: Location) -> str:
    """Return in words which steps of a subject another part of the data set has, nothing where none."""
    panel, row = dataset.panels[location.part], np.array([location.row])
    if panel.since is None or not panel.since[location.row]:
        return ""
    dates = panel.dates(row, panel.since[row])
    return f"steps before {step_word(dataset.schema.step)} {panel.since[location.row]}" + (
        f", {dates[0]}" if dates is not None and dates[0] else ""
    )


def on_indication(models: Mapping[str, FittedModel], plans: Sequence[TreatmentPlan]) -> Iterator[Diagnostic]:
    """Yield where the plans give what was given to others before, with an effect of that sign (spec SUPPORT-9)."""
    for label, model in models.items():
        of_whom = f" (training data of model `{label}`)" if len(models) > 1 else ""
        names = model.schema.treatments.all_names
        given = {name for i, name in enumerate(names) if any((plan.values[:, i] != 0).any() for plan in plans)}
        for known in Indication.from_meta(model.meta):
            if known.treatment in given:
                yield known.diagnostic(whose=of_whom)


def on_reactions(models: Mapping[str, FittedModel], *, plans: int, steps: int) -> Iterator[Diagnostic]:
    """Yield which models' differences between so many plans of so many steps are no effects (spec SUPPORT-10)."""
    if plans < 2 or steps < 2:
        return
    for label, model in models.items():
        known = Reactions.recorded(model)
        if known.matter:
            doses, binary = bool(model.schema.treatments.doses), model.schema.has_binary
            yield known.diagnostic(f"model `{label}`", doses=doses, binary=binary)


def _trained_count(model: FittedModel, dataset: Dataset, location: Location) -> int | None:
    """Return how many subjects of the part the model was trained on; None when it does not say.

    A model of another data set (by digest) has seen other subjects under the same part names, so it does not say.
    """
    if not model.trained_on or same_data(model.parents, dataset) is False:
        return None
    return model.trained_on.get(str(location.part), 0)


def _selected_on(model: FittedModel, dataset: Dataset, location: Location) -> bool:
    """Return whether subjects of this part, of this data set, decided when training stopped."""
    selected = model.meta.get("selected_on", {}).get(str(location.part))
    return same_data(model.parents, dataset) is True and bool(selected)


def _on_training(
    report: WhatIfReport, dataset: Dataset, models: Mapping[str, FittedModel], location: Location
) -> Iterator[str]:
    total = dataset.panels[location.part].n_subjects
    for answer in report.models:
        if answer.trained_on_subject:
            yield f"model `{answer.label}` was trained on this subject: its error may be smaller than on others"
        elif count := _trained_count(models[answer.label], dataset, location):
            some = f"{count:,} of the {total:,} {location.part} subjects"
            yield f"model `{answer.label}` was trained on {some}, possibly including this one"
        elif _selected_on(models[answer.label], dataset, location):
            yield f"model `{answer.label}` was selected on this subject's part: its error may be smaller than on others"
        elif earlier := _earlier_steps(dataset, location):
            yield f"the data are split by time: model `{answer.label}` may have learned from this subject's {earlier}"
        elif answer.trained_on_subject is None:
            yield f"whether model `{answer.label}` was trained on this subject is unknown"


def _on_validation(dataset: Dataset, models: Mapping[str, FittedModel], location: Location) -> Iterator[str]:
    """Note each model of this data set that was not validated on the subject's domain."""
    for label, model in models.items():
        if same_data(model.parents, dataset) is False:
            continue
        if validated_on(model, dataset, domain := location.part.domain) is False:
            others = " and ".join(sorted({part.partition("/")[0] for part in model.meta["selected_on"]}))
            yield f"model `{label}` was validated on {others} subjects only, and this one is of the {domain}"


def _on_unobserved(report: WhatIfReport) -> Iterator[str]:
    """Note each outcome that was not observed at the origin."""
    history, unit = report.history, step_word(report.schema.step)
    for outcome, known_T in zip(report.schema.outcomes, history.outcomes.T, strict=True):
        if np.isfinite(known_T[-1]):
            continue
        seen = np.flatnonzero(np.isfinite(known_T))
        last = f"last observed at {unit} {seen[-1]}" if len(seen) else "never observed before"
        where = f"at the origin, {unit} {history.origin} ({last})"
        yield f"{outcome.name} was not observed {where}: models use the imputed value"


def _on_unmeasured(report: WhatIfReport) -> Iterator[str]:
    """Say at which steps no training subject has an outcome, so that it has no estimate."""
    unit = step_word(report.schema.step)
    for k, outcome in enumerate(report.schema.outcomes):
        found = [answer.unmeasured_QHY[..., k] for answer in report.models if answer.unmeasured_QHY is not None]
        steps = np.flatnonzero(np.any([lacks_QH.any(axis=0) for lacks_QH in found], axis=0)) if found else ()
        if len(steps):
            at = ", ".join(str(report.history.origin + 1 + h) for h in steps)
            yield f"{outcome.name} has no estimate at {unit} {at}: no training subject has it there"


def _on_unseen(
    dataset: Dataset | None, models: Mapping[str, FittedModel], plans: Sequence[TreatmentPlan]
) -> Iterator[Diagnostic]:
    """Warn of each treatment of a plan that no training subject was given; where that is unknown, no subject at all."""
    for label, of_plans in unseen_in_plans(models, plans).items():
        for plan, lacks in of_plans.items():
            for words in describe_unseen("", lacks, f"training subject of model `{label}`"):
                yield Diagnostic.of("plan-not-learned", plan, what=words)
    unknown = [label for label, model in models.items() if Support.from_meta(model.meta) is None]
    if not unknown or dataset is None:
        return
    anybody = reduce(or_, (Support.of(panel, dataset.schema) for panel in dataset.panels.values()))
    for plan_ in plans:
        lacks = anybody.unseen_in(plan_.values, dataset.schema.treatments)
        for words in describe_unseen("", lacks, "subject"):
            for label in unknown:
                yield Diagnostic.of("plan-not-recorded", plan_.name, what=words, model=label)


def _on_unchecked(models: Mapping[str, FittedModel]) -> Iterator[str]:
    for label, model in models.items():
        support = Support.from_meta(model.meta)
        if support is not None and support.seen is None:
            yield f"training subjects of model `{label}` received {UNCHECKED}"


def _stopped(
    model: FittedModel, cohort: Cohort, request: PlanRequest, shard: Shard, rule_draws: int
) -> Iterator[tuple[str, str, str]]:
    """Yield plan, treatment, and when or of whom, where a plan, or a rule as it mostly goes, stops what never did."""
    support, encoding = Support.from_meta(model.meta), model.schema.treatments
    if support is None or not support.absorbing(encoding):
        return
    before_M = np.maximum(cohort.origin_M - 1, 0)
    given_MA = encoding.decode(cohort.panel.treatments[cohort.subject_M, before_M])
    given_MA = np.where((cohort.origin_M > 0)[:, None], given_MA, 0)
    found: dict[tuple[str, str], dict[int, int]] = {}
    for moments, plans_M in chunks_of(cohort, request, shard):
        chunk, moment_Q = cohort.take(moments), np.repeat(np.arange(len(plans_M)), list(map(len, plans_M)))
        every_Q = [plan for plans in plans_M for plan in plans]
        asked = resolve("", model, chunk.moments(moment_Q), every_Q, given=chunk.panel, n=rule_draws)
        for m, plan in zip((moments.start + moment_Q).tolist(), asked.plans_Q, strict=True):
            for name, step in support.stops(given_MA[m : m + 1], plan.values, encoding):
                when = int(cohort.origin_M[m]) + step
                found.setdefault((plan.name, name), {})[int(cohort.subject_M[m])] = when
    for (plan_name, name), when_N in found.items():
        at = f"at {step_word(model.schema.step)} {next(iter(when_N.values()))}"
        yield plan_name, name, at if len(cohort) == 1 else f"of {counted(len(when_N), 'subject')}"


def _on_ends(report: WhatIfReport) -> Iterator[str]:
    """Say what estimates mean where series may end, and which ends are hardly known."""
    for answer in report.models:
        if answer.goes_on is None:
            continue
        yield (
            f"outcomes by model `{answer.label}` are those of a subject whose series goes on; how likely that is "
            "stands beside them (`survival`), from mean hazards over possible courses: no band is shown for it"
        )
        if few := [f"{name} ({count})" for name, count in answer.goes_on.events.items() if count < FEWEST_EVENTS]:
            yield f"few training subjects of model `{answer.label}` ended by {', '.join(few)}: that is a guess"
        if not answer.goes_on.tells:
            yield (
                f"hazards of model `{answer.label}` did no better on held-out subjects than the same hazard for all: "
                "do not choose a plan by its survival"
            )


def notes_on_bands(report: WhatIfReport) -> Iterator[str]:
    """Say what bands cover and what they do not, on whom they were calibrated, and why some models have none."""
    yield from what_bands_cover(report)
    for answer in report.models:
        if answer.calibration and answer.effective:
            yield on_widened(answer.label, answer.effective, answer.calibration, report.schema.step)
        yield from _on_calibration(report, answer, report.history.part.domain)
        if len(report.plans) > 1:
            yield from _on_differences(answer)


def what_bands_cover(report: WhatIfReport) -> Iterator[str]:
    """Say what the bands of any model cover and what they do not; nothing where no model has any."""
    shown = {level for answer in report.models for level in report.shown_levels(answer)}
    if shown:
        shares = " and ".join(f"{100 * level:g} %" for level in report.levels if level in shown)
        yield (
            f"bands cover {shares} of new subjects on average, per {step_word(report.schema.step)}, for subjects like "
            "those that calibrated them, observed to the end of the horizon, under the treatments that these were "
            "given; for other plans and populations there is no guarantee: coverage rests on the model and on no "
            "hidden confounding"
        )
        yield "a band is no guarantee for one subject, and unreliable just before an absorbing event or without history"


def on_widened(label: str, effective: Sequence[float], calibration: Calibration, step: str) -> str:
    """Say what wider bands rest on, and for which plans they are."""
    left = ", ".join(f"{subjects:.0f}" for subjects in effective)
    return (
        f"the bands of model `{label}` are widened for plans that give each combination of treatments as often, "
        f"whatever the course: calibration windows are weighted, which leaves as much as {left} {calibration.unit}s by "
        f"{step_word(step)}"
    )


def _on_calibration(report: WhatIfReport, answer: ModelAnswers, domain: Domain) -> Iterator[str]:
    name, calibration = f"model `{answer.label}`", answer.calibration
    if calibration is None:
        yield f"{name} shows no band: {_WITHOUT.get(answer.interval_kind, _FEW_MEMBERS)}"
        return
    whose = counted(calibration.subjects, f"{calibration.domain} subject")
    if not report.shown_levels(answer):
        levels = " or ".join(f"{100 * level:g} %" for level in report.levels)
        yield f"{name} shows no band of {levels}: the {whose} that calibrated it are too few"
        return
    doubts = ["these also selected it, which makes them too narrow"] * (not calibration.apart)
    doubts += [f"this one is of the {domain}"] * (calibration.domain != domain)
    yield "; ".join([f"the bands of {name} were calibrated on {whose}", *doubts])
    bands = [report.band_of(answer, i).lower for i in range(len(report.plans))]
    if any(np.isnan(lower_LHY).any() for lower_LHY in bands if lower_LHY is not None):
        yield f"{name} shows no band where too few of them could be asked about so many steps, or for the level"


def _on_differences(answer: ModelAnswers) -> Iterator[str]:
    """Say which limits of differences have no level, and which model has none."""
    name = f"model `{answer.label}`"
    if answer.difference_kind == RANGE:
        yield (
            f"limits of differences by {name} are the range of its {answer.members} members, which has no level: "
            "members learned from the same data, and nothing measures how often such a range holds the truth"
        )
    elif answer.difference_kind == BLACK_BOX:
        of = "is" if answer.method != METHODS.combining.name else "is a stack with"
        yield f"{name} {of} a single black box: it says nothing of how far differences between plans may be off"
    elif NO_LEVEL in answer.differences.kind_Y:
        yield f"differences of binary outcomes by {name} have no limits: nothing measures how far they may be off"
    if answer.apart is not None and CALIBRATED in answer.differences.kind_Y:
        yield f"limits of differences by {name} {BY_LAW}"


_WITHOUT = {
    "none (not calibrated)": "it was made by an older version of costar, or without validation subjects; fit it again "
    "with `costar finetune --overwrite`",
}
_FEW_MEMBERS = "so few members say nothing of how far estimates may be off; fit it with `--members 3` or more"


def _on_lights(report: WhatIfReport) -> Iterator[str]:
    """Say what lights mean where there are any but green ones, and which models have none."""
    lit = [lights for answer in report.models for lights in answer.plan_lights or ()]
    if any(light != "green" for lights in lit for light in lights.worst):
        yield (
            "amber (?) and red (!) mark what is rarer than in 95 and 99 % of held-out windows: how far predictions are "
            "spread (precision), and how likely the plan was in such a state (practice)"
        )
    for answer in report.models:
        if answer.plan_lights and not any(lights.judges_precision for lights in answer.plan_lights):
            yield (
                f"precision is not judged: model `{answer.label}` says nothing of how far predictions are spread, so "
                "that practice alone decides"
            )
    if report.abstain and any(lights.red_HY.any() for lights in lit):
        yield "estimates with a red light are left out"
    if dark := [f"`{answer.label}`" for answer in report.models if answer.plan_lights is None]:
        yield f"{', '.join(dark)} cannot say whether the data support a plan: fit it again with this version of costar"


def _on_range(report: WhatIfReport, dataset: Dataset) -> Iterator[str]:
    """Note each outcome that is never negative in the data and is estimated to be.

    Only models of version 0.3.0 without a calibration can do so: all others know which values cannot occur.
    """
    estimates = [
        np.where(report.hidden_of(answer, i), np.nan, answer.estimates.mean_QHY[i, : len(plan)])
        for answer in report.models
        for i, plan in enumerate(report.plans)
    ]
    negative_MY = np.concatenate(estimates) < 0
    panels = [panel for panel in dataset.panels.values() if panel.n_subjects]
    for k, outcome in enumerate(report.schema.outcomes):
        lowest = min(float(panel.outcomes[..., k][panel.observed].min()) for panel in panels)
        if lowest >= 0 and negative_MY[:, k].any():
            yield f"some estimates of {outcome.name} are negative, which the data never are: shown as predicted"
