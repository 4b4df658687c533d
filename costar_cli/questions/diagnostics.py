"""What a reader should know before believing a what-if: warnings of what makes it doubtful, and notes on the rest."""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

import numpy as np

from costar_cli.data import Dataset, Domain, Location
from costar_cli.data.compatible import other_data, same_data
from costar_cli.data.findings import counted
from costar_cli.data.registry import potential_outcomes_of
from costar_cli.data.schema import step_word
from costar_cli.data.support import MOST_KEPT, Support
from costar_cli.diagnostics import NOTES, Diagnostic
from costar_cli.files.shards import WHOLE, Shard
from costar_cli.inference import (
    BLACK_BOX,
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

FEWEST_EVENTS: Final = 20  # of training subjects, below which the probability of an end is hardly known
ON_BANDS: Final = frozenset(code for code in NOTES if code.startswith(("bands-", "differences-")))


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
    selected = model.record.selected_on
    if not selected:
        return None
    return same_data(model.parents, dataset) is not False and bool(selected.get(f"{domain}/val"))


def _earlier_steps(dataset: Dataset, location: Location) -> str:
    """Return in words which steps of a subject another part of the data set has, nothing where none."""
    panel, row = dataset.panels[location.part], np.array([location.row])
    if panel.since is None or not panel.since[location.row]:
        return ""
    dates = panel.dates(row, panel.since[row])
    return f"steps before {step_word(dataset.schema.step)} {panel.since[location.row]}" + (
        f", {dates[0]}" if dates is not None and dates[0] else ""
    )


def _trained_count(model: FittedModel, dataset: Dataset, location: Location) -> int | None:
    """Return how many subjects of the part the model was trained on; None when it does not say.

    A model of another data set (by digest) has seen other subjects under the same part names, so it does not say.
    """
    if not model.trained_on or same_data(model.parents, dataset) is False:
        return None
    return model.trained_on.get(str(location.part), 0)


def warnings_about(
    models: Mapping[str, FittedModel],
    cohort: Cohort,
    request: PlanRequest,
    *,
    dataset: Dataset | None = None,
    plans: Sequence[TreatmentPlan] | None = None,
    shard: Shard = WHOLE,
    rule_draws: int = COHORT_DRAWS,
    reactions: bool = True,
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
        reactions: warn of differences that may be no effects; averages may correct them.
    """
    found: list[Diagnostic] = []
    for label, model in models.items():
        other = dataset and other_data(f"model `{label}`", model.parents, dataset)
        found += [*([other] if other else []), *warnings_of(f"model `{label}`", model.record.warnings)]
    found += warnings_on_plans(
        models, cohort, request, dataset=dataset, plans=plans, shard=shard, rule_draws=rule_draws
    )
    if reactions:
        most = max(len(plans) for plans in (request.plans, *request.by_subject.values()))
        found += on_reactions(models, plans=most, steps=request.horizon)
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
    """Yield what of the plans was not learnt: what nobody was given, stopping what never stopped, odd effects.

    Arguments are those of `warnings_about`. Where it is unknown what training subjects were given, all subjects of the
    data set are looked at.
    """
    plans = possible_plans(request) if plans is None else plans
    for label, of_plans in unseen_in_plans(models, plans).items():
        for name, lacks in of_plans.items():
            for words in describe_unseen("", lacks, f"training subject of model `{label}`"):
                yield Diagnostic.of("plan-not-learned", name, what=words)
    unknown = [label for label, model in models.items() if model.record.support is None]
    if unknown and dataset is not None:
        anybody = reduce(or_, (Support.of(panel, dataset.schema) for panel in dataset.panels.values()))
        for plan in plans:
            lacks = anybody.unseen_in(plan.values, dataset.schema.treatments)
            for words in describe_unseen("", lacks, "subject"):
                for label in unknown:
                    yield Diagnostic.of("plan-not-recorded", plan.name, what=words, model=label)
    for label, model in models.items():
        for name, treatment, when in _stopped(model, cohort, request, shard, rule_draws):
            yield Diagnostic.of("plan-stops", name, treatment=treatment, when=when, model=label)
    for label, model in models.items():  # an effect with the sign of what led to the treatment (spec SUPPORT-9)
        whose = f" (training data of model `{label}`)" if len(models) > 1 else ""
        names = model.schema.treatments.all_names
        given = {name for i, name in enumerate(names) if any((plan.values[:, i] != 0).any() for plan in plans)}
        suspects = (one for one in model.record.indication if one.treatment in given)
        yield from (suspect.diagnostic(whose=whose) for suspect in suspects)


def on_reactions(models: Mapping[str, FittedModel], *, plans: int, steps: int) -> Iterator[Diagnostic]:
    """Yield which models' differences between so many plans of so many steps are no effects (spec SUPPORT-10)."""
    if plans < 2 or steps < 2:
        return
    for label, model in models.items():
        known = Reactions.recorded(model)
        if known.matter:
            doses, binary = bool(model.schema.treatments.doses), model.schema.has_binary
            yield known.diagnostic(f"model `{label}`", doses=doses, binary=binary)


def _stopped(
    model: FittedModel, cohort: Cohort, request: PlanRequest, shard: Shard, rule_draws: int
) -> Iterator[tuple[str, str, str]]:
    """Yield plan, treatment, and when or of whom, where a plan, or a rule as it mostly goes, stops what never did."""
    support, encoding = model.record.support, model.schema.treatments
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


def notes_on(
    report: WhatIfReport, dataset: Dataset, models: Mapping[str, FittedModel], location: Location
) -> Iterator[Diagnostic]:
    """Yield notes on training subjects, what was not observed, what limits and lights mean, impossible values."""
    yield from _on_training(report, dataset, models, location)
    yield from _on_values(report)
    for label, model in models.items():
        support = model.record.support
        if support is not None and support.seen is None:
            yield Diagnostic.of("combinations-unchecked", f"training subjects of model `{label}`", most=MOST_KEPT)
    yield from notes_on_transforms(models)
    yield from _on_bands(report)
    lit = [ratings for answer in report.models for ratings in answer.plan_ratings or ()]
    if any(rating != "green" for ratings in lit for rating in ratings.worst):
        yield Diagnostic.of("lights-mean")
    for answer in report.models:
        if answer.plan_ratings and not any(ratings.judges_precision for ratings in answer.plan_ratings):
            yield Diagnostic.of("precision-not-judged", answer.label)
    if report.abstain and any(ratings.red_HY.any() for ratings in lit):
        yield Diagnostic.of("red-left-out")
    if dark := [f"`{answer.label}`" for answer in report.models if answer.plan_ratings is None]:
        yield Diagnostic.of("support-unknown", ", ".join(dark))
    # Only models of version 0.3.0 without a calibration predict values that cannot occur: all others know which.
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
            yield Diagnostic.of("negative-estimates", outcome.name)


def _on_training(
    report: WhatIfReport, dataset: Dataset, models: Mapping[str, FittedModel], location: Location
) -> Iterator[Diagnostic]:
    """Say whether models may have learned from the subject, and which were validated on the other domain."""
    part = str(location.part)
    for answer in report.models:
        model = models[answer.label]
        own = same_data(model.parents, dataset) is True
        if answer.trained_on_subject:
            yield Diagnostic.of("trained-on-subject", answer.label)
        elif count := _trained_count(model, dataset, location):
            total = dataset.panels[location.part].n_subjects
            yield Diagnostic.of("trained-on-some", answer.label, count=count, total=total, part=part)
        elif own and (model.record.selected_on or {}).get(part):
            yield Diagnostic.of("selected-on-part", answer.label)
        elif earlier := _earlier_steps(dataset, location):
            yield Diagnostic.of("trained-on-earlier-steps", answer.label, steps=earlier)
        elif answer.trained_on_subject is None:
            yield Diagnostic.of("training-unknown", answer.label)
    for label, model in models.items():
        mine = same_data(model.parents, dataset) is not False
        if mine and validated_on(model, dataset, domain := location.part.domain) is False:
            others = " and ".join(sorted({part.partition("/")[0] for part in model.record.selected_on or ()}))
            yield Diagnostic.of("validated-elsewhere", label, others=others, domain=domain)


def _on_values(report: WhatIfReport) -> Iterator[Diagnostic]:
    """Say which outcomes were not observed at the origin, which have no estimate, and what series that end mean."""
    history, unit = report.history, step_word(report.schema.step)
    for outcome, known_T in zip(report.schema.outcomes, history.outcomes.T, strict=True):
        if not np.isfinite(known_T[-1]):
            seen = np.flatnonzero(np.isfinite(known_T))
            last = f"last observed at {unit} {seen[-1]}" if len(seen) else "never observed before"
            yield Diagnostic.of("not-observed-at-origin", outcome.name, unit=unit, origin=history.origin, last=last)
    for k, outcome in enumerate(report.schema.outcomes):
        found = [answer.unmeasured_QHY[..., k] for answer in report.models if answer.unmeasured_QHY is not None]
        steps = np.flatnonzero(np.any([lacks_QH.any(axis=0) for lacks_QH in found], axis=0)) if found else ()
        if len(steps):
            at = ", ".join(str(history.origin + 1 + h) for h in steps)
            yield Diagnostic.of("no-estimate", outcome.name, unit=unit, steps=at)
    for answer in report.models:
        if answer.survival_forecast is None:
            continue
        yield Diagnostic.of("estimates-of-survivors", answer.label)
        if few := [
            f"{name} ({count})" for name, count in answer.survival_forecast.events.items() if count < FEWEST_EVENTS
        ]:
            yield Diagnostic.of("few-ends", answer.label, ends=", ".join(few))
        if not answer.survival_forecast.tells:
            yield Diagnostic.of("survival-uninformative", answer.label)


def notes_on_transforms(models: Mapping[str, FittedModel]) -> Iterator[Diagnostic]:
    """Say how models learn transformed outcomes, and what their estimates are; by model where they differ."""
    found = {label: on_transforms(model) for label, model in models.items()}
    if len({*map(tuple, found.values())}) == 1:
        yield from next(iter(found.values()))
        return
    yield from (note.placed(f"model `{label}`: ") for label, notes in found.items() for note in notes)


def _on_bands(report: WhatIfReport) -> Iterator[Diagnostic]:
    """Say what bands cover and what they do not, on whom they were calibrated, and why some models have none."""
    if shown := {level for answer in report.models for level in report.shown_levels(answer)}:
        shares = " and ".join(f"{100 * level:g} %" for level in report.levels if level in shown)
        yield Diagnostic.of("bands-cover", shares=shares, step=step_word(report.schema.step))
        yield Diagnostic.of("bands-no-guarantee")
    for answer in report.models:
        label, calibration, domain = answer.label, answer.calibration, report.history.part.domain
        whose = counted(calibration.subjects, f"{calibration.domain} subject") if calibration else ""
        if calibration and answer.effective:
            yield on_widened(label, answer.effective, calibration, report.schema.step)
        if calibration is None:
            uncalibrated = answer.interval_kind == "none (not calibrated)"
            yield Diagnostic.of("bands-uncalibrated" if uncalibrated else "bands-few-members", label)
        elif not report.shown_levels(answer):
            levels = " or ".join(f"{100 * level:g} %" for level in report.levels)
            yield Diagnostic.of("bands-few-subjects", label, levels=levels, subjects=whose)
        else:
            doubts = "; these also selected it, which makes them too narrow" * (not calibration.apart)
            doubts += f"; this one is of the {domain}" * (calibration.domain != domain)
            yield Diagnostic.of("bands-calibrated", label, subjects=whose, doubts=doubts)
            bands = [report.band_of(answer, i).lower for i in range(len(report.plans))]
            if any(np.isnan(lower_LHY).any() for lower_LHY in bands if lower_LHY is not None):
                yield Diagnostic.of("bands-partly-missing", label)
        if len(report.plans) > 1:
            kinds_Y = answer.differences.kind_Y
            if answer.difference_kind == RANGE:
                yield Diagnostic.of("differences-range", label, members=answer.members)
            elif answer.difference_kind == BLACK_BOX:
                form = "is" if answer.method != METHODS.combining.name else "is a stack with"
                yield Diagnostic.of("differences-black-box", label, form=form)
            elif NO_LEVEL in kinds_Y:
                yield Diagnostic.of("differences-binary", label)
            if answer.apart is not None and CALIBRATED in kinds_Y:
                yield Diagnostic.of("differences-by-law", label)


def on_widened(label: str, effective: Sequence[float], calibration: Calibration, step: str) -> Diagnostic:
    """Say what wider bands rest on, and for which plans they are."""
    left = ", ".join(f"{subjects:.0f}" for subjects in effective)
    return Diagnostic.of("bands-widened", label, left=left, unit=calibration.unit, step=step_word(step))


def notes_on_rules(
    models: Mapping[str, FittedModel],
    plans: Sequence[AnyPlan],
    dataset: Dataset,
    *,
    truth: bool,
    n: int = DRAWS,
    answers: Sequence[ModelAnswers] = (),
) -> Iterator[Diagnostic]:
    """Yield what rules are played on, whose lights they have, what they read that is not simulated, and their truth.

    `answers` are those about one subject; of many subjects, each has its own.
    """
    codes = {"chance": "rule-on-chance", "mean course": "rule-on-mean-course", "drawn": "rule-on-draws"}
    share = {(of.label, went.rule.name): went.most_share(0) for of in answers for went in of.simulated if went}
    rules = [plan for plan in plans if not isinstance(plan, TreatmentPlan)]
    for rule in rules:
        for label, model in models.items():
            if (way := simulation_mode(rule, model, label)) != "fixed":
                yield Diagnostic.of(codes[way], rule.name, n=n, model=label, seed=SEED)
                common = "its most common course of treatment" if answers else "each subject's most common course"
                took = share.get((label, rule.name))
                if model.record.practice and took != 1 and (way != "mean course" or rule.has_chance):
                    few = "however few draws took it" if took is None else f"which {100 * took:.3g} % of draws took"
                    yield Diagnostic.of("rule-lights", rule.name, model=label, common=common, few=few)
        read = ", ".join(rule.reads([covariate.name for covariate in dataset.schema.covariates]))
        drawn = [label for label, model in models.items() if model.draws_covariates]
        if read and drawn:
            names = " and ".join(f"model `{label}`" for label in drawn)
            yield Diagnostic.of("rule-reads-draws", rule.name, read=read, models=names)
        held = [f"model `{label}`" for label in models if label not in drawn] + ["the simulator's truth"] * truth
        if read and held:
            yield Diagnostic.of("rule-reads-held", rule.name, read=read, models=" and ".join(held))
    if natural := [f"`{rule.name}`" for rule in rules if rule.reads_natural]:
        yield Diagnostic.of("natural-of-data", plans=", ".join(natural))
    if truth and rules and potential_outcomes_of(dataset.name):
        yield Diagnostic.of("rule-truth")
