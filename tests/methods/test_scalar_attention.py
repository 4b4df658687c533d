"""The first layer's attention over scalars against the same block on the tokens themselves."""

import pytest
import torch

from costar_cli.config.models import EncoderConfig
from costar_cli.methods.costar.encoder import CostarEncoder


@pytest.mark.parametrize("steps", [1, 2, 4, 5, 30])
@pytest.mark.parametrize("dropout", [False, True])
def test_values_and_gradients_equal_those_of_the_block_on_tokens(steps, dropout):
    torch.manual_seed(steps)
    encoder = CostarEncoder((2, 3, 1, 2), EncoderConfig(width=12, heads=3, clip_distance=4)).double()
    block, n = encoder.layer_list[0].temporal, 6
    series, statics = torch.randn(5, n, steps).double(), torch.randn(5, 2, 12).double()
    shapes = encoder.mask_shapes(steps)
    masks = {name: (torch.rand(5, *shape) < 0.8).double() for name, shape in shapes.items()} if dropout else None
    token_XD, tables = encoder.embedding.affine()[: 1 + n], encoder.relative()
    tokens = series[..., None] * token_XD[0] + token_XD[1:, None]
    fast, _ = block.forward_scalars(series, token_XD, statics, tables, masks, "0.temporal")
    slow, _ = block(tokens, statics, tables, masks, "0.temporal")
    torch.testing.assert_close(fast, slow)
    weight = torch.randn_like(slow)
    got, expected = (
        torch.autograd.grad((o * weight).sum(), list(encoder.parameters()), retain_graph=True, allow_unused=True)
        for o in (fast, slow)
    )
    for a, b in zip(got, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


def test_under_vmap_each_member_uses_its_own_parameters():
    torch.manual_seed(0)
    encoder = CostarEncoder((0, 2, 1, 1), EncoderConfig(width=6, heads=2, clip_distance=3)).double()
    params = {name: torch.randn(3, *p.shape).double() for name, p in encoder.named_parameters()}
    history, statics = torch.randn(3, 4, 7, 3).double(), torch.randn(3, 4, 1).double()

    def z(one: dict[str, torch.Tensor], history: torch.Tensor, statics: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(encoder, one, (history, statics)).z_BTD

    together = torch.func.vmap(z)(params, history, statics)
    apart = [z({name: p[r] for name, p in params.items()}, history[r], statics[r]) for r in range(3)]
    torch.testing.assert_close(together, torch.stack(apart))
