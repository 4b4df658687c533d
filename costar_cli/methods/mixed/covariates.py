"""Covariates' own equations, with which they are forecast: one pooled linear regression each (spec MIXED-7)."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.methods.mixed.law import Floats, Series, noise_over
from costar_cli.methods.mixed.population import inverse_factor
from costar_cli.methods.model import Parameters

PENALTY: Final = 1e-4  # per transition, on columns of variance near one: doses and exposures may be the same column
LEFT: Final = np.exp(-1 / np.append(np.geomspace(1e-3, 1e4, 40), np.inf))  # of a level after a step, to choose from


@dataclass(frozen=True)
class CovariateEquations:
    """The change of each covariate in a step, `weight [G,X]`, and the covariance `[X,X]` of what it leaves over.

    `low` and `high [X]` bound forecasts: half a range beyond what source-train showed. All in sds of source-train.
    `open [G,G]` is a factor of the covariance of weights per unit of `residual`; None where it is not known.
    `left [X]` says how these grow with gaps, `residual` being of one unit of time (spec MIXED-12); None for even steps.
    """

    weight: Floats
    residual: Floats
    low: Floats
    high: Floats
    open: Floats | None = None
    left: Floats | None = None

    def over(self, gap_Q: Floats | None) -> Floats:
        """Return the weights `[X,G]` of a step, or those `[Q,X,G]` of gaps of some lengths."""
        if gap_Q is None:
            return self.weight.T
        first, by_log = np.split(self.weight.T, 2, axis=1)
        return np.asarray(first + by_log * np.log(gap_Q)[:, None, None])

    def noise(self, gap_Q: Floats | None) -> Floats:
        """Return how many times as large as over a unit of time noise is over gaps, `[X,Q]`; `[1,1]` of even steps."""
        return np.ones((1, 1)) if gap_Q is None or self.left is None else noise_over(gap_Q, self.left[:, None])

    def covariance(self, gap_Q: Floats | None) -> Floats:
        """Return the covariance of noise over gaps `[Q,X,X]`, or over an even step `[1,X,X]`."""
        noise_QX = self.noise(gap_Q).T
        return np.asarray(self.residual * noise_QX[:, :, None] * noise_QX[:, None])

    def drawn(self, rng: np.random.Generator, n: int) -> Floats:
        """Return n draws `[S,G,X]` of the weights that the training subjects leave open (spec MIXED-11)."""
        if self.open is None:
            return self.weight[None]
        size_X, axes_XX = np.linalg.eigh(self.residual)
        standard_SGX = rng.normal(size=(n, *self.weight.shape))
        return np.asarray(self.weight + self.open @ standard_SGX @ (axes_XX * np.sqrt(size_X.clip(min=0))).T)


def covariate_columns(x: Floats, scaled_y: Floats, dose: Floats, exposure: Floats, gap: Floats | None = None) -> Floats:
    """Return the columns `[...,G]`: one, covariates, outcomes, and each factor's dose and exposures.

    Where steps are uneven, all of them stand again behind these, times the logarithm of the gap.
    """
    columns = np.concatenate([np.ones((*x.shape[:-1], 1)), x, scaled_y, dose, exposure], axis=-1)
    return columns if gap is None else np.concatenate([columns, columns * np.log(gap)[..., None]], axis=-1)


def fit_covariates(series: Series, scaled_NTY: Floats, exposure_NTE: Floats, bounds: Series) -> CovariateEquations:
    """Fit each covariate's equation to the training subjects' transitions from and to an observed value of it.

    A covariate that hardly ever was observed twice in a row has those to an observed value.

    Args:
        series: the subjects to learn from.
        scaled_NTY: their outcomes, standardised.
        exposure_NTE: their exposures after each step's dose, those of all outcomes.
        bounds: the source's training subjects.
    """
    inside_NT = np.arange(1, series.x_NTX.shape[1]) < series.length_N[:, None]
    gap_NT = None if series.gap_NT is None else np.where(series.gap_NT > 0, series.gap_NT, 1.0)
    all_NTG = covariate_columns(series.x_NTX, scaled_NTY, series.dose_NTL, exposure_NTE, gap_NT)
    known_MG = all_NTG[:, :-1][inside_NT]
    change_MX = (series.x_NTX[:, 1:] - series.x_NTX[:, :-1])[inside_NT]
    gap_M = None if gap_NT is None else gap_NT[:, :-1][inside_NT]
    known_NTX = np.ones(series.x_NTX.shape, dtype=bool) if series.known_NTX is None else series.known_NTX
    ended_MX, began_MX = known_NTX[:, 1:][inside_NT], known_NTX[:, :-1][inside_NT]
    both_MX = ended_MX & began_MX
    counts_MX = np.where(both_MX.sum(axis=0) >= known_MG.shape[1], both_MX, ended_MX)
    counts_MX |= ~counts_MX.any(axis=0)  # never observed: what it was filled with is all there is
    columns, dx = known_MG.shape[1], change_MX.shape[1]
    weight_GX, left_X, rest_MX = np.zeros((columns, dx)), np.ones(dx), np.zeros(change_MX.shape)
    open_GG, fewest = np.zeros((columns, columns)), np.inf
    # Of whole columns as bytes: sorting them as records of M fields took two fifths of the fit of 4,096 subjects.
    bytes_XB = np.packbits(counts_MX, axis=0).T
    pattern_X = np.unique([column.tobytes().hex() for column in bytes_XB], return_inverse=True)[1]
    for pattern in range(pattern_X.max() + 1):  # covariates that were observed together are fitted together
        own = pattern_X == pattern
        counts_M = counts_MX[:, own.argmax()]
        rows = slice(None) if counts_M.all() else counts_M
        gaps = None if gap_M is None else gap_M[rows]
        weight_GX[:, own], gram_GG, left_X[own], rest_MO = _equations(known_MG[rows], change_MX[rows][:, own], gaps)
        rest_MX[np.ix_(counts_M, own)] = rest_MO
        if counts_M.sum() < fewest:  # draws of weights are as wide as the fewest transitions leave them
            open_GG, fewest = inverse_factor(gram_GG * counts_M.sum()), counts_M.sum()
    pairs_XX = counts_MX.T.astype(np.float64) @ counts_MX
    residual_XX = rest_MX.T @ rest_MX / np.maximum(pairs_XX, 1.0)
    there_NTX = (np.arange(bounds.x_NTX.shape[1]) < bounds.length_N[:, None])[..., None]
    if bounds.known_NTX is not None:
        there_NTX = np.where(bounds.known_NTX.any(axis=(0, 1)), bounds.known_NTX, there_NTX)
    low_X = np.where(there_NTX, bounds.x_NTX, np.inf).min(axis=(0, 1))
    high_X = np.where(there_NTX, bounds.x_NTX, -np.inf).max(axis=(0, 1))
    room_X = 0.5 * (high_X - low_X)
    return CovariateEquations(
        weight_GX, residual_XX, low_X - room_X, high_X + room_X, open_GG, None if gap_M is None else left_X
    )


def _equations(known_MG: Floats, change_MX: Floats, gap_M: Floats | None) -> tuple[Floats, Floats, Floats, Floats]:
    """Return weights `[G,X]`, their Gram matrix `[G,G]`, what gaps leave of levels `[X]`, and residuals `[M,X]`."""
    weight_GX, gram_GG = _least_squares(known_MG, change_MX)
    if gap_M is None:
        return weight_GX, gram_GG, np.ones(change_MX.shape[1]), change_MX - known_MG @ weight_GX
    rest_MX, losses = change_MX - known_MG @ weight_GX, []
    for left in LEFT.tolist():  # what is left of a level where residuals are likeliest
        noise_M = noise_over(gap_M, left)
        variance_X = (rest_MX / noise_M[:, None]).var(axis=0)
        losses.append(np.log(np.maximum(variance_X, np.finfo(np.float64).tiny)) / 2 + np.log(noise_M).mean())
    left_X = np.asarray(LEFT[np.argmin(losses, axis=0)])
    noise_MX = noise_over(gap_M[:, None], left_X)
    weigh_M1 = np.sqrt((noise_MX**-2).mean(axis=1, keepdims=True))
    weight_GX, gram_GG = _least_squares(known_MG * weigh_M1, change_MX * weigh_M1)
    return weight_GX, gram_GG, left_X, (change_MX - known_MG @ weight_GX) / noise_MX


def _least_squares(known_MG: Floats, change_MX: Floats) -> tuple[Floats, Floats]:
    """Return penalised weights `[G,X]`, and the Gram matrix `[G,G]` per transition with the penalty."""
    gram_GG = known_MG.T @ known_MG / len(known_MG)
    ridge_G = np.full(len(gram_GG), PENALTY * gram_GG[0, 0])
    ridge_G[0] = 0
    gram_GG += np.diag(ridge_G)
    weight_GX = np.linalg.solve(gram_GG, known_MG.T @ change_MX / len(known_MG))
    return np.asarray(weight_GX, dtype=np.float64), gram_GG


def equations_params(equations: CovariateEquations) -> dict[str, NDArray[Any]]:
    """Return the arrays of the covariates' equations that an artifact stores, with the axis of members."""
    values = {name: value for name, value in vars(equations).items() if value is not None}
    return {f"covariates.{name}": np.array(value)[None] for name, value in values.items()}


def equations_shapes(dx: int, columns: int, *, uneven: bool) -> dict[str, tuple[int, ...]]:
    """Return the shape of each of these arrays, without the axis of members."""
    shapes: dict[str, tuple[int, ...]] = {
        "weight": (columns, dx), "residual": (dx, dx), "low": (dx,), "high": (dx,), "open": (columns, columns),
    }  # fmt: skip
    if uneven:
        shapes["left"] = (dx,)
    return {f"covariates.{name}": shape for name, shape in shapes.items()}


def equations_of(params: Parameters) -> CovariateEquations | None:
    """Return the covariates' equations from the arrays of an artifact, None where it has none."""
    own = {name: value for name, value in params.items() if name.startswith("covariates.")}
    if not own:
        return None
    return CovariateEquations(**{name.partition(".")[2]: v[0].astype(np.float64) for name, v in own.items()})
