"""Averages of models that say nothing of what training leaves open, corrected by those who followed a plan (AVERAGE-6).

The model's forecasts stand where `costar effect` has regressions: the same weights, targeting and influence curves.
`G` counts groups, `M` moments, `P` plans, `H` steps, `Y` outcomes, `L` levels, `U` units of sampling.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from costar_cli.data import Values
from costar_cli.data.findings import counted
from costar_cli.effects.effects import FEW, FEWEST_UNITS
from costar_cli.effects.estimators import Curve, Follow, kish, sequential
from costar_cli.effects.trials import Bools, Floats, Ints, Trials
from costar_cli.effects.weights import Practice
from costar_cli.errors import UsageError
from costar_cli.inference import COHORT_DRAWS, resolve
from costar_cli.methods.base import FittedModel
from costar_cli.plans import AnyPlan, Course, IndexTimes, Options, Rule, TreatmentPlan
from costar_cli.plans.rule import PLANNED
from costar_cli.questions.answers import MOST_QUERIES, ask_plans, estimate_plans
from costar_cli.questions.subjects import Cohort, domain_column

if TYPE_CHECKING:
    from costar_cli.questions.averages import Averages

FOLDS: Final = 5
SEED: Final = 0
NO_FOLLOW_UP: Final = "the data end at the origin, so means cannot be corrected: choose an earlier origin"
OUTLASTED: Final = "some origins are so late that the data end before this step"
MOST_CORRECTED: Final = 100  # plans: each is asked about anew from every step, and keeps what each moment moves
FEW_DRAWS: Final = 20  # of a rule with chances, from each moment: the mean over moments is what counts
TOO_MANY: Final = f"means under the first {MOST_CORRECTED} plans alone are corrected"
TOO_FEW_UNITS: Final = f"fewer than {FEWEST_UNITS} units to correct it by"


@dataclass(frozen=True, eq=False, slots=True)
class Corrected:
    """Corrected means, or differences from the reference plan, not numbers where support is too thin.

    Attributes:
        mean_GPHY: the means.
        half_LGPHY: half the width of their intervals.
        kind_GPHY: what an interval rests on, or why there is none.
    """

    mean_GPHY: Floats
    half_LGPHY: Floats
    kind_GPHY: NDArray[Any]


@dataclass(frozen=True, eq=False, slots=True)
class _Fixed:
    """A plan of so many steps `[M,K,names]`, of each moment its own."""

    name: str
    values_MKA: Values
    window: ClassVar[int] = 1
    reads_natural: ClassVar[bool] = False
    has_chance: ClassVar[bool] = False

    def __len__(self) -> int:
        return int(self.values_MKA.shape[1])

    def options(self, step: int, course: Course) -> Options:
        """Return the one treatment of a step; see `Regime`."""
        return np.ones((1, len(course.usual_MA))), self.values_MKA[None, :, step]


@dataclass(frozen=True, eq=False)
class _Support:
    """Who follows a plan, `[G,H,Y]`: how many, and as many as how many of equal weight; and what comes of them."""

    curve: Curve
    followers_GHY: Ints
    effective_GHY: Floats
    share_GH: Floats


def _regime(plans: Sequence[AnyPlan], steps: int) -> "_Fixed | Rule":
    """Return so many steps of a plan, of each moment its own, or of one rule."""
    fixed = [plan for plan in plans if isinstance(plan, TreatmentPlan)]
    if len(fixed) == len(plans):
        return _Fixed(fixed[0].name, np.stack([plan.values[:steps] for plan in fixed]))
    return next(replace(plan, steps=steps) for plan in plans if not isinstance(plan, TreatmentPlan))


@dataclass(frozen=True, eq=False, slots=True)
class _Rest:
    """What is left of a rule after some decisions, from Q moments on, whose next treatment is set, whatever it says.

    Attributes:
        rule: the whole of it.
        steps: that are left.
        done: decisions before.
        next_QA: what each moment is given next.
        natural_QA: the natural treatment of each at later steps.
    """

    rule: Rule
    steps: int
    done: int
    next_QA: Values
    natural_QA: Values

    def __len__(self) -> int:
        return self.steps

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def window(self) -> int:
        return self.rule.window

    @property
    def has_chance(self) -> bool:
        return self.steps > 1 and self.rule.has_chance

    @property
    def n_chances(self) -> int:
        return self.rule.n_chances

    def reads(self, names: Sequence[str]) -> list[str]:
        return self.rule.reads(names) if self.steps > 1 else []

    def decide(self, course: Course) -> Values:
        planned_M = course.columns[PLANNED]
        draws = len(planned_M) // len(self.next_QA)  # courses are all moments in turn, draw after draw
        if planned_M[0] == 1:
            return np.tile(self.next_QA, (draws, 1))
        columns = {**course.columns, PLANNED: planned_M + self.done}
        return self.rule.decide(replace(course, columns=columns, usual_MA=np.tile(self.natural_QA, (draws, 1))))


class Correction:
    """Corrects a model's mean answers about a cohort.

    Args:
        label: what the model is called.
        model: which answers.
        cohort: the moments, of subjects whose data go on after them.
        plans_M: the plans of each moment, of the same names and lengths.
        in_GM: which moments belong to each group.
        mean_MPHY: the model's answers.
    """

    def __init__(
        self, label: str, model: FittedModel, cohort: Cohort, plans_M: Sequence[Sequence[AnyPlan]], in_GM: Bools,
        mean_MPHY: Floats,
    ) -> None:  # fmt: skip
        self.label, self.model, self.in_GM, self.mean_MPHY = label, model, in_GM, mean_MPHY
        self.plans_M, steps, domains_NE = plans_M, mean_MPHY.shape[2], domain_column(cohort.places)
        self.trials = Trials(model.schema, cohort.panel, cohort.subject_M, cohort.origin_M, steps, domains_NE)
        self.target = self.trials.outcomes()
        # Beyond the end of the study nobody is followed who started late, whatever became of them.
        self.whole = int(np.clip(cohort.panel.n_steps - 1 - cohort.origin_M.max(), 0, steps))
        self.units_G = np.array([len(np.unique(self.trials.unit_M[in_M])) for in_M in in_GM])
        self.supports: list[_Support | None] = [None] * len(plans_M[0])
        self.why: list[str] = [""] * len(plans_M[0])  # a plan is not corrected at any step
        self._practice: tuple[Practice, Floats, Floats] | None = None
        for p in range(len(plans_M[0])):
            self._add(p)

    def _add(self, p: int) -> None:
        """Correct the means under one plan, as far as enough follow it."""
        trials, plans = self.trials, [own[p] for own in self.plans_M]
        steps = min(len(plans[0]), self.whole)
        if not self.target.measured_MHQ.any():
            self.why[p] = NO_FOLLOW_UP
        elif p >= MOST_CORRECTED:
            self.why[p] = TOO_MANY
        elif self.units_G[0] < FEWEST_UNITS:
            self.why[p] = TOO_FEW_UNITS
        if self.why[p]:
            return
        regime = _regime(plans, steps)
        follow_MK = trials.decided_MK[:, :steps] & self.target.kept_MK[:, :steps]
        for k in range(0 if regime.reads_natural else steps):  # what comes of the natural treatment anybody may have
            chance_CM, values_CMA = regime.options(k, trials.course(k, window=regime.window))
            follow_MK[:, k] &= ((values_CMA == trials.values(k)).all(axis=-1) & (chance_CM > 0)).any(axis=0)
        follow_MK = np.logical_and.accumulate(follow_MK, axis=1)
        count_K = follow_MK.sum(axis=0)
        followed = int((count_K >= FEW).sum())  # of later steps nothing is corrected: the model is not asked
        share_GH = np.stack([follow_MK[in_M].mean(axis=0) for in_M in self.in_GM])
        if not followed:
            self.why[p] = OUTLASTED if not steps else thin(int(count_K[0]), int(count_K[0]), share_GH[0, :1])
            return
        regime = _regime(plans, followed)
        if self._practice is None:  # how treatments were decided, who was followed further, who has outcomes
            practice = Practice(trials, trials.folds(FOLDS, SEED), known={}, boosting=True)
            self._practice = practice, practice.kept(self.target), practice.measured(self.target)
        practice, kept_MK, measured_MHQ = self._practice
        weights = practice.of(regime)
        follow = Follow.of(trials, self.target, weights, kept_MK, measured_MHQ)
        share_GH[:, :followed] = np.stack([(follow.raw_MK[in_M] > 0).mean(axis=0) for in_M in self.in_GM])
        mean_MHY = self.mean_MPHY[:, p, :followed]
        forecasts = _Forecasts(self.label, self.model, trials, regime, follow, mean_MHY)
        try:
            curve = sequential(self.target, weights, follow, forecasts.regress, self.in_GM, targeted=True)
        except UsageError as error:  # what the plan makes of an earlier natural dose cannot be given
            self.why[p] = error.problem
            return
        raw_GMHY = follow.raw_last_MHQ * self.in_GM[..., None, None]
        effective_GHY = np.stack([kish(raw_MHY) for raw_MHY in raw_GMHY])
        self.supports[p] = _Support(curve, (raw_GMHY > 0).sum(axis=1), effective_GHY, share_GH)

    @property
    def converged(self) -> bool:
        """Return whether the regressions of treatments that weights come of are at their best."""
        return self._practice is None or self._practice[0].converged

    def replacing(
        self, averages: "Averages", why: str, levels: Sequence[float], reference: int | None = None
    ) -> "Averages":
        """Return averages with corrected ones in their place; `why` says why the others have no interval."""
        by = self.means(levels, reference)
        at_GPHY = np.isfinite(by.mean_GPHY) & np.isfinite(averages.mean_GPHY)
        mean_GPHY = np.where(at_GPHY, np.clip(by.mean_GPHY, averages.low_Y, averages.high_Y), averages.mean_GPHY)
        none = np.vectorize(lambda lacks: f"{why.removesuffix(')')}; {lacks})", otypes=[object])
        return replace(
            averages, mean_GPHY=mean_GPHY, half_LGPHY=np.where(at_GPHY, by.half_LGPHY, np.nan),
            model_GPHY=averages.mean_GPHY, kind_GPHY=np.where(at_GPHY, by.kind_GPHY, none(by.kind_GPHY)),
        )  # fmt: skip

    def means(self, levels: Sequence[float], reference: int | None = None) -> Corrected:
        """Return corrected means, or differences from the `reference` plan where both are supported."""
        shape = (len(self.in_GM), *self.mean_MPHY.shape[1:])
        mean, half = np.full(shape, np.nan), np.full((len(levels), *shape), np.nan)
        kind = np.full(shape, "", dtype=object)
        for g, p, h, y in np.ndindex(shape):
            plans = [p] if reference is None else [p, reference]
            if kind_none := next((none for none in (self._lacks(g, i, h, y) for i in plans) if none), ""):
                kind[g, p, h, y] = kind_none
                continue
            supports = [support for i in plans if (support := self.supports[i])]
            curves = [support.curve for support in supports]
            least = supports[int(np.argmin([support.effective_GHY[g, h, y] for support in supports]))]
            signs = (1, -1)[: len(plans)]
            moved_M = sum(s * c.influence_GMHQ[g, :, h, y] for s, c in zip(signs, curves, strict=True))
            mean[g, p, h, y] = sum(s * c.mean_GHQ[g, h, y] for s, c in zip(signs, curves, strict=True))
            few = float(least.effective_GHY[g, h, y])
            units = int(self.units_G[g])
            moved_U = np.bincount(self.trials.unit_M, weights=np.asarray(moved_M)) / self.in_GM[g].sum()
            se = np.sqrt((moved_U**2).sum() * units / (units - 1))
            half[:, g, p, h, y] = stdtrit(min(units, few) - 1, 0.5 + np.asarray(levels) / 2) * se
            count = least.followers_GHY[g, h, y]
            kind[g, p, h, y] = f"influence curve ({count:,} follow through step {h + 1}, as many as {few:,.0f})"
        return Corrected(mean, half, kind)

    def _lacks(self, g: int, p: int, h: int, y: int) -> str:
        """Return why a mean of a group is not corrected; nothing where it is."""
        support = self.supports[p]
        if support is None or self.units_G[g] < FEWEST_UNITS:
            return self.why[p] or TOO_FEW_UNITS
        if h >= support.share_GH.shape[1]:
            return OUTLASTED
        share_K = support.share_GH[g, : h + 1]
        if h >= support.followers_GHY.shape[1]:
            count = round(share_K[-1] * self.in_GM[g].sum())
            return thin(count, count, share_K)
        if not self.target.measured_MHQ[:, h, y].any():
            return f"{self.target.names[y]} is not measured {counted(h + 1, 'step')} after the origin"
        count, few = int(support.followers_GHY[g, h, y]), float(support.effective_GHY[g, h, y])
        return thin(count, few, share_K) if few < FEW else ""


def thin(followers: int, few: float, share_K: Floats) -> str:
    """Return that too few follow a plan, of whom by step such a share does."""
    shares = ", ".join(f"{100 * share:.0f} %" for share in share_K)
    weigh = f", as many as {few:.0f} of equal weight" if round(few) < followers else ""
    return f"{followers:,} follow the plan through step {len(share_K)}{weigh}, of {FEW:.0f} needed; by step {shares}"


@dataclass(frozen=True, eq=False, slots=True)
class _Forecasts:
    """A model's forecasts in the place of regressions: from each decision on, of those who followed until then.

    A forecast is a function of what was known and of the next treatment alone: later natural treatments are taken to
    be the one before, since those of the data came of what was given, and weights would not be right for them.
    """

    label: str
    model: FittedModel
    trials: Trials
    regime: "_Fixed | Rule"
    follow: Follow
    first_MHY: Floats

    def regress(self, k: int, *_: NDArray[Any]) -> tuple[Floats, Floats]:
        """Return forecasts for what was given and for each option of the plan; see `Regress`."""
        regime, first_MHY = self.regime, self.first_MHY[:, k:]
        chance_CM, values_CMA = regime.options(k, self.trials.course(k, window=regime.window))
        given_MA, reached_M = self.trials.values(k), self.follow.at_MK[:, k]
        if k:
            reached_M = reached_M & (self.follow.raw_MK[:, k - 1] > 0)
        given_MHY, option_CMHY = np.zeros(first_MHY.shape), np.zeros((len(chance_CM), *first_MHY.shape))
        left_M = self.follow.raw_MK[:, k] > 0  # the others weigh nothing in what follows
        for option_MHY, chance_M, option_MA in zip(option_CMHY, chance_CM, values_CMA, strict=True):
            at_M = reached_M & (chance_M > 0)
            if k or regime.has_chance or regime.reads_natural:
                self._ask(k, at_M, option_MA, option_MHY)
            else:
                option_MHY[at_M] = np.nan_to_num(first_MHY[at_M])  # the model's answers themselves
            same_M = left_M & at_M & (option_MA == given_MA).all(axis=-1)
            given_MHY[same_M], left_M = option_MHY[same_M], left_M & ~same_M
        self._ask(k, left_M, given_MA, given_MHY)
        flat = len(given_MA), -1
        return given_MHY.reshape(flat), option_CMHY.reshape(len(chance_CM), *flat)

    def _ask(self, k: int, at_M: Bools, next_MA: Values, into_MHY: Floats) -> None:
        """Write forecasts of some trials into an array: of their next treatment, and then of the rest of the plan."""
        trials, regime, rows_M, steps = self.trials, self.regime, np.flatnonzero(at_M), into_MHY.shape[1]
        for first in range(0, len(rows_M), MOST_QUERIES):
            rows = rows_M[first : first + MOST_QUERIES]
            origin_M = trials.origin_M[rows] + k
            moments = IndexTimes(trials.panel.until(int(origin_M.max()) + 1), trials.subject_M[rows], origin_M)
            if isinstance(regime, _Fixed):
                plans_Q = [TreatmentPlan(regime.name, values_HA) for values_HA in regime.values_MKA[rows, k:]]
                asked = resolve(self.label, self.model, moments, plans_Q)
            else:
                usual_A = np.quantile(trials.values(k), 0.5, axis=0, method="nearest")  # of a series that begins here
                before_MA = moments.before(trials.schema.treatments, 1)[:, 0]
                before_MA = np.where(origin_M[:, None] > 0, before_MA, usual_A).astype(next_MA.dtype)
                rest = _Rest(regime, steps, k, next_MA[rows], before_MA)
                draws = FEW_DRAWS if regime.has_chance else COHORT_DRAWS
                asked = resolve(self.label, self.model, moments, [rest] * len(rows), n=draws)
            queries = ask_plans(self.model, moments, asked.plans_Q)
            common = estimate_plans(self.label, self.model, moments.panel, queries, asked.plans_Q)
            into_MHY[rows] = asked.estimated(common).mean_QHY
