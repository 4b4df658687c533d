"""The first layer's attention over scalars against the same block on the tokens themselves."""

import pytest
import torch

from costar_cli.config.models import EncoderConfig
from costar_cli.methods.costar import scalar_attention
from costar_cli.methods.costar.encoder import CostarEncoder


def random_bytes(*shape: int) -> torch.Tensor:
    return torch.randint(256, shape, dtype=torch.uint8)


TILES = {"one sample": (1, 32, 16), "some samples": (2_000, 32, 16), "as on a GPU": (10**9, 10**9, 1)}


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("steps", [1, 2, 4, 5, 30, 33, 70])
@pytest.mark.parametrize("dropout", [False, True])
def test_values_and_gradients_equal_those_of_the_block_on_tokens(steps, dropout, tile, monkeypatch):
    for name, value in zip(("TILE_ELEMENTS", "BLOCK", "LANES"), TILES[tile], strict=True):
        monkeypatch.setattr(scalar_attention, name, value)
    torch.manual_seed(steps)
    config = EncoderConfig(width=12, heads=3, clip_distance=4, dropout=0.3)
    encoder = CostarEncoder((2, 3, 1, 2), config).double()
    block, n = encoder.layer_list[0].temporal, 6
    series, statics = torch.randn(5, n, steps).double(), torch.randn(5, 2, 12).double()
    shapes = encoder.mask_shapes(steps)
    masks = {name: random_bytes(5, *shape) for name, shape in shapes.items()} if dropout else None
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


@pytest.mark.parametrize("width", [2, 20, 40])
def test_wide_bands_and_many_steps_equal_the_block_on_tokens(width):
    torch.manual_seed(width)
    encoder = CostarEncoder((0, 1, 1, 1), EncoderConfig(width=6, heads=2, clip_distance=width)).double()
    block, steps = encoder.layer_list[0].temporal, 75
    series, statics, masks = torch.randn(2, 2, steps).double(), torch.randn(2, 1, 6).double(), None
    token_XD, tables = encoder.embedding.affine()[:3], encoder.relative()
    tokens = series[..., None] * token_XD[0] + token_XD[1:, None]
    fast, _ = block.forward_scalars(series, token_XD, statics, tables, masks, "0.temporal")
    torch.testing.assert_close(fast, block(tokens, statics, tables, masks, "0.temporal")[0])


@pytest.mark.parametrize("dropout", [False, True])
def test_under_vmap_each_member_uses_its_own_parameters(dropout):
    torch.manual_seed(0)
    encoder = CostarEncoder((0, 2, 1, 1), EncoderConfig(width=6, heads=2, clip_distance=3)).double()
    params = {name: torch.randn(3, *p.shape).double().requires_grad_() for name, p in encoder.named_parameters()}
    history, statics = torch.randn(3, 4, 7, 3).double(), torch.randn(3, 4, 1).double()
    masks = {name: random_bytes(3, 4, *shape) for name, shape in encoder.mask_shapes(7).items()} if dropout else {}

    def z(one: dict, history: torch.Tensor, statics: torch.Tensor, masks: dict) -> torch.Tensor:
        return torch.func.functional_call(encoder, one, (history, statics, masks)).z_BTD

    def member(values: dict, r: int) -> dict:
        return {name: value[r] for name, value in values.items()}

    together = torch.func.vmap(z)(params, history, statics, masks)
    apart = torch.stack([z(member(params, r), history[r], statics[r], member(masks, r)) for r in range(3)])
    torch.testing.assert_close(together, apart)
    weight = torch.randn_like(apart)
    slopes = [
        torch.autograd.grad((o * weight).sum(), list(params.values()), allow_unused=True) for o in (together, apart)
    ]
    for a, b in zip(*slopes, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b)
