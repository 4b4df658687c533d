"""InfoNCE: closed forms, equality of its implementations, gradients, inactive positions."""

import math

import pytest
import torch

from benchmarks.literal_costar import literal_info_nce
from costar_cli.methods.costar import contrastive
from costar_cli.methods.costar.contrastive import attend_to_keys_chunked, attend_to_keys_fused, info_nce


def active(p: int, n: int) -> torch.Tensor:
    return torch.ones(p, n, dtype=torch.bool)


@pytest.mark.parametrize("temperature", [0.1, 0.5, 1.0])
def test_closed_forms(temperature):
    one = torch.randn(1, 1, 6)
    assert info_nce(one, torch.randn(1, 1, 6), active(1, 1), temperature).item() == pytest.approx(0, abs=1e-6)
    same = torch.ones(1, 9, 6)
    assert info_nce(same, same, active(1, 9), temperature).item() == pytest.approx(
        2 * temperature * math.log(9), rel=1e-5
    )
    eye = torch.eye(6)[None]
    expected = 2 * temperature * math.log(1 + 5 * math.exp(-1 / temperature))
    assert info_nce(eye, eye, active(1, 6), temperature).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("chunk", [None, 40, 10**6])
def test_value_and_gradient_equal_the_literal_loss(chunk, monkeypatch):
    if chunk:
        monkeypatch.setattr(contrastive, "CHUNK_ELEMENTS", chunk)
        monkeypatch.setattr(contrastive, "attend_to_keys", attend_to_keys_chunked)
    torch.manual_seed(0)
    q, k = torch.randn(3, 37, 8, requires_grad=True), torch.randn(3, 37, 8)
    loss = info_nce(q, k, active(3, 37), 0.3)
    expected = torch.stack([literal_info_nce(a, b, 0.3) for a, b in zip(q, k, strict=True)])
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    weight = torch.tensor([1.0, -2.0, 0.5])
    (slope,) = torch.autograd.grad((loss * weight).sum(), q)
    (slope_expected,) = torch.autograd.grad((expected * weight).sum(), q)
    torch.testing.assert_close(slope, slope_expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("attend", [attend_to_keys_fused, attend_to_keys_chunked])
def test_inactive_positions_count_neither_as_query_nor_as_key(attend, monkeypatch):
    monkeypatch.setattr(contrastive, "attend_to_keys", attend)
    torch.manual_seed(0)
    q, k = torch.randn(2, 30, 8, requires_grad=True), torch.randn(2, 30, 8)
    mask = torch.rand(2, 30) < 0.6
    loss = info_nce(q, k, mask, 1.0)
    alone = [
        info_nce(a[m][None], b[m][None], active(1, int(m.sum())), 1.0)[0] for a, b, m in zip(q, k, mask, strict=True)
    ]
    torch.testing.assert_close(loss, torch.stack(alone), rtol=1e-5, atol=1e-5)
    (slope,) = torch.autograd.grad(loss.sum(), q)
    assert (slope[~mask] == 0).all()


def test_fused_and_chunked_agree_at_training_size():
    torch.manual_seed(0)
    q, k = (torch.nn.functional.normalize(torch.randn(2, 1500, 24), dim=-1) for _ in range(2))
    hidden = torch.zeros(2, 1500)
    fused, chunked = attend_to_keys_fused(q, k, hidden), attend_to_keys_chunked(q, k, hidden)
    torch.testing.assert_close(fused[0], chunked[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fused[1], chunked[1], rtol=1e-5, atol=1e-5)


def test_keys_get_no_gradient():
    q, k = torch.randn(1, 5, 4, requires_grad=True), torch.randn(1, 5, 4, requires_grad=True)
    info_nce(q, k, active(1, 5), 1.0).sum().backward()
    assert k.grad is None
    assert q.grad is not None
