"""Whether the data support an answer: a light for precision and one for practice (spec SUPPORT-4 to 7).

Both compare a plan with what was usual among held-out subjects, horizon by horizon: how far the predictions are spread,
and how likely the plan was. `L` counts the two limits, amber and red.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Domain, Panel, Queries
from costar_cli.data.support import Support
from costar_cli.inference.calibration import has_spread
from costar_cli.inference.estimates import Estimates, held_by
from costar_cli.inference.floor import HeldOut
from costar_cli.inference.outcomes import OutcomeFacts
from costar_cli.inference.propensity import DoseRecord, PropensityModel, decisions_of
from costar_cli.methods.base import FittedModel

SUPPORT_LEVELS: Final = ("green", "amber", "red")
RED: Final = 2
NOT_JUDGED: Final = -1  # below green, so that of two lights the other decides
USUAL: Final = (0.95, 0.99)  # shares of held-out windows that are within the limit to amber, and to red
MOST_DECISIONS: Final = 20_000  # on which the model of treatments is checked
BINS: Final = 10
ARRAYS: Final = "practice/"

Floats = NDArray[np.float64]
Marks = NDArray[np.int8]


@dataclass(frozen=True, eq=False, slots=True)
class SupportRatings:
    """The lights of Q queries, 0 to 2 as in `SUPPORT_LEVELS`, and what they rest on.

    Attributes:
        precision_QHY: of the spread of the predictions; `NOT_JUDGED` where a model says nothing of it (spec SUPPORT-5).
        practice_QH: of the plan; the worse of `rarest_QH` and `course_QH`.
        rarest_QH: of the least likely step so far.
        course_QH: of all steps so far.
        rating_QHY: what the two come to.
        spread_QHY: sd over the unit of errors at the origin.
        probability_QH: of each step's treatments in practice, given the course so far.
    """

    precision_QHY: Marks
    practice_QH: Marks
    rarest_QH: Marks
    course_QH: Marks
    rating_QHY: Marks
    spread_QHY: Floats
    probability_QH: Floats

    @property
    def unsupported_QHY(self) -> NDArray[np.bool_]:
        """Return which answers are red, and not for their course alone: those that a search leaves out (SEARCH-4)."""
        of_a_step_QHY = np.maximum(self.precision_QHY, self.rarest_QH[..., None])
        return np.asarray(np.minimum(self.rating_QHY, of_a_step_QHY) == RED)


@dataclass(frozen=True, eq=False, slots=True)
class Limits:
    """What the usual held-out window stays within, for amber and red: `spread_LHY`, and logarithms of probabilities.

    Limits of spread are infinite where a model says nothing of it.
    """

    spread_LHY: Floats
    rarest_LH: Floats
    course_LH: Floats

    @classmethod
    def of(cls, spread_QHY: Floats, log_QH: Floats, counts_QY: NDArray[np.bool_]) -> Self:
        """Return the limits of held-out windows, of those that count."""
        usual_LHY = [
            np.quantile(spread_QHY[of_Q, :, o], USUAL, axis=0) if of_Q.any() else np.full((2, log_QH.shape[1]), np.inf)
            for o, of_Q in enumerate(counts_QY.T)
        ]
        rare_L, log_QH = 1 - np.array(USUAL), log_QH[counts_QY.any(axis=1)]
        rarest_QH = np.minimum.accumulate(log_QH, axis=1)
        rarest_LH, course_LH = (np.quantile(values, rare_L, axis=0) for values in (rarest_QH, log_QH.cumsum(axis=1)))
        return cls(np.stack(usual_LHY, axis=-1), rarest_LH, course_LH)

    def lasting(self, horizon: int) -> "Limits":
        """Return limits of so many steps; the last one's for those beyond."""
        h_H = np.minimum(np.arange(horizon), self.rarest_LH.shape[1] - 1)
        return Limits(self.spread_LHY[:, h_H], self.rarest_LH[:, h_H], self.course_LH[:, h_H])


@dataclass(frozen=True, eq=False, slots=True)
class PlanSupport:
    """What a model's training and held-out subjects say of plans.

    Attributes:
        practice: how the training subjects were treated.
        limits: what was usual among held-out subjects.
        precise: the model knows how precise it is for each subject: then precision decides, and practice warns.
        windows: how many held-out windows the limits rest on.
        reliability: expected and observed share of decisions for each treatment, by bin of the expected one.
        domain: of these subjects; None in files of older versions.
        subjects: how many were trained on.
        given: what the training subjects of all stages were given; what nobody was given is red.
    """

    practice: PropensityModel
    limits: Limits
    precise: bool
    windows: int
    reliability: tuple[Mapping[str, Any], ...] = ()
    domain: Domain | None = None
    subjects: int | None = None
    given: Support | None = None

    @property
    def judges_precision(self) -> bool:
        """Return whether the model says how far its predictions may be off, of any outcome (spec SUPPORT-5)."""
        return bool(np.isfinite(self.limits.spread_LHY).any())

    def ratings(self, panel: Panel, queries: Queries, estimates: Estimates) -> SupportRatings:
        """Return the lights of plans."""
        log_QH = self.practice.log_probability(panel, queries, estimates.mean_QHY)
        limits, spread_QHY = self.limits.lasting(queries.horizon), estimates.sd_QHY / estimates.unit_QY[:, None]
        judged_HY = np.isfinite(limits.spread_LHY).all(axis=0)
        precision_QHY = np.where(judged_HY, _beyond(spread_QHY, limits.spread_LHY), np.int8(NOT_JUDGED))
        precision_QHY[_unmeasured(self.given, queries, precision_QHY.shape[2])] = RED
        rarest_QH = _beyond(-np.minimum.accumulate(log_QH, axis=1), -limits.rarest_LH)
        unseen_QH = np.zeros(log_QH.shape, dtype=bool)
        if self.given is not None:
            unseen_QH = np.maximum.accumulate(self.given.unseen_steps(queries.plan, self.practice.encoding), axis=1)
        rarest_QH = np.where(unseen_QH, np.int8(RED), rarest_QH)
        course_QH = _beyond(-log_QH.cumsum(axis=1), -limits.course_LH)
        practice_QH = np.maximum(rarest_QH, course_QH)
        warns_QH = np.where(unseen_QH, RED, np.minimum(practice_QH, 1)) if self.precise else practice_QH
        rating_QHY = np.maximum(precision_QHY, warns_QH[..., None])
        return SupportRatings(precision_QHY, practice_QH, rarest_QH, course_QH, rating_QHY, spread_QHY, np.exp(log_QH))

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays that a model's artifact holds."""
        practice, limits = self.practice, self.limits
        named = {
            "knots": practice.knots_KSY,
            "intercept": practice.intercept_L,
            "coef": practice.coef_LP,
            "spread": limits.spread_LHY,
            "rarest": limits.rarest_LH,
            "course": limits.course_LH,
        }
        for i, record in enumerate(practice.doses):
            named |= {f"dose_{i}/edges": record.edges, f"dose_{i}/count": record.count}
            named[f"dose_{i}/range"] = np.array([record.low, record.high])
        return {ARRAYS + name: values for name, values in named.items()}

    def to_meta(self) -> dict[str, Any]:
        """Return the facts that it holds beside them."""
        return {
            "precise": self.precise,
            "windows": self.windows,
            "domain": self.domain,
            "subjects": self.subjects,
            "reliability": [dict(row) for row in self.reliability],
        }

    @classmethod
    def read(cls, model: FittedModel, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[np.generic]]) -> Self:
        """Read what `to_meta` and `to_arrays` returned.

        Raises:
            ValueError: it does not fit the model.
            KeyError: something is missing.
            TypeError: something is of another kind.
        """
        named = ("knots", "intercept", "coef", "spread", "rarest", "course")
        knots, intercept, coef, spread, rarest, course = (
            np.asarray(arrays[ARRAYS + name]).astype(np.float64) for name in named
        )
        of_doses = (
            [np.asarray(arrays[f"{ARRAYS}dose_{i}/{key}"]).astype(np.float64) for key in ("edges", "range", "count")]
            for i in range(len(model.schema.treatments.doses))
        )
        records = tuple(DoseRecord(edges, float(ends[0]), float(ends[1]), count) for edges, ends, count in of_doses)
        practice = PropensityModel(model.schema.treatments, model.scaler, knots, intercept, coef, records)
        practice.check(model.schema)
        horizon, outcomes = model.horizon, len(model.schema.outcomes)
        if spread.shape != (2, horizon, outcomes) or {rarest.shape, course.shape} != {(2, horizon)}:
            raise ValueError("limits are not two for each step and outcome")
        if np.isnan(spread).any() or (spread < 0).any() or (spread[1] < spread[0]).any():
            raise ValueError("limits of spread are negative, not numbers or not in order")
        if not all(np.isfinite(of).all() and (of[1] <= of[0]).all() for of in (rarest, course)):
            raise ValueError("limits of probabilities are not finite or not in order")
        rows = tuple(row for row in meta["reliability"] if isinstance(row, Mapping))
        if (domain := meta.get("domain")) not in (None, "source", "target"):
            raise ValueError(f"practice of an unknown domain, {str(domain)[:40]!r}")
        subjects = None if meta.get("subjects") is None else int(meta["subjects"])
        limits, precise, windows = Limits(spread, rarest, course), bool(meta["precise"]), int(meta["windows"])
        return cls(practice, limits, precise, windows, rows, domain, subjects, model.record.support)


def learn_support(
    model: FittedModel, train: Panel, held: HeldOut | None, facts: OutcomeFacts, *, domain: Domain
) -> PlanSupport | None:
    """Learn what is usual from a model's training subjects and from held-out ones; None where nothing can be learnt.

    Args:
        model: just fitted.
        train: the subjects that it was fitted to.
        held: windows of others, and what it says of them.
        facts: of the outcomes.
        domain: of all these subjects.
    """
    practice = PropensityModel.fit(train, model.schema, model.scaler) if held else None
    if held is None or practice is None:
        return None
    windows, estimates = held.windows, held.estimates
    counts_QY = facts.informative(estimates.level_QY)
    if not counts_QY.any():
        return None
    log_QH = practice.log_probability(windows.panel, windows.asked, estimates.mean_QHY)
    limits = Limits.of(estimates.sd_QHY / estimates.unit_QY[:, None], log_QH, counts_QY).lasting(model.horizon)
    if not (has_spread(model) and model.varies):
        limits = replace(limits, spread_LHY=np.full_like(limits.spread_LHY, np.inf))
    precise, count = model.has_distribution, int(counts_QY.any(axis=1).sum())
    rows = tuple(_reliability(practice, windows.panel))
    return PlanSupport(practice, limits, precise, count, rows, domain, train.n_subjects)


def support_of(model: FittedModel) -> PlanSupport | None:
    """Return the support that travels with a model, None where it has none.

    Raises:
        ArtifactError: what its file holds does not fit it.
    """
    return held_by(model, "practice", PlanSupport.read)


def unmeasured(model: FittedModel, queries: Queries) -> NDArray[np.bool_]:
    """Return at which steps ahead no training subject has an outcome, `[Q,H,Y]` (spec SUPPORT-5).

    Raises:
        ArtifactError: what the model's file says of its training subjects is damaged.
    """
    return _unmeasured(model.record.support, queries, len(model.schema.outcomes))


def _unmeasured(given: Support | None, queries: Queries, outcomes: int) -> NDArray[np.bool_]:
    if given is None:
        return np.zeros((len(queries), queries.horizon, outcomes), dtype=bool)
    step_QH = queries.origin[:, None].astype(np.int64) + np.arange(1, queries.horizon + 1)
    return given.unmeasured_at(step_QH, outcomes)


def _beyond(values: Floats, limits_L: Floats) -> Marks:
    """Return how many of the two limits values are beyond."""
    return np.asarray((values > limits_L[0]).astype(np.int8) + (values > limits_L[1]))


def _reliability(practice: PropensityModel, panel: Panel) -> list[dict[str, Any]]:
    """Return expected and observed shares of treated decisions, in tenths of the expected one (spec SUPPORT-3)."""
    queries = decisions_of(panel, most=MOST_DECISIONS)
    if queries is None:
        return []
    rows = []
    expected_MA, given_MA = practice.expected(panel, queries)
    for name, expected_M, given_M in zip(practice.encoding.all_names, expected_MA.T, given_MA.T, strict=True):
        edges = np.unique(np.quantile(expected_M, np.linspace(0, 1, BINS + 1)[1:-1]))
        bin_M = np.searchsorted(edges, expected_M, side="right")
        rows += [
            {
                "treatment": name,
                "expected": float(expected_M[bin_M == b].mean()),
                "observed": float(given_M[bin_M == b].mean()),
                "decisions": int((bin_M == b).sum()),
            }
            for b in np.unique(bin_M)
        ]
    return rows
