"""A model that version 0.3.0 wrote keeps its bands and lights (tests/artifact/archives/models)."""

import numpy as np
import pytest

from costar_cli.data.linear.settings import LinearGaussianConfig
from costar_cli.data.linear.simulate import simulate_linear
from costar_cli.data.windows import factual_windows
from costar_cli.inference import calibration_of, estimate, support_of
from costar_cli.methods.stored import load_model
from costar_cli.reporting import NullReporter
from tests.artifact.make_archives import ARCHIVES


def test_bands_and_lights_of_a_model_of_0_3_0_are_those_that_it_gave() -> None:
    sizes = {"train": 60, "val": 30, "test": 4, "target_train": 2, "target_val": 2, "target_test": 2}
    data = simulate_linear(LinearGaussianConfig(**sizes, steps=10, horizon=2, seed=5), NullReporter())
    model = load_model(ARCHIVES / "models" / "ridge-0.3.0.h5")
    windows = factual_windows(data.panel("source", "test"), 2)
    found = estimate(model, windows.panel, windows.asked)
    calibration, support = calibration_of(model), support_of(model)
    bands = calibration.bands(found, [0.9])
    width_H = (bands.upper_LQHY - bands.lower_LQHY)[0, 0, :, 0]
    assert found.mean_QHY[0, :, 0] == pytest.approx([-2.80299258, -2.84521222], abs=1e-4)
    assert width_H == pytest.approx([2.13085842, 2.90127827], abs=1e-4)
    assert (calibration.floor, calibration.plans) == (0.05, None)
    probability_H = support.ratings(windows.panel, windows.asked, found).probability_QH[0]
    np.testing.assert_allclose(probability_H, [0.89981933, 0.89890221], atol=1e-4)
