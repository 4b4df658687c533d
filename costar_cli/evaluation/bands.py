"""Scoring a model's calibrated bands and ratings on a test part, while its errors are summed (spec SCORE-19, 20)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Queries
from costar_cli.evaluation.calibrated import Kind, folder_of
from costar_cli.evaluation.calibration import QUANTILES, add_answers, covered, weights
from costar_cli.evaluation.dropout import StayWeights
from costar_cli.evaluation.foreign import StatedBands
from costar_cli.evaluation.sums import LEVELS, RATINGS, blank
from costar_cli.inference import (
    NOT_JUDGED,
    SUPPORT_LEVELS,
    Bands,
    Calibration,
    OutcomeFacts,
    PlanSupport,
    SupportRatings,
    estimate,
)
from costar_cli.inference.outcomes import levels
from costar_cli.methods.base import FittedModel, PredictFn
from costar_cli.methods.shared.doses import dose_table

QUARTERS: Final = ("lowest quarter", "second quarter", "third quarter", "highest quarter")

RATED_LEVEL: Final = 0.9  # of the bands whose coverage is shown by rating
# Coverage of the mixed model on tumours then differs by at most 0.3 points from that on all 400,000 questions.
MOST_ANSWERED: Final = 16_384  # queries of a set whose bands are scored; subjects count once, however often asked
MOST_DIED_OUT: Final = 4_096

KnownQuantiles = Callable[[Queries, NDArray[np.float64]], NDArray[np.float64]]
"""Quantiles `[P,Q,H]` of the outcome under plans, given the history, at shares `[P]`."""

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def groupings(panel: Panel, model: FittedModel, facts: OutcomeFacts) -> dict[str, tuple[list[str], Ints]]:
    """Return what answers about a panel are grouped by: quarters of the level, and the number of treatments so far.

    Each grouping has the labels of its groups, and the group of every subject and step `[N,T,Y]`, from 0, by what was
    known then.
    """
    level_NTY = panel.outcomes.astype(np.float64)
    shape = (-1, level_NTY.shape[2])
    says_NTY = panel.observed_outcomes & facts.informative(level_NTY.reshape(shape)).reshape(level_NTY.shape)
    quarter_NTY = np.zeros(level_NTY.shape, dtype=np.int64)
    for o in range(shape[1]):
        inside = level_NTY[..., o][says_NTY[..., o]]
        if len(inside):
            edges = np.quantile(inside, (0.25, 0.5, 0.75))
            quarter_NTY[..., o] = np.searchsorted(edges, level_NTY[..., o])
    given_NT = (panel.treatments @ dose_table(model.schema.treatments)).any(axis=-1) & panel.observed
    count_NT: Ints = np.cumsum(given_NT, axis=1) - given_NT  # before the origin's own treatment
    asked = np.sort(count_NT[says_NTY.any(axis=-1)])
    tops = sorted({int(asked[len(asked) * i // 4]) for i in (1, 2, 3)} - {int(asked[-1])}) if len(asked) else []
    counted_NTY = np.broadcast_to(np.searchsorted(tops, count_NT)[..., None], level_NTY.shape)
    labels, first = [], 0
    for top in tops:
        labels.append(str(top) if top == first else f"{first} to {top}")
        first = top + 1
    labels.append(f"{first} or more" if first else "any")
    return {
        "level at the origin": ([*QUARTERS], quarter_NTY),
        "steps with treatment so far": (labels, counted_NTY),
    }


def some_of_each(subject_Q: NDArray[np.integer], most: int) -> Ints:
    """Return rows in order, at most `most`, as many of each subject as it has of them, drawn by a fixed seed."""
    if len(subject_Q) <= most:
        return np.arange(len(subject_Q))
    order = np.lexsort((np.random.default_rng(0).random(len(subject_Q)), subject_Q))
    _, first, count = np.unique(subject_Q[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(first, count)
    quota = np.searchsorted([np.minimum(count, n).sum() for n in range(1, int(count.max()) + 1)], most, side="right")
    return np.sort(order[rank < max(quota, 1)])


@dataclass(frozen=True)
class BandTest:
    """Adds to `sums` how the bands and ratings of one model do on the queries about a test panel.

    A model without a calibration has no bands, one that knows nothing of practice no ratings. What was observed has
    `weights`, where there are any; `quantiles` are those of the simulator. `absorbed` counts answers, and those that
    say nothing, by kind of question.
    """

    model: FittedModel
    facts: OutcomeFacts
    panel: Panel
    horizon: int
    denominator_Y: NDArray[np.float64]
    calibration: Calibration | StatedBands | None = None
    support: PlanSupport | None = None
    weights: StayWeights | None = None
    quantiles: KnownQuantiles | None = None
    sums: dict[str, NDArray[Any]] = field(default_factory=dict)
    absorbed: dict[Kind, Ints] = field(default_factory=dict)

    @cached_property
    def groupings(self) -> Mapping[str, tuple[list[str], Ints]]:
        """Return the groups by which coverage is shown."""
        return groupings(self.panel, self.model, self.facts) if self.calibration else {}

    def choose(self, kind: Kind, queries: Queries, steps_H: NDArray[np.bool_]) -> Queries:
        """Return the queries of a set that are scored: of those that say something and of the others, some per subject.

        `queries.subject` counts the rows of the test panel.
        """
        folder = folder_of(kind)
        if self.calibration is not None and f"{folder}/count" not in self.sums:
            shape = {"N": self.panel.n_subjects, "H": self.horizon}
            self.sums.update(blank(folder, **shape))
            for name, (labels, _) in self.groupings.items():
                self.sums.update(blank(folder_of(kind, name), **shape, G=len(labels)))
            if kind == "counterfactual" and self.quantiles is not None:
                self.sums[f"{folder}/w1"] = np.zeros((self.panel.n_subjects, self.horizon))
            if self.panel.cluster is not None:
                self.sums[f"{folder}/cluster"] = self.panel.cluster
        says_QY = self.facts.informative(levels(self.panel, queries))
        if queries.scored is not None:
            steps_Q = (queries.scored & steps_H).sum(axis=1)
            counts = np.array([steps_Q.sum() * says_QY.shape[1], steps_Q @ (~says_QY).sum(axis=1)])
            self.absorbed[kind] = self.absorbed.get(kind, 0) + counts
        parts = ((says_QY.any(axis=1), MOST_ANSWERED), (~says_QY.any(axis=1), MOST_DIED_OUT))
        some = [np.flatnonzero(of_Q)[some_of_each(queries.subject[of_Q], most)] for of_Q, most in parts]
        return queries.take(np.sort(np.concatenate(some)))

    def bands_of(self, panel: Panel, local: Queries, ask: PredictFn) -> Bands:
        """Return the bands of queries about a panel, at all levels; there must be a calibration."""
        assert isinstance(self.calibration, Calibration)  # noqa: S101 - asked where the model has one
        floor = self.calibration.floor
        return self.calibration.bands(estimate(self.model, panel, local, self.facts, ask=ask, floor=floor), LEVELS)

    def add(self, kind: Kind, queries: Queries, panel: Panel, local: Queries, ask: PredictFn, steps_H: Bools) -> None:
        """Add the answers to queries of whole subjects.

        Args:
            kind: of the questions.
            queries: with answers; `subject` counts the rows of the test panel.
            panel: some of its subjects.
            local: the same queries without answers; `subject` counts the rows of `panel`.
            ask: predicts as a model's `rollout` does.
            steps_H: the steps that this query set serves.
        """
        assert queries.outcomes is not None and queries.scored is not None  # noqa: S101, PT018 - as when errors are summed
        calibration = self.calibration
        estimates = estimate(
            self.model, panel, local, self.facts, ask=ask, floor=calibration.floor if calibration else None
        )
        truth_QHY = queries.outcomes.astype(np.float64)
        scored_QHY = np.broadcast_to((queries.scored & steps_H)[..., None], truth_QHY.shape)
        says_QHY = np.broadcast_to(self.facts.informative(estimates.level_QY)[:, None], truth_QHY.shape)
        stay_QH = self.weights.at(queries) if self.weights and kind != "counterfactual" else None
        if self.support is not None:
            covered_QHY = np.full(truth_QHY.shape, np.nan)
            if calibration is not None:
                bands = calibration.bands(estimates, [RATED_LEVEL])
                covered_QHY = covered(bands.lower_LQHY[0], bands.upper_LQHY[0], truth_QHY)
            square_QHY = ((truth_QHY - estimates.mean_QHY) / self.denominator_Y) ** 2
            ratings = self.support.ratings(self.panel, queries, estimates)
            own = self.horizon, queries.subject, ratings, square_QHY, covered_QHY, scored_QHY & says_QHY, stay_QH
            add_ratings(self.sums, f"bands/lights/{kind}/sums", *own)
        if calibration is None:
            return

        def bounds(rows: slice) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            bands = calibration.bands(estimates.take(rows), LEVELS)
            return bands.lower_LQHY, bands.upper_LQHY

        def known(rows: slice) -> NDArray[np.float64]:
            assert self.quantiles is not None  # noqa: S101 - it is asked only then
            return self.quantiles(queries.take(rows), QUANTILES)[..., None]

        at = queries.subject, queries.origin
        groups = {name.replace(" ", "_"): group_NTY[at][:, None] for name, (_, group_NTY) in self.groupings.items()}
        add_answers(
            self.sums, folder_of(kind), queries.subject, truth_QHY, estimates.mean_QHY, bounds,
            scored_QHY=scored_QHY, informative_QHY=says_QHY, denominator_Y=self.denominator_Y,
            groups=groups, stay_QH=stay_QH, known=known if f"{folder_of(kind)}/w1" in self.sums else None,
        )  # fmt: skip


def add_ratings(
    sums: dict[str, NDArray[Any]],
    folder: str,
    horizon: int,
    subject_Q: NDArray[np.integer],
    ratings: SupportRatings,
    square_QHY: NDArray[np.float64],
    covered_QHY: NDArray[np.float64],
    counts_QHY: Bools,
    stay_QH: NDArray[np.float64] | None = None,
) -> None:
    """Add answers by rating and step, in place: their number, weights, squared errors, and what bands cover `[4,C,H]`.

    Args:
        sums: columns to add to, all answers of a subject and step together.
        folder: where they are, a column per kind of rating.
        horizon: H.
        subject_Q: whose answers they are; each has a weight of one at every step.
        ratings: of the queries.
        square_QHY: squared errors, divided by each outcome's denominator.
        covered_QHY: 1 where the band covers the answer, 0 where it does not; not a number where there is no band.
        counts_QHY: which answers are scored and say something.
        stay_QH: weights against dropout, one by default.
    """
    practice_QHY = np.broadcast_to(ratings.practice_QH[..., None], counts_QHY.shape)
    weight_QHY, _ = weights(subject_Q, counts_QHY, int(subject_Q.max(initial=-1)) + 1)
    weight_QHY = weight_QHY if stay_QH is None else weight_QHY * stay_QH[..., None]
    square_M, covered_M, weight_M = (values[counts_QHY] for values in (square_QHY, covered_QHY, weight_QHY))
    rows = (np.ones(len(weight_M)), weight_M, weight_M * square_M, weight_M * covered_M)
    step_M = np.broadcast_to(np.arange(counts_QHY.shape[1])[:, None], counts_QHY.shape)[counts_QHY]
    shape = len(SUPPORT_LEVELS), horizon
    for name, rating_QHY in zip(RATINGS, (ratings.precision_QHY, practice_QHY, ratings.rating_QHY), strict=True):
        rating_M = rating_QHY[counts_QHY].astype(np.int64)
        judged_M = rating_M != NOT_JUDGED
        cell_J = (rating_M * horizon + step_M)[judged_M]
        added = [
            np.bincount(cell_J, weights=row[judged_M], minlength=shape[0] * shape[1]).reshape(shape) for row in rows
        ]
        before = sums.get(f"{folder}/{name}", np.zeros((len(rows), *shape)))
        sums[f"{folder}/{name}"] = before + np.asarray(added, dtype=np.float64)
