"""Data with doses: observed quantiles against those of the model by time since the last dose, and residuals (SCORE-27).

`M` counts answers: an observed outcome of a step of a window of the natural course. `B` counts draws, `P` quantiles.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from costar_cli.config.choices import SetupName
from costar_cli.data import Panel, Queries
from costar_cli.data.schema import PanelSchema, Variable, steps_axis
from costar_cli.data.visits import elapsed, elapsed_dose
from costar_cli.evaluation.sums import LEVELS, Sums
from costar_cli.inference import Bands

Floats = NDArray[np.float64]
Axis = Literal["since_dose", "series"]
Beside = Literal["prediction", "since_dose", "dose"]

QUANTILES: Final = (0.1, 0.5, 0.9)
BAND: Final = 0.9  # by whose half width residuals are divided
MOST_BINS: Final = 8
FEWEST_ANSWERS: Final = 20  # of a bin
MOST_ANSWERS: Final = 10_000
MOST_POINTS: Final = 200  # drawn
DRAWS: Final = 200
SEED: Final = 0
MOST_ALIKE: Final = 0.95


@dataclass(frozen=True, slots=True)
class CheckedQuantile:
    """A quantile of what was observed in a bin, and the median and the limits of what the model expects it to be."""

    quantile: float
    observed: float
    predicted: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class CheckBin:
    """Answers from `low` to `high` of the axis, around `at`, their median."""

    low: float
    high: float
    at: float
    answers: int
    quantiles: tuple[CheckedQuantile, ...]


@dataclass(frozen=True, slots=True)
class ResidualBin:
    """Quantiles of residuals `beside` a prediction, a time since the last dose, or a dose, and the share within ±1."""

    beside: Beside
    low: float
    high: float
    at: float
    answers: int
    quantiles: tuple[float, ...]
    inside: float


@dataclass(frozen=True, slots=True)
class DoseCheck:
    """How one model does on an outcome of a test part by time since the last dose (spec SCORE-27).

    `axis` is that of `bins`; `points` are some residuals: prediction, time since the dose, dose, residual. A residual
    is divided by the half width of the 90 % band on its side.
    """

    setup: SetupName
    label: str
    test: str
    outcome: str
    unit: str
    drug: str
    axis: Axis
    time: str
    level: float
    answers: int
    bins: tuple[CheckBin, ...]
    residuals: tuple[ResidualBin, ...]
    points: tuple[tuple[float, float, float, float], ...]

    @property
    def inside(self) -> tuple[int, int]:
        """Return how many observed quantiles lie within the limits, and how many there are."""
        every = [one for found in self.bins for one in found.quantiles]
        return sum(one.lower <= one.observed <= one.upper for one in every), len(every)

    @property
    def axis_label(self) -> str:
        """Return what the axis of the bins counts."""
        return f"{self.time} since the last dose" if self.axis == "since_dose" else "step of the series"


def has_doses(schema: PanelSchema) -> bool:
    """Return whether a treatment is a dose, the time until the next step aside."""
    return any(dose.elapsed is None for dose in schema.treatments.doses)


def dose_columns(schema: PanelSchema, panel: Panel, windows: Queries, bands: Bands) -> dict[str, NDArray[Any]]:
    """Return, for the steps of windows, how long ago a dose was given, how much of the first, and bands at `LEVELS`.

    `since` and `dose` `[Q,S]` are no number before any dose; `lower` and `upper` `[Q,S,Y,L]`.
    """
    encoding, (subjects, steps) = schema.treatments, panel.outcomes.shape[:2]
    gap_NT = elapsed(encoding, panel.treatments)
    time_NT = np.cumsum(np.ones((subjects, steps)) if gap_NT is None else gap_NT, axis=1)
    time_NT = np.concatenate([np.zeros((subjects, 1)), time_NT[:, :-1]], axis=1)
    amounts = [
        dose.decode(panel.treatments[..., column])
        for dose, column in zip(encoding.doses, encoding.dose_columns, strict=True)
        if dose.elapsed is None
    ]
    given_NT = np.any([amount != 0 for amount in amounts], axis=0)
    last_NT = np.maximum.accumulate(np.where(given_NT, np.arange(steps), -1), axis=1)  # this step's own dose, too
    subject_Q1 = windows.subject[:, None]
    step_QS = windows.origin.astype(np.int64)[:, None] + np.arange(windows.horizon) + 1
    dose_QS = last_NT[subject_Q1, step_QS - 1]  # what is given at the step of the answer acts later
    at = subject_Q1, np.maximum(dose_QS, 0)
    since_QS = np.where(dose_QS >= 0, time_NT[subject_Q1, step_QS] - time_NT[at], np.nan)
    lower, upper = (np.moveaxis(limits, 0, -1).astype(np.float32) for limits in (bands.lower_LQHY, bands.upper_LQHY))
    return {"since": since_QS, "dose": np.where(dose_QS >= 0, amounts[0][at], np.nan), "lower": lower, "upper": upper}


def dose_checks(
    course: Sums, schema: PanelSchema, *, level: float, setup: SetupName, label: str, test: str
) -> Iterator[DoseCheck]:
    """Yield the check of each outcome that is a number, as far as there are enough answers with a band.

    Args:
        course: columns of the natural course with those of `dose_columns`.
        schema: of the panel.
        level: of the limits of quantiles.
        setup: how the model was trained.
        label: what tables call it.
        test: the part that the subjects are of.
    """
    gap = elapsed_dose(schema.treatments)
    drug = next(dose for dose in schema.treatments.doses if dose.elapsed is None)
    time = f"{gap.unit}s" if gap and gap.unit else steps_axis(schema.step)
    names = {
        "setup": setup,
        "label": label,
        "test": test,
        "drug": f"{drug.name} ({drug.unit})" if drug.unit else drug.name,
    }
    for k, outcome in enumerate(schema.outcomes):
        if outcome.kind == "binary":
            continue
        at_80 = LEVELS.index(0.8)  # without such a band nothing is known of the outer quantiles
        limits = np.isfinite(course["lower"][:, :, k, at_80]) & np.isfinite(course["upper"][:, :, k, at_80])
        counts_QS = course["seen"][..., k] & np.isfinite(course["since"]) & limits
        if counts_QS.sum() < FEWEST_ANSWERS:
            continue
        windows = np.flatnonzero(counts_QS.any(axis=1))
        kept_QS = np.zeros_like(counts_QS)
        some = windows[_spread(len(windows), max(1, MOST_ANSWERS // counts_QS.shape[1]))]
        kept_QS[some] = counts_QS[some]
        yield _check(course, k, kept_QS, outcome, level=level, names=names | {"time": time})


def _check(
    course: Sums, k: int, kept_QS: NDArray[np.bool_], outcome: Variable, *, level: float, names: dict[str, Any]
) -> DoseCheck:
    q, s = np.nonzero(kept_QS)
    observed_M = course["observed"][q, s, k].astype(np.float64)
    predicted_M, since_M, dose_M = course["predicted"][q, s, k], course["since"][q, s], course["dose"][q, s]
    lower_ML, upper_ML = (course[name][q, s, k].astype(np.float64) for name in ("lower", "upper"))
    axis: Axis = "since_dose" if len(np.unique(since_M)) > 1 else "series"
    x_M = since_M if axis == "since_dose" else (course["origin"][q] + s + 1).astype(np.float64)
    drawn_BM = draws(observed_M, course["unit"][q], lower_ML, upper_ML)
    bins = []
    for own in bins_of(x_M):
        tails = [(1 - level) / 2, 0.5, (1 + level) / 2]
        seen_P = np.quantile(observed_M[own], QUANTILES)
        low_P, middle_P, high_P = np.quantile(np.quantile(drawn_BM[:, own], QUANTILES, axis=1), tails, axis=1)
        quantiles = tuple(
            CheckedQuantile(*map(float, row)) for row in zip(QUANTILES, seen_P, middle_P, low_P, high_P, strict=True)
        )
        bins.append(CheckBin(*_span(x_M[own]), quantiles))
    at = LEVELS.index(BAND)
    half_M = np.where(observed_M >= predicted_M, upper_ML[:, at] - predicted_M, predicted_M - lower_ML[:, at])
    off_M = observed_M - predicted_M
    known_M = np.isfinite(half_M) & ((half_M > 0) | (off_M == 0))
    residual_M = np.divide(off_M, half_M, out=np.zeros_like(off_M), where=known_M & (half_M > 0))[known_M]
    beside: dict[Beside, Floats] = {"prediction": predicted_M, "since_dose": since_M, "dose": dose_M}
    residuals = [
        ResidualBin(name, *_span(x[known_M][own]), tuple(np.quantile(residual_M[own], QUANTILES).tolist()),
                    float((np.abs(residual_M[own]) <= 1 + 1e-6).mean()))
        for name, x in beside.items()
        for own in bins_of(x[known_M])
    ]  # fmt: skip
    rows_MC = np.stack([x[known_M] for x in beside.values()] + [residual_M], axis=1)
    points = tuple(
        tuple(float(f"{value:.4g}") for value in row) for row in rows_MC[_spread(len(rows_MC), MOST_POINTS)].tolist()
    )
    return DoseCheck(
        **names, outcome=outcome.name, unit=outcome.unit, axis=axis, level=level, answers=len(observed_M),
        bins=tuple(bins), residuals=tuple(residuals), points=points,  # type: ignore[arg-type]
    )  # fmt: skip


def bins_of(x_M: Floats) -> list[NDArray[np.int64]]:
    """Return the rows of each bin: of each value where there are few, else of as many answers each."""
    if not len(x_M):
        return []
    values, which_M, counts = np.unique(x_M, return_inverse=True, return_counts=True)
    most = max(1, min(MOST_BINS, len(x_M) // FEWEST_ANSWERS))
    if len(values) > most or counts.min() < FEWEST_ANSWERS:
        edges = np.unique(np.quantile(x_M, np.arange(1, most) / most))
        which_M = np.searchsorted(edges, x_M, side="left")
    return [np.flatnonzero(which_M == i) for i in np.unique(which_M)]


def _spread(count: int, most: int) -> NDArray[np.int64]:
    """Return at most so many rows, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(np.int64))


def _span(x_M: Floats) -> tuple[float, float, float, int]:
    return float(x_M.min()), float(x_M.max()), float(np.median(x_M)), len(x_M)


def draws(observed_M: Floats, unit_M: NDArray[np.integer], lower_ML: Floats, upper_ML: Floats) -> Floats:
    """Return what the model expects in place of what was observed `[B,M]`, drawn from its bands.

    A band of each level is two quantiles; between them lie straight lines, beyond the last a normal tail, unless limits
    stay at what is possible. Draws of a unit are as alike as its own standardised errors are (one Gaussian factor).
    """
    for limits_ML in (lower_ML, upper_ML):  # infinite limits, for too few calibration subjects, are the last finite
        for i in range(1, len(LEVELS)):
            limits_ML[:, i] = np.where(np.isfinite(limits_ML[:, i]), limits_ML[:, i], limits_ML[:, i - 1])
    value_MP = np.concatenate([lower_ML[:, ::-1], upper_ML], axis=1)
    level_L = np.array(LEVELS)
    at_P = np.concatenate([(1 - level_L[::-1]) / 2, (1 + level_L) / 2])
    below_M, upto_M = (value_MP < observed_M[:, None]).sum(axis=1), (value_MP <= observed_M[:, None]).sum(axis=1)
    pit_M = np.interp((below_M + upto_M) / 2 - 0.5, np.arange(len(at_P)), at_P)
    alike = likeness(ndtri(pit_M), unit_M)
    rng = np.random.default_rng(SEED)
    units, number_M = np.unique(unit_M, return_inverse=True)
    own_BM, shared_BU = rng.standard_normal((DRAWS, len(observed_M))), rng.standard_normal((DRAWS, len(units)))
    u_BM = ndtr(np.sqrt(alike) * shared_BU[:, number_M] + np.sqrt(1 - alike) * own_BM)
    left_BM = np.clip(np.searchsorted(at_P, u_BM) - 1, 0, len(at_P) - 2)
    share_BM = np.clip((u_BM - at_P[left_BM]) / np.diff(at_P)[left_BM], 0, 1)
    row_M = np.arange(len(observed_M))
    low_BM = value_MP[row_M, left_BM]
    drawn_BM = low_BM + share_BM * (value_MP[row_M, left_BM + 1] - low_BM)
    middle_M = value_MP[:, len(LEVELS) - 1 : len(LEVELS) + 1].mean(axis=1)
    for last, before, beyond_BM in ((0, 1, u_BM < at_P[0]), (-1, -2, u_BM > at_P[-1])):
        # without tails, draws heap up there, and quantiles of several answers fall into a gap or onto the heap
        open_BM = beyond_BM & (value_MP[:, last] != value_MP[:, before])
        b, m = np.nonzero(open_BM)
        tail = ndtri(u_BM[b, m]) / ndtri(at_P[last])
        drawn_BM[b, m] = middle_M[m] + tail * (value_MP[m, last] - middle_M[m])
    return np.asarray(drawn_BM)


def likeness(z_M: Floats, unit_M: NDArray[np.integer]) -> float:
    """Return the intraclass correlation of standardised errors within units, at least 0 (one-way analysis)."""
    _, number_M = np.unique(unit_M, return_inverse=True)
    n_U = np.bincount(number_M).astype(np.float64)
    units, count = len(n_U), len(z_M)
    if units < 2 or count <= units:
        return 0.0
    mean_U = np.bincount(number_M, weights=z_M) / n_U
    within = float(((z_M - mean_U[number_M]) ** 2).sum()) / (count - units)
    between = float((n_U * (mean_U - z_M.mean()) ** 2).sum()) / (units - 1)
    size = (count - float((n_U**2).sum()) / count) / (units - 1)
    total = between + (size - 1) * within
    return float(np.clip((between - within) / total, 0.0, MOST_ALIKE)) if total > 0 else 0.0
