"""The encoder: exact sizes, causality, padding, feature codes, and equality with the literal implementation."""

import pytest
import torch
from torch import Tensor

from benchmarks.literal_costar import LiteralEncoder
from costar_cli.config.models import EncoderConfig
from costar_cli.methods.costar import attention
from costar_cli.methods.costar.encoder import CostarEncoder
from costar_cli.methods.costar.feed_forward import LayerNorm
from costar_cli.methods.costar.predictor import OutcomePredictor, contrast_predictor
from costar_cli.methods.shared.dropout import Masks
from costar_cli.methods.shared.members import call_members

DIMS = {"tumor": (0, 4, 1, 1), "mimic": (25, 3, 2, 44), "m5": (47, 22, 1, 22)}
CONFIG = {
    "tumor": EncoderConfig(),
    "mimic": EncoderConfig(width=36, heads=3),
    "m5": EncoderConfig(width=36, layers=2, heads=2),
}
HORIZON = {"tumor": 6, "mimic": 11, "m5": 6}
SMALL = {
    "no covariates": (0, 4, 1, 1),
    "all kinds": (3, 2, 2, 2),
    "no statics": (2, 1, 1, 0),
    "two layers": (2, 3, 1, 2),
}


def small_encoder(name: str, dropout: float = 0.1) -> CostarEncoder:
    torch.manual_seed(1)
    layers = 2 if name == "two layers" else 1
    config = EncoderConfig(width=12, heads=3, layers=layers, clip_distance=4, dropout=dropout)
    return CostarEncoder(SMALL[name], config)


def inputs(dims: tuple[int, int, int, int], n: int = 3, t: int = 11) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(n, t, sum(dims[:3]), generator=generator), torch.randn(n, dims[3], generator=generator)


def count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("name", "encoder", "predictor", "head", "total"),
    [
        ("tumor", 14_232, 2_376, 4_049, 20_657),
        ("mimic", 31_920, 5_292, 6_362, 43_574),
        ("m5", 61_776, 5_292, 10_481, 77_549),
    ],
)
def test_parameter_counts_are_those_of_the_paper(name, encoder, predictor, head, total):
    config, dims = CONFIG[name], DIMS[name]
    parts = [
        count(CostarEncoder(dims, config)),
        count(contrast_predictor(config.width)),
        count(OutcomePredictor(dims[1], dims[2], width=config.width, horizon=HORIZON[name], hidden=128)),
    ]
    assert parts == [encoder, predictor, head]
    assert sum(parts) == total


@pytest.mark.parametrize("name", DIMS)
def test_equals_the_literal_specification(name):
    torch.manual_seed(0)
    fast, literal = CostarEncoder(DIMS[name], CONFIG[name]), LiteralEncoder(DIMS[name], CONFIG[name]).eval()
    literal.load_fast(fast)
    history, statics = inputs(DIMS[name], n=2, t=20)
    z, components = fast(history, statics)
    z_literal, components_literal = literal(history, statics, torch.ones(2, 20, dtype=torch.bool))
    torch.testing.assert_close(z, z_literal, rtol=1e-4, atol=2e-5)
    torch.testing.assert_close(components, torch.stack(components_literal), rtol=1e-4, atol=2e-5)


def test_gradients_equal_those_of_the_literal_specification():
    torch.manual_seed(0)
    dims, config = SMALL["two layers"], EncoderConfig(width=12, heads=3, layers=2, clip_distance=4)
    fast, literal = CostarEncoder(dims, config).double(), LiteralEncoder(dims, config).eval().double()
    literal.load_fast(fast)
    history, statics = (u.double() for u in inputs(dims))
    weight = torch.randn(3, 11, 12, dtype=torch.float64)
    (fast(history, statics).z_BTD * weight).sum().backward()
    (literal(history, statics, torch.ones(3, 11, dtype=torch.bool))[0] * weight).sum().backward()
    expected = {n: p.grad for n, p in literal.named_parameters()}
    got = LiteralEncoder(dims, config).double()
    for parameter in fast.parameters():
        parameter.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    got.load_fast(fast)
    for name, parameter in got.named_parameters():
        slope = expected[name] if expected[name] is not None else torch.zeros_like(parameter)
        torch.testing.assert_close(parameter.data, slope, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("members", [1, 2])
def test_heads_split_for_many_features_give_values_and_gradients_of_masked_ones(monkeypatch, members):
    encoder = small_encoder("two layers", dropout=0.3).double()
    params_R = {n: v.detach().repeat(members, *[1] * v.dim()).requires_grad_() for n, v in encoder.named_parameters()}
    inputs_R = [u.double().expand(members, *u.shape) for u in inputs(SMALL["two layers"])]
    generator = torch.Generator().manual_seed(3)
    shapes = encoder.mask_shapes(11).items()
    masks = {key: torch.randint(256, (members, 3, *s), dtype=torch.uint8, generator=generator) for key, s in shapes}
    weight = torch.randn(members, 3, 11, 12, dtype=torch.float64, generator=generator)

    def values_and_slopes() -> tuple[Tensor, ...]:
        z_RBTD = call_members(encoder, params_R, *inputs_R, masks)[0]
        return z_RBTD, *torch.autograd.grad((z_RBTD * weight).sum(), list(params_R.values()), allow_unused=True)

    masked = values_and_slopes()
    monkeypatch.setattr(attention, "WIDE", 0)
    monkeypatch.delattr(attention.FeatureBlock, "_masked_heads")
    torch.testing.assert_close(values_and_slopes(), masked)


@pytest.mark.parametrize("name", SMALL)
def test_future_inputs_leave_past_representations_unchanged(name):
    encoder = small_encoder(name)
    history, statics = inputs(SMALL[name])
    changed = history.clone()
    changed[:, 7:] += 5
    before, after = encoder(history, statics), encoder(changed, statics)
    assert torch.equal(before.z_BTD[:, :7], after.z_BTD[:, :7])
    assert not torch.allclose(before.z_BTD[:, 7], after.z_BTD[:, 7])


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("steps", [1, 2, 4, 5])
def test_longer_padding_and_short_series_change_nothing(name, steps):
    encoder = small_encoder(name)
    history, statics = inputs(SMALL[name])
    torch.testing.assert_close(
        encoder(history[:, :steps], statics).z_BTD, encoder(history, statics).z_BTD[:, :steps], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("name", ["no covariates", "all kinds", "two layers"])
def test_every_past_input_and_static_matters(name):
    encoder = small_encoder(name)
    history, statics = inputs(SMALL[name], n=1)
    statics.requires_grad_()
    z = encoder(history, statics).z_BTD[0, 6]
    z.sum().backward()
    assert (statics.grad != 0).all()
    for step, feature in torch.cartesian_prod(*map(torch.arange, history.shape[1:])).tolist():
        changed = history.clone()
        changed[0, step, feature] += 1
        assert torch.equal(encoder(changed, statics).z_BTD[0, 6], z) == (step > 6), (step, feature)


def test_statics_stay_free_of_time_after_every_layer():
    encoder = small_encoder("two layers")
    seen = []
    encoder.layer_list[0].feature.register_forward_hook(lambda _m, _i, out: seen.append(out[1]))
    history, statics = inputs(SMALL["two layers"])
    encoder(history, statics)
    encoder(history + 1, statics)
    assert torch.equal(seen[0], seen[1])


def test_tree_codes_differ_by_component_alone_for_equal_indices():
    feature = small_encoder("all kinds").embedding.feature
    codes = feature()
    x0, a0 = codes[0], codes[3]  # tokens: three covariates, two treatments, two outcomes, two statics
    torch.testing.assert_close(x0 - a0, feature.component[0] - feature.component[1])
    torch.testing.assert_close(codes[1] - codes[4], feature.component[0] - feature.component[1])


def test_absolute_codes_follow_their_features():
    dims = SMALL["all kinds"]
    torch.manual_seed(1)
    encoder = CostarEncoder(dims, EncoderConfig(width=12, heads=3, feature_encoding="absolute"))
    assert encoder.embedding.feature.feature.shape == (sum(dims), 12)
    history, statics = inputs(dims)
    z = encoder(history, statics).z_BTD
    with torch.no_grad():
        encoder.embedding.feature.feature[-2:] = encoder.embedding.feature.feature[-2:].flip(0)
    torch.testing.assert_close(encoder(history, statics.flip(1)).z_BTD, z)


def test_pooling_by_component_weighs_components_and_by_token_weighs_tokens():
    dims = SMALL["all kinds"]
    torch.manual_seed(1)
    by_component = CostarEncoder(dims, EncoderConfig(width=12, heads=3))
    by_token = CostarEncoder(dims, EncoderConfig(width=12, heads=3, pool="token"))
    by_token.load_state_dict(by_component.state_dict())
    history, statics = inputs(dims)
    z, components = by_component(history, statics)
    torch.testing.assert_close(z, components.mean(dim=0))
    weights = torch.tensor([2.0, 2.0, 3.0])[:, None, None, None] / 7  # Y, A, X
    torch.testing.assert_close(by_token(history, statics).z_BTD, (components * weights).sum(dim=0))


def test_layer_norm_divides_by_the_unbiased_deviation():
    norm = LayerNorm(3)
    torch.testing.assert_close(norm(torch.tensor([[1.0, 2.0, 6.0]])), torch.tensor([[-2.0, -1.0, 3.0]]) / 7**0.5)
    assert torch.equal(norm(torch.full((1, 3), 4.0)), torch.zeros(1, 3))


@pytest.mark.parametrize("name", SMALL)
def test_every_declared_mask_is_used_and_keeping_everything_changes_nothing(name):
    history, statics = inputs(SMALL[name])
    keeps_all, encoder = small_encoder(name, dropout=0.0), small_encoder(name, dropout=0.5)
    masks = {key: torch.zeros(3, *shape, dtype=torch.uint8) for key, shape in encoder.mask_shapes(11).items()}
    torch.testing.assert_close(keeps_all(history, statics, masks).z_BTD, encoder(history, statics).z_BTD)
    z = encoder(history, statics, masks).z_BTD
    generator = torch.Generator().manual_seed(0)
    for key, mask in masks.items():
        changed = masks | {key: torch.randint(256, mask.shape, dtype=torch.uint8, generator=generator)}
        assert torch.equal(encoder(history, statics, changed).z_BTD, z) == (mask.numel() == 0), key


def test_dropout_preserves_what_is_summed_on_average():
    encoder = small_encoder("all kinds", dropout=0.3).double()
    generator = torch.Generator().manual_seed(0)
    series, statics = (torch.randn(2, *shape, generator=generator).double() for shape in ((7, 11), (2, 12)))
    token_XD = encoder.embedding.affine()[:8].detach()
    u = torch.randn(2, 7, 11, 12, generator=generator).double()
    block = encoder.layer_list[0].temporal
    block.feed_forward.norm = block.unit.norm = torch.nn.Identity()
    feed_forward = block.feed_forward
    block.feed_forward = Passed()  # the norms and this unit are not linear in what is dropped

    def drawn(*shape: int) -> Tensor:
        return torch.randint(256, (2, *shape), dtype=torch.uint8, generator=generator)

    nothing = {f"0.temporal.series.{part}": drawn(0, 0) for part in ("inner", "outer")}

    def attention(masks: Masks) -> Tensor:
        masks = masks and masks | nothing
        return block.forward_scalars(series, token_XD, statics, encoder.relative(), masks, "0.temporal")[0]

    draws = 3_000
    with torch.no_grad():
        attended = sum(attention({"0.temporal.attention": drawn(7, 3, 11, 11)}) for _ in range(draws)) / draws
        torch.testing.assert_close(attended, attention(None), rtol=0.02, atol=0.15)
        forwarded = sum(feed_forward.residual(u, drawn(7, 11, 48), drawn(7, 11, 12)) for _ in range(draws)) / draws
        torch.testing.assert_close(forwarded, feed_forward.residual(u, None, None), rtol=0.02, atol=0.1)
        pooled = sum(encoder.dropout(u, drawn(7, 11, 12)) for _ in range(draws)) / draws
        torch.testing.assert_close(pooled, u, rtol=0.1, atol=0.01)


class Passed(torch.nn.Module):
    def forward(self, u: Tensor, _masks: Masks, _name: str) -> Tensor:
        return u
