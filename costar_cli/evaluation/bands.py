"""Scoring a model's calibrated bands and its lights on a test part, while its errors are summed (spec SCORE-19, 20)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Queries
from costar_cli.evaluation.calibrated import Asked, BandSums
from costar_cli.evaluation.calibration import LEVELS, BandScores, covered
from costar_cli.evaluation.dropout import StayWeights
from costar_cli.evaluation.lights import LEVEL, LightSums
from costar_cli.inference import Calibration, Estimates, OutcomeFacts, PlanSupport, estimate
from costar_cli.inference.estimates import PredictFn
from costar_cli.inference.outcomes import levels
from costar_cli.methods.base import FittedModel
from costar_cli.methods.shared.doses import dose_table

QUARTERS: Final = ("lowest quarter", "second quarter", "third quarter", "highest quarter")

MOST_ANSWERED: Final = 16_384  # queries of a set whose bands are scored; subjects count once, however often asked
MOST_DIED_OUT: Final = 4_096

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Grouping:
    """Groups of answers by what was known at their origins: the group of every subject and step `[N,T,Y]`, from 0."""

    labels: tuple[str, ...]
    group_NTY: Ints


def groupings(panel: Panel, model: FittedModel, facts: OutcomeFacts) -> dict[str, Grouping]:
    """Return what answers about a panel are grouped by: quarters of the level, and the number of treatments so far."""
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
    return {
        "level at the origin": Grouping(QUARTERS, quarter_NTY),
        "steps with treatment so far": Grouping(tuple(_ranges(tops)), counted_NTY),
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


def _ranges(tops: Sequence[int]) -> list[str]:
    """Return in words which counts lie in which group, up to and with each of the tops."""
    words, first = [], 0
    for top in tops:
        words.append(str(top) if top == first else f"{first} to {top}")
        first = top + 1
    return [*words, f"{first} or more" if first else "any"]


@dataclass(frozen=True)
class BandTest:
    """Sums, by kind of question, of how the bands and lights of one model do on the queries about a test panel.

    A model without a calibration has no bands, one that knows nothing of practice no lights. What was observed has
    `weights`, where there are any.
    """

    model: FittedModel
    facts: OutcomeFacts
    panel: Panel
    horizon: int
    denominator_Y: NDArray[np.float64]
    calibration: Calibration | None = None
    support: PlanSupport | None = None
    weights: StayWeights | None = None

    @cached_property
    def lights(self) -> dict[Asked, LightSums]:
        """Return errors by light, by kind of question."""
        return {}

    @cached_property
    def groupings(self) -> Mapping[str, Grouping]:
        """Return the groups by which coverage is told."""
        return groupings(self.panel, self.model, self.facts)

    @cached_property
    def sums(self) -> dict[Asked, BandScores]:
        """Return what was added, by kind of question."""
        return {}

    @cached_property
    def died_out(self) -> dict[Asked, Ints]:
        """Return how many answers there are, and how many of them say nothing, by kind of question."""
        return {}

    def choose(self, asked: Asked, queries: Queries, steps_H: NDArray[np.bool_]) -> Queries:
        """Return the queries of a set that are scored: of those that say something and of the others, some per subject.

        `queries.subject` counts the rows of the test panel.
        """
        self._begin(asked)
        says_QY = self.facts.informative(levels(self.panel, queries))
        if queries.scored is not None:
            steps_Q = (queries.scored & steps_H).sum(axis=1)
            counts = np.array([steps_Q.sum() * says_QY.shape[1], steps_Q @ (~says_QY).sum(axis=1)])
            self.died_out[asked] = self.died_out.get(asked, 0) + counts
        kinds = ((says_QY.any(axis=1), MOST_ANSWERED), (~says_QY.any(axis=1), MOST_DIED_OUT))
        some = [np.flatnonzero(of_Q)[some_of_each(queries.subject[of_Q], most)] for of_Q, most in kinds]
        return queries.take(np.sort(np.concatenate(some)))

    def _begin(self, asked: Asked) -> None:
        """Have sums of a kind of question, of all subjects, if there are bands."""
        if self.calibration is not None and asked not in self.sums:
            sizes = {name: len(grouping.labels) for name, grouping in self.groupings.items()}
            self.sums[asked] = BandScores.zeros(subjects=self.panel.n_subjects, horizon=self.horizon, groups=sizes)

    def estimate(self, panel: Panel, queries: Queries, ask: PredictFn) -> Estimates:
        """Return estimates of queries about some of the subjects; `ask` predicts as a model's `rollout` does."""
        floor = self.calibration.floor if self.calibration else None
        return estimate(self.model, panel, queries, self.facts, ask=ask, floor=floor)

    def add(self, asked: Asked, queries: Queries, found: Estimates, *, steps_H: NDArray[np.bool_]) -> None:
        """Add the answers to queries of whole subjects; `queries.subject` counts the rows of the test panel."""
        assert queries.outcomes is not None and queries.scored is not None  # noqa: S101, PT018 - as when errors are summed
        shape = queries.outcomes.shape
        scored_QHY = np.broadcast_to((queries.scored & steps_H)[..., None], shape)
        says_QHY = np.broadcast_to(self.facts.informative(found.level_QY)[:, None], shape)
        stay_QH = self.weights.at(queries) if self.weights and asked != "counterfactual" else None
        if self.support is not None:
            self._add_lights(asked, queries, found, scored_QHY & says_QHY, stay_QH)
        calibration = self.calibration
        if calibration is None:
            return

        def bounds(rows: slice) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            bands = calibration.bands(found.take(rows), LEVELS)
            return bands.lower_LQHY, bands.upper_LQHY

        at = queries.subject, queries.origin
        self.sums[asked].add(
            queries.subject,
            queries.outcomes.astype(np.float64),
            found.mean_QHY,
            bounds,
            scored_QHY=scored_QHY,
            informative_QHY=says_QHY,
            denominator_Y=self.denominator_Y,
            groups={name: grouping.group_NTY[at][:, None] for name, grouping in self.groupings.items()},
            stay_QH=stay_QH,
        )

    def _add_lights(
        self,
        asked: Asked,
        queries: Queries,
        found: Estimates,
        counts_QHY: NDArray[np.bool_],
        stay_QH: NDArray[np.float64] | None,
    ) -> None:
        assert self.support is not None and queries.outcomes is not None  # noqa: S101, PT018 - asked where they are
        truth_QHY = queries.outcomes.astype(np.float64)
        covered_QHY = np.full(truth_QHY.shape, np.nan)
        if self.calibration is not None:
            bands = self.calibration.bands(found, [LEVEL])
            covered_QHY = covered(bands.lower_LQHY[0], bands.upper_LQHY[0], truth_QHY)
        square_QHY = ((truth_QHY - found.mean_QHY) / self.denominator_Y) ** 2
        lights = self.support.lights(self.panel, queries, found)
        sums = self.lights.setdefault(asked, LightSums(self.horizon))
        sums.add(queries.subject, lights, square_QHY, covered_QHY, counts_QHY, stay_QH)

    @property
    def told(self) -> BandSums:
        """Return everything that was added."""
        cluster = self.panel.cluster
        return BandSums(
            scores={kind: replace(sums, cluster=cluster) for kind, sums in self.sums.items()},
            lights=self.lights,
            absorbed_share={kind: float(gone / max(answers, 1)) for kind, (answers, gone) in self.died_out.items()},
            labels={name: grouping.labels for name, grouping in self.groupings.items()} if self.sums else {},
        )
