"""Other encoders in COSTAR's place: a plain transformer over time (VT), the streams of CT (spec COSTAR-19 to 20)."""

import signal
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from costar_cli.config.models import EncoderConfig, PretrainConfig, RuntimeConfig
from costar_cli.data import Dataset
from costar_cli.methods.costar.architectures import make_encoder
from costar_cli.methods.costar.pretraining import PretrainStage, augment, augment_with_statics
from costar_cli.methods.costar.representation import HistoryEncoder, encode_members
from costar_cli.methods.shared.members import named_params, stack_members
from costar_cli.methods.shared.microbatches import cores_for_microbatches
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.transformers.ct_network import CtNetwork
from costar_cli.methods.transformers.settings import TransformerConfig
from costar_cli.training import loop
from tests.train.worlds import ENCODER, as_model, pretrain_stage, run_finetune, run_pretrain

ARCHITECTURES = ["vt", "vt_relative", "ct"]
DIMS = {"no covariates": (0, 4, 1, 1), "all kinds": (3, 2, 2, 2), "no statics": (2, 1, 1, 0)}
PAPER = {  # dims, width, layers, heads
    "tumor": ((0, 4, 1, 1), 24, 1, 2),
    "mimic": ((25, 3, 2, 44), 36, 1, 3),
    "m5": ((47, 22, 1, 22), 36, 2, 2),
}


def encoder(architecture: str, dims: tuple[int, int, int, int], **changes: object) -> HistoryEncoder:
    torch.manual_seed(3)
    shape = {"width": 12, "heads": 3, "layers": 2, "clip_distance": 4, **changes}
    return make_encoder(dims, EncoderConfig(architecture=architecture, **shape)).double()


def inputs(dims: tuple[int, int, int, int], n: int = 3, steps: int = 9) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    history = torch.randn(n, steps, sum(dims[:3]), generator=generator, dtype=torch.float64)
    return history, torch.randn(n, dims[3], generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("data", PAPER)
def test_parameter_counts_follow_the_closed_formulas(data):
    (dx, da, dy, dv), d, layers, heads = PAPER[data]
    shape = {"width": d, "layers": layers, "heads": heads}
    sizes = {
        name: sum(p.numel() for p in encoder(name, PAPER[data][0], **shape, clip_distance=15).parameters())
        for name in ARCHITECTURES
    }
    tables = 2 * 31 * (d // heads)
    assert sizes["vt"] == (dx + da + dy + dv) * d + d + layers * (12 * d * d + 13 * d)
    assert sizes["vt_relative"] == sizes["vt"] + tables
    units, forwards = (9, 3) if dx else (4, 2)
    maps = sum(n * d + d for n in (dx, da, dy, dv) if n)
    assert sizes["ct"] == tables + maps + layers * (units * (3 * d * d + 5 * d) + forwards * (8 * d * d + 7 * d))


@pytest.mark.parametrize("dims", DIMS.values(), ids=DIMS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_representation_knows_the_past_and_not_the_future(architecture, dims):
    model, (history, statics) = encoder(architecture, dims), inputs(dims)
    changed = history.clone()
    changed[:, 4] += 1
    before, after = model(history, statics), model(changed, statics)
    for values, others in zip(before, after, strict=True):
        torch.testing.assert_close(values[..., :4, :], others[..., :4, :])
    assert ((before.z_BTD - after.z_BTD)[:, 4:].abs().amax(dim=-1) > 1e-6).all()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_longer_series_begin_with_the_representations_of_shorter_ones(architecture):
    model, (history, statics) = encoder(architecture, DIMS["all kinds"]), inputs(DIMS["all kinds"])
    whole = model(torch.cat([history, torch.zeros_like(history)], dim=1), statics)
    for part, all_steps in zip(model(history, statics), whole, strict=True):
        torch.testing.assert_close(all_steps[..., :9, :], part)


@pytest.mark.parametrize("dims", DIMS.values(), ids=DIMS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_scalar_of_a_step_and_every_static_reach_the_representation(architecture, dims):
    model, (history, statics) = encoder(architecture, dims), inputs(dims)
    before = model(history, statics).z_BTD
    for feature in range(history.shape[-1]):
        changed = history.clone()
        changed[:, 0, feature] += 1
        assert not torch.allclose(model(changed, statics).z_BTD[:, -1], before[:, -1])
    for feature in range(statics.shape[-1]):
        changed = statics.clone()
        changed[:, feature] += 1
        assert not torch.allclose(model(history, changed).z_BTD, before)


def test_without_positions_one_layer_is_blind_to_the_order_of_the_past():
    dims = DIMS["all kinds"]
    history, statics = inputs(dims)
    shuffled = history[:, [3, 0, 6, 1, 7, 2, 5, 4, 8]]  # the last step stays
    for architecture, blind in (("vt", True), ("vt_relative", False), ("ct", False)):
        model = encoder(architecture, dims, layers=1)
        last, other = (model(series, statics).z_BTD[:, -1] for series in (history, shuffled))
        assert torch.allclose(last, other) == blind


def test_a_plain_transformer_is_the_frameworks_with_the_unbiased_deviation_in_its_norms():
    dims, width = DIMS["all kinds"], 12
    model, (history, statics) = encoder("vt", dims), inputs(dims)
    layer = nn.TransformerEncoderLayer(width, 3, 4 * width, 0.0, batch_first=True, layer_norm_eps=1e-12)
    literal = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double()
    for ours, theirs in zip(model.layer_list, literal.layers, strict=True):
        attention, forward = theirs.self_attn, ours.feed_forward
        pairs = [(attention.in_proj_weight, ours.unit.qkv.weight), (attention.in_proj_bias, ours.unit.qkv.bias)]
        modules = [(attention.out_proj, ours.output), (theirs.linear1, forward.inner), (theirs.linear2, forward.outer)]
        pairs += [(getattr(a, name), getattr(b, name)) for a, b in modules for name in ("weight", "bias")]
        for norm, own in ((theirs.norm1, ours.unit.norm), (theirs.norm2, forward.norm)):
            own.gain.data.uniform_(0.5, 1.5)
            own.bias.data.uniform_(-0.5, 0.5)
            pairs += [(norm.weight, own.gain * own.ratio), (norm.bias, own.bias)]
        for target, value in pairs:
            target.data.copy_(value.data)
    tokens = model.tokens(torch.cat([history, statics[:, None].expand(-1, 9, -1)], dim=-1))
    hidden = nn.Transformer.generate_square_subsequent_mask(9, dtype=torch.float64)
    torch.testing.assert_close(model(history, statics).z_BTD, literal(tokens, mask=hidden), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dims", DIMS.values(), ids=DIMS)
def test_components_are_the_streams_of_the_causal_transformer_and_their_mean_the_whole(dims):
    model, (history, statics) = encoder("ct", dims), inputs(dims)
    z, components = model(history, statics)
    assert len(components) == model.n_components == sum(size > 0 for size in dims[:3])
    torch.testing.assert_close(z, components.mean(dim=0))
    shape = TransformerConfig(width=12, heads=3, layers=2, clip_distance=4, representation=5)
    network = CtNetwork(dims, shape).double()  # equal to the formulas: test_ct_network.py
    network.load_state_dict(model.streams.state_dict(), strict=False)
    _, expected = network.trace(history, statics, torch.zeros_like(history[..., 0]))
    torch.testing.assert_close(network.head.represent(z), expected)
    treatments, outcomes, *covariates = network.walk(history, statics, None)[-1]
    torch.testing.assert_close(components, torch.stack([outcomes, treatments, *covariates]))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_dropout_mask_counts(architecture):
    dims = DIMS["all kinds"]
    model, (history, statics) = encoder(architecture, dims), inputs(dims)
    drawn = model.mask_source(9, [Stream(1)], history).draw(3)()
    masks = {name: mask[0] for name, mask in drawn.items()}
    assert masks.keys() == model.mask_shapes(9).keys()
    before = model(history, statics, masks).z_BTD
    for name, mask in masks.items():
        dropped = torch.full_like(mask, 255 if mask.dtype == torch.uint8 else 0)
        assert not torch.allclose(model(history, statics, masks | {name: dropped}).z_BTD, before), name


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dims", DIMS.values(), ids=DIMS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_members_encoded_together_equal_members_one_by_one_and_learn_everywhere(architecture, dims, threads):
    with cores_for_microbatches(threads):
        model, (history, statics) = encoder(architecture, dims), inputs(dims)
        members = [named_params(make_encoder(dims, model.config).double()) for _ in range(2)]
        params = {name: value.requires_grad_() for name, value in stack_members(members).items()}
        histories, both_statics = torch.stack([history, history + 1]), torch.stack([statics, statics])
        masks = [model.mask_source(9, [Stream(m) for m in of], history) for of in ([0, 1], [0], [1])]
        together = encode_members(model, params, histories, both_statics, masks[0])
        for r in range(2):
            alone = {name: value[r : r + 1] for name, value in params.items()}
            apart = encode_members(model, alone, histories[r : r + 1], both_statics[r : r + 1], masks[1 + r])
            for values, expected in zip(together, apart, strict=True):
                torch.testing.assert_close(values[r : r + 1], expected)
        (together.z_BTD.square().sum() + together.components_CBTD.square().sum()).backward()
        assert all(value.grad is not None and (value.grad != 0).any() for value in params.values())


def test_statics_are_augmented_with_the_series_and_stay_constant():
    config = PretrainConfig(augment_probability=0.5, augment_sigma=0.5)
    history, statics = torch.randn(4, 6, 3), torch.randn(4, 2)
    alone = config.model_copy(update={"augment_probability": 0.0})
    for values, same in zip(augment_with_statics(history, statics, alone, Stream(1)), (history, statics), strict=True):
        assert torch.equal(values, same)
    for seed in range(20):  # the coins of a batch fall for both
        series, fixed = augment_with_statics(history, statics, config, Stream(seed))
        assert torch.equal(series, history) == torch.equal(fixed, statics)
        together = torch.cat([history, statics[:, None].expand(-1, 6, -1)], dim=-1)
        assert torch.equal(fixed, augment(together, config, Stream(seed))[:, 0, 3:])


def stage(dataset: Dataset, architecture: str, **changes: object) -> PretrainStage:
    return pretrain_stage(dataset, encoder=ENCODER.model_copy(update={"architecture": architecture}), **changes)


def first_loss(chosen: PretrainStage) -> float:
    params, state = (stack_members([values]) for values in chosen.initial(0))
    return float(chosen.loss(params, state, torch.arange(12)[None], [Stream(1)])[0])


@pytest.mark.parametrize("architecture", ["vt", "vt_relative"])
def test_without_components_their_loss_is_neither_paid_nor_expected(architecture, tumor_dataset: Dataset):
    asked, not_asked = (stage(tumor_dataset, architecture, components=flag) for flag in (True, False))
    assert asked.reference() == not_asked.reference()
    assert first_loss(asked) == first_loss(not_asked)
    assert first_loss(asked) < 1.05 * asked.reference()


def test_streams_pay_and_expect_the_loss_of_components(tumor_dataset: Dataset):
    asked, not_asked = (stage(tumor_dataset, "ct", components=flag) for flag in (True, False))
    assert asked.reference() == pytest.approx(2 * not_asked.reference())
    assert first_loss(asked) == pytest.approx(2 * first_loss(not_asked), rel=0.2)


@pytest.mark.parametrize("architecture", ["vt", "ct"])
def test_views_differ_in_statics_only_where_these_are_series(architecture, tumor_dataset: Dataset):
    chosen = stage(tumor_dataset, architecture, augment_probability=1.0)
    views, statics, _ = chosen._views("train", torch.arange(5)[None], [Stream(1)])
    assert views.shape[:2] == statics.shape[:2] == (1, 10)
    first, second = statics[0].split(5)
    assert torch.equal(first, second) == (architecture == "ct")


@pytest.mark.parametrize("ssl_loss", ["info_nce", "spectral"])
@pytest.mark.parametrize("architecture", ["vt", "ct"])
def test_other_encoders_can_be_pretrained_twice_to_the_same_weights(architecture, ssl_loss, tumor_dataset: Dataset):
    shape = ENCODER.model_copy(update={"architecture": architecture})
    runs = [run_pretrain(tumor_dataset, epochs=6, encoder=shape, ssl_loss=ssl_loss) for _ in range(2)]
    first, *_, last = runs[0].meta["history"]["train_loss"][0]
    assert last < first
    assert all((runs[0].arrays[name] == runs[1].arrays[name]).all() for name in runs[0].arrays)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_pretrained_encoders_are_finetuned_with_the_architecture_that_they_have(architecture, tumor_dataset: Dataset):
    shape = ENCODER.model_copy(update={"architecture": architecture})
    encoders = as_model(run_pretrain(tumor_dataset, epochs=1, encoder=shape))
    assert encoders.encoder_config == shape
    model = as_model(run_finetune(tumor_dataset, start=encoders, epochs=1))
    assert model.encoder_config == shape
    panel = tumor_dataset.panel("target", "test")
    assert model.represent(panel).shape == (2, panel.n_subjects, panel.n_steps, ENCODER.width)


@pytest.mark.parametrize("architecture", ["vt", "ct"])
def test_members_pretrained_together_equal_members_pretrained_apart(
    architecture, tumor_dataset: Dataset, tmp_path: Path
):
    shape = ENCODER.model_copy(update={"architecture": architecture})
    together, apart = (
        run_pretrain(
            tumor_dataset,
            tmp_path / str(group),
            RuntimeConfig(device="cpu", precision="float64", group=group),
            epochs=2,
            encoder=shape,
        )
        for group in (2, 1)
    )
    for name, values in apart.arrays.items():
        np.testing.assert_allclose(together.arrays[name], values, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("architecture", ["vt", "ct"])
def test_interrupted_pretraining_continues_to_the_same_weights(
    architecture, tumor_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shape = ENCODER.model_copy(update={"architecture": architecture})
    expected = run_pretrain(tumor_dataset, epochs=2, encoder=shape)
    steps, step = count(), loop.training_step

    def interrupted(*args: object) -> Tensor:
        if next(steps) == 5:  # in the second member's first epoch
            signal.raise_signal(signal.SIGINT)
        return step(*args)

    monkeypatch.setattr(loop, "training_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_pretrain(tumor_dataset, tmp_path / "cut", epochs=2, encoder=shape)
    monkeypatch.undo()
    continued = run_pretrain(tumor_dataset, tmp_path / "cut", epochs=2, encoder=shape)
    assert all((continued.arrays[name] == values).all() for name, values in expected.arrays.items())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_step_alone_is_represented_as_among_all_steps(architecture):
    model, (history, statics) = encoder(architecture, DIMS["all kinds"]), inputs(DIMS["all kinds"])
    step = torch.tensor([8, 0, 3])
    every = model(history, statics).z_BTD
    torch.testing.assert_close(model.at(history, statics, step), every[torch.arange(3), step, None])
