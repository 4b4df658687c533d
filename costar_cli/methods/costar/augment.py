"""Augmentation of the series for contrastive views: scale, shift, jitter (spec COSTAR-8)."""

import torch
from torch import Tensor

from costar_cli.config.models import PretrainConfig
from costar_cli.methods.shared.streams import Stream

__all__ = ["augment", "augment_with_statics"]


def augment(history_BTS: Tensor, config: PretrainConfig, stream: Stream) -> Tensor:
    """Return a randomly scaled, shifted and jittered copy of the series; statics and masks are not touched.

    With granularity `batch` a coin per transform decides for the whole batch, and scale and shift draw one number per
    feature; with `sample` each sample has its own coins and numbers. Jitter is drawn per element either way.
    Treatments are perturbed as real numbers, like everything else.
    """
    batch, n_steps, n_features = history_BTS.shape
    rows = batch if config.augment_granularity == "sample" else 1
    device, dtype = history_BTS.device, history_BTS.dtype
    coins_3R = (stream.uniform(3, rows) < config.augment_probability).to(device=device, dtype=dtype)
    sigma_3R = (config.augment_sigma * coins_3R)[:, :, None, None]
    per_feature = stream.normal(2, rows, 1, n_features, device=device, dtype=dtype)
    jitter = stream.normal(batch, n_steps, n_features, device=device, dtype=dtype)
    scaled = history_BTS * (1 + sigma_3R[0] * per_feature[0])
    return torch.addcmul(scaled + sigma_3R[1] * per_feature[1], sigma_3R[2].expand_as(jitter), jitter)


def augment_with_statics(
    history_BTS: Tensor, statics_BV: Tensor, config: PretrainConfig, stream: Stream
) -> tuple[Tensor, Tensor]:
    """Return such a copy of series and statics, these as further series (spec COSTAR-19) that stay constant.

    Statics share the coins of the series. Their jitter is that of the first step at every step.
    """
    n_features = history_BTS.shape[-1]
    statics_BTV = statics_BV[:, None].expand(-1, history_BTS.shape[1], -1)
    all_BTF = augment(torch.cat([history_BTS, statics_BTV], dim=-1), config, stream)
    return all_BTF[..., :n_features], all_BTF[:, 0, n_features:]
