"""Models that learned one step: answers by simulating courses step by step (spec GCOMP-5 to 7).

`E` variables, outcomes then covariates; `L` treatment factors; `R` residuals; `B` replicates of the parameters; `S`
draws of `Q` series are `M` courses.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from costar_cli.data import Panel, Queries
from costar_cli.methods.base import Decide, PredictFn, PredictiveDistribution
from costar_cli.methods.shared.course import Course, Floats, Scales
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.trained import AnswerJob, EncodingModel, require_horizon

SIMULATED: Final = 2**15  # courses that are simulated at once
COLUMNS: Final = 2**13  # courses whose columns are made at once
LEAST_MEAN: Final = 1e-6  # of a count


def count_at(quantile_M: Floats, mean_M: Floats, dispersion: float) -> Floats:
    """Return the counts `[M]` at quantiles of negative binomial distributions with these means (spec GCOMP-5)."""
    from scipy.stats import nbinom  # noqa: PLC0415 - half a second to import, needed for counts alone

    mean_M = np.maximum(mean_M, LEAST_MEAN)
    inside_M = quantile_M.clip(LEAST_MEAN, 1 - LEAST_MEAN)
    return np.asarray(nbinom.ppf(inside_M, 1 / dispersion, 1 / (1 + dispersion * mean_M)), dtype=np.float64)


def count_quantiles(count_M: Floats, mean_M: Floats, dispersion: float, u_M: Floats) -> Floats:
    """Return where counts lie in such distributions: of what a count leaves open, the share `u_M`."""
    from scipy.stats import nbinom  # noqa: PLC0415 - as above

    shape = 1 / dispersion, 1 / (1 + dispersion * np.maximum(mean_M, LEAST_MEAN))
    below_M, upto_M = (nbinom.cdf(np.floor(count_M) - less, *shape) for less in (1, 0))
    return np.asarray(below_M + u_M * (upto_M - below_M))


@dataclass(frozen=True, slots=True)
class Histories:
    """Where the N subjects of a panel stand at each of its steps, the first step of all of them first."""

    course: Course
    subject_id_N: NDArray[np.int64]

    def at(self, queries: Queries) -> Course:
        """Return where the series of queries stand at their origins."""
        return self.course.take(queries.origin.astype(np.int64) * len(self.subject_id_N) + queries.subject)


class Chance(NamedTuple):
    """The row of residuals that each draw of each series has at a step, and the replicate of each draw.

    Of variables `centred_E` the mean over draws is taken from residuals. What is drawn once for a subject depends on
    `seed` and on its number `subject_Q`; where there is no replicate nothing is.
    """

    row_HSQ: NDArray[np.integer]
    centred_E: NDArray[np.bool_]
    replicate_S: NDArray[np.int64] | None = None
    seed: int = 0
    subject_Q: NDArray[np.integer] = np.zeros(0, dtype=np.int64)

    def of(self, series: slice) -> "Chance":
        """Return the chance of some series."""
        return self._replace(row_HSQ=self.row_HSQ[:, :, series], subject_Q=self.subject_Q[series])


def _each_draw(start: Course, chance: Chance) -> Course:
    """Return the S draws of each of Q series, draw after draw."""
    _, n, q = chance.row_HSQ.shape
    return start.take(np.tile(np.arange(q), n))


class _Simulated(NamedTuple):
    """Outcomes `[S,Q,H,Y]`: as predicted from the step before, and as drawn."""

    predicted: Floats
    drawn: Floats


@dataclass(frozen=True, kw_only=True)
class SimulatedModel(EncodingModel[Histories]):
    """A model of one step of every variable; one member. Answers simulate courses from residuals of training steps."""

    @property
    def stepwise(self) -> bool:
        """Return that each step is predicted from the one before."""
        return True

    @property
    def has_distribution(self) -> bool:
        """Return that it knows what chance adds after the origin."""
        return True

    @property
    def draws_courses(self) -> bool:
        """Return that treatments may be decided on the way."""
        return True

    @property
    def draws_covariates(self) -> bool:
        """Return whether courses have covariates: where there are any."""
        return bool(self.schema.covariates)

    @property
    @abstractmethod
    def draws_training(self) -> bool:
        """Return whether draws hold what the training subjects leave open."""

    @property
    @abstractmethod
    def samples(self) -> int:
        """Return how many courses a prediction is the mean of."""

    @property
    @abstractmethod
    def replicates(self) -> int:
        """Return B."""

    @property
    def affine(self) -> bool:
        """Return whether a step is the same linear function of values everywhere, up to bounds."""
        return False

    @abstractmethod
    def responses(self, course: Course, dose_ML: Floats, replicate_S: NDArray[np.int64] | None) -> Floats:
        """Return the change `[M,E]` of a step in units, of binary variables a logit.

        Args:
            course: where M series stand.
            dose_ML: what they are given.
            replicate_S: the replicates of as many draws, which courses are of in turn; None for the fitted parameters.
        """

    def rows_of(self, name: str) -> int:
        """Return how many rows an array of the file has, behind the axis of members; 0 where it has none."""
        shape = self.params[name].shape
        return shape[1] if len(shape) > 1 else 0

    def require_simulated(self, arrays: Mapping[str, tuple[int, ...]], *, within: tuple[str, ...]) -> None:
        """Raise an error unless residuals and some arrays, each by its shape, are in the file and usable.

        Raises:
            ValueError: they are not.
        """
        e, rows = len(self.scales.kinds), self.rows_of("residuals")
        shapes = {**arrays, "residuals": (rows, e), "dispersion": (e,)}
        self.require_arrays(shapes, within=(*within, "residuals", "dispersion"))
        if not rows or not all(shape[0] for shape in arrays.values()):
            raise ValueError("there are no residuals, or no replicates of the equations")
        if any(not np.isfinite(self.params[name]).all() for name in shapes):
            raise ValueError("equations or residuals are no numbers")
        quantile_RE = self.residuals[:, self.scales.quantile_E]
        if ((quantile_RE < 0) | (quantile_RE > 1)).any() or (self.dispersion_E <= 0).any():
            raise ValueError("residuals are no quantiles, or a dispersion is not above 0")

    @cached_property
    def scales(self) -> Scales:
        """Return how each variable changes."""
        return Scales.read(self.record.facts["variables"], self.schema, self.scaler)

    @cached_property
    def residuals(self) -> Floats:
        """Return residuals `[R,E]` of training steps, sorted by those of the first outcome."""
        residual_RE = self.params["residuals"][0].astype(np.float64)
        return np.asarray(residual_RE[residual_RE[:, 0].argsort(kind="stable")])

    @cached_property
    def dispersion_E(self) -> Floats:
        """Return by how much the variance of each count exceeds its mean, in squares of that."""
        return np.asarray(self.params["dispersion"][0].astype(np.float64))

    def jobs(self, states: Histories, queries: Queries, batch_size: int) -> Iterator[Iterable[AnswerJob]]:
        """Yield jobs of as many queries as are simulated at once."""

        def predict(some: Queries) -> Floats:
            chance = self._chance(states, some)
            if self.affine:  # the mean of courses is the one without chance: one draw, whose residuals are centred
                chance = chance._replace(row_HSQ=chance.row_HSQ[:, :1])
            plan = self._planned(some, chance.row_HSQ.shape[1])
            start = _each_draw(states.at(some), chance)
            mean_QHY = self._simulate(start, plan, chance, some.horizon).predicted.mean(axis=0)
            return np.asarray((mean_QHY - self.scaler.outcomes[0]) / self.scaler.outcomes[1])[None]

        size = SIMULATED if self.affine else max(1, SIMULATED // self.samples)
        yield from self.jobs_of_all_members(predict, queries, min(batch_size, size))

    def predict_distribution(
        self, panel: Panel, queries: Queries, summed_Y: NDArray[np.bool_] | None = None
    ) -> PredictiveDistribution:
        """Predict mean and standard deviation over courses; of some outcomes `summed_Y [Y]` the sums since the origin.

        The share of the parameters is how far predictions move with those of other samples of training subjects, and
        with what histories leave open of a subject's own; of trees it is not known.

        Raises:
            UsageError: the plans are longer than the horizon that the model was trained for.
        """
        require_horizon(self.horizon, queries)
        summed = np.zeros(len(self.schema.outcomes), dtype=bool) if summed_Y is None else summed_Y
        found = np.empty((3, 1, len(queries), queries.horizon, len(summed)), dtype=np.float32)
        states, size = self.encode(panel), max(1, SIMULATED // self.samples)
        for first in range(0, len(queries), size):
            some = queries.take(slice(first, first + size))
            start, plan, chance = states.at(some), self._planned(some, self.samples), self._chance(states, some)
            plain = self._simulate(_each_draw(start, chance), plan, chance, some.horizon)
            moved = plain  # of trees it is not known how far they may be off
            if self.draws_training:
                id_Q = states.subject_id_N[some.subject]
                chance = chance._replace(replicate_S=np.arange(self.samples) % self.replicates, subject_Q=id_Q)
                drawn = self.drawn_starts(panel, some.subject, some.origin, start, chance)
                moved = self._simulate(drawn, plan, chance, some.horizon)
            apart = moved.predicted - plain.predicted
            for values in (*plain, apart):
                values[..., summed] = values[..., summed].cumsum(axis=2)
            found[0, 0, first : first + size] = plain.predicted.mean(axis=0)
            found[1:, 0, first : first + size] = [values.std(axis=0, ddof=1) for values in (apart, plain.drawn)]
        return PredictiveDistribution(*found)

    def bounds(self, panel: Panel, queries: Queries) -> tuple[Floats, Floats]:
        """Return what courses stay within `[Q,Y]`: a series that already is beyond its bounds may stay there."""
        now_QY, y = panel.outcomes[queries.subject, queries.origin].astype(np.float64), len(self.schema.outcomes)
        return np.minimum(now_QY, self.scales.low_E[:y]), np.maximum(now_QY, self.scales.high_E[:y])

    def draw_outcomes(
        self,
        panel: Panel,
        queries: Queries,
        n: int,
        seed: int,
        *,
        ask: PredictFn | None = None,
        floor: float = 0.0,
        among: NDArray[np.integer] | None = None,
    ) -> Floats:
        """Draw courses `[S,Q,H,Y]`, S = n, with the same chance and equations for all of a subject's plans.

        Subjects `among` others have the chance that they have where all are asked about.

        Raises:
            UsageError: the plans are longer than the horizon that the model was trained for.
        """
        del ask, floor
        require_horizon(self.horizon, queries)
        start, chance = self._begin(panel, queries.subject, queries.origin, among, queries.horizon, n, seed)
        drawn_SQHY = np.empty((n, len(queries), queries.horizon, len(self.schema.outcomes)))
        size = max(1, SIMULATED // n)
        for first in range(0, len(queries), size):
            some = slice(first, min(first + size, len(queries)))
            asked, of_some = queries.take(some), chance.of(some)
            drawn = self.drawn_starts(panel, asked.subject, asked.origin, start.take(some), of_some)
            drawn_SQHY[:, some] = self._simulate(drawn, self._planned(asked, n), of_some, queries.horizon).drawn
        return drawn_SQHY

    def draw_courses(
        self,
        panel: Panel,
        subject_Q: NDArray[np.integer],
        origin_Q: NDArray[np.integer],
        decide: Decide,
        *,
        steps: int,
        n: int,
        seed: int,
    ) -> Floats:
        """Draw as `draw_outcomes` does, with treatments that are decided on the way (spec GCOMP-7, PLAN-5).

        Raises:
            UsageError: the plans are longer than the horizon that the model was trained for.
        """
        unused_QHA = np.zeros((len(subject_Q), steps, self.schema.treatments.width), dtype=np.uint8)
        require_horizon(self.horizon, Queries(subject_Q.astype(np.int32), origin_Q.astype(np.int16), unused_QHA))
        start, chance = self._begin(panel, subject_Q, origin_Q, None, steps, n, seed)
        return self._simulate(self.drawn_starts(panel, subject_Q, origin_Q, start, chance), decide, chance, steps).drawn

    def drawn_starts(
        self,
        panel: Panel,
        subject_Q: NDArray[np.integer],
        origin_Q: NDArray[np.integer],
        start: Course,
        chance: Chance,
    ) -> Course:
        """Return where each draw of each series stands at its origin, draw after draw."""
        return _each_draw(start, chance)

    def _begin(
        self,
        panel: Panel,
        subject_Q: NDArray[np.integer],
        origin_Q: NDArray[np.integer],
        among: NDArray[np.integer] | None,
        steps: int,
        n: int,
        seed: int,
    ) -> tuple[Course, Chance]:
        """Return where series stand, and the chance of n draws, that of a subject for all that is asked about it."""
        asked, row_Q = np.unique(subject_Q, return_inverse=True)
        states = self.encode(panel.take(asked.astype(np.int64)))
        start = states.course.take(origin_Q.astype(np.int64) * len(asked) + row_Q)
        subjects = asked if among is None else np.unique(among)
        shape = steps, n, len(subjects)
        row_HSN = np.random.default_rng(seed).integers(len(self.residuals), size=shape, dtype=np.int32)
        at_Q, none_E = np.searchsorted(subjects, subject_Q), np.zeros(len(self.scales.kinds), dtype=bool)
        return start, Chance(row_HSN[:, :, at_Q], none_E, np.arange(n) % self.replicates, seed, at_Q)

    def _simulate(self, course: Course, decide: Decide, chance: Chance, steps: int) -> _Simulated:
        """Simulate on M = S Q courses, S draws of each of Q series; `decide` is asked about them, draw after draw."""
        scales, (_, n, q), y = self.scales, chance.row_HSQ.shape, len(self.schema.outcomes)
        binary_E, local_E = scales.having("binary"), scales.having("local")
        made = _Simulated(*np.empty((2, n, q, steps, y)))
        draws = max(1, COLUMNS // max(q, 1))
        for h in range(steps):
            now_ME, unit_ME = course.now_ME, course.unit(scales)
            dose_ML = decide(h, now_ME).astype(np.float64, copy=False) @ self.table
            response_ME = np.empty_like(now_ME)
            for first in range(0, n, draws):  # columns take many times the memory of courses
                some = slice(first * q, (first + draws) * q)
                replicate_S = None if chance.replicate_S is None else chance.replicate_S[first : first + draws]
                response_ME[some] = self.responses(course.take(some), dose_ML[some], replicate_S)
            residual_SQE = self.residuals[chance.row_HSQ[h]]
            residual_SQE -= np.where(chance.centred_E, residual_SQE.mean(axis=0), 0.0)
            residual_ME = residual_SQE.reshape(n * q, -1)
            size_ME = np.where(local_E, np.sqrt(unit_ME * scales.sd_E), unit_ME)
            low_ME, high_ME = np.minimum(scales.low_E, now_ME), np.maximum(scales.high_E, now_ME)
            probability_ME = expit(response_ME)
            expected_ME = now_ME + unit_ME * response_ME.clip(*scales.limits)
            drawn_ME = expected_ME + size_ME * residual_ME
            expected_ME = np.where(binary_E, probability_ME, expected_ME.clip(low_ME, high_ME))
            for e in np.flatnonzero(scales.whole_E):
                drawn_ME[:, e] = count_at(residual_ME[:, e], expected_ME[:, e], self.dispersion_E[e])
            drawn_ME = np.where(binary_E, residual_ME > 1 - probability_ME, drawn_ME.clip(low_ME, high_ME))
            for values_SQHY, values_ME in zip(made, (expected_ME, drawn_ME), strict=True):
                values_SQHY[:, :, h] = values_ME[:, :y].reshape(n, q, y)
            course = course.after(dose_ML, drawn_ME)
        return made

    @staticmethod
    def _planned(queries: Queries, n: int) -> Decide:
        """Return what gives each of n draws the treatments of its plan."""
        return lambda h, _: np.tile(queries.plan[:, h], (n, 1))

    def _chance(self, states: Histories, queries: Queries) -> Chance:
        """Return the chance of means: at each step evenly spaced ranks of the first outcome's residual, in any order.

        Where they begin depends on subject, origin and step alone, so that errors of subjects cancel in averages.
        """
        rng, n, shape = np.random.default_rng(0), self.samples, (queries.horizon, 1, len(queries))
        order_HS = np.stack([rng.permutation(n) for _ in range(self.horizon)])[: queries.horizon]
        odd_H, odd = rng.integers(2**62, size=self.horizon)[: queries.horizon] * 2 + 1, 0x9E3779B97F4A7C15
        with np.errstate(over="ignore"):
            word_Q = states.subject_id_N[queries.subject].astype(np.uint64) + np.uint64(odd) * queries.origin.astype(
                np.uint64
            )
            begin_HQ = (odd_H.astype(np.uint64)[:, None] * word_Q) / 2.0**64
        rank_HSQ = (order_HS[..., None] + begin_HQ.reshape(shape)) / n
        row_HSQ = np.minimum((rank_HSQ * len(self.residuals)).astype(np.int32), len(self.residuals) - 1)
        return Chance(row_HSQ, ~self.scales.quantile_E)

    @cached_property
    def table(self) -> Floats:
        """Return the factors `[A,L]` of each column of the treatments."""
        return dose_table(self.schema.treatments)
