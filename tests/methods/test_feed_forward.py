"""The feed-forward unit in slices against its ordinary operators: values, gradients, members, empty inputs."""

import pytest
import torch
from torch import Tensor

from costar_cli.config.models import EncoderConfig
from costar_cli.methods.costar import feed_forward
from costar_cli.methods.costar.feed_forward import FeedForward


@pytest.fixture
def unit() -> FeedForward:
    torch.manual_seed(0)
    return FeedForward(EncoderConfig(width=6, heads=2, dropout=0.2)).double()


def drawn(*shape: int) -> Tensor:
    return torch.randint(256, shape, dtype=torch.uint8)


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("rows", [1, 20, 10**6])
@pytest.mark.parametrize("transposed", [False, True])
def test_values_and_gradients_equal_those_of_ordinary_operators(unit, monkeypatch, dropout, rows, transposed):
    monkeypatch.setattr(feed_forward, "ROWS", rows)
    u = torch.randn(7, 5, 3, 6, dtype=torch.float64, requires_grad=True)
    bytes_ = (drawn(7, 5, 3, 24), drawn(7, 5, 3, 6)) if dropout else (None, None)
    given = u
    if transposed:  # as in the first layer, which works with the features first
        given = u.transpose(0, 1)
        bytes_ = tuple(None if b is None else b.transpose(0, 1) for b in bytes_)
    fused, plain = unit.residual(given, *bytes_), unit.plain(given, *bytes_)
    torch.testing.assert_close(fused, plain)
    weight = torch.randn_like(plain)
    inputs = [u, *unit.inner.parameters(), *unit.outer.parameters()]
    for got, expected in zip(*(torch.autograd.grad((o * weight).sum(), inputs) for o in (fused, plain)), strict=True):
        torch.testing.assert_close(got, expected)


def test_members_under_vmap_equal_members_apart(unit):
    params = {name: torch.randn(3, *p.shape, dtype=torch.float64) for name, p in unit.named_parameters()}
    u, bytes_ = torch.randn(3, 4, 5, 6, dtype=torch.float64), (drawn(3, 4, 5, 24), drawn(3, 4, 5, 6))

    def call(one: dict, u: Tensor, inner: Tensor, outer: Tensor) -> Tensor:
        return torch.func.functional_call(unit, one, (u, {"m.inner": inner, "m.outer": outer}, "m"))

    together = torch.func.vmap(call)(params, u, *bytes_)
    apart = [call({n: v[r] for n, v in params.items()}, u[r], bytes_[0][r], bytes_[1][r]) for r in range(3)]
    torch.testing.assert_close(together, torch.stack(apart))
    plain = torch.func.vmap(lambda one, u, i, o: torch.func.functional_call(Plain(unit), one, (u, i, o)))
    prefixed = {f"unit.{name}": value for name, value in params.items()}
    torch.testing.assert_close(plain(prefixed, u, *bytes_), together)


class Plain(torch.nn.Module):
    """The path of a GPU, with the norm."""

    def __init__(self, unit: FeedForward) -> None:
        super().__init__()
        self.unit = unit

    def forward(self, u: Tensor, inner: Tensor, outer: Tensor) -> Tensor:
        return self.unit.norm(self.unit.plain(u, inner, outer))


def test_no_positions_are_no_problem(unit):
    u = torch.zeros(3, 0, 6, dtype=torch.float64, requires_grad=True)
    out = unit(u, {"s.inner": drawn(3, 0, 24), "s.outer": drawn(3, 0, 6)}, "s")
    assert out.shape == u.shape
    out.sum().backward()
    assert all((p.grad == 0).all() for p in (*unit.inner.parameters(), *unit.outer.parameters()))


def test_reduced_precision_uses_ordinary_operators(unit):
    single = unit.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = single.residual(torch.ones(2, 3, 6), None, None)
    torch.testing.assert_close(low, single.residual(torch.ones(2, 3, 6), None, None), rtol=0.02, atol=0.05)
