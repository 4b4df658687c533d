"""The natural course: what models predict under the treatments that were given, beside what was observed.

Means over windows of the test subjects (spec AVERAGE-5), by step since the origin and by step of the series.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.choices import SetupName
from costar_cli.data import Panel, Queries
from costar_cli.data.queries import rolling_origin
from costar_cli.data.schema import Variable
from costar_cli.evaluation.metrics import finite
from costar_cli.evaluation.sums import LEVELS, Sums
from costar_cli.inference import Bands
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


@dataclass(frozen=True, eq=False)
class Course:
    """Windows to be predicted, and what takes their mean predictions `[Q,S,Y]` and, if asked for, bands at `LEVELS`."""

    windows: Queries
    means_QSY: Floats
    bands: Bands | None

    @classmethod
    def blank(cls, windows: Queries, outcomes: int, *, bands: bool) -> "Course":
        """Return it as it is before any prediction."""
        shape = (len(windows), windows.horizon, outcomes)
        limits = (np.full((len(LEVELS), *shape), np.nan) for _ in range(2))
        return cls(windows, np.full(shape, np.nan), Bands(LEVELS, *limits) if bands else None)

    def put(self, rows: NDArray[np.integer], predicted_RQSY: NDArray[np.floating], bands: Bands | None) -> None:
        """Take what is predicted of some windows."""
        self.means_QSY[rows] = predicted_RQSY.mean(axis=0, dtype=np.float64)
        if self.bands is not None and bands is not None:
            self.bands.lower_LQHY[:, rows], self.bands.upper_LQHY[:, rows] = bands.lower_LQHY, bands.upper_LQHY


def course_windows(panel: Panel, horizon: int, subjects: range | None = None) -> Queries | None:
    """Return windows of a panel one behind the other, so that each step is predicted once, without answers.

    They are those of at most a thousand subjects, evenly spread, and of these of `subjects` alone if given; None where
    no series has a step ahead.
    """
    rows = np.unique(np.linspace(0, panel.n_subjects - 1, MOST_SUBJECTS).round().astype(np.int64))
    some = panel.take(rows)
    longest = min(horizon, int((some.length - some.first_origin).max(initial=1)) - 1)
    queries = rolling_origin(some, longest) if longest else None
    if queries is None:
        return None
    chosen = queries.take((queries.origin - some.first_origin[queries.subject]) % longest == 0)
    windows = replace(chosen, subject=rows[chosen.subject].astype(np.int32), outcomes=None, scored=None)
    return windows if subjects is None else windows.of_subjects(subjects)


def course_columns(
    panel: Panel, windows: Queries, predicted_QSY: Floats, weight_QS: Floats | None = None
) -> dict[str, NDArray[Any]]:
    """Return what was observed in windows beside the mean predictions, steps counting one by default.

    `subject`, `unit` and `origin` `[Q]`: whose they are, the cluster of these, or the subject itself, and where they
    begin. `observed`, where it was `seen`, and `predicted` `[Q,S,Y]`; `weight [Q,S]` is how much each step counts.
    """
    subject_Q, origin_Q = windows.subject, windows.origin.astype(np.int64)
    step_QS = origin_Q[:, None] + np.arange(windows.horizon) + 1
    at = subject_Q[:, None], step_QS
    return {
        "subject": subject_Q,
        "unit": (subject_Q if panel.cluster is None else panel.cluster[subject_Q]).astype(np.int64),
        "origin": origin_Q,
        "observed": panel.outcomes[at],
        "seen": np.asarray(panel.observed_outcomes[at]),
        "predicted": predicted_QSY,
        "weight": np.ones(step_QS.shape) if weight_QS is None else weight_QS,
    }


def natural_course(
    course: Sums, outcomes: Sequence[Variable], *, level: float, setup: SetupName, label: str, test: str
) -> NaturalCourse:
    """Return what predictions come to beside what was observed.

    Args:
        course: the columns that `course_columns` returned.
        outcomes: what they are called.
        level: of the intervals, which resample subjects, or clusters.
        setup: how the model was trained.
        label: what tables call it.
        test: the part that the subjects are of.
    """
    origin_Q = course["origin"]
    step_QS = np.broadcast_to(np.arange(course["weight"].shape[1]), course["weight"].shape)
    places: Mapping[Axis, NDArray[np.int64]] = {"origin": step_QS, "series": origin_Q[:, None] + step_QS + 1}
    units, unit_Q = np.unique(course["unit"], return_inverse=True)
    unit_QS = np.broadcast_to(unit_Q[:, None], step_QS.shape)
    steps = []
    for (axis, place_QS), (k, outcome) in product(places.items(), enumerate(outcomes)):
        count = int(place_QS.max()) + 1
        seen_QS = course["seen"][..., k]
        at, weight_M = (unit_QS[seen_QS], place_QS[seen_QS]), course["weight"][seen_QS]
        counts, seen, predicted = (np.zeros((len(units), count)) for _ in range(3))
        np.add.at(counts, at, weight_M)
        np.add.at(seen, at, weight_M * course["observed"][..., k][seen_QS].astype(np.float64))
        np.add.at(predicted, at, weight_M * course["predicted"][..., k][seen_QS])
        enough = (counts > 0).sum(axis=0) >= FEWEST_UNITS
        halves = np.full((2, count), np.nan)  # of the widths of intervals
        for half, sums in zip(halves, (seen, predicted - seen), strict=True):
            moved_BK = np.abs(moved_means(sums, counts, replicates=REPLICATES, seed=SEED))
            half[enough] = np.nanquantile(moved_BK[:, enough], level, axis=0)
        total, answers = counts.sum(axis=0), np.bincount(at[1], minlength=count)
        for i in np.flatnonzero(answers >= (FEWEST_ANSWERS if axis == "series" else 1)).tolist():
            observed, expected = float(seen[:, i].sum() / total[i]), float(predicted[:, i].sum() / total[i])
            centres = observed, expected - observed
            limits = [
                finite(centre + sign * half[i])
                for centre, half in zip(centres, halves, strict=True)
                for sign in (-1, 1)
            ]
            of = axis, i + (axis == "origin"), outcome.name, outcome.unit, int(answers[i])
            steps.append(CourseStep(*of, observed, expected, expected - observed, *limits))
    return NaturalCourse(setup, label, test, len(origin_Q), len(np.unique(course["subject"])), level, tuple(steps))
