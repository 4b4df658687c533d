"""What a what-if says of rules of treatment: how they went, what they were played on, and the simulator's answer."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from costar_cli.datasets.base import Answer
from costar_cli.datasets.registry import noisy_of, truth_of
from costar_cli.errors import UsageError
from costar_cli.methods.base import DrawsCourses, FittedModel
from costar_cli.panel import Dataset, Location, Part, Values
from costar_cli.plans import DRAWS, SEED, AnyPlan, Moments, PlanRule, Rule, TreatmentPlan, follow, way_of
from costar_cli.questions.report import ModelAnswer

Floats = NDArray[np.float64]

HOW = {
    "chance": "{n:,} draws of chance (seed {seed})",
    "mean course": "the mean course of model `{label}`, which draws none: its spread does not reach the rule",
    "drawn": "{n:,} courses that model `{label}` draws (seed {seed}): its estimate is their mean (g-formula)",
}


def possible_plans(plans: Sequence[AnyPlan], resolved: Sequence[TreatmentPlan]) -> tuple[TreatmentPlan, ...]:
    """Return, for each plan, the treatments that it may give; of rules that decide on the way in no order."""
    return tuple(
        TreatmentPlan(plan.name, plan.possible) if isinstance(plan, PlanRule) else of
        for plan, of in zip(plans, resolved, strict=True)
    )


def rule_notes(
    models: Mapping[str, FittedModel],
    plans: Sequence[AnyPlan],
    dataset: Dataset,
    *,
    truth: bool,
    n: int = DRAWS,
    answers: Sequence[ModelAnswer] = (),
) -> Iterator[str]:
    """Yield what rules are played on, whose lights they have, what they read that is not simulated, and their truth.

    `answers` are those about one subject; of many subjects, each has its own.
    """
    share = {(of.label, went.rule.name): went.most_share(0) for of in answers for went in of.played if went}
    rules = [plan for plan in plans if not isinstance(plan, TreatmentPlan)]
    for rule in rules:
        for label, model in models.items():
            if (way := way_of(rule, model, label)) != "fixed":
                yield f"rule `{rule.name}` was played on {HOW[way].format(n=n, label=label, seed=SEED)}"
                common = "its most common course of treatment" if answers else "each subject's most common course"
                took = share.get((label, rule.name))
                if model.meta.get("practice") and took != 1 and (way != "mean course" or rule.has_chance):
                    few = "however few draws took it" if took is None else f"which {100 * took:.3g} % of draws took"
                    yield f"lights of rule `{rule.name}` by model `{label}` are those of {common}, {few}"
        read = ", ".join(rule.reads([covariate.name for covariate in dataset.schema.covariates]))
        drawn = [label for label, model in models.items() if isinstance(model, DrawsCourses) and model.draws_covariates]
        if read and drawn:
            yield f"rule `{rule.name}` reads {read}, as {' and '.join(f'model `{label}`' for label in drawn)} draws it"
        held = [f"model `{label}`" for label in models if label not in drawn] + ["the simulator's truth"] * truth
        if read and held:
            what = f"held at the value at the origin by {' and '.join(held)}: there it is not simulated"
            yield f"rule `{rule.name}` reads {read}, {what}"
    if truth and rules and noisy_of(dataset.name):
        yield "the true rule acts on what would have happened with the subject's own noise; truths are expectations"


def true_of_rule(
    dataset: Dataset,
    moments: Moments,
    places_N: Sequence[Location],
    rule: Rule,
) -> Floats:
    """Return the outcomes `[Q,steps,Y]` of a rule that acts on what the simulator says, the mean over draws of chance.

    The moments are of subjects of one part; `places_N` says where the rows of the panel are in it. Where the simulator
    answers with expectations, the rule acts on what would have happened (spec PLAN-7).

    Raises:
        UsageError: no simulator knows it, or knows the noise of subjects up to their last step alone.
    """
    panel, subject_Q, origin_Q = moments.panel, moments.subject_Q, moments.origin_Q
    part, width = places_N[int(subject_Q[0])].part, len(dataset.schema.outcomes)
    answer = truth_known(dataset, part)
    happened, row_N = noisy_of(dataset.name) or answer, np.array([place.row for place in places_N])

    def ask(by: Answer, moment_M: NDArray[np.integer], values_MHA: Values) -> Floats:
        found = by(dataset, part, row_N[subject_Q[moment_M]], origin_Q[moment_M], values_MHA)
        y_MHY: Floats = np.asarray(found, dtype=np.float64).reshape(*values_MHA.shape[:2], width)
        if np.isnan(y_MHY).any():
            subject = subject_Q[int(moment_M[np.isnan(y_MHY).any(axis=(1, 2)).argmax()])]
            last = int(panel.length[subject]) - 1
            raise UsageError(
                f"what rule {rule.name!r} would have led to is known up to the last step of subject "
                f"{panel.names[int(subject)]}, {last}",
                where="--truth",
                fix=f"choose an origin up to {max(last - len(rule), 0)}, or omit --truth",
            )
        return y_MHY

    def last_of(moment_M: NDArray[np.integer], values_MHA: Values) -> Floats:
        return ask(happened, moment_M, values_MHA)[:, -1]

    n = DRAWS if rule.has_chance else 1
    went = follow(rule, moments, dataset.schema, last_of, n=n)
    truth = []
    for q in range(len(subject_Q)):
        kinds_KHA, place_S = went.kinds(q)
        truth.append(ask(answer, np.full(len(kinds_KHA), q), kinds_KHA)[place_S].mean(axis=0))
    return np.stack(truth)


def truth_known(dataset: Dataset, part: Part) -> Answer:
    """Return what answers plans about the subjects of a part.

    Raises:
        UsageError: the data set was observed, not simulated.
    """
    answer = truth_of(dataset.name)
    if answer is None or not dataset.truth.get(part):
        raise UsageError(
            f"data set `{dataset.name}` holds no simulator's truth for {part}",
            where="--truth",
            fix="omit --truth: counterfactual outcomes are unknown in observed data",
        )
    return answer
