"""Small graphs of positive pairs for the tests of the theory."""

import numpy as np
from hypothesis import strategies as st

from benchmarks.theory import PairGraph

__all__ = ["block_graph", "graphs"]


def block_graph(links, size=5, noise=0.0, seed=0):
    """Clusters of `size` states; `links[i][j]` is how strongly each state of i is linked with all of j together."""
    rng = np.random.default_rng(seed)
    blocks = np.kron(np.asarray(links, dtype=float), np.ones((size, size)))
    blocks = blocks * (1 + noise * rng.uniform(-1, 1, size=blocks.shape))
    clusters = [np.arange(size) + i * size for i in range(len(links))]
    return PairGraph.normalized(blocks + blocks.T), clusters


@st.composite
def graphs(draw, max_states=9):
    """Any connected graph of up to nine states, some of whose pairs never occur."""
    n, seed = draw(st.integers(2, max_states)), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    weights = rng.random((n, n)) ** 3 * (rng.random((n, n)) < draw(st.sampled_from([0.4, 0.8, 1.0])))
    weights += np.diag(rng.random(n)) + 1e-3 * np.eye(n, k=1)
    return PairGraph.normalized(weights + weights.T)
