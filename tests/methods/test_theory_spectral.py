"""The generalised spectral contrastive loss: its identity, its minimiser, its unbiased estimate, its masks."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.theory import PairGraph, population_spectral_loss, spectral_minimiser
from costar_cli.methods.costar.contrastive import spectral_loss
from tests.methods.theory_worlds import block_graph, graphs


@given(graphs(), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_sigma_one_is_the_spectral_contrastive_loss_plus_the_width(graph, width, seed):
    r = np.random.default_rng(seed).normal(size=(len(graph.degree), width))
    products = r @ r.T
    expected = -2 * (graph.weights * products).sum() + graph.degree @ products**2 @ graph.degree + width
    assert population_spectral_loss(r, graph) == pytest.approx(expected, abs=1e-9)


@given(graphs(max_states=6), st.sampled_from([0.5, 1.0, 3.0]))
def test_a_batch_of_all_pairs_has_the_loss_of_the_population(graph, sigma):
    """Pairs repeated in proportion to their probability: weights rounded to hundredths, in both orders."""
    counts = np.rint(graph.weights * 200).astype(int) + np.eye(len(graph.degree), dtype=int)
    rounded = PairGraph.normalized(counts)
    first, second = (np.repeat(index.ravel(), counts.ravel()) for index in np.indices(counts.shape))
    r = np.random.default_rng(0).normal(size=(len(counts), 3))
    z1, z2 = torch.from_numpy(r[first]), torch.from_numpy(r[second])
    assert float(spectral_loss(z1, z2, sigma)) == pytest.approx(population_spectral_loss(r, rounded, sigma), rel=1e-9)


@pytest.mark.parametrize("sigma", [0.7, 1.0, 4.0])
@pytest.mark.parametrize("width", [1, 3, 6])
def test_no_representation_beats_the_closed_form(sigma, width):
    graph, _ = block_graph([[5, 1, 0], [1, 6, 2], [0, 2, 4]], size=2, noise=0.5)
    best = population_spectral_loss(spectral_minimiser(graph, width, sigma), graph, sigma)
    r = torch.randn(6, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    degree, weights = torch.from_numpy(graph.degree), torch.from_numpy(graph.weights)
    optimizer = torch.optim.LBFGS([r], max_iter=2000, tolerance_grad=1e-12, tolerance_change=1e-15, history_size=20)

    def loss():
        optimizer.zero_grad()
        pull = 2 * (degree @ r.square().sum(dim=1) - (weights * (r @ r.T)).sum())
        value = pull + sigma * (r.T @ (degree[:, None] * r) - torch.eye(width, dtype=r.dtype)).square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    assert float(loss().detach()) == pytest.approx(best, abs=1e-6)


def test_more_dimensions_than_states_are_left_at_zero():
    graph, _ = block_graph([[3, 1], [1, 3]], size=1)
    r = spectral_minimiser(graph, 5)
    assert not r[:, 2:].any()
    assert (r[:, 0] ** 2).max() == pytest.approx(1)


def test_halves_estimate_the_second_term_without_bias():
    """The mean over all ways to draw four of seven histories is the product of expectations, as for a population."""
    rng = np.random.default_rng(2)
    z = torch.from_numpy(rng.normal(size=(5, 2)))
    draws = torch.tensor(list(itertools.product(range(5), repeat=4)))  # independent, with replacement
    unbiased = spectral_loss(z[draws], z[draws], 1.0, unbiased=True).mean()
    plain = spectral_loss(z[draws], z[draws], 1.0).mean()
    exact = (z.T @ z / 5 - torch.eye(2)).square().sum()
    assert float(unbiased) == pytest.approx(float(exact), rel=1e-9)
    assert float(plain) > float(exact) * 1.05


@pytest.mark.parametrize("unbiased", [False, True])
def test_masked_positions_do_not_count_and_leading_axes_are_batched(unbiased):
    rng = np.random.default_rng(3)
    z1, z2 = (torch.from_numpy(rng.normal(size=(2, 3, 10, 4))) for _ in range(2))
    active = torch.from_numpy(rng.random((2, 3, 10)) < 0.6)
    together = spectral_loss(z1, z2, 2.0, active_N=active, unbiased=unbiased)
    assert together.shape == (2, 3)
    for i, j in itertools.product(range(2), range(3)):
        a, b = (z[i, j, active[i, j]] for z in (z1, z2))
        torch.testing.assert_close(together[i, j], spectral_loss(a, b, 2.0, unbiased=unbiased))


def test_gradients_flow_through_both_views_and_not_into_masked_positions():
    z1, z2 = (torch.randn(6, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    active = torch.tensor([True, True, False, True, True, False])
    assert torch.autograd.gradcheck(lambda a, b: spectral_loss(a, b, 0.5, active_N=active), (z1, z2))
    spectral_loss(z1, z2, active_N=active).backward()
    for z in (z1, z2):
        assert (z.grad[active].abs().sum(dim=1) > 0).all()
        assert not z.grad[~active].any()


def test_equal_uncorrelated_views_have_no_loss_and_collapse_costs_the_width():
    z = torch.eye(4, dtype=torch.float64).repeat(3, 1) * 2  # second moments are the identity
    assert float(spectral_loss(z, z, 3.0)) == pytest.approx(0, abs=1e-12)
    assert float(spectral_loss(0 * z, 0 * z, 3.0)) == pytest.approx(3.0 * 4)


def test_no_active_position_is_finite():
    z = torch.randn(5, 2)
    assert torch.isfinite(spectral_loss(z, z, active_N=torch.zeros(5)))
