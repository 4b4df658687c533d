"""RMSN, CRN, CRN(ERM) and G-Net as methods: sizes, training, members, seeds, few-shot."""

import numpy as np
import pytest
import torch

from costar_cli.config.models import RuntimeConfig
from costar_cli.data import Dataset
from costar_cli.errors import MismatchError, UsageError
from costar_cli.methods.recurrent.crn import crn_decoder, crn_encoder
from costar_cli.methods.recurrent.gnet import gnet_network
from costar_cli.methods.recurrent.model import RecurrentModel
from costar_cli.methods.recurrent.rmsn import rmsn_networks
from costar_cli.methods.recurrent.settings import CrnConfig, CrnErmConfig, GNetConfig, RmsnConfig
from costar_cli.settings.resolve import resolve
from tests.methods.rnn_worlds import SETTINGS, ask, fit, ward

METHODS = list(SETTINGS)
EXACT = RuntimeConfig(device="cpu", precision="float64")
DIMS = {"tumor": (0, 4, 1, 1), "mimic": (25, 3, 2, 44), "m5": (47, 22, 1, 22)}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return ward()


@pytest.fixture(scope="module")
def models(dataset) -> dict[str, RecurrentModel]:
    return {method: fit(method, dataset)[1] for method in METHODS}


def n_parameters(*modules: torch.nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


@pytest.mark.parametrize("preset", ["quick", "default", "paper"])
@pytest.mark.parametrize(
    ("data", "rmsn", "crn", "crn_erm", "gnet"),
    [
        ("tumor", 18_754, 2_338, 6_502, 3_388),
        ("mimic", 387_338, 164_744, 164_744, 151_209),
        ("m5", 213_724, 77_994, 77_994, 323_328),
    ],
)
def test_networks_have_the_papers_numbers_of_parameters(preset, data, rmsn, crn, crn_erm, gnet):
    settings, dims = resolve({}, preset=preset, dataset=data), DIMS[data]
    assert n_parameters(*(make() for make in rmsn_networks(dims, settings[RmsnConfig]).values())) == rmsn
    for config, expected in ((CrnConfig, crn), (CrnErmConfig, crn_erm)):
        assert n_parameters(crn_encoder(dims, settings[config]), crn_decoder(dims, settings[config])) == expected
    assert n_parameters(gnet_network(dims, settings[GNetConfig])) == gnet


def test_the_papers_training_is_that_of_its_preset():
    for data, epochs, patience in (("tumor", 100, 100), ("mimic", 200, 20), ("m5", 100, 20)):
        encoder = resolve({}, preset="paper", dataset=data)[CrnConfig].encoder
        assert (encoder.epochs, encoder.patience) == (epochs, patience)
        assert resolve({}, preset="quick", dataset=data)[CrnConfig].encoder.epochs is None


@pytest.mark.parametrize("method", METHODS)
def test_training_lowers_the_validation_loss_of_every_network(method, tumor_dataset):
    trained, _ = fit(method, tumor_dataset, epochs=8, members=1)
    assert trained.meta["stages"]
    for stage in trained.meta["stages"]:
        losses, best = stage["history"]["validation_loss"][0], stage["history"]["best_epoch"][0]
        assert min(losses) < 0.99 * losses[0], stage["name"]
        assert losses[best] == min(losses)


@pytest.mark.parametrize("method", METHODS)
def test_few_shot_starts_from_the_source_weights(method, dataset, models):
    still = SETTINGS[method].model_dump()
    for network in still.values():
        if isinstance(network, dict) and "learning_rate" in network:
            network["learning_rate"] = 1e-9
    settings = type(SETTINGS[method]).model_validate(still)
    source = models[method]
    trained, target = fit(method, dataset, start=source, settings=settings, domain="target", epochs=1)
    for name, value in source.params.items():
        if not name.startswith("residuals."):  # those are of the target's own subjects
            torch.testing.assert_close(target.params[name], value, rtol=1e-5, atol=1e-6)
    panel = dataset.panel("target", "test")
    steps = 1 if method == "gnet" else source.horizon
    queries = ask(source, panel, horizon=steps)
    np.testing.assert_allclose(target.rollout(panel, queries), source.rollout(panel, queries), rtol=1e-3, atol=1e-3)
    assert all(stage["name"].endswith(" on target") for stage in trained.meta["stages"])


@pytest.mark.parametrize("method", METHODS)
def test_few_shot_moves_every_network(method, dataset, models):
    _, target = fit(method, dataset, start=models[method], domain="target", epochs=8)
    moved = {name.split(".")[0] for name, v in target.params.items() if not torch.equal(v, models[method].params[name])}
    assert moved == {name.split(".")[0] for name in target.params}


def test_few_shot_refuses_another_method_another_shape_and_more_members(dataset, models):
    with pytest.raises(MismatchError, match="is of method crn, not crn-erm"):
        fit("crn-erm", dataset, start=models["crn"], domain="target")
    with pytest.raises(MismatchError, match="3 members were asked for"):
        fit("crn", dataset, start=models["crn"], domain="target", members=3)
    wide = CrnConfig.model_validate({"encoder": {"width": 9, "representation": 5}})
    with pytest.raises(UsageError, match="differ in shape") as caught:
        fit("crn", dataset, start=models["crn"], settings=wide, domain="target")
    assert "encoder.width: the source model has 6, the settings say 9" in caught.value.details


@pytest.mark.parametrize("method", ["rmsn", "crn", "crn-erm"])
def test_without_a_second_step_there_is_no_decoder(method):
    short = ward(horizon=1)
    trained, model = fit(method, short)
    assert not any("decoder" in stage["name"] for stage in trained.meta["stages"])
    assert not any(name.startswith("decoder.") for name in model.params)
    panel = short.panel("target", "test")
    assert np.isfinite(model.rollout(panel, ask(model, panel))).all()


def test_rmsn_tells_how_far_its_weights_spread(dataset, models):
    found = models["rmsn"].record.facts["weights"]
    assert len(found) == 2
    for member in found:
        assert 0 < member["smallest"] <= member["mean"] <= member["largest"]
        assert 0 < member["effective_share"] <= 1
