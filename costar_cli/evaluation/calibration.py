"""How well bands keep their level: coverage, width, interval score, CRPS and PIT (spec SCORE-14 to 18).

`L` are the nominal levels of the reliability plot, `K` those that are reported, `B` bins of the probability integral
transform, `G` groups of answers, `U` units (clusters, or subjects that are units of their own).
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from costar_cli.evaluation.metrics import AVERAGED_STEPS, PerStep
from costar_cli.evaluation.sums import BINS, LEVELS, REPORTED, TAILS, Sums, columns_of
from costar_cli.inference.resampling import FEWEST_UNITS

QUANTILES: Final = np.sort([*TAILS, 0.5])  # of the bounds of bands at all levels, and of what they lie around
_ALPHA: Final = 1 - np.array(LEVELS)
_AT: Final = [LEVELS.index(level) for level in REPORTED]
_ROUNDING: Final = 1e-9  # of shares
_BATCH: Final = 4_096  # answers whose bands are held at once: 0.6 MB per bound and step of the plan

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Bounds = tuple[Floats, Floats]  # lower and upper `[L,Q,H,Y]`
Groups = Mapping[str, NDArray[np.integer]]  # by name, `[Q,H,Y]` or what becomes it by broadcasting; below 0: no group


def interval_scores(lower_LQHY: Floats, upper_LQHY: Floats, truth_QHY: Floats) -> Floats:
    """Return the interval score of each band at `LEVELS` (spec SCORE-16); infinite where the band is."""
    alpha_L = _ALPHA.reshape(-1, *[1] * truth_QHY.ndim)
    scores: Floats = upper_LQHY - lower_LQHY + 2 / alpha_L * _missed(lower_LQHY, upper_LQHY, truth_QHY)
    return scores


def crps(lower_LQHY: Floats, upper_LQHY: Floats, centre_QHY: Floats, truth_QHY: Floats) -> Floats:
    """Return the CRPS of the distribution with these bands, by the trapezoidal rule over levels (spec SCORE-17).

    It ends at the outermost finite band; NaN where no level has one.
    """
    alpha_L = _ALPHA.reshape(-1, *[1] * truth_QHY.ndim)
    lower, upper = _ended(lower_LQHY, upper_LQHY)
    missed = _missed(lower, upper, truth_QHY)
    height_LQHY = np.concatenate(
        [np.abs(truth_QHY - centre_QHY)[None], alpha_L / 2 * (upper - lower) + missed, missed[-1:]]
    )
    widths = -np.diff(np.array([1.0, *_ALPHA, 0.0]))
    result: Floats = np.tensordot(widths, (height_LQHY[:-1] + height_LQHY[1:]) / 2, axes=1)
    return np.where(np.isfinite(result), result, np.nan)


def wasserstein(lower_LQHY: Floats, upper_LQHY: Floats, centre_QHY: Floats, true_PQHY: Floats) -> Floats:
    """Return the Wasserstein-1 distance of the distribution with these bands to that with these quantiles (SCORE-26).

    The true quantiles are at `QUANTILES`. NaN where no level has a finite band.
    """
    lower, upper = _ended(lower_LQHY, upper_LQHY)
    apart_PQHY = np.abs(np.concatenate([lower[::-1], centre_QHY[None], upper]) - true_PQHY)
    result: Floats = np.trapezoid(apart_PQHY, QUANTILES, axis=0)
    result += QUANTILES[0] * (apart_PQHY[0] + apart_PQHY[-1])  # as far beyond the outermost quantiles as at them
    return np.where(np.isfinite(result), result, np.nan)


def _ended(lower_LQHY: Floats, upper_LQHY: Floats) -> Bounds:
    """Return bands with the outermost finite one in the place of those that are wider."""
    known_LQHY = np.isfinite(lower_LQHY) & np.isfinite(upper_LQHY)
    level_L = np.arange(len(LEVELS)).reshape(-1, *[1] * (lower_LQHY.ndim - 1))
    last_LQHY = np.maximum.accumulate(np.where(known_LQHY, level_L, 0), axis=0)
    lower, upper = (np.take_along_axis(bound, last_LQHY, axis=0) for bound in (lower_LQHY, upper_LQHY))
    return lower, upper


def _missed(lower_LQHY: Floats, upper_LQHY: Floats, truth_QHY: Floats) -> Floats:
    """Return by how much each band misses the truth."""
    missed: Floats = np.maximum(lower_LQHY - truth_QHY, 0) + np.maximum(truth_QHY - upper_LQHY, 0)
    return missed


def covered(lower: Floats, upper: Floats, truth: Floats) -> Floats:
    """Return 1 where a band covers the answer and 0 where not; not a number where there is no band (spec SCORE-15)."""
    known = np.isfinite(lower) & np.isfinite(upper)
    return np.where(known, (lower <= truth) & (truth <= upper), np.nan)


def pit_bins(
    lower_LQHY: Floats, upper_LQHY: Floats, centre_QHY: Floats, truth_QHY: Floats
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and the last bin of the PIT in which each answer lies: several where bounds coincide with it."""
    bounds = (lower_LQHY, centre_QHY[None], upper_LQHY)
    below: NDArray[np.int64] = sum(((part < truth_QHY).sum(axis=0) for part in bounds), np.zeros(truth_QHY.shape, int))
    up_to: NDArray[np.int64] = sum(((part <= truth_QHY).sum(axis=0) for part in bounds), np.zeros(truth_QHY.shape, int))
    return below, up_to


def add_answers(
    sums: Sums,
    folder: str,
    subject_Q: NDArray[np.integer],
    truth_QHY: Floats,
    centre_QHY: Floats,
    bands: Callable[[slice], Bounds],
    *,
    scored_QHY: Bools,
    informative_QHY: Bools,
    denominator_Y: Floats,
    groups: Groups | None = None,
    stay_QH: Floats | None = None,
    known: Callable[[slice], Floats] | None = None,
) -> None:
    """Add how bands did on the answers to some queries, in place; all answers of a subject and step together.

    Of a subject's informative answers of a step (spec SCORE-14), `count [N,H]` is the number, `coverage`, `width` and
    `score` `[K,N,H]` are means at the reported levels, and `crps` and `w1` `[N,H]` are means; zeros where there are
    none.
    `absorbed [N,H]` and `absorbed_coverage [K,N,H]` are number and coverage of its other answers. `reliability [L,H]`
    and `pit [B,H]` are sums over subjects of the mean coverage at every level, and of the share of answers in each bin.
    Width, score and CRPS are divided by each outcome's denominator, as errors are. `mass [N,H]` is how much a subject
    counts at a step: 1 where it has an informative answer, and the mean weight of these where answers are weighed, by
    which means and sums are then multiplied. Where a band that counts is infinite, means and sums of its level are not
    finite, and those of `pit` are not numbers. Of each group, `subjects [G,H]` counts subjects with an answer, of whom
    `coverage [K,G,H]` and `squares [G,H]` sum mean coverage and squared error.

    Args:
        sums: columns to add to.
        folder: where they are: `bands/scores/<kind of question>`.
        subject_Q: counts the rows of these sums.
        truth_QHY: what happened, in the units of the data, as the predictions are.
        centre_QHY: the predictions around which bands lie.
        bands: returns the bands of a slice of the queries at all `LEVELS`.
        scored_QHY: which answers count at all.
        informative_QHY: which of them say something; the others are summed apart.
        denominator_Y: what widths are divided by: ones, or the outcomes' sd in the standardised space.
        groups: groupings of the answers, by the names of their folders in `groups`.
        stay_QH: weights against dropout, one by default.
        known: returns the true quantiles of a slice of the queries at `QUANTILES`, where there is a column `w1`.
    """
    own = columns_of(sums, folder)
    n, horizon = len(own["count"]), truth_QHY.shape[1]
    says_QHY, rest_QHY = scored_QHY & informative_QHY, scored_QHY & ~informative_QHY
    weight_QHY, count_NH = weights(subject_Q, says_QHY, n)
    other_QHY, absorbed_NH = weights(subject_Q, rest_QHY, n)
    stay_QH1 = 1.0 if stay_QH is None else stay_QH[..., None]
    own["mass"][:, :horizon] += (count_NH > 0) if stay_QH is None else _sum_by(subject_Q, weight_QHY * stay_QH1, n)
    weight_QHY = weight_QHY * stay_QH1
    own["count"][:, :horizon] += count_NH
    own["absorbed"][:, :horizon] += absorbed_NH
    grouped = {}
    for name, group in (groups or {}).items():
        group_QHY, of_group_QHY = np.broadcast_to(group, says_QHY.shape), np.zeros(says_QHY.shape)
        for g in range(int(group_QHY.max(initial=-1)) + 1):  # weights that sum to one for each subject, step and group
            of_group_QHY += weights(subject_Q, says_QHY & (group_QHY == g), n)[0]
        grouped[name] = columns_of(sums, f"{folder}/groups/{name}"), group_QHY, stay_QH1 * of_group_QHY
    truth_QHY = np.where(scored_QHY, truth_QHY, centre_QHY)  # unscored answers may be anything
    for first in range(0, len(subject_Q), _BATCH):
        rows = slice(first, first + _BATCH)
        lower_LQHY, upper_LQHY = bands(rows)
        truth, centre, weight, by = truth_QHY[rows], centre_QHY[rows], weight_QHY[rows], subject_Q[rows]
        covered_LQHY = covered(lower_LQHY, upper_LQHY, truth)
        scores_LQHY = interval_scores(lower_LQHY, upper_LQHY, truth)
        for k, at in enumerate(_AT):
            width, score = ((values / denominator_Y) for values in (upper_LQHY[at] - lower_LQHY[at], scores_LQHY[at]))
            for name, values in (("coverage", covered_LQHY[at]), ("width", width), ("score", score)):
                own[name][k, :, :horizon] += _sum_by(by, _times(weight, values), n)
            own["absorbed_coverage"][k, :, :horizon] += _sum_by(by, _times(other_QHY[rows], covered_LQHY[at]), n)
        crps_QHY = crps(lower_LQHY, upper_LQHY, centre, truth) / denominator_Y
        own["crps"][:, :horizon] += _sum_by(by, _times(weight, crps_QHY), n)
        if known is not None:
            w1_QHY = wasserstein(lower_LQHY, upper_LQHY, centre, known(rows)) / denominator_Y
            own["w1"][:, :horizon] += _sum_by(by, _times(weight, w1_QHY), n)
        for sums_H, covered_QHY in zip(own["reliability"], covered_LQHY, strict=True):
            sums_H[:horizon] += _times(weight, covered_QHY).sum(axis=(0, 2))
        _add_pit(own["pit"], pit_bins(lower_LQHY, upper_LQHY, centre, truth), weight)
        without_H = ((weight > 0) & np.isnan(covered_LQHY).any(axis=0)).any(axis=(0, 2))
        own["pit"][:, :horizon][:, without_H] = np.nan
        squares_QHY = ((truth - centre) / denominator_Y) ** 2
        for of_group, group_QHY, of_group_QHY in grouped.values():
            _add_group(of_group, group_QHY[rows], of_group_QHY[rows], covered_LQHY[_AT], squares_QHY)


def weights(subject_Q: NDArray[np.integer], counted_QHY: Bools, n: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return weights of answers that sum to one for each subject and step, and how many answers `[N,H]` those are."""
    count_NH = np.rint(_sum_by(subject_Q, counted_QHY.astype(np.float64), n)).astype(np.int64)
    weight_QHY: Floats = counted_QHY / np.maximum(count_NH, 1)[subject_Q][..., None]
    return weight_QHY, count_NH


def _sum_by(subject_Q: NDArray[np.integer], values_QHY: Floats, n: int) -> Floats:
    """Return the sums `[N,H]` over the queries and outcomes of each subject."""
    columns = [np.bincount(subject_Q, weights=column, minlength=n) for column in values_QHY.sum(axis=-1).T]
    return np.stack(columns, axis=-1)


def _times(weight: Floats, values: NDArray[np.generic]) -> Floats:
    """Return a product that is zero where the weight is, whatever the value."""
    product: Floats = np.multiply(weight, values, out=np.zeros_like(weight), where=weight > 0)
    return product


def _add_pit(pit_BH: Floats, bins: tuple[NDArray[np.int64], NDArray[np.int64]], weight_QHY: Floats) -> None:
    """Add weights to their bins, those of several bins in equal parts."""
    first, last = bins
    each = weight_QHY / (last - first + 1)
    for h in range(weight_QHY.shape[1]):
        change = np.bincount(first[:, h].ravel(), weights=each[:, h].ravel(), minlength=BINS + 1)
        change -= np.bincount(last[:, h].ravel() + 1, weights=each[:, h].ravel(), minlength=BINS + 1)
        pit_BH[:, h] += change.cumsum()[:BINS]


def _add_group(
    sums: Sums, group_QHY: NDArray[np.integer], weight_QHY: Floats, covered_KQHY: Floats, squares_QHY: Floats
) -> None:
    groups = len(sums["subjects"])
    for h in range(weight_QHY.shape[1]):
        weight, group = weight_QHY[:, h].ravel(), np.maximum(group_QHY[:, h].ravel(), 0)  # outside all: weight zero
        rows = [(sums["subjects"], np.ones_like(weight)), (sums["squares"], squares_QHY[:, h].ravel())]
        rows += [
            (of_K, covered_QHY[:, h].ravel()) for of_K, covered_QHY in zip(sums["coverage"], covered_KQHY, strict=True)
        ]
        for sums_GH, values in rows:
            sums_GH[:, h] += np.bincount(group, weights=_times(weight, values), minlength=groups)


def shares(sums: Floats, counts: Floats | NDArray[np.int64] | int) -> Floats:
    """Return sums of weights over what they sum to at most: from 0 to 1, in spite of rounding; NaN of nothing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        result: Floats = np.clip(sums / counts, 0, 1)
    return result


def share_over_subjects(
    mean_NH: Floats, mass_NH: Floats, unit_N: NDArray[np.int64]
) -> tuple[PerStep, PerStep, PerStep]:
    """Return the average over subjects of their own shares, with its 95 % limits over units (spec SCORE-15).

    `mass_NH` is how much each of them counts, by which `mean_NH` is multiplied. None where no subject has an answer or
    there is no band, and in limits of fewer than 20 units.
    """
    has_NH = mass_NH > 0
    units, of_N = np.unique(unit_N, return_inverse=True)
    subjects_H = mass_NH.sum(axis=0)
    share_H = shares(np.where(has_NH, mean_NH, 0).sum(axis=0), subjects_H)
    with np.errstate(invalid="ignore"):
        moved_NH = np.where(has_NH, mean_NH - share_H * mass_NH, 0.0) / subjects_H
    moved_UH, asked_UH = np.zeros((len(units), len(share_H))), np.zeros((len(units), len(share_H)), dtype=bool)
    np.add.at(moved_UH, of_N, moved_NH)
    np.logical_or.at(asked_UH, of_N, has_NH)
    steps = slice(0, AVERAGED_STEPS)
    average = float(share_H[steps].mean())
    pairs = [_wilson(p, moved, asked) for p, moved, asked in zip(share_H, moved_UH.T, asked_UH.T, strict=True)]
    bounds = _wilson(average, moved_UH[:, steps].mean(axis=1), np.asarray(asked_UH[:, steps].any(axis=1)))
    lower, upper = np.array(pairs).T
    return PerStep.of(share_H, average), PerStep.of(lower, bounds[0]), PerStep.of(upper, bounds[1])


def _wilson(share: float, moved_U: Floats, asked_U: Bools) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share, for as many independent answers as would have its standard error."""
    units = int(asked_U.sum())
    if units < FEWEST_UNITS or not np.isfinite(share):
        return np.nan, np.nan
    variance = units / (units - 1) * float((moved_U**2).sum())
    certain = min(share, 1 - share) < _ROUNDING or variance < _ROUNDING**2
    answers = float(units) if certain else share * (1 - share) / variance
    z2 = float(stdtrit(units - 1, 0.975)) ** 2
    middle = (share + z2 / (2 * answers)) / (1 + z2 / answers)
    half = np.sqrt(z2) / (1 + z2 / answers) * np.sqrt(max(share * (1 - share), 0) / answers + z2 / (4 * answers**2))
    return float(max(0.0, middle - half)), float(min(1.0, middle + half))
