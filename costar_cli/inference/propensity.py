"""What practice was: the probability of a treatment, given the course so far (spec SUPPORT-1 to 3).

A chain of logistic regressions on outcomes, earlier treatments, covariates and statics, fitted to the subjects that a
model learnt from. Along a plan, the outcomes that a model predicts continue the course.

`L` counts factors of treatments (levels but the reference), `P` columns of a history, `M` decisions, `S` the windows
over which outcomes are averaged, `K` knots.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit

from costar_cli.data import Panel, PanelSchema, Plans, Queries, Scaler, TreatmentEncoding, as_plans
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.logistic import fit_logistic

Floats = NDArray[np.float64]

WINDOWS: Final = (1, 5, 15)  # steps over which outcomes are averaged, up to the last known one
DOSES: Final = (1, 5)  # the same of treatments, up to the step before
BINS: Final = (0.2, 0.4, 0.6, 0.8)  # quantiles of a dose, other than none, between which doses count as one factor
CELLS: Final = 20  # into which the range of a dose is cut, to see where none was given
KNOTS: Final = (0.1, 0.3, 0.5, 0.7, 0.9)  # quantiles of the averages at which their effect may bend
MOST_DECISIONS: Final = 20_000  # that the regressions learn from
ITERATIONS: Final = 200
RIDGES: Final = (3.0, 30.0, 100.0)  # penalties; the one that predicts other subjects best is taken
CHUNK: Final = 4_000_000  # numbers of histories that are formed at once: 32 MB, some times over
MOST_FITTED: Final = 8  # data sets and domains whose regressions are kept

# Not by the panel's identity, since each verb reads its data anew, and not in a file, which could be out of date.
_FITTED: Final[dict[str, tuple[Floats, Floats]]] = {}  # by the digest of what they were fitted to


@dataclass(frozen=True, slots=True)
class _Continued:
    """Running sums of series that are known up to each query's origin, and continued by its plan or prediction.

    `known_NTC` and `ahead_QHC` start with a zero; `stop_Q` counts the known steps of each query.
    """

    known_NTC: Floats
    ahead_QHC: Floats
    subject_Q: NDArray[np.int64]
    stop_Q: NDArray[np.int64]

    @classmethod
    def of(cls, known_NTC: Floats, ahead_QHC: Floats, subject_Q: NDArray[np.int64], stop_Q: NDArray[np.int64]) -> Self:
        """Sum what is known, and what follows."""
        return cls(_running(known_NTC), _running(ahead_QHC), subject_Q, stop_Q)

    def total(self, stop_QH: NDArray[np.int64]) -> Floats:
        """Return the sum `[Q,H,C]` of so many first steps."""
        known_QHC = self.known_NTC[self.subject_Q[:, None], np.minimum(stop_QH, self.stop_Q[:, None])]
        ahead_QH = np.maximum(stop_QH - self.stop_Q[:, None], 0)
        return np.asarray(known_QHC + self.ahead_QHC[np.arange(len(ahead_QH))[:, None], ahead_QH])

    def mean(self, stop_QH: NDArray[np.int64], steps: int) -> Floats:
        """Return the mean `[Q,H,C]` of the last steps of so many first ones; 0 where there is none."""
        first_QH = np.maximum(stop_QH - steps, 0)
        count_QH1 = np.maximum(stop_QH - first_QH, 1)[..., None]
        return np.asarray((self.total(stop_QH) - self.total(first_QH)) / count_QH1)


@dataclass(frozen=True, slots=True)
class Courses:
    """What a policy may know before each step of a plan, `[Q,H,...]`: standardised, as models see it."""

    outcome_QHSY: Floats
    other_QHP: Floats

    @classmethod
    def of(
        cls, panel: Panel, queries: Queries, predicted_QHY: Floats, scaler: Scaler, encoding: TreatmentEncoding
    ) -> Self:
        """Return the courses along plans.

        Args:
            panel: the series.
            queries: origins and plans.
            predicted_QHY: outcomes after each step of the plan, in the units of the data.
            scaler: of the model.
            encoding: of treatments.
        """
        row_Q, origin_Q = queries.subject.astype(np.int64), queries.origin.astype(np.int64)
        table = dose_table(encoding)
        there_NT1 = panel.observed[..., None]
        y_NTY = (panel.outcomes - scaler.outcomes[0]) / scaler.outcomes[1] * there_NT1
        after_QHY = (predicted_QHY[:, :-1] - scaler.outcomes[0]) / scaler.outcomes[1]
        given_NTL = (panel.treatments @ table) * there_NT1
        sign = np.sign if encoding.doses else np.ones_like  # only doses may be negative
        outcomes = _Continued.of(y_NTY, after_QHY, row_Q, origin_Q + 1)
        doses = _Continued.of(given_NTL, queries.plan @ table, row_Q, origin_Q)
        step_QH = origin_Q[:, None] + np.arange(queries.horizon)
        x_NTX = (panel.covariates - scaler.covariates[0]) / scaler.covariates[1]
        v_NV = (panel.statics - scaler.statics[0]) / scaler.statics[1]
        held = [x_NTX[row_Q, origin_Q], v_NV[row_Q]]  # later covariates are not known
        other = [
            *(doses.mean(step_QH, steps) for steps in DOSES),
            sign(total_QHL := doses.total(step_QH)) * np.log1p(np.abs(total_QHL)),
            np.log1p(step_QH)[..., None],
            *(np.repeat(values[:, None], queries.horizon, axis=1) for values in held),
        ]
        return cls(
            np.stack([outcomes.mean(step_QH + 1, steps) for steps in WINDOWS], axis=2), np.concatenate(other, axis=-1)
        )

    def columns(self, knots_KSY: Floats) -> Floats:
        """Return the columns `[Q,H,P]` of regressions: averages of outcomes bend at the knots."""
        bent = [np.maximum(self.outcome_QHSY - knots_SY, 0.0) for knots_SY in knots_KSY]
        flat = [values.reshape(*values.shape[:2], -1) for values in (self.outcome_QHSY, *bent)]
        return np.concatenate([*flat, self.other_QHP], axis=-1)


@dataclass(frozen=True, slots=True)
class DoseRecord:
    """Which doses the training subjects were given: `edges` between bins, ascending, and how many lay in cells.

    `count` are those of the cells of equal width from `low` to `high`.
    """

    edges: Floats
    low: float
    high: float
    count: Floats

    @classmethod
    def of(cls, dose_M: Floats) -> Self:
        """Return the record of doses; none, where it occurs, is a bin of its own."""
        given_M = dose_M[dose_M != 0]
        edges = np.quantile(given_M, BINS) if len(given_M) else np.zeros(0)
        if len(given_M) < len(dose_M):
            edges = np.concatenate([edges, [0.0, np.nextafter(0.0, 1.0)]])
        low, high = float(dose_M.min()), float(dose_M.max())
        count, _ = np.histogram(dose_M, CELLS, (low, high))
        return cls(np.unique(edges[edges > low]), low, high, count.astype(np.float64))

    def check(self) -> None:
        """See that the numbers, which may be anybody's, are a record.

        Raises:
            ValueError: they are not finite, not in order, or not those of cells.
        """
        if self.count.shape != (CELLS,) or not (np.isfinite(self.count) & (self.count >= 0)).all():
            raise ValueError(f"a dose's range has {CELLS} cells, with a number of doses in each")
        if not (self.low <= self.high and np.isfinite(self.high - self.low)):
            raise ValueError("a dose's range is not finite or not in order")
        if self.edges.ndim != 1 or not np.isfinite(self.edges).all() or (np.diff(self.edges) <= 0).any():
            raise ValueError("the bins of a dose are not finite or not in order")

    def bins(self, dose: Floats) -> NDArray[np.bool_]:
        """Return in which bin but the first a dose lies, `[...,edges]`."""
        place = np.searchsorted(self.edges, dose, side="right")
        return np.asarray(place[..., None] == np.arange(1, len(self.edges) + 1))

    def log_share(self, dose: Floats) -> Floats:
        """Return the logarithm of the share of doses that lay in the cell of each dose or in the two beside it."""
        width = (self.high - self.low) / CELLS or 1.0
        cell = np.clip(np.floor((dose - self.low) / width), -2, CELLS + 1).astype(np.int64)
        cell = np.where(dose == self.high, CELLS - 1, cell)
        near = np.convolve(np.pad(self.count, 3), np.ones(3), "same")
        return np.asarray(np.log((near[cell + 3] + 0.5) / (self.count.sum() + 1)))


@dataclass(frozen=True, slots=True)
class PropensityModel:
    """How the training subjects were treated: `intercept [L]`, `coef [L,P+L]` (a history, then earlier factors)."""

    encoding: TreatmentEncoding
    scaler: Scaler
    knots_KSY: Floats
    intercept_L: Floats
    coef_LP: Floats
    doses: tuple[DoseRecord, ...] = ()

    @classmethod
    def fit(cls, panel: Panel, schema: PanelSchema, scaler: Scaler) -> Self | None:
        """Fit the regressions to at most 20,000 decisions; None where there is none."""
        queries = decisions_of(panel, most=MOST_DECISIONS)
        if queries is None:
            return None
        encoding = schema.treatments
        courses = Courses.of(panel, queries, nothing_ahead(panel, queries), scaler, encoding)
        knots_KSY = np.quantile(courses.outcome_QHSY[:, 0], KNOTS, axis=0)
        dose_MD = _doses(encoding, queries.plan[:, 0])
        records = tuple(DoseRecord.of(dose_M) for dose_M in dose_MD.T)
        given_ML = _given(encoding, records, queries.plan[:, 0])
        columns_MP = np.concatenate([courses.columns(knots_KSY)[:, 0], given_ML], axis=1)
        regressions = fit_chain(columns_MP, given_ML, _owners(encoding, records), queries.subject)
        return cls(encoding, scaler, knots_KSY, *regressions, records)

    def check(self, schema: PanelSchema) -> None:
        """See that the numbers, which may be anybody's, are those of such columns.

        Raises:
            ValueError: a shape that does not fit, or a number that is not finite.
        """
        covariates, _, outcomes, statics = schema.dims
        factors, seen = len(self._owner_L), dose_table(self.encoding).shape[1]
        averages = (len(KNOTS) + 1) * len(WINDOWS) * outcomes
        width = averages + (len(DOSES) + 1) * seen + 1 + covariates + statics + factors
        shapes = (self.knots_KSY.shape, self.intercept_L.shape, self.coef_LP.shape)
        if shapes != ((len(KNOTS), len(WINDOWS), outcomes), (factors,), (factors, width)):
            raise ValueError(f"regressions of treatments have the shapes {shapes}")
        for record in self.doses:
            record.check()
        if not all(np.isfinite(values).all() for values in (self.knots_KSY, self.intercept_L, self.coef_LP)):
            raise ValueError("regressions of treatments have numbers that are not finite")

    def log_probability(self, panel: Panel, queries: Queries, predicted_QHY: Floats) -> Floats:
        """Return the logarithm `[Q,H]` of the probability of each step's treatments, given the course so far."""
        size = max(1, CHUNK // (queries.horizon * self.coef_LP.shape[1]))
        done = []
        for first in range(0, len(queries), size):
            rows = slice(first, first + size)
            asked = queries.take(rows)
            log_QH = _chain_log(*self._logits(panel, asked, predicted_QHY[rows]), self._owner_L)
            dose_QHD = _doses(self.encoding, asked.plan)
            for record, dose_QH in zip(self.doses, np.moveaxis(dose_QHD, -1, 0), strict=True):
                log_QH = np.minimum(log_QH, record.log_share(dose_QH))
            done.append(log_QH)
        return np.concatenate(done) if done else np.zeros((0, queries.horizon))

    def expected(self, panel: Panel, queries: Queries) -> tuple[Floats, NDArray[np.bool_]]:
        """Return how likely each treatment was to be at another level than its reference, `[M,names]`, and if it was.

        Args:
            panel: the series.
            queries: decisions, as `decisions_of` returns them.
        """
        logit_ML, given_ML = (values[:, 0] for values in self._logits(panel, queries, nothing_ahead(panel, queries)))
        owner_L = self._owner_L
        none_ML = np.asarray(log_expit(np.negative(logit_ML)))
        names = range(len(self.encoding.all_names))
        likely = [-np.expm1(none_ML[:, owner_L == name].sum(axis=1)) for name in names]
        return np.stack(likely, axis=1), np.stack([given_ML[:, owner_L == name].any(axis=1) for name in names], axis=1)

    @property
    def _owner_L(self) -> NDArray[np.int64]:
        return _owners(self.encoding, self.doses)

    def _logits(self, panel: Panel, queries: Queries, predicted_QHY: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the logit `[Q,H,L]` of each factor, given earlier ones, and whether the plan gives it."""
        history_QHP = Courses.of(panel, queries, predicted_QHY, self.scaler, self.encoding).columns(self.knots_KSY)
        given_QHL = _given(self.encoding, self.doses, queries.plan)
        logit_QHL = np.concatenate([history_QHP, given_QHL], axis=-1) @ self.coef_LP.T + self.intercept_L
        return logit_QHL, given_QHL


def fit_chain(
    columns_MP: Floats,
    given_ML: NDArray[np.bool_],
    owner_L: NDArray[np.int64],
    subject_M: NDArray[np.integer],
    *,
    ridges: Sequence[float] = RIDGES,
) -> tuple[Floats, Floats]:
    """Return intercepts and coefficients of a chain; fitted once for models of the same data.

    Its penalty is the one with which half of the subjects predict the other half best.

    Args:
        columns_MP: of a history, then the factors themselves.
        given_ML: the factors; those of one owner exclude each other.
        owner_L: the treatment that each factor is a level of.
        subject_M: whose decisions they are.
        ridges: the penalties.
    """
    digest = sha256(str((columns_MP.shape, *ridges)).encode())
    for array in (columns_MP, given_ML, owner_L, subject_M):
        digest.update(np.ascontiguousarray(array).data)
    if (key := digest.hexdigest()) in _FITTED:
        return _FITTED[key]
    if len(_FITTED) == MOST_FITTED:
        del _FITTED[next(iter(_FITTED))]
    learnt_M = subject_M % 2 == 0

    def score(ridge: float) -> float:
        intercept_L, coef_LP = _fit_chain(columns_MP[learnt_M], given_ML[learnt_M], owner_L, ridge)
        logit_ML = columns_MP[~learnt_M] @ coef_LP.T + intercept_L
        return float(_chain_log(logit_ML, given_ML[~learnt_M], owner_L).sum())

    alone = learnt_M.all() or not learnt_M.any()
    ridge = ridges[-1] if alone else max(ridges, key=score)
    _FITTED[key] = _fit_chain(columns_MP, given_ML, owner_L, ridge)
    return _FITTED[key]


def _fit_chain(
    columns_MP: Floats, given_ML: NDArray[np.bool_], owner_L: NDArray[np.int64], ridge: float
) -> tuple[Floats, Floats]:
    """Return intercepts `[L]` and coefficients `[L,P+L]`: a factor sees the history and those of earlier treatments.

    Levels of the same treatment exclude each other: a later one is fitted where no earlier one was given.
    """
    width = columns_MP.shape[1] - len(owner_L)
    intercept_L, coef_LP = np.zeros(len(owner_L)), np.zeros((len(owner_L), columns_MP.shape[1]))
    for i, owner in enumerate(owner_L):
        rows_M = _open(given_ML, owner_L, i)
        used = np.append(np.arange(width), width + np.flatnonzero(owner_L < owner))
        given_M1 = given_ML[rows_M, i : i + 1]
        yes = int(given_M1.sum())
        if 0 < yes < len(given_M1):
            model = fit_logistic(columns_MP[np.ix_(rows_M, used)], given_M1, iterations=ITERATIONS, ridge=ridge)
            intercept_L[i], coef_LP[i, used] = model.intercept_L[0], model.coef_LP[0]
        else:  # received by all or none: as if half a decision more had been made either way
            intercept_L[i] = np.log((yes + 0.5) / (len(given_M1) - yes + 0.5))
    return intercept_L, coef_LP


def _chain_log(logit_ML: Floats, given_ML: NDArray[np.bool_], owner_L: NDArray[np.int64]) -> Floats:
    """Return the logarithm `[...]` of the probability of what was given, of logits `[...,L]`."""
    if not len(owner_L):
        return np.zeros(logit_ML.shape[:-1])
    open_ML = np.stack([_open(given_ML, owner_L, i) for i in range(len(owner_L))], axis=-1)
    log_ML = log_expit(np.where(given_ML, logit_ML, -logit_ML))
    return np.asarray(np.where(open_ML, log_ML, 0.0).sum(axis=-1))


def nothing_ahead(panel: Panel, queries: Queries) -> Floats:
    """Return what is predicted after plans of one step, which no regression reads."""
    return np.zeros((len(queries), queries.horizon, panel.outcomes.shape[2]))


def decisions_of(panel: Panel, *, most: int) -> Queries | None:
    """Return the treatments before outcomes from `since` on, as plans of one step; None where there is none.

    Of more than `most`, some are taken, evenly spread.
    """
    row_M, step_M = np.nonzero(panel.decided & (np.arange(panel.n_steps) >= panel.first_origin[:, None]))
    if not len(row_M):
        return None
    if len(row_M) > most:
        some = np.linspace(0, len(row_M) - 1, most).round().astype(np.int64)
        row_M, step_M = row_M[some], step_M[some]
    plan = as_plans(panel.treatments[row_M, step_M][:, None])
    return Queries(row_M.astype(np.int32), step_M.astype(np.int16), plan)


def _doses(encoding: TreatmentEncoding, plan: Plans) -> Floats:
    """Return the doses `[...,D]` of encoded treatments."""
    return encoding.decode(plan)[..., len(encoding.names) :].astype(np.float64)


def _given(encoding: TreatmentEncoding, records: Sequence[DoseRecord], plan: Plans) -> NDArray[np.bool_]:
    """Return which factors encoded treatments give, `[...,L]`: levels, then bins of doses, but the first of each."""
    levels = (plan[..., : encoding.level_width] @ dose_table(encoding)[: encoding.level_width]) > 0
    levels = levels[..., : levels.shape[-1] - sum(dose.width for dose in encoding.doses)]
    dose_D = np.moveaxis(_doses(encoding, plan), -1, 0)
    return np.concatenate([levels, *(record.bins(dose) for record, dose in zip(records, dose_D, strict=True))], axis=-1)


def _owners(encoding: TreatmentEncoding, records: Sequence[DoseRecord] = ()) -> NDArray[np.int64]:
    """Return the treatment `[L]` that each factor is a level or a bin of."""
    factors = [len(levels) - 1 for levels in encoding.levels] + [len(record.edges) for record in records]
    return np.repeat(np.arange(len(factors)), factors)


def _open(given_ML: NDArray[np.bool_], owner_L: NDArray[np.int64], factor: int) -> NDArray[np.bool_]:
    """Return where none of the earlier levels of the factor's treatment was given, `[M]`."""
    earlier_L = (owner_L == owner_L[factor]) & (np.arange(len(owner_L)) < factor)
    return np.asarray(~given_ML[..., earlier_L].any(axis=-1))


def _running(values_MTC: Floats) -> Floats:
    """Return sums over the first 0, 1, ... steps."""
    return np.pad(values_MTC.cumsum(axis=1), [(0, 0), (1, 0), (0, 0)])
