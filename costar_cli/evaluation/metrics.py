"""The one metric: squared errors per subject or period and step, and the RMSE from them (spec SCORE-1 to 4, 21)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Queries
from costar_cli.errors import DataError, TrainingError
from costar_cli.evaluation.sums import ERRORS

# The tables average tau = 1..6 even where more steps are trained (spec SCORE-3).
AVERAGED_STEPS = 6

Floats = NDArray[np.float64]
Truth = Literal["counterfactual", "factual"]


def average_over_steps(rmse_H: Floats) -> Floats:
    """Return the mean over tau = 1..6 (or all steps, if fewer) along the last axis; NaN if one of them is unknown."""
    average: Floats = rmse_H[..., :AVERAGED_STEPS].mean(axis=-1)
    return average


@dataclass(frozen=True, slots=True)
class PerStep:
    """A statistic for each step, and of the average over tau = 1..6; None where it is unknown."""

    steps: tuple[float | None, ...]
    average: float | None

    @classmethod
    def of(cls, steps_H: NDArray[np.floating], average: float) -> Self:
        """Return the statistic with NaN as None."""
        return cls(tuple(finite(value) for value in steps_H), finite(average))

    @property
    def array(self) -> Floats:
        """Return the steps and, behind them, the average `[H+1]`; NaN where unknown."""
        return np.array([*self.steps, self.average], dtype=np.float64)

    def at(self, step: int | None) -> float | None:
        """Return the statistic of a step, counted from 0, or of the average; None for steps that there are not."""
        if step is None:
            return self.average
        return self.steps[step] if step < len(self.steps) else None

    def ratio_to(self, limit: "PerStep") -> "PerStep":
        """Return errors divided by those of the best possible prediction; None where it has no error, or none known."""
        pairs = [*zip(self.steps, limit.steps, strict=False), (self.average, limit.average)]
        *steps, average = (own / best if own is not None and best else None for own, best in pairs)
        return PerStep(tuple(steps), average)

    def where(self, other: "PerStep") -> "PerStep":
        """Return the statistic where another one is known."""
        pairs = zip(self.steps, other.steps, strict=True)
        steps = tuple(None if known is None else value for value, known in pairs)
        return PerStep(steps, None if other.average is None else self.average)


@dataclass(frozen=True, slots=True)
class SquaredErrors:
    """Sums of squared errors per subject, step and outcome, so that subjects can be resampled without scoring again.

    Step h is tau = h+1. The RMSE of a step is `sqrt(sum of squared errors over subjects and outcomes / count)`: the
    squared error is summed over the outcomes, and the divisor counts scored (query, step) pairs, not outcomes.
    Pairs that have weights count as much as these say.

    Shapes: `members [R,N,H,dy]`, `ensemble [N,H,dy]` (error of the mean prediction over members), `count [N,H]`;
    `cluster [N]` numbers the units to which subjects belong, where they are not units of their own; `weight [N,H]` sums
    the weights of the pairs, where they have any.
    """

    members: Floats
    ensemble: Floats
    count: NDArray[np.int64]
    cluster: NDArray[np.int64] | None = None
    weight: Floats | None = None

    @classmethod
    def zeros(cls, *, members: int, subjects: int, horizon: int, outcomes: int, weighed: bool = False) -> Self:
        """Return sums to which nothing was added yet."""
        return cls(
            members=np.zeros((members, subjects, horizon, outcomes)),
            ensemble=np.zeros((subjects, horizon, outcomes)),
            count=np.zeros((subjects, horizon), dtype=np.int64),
            weight=np.zeros((subjects, horizon)) if weighed else None,
        )

    def zeros_like(self, *, subjects: int, weighed: bool) -> "SquaredErrors":
        """Return sums over other rows, to which nothing was added yet."""
        members, _, horizon, outcomes = self.members.shape
        return self.zeros(members=members, subjects=subjects, horizon=horizon, outcomes=outcomes, weighed=weighed)

    def add(
        self,
        prediction_RQHY: NDArray[np.floating],
        queries: Queries,
        *,
        steps_H: NDArray[np.bool_],
        denominator_Y: Floats,
        weight_QH: Floats | None = None,
    ) -> None:
        """Add the errors of a batch of queries, in place.

        Args:
            prediction_RQHY: outcomes in the units of the data, as `rollout` returns them.
            queries: the same queries, with their answers; `subject` counts the rows of these sums.
            steps_H: the steps that this query set serves; others are ignored even if scored.
            denominator_Y: what errors are divided by: ones, or the outcomes' sd in the standardised space.
            weight_QH: how much each answer counts, where these sums are weighed; one by default.

        Raises:
            DataError: the queries have no answers, or a scored answer is not finite.
            TrainingError: a scored prediction is not finite.
        """
        if queries.outcomes is None or queries.scored is None:
            raise DataError("queries without answers cannot be scored")
        horizon = queries.horizon
        if prediction_RQHY.shape != (len(self.members), *queries.outcomes.shape):
            expected = (len(self.members), *queries.outcomes.shape)
            raise ValueError(f"predictions have shape {prediction_RQHY.shape}, expected {expected}")
        scored_QH = queries.scored & steps_H

        def place(q: int, h: int) -> str:
            return f"row {queries.subject[q]} of the test panel, origin {queries.origin[q]}, step {h + 1}"

        bad_QH = scored_QH & ~np.isfinite(queries.outcomes).all(axis=-1)
        if bad_QH.any():
            raise DataError(
                f"{bad_QH.sum()} scored answers are not finite",
                where=f"first: {place(*np.argwhere(bad_QH)[0])}",
                fix="mark such steps as not scored, or simulate or ingest the data again",
            )
        bad_RQH = scored_QH & ~np.isfinite(prediction_RQHY).all(axis=-1)
        if bad_RQH.any():
            r, *at = np.argwhere(bad_RQH)[0]
            raise TrainingError(
                f"{bad_RQH.sum()} predictions are not finite",
                where=f"first: member {r + 1}, {place(*at)}",
                fix="the model diverged: retrain it with a smaller learning rate or another seed",
            )
        mask_QH1 = scored_QH[..., None]
        truth_QHY = np.where(mask_QH1, queries.outcomes, 0.0)
        prediction = np.where(mask_QH1, prediction_RQHY, 0.0).astype(np.float64)
        n = len(self.count)
        weight_QH1 = np.ones(mask_QH1.shape) if weight_QH is None else weight_QH[..., None]

        def squares(of_QHY: Floats) -> Floats:
            squares_QHY: Floats = weight_QH1 * ((of_QHY - truth_QHY) / denominator_Y) ** 2
            return _sum_by(queries.subject, squares_QHY, n)

        for member, sums_NHY in zip(prediction, self.members, strict=True):
            sums_NHY[:, :horizon] += squares(member)
        self.ensemble[:, :horizon] += squares(prediction.mean(axis=0))
        count_NH = _sum_by(queries.subject, mask_QH1.astype(np.float64), n)[..., 0]
        self.count[:, :horizon] += np.rint(count_NH).astype(np.int64)
        if self.weight is not None:
            self.weight[:, :horizon] += _sum_by(queries.subject, weight_QH1 * mask_QH1, n)[..., 0]

    def by_cluster(self) -> "SquaredErrors":
        """Return the sums of whole clusters: what is resampled as one."""
        if self.cluster is None:
            return self
        units, unit_N = np.unique(self.cluster, return_inverse=True)

        def summed(own: NDArray[Any]) -> NDArray[Any]:
            sums = np.zeros((len(units), *own.shape[1:]), own.dtype)
            np.add.at(sums, unit_N, own)
            return sums

        return SquaredErrors(
            members=np.stack([summed(own) for own in self.members]),
            ensemble=summed(self.ensemble),
            count=summed(self.count),
            weight=None if self.weight is None else summed(self.weight),
        )

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that there are, by name."""
        return {name: column for name in ERRORS if (column := getattr(self, name)) is not None}

    @property
    def divisor(self) -> Floats:
        """Return what sums of squares are divided by, `[N,H]`: the weights of their pairs, or how many there are."""
        return self.count.astype(np.float64) if self.weight is None else self.weight

    @property
    def units(self) -> int:
        """Return how many clusters, or subjects that are units of their own, have a scored step."""
        scored_N = self.count.any(axis=1)
        return int(scored_N.sum()) if self.cluster is None else len(np.unique(self.cluster[scored_N]))

    @property
    def horizon(self) -> int:
        """Return H, the number of steps."""
        return int(self.count.shape[1])

    def rmse(self) -> Floats:
        """Return the RMSE of each member and step `[R,H]`; NaN where nothing was scored."""
        return _root_mean(self.members.sum(axis=(1, 3)), self.divisor.sum(axis=0))

    def mean_rmse(self, factor: float) -> PerStep:
        """Return the RMSE, mean over members, `factor` times in the unit of errors."""
        rmse_RH = factor * self.rmse()
        return PerStep.of(rmse_RH.mean(axis=0), float(average_over_steps(rmse_RH).mean()))

    def ensemble_rmse(self) -> Floats:
        """Return the RMSE of the ensemble's mean prediction per step `[H]`."""
        return _root_mean(self.ensemble.sum(axis=(0, 2)), self.divisor.sum(axis=0))

    def outcome_rmse(self) -> Floats:
        """Return the RMSE of each member, step and single outcome `[R,H,dy]` (spec SCORE-2)."""
        return _root_mean(self.members.sum(axis=1), self.divisor.sum(axis=0)[:, None])


def _root_mean(sums: Floats, divisor: Floats) -> Floats:
    """Return `sqrt(sums / divisor)`, NaN where the divisor is zero."""
    divisors = np.broadcast_to(divisor, sums.shape)
    mean = np.divide(sums, divisors, out=np.full(sums.shape, np.nan), where=divisors > 0)
    root: Floats = np.sqrt(mean)
    return root


def _sum_by(subject_Q: NDArray[np.integer], values_QHY: Floats, n_subjects: int) -> Floats:
    """Return the sums `[N,H,Y]` of the queries of each subject."""
    _, horizon, outcomes = values_QHY.shape
    sums = np.empty((n_subjects, horizon, outcomes))
    for h in range(horizon):
        for y in range(outcomes):
            sums[:, h, y] = np.bincount(subject_Q, weights=values_QHY[:, h, y], minlength=n_subjects)
    return sums


def finite(value: float) -> float | None:
    """Return a number, or None where it is not finite."""
    return float(value) if np.isfinite(value) else None


MOST: Final = 12  # periods that a table shows
UNITS: Final = ("h", "D", "M", "Y")


@dataclass(frozen=True, slots=True)
class PeriodScores:
    """The RMSE, mean over members, of the questions whose origin is in a period, and how many were scored per step."""

    period: str
    mean: PerStep
    scored: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Periods:
    """What the periods of an evaluation are called: years, months, days or hours, whichever is the finest of few."""

    unit: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, asked: Iterable[tuple[Panel, Queries]]) -> Self | None:
        """Return the periods that origins of queries are in; None without dates, or where there is one alone."""
        dates, whole = [], 0
        for panel, queries in asked:
            dates.append(_dates(panel, queries))
            written = panel.calendar.written if panel.calendar else None
            whole = max(whole, {"M": 2, "D": 1}.get(written or "", 0))  # no hours of days, no days of months
        known = np.concatenate(dates) if dates else np.empty(0, "M8[us]")
        known = known[~np.isnat(known)]
        for unit in UNITS[whole:]:
            names = tuple(_names(np.unique(known.astype(f"M8[{unit}]"))))
            if len(names) <= MOST:
                break
        return cls(unit, names) if len(names) > 1 else None

    def number(self, panel: Panel, queries: Queries) -> NDArray[np.int64]:
        """Return the period `[Q]` of each query, -1 where the date of its origin is not known."""
        place = {name: i for i, name in enumerate(self.names)}
        distinct, which_Q = np.unique(_dates(panel, queries).astype(f"M8[{self.unit}]"), return_inverse=True)
        return np.array([place.get(name, -1) for name in _names(distinct)], dtype=np.int64)[which_Q]


def period_scores(names: Sequence[str], errors: SquaredErrors, factor: float) -> tuple[PeriodScores, ...]:
    """Return the scores of the periods that have any, `factor` times in the unit of errors, which have a row each."""
    found = []
    for row in np.flatnonzero(errors.count.any(axis=1)).tolist():
        weight = None if errors.weight is None else errors.weight[[row]]
        own = replace(errors, members=errors.members[:, [row]], count=errors.count[[row]], weight=weight)
        found.append(PeriodScores(names[row], own.mean_rmse(factor), tuple(int(n) for n in errors.count[row])))
    return tuple(found)


def _dates(panel: Panel, queries: Queries) -> NDArray[np.datetime64]:
    if panel.calendar is None:
        return np.full(len(queries), "NaT", "M8[us]")
    return panel.calendar.at(queries.subject, queries.origin, panel.length[queries.subject])


def _names(dates: NDArray[np.datetime64]) -> list[str]:
    return [str(date).replace("T", " ") for date in dates]
