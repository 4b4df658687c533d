"""A stand-in for the package `chronos`, with its interface, and folders that pass for its weights."""

import atexit
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

from costar_cli.methods.chronos import weights
from costar_cli.methods.chronos.settings import ChronosConfig

SD = 0.5  # of each predicted step, in sds of the series so far


class FakePipeline:
    """Forecasts the mean so far of all series, and what the treatment of each step adds; all inputs are checked.

    As in Chronos-2, every known treatment moves every step.
    """

    def __init__(self) -> None:
        self.asked: list[int] = []

    def predict_quantiles(
        self, inputs: Sequence[Any], prediction_length: int, quantile_levels: list[float]
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        self.asked.append(len(inputs))
        medians = []
        for one in inputs:
            target, past, future = (one[name] for name in ("target", "past_covariates", "future_covariates"))
            assert target.ndim == 2
            assert set(future) == {name for name in past if name.startswith("a")}
            assert {len(series) for series in past.values()} == {target.shape[1]}
            assert {len(series) for series in future.values()} == {prediction_length}
            level_Y = target.mean(axis=1) + 0.1 * sum(np.nanmean([0, *series]) for series in past.values())
            plan_H = sum((i + 1) * series for i, series in enumerate(future.values()))
            medians.append(level_Y[:, None] + 0.3 * plan_H + 0.1 * plan_H.sum())
        spread_K = SD * ndtri(quantile_levels)
        return [median[..., None] + spread_K for median in medians], medians


def folder_of_weights(folder: Path) -> Path:
    """The two files of weights, empty but for their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (weights.CONFIG, weights.TENSORS):
        (folder / name).write_text(name)
    return folder


@cache
def fake_settings() -> ChronosConfig:
    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)
    return ChronosConfig(weights=str(folder_of_weights(Path(folder.name))))


@pytest.fixture(scope="module", autouse=True)
def fake_chronos() -> Iterator[FakePipeline]:
    """Let models of Chronos-2 answer by the stand-in."""
    made = FakePipeline()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "load_pipeline", lambda *_: made)
        yield made
