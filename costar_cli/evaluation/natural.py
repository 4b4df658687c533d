"""The natural course: what models predict under the treatments that were given, beside what was observed.

Means over windows of the test subjects (spec AVERAGE-5), by step since the origin and by step of the series.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Queries
from costar_cli.data.queries import rolling_origin
from costar_cli.data.schema import Variable
from costar_cli.evaluation.setups import SetupName
from costar_cli.inference.resampling import FEWEST_UNITS, moved_means

Floats = NDArray[np.float64]
Axis = Literal["origin", "series"]
REPLICATES: Final = 500
SEED: Final = 0
MOST_SUBJECTS: Final = 1_000
FEWEST_ANSWERS: Final = 10  # of a step of the series that is shown


@dataclass(frozen=True, slots=True)
class CourseStep:
    """A step of the natural course: means over windows with an observed outcome there, in the units of the data.

    `axis` says what `step` counts: steps since the `origin`, from 1, or steps of the `series`, from 0. The limits are
    those of `observed`, and of `difference`, predicted minus observed; None where the units are too few.
    """

    axis: Axis
    step: int
    outcome: str
    unit: str
    answers: int
    observed: float
    predicted: float
    difference: float
    observed_lower: float | None
    observed_upper: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True, slots=True)
class NaturalCourse:
    """The natural course of a test part, as one model predicts it."""

    setup: SetupName
    label: str
    test: str
    windows: int
    subjects: int
    level: float
    steps: tuple[CourseStep, ...]


@dataclass(frozen=True, eq=False, slots=True)
class CourseQuestions:
    """Windows of a test panel one behind the other, so that each step is predicted once, and what a model predicts."""

    panel: Panel
    queries: Queries
    mean_QHY: Floats

    @classmethod
    def of(cls, panel: Panel, horizon: int, own: range | None = None) -> Self | None:
        """Return the windows of at most a thousand subjects, evenly spread; None where no series has a step ahead.

        Given `own`, those of the thousand that are among these subjects.
        """
        rows = np.unique(np.linspace(0, panel.n_subjects - 1, MOST_SUBJECTS).round().astype(np.int64))
        some = panel.take(rows)
        longest = min(horizon, int((some.length - some.first_origin).max(initial=1)) - 1)
        queries = rolling_origin(some, longest) if longest else None
        if queries is None:
            return None
        chosen = queries.take((queries.origin - some.first_origin[queries.subject]) % longest == 0)
        asked = replace(chosen, subject=rows[chosen.subject].astype(np.int32), outcomes=None, scored=None)
        asked = asked if own is None else asked.of_subjects(own)
        return cls(panel, asked, np.full((len(asked), longest, panel.outcomes.shape[2]), np.nan))

    def answers(self, weight_QH: Floats | None = None) -> "CourseAnswers":
        """Return predictions, once a model has made them, beside what was observed; steps count one by default."""
        subject_Q, origin_Q = self.queries.subject, self.queries.origin.astype(np.int64)
        step_QH = origin_Q[:, None] + np.arange(self.queries.horizon) + 1
        at = subject_Q[:, None], step_QH
        return CourseAnswers(
            subject=subject_Q,
            unit=(subject_Q if self.panel.cluster is None else self.panel.cluster[subject_Q]).astype(np.int64),
            origin=origin_Q,
            observed=self.panel.outcomes[at],
            seen=np.asarray(self.panel.observed_outcomes[at]),
            predicted=self.mean_QHY,
            weight=np.ones(step_QH.shape) if weight_QH is None else weight_QH,
        )


@dataclass(frozen=True, eq=False, slots=True)
class CourseAnswers:
    """Windows of some subjects, what was observed in them, and what a model predicts.

    `subject`, `unit` and `origin` `[Q]`: whose they are, the cluster of these, or the subject itself, and where they
    begin. `observed`, where it was `seen`, and `predicted` `[Q,H,Y]`; `weight [Q,H]` is how much each step counts.
    """

    ALONG: ClassVar[Mapping[str, int]] = dict.fromkeys(
        ("subject", "unit", "origin", "observed", "seen", "predicted", "weight"), 0
    )

    subject: NDArray[np.int32]
    unit: NDArray[np.int64]
    origin: NDArray[np.int64]
    observed: NDArray[np.float32]
    seen: NDArray[np.bool_]
    predicted: Floats
    weight: Floats

    def summary(
        self, outcomes: Sequence[Variable], *, level: float, setup: SetupName, label: str, test: str
    ) -> NaturalCourse:
        """Return what the predictions come to.

        Args:
            outcomes: what they are called.
            level: of the intervals, which resample subjects, or clusters.
            setup: how the model was trained.
            label: what tables call it.
            test: the part that the subjects are of.
        """
        step_QH = np.broadcast_to(np.arange(self.weight.shape[1]), self.weight.shape)
        places: Mapping[Axis, NDArray[np.int64]] = {"origin": step_QH, "series": self.origin[:, None] + step_QH + 1}
        steps = [step for axis, place_QH in places.items() for step in self._steps(axis, place_QH, outcomes, level)]
        subjects = len(np.unique(self.subject))
        return NaturalCourse(setup, label, test, len(self.origin), subjects, level, tuple(steps))

    def _steps(
        self, axis: Axis, place_QH: NDArray[np.int64], outcomes: Sequence[Variable], level: float
    ) -> Iterator[CourseStep]:
        """Yield the means at each place, an outcome after another."""
        count = int(place_QH.max()) + 1
        units, unit_Q = np.unique(self.unit, return_inverse=True)
        unit_QH = np.broadcast_to(unit_Q[:, None], place_QH.shape)
        for k, outcome in enumerate(outcomes):
            seen_QH = self.seen[..., k]
            at, weight_M = (unit_QH[seen_QH], place_QH[seen_QH]), self.weight[seen_QH]
            counts, seen, said = (np.zeros((len(units), count)) for _ in range(3))
            np.add.at(counts, at, weight_M)
            np.add.at(seen, at, weight_M * self.observed[..., k][seen_QH].astype(np.float64))
            np.add.at(said, at, weight_M * self.predicted[..., k][seen_QH])
            halves = [_half(sums, counts, level) for sums in (seen, said - seen)]
            total, answers = counts.sum(axis=0), np.bincount(at[1], minlength=count)
            for i in np.flatnonzero(answers >= (FEWEST_ANSWERS if axis == "series" else 1)).tolist():
                found, expected = float(seen[:, i].sum() / total[i]), float(said[:, i].sum() / total[i])
                apart, (half, half_apart) = expected - found, (_known(half[i]) for half in halves)
                yield CourseStep(
                    axis, i + (axis == "origin"), outcome.name, outcome.unit, int(answers[i]), found, expected, apart,
                    *((None, None) if half is None else (found - half, found + half)),
                    *((None, None) if half_apart is None else (apart - half_apart, apart + half_apart)),
                )  # fmt: skip


def _half(sums_UK: Floats, counts_UK: Floats, level: float) -> Floats:
    """Return half the widths of intervals of means, not a number where too few units have the step."""
    moved_BK = np.abs(moved_means(sums_UK, counts_UK, replicates=REPLICATES, seed=SEED))
    enough_K = (counts_UK > 0).sum(axis=0) >= FEWEST_UNITS
    half_K = np.full(len(enough_K), np.nan)
    half_K[enough_K] = np.nanquantile(moved_BK[:, enough_K], level, axis=0)
    return half_K


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
