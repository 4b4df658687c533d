"""CT, CT(ERM) and EDCT as methods: training, members, seeds, resume, few-shot, errors."""

from pathlib import Path

import numpy as np
import pytest
import torch

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset
from costar_cli.errors import MismatchError, UsageError
from costar_cli.methods import METHODS
from costar_cli.methods.base import FinalStage, Place
from costar_cli.methods.transformers.model import TransformerModel
from costar_cli.methods.transformers.settings import CtConfig, EdctConfig
from tests.fits import KilledError, die_at_step, fit_method
from tests.methods.ct_worlds import CT_SHAPE, EDCT_SHAPE, SETTINGS, ask, fit, task
from tests.methods.rnn_worlds import ward


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return ward()


@pytest.fixture(scope="module")
def models(dataset) -> dict[str, TransformerModel]:
    return {name: fit(name, dataset)[1] for name in SETTINGS}


@pytest.mark.parametrize("name", SETTINGS)
def test_training_lowers_the_validation_loss_of_every_network(name, tumor_dataset):
    trained, _ = fit(name, tumor_dataset, epochs=4, members=1)
    names = [stage["name"] for stage in trained.meta["stages"]]
    assert names == (["edct encoder", "edct decoder"] if name.startswith("edct") else [name])
    for stage in trained.meta["stages"]:
        losses, best = stage["history"]["validation_loss"][0], stage["history"]["best_epoch"][0]
        assert min(losses) < 0.95 * losses[0], stage["name"]
        assert losses[best] == min(losses)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps"), [("ct", 5), ("edct with confusion", 9)])
def test_a_killed_run_continues_to_the_same_weights(name, steps, dataset, models, tmp_path: Path, monkeypatch):
    def run():
        config = FinetuneConfig(epochs=2, members=2, seed=5, select_on="own-loss")
        return fit_method(dataset, name.split()[0], SETTINGS[name], config, run_state=tmp_path / "run.h5")

    die_at_step(monkeypatch, steps)
    with pytest.raises(KilledError):
        run()
    monkeypatch.undo()
    continued = run()
    for key, value in models[name].params.items():
        assert np.array_equal(continued.arrays[f"params/{key}"], value.numpy()), key


@pytest.mark.parametrize("name", SETTINGS)
def test_few_shot_starts_from_the_weights_of_the_source(name, dataset, models):
    world = task(dataset, name, members=2)
    start = models[name]
    fitting = METHODS[name.split()[0]].fit(
        type(world)(**{**world.__dict__, "start": start, "domain": "target", "place": Place()})
    )
    first = next(fitting)
    stage = first.stage if isinstance(first, FinalStage) else first
    assert stage.name.endswith(" on target")
    prefix = "encoder." if name.startswith("edct") else ""
    for member in range(2):
        params, state = stage.initial(member)
        assert all(torch.equal(value, start.params[prefix + key][member]) for key, value in params.items())
        assert all(torch.equal(v, params[k.removeprefix("mean.")]) for k, v in state.items() if k.startswith("mean."))
    if prefix:
        decoder = fitting.send({k.removeprefix(prefix): v for k, v in start.params.items() if k.startswith(prefix)})
        assert isinstance(decoder, FinalStage)
        params, _ = decoder.stage.initial(1)
        assert all(torch.equal(value, start.params["decoder." + key][1]) for key, value in params.items())


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_few_shot_adapts_every_network_to_the_target(name, dataset, models):
    trained, adapted = fit(name, dataset, start=models[name], domain="target", members=1, epochs=6)
    assert [stage["name"][-10:] for stage in trained.meta["stages"]] == [" on target"] * len(trained.meta["stages"])
    assert adapted.members == 1
    moved = {key for key, value in adapted.params.items() if not torch.equal(value[0], models[name].params[key][0])}
    still = set(adapted.params) - moved
    assert not still if name == "edct" else all("head.treatment" in key for key in still)
    assert trained.meta["trained_on"]["target/train"] == dataset.panel("target", "train").n_subjects


def test_few_shot_refuses_other_methods_members_and_shapes(dataset, models):
    with pytest.raises(MismatchError, match="of method ct, not ct-erm"):
        fit("ct-erm", dataset, start=models["ct"], domain="target")
    with pytest.raises(MismatchError, match="of method edct, not ct"):
        fit("ct", dataset, start=models["edct"], domain="target")
    with pytest.raises(MismatchError, match="only 2 to start from"):
        fit("ct", dataset, start=models["ct"], domain="target", members=3)
    wider = CtConfig.model_validate({"network": {**CT_SHAPE, "width": 10, "hidden": 7}})
    with pytest.raises(UsageError, match="differ in shape") as error:
        fit("ct", dataset, start=models["ct"], domain="target", settings=wider)
    assert error.value.details == (
        "network.width: the source model has 8, the settings say 10",
        "network.hidden: the source model has 5, the settings say 7",
    )


def test_a_model_of_one_step_needs_no_decoder():
    dataset = ward(horizon=1)
    trained, model = fit("edct", dataset)
    assert [stage["name"] for stage in trained.meta["stages"]] == ["edct encoder"]
    assert not any(key.startswith("decoder.") for key in model.params)
    panel = dataset.panel("source", "test")
    assert model.rollout(panel, ask(dataset, panel)).shape == (2, 40, 1, 2)


def test_heads_must_divide_widths():
    with pytest.raises(ValueError, match="width 8 is not a multiple of heads 3"):
        CtConfig.model_validate({"network": {**CT_SHAPE, "heads": 3}})
    with pytest.raises(ValueError, match=r"encoder.representation 6, .* is not a multiple of decoder.heads 4"):
        EdctConfig.model_validate({**EDCT_SHAPE, "decoder": {"heads": 4}})
