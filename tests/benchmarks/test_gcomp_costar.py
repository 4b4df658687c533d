"""COSTAR's encoder as what predicts a step: simulated histories are those of the panel, and so are its states."""

import numpy as np
import pytest

from benchmarks import gcomp_costar
from benchmarks.gcomp import TRAIN, dataset_of
from benchmarks.gcomp_costar import of_one_step, one_step_network, pretrained, widened
from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Queries
from costar_cli.methods.gcomp.model import GcompModel
from costar_cli.methods.gcomp.settings import GcompConfig
from costar_cli.methods.shared.course import Course, along
from tests.effect_worlds import WORLDS
from tests.fits import fit_method, model_of


@pytest.mark.parametrize("alone", [False, True])
def test_a_networks_columns_are_what_it_says_of_the_history_so_far(
    monkeypatch: pytest.MonkeyPatch, *, alone: bool
) -> None:
    monkeypatch.setattr(gcomp_costar, "UPDATES", 2)
    monkeypatch.setattr(gcomp_costar, "FINETUNE", FinetuneConfig(members=1, updates=2))
    data = dataset_of(WORLDS["linear"], 80, 0)
    network, panel = (one_step_network if alone else pretrained)(data), data.panels[TRAIN]
    with widened(network):
        model = model_of(fit_method(data, "gcomp", GcompConfig(folds=2, trees=2), FinetuneConfig(members=1)))
        assert isinstance(model, GcompModel)
        n, steps, a_NTA = panel.n_subjects, panel.n_steps - 1, panel.treatments.astype(np.float64)
        course: Course = along(panel, model.scales, model.lags, a_NTA).take(slice(n * steps))
        dose_ML = a_NTA[:, :steps].swapaxes(0, 1).reshape(n * steps, -1)
        column_MP = model.design.columns(course, dose_ML)[:, model.design.among(("recent",))]
        response_ME = model.responses(course, dose_ML, None)
    if not alone:
        state_NTD = network.represent(panel)[0][:, :steps]
        np.testing.assert_allclose(
            column_MP[:, -state_NTD.shape[2] :], state_NTD.swapaxes(0, 1).reshape(n * steps, -1), atol=1e-5
        )
        return
    subject_M, origin_M = np.tile(np.arange(n, dtype=np.int32), steps), np.repeat(np.arange(steps, dtype=np.int16), n)
    plan_MHA = panel.treatments[subject_M, origin_M][:, None]
    after_ME = network.rollout(of_one_step(panel), Queries(subject_M, origin_M, plan_MHA.astype(np.uint8)))[0, :, 0]
    np.testing.assert_allclose(course.now_ME + course.unit(model.scales) * response_ME, after_ME, atol=1e-4)
