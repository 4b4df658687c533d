"""The spectral loss of a whole population of states, with exact expectations, and what minimises it."""

import numpy as np
from numpy.typing import NDArray

from costar_cli.theory.graph import PairGraph

__all__ = ["population_spectral_loss", "spectral_minimiser"]

Floats = NDArray[np.float64]


def population_spectral_loss(r_NK: Floats, graph: PairGraph, sigma: float = 1.0) -> float:
    """Return the loss of representations `[N,K]` of all states of a graph, with exact expectations."""
    pull = 2 * (graph.degree @ (r_NK**2).sum(axis=1) - (graph.weights * (r_NK @ r_NK.T)).sum())
    moments_KK = r_NK.T @ (graph.degree[:, None] * r_NK)
    return float(pull + sigma * ((moments_KK - np.eye(r_NK.shape[1])) ** 2).sum())


def spectral_minimiser(graph: PairGraph, width: int, sigma: float = 1.0) -> Floats:
    """Return representations `[N,K]` that minimise the population's loss, of all that exist.

    Up to a constant the loss is `sigma * ||F F' - (1 - 1/sigma) I - A/sigma||_F^2`, where A is the normalised adjacency
    and row h of F is `sqrt(w(h)) r(h)`: the best approximation of rank K takes the leading eigenvectors.
    """
    values, vectors = np.linalg.eigh(graph.normalized_adjacency)
    shifted = 1 - (1 - values) / sigma
    leading = np.argsort(shifted)[::-1][:width]
    scale_K = np.sqrt(shifted[leading].clip(min=0))
    r_NK = np.zeros((len(values), width))
    r_NK[:, : len(leading)] = vectors[:, leading] * scale_K / np.sqrt(graph.degree)[:, None]
    return r_NK
