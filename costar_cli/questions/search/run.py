"""Search for the plan that makes an objective best: score all candidates, then compare the best of them closely."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Queries, Values, as_plans
from costar_cli.errors import UsageError
from costar_cli.inference import (
    Estimates,
    draws,
    encoded_predictor,
    estimate,
    has_range,
    once,
    range_of,
    survival_forecast,
)
from costar_cli.methods.base import FittedModel
from costar_cli.questions.search.candidates import Places
from costar_cli.questions.search.objective import Floats
from costar_cli.questions.search.scoring import CalibratedModel, Scored, SearchQuestion, SubjectPlans
from costar_cli.reporting import NullReporter, Reporter

LOOKED_AT: Final = 128  # plans whose support is looked at together, the best first, and twice as many each time
CAUTIOUS: Final = 4_096  # plans whose limits are looked at where these decide
UNKNOWN: Final = -1
UNSUPPORTED: Final = "the data support no plan that the constraints leave"


@dataclass(frozen=True, eq=False, slots=True)
class Best:
    """The plans that come out best for one subject, the best first, then the reference plan: M = P + 1 rows.

    Objectives are as people see them; what a model does not tell is not a number.

    Attributes:
        values_MHA: integer levels of the plans.
        estimate_M: of the objective.
        limits_M2: lower and upper limit of it.
        difference_M: from the reference plan.
        apart_M2: limits of the difference.
        rating_M: 0 to 2 as in `SUPPORT_LEVELS`, -1 where the model does not know.
        probability_P: of being the best of these plans.
        estimates: of the outcomes, a query per row.
        margin: by how much the best is estimated to be better than the second, and the sd of that.
        regret: by how much the best of each draw is better than the best by estimate, on average over draws.
        alike: how many of the P cannot be told from the best: the limits of their difference from it include 0.
        considered: how many plans were scored.
        left_out: how many plans with a better estimate the data do not support.
        survival_M: how likely the series is to go on through all of the plan; None where the model knows of no end.
        why: the reason why no plan is the best, None where one is.
        range_of: how many members the limits of differences, and of objectives of several outcomes, are the range of;
            0 where they have a level, or there are none.
        no_level: differences are of binary outcomes by joint draws, whose limits would have a level that nothing
            measures: there are none (spec BAND-7).
        all_P, treated_P: objective of every plan that was scored, and how many treatments it gives, in no order.
    """

    values_MHA: Values
    estimate_M: Floats
    limits_M2: Floats
    difference_M: Floats
    apart_M2: Floats
    rating_M: NDArray[np.int8]
    probability_P: Floats
    estimates: Estimates
    margin: tuple[float, float]
    regret: float
    alike: int
    considered: int
    left_out: int
    all_P: Floats
    treated_P: NDArray[np.int64]
    range_of: int = 0
    no_level: bool = False
    survival_M: Floats | None = None
    why: str | None = None

    @property
    def found(self) -> int:
        """Return how many plans were compared; none where no plan is the best, for the reason `why`."""
        return len(self.probability_P)

    def first(self, count: int) -> "Best":
        """Return the best few alone, and the reference plan: what many subjects have room for."""
        rows, none = np.unique(np.append(np.arange(min(count, self.found)), self.found)), np.zeros(0)
        return replace(
            self,
            values_MHA=self.values_MHA[rows],
            estimate_M=self.estimate_M[rows],
            limits_M2=self.limits_M2[rows],
            difference_M=self.difference_M[rows],
            apart_M2=self.apart_M2[rows],
            rating_M=self.rating_M[rows],
            probability_P=self.probability_P[:count],
            estimates=self.estimates.take(rows),
            all_P=none,
            treated_P=none.astype(np.int64),
            survival_M=None if self.survival_M is None else self.survival_M[rows],
        )


def search(
    label: str,
    model: FittedModel,
    panel: Panel,
    origin_N: NDArray[np.integer],
    question: SearchQuestion,
    *,
    reporter: Reporter | None = None,
) -> Iterator[Best]:
    """Yield the best plans of each subject of a panel, from its origin; the panel is encoded once.

    Args:
        label: what messages call the model.
        model: what estimates.
        panel: the subjects' histories.
        origin_N: the last known step of each.
        question: what is searched.
        reporter: told about progress.

    Raises:
        UsageError: no plan meets the constraints, or limits shall decide and the model has none: for a single subject,
            or for any. What one of many lacks is said in its answer.
        TrainingError: a prediction is not finite.
    """
    calibrated, candidates, encoding = CalibratedModel.of(label, model), question.candidates, model.schema.treatments
    objective, calibration = question.objective, calibrated.calibration
    if question.by != "estimate":
        if calibration is None:
            raise _no_limits(label, "use a calibrated model")
        if objective.single is None and not model.tells_differences:
            raise _no_limits(label, "choose by one outcome `at end` or `at step N`", " of several steps together")
        reached_HY = calibration.reaches(question.level)
        if not all(reached_HY[step, outcome] for step, outcome in objective.concerns):
            raise _no_limits_at(calibrated, question)
    table_KA, cost_K = (
        as_plans(encoding.encode(candidates.values_KA)),
        objective.costs_of(candidates.values_KA),
    )
    ask = encoded_predictor(panel.until(int(origin_N.max(initial=0)) + 1))
    with (reporter or NullReporter()).task("search", total=panel.n_subjects, unit="subject") as task:
        for row, origin in enumerate(origin_N.tolist()):
            alone = panel.take(np.array([row])).until(origin + 1)
            yield best_of(SubjectPlans(calibrated, question, alone, row, origin, ask, table_KA, cost_K))
            task.advance()


def _no_limits(label: str, fix: str, where: str = "") -> UsageError:
    problem = f"model `{label}` has no limits{where} to choose by"
    return UsageError(problem, where="--by", fix=f"leave it out, or {fix}")


def _no_limits_at(calibrated: CalibratedModel, question: SearchQuestion) -> UsageError:
    level = f"{question.level:.0%}"
    return _no_limits(calibrated.label, f"ask for less than {level}, or calibrate on more subjects", f" at {level}")


def best_of(subject: SubjectPlans) -> Best:
    """Return the best plans of one subject (spec SEARCH-4 to 7); of many, one may have none, and the reason."""
    question, calibrated = subject.question, subject.calibrated
    none_PH = np.zeros((0, question.candidates.steps), dtype=np.uint16)
    if (why := calibrated.lacks(question.objective, subject.origin)) and not question.many:
        fix = "choose a step at which it is measured, such as `at step N`, or another --origin"
        raise UsageError(f"{why}, which the objective reads", where=f"subject {subject.alone.names[0]}", fix=fix)
    try:
        plans_PH = none_PH if why else question.candidates.after(subject.before, subject.losses)
    except UsageError as error:
        if not question.many:
            raise
        plans_PH, why = none_PH, error.problem
    scored, values_KA = subject.scored(plans_PH), question.candidates.values_KA
    loss_P, treated_P = scored.loss_P, question.candidates.treatments_K[plans_PH].sum(axis=1)
    ranked_P = np.lexsort((treated_P, loss_P))
    kept_P, left_out = _supported(subject, plans_PH, ranked_P, scored)
    if question.by != "estimate":
        values_PHA = values_KA[plans_PH[kept_P]]
        parts = [values_PHA[first : first + LOOKED_AT] for first in range(0, len(values_PHA), LOOKED_AT)]
        # drawn part by part with the same chance, as the seed is
        keys = [_Compared.of(subject, part, _asked(subject, part)).key_M for part in parts]
        kept_P = kept_P[np.argsort(np.concatenate(keys or [np.zeros(0)]), kind="stable")[: question.short]]
    values_MHA = np.concatenate([values_KA[plans_PH[kept_P]], question.reference.values[None]])
    queries = _asked(subject, values_MHA)
    compared = _Compared.of(subject, values_MHA, queries)
    order_P = compared.order(treated_P[kept_P])
    if not len(order_P):
        why = why or UNSUPPORTED
    elif not np.isfinite(compared.key_M[order_P[0]]):  # the first is without, so that all are
        if not question.many:
            raise _no_limits_at(calibrated, question)
        order_P, why = order_P[:0], f"none of its plans has limits at {question.level:.0%} to choose by"
    told = compared.take(np.append(order_P, len(kept_P)))
    rating_M = np.full(len(values_MHA), UNKNOWN, dtype=np.int8)
    if calibrated.support is not None:
        rating_M = _ratings(subject, queries, compared.found)[0]
    every = question.objective.shown(loss_P)
    best = told.best(values_MHA[told.rows_M], rating_M[told.rows_M], left_out, every, treated_P)
    going = survival_forecast(
        calibrated.model, subject.alone, queries.take(told.rows_M), told.found.mean_QHY
    )  # spec SURV-4
    return replace(best, why=why, survival_M=None if going is None else going.survival_QH[:, -1])


def _asked(subject: SubjectPlans, values_MHA: Values) -> Queries:
    return subject.queries(as_plans(subject.calibrated.model.schema.treatments.encode(values_MHA)))


def _supported(
    subject: SubjectPlans, plans_PH: Places, ranked_P: NDArray[np.intp], scored: Scored
) -> tuple[NDArray[np.intp], int]:
    """Return the best plans that the data support, as many as are compared, and how many better ones they do not."""
    question = subject.question
    short = question.short if question.by == "estimate" else max(question.short, CAUTIOUS)
    if subject.calibrated.support is None or question.unsupported:
        return ranked_P[:short], 0
    kept: list[NDArray[np.intp]] = [ranked_P[:0]]
    count = left_out = first = 0
    while first < len(ranked_P) and count < short:
        some = ranked_P[first : max(LOOKED_AT, 2 * first)]
        first += len(some)
        queries = subject.queries(subject.table_KA[plans_PH[some]])
        ask = subject.predicts if scored.y_RPHY is None else subject.knows(scored.y_RPHY[:, some])
        found = estimate(subject.calibrated.model, subject.alone, queries, subject.calibrated.facts, ask=ask)
        fine = np.flatnonzero(~_ratings(subject, queries, found)[1])[: short - count]
        kept.append(some[fine])
        count += len(fine)
        left_out += (int(fine[-1]) + 1 if count == short else len(some)) - len(fine)
    return np.concatenate(kept), left_out


def _ratings(subject: SubjectPlans, queries: Queries, found: Estimates) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Return the worst light of each query and whether the data do not support it.

    Both are of the outcomes and up to the last step that the objective reads.
    """
    support, concerns = subject.calibrated.support, subject.question.objective.concerns
    assert support is not None  # noqa: S101 - asked where there is one
    ratings = support.ratings(subject.alone, queries, found)
    outcomes, last = sorted({outcome for _, outcome in concerns}), max(step for step, _ in concerns)
    rating_QHY, unsupported_QHY = (
        values[:, : last + 1, outcomes] for values in (ratings.rating_QHY, ratings.unsupported_QHY)
    )
    return np.asarray(rating_QHY.max(axis=(1, 2))), np.asarray(unsupported_QHY.any(axis=(1, 2)))


@dataclass(frozen=True, eq=False, slots=True)
class _Compared:
    """Plans that are compared, the reference the last: losses, their draws `[S,M]` where there are any, and limits.

    `member_RM` are losses by member, `radius_M` is how many sds of the objective its interval extends; `rows_M` says
    which of the plans they were.
    """

    subject: SubjectPlans
    rows_M: NDArray[np.intp]
    found: Estimates
    loss_M: Floats
    cost_M: Floats
    drawn_SM: Floats | None
    member_RM: Floats
    radius_M: Floats

    @classmethod
    def of(cls, subject: SubjectPlans, values_MHA: Values, queries: Queries) -> "_Compared":
        """Estimate and draw the objective of plans."""
        calibrated, question, objective = subject.calibrated, subject.question, subject.question.objective
        ask = once(subject.predicts)
        found = estimate(calibrated.model, subject.alone, queries, calibrated.facts, ask=ask)
        cost_M = objective.costs_of(values_MHA.reshape(-1, values_MHA.shape[2]))
        cost_M = cost_M.reshape(values_MHA.shape[:2]).sum(axis=1)
        loss_M, drawn_SM = objective.loss(found.mean_QHY, cost_M), None
        if calibrated.model.tells_differences:
            y_SMHY = draws(calibrated.model, subject.alone, queries, question.draws, ask=ask)
            drawn_SM = objective.loss(calibrated.clip(y_SMHY), cost_M)
            loss_M = loss_M if objective.linear else drawn_SM.mean(axis=0)
        radius_M = np.full(len(loss_M), np.nan)
        if calibrated.calibration is not None:
            upper_MHY = calibrated.calibration.bands(found, (question.level,), clip=False).upper_LQHY[0]
            steps, outcomes = np.array(objective.concerns).T
            radius_M = ((upper_MHY - found.mean_QHY) / found.sd_QHY)[:, steps, outcomes].max(axis=1)
            radius_M = np.where(np.isfinite(radius_M), radius_M, np.nan)
        member_RM = objective.loss(calibrated.clip(found.members_RQHY), cost_M)
        return cls(subject, np.arange(len(loss_M)), found, loss_M, cost_M, drawn_SM, member_RM, radius_M)

    def take(self, rows_M: NDArray[np.intp]) -> "_Compared":
        """Return some of the plans, in that order."""
        drawn_SM = None if self.drawn_SM is None else self.drawn_SM[:, rows_M]
        return replace(
            self,
            rows_M=self.rows_M[rows_M],
            found=self.found.take(rows_M),
            loss_M=self.loss_M[rows_M],
            cost_M=self.cost_M[rows_M],
            drawn_SM=drawn_SM,
            member_RM=self.member_RM[:, rows_M],
            radius_M=self.radius_M[rows_M],
        )

    @property
    def limits_M2(self) -> Floats:
        """Return the limits of each loss (spec SEARCH-5)."""
        single = self.subject.question.objective.single
        if single is None:
            return self._limits(self.loss_M, self.drawn_SM, self.member_RM)
        (step, outcome), weight = single
        half_M = abs(weight) * self.radius_M * self.found.sd_QHY[:, step, outcome]
        return np.stack([self.loss_M - half_M, self.loss_M + half_M], axis=1)

    def _limits(self, of_M: Floats, drawn_SM: Floats | None, member_RM: Floats) -> Floats:
        """Return limits of sums or differences of outcomes, from joint draws, or else the members' range."""
        calibrated = self.subject.calibrated
        if calibrated.calibration is None:
            return np.full((len(of_M), 2), np.nan)
        if not calibrated.joint or drawn_SM is None:
            return np.stack(range_of(member_RM, of_M), axis=1)
        half_M = self.radius_M * drawn_SM.std(axis=0, ddof=1)
        return np.stack([of_M - half_M, of_M + half_M], axis=1)

    @property
    def key_M(self) -> Floats:
        """Return what decides between plans: the loss, or the limit of it that is asked for.

        A plan without limits is infinitely bad, whichever limit decides: the lower one would else be the best of all.
        """
        question = self.subject.question
        if question.by == "estimate":
            return self.loss_M
        limit_M = self.limits_M2[:, int((question.by == "upper") == (question.objective.sign > 0))]
        return np.where(np.isfinite(limit_M), limit_M, np.inf)

    def order(self, treated_P: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the plans but the reference from the best on, of equal ones that with the fewest treatments first.

        Plans without limits are in the order of their estimates.
        """
        return np.lexsort((treated_P, self.loss_M[:-1], self.key_M[:-1]))

    def against(self, row: int) -> tuple[Floats, Floats]:
        """Return how much larger each loss is than that of one plan, and the limits `[M,2]` of that."""
        apart_M, one = self.loss_M - self.loss_M[row], slice(row, row + 1)
        drawn_SM = None if self.drawn_SM is None else self.drawn_SM - self.drawn_SM[:, one]
        if self._no_level:
            return apart_M, np.full((len(apart_M), 2), np.nan)
        return apart_M, self._limits(apart_M, drawn_SM, self.member_RM - self.member_RM[:, one])

    @property
    def _no_level(self) -> bool:
        """Return whether differences are of binary outcomes by joint draws: calibration says nothing of these."""
        calibrated, objective = self.subject.calibrated, self.subject.question.objective
        return (
            calibrated.calibration is not None and calibrated.joint and objective.reads_binary(calibrated.model.schema)
        )

    def best(
        self,
        values_MHA: Values,
        rating_M: NDArray[np.int8],
        left_out: int,
        all_P: Floats,
        treated_P: NDArray[np.int64],
    ) -> Best:
        """Return what is told of these plans, which are in their order."""
        objective, p = self.subject.question.objective, len(self.loss_M) - 1
        low, high = objective.bounds(self.subject.calibrated.facts)
        apart_M, apart_M2 = self.against(p)
        limits_M2 = np.clip(self.limits_M2, (low + self.cost_M)[:, None], (high + self.cost_M)[:, None])
        _, to_best_M2 = self.against(0)
        alike = int((~(to_best_M2[:p, 0] > 0)).sum())  # what is unknown cannot be told
        probability_P, regret, margin = self._chances(p)
        return Best(
            values_MHA=values_MHA,
            estimate_M=objective.shown(self.loss_M),
            limits_M2=np.sort(objective.shown(limits_M2), axis=1),
            difference_M=objective.shown(apart_M),
            apart_M2=np.sort(objective.shown(apart_M2), axis=1),
            rating_M=rating_M,
            probability_P=probability_P,
            estimates=self.found,
            margin=margin,
            regret=regret,
            alike=alike,
            considered=len(all_P),
            left_out=left_out,
            all_P=all_P,
            treated_P=treated_P,
            range_of=len(self.member_RM) if has_range(self.subject.calibrated.model) else 0,
            no_level=self._no_level,
        )

    def _chances(self, p: int) -> tuple[Floats, float, tuple[float, float]]:
        """Return probabilities of being best, expected regret, and margin with its sd (spec SEARCH-6 to 7)."""
        margin = float(self.loss_M[1] - self.loss_M[0]) if p > 1 else np.nan
        if self.drawn_SM is None or not p:
            return np.full(p, np.nan), np.nan, (margin, np.nan)
        own_SP = self.drawn_SM[:, :p]
        least_S1 = own_SP.min(axis=1, keepdims=True)
        first_SP = own_SP <= least_S1  # equal ones share what is theirs
        probability_P = (first_SP / first_SP.sum(axis=1, keepdims=True)).mean(axis=0)
        sd = float((own_SP[:, 1] - own_SP[:, 0]).std(ddof=1)) if p > 1 else np.nan
        return probability_P, float((own_SP[:, :1] - least_S1).mean()), (margin, sd)
