"""Attention of the few steps of a plan equals the plain formulas, in value and gradient, for one member and several."""

import pytest
import torch
from torch import Tensor

from costar_cli.methods.shared.relative_attention import relative_causal_attention
from costar_cli.methods.transformers import edct_network
from costar_cli.methods.transformers.edct_network import EdctDecoder
from costar_cli.methods.transformers.plan_attention import look_back, short_causal_attention
from costar_cli.methods.transformers.settings import EdctDecoderConfig

STEPS, HEADS, WIDTH = 4, 2, 3


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def kept(*shape: int) -> Tensor:
    return (torch.rand(*shape) > 0.3).double()


def slopes(output: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad((output * output.detach().cos()).sum(), leaves))


@pytest.mark.parametrize("dropout", [False, True])
def test_short_attention_is_causal_attention(*, dropout: bool):
    torch.manual_seed(0)
    q, k, v = (drawn(5, STEPS, HEADS, WIDTH) for _ in range(3))
    key, value = drawn(2 * STEPS + 1, WIDTH), drawn(2 * STEPS + 1, WIDTH)
    mask = kept(5, HEADS, STEPS, STEPS) if dropout else None
    step = torch.arange(STEPS)
    row = (step - step[:, None]).clamp(max=0) + STEPS
    found = short_causal_attention(q, k, v, key[row], value[row], mask)
    flat = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    plain = relative_causal_attention(*flat, key, value, None if mask is None else mask.flatten(0, 1))
    expected = plain.view(5, HEADS, STEPS, WIDTH).transpose(1, 2)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    leaves = [q, k, v, key, value]
    for one, other in zip(slopes(found, leaves), slopes(expected, leaves), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize(("window", "nearest"), [(9, 3), (9, 9), (2, 2), (1, 1)])
def test_looking_back_is_attention_with_something_added_by_distance(window: int, nearest: int, *, dropout: bool):
    torch.manual_seed(0)
    asking, memory = drawn(5, STEPS, HEADS, WIDTH), torch.randn(5, window, WIDTH).double()
    near = drawn(5, STEPS, HEADS, STEPS + nearest - 1)
    hidden = (torch.arange(window) < torch.randint(window, (5, 1))).double()
    mask = kept(5, HEADS, STEPS, window) if dropout else None
    seen, by_distance, total = look_back(asking, near, memory, hidden, mask)
    distance = torch.arange(STEPS)[:, None] + torch.arange(window - 1, -1, -1)
    column = near.shape[-1] - 1 - distance
    added = near.transpose(1, 2).gather(-1, column.clamp(min=0).expand(5, HEADS, -1, -1))
    placed = (torch.arange(window) >= window - nearest) & (column >= 0)
    score = asking.transpose(1, 2) @ memory[:, None].transpose(-1, -2) + torch.where(placed, added, 0)
    p = torch.softmax(score.masked_fill(hidden[:, None, None] > 0, -torch.inf), dim=-1) * (1 if mask is None else mask)
    torch.testing.assert_close(seen, (p @ memory[:, None]).transpose(1, 2))
    torch.testing.assert_close(total[..., 0], p.sum(dim=-1).transpose(1, 2))
    weights = torch.randn(STEPS + nearest - 1).double()
    expected = (p * torch.where(placed, weights[column.clamp(min=0)], 0)).sum(dim=-1)
    torch.testing.assert_close(by_distance @ weights, expected.transpose(1, 2))
    plain = (p @ memory[:, None]).sum() ** 2 + p.sum(dim=-1).square().sum() + expected.square().sum()
    fast = seen.sum() ** 2 + total.square().sum() + (by_distance @ weights).square().sum()
    for one, other in zip(*(torch.autograd.grad(x, [asking, near]) for x in (fast, plain)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_members_side_by_side_get_what_each_gets_alone():
    torch.manual_seed(0)
    asking, near, memory = drawn(3, 5, STEPS, HEADS, WIDTH), drawn(3, 5, STEPS, HEADS, STEPS + 1), drawn(3, 5, 7, WIDTH)
    together = torch.vmap(lambda a, n, m: look_back(a, n, m.detach(), torch.zeros(5, 7), None)[0])(asking, near, memory)
    q, k, v = (drawn(3, 5, STEPS, HEADS, WIDTH) for _ in range(3))
    tables = drawn(3, STEPS, STEPS, WIDTH)
    own = torch.vmap(lambda q, k, v, t: short_causal_attention(q, k, v, t, t, None))(q, k, v, tables)
    for r in range(3):
        alone = look_back(asking[r], near[r], memory[r].detach(), torch.zeros(5, 7), None)[0]
        torch.testing.assert_close(together[r], alone)
        torch.testing.assert_close(own[r], short_causal_attention(q[r], k[r], v[r], tables[r], tables[r], None))


def test_it_does_not_matter_whether_a_plan_counts_as_short(monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    config = EdctDecoderConfig(representation=4, hidden=5, layers=2, heads=2, clip_distance=3)
    network = EdctDecoder((0, 3, 1, 2), 6, STEPS, config).double()
    masks = {name: kept(5, *shape) for name, shape in network.mask_shapes(8).items()}
    inputs = (torch.randn(5, 8, 6), torch.zeros(5, 8), torch.randn(5, STEPS, 6), torch.randn(5, STEPS, 3))
    found = []
    for limit in (0, 10_000):
        monkeypatch.setattr(edct_network, "SHORT", limit)
        _, outcomes = network(*(x.double() for x in inputs), masks)
        found.append((outcomes, slopes(outcomes, [p for n, p in network.named_parameters() if "treatment" not in n])))
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)
