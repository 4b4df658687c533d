"""The graph of positive pairs on finitely many histories: how its clusters hang together (spec THEORY-6 to 8).

With it the spectral loss of all its states, with exact expectations, and what minimises it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
States = NDArray[np.integer]

MOST_ENUMERATED = 20  # states of a cluster whose subsets are all looked at
CHUNK_SUBSETS = 2**14


@dataclass(frozen=True, slots=True)
class Bracket:
    """A number that is known to lie between two others; both are the number itself where it was computed."""

    low: float
    high: float

    @property
    def exact(self) -> bool:
        """Return whether the number itself is known."""
        return self.low == self.high


@dataclass(frozen=True, eq=False)
class PairGraph:
    """The joint probability of positive pairs, `weights [N,N]`: symmetric, non-negative, summing to one.

    Raises:
        ValueError: weights that are no such thing, or a state that is in no pair.
    """

    weights: Floats

    def __post_init__(self) -> None:
        w = self.weights
        if w.ndim != 2 or w.shape[0] != w.shape[1] or not np.allclose(w, w.T, rtol=1e-9, atol=1e-15):
            raise ValueError("the weights of pairs must be a symmetric matrix")
        if (w < 0).any() or not np.isclose(w.sum(), 1.0, rtol=1e-9):
            raise ValueError("the weights of pairs must be non-negative and sum to 1")
        if (self.degree <= 0).any():
            raise ValueError("a state is in no pair")

    @classmethod
    def normalized(cls, weights: ArrayLike) -> "PairGraph":
        """Return the graph of symmetric weights that need not sum to one."""
        values = np.asarray(weights, dtype=np.float64)
        return cls(values / values.sum())

    @cached_property
    def degree(self) -> Floats:
        """Return `w(h) [N]`, the probability of each state."""
        return np.asarray(self.weights.sum(axis=1))

    @cached_property
    def normalized_adjacency(self) -> Floats:
        """Return `D^(-1/2) W D^(-1/2)`, whose eigenvalues are at most 1."""
        root = np.sqrt(self.degree)
        return np.asarray(self.weights / np.outer(root, root))

    def volume(self, states: States) -> float:
        """Return `w(A)`, the probability of a set of states."""
        return float(self.degree[states].sum())

    def phi(self, states: States, others: States) -> float:
        """Return `w(A,B) / w(A)`, the probability that the partner of a state of A is in B."""
        return float(self.weights[np.ix_(states, others)].sum() / self.volume(states))

    def phi_max(self, states: States, others: States) -> float:
        """Return the same of the state of A for which it is largest."""
        return float(self._phi_of_each(states, others).max())

    def phi_min(self, states: States, others: States) -> float:
        """Return the same of the state of A for which it is smallest."""
        return float(self._phi_of_each(states, others).min())

    def cross_cluster(self, clusters: Sequence[States]) -> float:
        """Return alpha: the largest probability with which a pair leaves its cluster, over all states."""
        return max(self.leaving(cluster) for cluster in clusters)

    def leaving(self, cluster: States) -> float:
        """Return the largest probability with which a pair leaves this cluster, over its states."""
        rest = np.setdiff1d(np.arange(len(self.degree)), cluster)
        return self.phi_max(cluster, rest) if len(rest) else 0.0

    def intra_cluster(self, clusters: Sequence[States]) -> Bracket:
        """Return gamma: how hard it is to cut a cluster in two, for the one that is cut most easily.

        Clusters of up to 20 states are enumerated; for larger ones the second eigenvalue gives a bracket.
        """
        brackets = [self.expansion(cluster) for cluster in clusters]
        return Bracket(min(b.low for b in brackets), min(b.high for b in brackets))

    def expansion(self, cluster: States) -> Bracket:
        """Return the least `phi(A, C \\ A)` over the subsets A of a cluster with at most half its probability.

        A single state cannot be cut: infinity. Beyond 20 states the bracket follows from Cheeger's inequality for the
        graph within the cluster: its degrees are smaller than the whole graph's by at most the share that leaves.
        """
        if len(cluster) <= MOST_ENUMERATED:
            exact = self._least_cut(cluster, self.degree[cluster])
            return Bracket(exact, exact)
        within = self.conductance(cluster)
        return Bracket((1 - self.leaving(cluster)) ** 2 * within.low, within.high)

    def conductance(self, cluster: States) -> Bracket:
        """Return the same with degrees counted within the cluster: enumerated, or by Cheeger's inequality.

        `lambda / 2 <= conductance <= sqrt(2 lambda)` with the second eigenvalue of the normalised Laplacian.
        """
        if len(cluster) <= MOST_ENUMERATED:
            exact = self._least_cut(cluster, self.weights[np.ix_(cluster, cluster)].sum(axis=1))
            return Bracket(exact, exact)
        return self.cheeger(cluster)

    def cheeger(self, cluster: States) -> Bracket:
        """Return Cheeger's bracket of the conductance within a cluster of two states or more."""
        inner = self.weights[np.ix_(cluster, cluster)]
        root = np.sqrt(inner.sum(axis=1))
        if (root == 0).any():
            return Bracket(0.0, 0.0)  # a state without partners is a component of its own
        laplacian = np.eye(len(cluster)) - inner / np.outer(root, root)
        second = max(float(np.linalg.eigvalsh(laplacian)[1]), 0.0)
        return Bracket(second / 2, (2 * second) ** 0.5)

    def relative_expansion(self, sources: Sequence[States], targets: Sequence[States]) -> float:
        """Return rho: the least probability with which a target state's partner is in its own source cluster."""
        return min(self.phi_min(target, source) for source, target in zip(sources, targets, strict=True))

    def mismatch(self, sources: Sequence[States], targets: Sequence[States]) -> float:
        """Return the largest probability with which a target state's partner is in another's source cluster."""
        pairs = permutations(range(len(sources)), 2)
        return max((self.phi_max(targets[i], sources[j]) for i, j in pairs), default=0.0)

    def _phi_of_each(self, states: States, others: States) -> Floats:
        return np.asarray(self.weights[np.ix_(states, others)].sum(axis=1) / self.degree[states])

    def _least_cut(self, cluster: States, degree: Floats) -> float:
        """Return the least cut over the smaller side's volume, over all ways to cut a cluster in two."""
        inner, total, least = self.weights[np.ix_(cluster, cluster)], degree.sum(), np.inf
        for chosen in _subsets(len(cluster)):
            volume = chosen @ degree
            cut = ((chosen @ inner) * (1 - chosen)).sum(axis=1)
            smaller = np.minimum(volume, total - volume)
            least = min(least, float(np.divide(cut, smaller, out=np.zeros_like(cut), where=smaller > 0).min()))
        return least


def graph_of_augmentation(transitions_XH: Floats, probability_X: Floats | None = None) -> PairGraph:
    """Return the graph of pairs made by augmenting one history twice, independently.

    History x is augmented to state h with probability `transitions_XH[x,h]`; all histories are alike probable by
    default.
    """
    n = len(transitions_XH)
    p_X = np.full(n, 1 / n) if probability_X is None else probability_X
    weights = transitions_XH.T @ (p_X[:, None] * transitions_XH)
    return PairGraph.normalized((weights + weights.T) / 2)


def graph_of_pairs(first_M: States, second_M: States, n_states: int) -> PairGraph:
    """Return the graph of observed positive pairs of discretised histories, counted in both orders.

    States that were never seen pair with themselves once, so that each state is in a pair.
    """
    counts = np.zeros((n_states, n_states))
    np.add.at(counts, (first_M, second_M), 1.0)
    counts += counts.T
    counts[np.diag_indices(n_states)] += counts.sum(axis=1) == 0
    return PairGraph.normalized(counts)


def jitter_transitions(points_ND: Floats, scale: float) -> Floats:
    """Return transitions `[N,N]` of points moved by Gaussian noise of this scale, to the points at hand."""
    squared_NN = ((points_ND[:, None] - points_ND[None]) ** 2).sum(axis=2)
    weight_NN = np.exp(-squared_NN / (2 * scale**2))
    return np.asarray(weight_NN / weight_NN.sum(axis=1, keepdims=True))


def _subsets(n: int) -> Iterator[Floats]:
    """Yield the ways to cut n states in two, as rows of zeros and ones; the last state is always a zero."""
    count = 2 ** (n - 1)
    for first in range(1, count, CHUNK_SUBSETS):
        number = np.arange(first, min(first + CHUNK_SUBSETS, count))
        yield ((number[:, None] >> np.arange(n)) & 1).astype(np.float64)


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
