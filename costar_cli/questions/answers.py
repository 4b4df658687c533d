"""Answers to questions, each about a moment of a cohort and a plan: one pipeline for one subject and for many.

Chunk after chunk of subjects is answered, so that memory is bounded. What tables, files, figures and pages show is
derived from a chunk: limits, differences from a reference plan, support, rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema, Queries
from costar_cli.errors import TrainingError
from costar_cli.files.shards import WHOLE, Shard
from costar_cli.inference import (
    BLACK_BOX,
    COHORT_DRAWS,
    LEAST_MEMBERS,
    NO_LEVEL,
    RANGE,
    RED,
    TOO_FEW,
    Calibration,
    Estimates,
    PredictFn,
    SimulatedRule,
    SupportRatings,
    SurvivalForecast,
    cached_predictor,
    calibration_of,
    differences,
    draws,
    estimate,
    interval_kind,
    range_of,
    resolve,
    support_of,
    unmeasured,
)
from costar_cli.methods.base import FittedModel
from costar_cli.plans import AnyPlan, IndexTimes, PlanRequest, Rule, TreatmentPlan
from costar_cli.questions.subjects import Cohort
from costar_cli.questions.support import PlanRatings, ratings_in_words
from costar_cli.questions.widen import widened

MOST_QUERIES: Final = 8_192  # answered at once: their histories, predictions and lights take some hundred MB
MOST_MOMENTS: Final = 1_024  # likewise, of histories that are encoded

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Band:
    """Estimates `[...,H,Y]`, the limits around them `[L,...,H,Y]`, None where there are none, and what limits are.

    Limits are not a number where the calibration subjects are too few for the level. `kind_Y` says, by outcome, what
    the limits are where there are any, or why there are none.
    """

    estimate: Floats
    lower: Floats | None
    upper: Floats | None
    kind_Y: tuple[str, ...]

    @classmethod
    def around(
        cls,
        found: Estimates,
        calibration: Calibration | None,
        levels: Sequence[float],
        kind_Y: Sequence[str],
        *,
        clip: bool = True,
    ) -> Self:
        """Return calibrated limits; those that are infinite on either side are none, nor those of a kind of `none`."""
        if calibration is None:
            return cls(found.mean_QHY, None, None, tuple(kind_Y))
        bands = calibration.bands(found, levels, clip=clip)
        known_LQHY = np.isfinite(bands.lower_LQHY) & np.isfinite(bands.upper_LQHY)
        known_LQHY &= np.array([not kind.startswith("none") for kind in kind_Y])
        lower, upper = (np.where(known_LQHY, limit, np.nan) for limit in (bands.lower_LQHY, bands.upper_LQHY))
        return cls(found.mean_QHY, lower, upper, tuple(kind_Y))

    @cached_property
    def limited(self) -> NDArray[np.bool_]:
        """Return which estimates have limits at some level."""
        if self.lower is None:
            return np.zeros(self.estimate.shape, dtype=bool)
        return np.asarray(np.isfinite(self.lower).any(axis=0))

    @property
    def kinds(self) -> NDArray[np.object_]:
        """Return what the limits of each estimate are, or why it has none at any level."""
        own = np.broadcast_to(objects(self.kind_Y), self.estimate.shape)
        few = np.array([not kind.startswith("none") for kind in self.kind_Y]) & ~self.limited
        return np.where(few & (self.lower is not None), TOO_FEW, own)

    def of(self, question: int, steps: int) -> "Band":
        """Return the band of the first steps of one question."""
        lower, upper = (None if limit is None else limit[:, question, :steps] for limit in (self.lower, self.upper))
        return Band(self.estimate[question, :steps], lower, upper, self.kind_Y)

    def without(self, hidden: NDArray[np.bool_]) -> "Band":
        """Return the band without the numbers of some estimates."""
        lower, upper = (
            None if limit is None else np.where(hidden, np.nan, limit) for limit in (self.lower, self.upper)
        )
        return Band(np.where(hidden, np.nan, self.estimate), lower, upper, self.kind_Y)


@dataclass(frozen=True, eq=False)
class ModelAnswers:
    """One model's answers to Q questions, and what they rest on.

    Attributes:
        label: what the model is called.
        model: what answered.
        cohort: the subjects and moments.
        moment_Q: the moment of each question.
        plans_Q: its plan; of a rule the most common course of treatment.
        queries: the questions, padded to the longest plan.
        estimates: the answers.
        levels: of the limits.
        calibration: what gives the limits, None where the model has none.
        ratings: whether the data support the answers, None where the model does not know.
        rules: the rules among the plans, by name.
        simulated_Q: how a rule went, and as which of its moments; None of plans that are no rules.
        survival_forecast: how likely series are to go on, None where the model knows of no end.
        unmeasured_QHY: which answers are to steps at which no training subject has the outcome.
        minus_Q: the question about the reference plan at the same moment; None where no differences are asked for.
        apart: the differences from it, drawn jointly; None where the model has no joint distribution.
        effective: how many calibration subjects weights leave at each step, where bands are widened.
        trained_on_subject: of a single subject, None where that is unknown.
        same_data: whether the model was trained on the data set of the subjects; None where no digest is known.
        unsupported: by plan, what no training subject was given.
    """

    label: str
    model: FittedModel
    cohort: Cohort
    moment_Q: NDArray[np.int64]
    plans_Q: Sequence[TreatmentPlan]
    queries: Queries
    estimates: Estimates
    levels: tuple[float, ...]
    calibration: Calibration | None = None
    ratings: SupportRatings | None = None
    rules: Mapping[str, Rule] = field(default_factory=dict)
    simulated_Q: tuple[tuple[SimulatedRule, int] | None, ...] = ()
    survival_forecast: SurvivalForecast | None = None
    unmeasured_QHY: NDArray[np.bool_] | None = None
    minus_Q: NDArray[np.int64] | None = None
    apart: Estimates | None = None
    effective: tuple[float, ...] | None = None
    trained_on_subject: bool | None = None
    same_data: bool | None = None
    unsupported: Mapping[str, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.moment_Q)

    @property
    def schema(self) -> PanelSchema:
        """Return the model's columns."""
        return self.model.schema

    @property
    def method(self) -> str:
        """Return the name of the model's method."""
        return self.model.method

    @property
    def members(self) -> int:
        """Return R."""
        return len(self.estimates.members_RQHY)

    @property
    def heading(self) -> str:
        """Return what tables call the model: its label, marked where it was trained on another data set."""
        return f"{self.label} (trained on other data)" if self.same_data is False else self.label

    @cached_property
    def steps_Q(self) -> NDArray[np.int64]:
        """Return the length of each question's plan."""
        return np.array([len(plan) for plan in self.plans_Q], dtype=np.int64)

    @cached_property
    def own_QHY(self) -> NDArray[np.bool_]:
        """Return which answers are to steps of the plan itself."""
        own_QH = np.arange(self.queries.horizon) < self.steps_Q[:, None]
        return np.broadcast_to(own_QH[..., None], self.estimates.mean_QHY.shape)

    @cached_property
    def worst_Q(self) -> NDArray[np.int8] | None:
        """Return the worst rating of each question's own steps, a place in `SUPPORT_LEVELS`; None without any."""
        return None if self.ratings is None else np.where(self.own_QHY, self.ratings.rating_QHY, 0).max(axis=(1, 2))

    @cached_property
    def measured_QHY(self) -> Floats:
        """Return the estimates, not a number of steps at which no training subject has the outcome."""
        mean_QHY = self.estimates.mean_QHY
        return mean_QHY if self.unmeasured_QHY is None else np.where(self.unmeasured_QHY, np.nan, mean_QHY)

    def hidden_QHY(self, *, abstain: bool) -> NDArray[np.bool_]:
        """Return which answers have no numbers: nobody has the outcome, or the data do not support what is asked."""
        hidden_QHY = self.red_QHY if abstain else np.zeros(self.estimates.mean_QHY.shape, dtype=bool)
        return hidden_QHY if self.unmeasured_QHY is None else hidden_QHY | self.unmeasured_QHY

    @property
    def red_QHY(self) -> NDArray[np.bool_]:
        """Return which answers the data do not support."""
        if self.ratings is None:
            return np.zeros(self.estimates.mean_QHY.shape, dtype=bool)
        return np.asarray(self.ratings.rating_QHY == RED)

    @cached_property
    def interval_kind(self) -> str:
        """Return what the limits of answers are where there are any, or why the model has none."""
        return interval_kind(self.model)

    @property
    def band(self) -> Band:
        """Return the answers and their limits at the levels."""
        return self.band_at(self.levels)

    def band_at(self, levels: Sequence[float]) -> Band:
        """Return the answers and their limits at some levels, made once."""
        if (key := tuple(levels)) not in self._bands:
            kind_Y = [self.interval_kind] * len(self.schema.outcomes)
            self._bands[key] = Band.around(self.estimates, self.calibration, levels, kind_Y)
        return self._bands[key]

    @cached_property
    def _bands(self) -> dict[tuple[float, ...], Band]:
        return {}

    @property
    def difference_kind(self) -> str:
        """Return what the limits of differences between plans are, or why there are none."""
        if self.calibration is None or self.apart is not None:
            return self.interval_kind
        few = self.members < LEAST_MEMBERS or not np.ptp(self.estimates.members_RQHY, axis=0).any()
        return BLACK_BOX if few else RANGE  # copies of one closed form, as in a stack, would have a range of no width

    @cached_property
    def differences(self) -> Band:
        """Return the differences from the reference plan and their limits, from joint draws (spec BAND-7).

        Without these the limits are the members' range, which stands in the place of the first level and has none.
        They mean something at the steps that both plans have.
        """
        assert self.minus_Q is not None  # noqa: S101 - asked where there is a reference
        kind, outcomes = self.difference_kind, self.schema.outcomes
        if self.apart is not None:
            kind_Y = [NO_LEVEL if outcome.kind == "binary" else kind for outcome in outcomes]
            return Band.around(self.apart, self.calibration, self.levels, kind_Y, clip=False)
        mean_QHY = self.estimates.mean_QHY - self.estimates.mean_QHY[self.minus_Q]
        if kind != RANGE:
            return Band(mean_QHY, None, None, (kind,) * len(outcomes))
        members_RQHY = self.estimates.members_RQHY.astype(np.float64)
        limits = range_of(members_RQHY - members_RQHY[:, self.minus_Q], mean_QHY)
        none = np.full((len(self.levels) - 1, *mean_QHY.shape), np.nan)
        lower, upper = (np.concatenate([limit[None], none]) for limit in limits)
        return Band(mean_QHY, lower, upper, (kind,) * len(outcomes))

    @cached_property
    def plan_ratings(self) -> tuple[PlanRatings, ...] | None:
        """Return the lights of each question in words, with reasons; None where the model does not know."""
        return ratings_in_words(self)

    @property
    def simulated(self) -> tuple[SimulatedRule | None, ...]:
        """Return how the rule of each question went, of a single moment."""
        return tuple(went and went[0] for went in self.simulated_Q)


def answer_cohort(
    label: str,
    model: FittedModel,
    cohort: Cohort,
    request: PlanRequest,
    *,
    levels: Sequence[float] = (0.9,),
    shard: Shard = WHOLE,
    reference: str | None = None,
    widen: bool = False,
    rule_draws: int = COHORT_DRAWS,
) -> Iterator[ModelAnswers]:
    """Yield a model's answers about every moment of a cohort under every plan, some thousand questions at a time.

    A shard has whole chunks, so that its answers are those of one run.

    Args:
        label: what the model is called.
        model: what answers.
        cohort: subjects and their origins.
        request: the plans.
        levels: of the limits.
        shard: which of the chunks are answered.
        reference: the plan that others are compared with; None: no differences are drawn.
        widen: limits for plans under another policy than the one that was followed (spec BAND-8).
        rule_draws: how often a rule is played for each moment.

    Raises:
        TrainingError: a prediction is not finite.
        ArtifactError: the model's file is damaged.
        UsageError: a rule reads outcomes, and the model predicts no course; bands cannot be widened.
    """
    calibration, support = calibration_of(model), support_of(model)
    for moments, plans_M in chunks_of(cohort, request, shard, compared=reference is not None):
        chunk = cohort.take(moments)
        moment_Q = np.repeat(np.arange(len(chunk)), [len(plans) for plans in plans_M])
        every_Q = [plan for plans in plans_M for plan in plans]
        moments_Q = chunk.moments(moment_Q)
        panel, ask = moments_Q.panel, cached_predictor(moments_Q.panel)
        asked = resolve(label, model, moments_Q, every_Q, given=chunk.panel, n=rule_draws)
        plans_Q, queries = asked.plans_Q, ask_plans(model, moments_Q, asked.plans_Q)
        common = estimate_plans(label, model, panel, queries, plans_Q, ask=ask)
        found, own, effective, minus_Q, apart = asked.estimated(common), calibration, None, None, None
        if calibration and widen:
            own, effective = widened(label, calibration, found, plans_Q)
        if reference is not None:
            first_M = np.cumsum([0, *map(len, plans_M[:-1])], dtype=np.int64)
            place_M = [[plan.name for plan in plans].index(reference) for plans in plans_M]
            minus_Q = np.repeat(first_M + place_M, [len(plans) for plans in plans_M])
            if own and len(plans_Q) > len(chunk) and model.is_joint:
                drawn_SQHY = asked.drawn(draws(model, panel, queries, ask=ask))
                apart = differences(drawn_SQHY, found, np.arange(len(plans_Q)), minus_Q)
        yield ModelAnswers(
            label, model, chunk, moment_Q, plans_Q, queries, found, tuple(levels), own,
            ratings=support.ratings(panel, queries, common) if support else None,
            rules={plan.name: plan for plan in every_Q if not isinstance(plan, TreatmentPlan)},
            simulated_Q=asked.simulated_Q, survival_forecast=asked.forecast_survival(queries, common),
            unmeasured_QHY=unmeasured(model, queries),
            minus_Q=minus_Q, apart=apart, effective=effective,
        )  # fmt: skip


def chunks_of(
    cohort: Cohort, request: PlanRequest, shard: Shard = WHOLE, *, compared: bool = False
) -> Iterator[tuple[slice, list[Sequence[AnyPlan]]]]:
    """Yield a shard's moments that are answered together, with the plans of each; `compared` ones stay together."""
    plans_M, first = plans_of(cohort, request), 0
    every: list[tuple[slice, slice]] = []  # moments, and which of their plans: of very many, some at a time
    while first < len(plans_M):
        stop, count = first + 1, len(plans_M[first])
        if compared:  # draws depend on who is drawn together: each moment alone, with all its plans
            every.append((slice(first, stop), slice(None)))
            first = stop
            continue
        while stop < min(len(plans_M), first + MOST_MOMENTS) and count + len(plans_M[stop]) <= MOST_QUERIES:
            count, stop = count + len(plans_M[stop]), stop + 1
        begins = range(0, max(map(len, plans_M[first:stop])), MOST_QUERIES)
        every += [(slice(first, stop), slice(begin, begin + MOST_QUERIES)) for begin in begins]
        first = stop
    for place in shard.own(len(every)):
        moments, some = every[place]
        yield moments, [plans[some] for plans in plans_M[moments]]


def plans_of(cohort: Cohort, request: PlanRequest) -> list[Sequence[AnyPlan]]:
    """Return the plans that are asked about at each moment."""
    if not request.by_subject:
        return [request.plans] * len(cohort)
    own_N: list[Sequence[AnyPlan]] = [request.by_subject[str(name)] for name in cohort.names]
    return [own_N[row] for row in cohort.subject_M.tolist()]


def count_questions(cohort: Cohort, request: PlanRequest, shard: Shard = WHOLE, *, compared: bool = False) -> int:
    """Return how many pairs of a moment and a plan a shard asks about."""
    return sum(sum(map(len, plans_M)) for _, plans_M in chunks_of(cohort, request, shard, compared=compared))


def ask_plans(model: FittedModel, moments_Q: IndexTimes, plans_Q: Sequence[TreatmentPlan]) -> Queries:
    """Return questions about moments, each under its plan.

    Steps beyond a plan's own mean nothing: it is padded with its last step, which no earlier prediction sees.
    """
    distinct = list({id(plan): plan for plan in plans_Q}.values())
    place = {id(plan): i for i, plan in enumerate(distinct)}
    horizon = max(map(len, distinct))
    values = np.stack([np.pad(plan.values, ((0, horizon - len(plan)), (0, 0)), "edge") for plan in distinct])
    return moments_Q.queries(model.schema.treatments.encode(values)[[place[id(plan)] for plan in plans_Q]])


def estimate_plans(
    label: str,
    model: FittedModel,
    panel: Panel,
    queries: Queries,
    plans: Sequence[TreatmentPlan],
    *,
    ask: PredictFn | None = None,
) -> Estimates:
    """Return the estimates of what `ask_plans` asks.

    `plans` are those of each query, or those that all subjects have; `ask` predicts as the `rollout` of a model or of
    its part does.

    Raises:
        TrainingError: a prediction is not finite.
    """
    found = estimate(model, panel, queries, ask=ask)
    own_PH = np.arange(queries.horizon) < np.array([len(plan) for plan in plans])[:, None]
    odd_QH = ~np.isfinite(found.members_RQHY).all(axis=(0, -1)) & np.tile(own_PH, (len(queries) // len(plans), 1))
    if odd_QH.any():
        name = panel.names[int(queries.subject[odd_QH.any(axis=1).argmax()])]
        raise TrainingError(
            f"model `{label}` predicts values that are not finite for subject {name}",
            fix="retrain it, with a lower --learning-rate if it diverged",
        )
    return found


def objects(values: Sequence[object]) -> NDArray[Any]:
    """Return an array of objects, which no text is cut in."""
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made
