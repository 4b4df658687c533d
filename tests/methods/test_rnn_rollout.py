"""RMSN, CRN, CRN(ERM) and G-Net: what a rollout may know, and that it is what the networks were trained to do."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from costar_cli.data import Dataset, Panel
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.recurrent.model import RecurrentModel
from costar_cli.methods.shared.members import member_module
from costar_cli.methods.shared.windows import Windows
from tests.methods.rnn_worlds import SETTINGS, ask, fit, ward


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return ward()


@pytest.fixture(scope="module")
def models(dataset) -> dict[str, RecurrentModel]:
    return {method: fit(method, dataset)[1] for method in SETTINGS}


@pytest.fixture(params=list(SETTINGS))
def model(request, models) -> RecurrentModel:
    return models[request.param]


@pytest.fixture
def panel(dataset) -> Panel:
    return dataset.panel("target", "test")


def test_everything_before_the_origin_can_change_predictions(model, panel):
    queries = ask(model, panel)
    late = queries.take(queries.origin > 2)
    expected = model.rollout(panel, late)
    rng = np.random.default_rng(2)
    for name in ("outcomes", "covariates", "treatments"):
        series = getattr(panel, name).copy()
        series[:, :2] = rng.permutation(series[:, :2]) + 1
        changed = model.rollout(replace(panel, **{name: series}), late)
        assert (np.abs(changed - expected).max(axis=(0, 2, 3)) > 1e-5).all(), name


def test_a_panel_of_one_step_can_be_asked_about(model, panel):
    first = replace(
        panel,
        **{name: getattr(panel, name)[:, :1] for name in ("covariates", "treatments", "outcomes")},
        length=np.ones_like(panel.length),
    )
    queries = ask(model, first, n=5)
    np.testing.assert_allclose(model.rollout(first, queries), model.rollout(panel, queries), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("method", ["rmsn", "crn", "crn-erm"])
def test_a_rollout_is_what_the_decoder_was_trained_to_do_on_its_own_predictions(method, models, dataset):
    """Predictions written into the panel as observations, then read as a training window of the decoder."""
    model, panel = models[method], dataset.panel("target", "test")
    queries = ask(model, panel, n=6)
    rolled = model.rollout(panel, queries)
    for member in range(2):
        for row in range(len(queries)):
            n, origin, steps = int(queries.subject[row]), int(queries.origin[row]), model.horizon
            pad = [(0, 0), (0, origin + steps + 1), (0, 0)]
            lived = replace(
                panel.take(np.array([n])),
                **{s: np.pad(getattr(panel, s)[n : n + 1], pad) for s in ("covariates", "treatments", "outcomes")},
                length=np.array([origin + steps + 1]),
            )
            lived.treatments[0, origin : origin + steps] = queries.plan[row]
            lived.outcomes[0, origin + 1 : origin + steps + 1] = rolled[member, row]
            seen = PanelTensors.from_panel(lived, model.scaler)
            encoder, decoder = (
                member_module(model.makes()[name](), model.params_of(name), member) for name in ("encoder", "decoder")
            )
            one, zero = torch.zeros(1, dtype=torch.long), torch.zeros(1, 1, dtype=torch.long)
            history = Windows.of(seen, one, zero, zero, origin + 1).time_first()
            output = encoder.run(encoder.inputs(history.column)[0]).outputs[0, -1]
            known = output if method == "rmsn" else encoder.head.represent(output)
            window = Windows.of(seen, one, zero, zero + origin + 1, steps - 1).time_first()
            outputs = decoder.run(decoder.inputs(window.column)[0], decoder.starting_from(known)).outputs[0]
            given = window.column("treatment")[0]
            found = decoder.head(outputs) if method == "rmsn" else decoder.head(outputs, given).outcomes
            expected = model.scaler.scale_outcomes(rolled[member, row, 1:])
            np.testing.assert_allclose(found[:, 0].numpy(), expected, rtol=1e-3, atol=1e-4)


def test_crn_shows_its_balanced_representation(models, panel):
    assert models["crn"].represent(panel).shape == (2, panel.n_subjects, panel.n_steps, 5)
