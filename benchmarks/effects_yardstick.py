"""Hand-written estimators that know the law of a world: what `benchmarks.effects` holds the engine against.

All three know which columns act and that they act linearly (or logistically), of which the engine is told nothing; no
cross-fitting, no truncation. `N` subjects, `K` decisions, `S` columns that act, `A` treatments.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm

from tests.effect_worlds import EffectWorld

__all__ = ["ESTIMATORS", "Course", "estimate"]

Floats = NDArray[np.float64]
ESTIMATORS: Final = ("g-formula", "sdr", "ipw")
COPIES: Final = 10  # of each subject that the g-formula simulates


@dataclass(frozen=True)
class Course:
    """A drawn course: acting covariates, outcome, treatments, and known probabilities of treatment."""

    x_NTS: Floats
    y_NT: Floats
    a_NKA: Floats
    p_NK: Floats | None

    @classmethod
    def of(cls, world: EffectWorld, n: int, seed: int) -> "Course":
        """Return what `world.dataset(n, seed)` holds, less the covariates that nothing depends on."""
        x_NTX, y_NT, a_NKA = world.draw(n, seed)
        p_NK = x_NTX[:, :-1, 1] if world.probability else None
        acting = x_NTX if x_NTX.shape[2] > 20 else x_NTX[..., :1]
        return cls(acting, y_NT, a_NKA, p_NK)


def estimate(world: EffectWorld, name: str, course: Course) -> dict[str, tuple[float, float]]:
    """Return the mean after the last step under each regime, and its standard error: nan of the g-formula and IPW."""
    if name == "g-formula":
        return {regime: (value, np.nan) for regime, value in _g_formula(world, course).items()}
    found = {}
    for regime in world.regimes:
        ratio_NK, phi_N = _ratios(world, course, regime), course.y_NT[:, -1]
        if name == "ipw":
            found[regime] = float(np.average(phi_N, weights=ratio_NK.prod(axis=1))), np.nan
            continue
        for k in reversed(range(world.steps)):
            design = _design(course, k, course.a_NKA[:, k])
            coef = _least_squares(design, phi_N)
            under_N = _design(course, k, _decided(world, course, regime, k)) @ coef
            phi_N = under_N + ratio_NK[:, k] * (phi_N - design @ coef)
        found[regime] = float(phi_N.mean()), float(phi_N.std() / np.sqrt(len(phi_N)))
    return found


def _decided(world: EffectWorld, course: Course, regime: str, k: int) -> Floats:
    return world.regimes[regime].decide(course.x_NTS[:, k], course.y_NT[:, k], course.a_NKA[:, k])


def _columns(x_NS: Floats, y_N: Floats, a_NA: Floats) -> Floats:
    """Return a design `[N,D]`; where few columns act, with their products with the treatment."""
    crossed = x_NS * a_NA if x_NS.shape[1] == a_NA.shape[1] == 1 else x_NS[:, :0]
    return np.column_stack([np.ones(len(y_N)), x_NS, y_N, a_NA, crossed])


def _design(course: Course, k: int, a_NA: Floats) -> Floats:
    return _columns(course.x_NTS[:, k], course.y_NT[:, k], a_NA)


def _least_squares(design_ND: Floats, answer: Floats) -> Floats:
    return np.asarray(np.linalg.lstsq(design_ND, answer, rcond=None)[0])


def _logistic(design_ND: Floats, answer_N: Floats) -> Floats:
    coef_D = np.zeros(design_ND.shape[1])
    for _ in range(25):
        p_N = expit(design_ND @ coef_D)
        hessian_DD = (design_ND * (p_N * (1 - p_N))[:, None]).T @ design_ND + 1e-6 * np.eye(len(coef_D))
        coef_D += np.linalg.solve(hessian_DD, design_ND.T @ (answer_N - p_N))
    return coef_D


def _before(course: Course) -> Floats:
    """Return the design `[N*K,D]` of what is known before decisions."""
    x_NKS, y_NK = course.x_NTS[:, :-1], course.y_NT[:, :-1]
    return np.column_stack([np.ones(y_NK.size), x_NKS.reshape(y_NK.size, -1), y_NK.ravel()])


def _ratios(world: EffectWorld, course: Course, regime: str) -> Floats:
    """Return how much likelier treatments `[N,K]` are under a regime than they were, by a pooled model of them."""
    n, steps = course.a_NKA.shape[:2]
    design, a_NK = _before(course), course.a_NKA[..., 0]
    decided_NK = np.stack([_decided(world, course, regime, k) for k in range(steps)], axis=1)[..., 0]
    if world.dosed:
        if regime == world.reference:
            return np.ones((n, steps))
        # "1 less where it is above 2": a dose of d comes from d where that is at most 2, and from d + 1 above it
        coef, given = _least_squares(design, a_NK.ravel()), a_NK.ravel()
        mean, sd = design @ coef, np.std(given - design @ coef)
        moved = np.where(given > 1, norm.pdf(given + 1, mean, sd), 0.0) / norm.pdf(given, mean, sd)
        return np.asarray((moved + (given <= 2)).reshape(n, steps))
    p_NK = course.p_NK
    if p_NK is None:
        p_NK = expit(design @ _logistic(design, a_NK.ravel())).reshape(n, steps)
    return np.asarray((a_NK == decided_NK) / np.where(a_NK == 1, p_NK, 1 - p_NK))


def _g_formula(world: EffectWorld, course: Course) -> dict[str, float]:
    """Simulate courses by models of covariates, outcome and, where regimes read it, the natural dose."""
    n, steps = course.a_NKA.shape[:2]
    before = replace(course, x_NTS=course.x_NTS[:, :-1], y_NT=course.y_NT[:, :-1])
    flat = n * steps
    design = _columns(before.x_NTS.reshape(flat, -1), before.y_NT.ravel(), course.a_NKA.reshape(flat, -1))
    next_x, next_y = course.x_NTS[:, 1:].reshape(flat, -1), course.y_NT[:, 1:].ravel()
    of_x = _least_squares(design, next_x)
    logistic = world.kind == "binary"
    of_y = _logistic(design, next_y) if logistic else _least_squares(design, next_y)
    rest_x, rest_y = next_x - design @ of_x, next_y - design @ of_y
    natural = _before(course)
    of_a = _least_squares(natural, course.a_NKA.reshape(flat, -1))
    rest_a = course.a_NKA.reshape(flat, -1) - natural @ of_a
    found = {}
    for regime, how in world.regimes.items():
        rng = np.random.default_rng(0)
        x_NS, y_N = np.tile(course.x_NTS[:, 0], (COPIES, 1)), np.tile(course.y_NT[:, 0], COPIES)
        for _ in range(steps):
            came = np.column_stack([np.ones(len(y_N)), x_NS, y_N]) @ of_a + rest_a[rng.integers(flat, size=len(y_N))]
            row = rng.integers(flat, size=len(y_N))
            now = _columns(x_NS, y_N, how.decide(x_NS, y_N, np.maximum(came, 0) if world.dosed else came))
            x_NS = now @ of_x + rest_x[row]
            y_N = (rng.random(len(y_N)) < expit(now @ of_y)).astype(float) if logistic else now @ of_y + rest_y[row]
        found[regime] = float(y_N.mean())
    return found
