"""The best possible prediction of a tumour: its expected course, given history and plan (spec LIMIT-2, LIMIT-3).

A day's relative growth is linear in the patient's parameters with normal noise, and their prior is a normal
distribution cut at zero. So the posterior is one, too, in closed form; the course is its mean over posterior and noise.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from simulators.tumor.dynamics import (
    CARRY_OVER,
    CARRYING_CAPACITY_CM3,
    CHEMO_DOSE,
    GROWTH_NOISE_SD,
    MAX_VOLUME_CM3,
    RADIO_DOSE_GY,
    Bools,
    Floats,
    next_volume,
)
from simulators.tumor.factual import TumorFactual
from simulators.tumor.patients import (
    ALPHA_BETA_RATIO,
    ALPHA_MEAN,
    ALPHA_RHO_CORRELATION,
    ALPHA_SD,
    BETA_CHEMO_MEAN,
    BETA_CHEMO_SD,
    CHEMO_TYPE,
    RADIO_TYPE,
    RHO_MEAN,
    RHO_SD,
    TYPE_GAIN,
)

__all__ = ["TumorPosterior", "expected_volumes", "volume_quantiles"]

Ints = NDArray[np.int64]

# Draws of parameters and noise per origin, powers of 2. Few days tell little, and hold nearly all of the error: 4,096
# draws for every origin change the predictions of any of them by less than 0.1 % of the error there.
FEW_DAYS: Final = 8
DRAWS_AFTER_FEW: Final = 512
DRAWS: Final = 32
DRAWS_OF_QUANTILES: Final = 128
SEED: Final = 20240229  # of the draws, the same for all data sets
CHUNK: Final = 65536  # courses followed at once: bounds memory, and their state stays near a core
FURTHEST: Final = 35.0  # sd at which a bound may lie: further out the normal tail is 0 in double precision

# (rho, alpha, beta_c) before the cut and before types, spec TUMOR-3
PRIOR_MEAN: Final = np.array([RHO_MEAN, ALPHA_MEAN, BETA_CHEMO_MEAN])
_CROSS: Final = ALPHA_RHO_CORRELATION * ALPHA_SD * RHO_SD
PRIOR_COVARIANCE: Final = np.array([[RHO_SD**2, _CROSS, 0.0], [_CROSS, ALPHA_SD**2, 0.0], [0.0, 0.0, BETA_CHEMO_SD**2]])
KILL_PER_ALPHA: Final = RADIO_DOSE_GY + RADIO_DOSE_GY**2 / ALPHA_BETA_RATIO  # of one fraction, Gy


@dataclass(frozen=True, slots=True)
class TumorPosterior:
    """What a history tells of (rho, alpha, beta_c): a normal distribution that is cut below (spec LIMIT-2).

    `mean [P,3]` and `covariance [P,3,3]` are those before the cut at `low [P,3]`.
    """

    mean: Floats
    covariance: Floats
    low: Floats

    @classmethod
    def of(cls, factual: TumorFactual, patient_type: NDArray[np.integer], subject: Ints, origin: Ints) -> Self:
        """Return the posterior of each of P histories (spec LIMIT-2).

        Args:
            factual: what was observed of N patients.
            patient_type: 1, 2 or 3, `[N]`.
            subject: rows of the patients `[P]`.
            origin: the last observed day of each history `[P]`.
        """
        precision_NT33, score_NT3 = _evidence(factual)
        # by how much the patient's type moves (rho, alpha, beta_c), after the cut at zero
        type_P = patient_type[subject]
        better_P3 = np.stack([np.zeros(len(type_P)), type_P == RADIO_TYPE, type_P == CHEMO_TYPE], axis=-1)
        shift_P3 = TYPE_GAIN * PRIOR_MEAN * better_P3
        prior_33 = np.linalg.inv(PRIOR_COVARIANCE)
        covariance: Floats = np.linalg.inv(prior_33 + precision_NT33[subject, origin]).astype(np.float64)
        pulled_P3 = (PRIOR_MEAN + shift_P3) @ prior_33 + score_NT3[subject, origin]
        mean: Floats = np.einsum("pij,pj->pi", covariance, pulled_P3)
        return cls(mean, covariance, shift_P3)

    def draws(self, uniform_S3: Floats) -> tuple[Floats, Floats]:
        """Return parameters `[3,S,P]` and their weights `[S,P]`, which sum to 1 over S (spec LIMIT-2).

        The coordinates are drawn one after another beyond their bounds, and weighed by the chance to be there.

        Args:
            uniform_S3: evenly spread points in (0, 1)³.
        """
        root = np.linalg.cholesky(self.covariance)
        z = np.empty((3, len(uniform_S3), len(self.mean)))
        value, log_weight = np.empty_like(z), np.zeros(z.shape[1:])
        for k in range(3):
            centre = self.mean[:, k] + sum(root[:, k, j] * z[j] for j in range(k))
            bound = np.minimum((self.low[:, k] - centre) / root[:, k, k], FURTHEST)
            beyond = ndtr(-bound)
            z[k] = -ndtri(uniform_S3[:, k, None] * beyond)
            value[k] = centre + root[:, k, k] * z[k]
            log_weight += np.log(beyond)
        weight = np.exp(log_weight - log_weight.max(axis=0))
        return value, weight / weight.sum(axis=0)


def expected_volumes(
    factual: TumorFactual,
    patient_type: NDArray[np.integer],
    subject: NDArray[np.integer],
    origin: NDArray[np.integer],
    plan: NDArray[np.bool_ | np.number],
) -> Floats:
    """Return the expected volumes `[Q,H]` in cm³ on days origin+1 to origin+H under plans, given each history.

    No prediction from the same history has a smaller expected squared error. The same question has the same answer.

    Args:
        factual: what was observed of N patients; volumes may be float32.
        patient_type: 1, 2 or 3, `[N]`.
        subject: rows of the patients, `[Q]`.
        origin: days at which the plans start, `[Q]`.
        plan: treatments `[Q,H,2]` (chemotherapy, radiotherapy), 0 or 1.
    """
    subject_Q, origin_Q = np.asarray(subject, np.int64), np.asarray(origin, np.int64)
    plan_QH2 = np.asarray(plan, dtype=np.bool_)
    expected_QH = np.empty(plan_QH2.shape[:2])
    order_Q = np.lexsort((origin_Q, subject_Q))  # queries from one origin become neighbours
    for draws, is_asked in ((DRAWS_AFTER_FEW, origin_Q < FEW_DAYS), (DRAWS, origin_Q >= FEW_DAYS)):
        points = _points(draws, 3 + plan_QH2.shape[1])
        chosen_Q = order_Q[is_asked[order_Q]]
        for first in range(0, len(chosen_Q), CHUNK // draws):
            rows = chosen_Q[first : first + CHUNK // draws]
            course = _courses(factual, patient_type, subject_Q[rows], origin_Q[rows], plan_QH2[rows], points)
            means = [np.einsum("sq,sq->q", weight_SQ, volume_SQ) for volume_SQ, weight_SQ in course]
            expected_QH[rows] = np.stack(means, axis=1)
    return expected_QH


def volume_quantiles(
    factual: TumorFactual,
    patient_type: NDArray[np.integer],
    subject: NDArray[np.integer],
    origin: NDArray[np.integer],
    plan: NDArray[np.bool_ | np.number],
    shares: Floats,
) -> Floats:
    """Return quantiles `[P,Q,H]` of the volumes under plans, given each history, at the shares `[P]`.

    The other arguments are those of `expected_volumes`, whose volumes are the means of these distributions.
    """
    subject_Q, origin_Q = np.asarray(subject, np.int64), np.asarray(origin, np.int64)
    plan_QH2 = np.asarray(plan, dtype=np.bool_)
    points = _points(DRAWS_OF_QUANTILES, 3 + plan_QH2.shape[1])
    quantile_PQH, reached = np.empty((len(shares), *plan_QH2.shape[:2])), len(shares) + 1
    for first in range(0, len(subject_Q), CHUNK // DRAWS_OF_QUANTILES):
        rows = slice(first, first + CHUNK // DRAWS_OF_QUANTILES)
        course = _courses(factual, patient_type, subject_Q[rows], origin_Q[rows], plan_QH2[rows], points)
        for h, (volume_SQ, weight_SQ) in enumerate(course):
            volume_QS, weight_QS = np.ascontiguousarray(volume_SQ.T), np.ascontiguousarray(weight_SQ.T)
            order_QS = volume_QS.argsort(axis=1)
            below_QS = np.take_along_axis(weight_QS, order_QS, axis=1).cumsum(axis=1)
            # A draw reaches so many of the shares; below a share lie the draws that reach those before it at most.
            cell_QS = np.searchsorted(shares, below_QS, side="right") + reached * np.arange(len(below_QS))[:, None]
            count_QK = np.bincount(cell_QS.ravel(), minlength=reached * len(below_QS)).reshape(-1, reached)
            place_QP = np.minimum(count_QK.cumsum(axis=1)[:, :-1], DRAWS_OF_QUANTILES - 1)
            drawn_QP = np.take_along_axis(order_QS, place_QP, axis=1)
            quantile_PQH[:, rows, h] = np.take_along_axis(volume_QS, drawn_QP, axis=1).T
    return quantile_PQH


def _courses(
    factual: TumorFactual,
    patient_type: NDArray[np.integer],
    subject_Q: Ints,
    origin_Q: Ints,
    plan_QH2: Bools,
    uniform_SD: Floats,
) -> Iterator[tuple[Floats, Floats]]:
    """Yield the volumes `[S,Q]` after each day of the plans in every draw, and the weights of draws (TUMOR-5, 6)."""
    pairs, pair_Q = np.unique(subject_Q * factual.n_steps + origin_Q, return_inverse=True)
    subject_P, origin_P = np.divmod(pairs, factual.n_steps)
    people, row_P = np.unique(subject_P, return_inverse=True)
    seen = factual.take(people)
    value_3SP, weight_SP = TumorPosterior.of(seen, patient_type[people], row_P, origin_P).draws(uniform_SD[:, :3])
    start_Q = seen.volume_cm3[row_P, origin_P].astype(np.float64)[pair_Q]
    drug_Q = np.where(origin_P > 0, seen.concentration[row_P, origin_P - 1], 0.0)[pair_Q]
    noise_HS = GROWTH_NOISE_SD * ndtri(uniform_SD[:, 3:].T)
    weight_SQ = weight_SP[:, pair_Q]
    rho, alpha, beta_chemo = value_3SP[:, :, pair_Q]
    volume_SQ = np.broadcast_to(start_Q, rho.shape)
    dead_SQ = np.broadcast_to(start_Q.astype(np.float32) >= np.float32(MAX_VOLUME_CM3), rho.shape)
    radio_kill = KILL_PER_ALPHA * alpha
    for h, noise_S in enumerate(noise_HS):
        chemo_Q, radio_Q = plan_QH2[:, h].T
        drug_Q = CARRY_OVER * drug_Q + CHEMO_DOSE * chemo_Q
        volume_SQ, dead_SQ = next_volume(
            volume_SQ,
            dead_SQ,
            growth=1.0 + rho * np.log(CARRYING_CAPACITY_CM3) + noise_S[:, None],
            rho=rho,
            drug_kill=beta_chemo * drug_Q,
            radio_kill=radio_kill,
            radio=radio_Q,
            recovery_cm3=np.zeros(1),  # what chance lets recover above 0 is smaller than 1e-7 cm³
        )
        yield volume_SQ, weight_SQ


def _evidence(factual: TumorFactual) -> tuple[Floats, Floats]:
    """Return what the days before each day add to the precision `[N,T,3,3]` and to precision times mean `[N,T,3]`."""
    volume_NT = factual.volume_cm3.astype(np.float64)
    before_NT, after_NT = volume_NT[:, :-1], volume_NT[:, 1:]
    # the day of death or recovery shows a bound, not the growth; a question from there has its answer anyway
    seen_NT = (before_NT > 0.0) & (after_NT > 0.0) & (after_NT < np.float32(MAX_VOLUME_CM3))
    safe_NT = np.where(seen_NT, before_NT, 1.0)
    x_NT3 = np.stack(
        [
            np.log(CARRYING_CAPACITY_CM3 / safe_NT),
            -KILL_PER_ALPHA * factual.treatments[:, :-1, 1],
            -factual.concentration[:, :-1],
        ],
        axis=-1,
    )
    x_NT3 *= seen_NT[..., None] / GROWTH_NOISE_SD
    growth_NT = (after_NT / safe_NT - 1.0) / GROWTH_NOISE_SD
    precision = np.zeros((*volume_NT.shape, 3, 3))
    score = np.zeros((*volume_NT.shape, 3))
    np.cumsum(x_NT3[..., :, None] * x_NT3[..., None, :], axis=1, out=precision[:, 1:])
    np.cumsum(x_NT3 * growth_NT[..., None], axis=1, out=score[:, 1:])
    return precision, score


def _points(draws: int, dimensions: int) -> Floats:
    """Return evenly spread points `[S,D]` in (0, 1), each with its reflection: linear terms then cancel."""
    from scipy.stats import qmc  # noqa: PLC0415  # half a second to import, needed here alone

    half = qmc.Sobol(dimensions, seed=SEED).random(draws // 2)
    return np.asarray(np.clip(np.concatenate([half, 1.0 - half]), 1e-12, 1.0 - 1e-12))
