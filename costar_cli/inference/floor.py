"""What a model says of held-out subjects, and the floor of its scale that is chosen on them (spec BAND-9)."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel
from costar_cli.data.windows import FactualWindows, factual_windows
from costar_cli.inference.conformal import BINS, GRID, table
from costar_cli.inference.estimates import FLOOR, Answers, Estimates, answers_of
from costar_cli.inference.outcomes import OutcomeFacts
from costar_cli.methods.base import FittedModel

MOST: Final = 65_536  # windows of held-out subjects
LEAST_SUBJECTS: Final = 400  # before windows of each are left out
# 5 % stays where spread is worth nothing (linear system, ICU, retail); five members of the growth GRU on tumours get
# 0.2 %. Halving the subjects once more for the choice would cost more coverage than choosing among five values does.
FLOORS = (FLOOR, 0.02, 0.005, 0.002, 0.0005)
LEVEL: Final = 0.9  # of the bands by which floors are compared
LEAST_CLUSTERS: Final = 20  # fewer clusters are too few for any level that is of use: subjects are taken instead

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class HeldOut:
    """Factual windows of held-out subjects, and what a model says of them, with the floor that was chosen."""

    windows: FactualWindows
    estimates: Estimates
    floor: float = FLOOR


def held_out(model: FittedModel, panel: Panel, facts: OutcomeFacts) -> HeldOut | None:
    """Ask a model about factual windows of held-out subjects; None where no subject has a step to predict."""
    # As many subjects as can be asked at every origin, spread evenly. A few windows of each would be none after a
    # history of one step, and quantiles of other lengths miss there; where only short series had some, these would
    # stand for all.
    origins_N = np.maximum(panel.length - model.horizon - panel.first_origin, 0)
    rows = np.flatnonzero(origins_N)
    most = max(LEAST_SUBJECTS, int(MOST / origins_N[rows].mean())) if len(rows) else 0
    if len(rows) > most:
        panel = panel.take(rows[np.linspace(0, len(rows) - 1, most).round().astype(np.int64)])
    windows = factual_windows(panel, model.horizon, most=MOST)
    if windows is None:
        return None
    answers = answers_of(model, windows.panel, windows.asked, facts)
    floor = best_floor(windows, answers, facts)
    return HeldOut(windows, answers.estimates(floor), floor)


def best_floor(windows: FactualWindows, answers: Answers, facts: OutcomeFacts) -> float:
    """Return the floor whose bands have the least mean score; the first where none can be told from it."""
    if not answers.depends_on_floor:
        return FLOOR
    return min(FLOORS, key=lambda floor: mean_score(windows, answers.estimates(floor), facts))


def units_of(windows: FactualWindows) -> tuple[NDArray[np.int64], bool]:
    """Return whose each subject's weight is `[N]`: its own, or that of its cluster (True) where there are enough."""
    cluster_N = windows.panel.cluster
    if cluster_N is not None and len(np.unique(cluster_N)) >= LEAST_CLUSTERS:
        return cluster_N.astype(np.int64), True
    return np.arange(windows.panel.n_subjects), False


def mean_score(windows: FactualWindows, found: Estimates, facts: OutcomeFacts) -> float:
    """Return the mean interval score of 90 % bands in units of errors, each half calibrated on the other (BAND-9).

    It is infinite where a half has too few subjects for the level, at any step and of any outcome.
    """
    assert windows.queries.outcomes is not None  # noqa: S101 - rolling origins have answers
    error_QHY = np.abs(windows.queries.outcomes - found.mean_QHY)
    counts_QHY = windows.observed_QHY & facts.informative(found.level_QY)[:, None]
    unit_Q, by = units_of(windows)[0][windows.queries.subject], found.binned_by
    bin_QHY, bins = found.bins(by), BINS[by]
    scores = []
    for h, o in np.ndindex(error_QHY.shape[1:]):
        in_Q = counts_QHY[:, h, o]
        error_M, sd_M = (np.asarray(values[in_Q, h, o]) for values in (error_QHY, found.sd_QHY))
        bin_M, unit_M = bin_QHY[in_Q, h, o], found.unit_QY[in_Q, o]
        units, row_M, count = np.unique(unit_Q[in_Q], return_inverse=True, return_counts=True)
        first_M = (np.random.default_rng(0).permutation(len(units)) % 2 == 0)[row_M]
        half_M = np.empty_like(error_M)
        for mine_M in (first_M, ~first_M):
            radius_LB, _ = table(error_M[~mine_M] / sd_M[~mine_M], row_M[~mine_M], bin_M[~mine_M], bins=bins)
            half_M[mine_M] = radius_LB[np.searchsorted(GRID, LEVEL - 1e-9), bin_M[mine_M]] * sd_M[mine_M]
        score_M = 2 * half_M + 2 / (1 - LEVEL) * np.maximum(error_M - half_M, 0.0)
        scores.append(float(np.average(score_M / unit_M, weights=1 / count[row_M])) if len(units) else np.inf)
    return float(np.mean(scores))
