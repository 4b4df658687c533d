"""How likely treatments and further follow-up were, and how plans weigh trials (spec EFFECT-4 to 6).

`M` trials, `K` decisions, `H` steps, `P` columns of a history, `A` of treatments, `C` options of a plan, `J` classes,
`Q` quantities, `R` rows: trials at decisions.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Values
from costar_cli.effects.enrolment import Assigned
from costar_cli.effects.learners import Design, DesignName
from costar_cli.effects.trials import Bools, Floats, Ints, Regime, Target, Trials
from costar_cli.plans import PlanOdds
from costar_cli.plans.rule import Course

LEAST: Final = 0.01  # probability of what happened; what is less likely weighs as if it were this likely
MOST_RATIO: Final = 100.0  # of a plan to practice at one decision, likewise
MOST_KINDS: Final = 12  # combinations of doses that have a probability each; of more, densities are compared
TINY: Final = 1e-12
MOST_COMPARED: Final = 20_000  # rows on which classifiers are compared
MOST_ITERATIONS: Final = 1_000  # of a logistic regression; 8 combinations of treatments in the ICU world take 200
GROWN: Final[dict[str, Any]] = {"max_iter": 100, "learning_rate": 0.08, "max_leaf_nodes": 8, "min_samples_leaf": 40,
                                "max_bins": 63, "l2_regularization": 1.0}  # fmt: skip


@dataclass(frozen=True, eq=False)
class PlanWeights:
    """What a plan would give at each decision, and how much more likely it made what was given than practice did.

    Attributes:
        chance: of each option, by decision, `[C,M]`.
        given: columns of the treatments of each option, by decision, `[C,M,A]`.
        tilt: what residuals of practice move the chance of each option, `[C,M]`; None where plans do not read it.
        ratio_MK: the probability of what was given under the plan, over that in practice.
        likely_MK: how likely practice was to give any of the options; not a number where that is not known.
    """

    chance: Sequence[Floats]
    given: Sequence[Floats]
    tilt: Sequence[Floats] | None
    ratio_MK: Floats
    likely_MK: Floats

    def __len__(self) -> int:
        return len(self.chance)


class Practice:
    """How treatments were decided and who was followed further, by classifiers that did not see the subject.

    Args:
        trials: what was given.
        fold_M: the part of each trial; it is predicted by what learnt from the others.
        known: columns with the probability that a treatment is given, by its name, where it was randomised.
        boosting: whether trees compete.

    Attributes:
        converged: whether the regressions that were chosen so far are at their best.
    """

    def __init__(self, trials: Trials, fold_M: Ints, *, known: Mapping[str, str], boosting: bool) -> None:
        self.trials, self.fold_M, self.known, self.boosting = trials, fold_M, known, boosting
        self.converged = True
        self.step_R, self.row_R = np.nonzero(trials.decided_MK.T)
        histories, given = [], []
        for k in range(trials.steps):
            rows_M, _ = self._at(k)
            step_M1 = np.full((len(rows_M), 1), k / max(trials.steps - 1, 1))
            histories.append(np.concatenate([trials.history(k, rows_M), step_M1], axis=1))
            given.append(trials.given(k, rows_M))
        self.history_RP, self.given_RA = np.concatenate(histories), np.concatenate(given)

    def _spread(self, values_R: NDArray[Any], fill: float = 1.0) -> Floats:
        """Return numbers of decisions as an array `[M,K]`, filled where none is made."""
        array_MK = np.full((len(self.trials), self.trials.steps), fill)
        array_MK[self.row_R, self.step_R] = values_R
        return array_MK

    def probabilities(self, label_R: Ints, given_RA: Floats | None = None, at_R: Bools | None = None) -> Floats:
        """Return the probability `[R,J]` of each class of decisions, from classifiers of other subjects.

        Args:
            label_R: the classes, from 0.
            given_RA: treatments, where classes follow them.
            at_R: which decisions are learnt from; all by default.
        """
        given_RA = np.zeros((len(label_R), 0)) if given_RA is None else given_RA
        at_R = np.ones(len(label_R), dtype=bool) if at_R is None else at_R
        probability_RJ, converged = _cross_fitted(
            self.history_RP, given_RA, label_R, self.fold_M[self.row_R], at_R, self._present, boosting=self.boosting
        )
        self.converged &= converged
        return probability_RJ

    @cached_property
    def _recorded_R(self) -> Bools:
        """Return at which decisions the data have what was given."""
        trials = self.trials
        last_R = trials.panel.length[trials.subject_M[self.row_R]] - 1
        return np.asarray(trials.records_last | (trials.row_MK[self.row_R, self.step_R] < last_R))

    @property
    def _present(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the places of columns of the present, and of the treatments just before."""
        return (*self.trials.present, self.history_RP.shape[1] - 1), self.trials.last_given

    @cached_property
    def _combinations(self) -> tuple[Values, Ints]:
        """Return the combinations of treatments that occur `[J,names]`, and which each decision has."""
        values_RA = np.concatenate([self.trials.values(k)[self._at(k)[0]] for k in range(self.trials.steps)])
        kinds_JA, place_R = np.unique(values_RA, axis=0, return_inverse=True)
        return kinds_JA, np.asarray(place_R.ravel(), dtype=np.int64)

    @cached_property
    def given_probability_RJ(self) -> Floats:
        """Return the probability `[R,J]` of each combination of treatments with levels."""
        kinds_JA, place_R = self._combinations
        if not self.known:
            return self.probabilities(place_R, at_R=self._recorded_R)
        schema = self.trials.schema
        names = [variable.name for variable in schema.covariates]
        probability_RJ = np.ones((len(place_R), len(kinds_JA)))
        at = (self.trials.subject_M[self.row_R], self.trials.row_MK[self.row_R, self.step_R])
        for i, treatment in enumerate(schema.treatments.names):
            on_R = self.trials.panel.covariates[at][:, names.index(self.known[treatment])].astype(np.float64)
            probability_RJ *= np.where(kinds_JA[:, i] != 0, on_R[:, None], 1 - on_R[:, None])
        return probability_RJ

    def of(self, plan: Regime) -> PlanWeights:
        """Return what a plan would give, and its ratio to practice."""
        trials, steps = self.trials, len(plan)
        doses = bool(trials.schema.treatments.doses)
        chances, columns, matches, values, tilts = [], [], [], [], list[Floats]()
        for k in range(steps):
            course = trials.course(k, window=plan.window)
            if isinstance(plan, PlanOdds):
                course = replace(course, probability_MA=self._probability_MA(k))
                tilts.append(_tilt(plan, course))
            chance_CM, values_CMA = plan.options(k, course)
            chances.append(chance_CM)
            values.append(values_CMA)
            columns.append(np.stack([trials.columns_of(values_MA) for values_MA in values_CMA]))
            same_CM = np.asarray(values_CMA == trials.values(k)).all(axis=-1)
            matches.append(same_CM & (chance_CM > 0))
        if plan.reads_natural and all(
            (match_CM | (chance_CM == 0)).all() for match_CM, chance_CM in zip(matches, chances, strict=True)
        ):
            certain_MK = np.ones((len(trials), steps))  # the plan is what was done
            return PlanWeights(chances, columns, None, certain_MK, certain_MK)
        likely_MK = np.full((len(trials), steps), np.nan)
        if doses and not plan.reads_natural:
            ratio_MK, likely_MK = self._ratio_of_options(chances, matches)
        elif not doses or len(self._combinations[0]) <= MOST_KINDS:
            kinds_JMA = np.repeat(self._combinations[0][:, None], len(trials), axis=1)
            ratio_MK = self._ratio_of_kinds(plan, chances, matches, [kinds_JMA] * steps, self.given_probability_RJ)
            if not plan.reads_natural:
                likely_MK = self._likely(chances, values)
        elif isinstance(plan, Assigned) and not plan.plan.reads_natural:
            ratio_MK = self._ratio_of_kinds(plan, chances, matches, *self._kinds_of(plan))
        else:
            ratio_MK = self._ratio_by_classification(chances, columns, matches)
        ratio_MK = np.minimum(ratio_MK, MOST_RATIO)
        return PlanWeights(chances, columns, tilts or None, ratio_MK, likely_MK)

    def own_course(self) -> PlanWeights:
        """Return the natural course as the model of practice has it: each combination of levels with its probability.

        Doses have no such model: they are those that were given.
        """
        trials, chances, columns = self.trials, [], []
        certain_MK = np.ones((len(trials), trials.steps))
        for k in range(trials.steps):
            if trials.schema.treatments.doses:
                chances.append(np.ones((1, len(trials))))
                columns.append(trials.given(k)[None])
                continue
            kinds_JA, (rows_M, at_R) = self._combinations[0], self._at(k)
            chance_JM = np.zeros((len(kinds_JA), len(trials)))
            chance_JM[:, rows_M] = self.given_probability_RJ[at_R].T
            chances.append(chance_JM)
            given_JA = trials.columns_of(kinds_JA)
            columns.append(np.repeat(given_JA[:, None], len(trials), axis=1))
        return PlanWeights(chances, columns, None, certain_MK, certain_MK)

    def _probability_MA(self, k: int) -> Floats:
        """Return how likely each treatment is to be given at decision k, `[M,names]`; 0 where none is decided."""
        kinds_JA, _ = self._combinations
        rows_M, at_R = self._at(k)
        probability_MA = np.zeros((len(self.trials), kinds_JA.shape[1]))
        probability_MA[rows_M] = self.given_probability_RJ[at_R] @ (kinds_JA != 0)
        return probability_MA

    def _at(self, k: int) -> tuple[NDArray[np.intp], Bools]:
        at_R = self.step_R == k
        return self.row_R[at_R], at_R

    def _ratio_of_kinds(
        self, plan: Regime, chances: Sequence[Floats], matches: Sequence[Bools], kinds: Sequence[Values],
        probability_RJ: Floats,
    ) -> Floats:  # fmt: skip
        """Return ratios for treatments of a few kinds: the chance of the option that was given, over its probability.

        Args:
            plan: what would be given.
            chances: of its options.
            matches: which of them was given.
            kinds: the treatments `[J,M,names]` of each kind, by decision.
            probability_RJ: of each kind in practice.
        """
        ratio_MK = np.ones((len(self.trials), len(chances)))
        for k, (chance_CM, match_CM, kinds_JMA) in enumerate(zip(chances, matches, kinds, strict=True)):
            if plan.reads_natural and (match_CM | (chance_CM == 0)).all():
                continue  # all are left to practice, as after assignment
            (rows_M, at_R), given_MA = self._at(k), self.trials.values(k)
            same_JM = (kinds_JMA[:, rows_M] == given_MA[rows_M]).all(axis=-1)
            practice_M = np.maximum((probability_RJ[at_R].T * same_JM).sum(axis=0), TINY)
            planned_M = (chance_CM * match_CM).sum(axis=0)[rows_M]
            if plan.reads_natural:  # the same treatment may come of several natural ones
                planned_M = np.zeros(len(rows_M))
                for j, usual_MA in enumerate(kinds_JMA):
                    course = self.trials.course(k, window=plan.window, usual_MA=usual_MA)
                    if isinstance(plan, PlanOdds):
                        course = replace(course, probability_MA=self._probability_MA(k))
                    of_CM, values_CMA = plan.options(k, course)
                    same_CM = (values_CMA == given_MA).all(axis=-1)
                    planned_M += probability_RJ[at_R, j] * (of_CM * same_CM).sum(axis=0)[rows_M]
            ratio_MK[rows_M, k] = planned_M / practice_M
        return ratio_MK

    def _kinds_of(self, plan: Assigned) -> tuple[list[Values], Floats]:
        """Return the kinds of doses that an assigned plan tells apart, `[J,M,names]` by decision, and the probability
        `[R,J]` of each: no treatment, which may wait for its start; each option; any other, equal to what was given.
        """
        kinds, label_R = list[Values](), np.zeros(len(self.row_R), dtype=np.int64)
        for k in range(len(plan)):
            given_MA, (rows_M, at_R) = self.trials.values(k), self._at(k)
            _, option_CMA = plan.plan.options(k, self.trials.course(k, window=plan.window))
            idle_1MA = np.broadcast_to(self.trials.schema.treatments.idle, (1, *given_MA.shape))
            named_JMA = np.concatenate([idle_1MA, option_CMA])
            same_JM = (named_JMA == given_MA).all(axis=-1)
            met_M = same_JM.any(axis=0)
            label_R[at_R] = np.where(met_M, same_JM.argmax(axis=0), len(named_JMA))[rows_M]
            # Where it was not given, another dose is not a number: it equals nothing, and plans move it as any other.
            kinds.append(np.concatenate([named_JMA, np.where(met_M[:, None], np.nan, given_MA)[None]]))
        occurring, place_R = np.unique(label_R, return_inverse=True)
        probability_RJ = np.zeros((len(label_R), len(kinds[0])))
        at_R = self._recorded_R & (self.step_R < len(plan))
        probability_RJ[:, occurring] = self.probabilities(place_R.astype(np.int64), at_R=at_R)
        return kinds, probability_RJ

    def _likely(self, chances: Sequence[Floats], values: Sequence[Values]) -> Floats:
        """Return how likely practice was to give any of the options of treatments with levels, `[M,K]`."""
        kinds_JA, _ = self._combinations
        likely_MK = np.ones((len(self.trials), len(chances)))
        for k, (chance_CM, values_CMA) in enumerate(zip(chances, values, strict=True)):
            rows_M, at_R = self._at(k)
            same_CMJ = (values_CMA[:, rows_M, None] == kinds_JA).all(axis=-1) & (chance_CM[:, rows_M, None] > 0)
            likely_MK[rows_M, k] = (self.given_probability_RJ[at_R] * same_CMJ.any(axis=0)).sum(axis=1)
        return likely_MK

    def _ratio_of_options(self, chances: Sequence[Floats], matches: Sequence[Bools]) -> tuple[Floats, Floats]:
        """Return ratios of plans of doses that do not read the natural one, and how likely practice gave any option."""
        options = len(chances[0])
        label_R = np.full(len(self.row_R), options)
        chance_R = np.zeros(len(self.row_R))
        for k, (chance_CM, match_CM) in enumerate(zip(chances, matches, strict=True)):
            rows_M, at_R = self._at(k)
            first_M = match_CM.argmax(axis=0)[rows_M]
            met_M = match_CM[:, rows_M].any(axis=0)
            label_R[at_R] = np.where(met_M, first_M, options)
            chance_R[at_R] = (chance_CM * match_CM).sum(axis=0)[rows_M]
        kinds, place_R = np.unique(label_R, return_inverse=True)
        at_R = self._recorded_R & (self.step_R < len(chances))
        probability_RJ = self.probabilities(place_R.astype(np.int64), at_R=at_R)
        practice_R = np.maximum(probability_RJ[np.arange(len(place_R)), place_R], LEAST)
        other_R = probability_RJ[:, kinds.tolist().index(options)] if options in kinds else np.zeros(len(label_R))
        steps = slice(len(chances))
        return self._spread(chance_R / practice_R)[:, steps], self._spread(1 - other_R)[:, steps]

    def _ratio_by_classification(
        self, chances: Sequence[Floats], columns: Sequence[Floats], matches: Sequence[Bools]
    ) -> Floats:
        """Return ratios of plans that read the natural dose, by telling planned from given doses.

        Of a classifier that gives probability p to `planned`, p / (1 - p) is the ratio of densities (Diaz et al. 2023,
        section 5.4).
        """
        # At a step at which all are left to practice, as after assignment, nothing is to be told apart.
        steps = [
            k for k, (chance_CM, match_CM) in enumerate(zip(chances, matches, strict=True))
            if not (match_CM | (chance_CM == 0)).all()
        ]  # fmt: skip
        at_R = np.isin(self.step_R, steps)
        history_RP, fold_R = self.history_RP[at_R], self.fold_M[self.row_R][at_R]
        given, weight = [self.given_RA[at_R]], [np.ones(len(history_RP))]
        options = len(chances[steps[0]])  # as many at each step of a plan
        for c in range(options):
            rows = [(k, self._at(k)[0]) for k in steps]
            given.append(np.concatenate([columns[k][c][rows_M] for k, rows_M in rows]))
            weight.append(np.concatenate([chances[k][c][rows_M] for k, rows_M in rows]))
        label_R, weight_R = np.repeat([0, *[1] * options], len(history_RP)), np.concatenate(weight)
        planned_RJ, converged = _cross_fitted(
            np.tile(history_RP, (options + 1, 1)), np.concatenate(given), label_R, np.tile(fold_R, options + 1),
            (weight_R > 0) & np.tile(self._recorded_R[at_R], options + 1), self._present, boosting=True,
            weight_R=weight_R,
        )  # fmt: skip
        self.converged &= converged
        planned = planned_RJ[: len(history_RP), 1]
        ratio_R = np.ones(len(self.row_R))
        ratio_R[at_R] = planned / np.maximum(1 - planned, 1 / MOST_RATIO)
        return self._spread(ratio_R)[:, : len(chances)]

    def kept(self, target: Target) -> Floats:
        """Return the probability `[M,K]` that a trial is followed after each decision; 1 where all are."""
        kept_R = np.asarray(target.kept_MK[self.row_R, self.step_R])
        if kept_R.all():
            return np.ones((len(self.trials), self.trials.steps))
        # What was given at a last row that does not have it must not tell that nothing follows; it may tell who of
        # those that are followed has an event, which ends what is measured.
        recorded_R = self._recorded_R
        probability_R = self.probabilities(kept_R.astype(np.int64), self.given_RA, recorded_R)[:, -1]
        if not recorded_R.all():
            probability_R = probability_R * self.probabilities(recorded_R.astype(np.int64))[:, -1]
        return np.maximum(self._spread(probability_R), LEAST)

    def measured(self, target: Target) -> Floats:
        """Return the probability `[M,H,Q]` that a quantity is measured after each step, of those who are followed."""
        probability_MHQ = np.ones(target.value_MHQ.shape)
        kept_R = np.asarray(target.kept_MK[self.row_R, self.step_R])
        some_HQ: Bools = np.any(target.measured_MHQ & target.kept_MK[..., None], axis=0)
        for q in range(len(target.names)):
            seen_R = np.asarray(target.measured_MHQ[self.row_R, self.step_R, q])
            at_R = kept_R & some_HQ[self.step_R, q]  # at a step at which nobody has it, nothing is estimated
            if not seen_R[at_R].all():
                of_RJ = self.probabilities(seen_R.astype(np.int64), self.given_RA, at_R)
                probability_MHQ[..., q] = np.maximum(self._spread(of_RJ[:, -1]), LEAST)
        return probability_MHQ


def _tilt(plan: PlanOdds, course: Course) -> Floats:
    """Return what residuals of practice move the chances of a plan of odds `[2,M]` (Kennedy 2019, theorem 2)."""
    assert course.probability_MA is not None  # noqa: S101 - it was given
    place = plan.encoding.names.index(plan.treatment)
    usual_M, given_M = course.probability_MA[:, place], course.usual_MA[:, place] != 0
    steep_M = plan.ratio / (1 - usual_M + plan.ratio * usual_M) ** 2 * (given_M - usual_M)
    return np.stack([-steep_M, steep_M])


def _cross_fitted(
    history_RP: Floats,
    given_RA: Floats,
    label_R: NDArray[np.integer],
    fold_R: Ints,
    at_R: Bools,
    present: tuple[tuple[int, ...], tuple[int, ...]],
    *,
    boosting: bool,
    weight_R: Floats | None = None,
) -> tuple[Floats, bool]:
    """Return probabilities of classes `[R,J]` by the classifier that predicts a part of the subjects best, and whether
    it converged.

    Logistic regressions on the present and the treatments just before, on lines, then on curves, then trees: a larger
    one is taken where its log loss is smaller by more than the standard error of the difference.
    """
    weight_R = np.ones(len(label_R)) if weight_R is None else weight_R
    classes = int(label_R.max()) + 1
    names: list[DesignName | Literal["trees"]] = ["now", "lines", "curves"]
    names += ["trees"] * boosting
    fitted: dict[str, tuple[Floats, bool]] = {}
    first = int(fold_R.min())
    test_R = at_R & (fold_R == first)
    best, least_R = names[0], np.zeros(0)
    rng = np.random.default_rng(0)
    some_R = at_R & (fold_R != first) & (rng.random(len(at_R)) * len(at_R) < MOST_COMPARED)
    for name in names:
        fitted[name] = _predicted(
            name, history_RP, given_RA, label_R, some_R, weight_R, present, fold_R == first, classes
        )
        inside = fitted[name][0][test_R[fold_R == first]]
        loss_R = -np.log(np.maximum(inside[np.arange(len(inside)), label_R[test_R]], 1e-6)) * weight_R[test_R]
        gain_R = least_R - loss_R if len(least_R) else loss_R
        if name == names[0] or gain_R.mean() > gain_R.std() / np.sqrt(max(len(gain_R), 1)):
            best, least_R = name, loss_R
    out_RJ, converged = np.zeros((len(label_R), classes)), True
    whole = len(at_R) <= MOST_COMPARED
    if whole:
        out_RJ[fold_R == first], converged = fitted[best]
    for fold in np.unique(fold_R)[whole:]:
        out_RJ[fold_R == fold], at_best = _predicted(
            best, history_RP, given_RA, label_R, at_R & (fold_R != fold), weight_R, present, fold_R == fold, classes
        )
        converged &= at_best
    return out_RJ, converged


def _predicted(
    name: DesignName | Literal["trees"], history_RP: Floats, given_RA: Floats, label_R: NDArray[np.integer],
    train_R: Bools, weight_R: Floats, present: tuple[tuple[int, ...], tuple[int, ...]], rows_R: Bools, classes: int,
) -> tuple[Floats, bool]:  # fmt: skip
    """Return probabilities of classes of some rows, by one classifier that learnt from others, and if it converged."""
    out_RJ = np.zeros((int(rows_R.sum()), classes))
    kinds, weighted = np.unique(label_R[train_R]), (weight_R != 1).any()  # the library bins weighted rows slowly
    if len(kinds) == 1:
        out_RJ[:, kinds[0]] = 1.0
        return out_RJ, True
    if name == "trees":
        from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415 - it loads for a second

        x_RD = np.concatenate([history_RP, given_RA], axis=1)
        trees = HistGradientBoostingClassifier(**GROWN, early_stopping=False, random_state=0)
        trees.fit(x_RD[train_R], label_R[train_R], sample_weight=weight_R[train_R] if weighted else None)
        out_RJ[:, trees.classes_] = trees.predict_proba(x_RD[rows_R])
        return out_RJ, True
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    places = (*present[0], *present[1]) if name == "now" else present[0]
    design = Design.of(name, history_RP[train_R], places)
    x_RD = design.columns(history_RP, given_RA)
    scaler = StandardScaler().fit(x_RD[train_R])
    # Newton's matrix has a row per column and class: with 8 combinations in the ICU world it took ten times as long.
    narrow = x_RD.shape[1] * (len(kinds) - 1) < 300
    law = LogisticRegression(C=1.0, solver="newton-cholesky" if narrow else "lbfgs", max_iter=MOST_ITERATIONS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        law.fit(scaler.transform(x_RD[train_R]), label_R[train_R], sample_weight=weight_R[train_R])
    out_RJ[:, law.classes_] = law.predict_proba(scaler.transform(x_RD[rows_R]))
    return out_RJ, not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
