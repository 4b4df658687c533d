"""How well bands keep their level: coverage, width, interval score, CRPS and PIT (spec SCORE-14 to 18).

`L` are the nominal levels of the reliability plot, `K` those that are reported, `B` bins of the probability integral
transform, `G` groups of answers, `U` units (clusters, or subjects that are units of their own).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from costar_cli.evaluation.metrics import AVERAGED_STEPS
from costar_cli.inference.resampling import FEWEST_UNITS

LEVELS: Final = tuple(round(0.05 * i, 2) for i in range(1, 20))
REPORTED: Final = (0.5, 0.8, 0.9, 0.95)  # each is one of `LEVELS`
BINS: Final = 2 * len(LEVELS) + 2  # of the PIT: between neighbouring quantiles, and beyond the outermost
_AT: Final = [LEVELS.index(level) for level in REPORTED]
_ROUNDING: Final = 1e-9  # of shares
_BATCH: Final = 4_096  # answers whose bands are held at once: 0.6 MB per bound and step of the plan

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Bounds = tuple[Floats, Floats]  # lower and upper `[L,Q,H,Y]`
Groups = Mapping[str, NDArray[np.integer]]  # by name, `[Q,H,Y]` or what becomes it by broadcasting; below 0: no group


def interval_scores(lower_LQHY: Floats, upper_LQHY: Floats, truth_QHY: Floats) -> Floats:
    """Return the interval score of each band at `LEVELS` (spec SCORE-16); infinite where the band is."""
    scores: Floats = upper_LQHY - lower_LQHY + 2 / _alpha(truth_QHY) * _missed(lower_LQHY, upper_LQHY, truth_QHY)
    return scores


def crps(lower_LQHY: Floats, upper_LQHY: Floats, centre_QHY: Floats, truth_QHY: Floats) -> Floats:
    """Return the CRPS of the distribution with these bands, by the trapezoidal rule over levels (spec SCORE-17).

    It ends at the outermost finite band; NaN where no level has one.
    """
    known_LQHY = np.isfinite(lower_LQHY) & np.isfinite(upper_LQHY)
    last_LQHY = np.maximum.accumulate(np.where(known_LQHY, _level_axis(truth_QHY, range(len(LEVELS))), 0), axis=0)
    lower, upper = (np.take_along_axis(bound, last_LQHY, axis=0) for bound in (lower_LQHY, upper_LQHY))
    missed = _missed(lower, upper, truth_QHY)
    height_LQHY = np.concatenate(
        [np.abs(truth_QHY - centre_QHY)[None], _alpha(truth_QHY) / 2 * (upper - lower) + missed, missed[-1:]]
    )
    nodes = np.array([1.0, *(1 - level for level in LEVELS), 0.0])
    widths = -np.diff(nodes)
    result: Floats = np.tensordot(widths, (height_LQHY[:-1] + height_LQHY[1:]) / 2, axes=1)
    return np.where(np.isfinite(result), result, np.nan)


def _missed(lower_LQHY: Floats, upper_LQHY: Floats, truth_QHY: Floats) -> Floats:
    """Return by how much each band misses the truth."""
    missed: Floats = np.maximum(lower_LQHY - truth_QHY, 0) + np.maximum(truth_QHY - upper_LQHY, 0)
    return missed


def _alpha(truth_QHY: Floats) -> Floats:
    return 1 - _level_axis(truth_QHY, LEVELS)


def _level_axis(like_QHY: Floats, values_L: Iterable[float]) -> NDArray[Any]:
    """Return a value per level as an array that goes with `[L,Q,H,Y]`."""
    return np.array(list(values_L)).reshape(-1, *[1] * like_QHY.ndim)


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


@dataclass(frozen=True, slots=True)
class GroupScores:
    """Sums over subjects of one group each `[G]` of their mean coverage `[K,G,H]` and squared error `[G,H]`.

    `subjects [G,H]` counts subjects with an answer of the group.
    """

    subjects: Floats
    coverage: Floats
    squares: Floats

    @classmethod
    def zeros(cls, groups: int, horizon: int) -> Self:
        """Return sums to which nothing was added yet."""
        return cls(np.zeros((groups, horizon)), np.zeros((len(REPORTED), groups, horizon)), np.zeros((groups, horizon)))


@dataclass(frozen=True, slots=True)
class BandScores:
    """How the bands of one model did, per subject and step, so that subjects can be resampled without scoring again.

    Of a subject's informative answers of a step (spec SCORE-14), `count [N,H]` is the number, `coverage`, `width` and
    `score` `[K,N,H]` are means at the reported levels, and `crps [N,H]` is the mean; zeros where there are none.
    `absorbed [N,H]` and `absorbed_coverage [K,N,H]` are number and coverage of its other answers. `reliability [L,H]`
    and `pit [B,H]` are sums over subjects of the mean coverage at every level, and of the share of answers in each bin.
    Width, score and CRPS are divided by each outcome's denominator, as errors are. `cluster [N]` numbers the units to
    which subjects belong, where they are not units of their own. `mass [N,H]` is how much a subject counts at a step: 1
    where it has an informative answer, and the mean weight of these where answers are weighed, by which means and sums
    are then multiplied. Where a band that counts is infinite, means and sums of its level are not finite, and those of
    `pit` are not numbers.
    """

    ALONG: ClassVar[Mapping[str, int]] = {
        **dict.fromkeys(("coverage", "width", "score", "absorbed_coverage"), 1),
        **dict.fromkeys(("count", "mass", "crps", "absorbed", "cluster"), 0),
    }

    count: NDArray[np.int64]
    mass: Floats
    coverage: Floats
    width: Floats
    score: Floats
    crps: Floats
    absorbed: NDArray[np.int64]
    absorbed_coverage: Floats
    reliability: Floats
    pit: Floats
    groups: Mapping[str, GroupScores] = field(default_factory=dict)
    cluster: NDArray[np.int64] | None = None

    @classmethod
    def zeros(cls, *, subjects: int, horizon: int, groups: Mapping[str, int] | None = None) -> Self:
        """Return sums to which nothing was added yet; `groups` says how many each grouping has."""
        shape = subjects, horizon
        return cls(
            count=np.zeros(shape, dtype=np.int64),
            mass=np.zeros(shape),
            coverage=np.zeros((len(REPORTED), *shape)),
            width=np.zeros((len(REPORTED), *shape)),
            score=np.zeros((len(REPORTED), *shape)),
            crps=np.zeros(shape),
            absorbed=np.zeros(shape, dtype=np.int64),
            absorbed_coverage=np.zeros((len(REPORTED), *shape)),
            reliability=np.zeros((len(LEVELS), horizon)),
            pit=np.zeros((BINS, horizon)),
            groups={name: GroupScores.zeros(count, horizon) for name, count in (groups or {}).items()},
        )

    def add(
        self,
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
    ) -> None:
        """Add the answers to some queries, in place; all answers of a subject and step are added together.

        Args:
            subject_Q: counts the rows of these sums.
            truth_QHY: what happened, in the units of the data, as the predictions are.
            centre_QHY: the predictions around which bands lie.
            bands: returns the bands of a slice of the queries at all `LEVELS`.
            scored_QHY: which answers count at all.
            informative_QHY: which of them say something; the others are summed apart.
            denominator_Y: what widths are divided by: ones, or the outcomes' sd in the standardised space.
            groups: groupings of the answers, as `zeros` was told of.
            stay_QH: weights against dropout, one by default.
        """
        n, horizon = len(self.count), truth_QHY.shape[1]
        told_QHY, rest_QHY = scored_QHY & informative_QHY, scored_QHY & ~informative_QHY
        weight_QHY, count_NH = weights(subject_Q, told_QHY, n)
        apart_QHY, absorbed_NH = weights(subject_Q, rest_QHY, n)
        stay_QH1 = 1.0 if stay_QH is None else stay_QH[..., None]
        self.mass[:, :horizon] += (count_NH > 0) if stay_QH is None else _sum_by(subject_Q, weight_QHY * stay_QH1, n)
        weight_QHY = weight_QHY * stay_QH1
        self.count[:, :horizon] += count_NH
        self.absorbed[:, :horizon] += absorbed_NH
        group_weights = {
            name: stay_QH1 * _group_weights(subject_Q, np.broadcast_to(group, told_QHY.shape), told_QHY, n)
            for name, group in (groups or {}).items()
        }
        truth_QHY = np.where(scored_QHY, truth_QHY, centre_QHY)  # unscored answers may be anything
        for first in range(0, len(subject_Q), _BATCH):
            rows = slice(first, first + _BATCH)
            lower_LQHY, upper_LQHY = bands(rows)
            truth, centre, weight = truth_QHY[rows], centre_QHY[rows], weight_QHY[rows]
            covered_LQHY = covered(lower_LQHY, upper_LQHY, truth)
            scores_LQHY = interval_scores(lower_LQHY, upper_LQHY, truth)

            def into(sums_NH: Floats, values: Floats, weight: Floats, subject: NDArray[np.integer]) -> None:
                sums_NH[:, :horizon] += _sum_by(subject, _times(weight, values), n)

            by = subject_Q[rows]
            for k, at in enumerate(_AT):
                into(self.coverage[k], covered_LQHY[at], weight, by)
                into(self.width[k], (upper_LQHY[at] - lower_LQHY[at]) / denominator_Y, weight, by)
                into(self.score[k], scores_LQHY[at] / denominator_Y, weight, by)
                into(self.absorbed_coverage[k], covered_LQHY[at], apart_QHY[rows], by)
            into(self.crps, crps(lower_LQHY, upper_LQHY, centre, truth) / denominator_Y, weight, by)
            for sums_H, covered_QHY in zip(self.reliability, covered_LQHY, strict=True):
                sums_H[:horizon] += _times(weight, covered_QHY).sum(axis=(0, 2))
            _add_pit(self.pit, pit_bins(lower_LQHY, upper_LQHY, centre, truth), weight)
            without_H = ((weight > 0) & np.isnan(covered_LQHY).any(axis=0)).any(axis=(0, 2))
            self.pit[:, :horizon][:, without_H] = np.nan
            squares_QHY = ((truth - centre) / denominator_Y) ** 2
            for name, own_QHY in group_weights.items():
                group = np.broadcast_to((groups or {})[name], told_QHY.shape)[rows]
                _add_group(self.groups[name], group, own_QHY[rows], covered_LQHY[_AT], squares_QHY)

    @property
    def units(self) -> NDArray[np.int64]:
        """Return the unit `[N]` to which each subject belongs."""
        return np.arange(len(self.count)) if self.cluster is None else self.cluster


def weights(subject_Q: NDArray[np.integer], counted_QHY: Bools, n: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return weights of answers that sum to one for each subject and step, and how many answers `[N,H]` those are."""
    count_NH = np.rint(_sum_by(subject_Q, counted_QHY.astype(np.float64), n)).astype(np.int64)
    weight_QHY: Floats = counted_QHY / np.maximum(count_NH, 1)[subject_Q][..., None]
    return weight_QHY, count_NH


def _group_weights(
    subject_Q: NDArray[np.integer], group_QHY: NDArray[np.integer], counted_QHY: Bools, n: int
) -> Floats:
    """Return weights of answers that sum to one for each subject, step and group."""
    weight_QHY = np.zeros(counted_QHY.shape)
    for group in range(int(group_QHY.max(initial=-1)) + 1):
        weight_QHY += weights(subject_Q, counted_QHY & (group_QHY == group), n)[0]
    return weight_QHY


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
    sums: GroupScores, group_QHY: NDArray[np.integer], weight_QHY: Floats, covered_KQHY: Floats, squares_QHY: Floats
) -> None:
    groups = len(sums.subjects)
    for h in range(weight_QHY.shape[1]):
        weight, group = weight_QHY[:, h].ravel(), np.maximum(group_QHY[:, h].ravel(), 0)  # outside all: weight zero

        def total(values: NDArray[np.generic], weight: Floats = weight, group: NDArray[np.integer] = group) -> Floats:
            return np.bincount(group, weights=_times(weight, values), minlength=groups).astype(np.float64)

        sums.subjects[:, h] += total(np.ones_like(weight))
        sums.squares[:, h] += total(squares_QHY[:, h].ravel())
        for k, covered_QHY in enumerate(covered_KQHY):
            sums.coverage[k, :, h] += total(covered_QHY[:, h].ravel())


@dataclass(frozen=True, slots=True)
class Share:
    """A share as an average over subjects, per step `[H]` and over tau = 1..6, with 95 % intervals where there are any.

    NaN where no subject has an answer or there is no band, and in bounds of fewer than 20 units.
    """

    steps: Floats
    average: float
    lower: Floats
    upper: Floats
    bounds: tuple[float, float]


def shares(sums: Floats, counts: Floats | NDArray[np.int64] | int) -> Floats:
    """Return sums of weights over what they sum to at most: from 0 to 1, in spite of rounding; NaN of nothing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        result: Floats = np.clip(sums / counts, 0, 1)
    return result


def share_over_subjects(mean_NH: Floats, mass_NH: Floats, unit_N: NDArray[np.int64]) -> Share:
    """Return the average over subjects of their own shares, with an interval over units (spec SCORE-15).

    `mass_NH` is how much each of them counts, by which `mean_NH` is multiplied.
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
    return Share(share_H, average, lower, upper, bounds)


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
