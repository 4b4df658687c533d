"""Augmentation: what is perturbed, by whom it is shared, and when nothing happens."""

import pytest
import torch

from costar_cli.config.models import PretrainConfig
from costar_cli.methods.costar.pretraining import augment
from costar_cli.methods.shared.streams import Stream


def config(**changes: object) -> PretrainConfig:
    return PretrainConfig(**{"augment_probability": 1.0, **changes})


@pytest.mark.parametrize("granularity", ["batch", "sample"])
def test_probability_zero_and_sigma_zero_are_the_identity(granularity):
    history = torch.randn(4, 6, 3)
    for changes in ({"augment_probability": 0.0}, {"augment_sigma": 0.0}):
        assert torch.equal(augment(history, config(augment_granularity=granularity, **changes), Stream(1)), history)


def test_two_views_differ_and_a_stream_repeats_itself():
    history = torch.randn(4, 6, 3)
    stream = Stream(1)
    first, second = augment(history, config(), stream), augment(history, config(), stream)
    assert not torch.allclose(first, second)
    assert torch.equal(first, augment(history, config(), Stream(1)))


@pytest.mark.parametrize(("granularity", "shared"), [("batch", True), ("sample", False)])
def test_scale_and_shift_are_shared_as_the_granularity_says(granularity, shared):
    zeros = torch.zeros(5, 400, 2)  # the mean over time of shift + jitter is the shift, up to sigma / 20
    shift = augment(zeros, config(augment_granularity=granularity), Stream(3)).mean(dim=1)
    spread = shift.std(dim=0)
    assert (spread < 0.06).all() if shared else (spread > 0.1).all()


def test_coins_fall_for_the_whole_batch_or_per_sample():
    ones = torch.ones(64, 2, 1)
    half = config(augment_probability=0.5)
    by_batch = [(augment(ones, half, Stream(i)) != 1).flatten(1).any(1).float().mean().item() for i in range(20)]
    assert set(by_batch) == {0.0, 1.0}
    by_sample = augment(ones, half.model_copy(update={"augment_granularity": "sample"}), Stream(0))
    assert 0.6 < (by_sample != 1).flatten(1).any(1).float().mean().item() < 1.0
