"""Rules are played one step at a time, on the course that a model or a simulator gives them (spec PLAN-5).

`S` counts draws, `C` choices of a rule, `K` distinct courses of treatment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema, Queries, Variable
from costar_cli.errors import UsageError
from costar_cli.inference.estimates import encoded_predictor
from costar_cli.methods.base import FittedModel
from costar_cli.methods.registry import METHODS
from costar_cli.plans.plan import IndexTimes, TreatmentPlan, spans
from costar_cli.plans.rule import PLANNED, STEP, Course, Levels

DRAWS: Final = 1_000  # as many as of differences between plans
SEED: Final = 0
FEWEST: Final = 0.005  # share of the draws whose treatments are told

Floats = NDArray[np.float64]
Predict = Callable[[NDArray[np.integer], Levels], Floats]
"""From rows of the moments `[M]` and the levels given since `[M,h,names]` to the outcomes `[M,Y]` that follow."""
How = Literal["fixed", "chance", "mean course", "drawn"]


class Playable(Protocol):
    """What decides, one step at a time, what courses are given: a rule, or what is left of one."""

    @property
    def name(self) -> str:
        """Return what it is called."""
        ...

    @property
    def window(self) -> int:
        """Return how many earlier steps it reads."""
        ...

    @property
    def has_chance(self) -> bool:
        """Return whether what is given is left to chance."""
        ...

    @property
    def n_chances(self) -> int:
        """Return how many random numbers `decide` takes for a course at a step."""
        ...

    def __len__(self) -> int: ...

    def reads(self, names: Sequence[str]) -> list[str]:
        """Return which of some columns it reads."""
        ...

    def decide(self, course: Course) -> Levels:
        """Return the levels `[M,names]` that courses are given at their step, by the chance that they have."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class SimulatedRule:
    """How a rule went for Q moments, a subject at an origin each, in S draws.

    Attributes:
        rule: what was played.
        values_SQHA: levels that were given.
        outcomes_SQHY: outcomes of the draws; None where outcomes were not drawn, or not read.
        usual_QHY: means of the draws under each moment's most common course, where outcomes were drawn.
        usual_variance_QHY: their variances.
        how: `fixed` without any doubt of what is given, by `chance` alone, on the `mean course`, or as `drawn`.
    """

    rule: Playable
    values_SQHA: Levels
    outcomes_SQHY: Floats | None
    how: How
    usual_QHY: Floats | None = None
    usual_variance_QHY: Floats | None = None

    def most_common(self, moment: int) -> TreatmentPlan:
        """Return the course of treatment that most draws of a moment took."""
        kinds_KHA, place_S = self.kinds(moment)
        return TreatmentPlan(self.rule.name, kinds_KHA[np.bincount(place_S).argmax()])

    def most_share(self, moment: int) -> float:
        """Return the share of the draws that took that course."""
        _, place_S = self.kinds(moment)
        return float(np.bincount(place_S).max() / len(place_S))

    def kinds(self, moment: int) -> tuple[Levels, NDArray[np.intp]]:
        """Return the distinct courses of treatment of a moment `[K,H,names]`, and which one each draw took."""
        kinds_KHA, place_S = np.unique(self.values_SQHA[:, moment], axis=0, return_inverse=True)
        return kinds_KHA, place_S.ravel()

    def shares(self, moment: int, schema: PanelSchema) -> list[dict[str, float]]:
        """Return, by step, the share of the draws that were given each treatment, the most common first."""
        told = []
        for step_SA in self.values_SQHA[:, moment].swapaxes(0, 1):
            kinds, counts = np.unique(step_SA, axis=0, return_counts=True)
            share = {schema.treatments.describe(k): float(c) / len(step_SA) for k, c in zip(kinds, counts, strict=True)}
            told.append(dict(sorted(share.items(), key=lambda item: -item[1])))
        return told

    def in_words(self, moment: int, schema: PanelSchema, origin: int) -> str:
        """Return what is given when: `30 chemotherapy, 31-33 chemotherapy 73 %, none 27 %`."""
        words = [
            next(iter(share))
            if len(share) == 1
            else ", ".join(f"{what} {100 * part:.0f} %" for what, part in share.items() if part >= FEWEST)
            for share in self.shares(moment, schema)
        ]
        return "; ".join(spans(words, origin))


def _changing(schema: PanelSchema) -> tuple[Variable, ...]:
    """Return what may change along a course, in the order in which models tell it."""
    return (*schema.outcomes, *schema.covariates)


class _Play:
    """Decides what M = S Q courses of a rule are given, step after step, and keeps it."""

    def __init__(
        self, rule: Playable, moments: IndexTimes, schema: PanelSchema, n: int, seed: int, given: Panel | None = None
    ) -> None:
        self.rule, self.moments, self.schema, self.n = rule, moments, schema, n
        self.window = rule.window
        self.row_M = np.tile(np.arange(len(moments)), n)
        self.known = {name: values[self.row_M] for name, values in moments.columns(schema).items()}
        before, size = moments.before(schema.treatments, self.window)[self.row_M], (len(self.row_M), len(rule), 0)
        # The levels that the data have from the origins on, the last ones where they end; none of a single step.
        panel, row_Q1 = given or moments.panel, moments.subject_Q[:, None]
        step_QH = np.minimum(moments.origin_Q[:, None] + np.arange(len(rule)), panel.length[row_Q1] - 2)
        usual_QHA = schema.treatments.decode(panel.treatments[row_Q1, np.maximum(step_QH, 0)])
        self.usual_QHA = np.where(step_QH[..., None] >= 0, usual_QHA, schema.treatments.idle)
        self.given_MTA = np.concatenate([before, np.zeros((*size[:2], before.shape[2]), dtype=before.dtype)], axis=1)
        self.chance_HMC = np.random.default_rng([seed, 2]).random((len(rule), len(self.row_M), rule.n_chances))

    @property
    def values_MHA(self) -> Levels:
        return self.given_MTA[:, self.window :]

    def decide(self, h: int, state_MC: Floats) -> Levels:
        """Return the levels `[M,names]` at a step of the plan, where outcomes, and perhaps covariates, stand.

        At the origin, h = 0, all of them are known.
        """
        changing = _changing(self.schema) if h else ()
        own = {v.name: column for v, column in zip(changing, state_MC.T, strict=False)}
        step_M = (self.moments.origin_Q[self.row_M] + h).astype(np.float64)
        counted = {STEP: step_M, PLANNED: np.full(len(step_M), h + 1.0)}
        decided_MA = self.rule.decide(
            Course(
                counted | self.known | own,
                self.given_MTA[:, : self.window + h],
                self.usual_QHA[self.row_M, h],
                self.schema.treatments,
                self.chance_HMC[h],
            )
        )
        self.given_MTA[:, self.window + h] = decided_MA
        return decided_MA

    def simulated(self, how: How, outcomes_SQHY: Floats | None = None) -> SimulatedRule:
        values_MHA = self.values_MHA
        values_SQHA = values_MHA.reshape(self.n, len(self.moments), *values_MHA.shape[1:])
        return SimulatedRule(self.rule, values_SQHA, outcomes_SQHY, how)


def simulate_rule(
    model: FittedModel,
    moments: IndexTimes,
    rule: Playable,
    *,
    label: str = "",
    given: Panel | None = None,
    horizon: int | None = None,
    n: int = DRAWS,
    seed: int = SEED,
) -> SimulatedRule:
    """Play a rule on what a model predicts, from moments of a panel (spec PLAN-5).

    Args:
        model: any, for rules that read no outcome; otherwise one that predicts stepwise.
        moments: subjects with their histories, at their origins.
        rule: what to play.
        label: what messages call the model.
        given: has in its rows what was given beyond the origins, too: the natural treatment; by default the panel has.
        horizon: steps of the draws, so that they are those of longer plans; by default the rule's own.
        n: draws.
        seed: of the draws.

    Raises:
        UsageError: the rule reads outcomes, and the model predicts no course; it multiplies odds, or moves a dose too
            far.
    """
    how, schema = simulation_mode(rule, model, label), model.schema
    once = n if rule.has_chance else 1  # where outcomes are not drawn
    if how in ("fixed", "chance"):
        course = _Play(rule, moments, schema, once, seed, given)
        unread_MY = np.full((len(course.row_M), len(schema.outcomes)), np.nan)
        for h in range(len(rule)):
            course.decide(h, unread_MY)
        return course.simulated(how)
    if not model.draws_courses:
        answer = encoded_predictor(moments.panel)

        def predict(row_M: NDArray[np.integer], values_MHA: Levels) -> Floats:
            members_RMHY = answer(model, ask(model, moments.take(row_M), values_MHA))
            return np.asarray(members_RMHY[:, :, -1].mean(axis=0, dtype=np.float64))

        return simulate_on(rule, moments, schema, predict, given=given, n=once, seed=seed)
    course, last = _Play(rule, moments, schema, n, seed, given), len(rule) - 1

    def decide(h: int, state_MC: Floats) -> NDArray[np.float32]:
        if h > last:
            return schema.treatments.encode(course.values_MHA[:, -1])
        read_MC = state_MC.copy()  # a rule reads 0 or 1, or a count, where what is drawn is such
        for i, variable in enumerate(_changing(schema)[: state_MC.shape[1]]):
            if variable.kind in ("binary", "count"):
                read_MC[:, i] = state_MC[:, i].round().clip(0, 1 if variable.kind == "binary" else None)
        return schema.treatments.encode(course.decide(h, read_MC))

    row_Q, origin_Q = moments.subject_Q, moments.origin_Q
    draw = partial(model.draw_courses, moments.panel, row_Q, origin_Q, steps=horizon or len(rule), n=n, seed=seed)
    drawn = course.simulated("drawn", draw(decide)[:, :, : len(rule)])
    common_QHA = schema.treatments.encode(np.stack([drawn.most_common(q).values for q in range(len(moments))]))
    usual_SQHY = draw(lambda h, _: np.tile(common_QHA[:, min(h, last)], (n, 1)))[:, :, : len(rule)]
    return replace(drawn, usual_QHY=usual_SQHY.mean(axis=0), usual_variance_QHY=usual_SQHY.var(axis=0, ddof=1))


def simulation_mode(rule: Playable, model: FittedModel, label: str = "") -> How:
    """Return on what a rule is played with a model (spec PLAN-5).

    Raises:
        UsageError: the rule reads outcomes, and the model predicts no course.
    """
    changing = _changing(model.schema) if model.draws_covariates else model.schema.outcomes
    if not rule.reads([variable.name for variable in changing]):
        return "chance" if rule.has_chance else "fixed"
    if not model.stepwise:
        read = rule.reads([outcome.name for outcome in model.schema.outcomes])
        able = ", ".join(name for name, method in METHODS.items() if method.stepwise)
        raise UsageError(
            f"rule {rule.name!r} reads {', '.join(read)}, and model `{label or model.method}` predicts no course that "
            "it could act on: each of its steps answers a question of its own",
            where="--plan",
            fix=f"ask a model of {able}, or costar with `--decoder structured`; rules that read treatments, statics "
            "and steps alone work with every method",
        )
    return "drawn" if model.draws_courses else "mean course"


def simulate_on(
    rule: Playable,
    moments: IndexTimes,
    schema: PanelSchema,
    predict: Predict,
    *,
    given: Panel | None = None,
    n: int = 1,
    seed: int = SEED,
) -> SimulatedRule:
    """Play a rule on courses without spread, of a model's means or of a simulator, each step asked for anew."""
    course = _Play(rule, moments, schema, n, seed, given)
    y_MY = moments.panel.outcomes[moments.subject_Q, moments.origin_Q][course.row_M].astype(np.float64)
    for h in range(len(rule)):
        course.decide(h, y_MY)
        if h < len(rule) - 1:
            asked = np.concatenate(
                [course.row_M[:, None], course.values_MHA[:, : h + 1].reshape(len(y_MY), -1)], axis=1
            )
            kinds, place_M = np.unique(asked, axis=0, return_inverse=True)
            values = kinds[:, 1:].reshape(len(kinds), h + 1, -1)
            y_MY = predict(kinds[:, 0].astype(np.int64), values)[place_M.ravel()]
    return course.simulated("mean course")


def ask(model: FittedModel, moments: IndexTimes, values_QHA: Levels) -> Queries:
    """Return questions about moments, each under its own levels."""
    return moments.queries(model.schema.treatments.encode(values_QHA))
