"""Quantities of the positive-pair graph: by hand, by brute force, and between Cheeger's bounds."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.theory import PairGraph, graph_of_augmentation, graph_of_pairs, jitter_transitions
from benchmarks.theory import graph as graph_module
from tests.methods.theory_worlds import block_graph, graphs

ALL = [np.arange(3), np.arange(3, 5)]


def by_hand():
    weights = np.array(
        [[2, 1, 1, 1, 0], [1, 2, 1, 0, 0], [1, 1, 4, 0, 1], [1, 0, 0, 3, 2], [0, 0, 1, 2, 3]], dtype=float
    )
    return PairGraph.normalized(weights)


def brute_force_cut(graph, cluster, degree):
    """The least cut over the volume of A, over all proper subsets A of at most half the volume."""
    volume, least = degree.sum(), np.inf
    for size in range(1, len(cluster)):
        for subset in itertools.combinations(range(len(cluster)), size):
            inside = np.isin(np.arange(len(cluster)), subset)
            if degree[inside].sum() <= volume / 2 * (1 + 1e-12):
                cut = graph.weights[np.ix_(cluster[inside], cluster[~inside])].sum()
                least = min(least, cut / degree[inside].sum())
    return least


def test_quantities_of_five_states_by_hand():
    graph = by_hand()
    assert graph.degree * 28 == pytest.approx([5, 4, 7, 6, 6])
    assert graph.volume(ALL[0]) == pytest.approx(16 / 28)
    assert graph.phi(ALL[0], ALL[1]) == pytest.approx(2 / 16)
    assert graph.phi_max(ALL[0], ALL[1]) == pytest.approx(1 / 5)
    assert graph.phi_min(ALL[1], ALL[0]) == pytest.approx(1 / 6)
    assert graph.cross_cluster(ALL) == pytest.approx(1 / 5)
    assert graph.expansion(ALL[1]).low == pytest.approx(2 / 6)
    assert graph.expansion(ALL[0]).low == pytest.approx(2 / 7)
    assert graph.intra_cluster(ALL).high == pytest.approx(2 / 7)
    assert graph.relative_expansion([ALL[0]], [ALL[1]]) == pytest.approx(1 / 6)
    assert graph.mismatch([ALL[0]], [ALL[1]]) == 0


def test_matched_clusters_expand_to_each_other_and_mismatch_is_the_rest():
    graph, (s1, s2, t1, t2) = block_graph([[8, 1, 3, 1], [1, 8, 1, 3], [3, 1, 8, 1], [1, 3, 1, 8]], size=4)
    assert graph.relative_expansion([s1, s2], [t1, t2]) == pytest.approx(3 / 13)
    assert graph.mismatch([s1, s2], [t1, t2]) == pytest.approx(1 / 13)
    assert graph.cross_cluster([s1, s2, t1, t2]) == pytest.approx(5 / 13)
    assert graph.expansion(s1).low == pytest.approx(8 / 13 / 2)  # half of a complete block is cut off


@given(graphs())
def test_enumeration_equals_brute_force_with_degrees_of_the_graph_and_of_the_cluster(graph):
    cluster = np.arange(max(2, len(graph.degree) - 2))
    inner = graph.weights[np.ix_(cluster, cluster)].sum(axis=1)
    assert graph.expansion(cluster).low == pytest.approx(brute_force_cut(graph, cluster, graph.degree[cluster]))
    assert graph.conductance(cluster).low == pytest.approx(brute_force_cut(graph, cluster, inner))


@given(graphs())
def test_conductance_lies_between_cheegers_bounds(graph):
    cluster = np.arange(max(2, len(graph.degree) - 1))
    bracket, conductance = graph.cheeger(cluster), graph.conductance(cluster)
    assert conductance.exact
    assert bracket.low <= conductance.low * (1 + 1e-9) + 1e-12
    assert conductance.high <= bracket.high * (1 + 1e-9) + 1e-12


@given(graphs(), st.integers(0, 3))
def test_large_clusters_are_bracketed_around_what_enumeration_finds(graph, outside):
    cluster = np.arange(max(2, len(graph.degree) - outside))
    exact = graph.expansion(cluster)
    most = graph_module.MOST_ENUMERATED
    graph_module.MOST_ENUMERATED = 0
    try:
        bracket = graph.expansion(cluster)
    finally:
        graph_module.MOST_ENUMERATED = most
    assert bracket.low <= exact.low * (1 + 1e-9) + 1e-12
    assert exact.high <= bracket.high * (1 + 1e-9) + 1e-12


def test_a_cluster_of_thirty_states_is_bracketed_and_one_of_eighteen_is_enumerated():
    graph, (large, small) = block_graph([[20, 1], [1, 20]], size=30)
    assert not graph.expansion(large).exact
    assert graph.expansion(small[:18]).exact
    assert graph.intra_cluster([large, small[:18]]).low <= graph.expansion(large).low


def test_a_single_state_cannot_be_cut_and_separate_components_cost_nothing():
    graph = PairGraph.normalized(np.diag([1.0, 2, 3]))
    assert graph.expansion(np.array([1])).low == np.inf
    assert graph.expansion(np.array([0, 1])).high == 0
    assert graph.cheeger(np.array([0, 1, 2])).low == pytest.approx(0)
    assert graph.cross_cluster([np.arange(3)]) == 0


def test_pairs_of_an_augmentation_are_two_independent_draws():
    rng = np.random.default_rng(0)
    transitions = rng.dirichlet(np.ones(4), size=3)
    probability = np.array([0.5, 0.3, 0.2])
    graph = graph_of_augmentation(transitions, probability)
    np.testing.assert_allclose(graph.degree, probability @ transitions)
    source = rng.choice(3, size=400_000, p=probability)
    first, second = (
        (transitions[source].cumsum(axis=1) > rng.random((len(source), 1))).argmax(axis=1) for _ in range(2)
    )
    np.testing.assert_allclose(graph_of_pairs(first, second, 4).weights, graph.weights, atol=3e-3)


def test_states_that_were_never_seen_pair_with_themselves():
    graph = graph_of_pairs(np.array([0, 0]), np.array([1, 1]), 3)
    np.testing.assert_allclose(graph.weights * 5, [[0, 2, 0], [2, 0, 0], [0, 0, 1]])


def test_jitter_moves_points_to_near_ones():
    points = np.array([[0.0], [1.0], [5.0]])
    weak, strong = (jitter_transitions(points, scale) for scale in (0.5, 50.0))
    np.testing.assert_allclose(weak.sum(axis=1), 1)
    assert weak[0, 1] / weak[0, 0] == pytest.approx(np.exp(-2))
    np.testing.assert_allclose(strong, 1 / 3, atol=0.01)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[0.5, 0.1], [0.2, 0.2]], "symmetric"),
        ([[1.5, -0.25], [-0.25, 0.0]], "non-negative"),
        ([[0.5, 0.1], [0.1, 0.5]], "sum to 1"),
        ([[1.0, 0.0], [0.0, 0.0]], "in no pair"),
    ],
)
def test_weights_that_are_no_joint_probability_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        PairGraph(np.array(weights))
