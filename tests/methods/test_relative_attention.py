"""Banded attention against attention with a vector per pair of steps."""

import pytest
import torch
from torch import Tensor

from costar_cli.methods.shared.relative_attention import relative_causal_attention


def plain(q: Tensor, k: Tensor, v: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    t, clip = q.shape[1], key.shape[0] // 2
    step = torch.arange(t)
    row = (step - step[:, None]).clamp(-clip, clip) + clip
    score = q @ k.transpose(1, 2) + torch.einsum("mqn,qkn->mqk", q, key[row])
    p = torch.softmax(score.masked_fill(step > step[:, None], -1e9), dim=-1)
    p = p if mask is None else p * mask
    return p @ v + torch.einsum("mqk,qkn->mqn", p, value[row])


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 12, 31])
@pytest.mark.parametrize("clip", [1, 3, 4, 15])
@pytest.mark.parametrize("dropout", [False, True])
def test_values_and_gradients_equal_those_of_plain_attention(steps, clip, dropout):
    generator = torch.Generator().manual_seed(steps * 100 + clip)
    shape = (6, steps, 5)
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3)]
    tensors += [torch.randn(2 * clip + 1, 5, generator=generator, dtype=torch.float64) for _ in range(2)]
    for tensor in tensors:
        tensor.requires_grad_()
    mask = (torch.rand(6, steps, steps, generator=generator) < 0.7).double() / 0.7 if dropout else None
    fast, slow = relative_causal_attention(*tensors, mask), plain(*tensors, mask)
    torch.testing.assert_close(fast, slow)
    weight = torch.randn(shape, generator=generator, dtype=torch.float64)
    for a, b in zip(
        torch.autograd.grad((fast * weight).sum(), tensors),
        torch.autograd.grad((slow * weight).sum(), tensors),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


def test_under_vmap_each_member_uses_its_own_tables():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 4, 2, 9, 5, dtype=torch.float64).unbind(0)
    q, k, v = (u.repeat(1, 3, 1, 1) for u in (q, k, v))
    tables = torch.randn(2, 4, 7, 5, dtype=torch.float64, requires_grad=True)
    mask = (torch.rand(4, 6, 9, 9) < 0.8).double()
    together = torch.func.vmap(relative_causal_attention)(q, k, v, tables[0], tables[1], mask)
    apart = torch.stack(
        [relative_causal_attention(q[r], k[r], v[r], tables[0, r], tables[1, r], mask[r]) for r in range(4)]
    )
    torch.testing.assert_close(together, apart)
    slopes = [torch.autograd.grad(o.square().sum(), tables)[0] for o in (together, apart)]
    torch.testing.assert_close(*slopes)
