"""The exact posterior of linear weights with effects of subjects, its scales by evidence (spec CONTEXT-4 and 5).

`M` rows, sorted by subject; `N` subjects; `P` columns; `K` columns whose weights differ between subjects; `G` groups.
All variances are multiples of the noise's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, lapack, solve_triangular

from costar_cli.methods.in_context.basis import FREE
from costar_cli.methods.shared.course import Floats

SUBJECT_SCALES: Final = (0.0, 0.1, 0.4, 1.0, 2.5)  # of the prior sd of subjects' effects
ROUNDS: Final = 30  # of the scales of groups
LEAST_SCALE, MOST_SCALE = 1e-3, 1e6  # of a group's prior precision
LEAST_NOISE: Final = 1e-12


class Rows(NamedTuple):
    """Columns `[M,P]` and `[M,K]`, answers `[M]`, the subject of each row, 0 to N - 1."""

    column_MP: Floats
    differ_MK: Floats
    answer_M: Floats
    subject_M: NDArray[np.int64]


class _Moments(NamedTuple):
    """Sums over rows, and over those of each subject."""

    square_PP: Floats
    cross_P: Floats
    total: float
    differ_NKK: Floats
    differ_NKP: Floats
    differ_NK: Floats
    n: int

    @classmethod
    def of(cls, chunks: Iterable[Rows], subjects: int) -> Self:
        square_PP, cross_P, total, n = np.zeros((0, 0)), np.zeros(0), 0.0, 0
        by_subject: list[Floats] = []
        for column_MP, differ_MK, answer_M, subject_M in chunks:
            if not by_subject:
                p, k = column_MP.shape[1], differ_MK.shape[1]
                square_PP, cross_P = np.zeros((p, p)), np.zeros(p)
                by_subject = [np.zeros((subjects, k, k)), np.zeros((subjects, k, p)), np.zeros((subjects, k))]
            square_PP += column_MP.T @ column_MP
            cross_P += column_MP.T @ answer_M
            total, n = total + float(answer_M @ answer_M), n + len(answer_M)
            present, first = np.unique(subject_M, return_index=True)
            for i, start, stop in zip(present, first, [*first[1:], len(subject_M)], strict=True):
                differ = differ_MK[start:stop]
                by_subject[0][i] += differ.T @ differ
                by_subject[1][i] += differ.T @ column_MP[start:stop]
                by_subject[2][i] += differ.T @ answer_M[start:stop]
        differ_NKK, differ_NKP, differ_NK = by_subject
        return cls(square_PP, cross_P, total, differ_NKK, differ_NKP, differ_NK, n)

    def apart(self, precision_K: Floats | None) -> tuple[Floats, Floats, float, float]:
        """Return the sums after effects of subjects are integrated out, and their log determinant."""
        if precision_K is None:
            return self.square_PP, self.cross_P, self.total, 0.0
        p = self.differ_NKP.shape[2]
        inner_NKK = self.differ_NKK + np.diag(precision_K)
        right = np.concatenate([self.differ_NKP, self.differ_NK[..., None]], axis=2)
        solved_NKQ = np.linalg.solve(inner_NKK, right)
        taken_PQ = self.differ_NKP.reshape(-1, p).T @ solved_NKQ.reshape(-1, p + 1)
        total = self.total - float((self.differ_NK * solved_NKQ[..., p]).sum())
        determinant = float(np.linalg.slogdet(inner_NKK)[1].sum() - len(inner_NKK) * np.log(precision_K).sum())
        return self.square_PP - taken_PQ[:, :p], self.cross_P - taken_PQ[:, p], total, determinant


@dataclass(frozen=True)
class Head:
    """The posterior of a variable's weights.

    Attributes:
        mean_P: the weights.
        upper_PP: the triangular root of their precision, in units of the noise's.
        noise: variance of what a step leaves open.
        subject_K: variances of subjects' effects, in multiples of the noise; None where these are the same for all.
        used: how many weights the data decide.
        evidence: the logarithm of the marginal likelihood, up to a constant.
    """

    mean_P: Floats
    upper_PP: Floats
    noise: float
    subject_K: Floats | None
    used: float
    evidence: float

    def draw(self, rng: np.random.Generator, n: int) -> Floats:
        """Draw weights `[n,P]`."""
        normal_Pn = rng.standard_normal((len(self.mean_P), n))
        return np.asarray(self.mean_P + np.sqrt(self.noise) * solve_triangular(self.upper_PP, normal_Pn).T)


def condition(
    chunks: Iterable[Rows], subjects: int, prior_P: Floats, own_prior_K: Floats, group_P: NDArray[np.int64]
) -> Head:
    """Return the posterior given rows, with the scale of subjects' effects and those of groups that make them likely.

    Args:
        chunks: the rows, those of a subject in one chunk.
        subjects: N.
        prior_P, own_prior_K: logarithms of prior sds.
        group_P: the group of each column; `FREE` keeps its prior.
    """
    moments, precision_P = _Moments.of(chunks, subjects), np.exp(-2 * prior_P)
    best = None
    for scale in SUBJECT_SCALES:
        own_K = scale**2 * np.exp(2 * own_prior_K) if scale else None
        sums = moments.apart(None if own_K is None else 1 / own_K)
        found = _posterior(sums, precision_P, moments.n, own_K)
        if best is None or found.evidence > best[0].evidence:
            best = found, sums, own_K
    assert best is not None  # noqa: S101
    (head, sums, own_K), scale_G = best, np.ones(int(group_P.max()) + 1)
    tuned_P = group_P != FREE
    size_G = np.bincount(group_P[tuned_P], minlength=len(scale_G))
    for _ in range(ROUNDS):  # MacKay's update of the precision of each group
        lam_P = precision_P * np.where(tuned_P, scale_G[group_P], 1.0)
        inverse_PP, _ = lapack.dpotri(head.upper_PP)
        open_P = lam_P * np.diag(inverse_PP)
        used_G = size_G - np.bincount(group_P[tuned_P], open_P[tuned_P], minlength=len(scale_G))
        weight_P = precision_P * head.mean_P**2 / head.noise
        weight_G = np.bincount(group_P[tuned_P], weight_P[tuned_P], minlength=len(scale_G))
        scale_G = (used_G.clip(min=0) / np.maximum(weight_G, LEAST_NOISE)).clip(LEAST_SCALE, MOST_SCALE)
        head = _posterior(sums, precision_P * np.where(tuned_P, scale_G[group_P], 1.0), moments.n, own_K)
    return head


def _posterior(sums: tuple[Floats, Floats, float, float], precision_P: Floats, n: int, own_K: Floats | None) -> Head:
    square_PP, cross_P, total, determinant = sums
    upper_PP = cholesky(square_PP + np.diag(precision_P))
    mean_P = cho_solve((upper_PP, False), cross_P)
    noise = max((total - float(mean_P @ cross_P)) / n, LEAST_NOISE)
    logarithms = 2 * np.log(np.diag(upper_PP)).sum() - np.log(precision_P).sum() + determinant
    inverse_PP, _ = lapack.dpotri(upper_PP)
    used = float(len(mean_P) - precision_P @ np.diag(inverse_PP))
    return Head(mean_P, upper_PP, noise, own_K, used, float(-0.5 * (n * np.log(noise) + logarithms)))


def effects_before(differ_NTK: Floats, left_NT: Floats, subject_K: Floats) -> Floats:
    """Return the effects `[N,T,K]` of each subject as its rows before each step show them.

    Args:
        differ_NTK: the columns that subjects differ in; zero where there was no answer.
        left_NT: what the common weights leave of the answers; likewise.
        subject_K: variances of effects, in multiples of the noise.
    """
    sum_NTK = _before(differ_NTK * left_NT[..., None])
    square_NTKK = _before(differ_NTK[..., :, None] * differ_NTK[..., None, :])
    return np.asarray(np.linalg.solve(square_NTKK + np.diag(1 / subject_K), sum_NTK[..., None])[..., 0])


def noise_of(differ_TK: Floats, left_T: Floats, subject_K: Floats) -> Floats:
    """Return what effects of a subject leave `[T]` of its rows, given all of them, with the variance of the noise.

    `I - H`, by which they are multiplied, is the inverse of their covariance, so the covariance of what is left.
    """
    taken_TK = differ_TK @ np.linalg.inv(differ_TK.T @ differ_TK + np.diag(1 / subject_K))
    share_T = (taken_TK * differ_TK).sum(axis=1)
    return np.asarray((left_T - taken_TK @ (differ_TK.T @ left_T)) / np.sqrt(1 - share_T))


def _before(values: Floats) -> Floats:
    """Return sums along the second axis of what is before each."""
    return np.asarray(np.cumsum(values, axis=1) - values)
