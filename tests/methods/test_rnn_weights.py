"""Inverse probability weights: what they are, where they are clipped, and their means."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.methods.shared.network_weights import TreatmentWeights, log_likelihood
from costar_cli.methods.shared.windows import OriginRows
from tests.methods.rnn_worlds import tensors, ward

STEPS = 3


@pytest.fixture(scope="module")
def panel():
    return tensors(ward(), dtype=torch.float64)


@pytest.fixture(scope="module")
def ratio(panel) -> torch.Tensor:
    n_subjects, n_steps = panel.y_NTY.shape[:2]
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, n_subjects, n_steps - 1, dtype=torch.float64, generator=generator)


def windows(panel) -> OriginRows:
    n_subjects, n_steps = panel.y_NTY.shape[:2]
    return OriginRows(panel, STEPS, torch.zeros(2, n_subjects, n_steps - 1, 1))


def every(panel) -> torch.Tensor:
    return torch.arange(len(panel.length_N)).expand(2, -1)


def active(panel) -> torch.Tensor:
    return torch.arange(panel.y_NTY.shape[1] - 1) < panel.length_N[:, None] - 1


@given(st.integers(0, 2**32 - 1))
def test_the_likelihood_is_that_of_the_treatment_that_was_given(seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(4, 3, dtype=torch.float64, generator=generator) * 3
    given = (torch.rand(4, 3, generator=generator) < 0.5).double()
    p = torch.sigmoid(logits)
    expected = (given * p + (1 - given) * (1 - p)).prod(dim=-1)
    torch.testing.assert_close(log_likelihood(logits, given).exp(), expected)


def test_equal_propensities_weigh_every_step_and_window_one(panel, ratio):
    weights = TreatmentWeights(torch.zeros_like(ratio), panel)
    members, rows = torch.arange(2), windows(panel)
    assert (weights.of_steps(members, every(panel)) == 1).all()
    raw = weights.of_windows(members, rows.subject_M.expand(2, -1), rows.start_M.expand(2, -1), STEPS)
    assert raw.shape == (2, STEPS, len(rows))
    assert (weights.clipped_over(rows)(raw) == 1).all()
    assert [found["effective_share"] for found in weights.described] == [1.0, 1.0]


def test_weights_of_steps_are_clipped_at_their_quantiles_and_have_mean_one(panel, ratio):
    found = TreatmentWeights(ratio, panel).of_steps(torch.tensor([1, 0]), every(panel)).transpose(1, 2)
    for row, member in enumerate((1, 0)):
        raw = ratio[member][active(panel)].exp().numpy()
        clipped = raw.clip(*np.quantile(raw, [0.01, 0.99]))
        np.testing.assert_allclose(found[row][active(panel)], clipped / clipped.mean())
        assert found[row][active(panel)].mean().item() == pytest.approx(1)
        assert len(np.unique(clipped)) < len(np.unique(raw))


def test_padding_has_no_say_in_the_quantiles(panel, ratio):
    changed = torch.where(active(panel), ratio, 50.0)
    members = torch.arange(2)
    before, after = (TreatmentWeights(r, panel).of_steps(members, every(panel)) for r in (ratio, changed))
    where = active(panel).T.expand(2, -1, -1)
    assert torch.equal(before[where], after[where])


def test_the_weight_of_a_window_is_the_product_since_the_step_before_it(panel, ratio):
    rows = windows(panel)
    subject, start = rows.subject_M.expand(2, -1), rows.start_M.expand(2, -1)
    found = TreatmentWeights(ratio, panel).of_windows(torch.tensor([1, 0]), subject, start, STEPS)
    for row, member in enumerate((1, 0)):
        for m in range(0, len(rows), 11):
            n, t = int(rows.subject_M[m]), int(rows.start_M[m])
            expected = ratio[member, n, t - 1 : t + STEPS].exp().cumprod(0)[1:]
            torch.testing.assert_close(found[row, :, m], expected)


def test_weights_of_windows_are_clipped_at_global_quantiles_and_have_mean_one_at_each_step(panel, ratio):
    rows, weights = windows(panel), TreatmentWeights(ratio, panel)
    subject, start = rows.subject_M.expand(2, -1), rows.start_M.expand(2, -1)
    raw = weights.of_windows(torch.arange(2), subject, start, STEPS)
    found = weights.clipped_over(rows)(raw)
    for member in range(2):
        clipped = raw[member].numpy().clip(*np.quantile(raw[member].numpy(), [0.01, 0.99]))
        np.testing.assert_allclose(found[member], clipped / clipped.mean(axis=1, keepdims=True))
        np.testing.assert_allclose(found[member].mean(dim=1), 1)
    one = weights.clipped_over(rows).take(torch.tensor([1]))(raw[1:])
    torch.testing.assert_close(one[0], found[1])
