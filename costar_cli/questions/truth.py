"""What the simulator says of plans and rules, of data that one made."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Dataset, Location, Part, Values
from costar_cli.data.base import Answer
from costar_cli.data.registry import potential_outcomes_of, truth_of
from costar_cli.errors import UsageError
from costar_cli.inference import DRAWS, simulate_on
from costar_cli.plans import IndexTimes, Rule
from costar_cli.questions.answers import ModelAnswers, objects

Floats = NDArray[np.float64]


def true_answers(dataset: Dataset, answers: ModelAnswers) -> Floats:
    """Return what the simulator says `[Q,H,Y]`, not a number beyond a plan's own steps.

    Raises:
        UsageError: no simulator knows it.
    """
    truth_QHY, cohort = np.full(answers.estimates.mean_QHY.shape, np.nan), answers.cohort
    part_N = objects([str(place.part) for place in cohort.places])
    row_N = np.array([place.row for place in cohort.places])
    subject_Q, origin_Q = cohort.subject_M[answers.moment_Q], cohort.origin_M[answers.moment_Q]
    moments_Q = IndexTimes(cohort.panel, subject_Q, origin_Q)
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


def true_of_rule(
    dataset: Dataset,
    moments: IndexTimes,
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
    happened, row_N = potential_outcomes_of(dataset.name) or answer, np.array([place.row for place in places_N])

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
    went = simulate_on(rule, moments, dataset.schema, last_of, n=n)
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
