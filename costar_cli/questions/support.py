"""Whether the data support an answer to a plan: its lights by step, with reasons in words (spec SUPPORT-6 to 7)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Domain, PanelSchema
from costar_cli.data.schema import step_word, steps_axis, steps_of
from costar_cli.data.support import WITH_OTHERS, Support
from costar_cli.inference import NOT_JUDGED, SUPPORT_LEVELS, Estimates, SupportRatings, support_of
from costar_cli.plans import TreatmentPlan

if TYPE_CHECKING:
    from costar_cli.questions.answers import ModelAnswers

BEYOND: Final = {"amber": "95 %", "red": "99 %"}  # of held-out windows that stay within the limit
RARE: Final = 1e-3
SUPPORTED: Final = "well supported"
_MARKS: Final = ("", "?", "!")  # of amber and red
_RARE: Final = ("", "rare", "hardly ever given")
_IMPRECISE: Final = ("", "imprecise", "too imprecise")
MOST_ODDS: Final = 1e6  # beyond 1 in so many the regressions of practice tell nothing more


@dataclass(frozen=True, eq=False, slots=True)
class PlanRatings:
    """The lights of one plan: by step and outcome, `precision` and `support` `[steps][Y]`, and by step, `practice`.

    Precision that is not judged is None. `reasons [steps][Y]` say in words what makes a light amber or red; empty where
    it is green. `like_practice` is the share of the plan's steps that practice would have taken, `verdict` the worst
    light of the plan in a few words.
    """

    precision: tuple[tuple[str | None, ...], ...]
    practice: tuple[str, ...]
    support: tuple[tuple[str, ...], ...]
    reasons: tuple[tuple[str, ...], ...]
    like_practice: float
    verdict: str

    @property
    def red_HY(self) -> NDArray[np.bool_]:
        """Return which answers are red."""
        return np.asarray(np.array(self.support) == SUPPORT_LEVELS[2])

    @property
    def worst_precision(self) -> tuple[str | None, ...]:
        """Return the worst light of precision over outcomes, by step; None where it is not judged."""
        judged = ([rating for rating in step if rating] for step in self.precision)
        return tuple(max(step, key=SUPPORT_LEVELS.index, default=None) for step in judged)

    @property
    def judges_precision(self) -> bool:
        """Return whether precision is judged at any step."""
        return any(self.worst_precision)

    @property
    def worst(self) -> tuple[str, ...]:
        """Return the worst light over outcomes, by step."""
        return tuple(max(step, key=SUPPORT_LEVELS.index) for step in self.support)


def ratings_in_words(answers: "ModelAnswers") -> tuple[PlanRatings, ...] | None:
    """Return the lights of each question with their reasons; None where the model has no support to judge by."""
    support = support_of(answers.model)
    if support is None or answers.ratings is None:
        return None
    cohort, encoding, found = answers.cohort, answers.schema.treatments, []
    for q, (moment, plan) in enumerate(zip(answers.moment_Q.tolist(), answers.plans_Q, strict=True)):
        subject, origin = int(cohort.subject_M[moment]), int(cohort.origin_M[moment])
        before = (encoding.decode(cohort.panel.treatments[subject, :origin]) != 0).any(axis=0)
        told = _Reasons(
            answers.schema, cohort.panel.names[subject], before, answers.ratings, answers.estimates, support.domain,
            support.given, answers.unmeasured_QHY, origin,
        )  # fmt: skip
        found.append(told.plan(q, plan))
    return tuple(found)


@dataclass(frozen=True, eq=False, slots=True)
class _Reasons:
    """Puts the lights of plans for one subject into words.

    `before [names]` says which treatments it ever received, `domain` whose practice the lights are about, `given` what
    the training subjects received.
    """

    schema: PanelSchema
    subject: str
    before: NDArray[np.bool_]
    ratings: SupportRatings
    found: Estimates
    domain: Domain | None = None
    given: Support | None = None
    unmeasured_QHY: NDArray[np.bool_] | None = None
    origin: int = 0

    def plan(self, number: int, plan: TreatmentPlan) -> PlanRatings:
        """Return the lights of a plan, by its number among the questions."""
        steps, outcomes, ratings, verdict = len(plan), len(self.schema.outcomes), self.ratings, SUPPORTED
        worst_H = ratings.rating_QHY[number, :steps].max(axis=1)
        if worst := int(worst_H.max()):
            first, last = (int(h) for h in np.flatnonzero(worst_H == worst)[[0, -1]])
            unit, k = step_word(self.schema.step), int(ratings.rating_QHY[number, last].argmax())
            since = f"from {unit} {self.origin + first}"
            if self.given and (lacks := self.given.unseen_in(plan.values[: last + 1], self.schema.treatments)):
                words = {"apart": "never together"} | dict.fromkeys(WITH_OTHERS, "never alone")
                text = words.get(lacks[0].kind, "never given")
            elif ratings.practice_QH[number, last] == worst and ratings.rarest_QH[number, last] == worst:
                share = _share(ratings.probability_QH[number, : last + 1].min())
                text = f"{share} of such {steps_axis(self.schema.step)}"
            elif ratings.practice_QH[number, last] == worst:
                text = f"{_RARE[worst]} {since}"
            elif self.unmeasured_QHY is not None and self.unmeasured_QHY[number, last, k]:
                text = f"never observed {since}"
            else:
                text = f"{_IMPRECISE[worst]} {since}"
            verdict = f"{_MARKS[worst]} {text}"  # `? rare from day 31`, `! 1.6 % of such days`
        return PlanRatings(
            precision=tuple(
                tuple(None if mark == NOT_JUDGED else SUPPORT_LEVELS[mark] for mark in row)
                for row in ratings.precision_QHY[number, :steps]
            ),
            practice=tuple(SUPPORT_LEVELS[mark] for mark in ratings.practice_QH[number, :steps]),
            support=tuple(tuple(SUPPORT_LEVELS[mark] for mark in row) for row in ratings.rating_QHY[number, :steps]),
            reasons=tuple(
                tuple("; ".join(self._reasons(number, plan, h, k)) for k in range(outcomes)) for h in range(steps)
            ),
            like_practice=float(ratings.probability_QH[number, :steps].mean()),
            verdict=verdict,
        )

    def _reasons(self, number: int, plan: TreatmentPlan, h: int, k: int) -> Iterator[str]:
        at, ratings = (number, h), self.ratings
        if ratings.rating_QHY[number, h, k]:
            if self.unmeasured_QHY is not None and self.unmeasured_QHY[number, h, k]:
                name, step = self.schema.outcomes[k].name, step_word(self.schema.step)
                yield f"no training subject has {name} at this {step} of its series"
            elif (mark := ratings.precision_QHY[number, h, k]) > 0:
                yield self._precision(number, plan, h, k, SUPPORT_LEVELS[mark])
            worst = ratings.practice_QH[at]
            if lacks := self.given.unseen_in(plan.values[: h + 1], self.schema.treatments) if self.given else ():
                lack, ways = lacks[0], {"apart": " together"} | dict.fromkeys(WITH_OTHERS, " without other treatments")
                yield f"no training subject received {lack.what}{ways.get(lack.kind, '')}"
            elif worst and ratings.rarest_QH[at] == worst:
                rarest = int(ratings.probability_QH[number, : h + 1].argmin())
                what = self.schema.treatments.describe(plan.values[rarest])
                what = "no treatment" if what == "none" else what
                share = f"{_share(ratings.probability_QH[number, rarest])} of {steps_axis(self.schema.step)}"
                whose = f" ({self.domain} subjects)" * bool(self.domain)
                yield f"in states like this {what} was given in {share}{whose}"
            elif worst:
                with np.errstate(divide="ignore"):  # a step that cannot happen has minus infinity
                    log_chance = float(np.log(ratings.probability_QH[number, : h + 1]).sum())
                steps = steps_of(h + 1, self.schema.step)
                courses = f"comparable {f'{self.domain} ' if self.domain else ''}courses of {steps}"
                if log_chance >= math.log(RARE):
                    yield f"only {_share(math.exp(log_chance))} of {courses} looked like this"
                elif log_chance < -math.log(MOST_ODDS):
                    yield f"{courses} practically never look like this"
                else:
                    odds = f"1 in {float(f'{math.exp(-log_chance):.2g}'):,.0f}"
                    yield f"only {odds} of {courses} looked like this"

    def _precision(self, number: int, plan: TreatmentPlan, h: int, k: int, rating: str) -> str:
        new = (plan.values[: h + 1] != 0).any(axis=0) & ~self.before & (self.schema.treatments.idle == 0)
        if new.any():
            names = " or ".join(
                name for name, is_new in zip(self.schema.treatments.all_names, new, strict=True) if is_new
            )
            respond = "the data cannot tell how it would respond"
            return f"subject {self.subject} never received {names} before, and {respond}"
        sd = f"{self.found.sd_QHY[number, h, k]:.3g} {self.schema.outcomes[k].unit}".strip()
        return f"the prediction's sd, {sd}, is larger for its level than in {BEYOND[rating]} of held-out windows"


def _share(probability: float) -> str:
    if probability < RARE:
        return "fewer than 0.1 %"
    return f"{100 * probability:.1f} %" if probability < 0.0995 else f"{100 * probability:.0f} %"
