"""What a what-if says of rules of treatment: how they went, what they were played on, and the simulator's answer."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from costar_cli.datasets.base import Answer
from costar_cli.datasets.registry import noisy_of
from costar_cli.errors import UsageError
from costar_cli.methods.base import FittedModel
from costar_cli.panel import Dataset, Location, Panel, PanelSchema
from costar_cli.plans import DRAWS, SEED, AnyPlan, PlanRule, Played, Rule, TreatmentPlan, follow, play

Floats = NDArray[np.float64]

HOW = {
    "chance": "{n:,} draws of chance (seed {seed})",
    "mean course": "the mean course of model `{label}`, which draws none: its spread does not reach the rule",
    "drawn": "{n:,} courses that model `{label}` draws (seed {seed}): its estimate is their mean (g-formula)",
}


def play_rules(
    label: str, model: FittedModel, panel: Panel, origin: int, plans: Sequence[AnyPlan]
) -> tuple[Played | None, ...]:
    """Return how each rule went for one subject, None of plans that are no rules.

    Raises:
        UsageError: a rule reads outcomes, and the model predicts no course.
    """
    horizon, row, start = max(map(len, plans)), np.zeros(1, dtype=np.int64), np.array([origin])
    return tuple(
        None if isinstance(plan, TreatmentPlan) else play(model, panel, row, start, plan, label=label, horizon=horizon)
        for plan in plans
    )


def as_plans(plans: Sequence[AnyPlan], played: Sequence[Played | None]) -> tuple[TreatmentPlan, ...]:
    """Return plans as they are, and rules as the course of treatment that was the most common."""
    resolved = (plan if went is None else went.most_common(0) for plan, went in zip(plans, played, strict=True))
    return tuple(plan for plan in resolved if isinstance(plan, TreatmentPlan))


def possible_plans(plans: Sequence[AnyPlan], played: Sequence[Played | None]) -> tuple[TreatmentPlan, ...]:
    """Return, for each plan, the treatments that it may give; of rules that decide on the way in no order."""
    return tuple(
        TreatmentPlan(plan.name, plan.possible) if isinstance(plan, PlanRule) else resolved
        for plan, resolved in zip(plans, as_plans(plans, played), strict=True)
    )


def rule_notes(
    models: Mapping[str, Sequence[Played | None]], schema: PanelSchema, *, truth: bool, dataset: str
) -> Iterator[str]:
    """Yield what rules were played on, what they read that is not simulated, and what their truth is."""
    for label, all_played in models.items():
        for played in (went for went in all_played if went is not None and went.how != "fixed"):
            n = len(played.values_SQHA)
            yield f"rule `{played.rule.name}` was played on {HOW[played.how].format(n=n, label=label, seed=SEED)}"
    rules = {went.rule.name: went.rule for of in models.values() for went in of if went is not None}
    for name, rule in rules.items():
        if held := rule.reads([covariate.name for covariate in schema.covariates]):
            what = "held at the value at the origin: covariates are not simulated"
            yield f"rule `{name}` reads {', '.join(held)}, {what}"
    if truth and rules and noisy_of(dataset):
        yield "the truth of rules is what would have happened with the subject's own noise, of plans an expectation"


def true_of_rule(dataset: Dataset, location: Location, origin: int, rule: Rule, answer: Answer) -> Floats:
    """Return the outcomes `[steps,Y]` of a rule that acts on what the simulator says, the mean over draws of chance.

    See spec PLAN-7.

    Raises:
        UsageError: the simulator knows the subject's noise up to its last step alone.
    """
    happened, width = noisy_of(dataset.name) or answer, len(dataset.schema.outcomes)

    def ask(values_MHA: NDArray[np.int64]) -> Floats:
        row_M, origin_M = np.full(len(values_MHA), location.row), np.full(len(values_MHA), origin)
        found = happened(dataset, location.part, row_M, origin_M, values_MHA)
        y_MHY: Floats = np.asarray(found, dtype=np.float64).reshape(*values_MHA.shape[:2], width)
        if np.isnan(y_MHY).any():
            last = int(dataset.panels[location.part].length[location.row]) - 1
            raise UsageError(
                f"what rule {rule.name!r} would have led to is known up to the last step of the subject, {last}",
                where="--truth",
                fix=f"choose an origin up to {max(last - len(rule), 0)}, or omit --truth",
            )
        return y_MHY

    panel, row, start = dataset.panel_of(location), np.zeros(1, dtype=np.int64), np.array([origin])
    n = DRAWS if rule.has_chance else 1
    went = follow(rule, panel, dataset.schema, row, start, lambda _, values_MHA: ask(values_MHA)[:, -1], n=n)
    kinds_KHA, place_S = went.kinds(0)
    return np.asarray(ask(kinds_KHA)[place_S].mean(axis=0))
