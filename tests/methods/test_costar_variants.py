"""Ablations of COSTAR that change the encoder or the self-supervised loss (spec COSTAR-19 to 23)."""

import pytest
import torch
from torch import Tensor

from costar_cli.config.models import EncoderConfig
from costar_cli.data import Dataset
from costar_cli.methods.costar.encoder import CostarEncoder
from costar_cli.methods.shared.streams import Stream
from tests.train.worlds import run_pretrain

DIMS = (3, 2, 1, 2)


def encoder(blocks: str, layers: int = 2) -> CostarEncoder:
    torch.manual_seed(3)
    return CostarEncoder(DIMS, EncoderConfig(width=12, heads=3, layers=layers, clip_distance=4, blocks=blocks))


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(2, 9, sum(DIMS[:3]), generator=generator), torch.randn(2, DIMS[3], generator=generator)


def test_without_feature_blocks_statics_have_no_say():
    model, (history, statics) = encoder("temporal"), inputs()
    assert torch.equal(model(history, statics).z_BTD, model(history, statics + 1).z_BTD)
    both = encoder("both")
    assert not torch.allclose(both(history, statics).z_BTD, both(history, statics + 1).z_BTD)


def test_without_temporal_blocks_a_step_sees_itself_alone():
    model, (history, statics) = encoder("feature"), inputs()
    changed = history.clone()
    changed[:, 4] += 1
    before, after = model(history, statics).z_BTD, model(changed, statics).z_BTD
    same = torch.arange(history.shape[1]) != 4
    assert torch.allclose(before[:, same], after[:, same], atol=1e-6)
    assert not torch.allclose(before[:, 4], after[:, 4])


def test_without_feature_blocks_the_past_still_counts_and_the_future_does_not():
    model, (history, statics) = encoder("temporal"), inputs()
    changed = history.clone()
    changed[:, 4] += 1
    before, after = model(history, statics).z_BTD, model(changed, statics).z_BTD
    assert torch.allclose(before[:, :4], after[:, :4], atol=1e-6)
    assert not torch.allclose(before[:, 8], after[:, 8])


@pytest.mark.parametrize("blocks", ["temporal", "feature"])
def test_a_missing_block_has_no_parameters_and_no_dropout_masks(blocks):
    other = {"temporal": "feature", "feature": "temporal"}[blocks]
    model = encoder(blocks)
    assert not [name for name, _ in model.named_parameters() if f"layers.0.{other}." in name]
    assert not [name for name in model.mask_shapes(9) if f"0.{other}." in name]
    assert ("relative.key" in dict(model.named_parameters())) == (blocks == "temporal")


@pytest.mark.parametrize("blocks", ["temporal", "feature"])
def test_dropout_reaches_every_block_that_is_left(blocks):
    model, (history, statics) = encoder(blocks), inputs()
    masks = model.mask_source(9, [Stream(1)], history).draw(2)()
    dropped = model(history, statics, {name: mask[0] for name, mask in masks.items()}).z_BTD
    assert torch.isfinite(dropped).all()
    assert not torch.allclose(dropped, model(history, statics).z_BTD)


@pytest.mark.parametrize("blocks", ["temporal", "feature"])
def test_encoders_with_one_kind_of_block_can_be_pretrained(blocks, tumor_dataset: Dataset):
    trained = run_pretrain(tumor_dataset, epochs=8, encoder=EncoderConfig(blocks=blocks))
    first, *_, last = trained.meta["history"]["train_loss"][0]
    assert last < first


def test_the_spectral_loss_trains_an_encoder_without_predictor(tumor_dataset: Dataset):
    trained = run_pretrain(tumor_dataset, epochs=6, ssl_loss="spectral")
    first, *_, last = trained.meta["history"]["train_loss"][0]
    assert last < first
    assert trained.meta.get("reference") is None
    assert not [name for name in trained.arrays if "predictor" in name]


def test_the_spectral_loss_gives_the_same_weights_for_the_same_seed(tumor_dataset: Dataset):
    once, again = (run_pretrain(tumor_dataset, epochs=2, ssl_loss="spectral").arrays for _ in range(2))
    assert all((once[name] == again[name]).all() for name in once)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("blocks", ["both", "temporal", "feature"])
def test_a_step_alone_is_represented_as_among_all_steps(blocks, layers):
    model, (history, statics), step = encoder(blocks, layers), inputs(), torch.tensor([8, 3])
    every = model(history, statics).z_BTD
    torch.testing.assert_close(model.at(history, statics, step), every[torch.arange(2), step, None])
