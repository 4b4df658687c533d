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

from costar_cli.data import Panel
from tests.effect_worlds import EffectWorld
from tests.mortal_world import REGIMES

__all__ = ["ENDS", "ESTIMATORS", "Course", "estimate", "estimate_ends"]

Floats = NDArray[np.float64]
ESTIMATORS: Final = ("g-formula", "sdr", "ipw")
ENDS: Final = ("death", "recovery", "rmst")  # probabilities by the last step, and the mean number of steps without
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


def estimate_ends(panel: Panel, name: str, steps: int) -> dict[tuple[str, str], tuple[float, float]]:
    """Return the same of ends in `tests.mortal_world`, by regime and what of `ENDS`; follow-up is lost by x and a."""
    x_NT, a_NT = panel.covariates[..., 0].astype(float), panel.treatments[..., 0].astype(float)
    y_NT, end_N, last_N = panel.outcomes[..., 0].astype(float), panel.ends, panel.length - 1
    step_K = np.arange(steps)
    at_NK = step_K < (last_N + (end_N == 0))[:, None]  # decisions; those lost were, after the last one
    comes_NK = (end_N > 0)[:, None] & (step_K == (last_N - 1)[:, None])
    kept_NK = at_NK & (step_K < last_N[:, None])
    design = np.stack([np.ones_like(x_NT), x_NT, y_NT, a_NT], axis=-1)[:, :steps]
    if name == "g-formula":
        return _simulated_ends(panel, design, at_NK, kept_NK, comes_NK)
    practice = expit(design[..., :3] @ _logistic(design[at_NK][:, :3], a_NT[:, :steps][at_NK]))
    stays = expit(design @ _logistic(design[at_NK], kept_NK[at_NK].astype(float)))
    # What each step adds to an answer: the end that comes, or another step that begins without any
    gain = {"death": comes_NK & (end_N == 1)[:, None], "recovery": comes_NK & (end_N == 2)[:, None], "rmst": at_NK}
    found = {}
    for regime, (_, step) in REGIMES.items():
        planned_NK = step(x_NT, y_NT)[:, :steps] if callable(step) else np.full(x_NT[:, :steps].shape, step)
        same_NK = a_NT[:, :steps] == planned_NK
        ratio_NK = at_NK * same_NK * kept_NK / np.where(planned_NK == 1, practice, 1 - practice) / stays
        for what in ENDS:
            gain_NK, phi_N = gain[what].astype(float), np.zeros(len(x_NT))
            if name == "ipw":
                weight_NK = np.cumprod(np.where(at_NK, ratio_NK, 1.0), axis=1)
                total_N = gain_NK.sum(axis=1)
                found[regime, what] = float(np.average(total_N, weights=weight_NK[:, -1])), np.nan
                continue
            for k in reversed(range(steps)):
                kept_N, at_N, answer_N = kept_NK[:, k], at_NK[:, k], gain_NK[:, k] + phi_N
                coef = _least_squares(design[kept_N, k], answer_N[kept_N])
                under = np.column_stack([design[:, k, :3], planned_NK[:, k]]) @ coef
                phi_N = np.where(at_N, under + ratio_NK[:, k] * (answer_N - design[:, k] @ coef), 0.0)
            found[regime, what] = float(phi_N.mean()), float(phi_N.std() / np.sqrt(len(phi_N)))
    return found


def _simulated_ends(
    panel: Panel, design: Floats, at_NK: NDArray[np.bool_], kept_NK: NDArray[np.bool_], comes_NK: NDArray[np.bool_]
) -> dict[tuple[str, str], tuple[float, float]]:
    steps, end_N1 = at_NK.shape[1], panel.ends[:, None]
    alive_NK = kept_NK & ~comes_NK
    next_2 = [array[:, 1 : steps + 1, 0][alive_NK].astype(float) for array in (panel.covariates, panel.outcomes)]
    of_x, of_y = (_least_squares(design[alive_NK], answer) for answer in next_2)
    rest = np.column_stack([answer - design[alive_NK] @ of for answer, of in zip(next_2, (of_x, of_y), strict=True)])
    death_NK, recovery_NK = comes_NK & (end_N1 == 1), comes_NK & (end_N1 == 2)
    of_death = _logistic(design[kept_NK], death_NK[kept_NK].astype(float))
    spared_NK = kept_NK & ~death_NK
    of_recovery = _logistic(design[spared_NK], recovery_NK[spared_NK].astype(float))
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for regime, (_, step) in REGIMES.items():
        rng, total = np.random.default_rng(0), dict.fromkeys(ENDS, 0.0)
        x_M = np.tile(panel.covariates[:, 0, 0].astype(float), COPIES)
        y_M, on_M = np.tile(panel.outcomes[:, 0, 0].astype(float), COPIES), np.ones(len(x_M))
        for _ in range(steps):
            a_M = step(x_M, y_M) if callable(step) else np.full(len(x_M), step)
            now = np.column_stack([np.ones(len(x_M)), x_M, y_M, a_M])
            death_M = expit(now @ of_death)
            recovery_M = (1 - death_M) * expit(now @ of_recovery)
            total["death"] += float((on_M * death_M).mean())
            total["recovery"] += float((on_M * recovery_M).mean())
            total["rmst"] += float(on_M.mean())
            on_M = on_M * (1 - death_M - recovery_M)
            e_M2 = rest[rng.integers(len(rest), size=len(x_M))]
            x_M, y_M = now @ of_x + e_M2[:, 0], now @ of_y + e_M2[:, 1]
        found |= {(regime, what): (value, np.nan) for what, value in total.items()}
    return found
