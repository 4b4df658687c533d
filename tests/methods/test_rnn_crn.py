"""CRN: what balancing adds to the outcomes' squared error, and when."""

from functools import partial

import pytest
import torch

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset
from costar_cli.methods.recurrent.crn import CrnStage, crn_encoder
from costar_cli.methods.shared.stage import NetworkTraining
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.windows import OriginRows, SubjectRows
from tests.methods.rnn_worlds import SETTINGS, fit, tensors, ward


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return ward()


def crn_stage(dataset: Dataset, alpha: float | None) -> CrnStage:
    config, rows = SETTINGS["crn"], SubjectRows(tensors(dataset, dtype=torch.float64))
    shape = config.encoder
    training = NetworkTraining(
        name="crn encoder",
        make=partial(crn_encoder, dataset.schema.dims, config),
        network=shape,
        config=shape.training(FinetuneConfig()),
        train=rows,
        validation=rows,
    )
    return CrnStage(training, alpha=alpha, mode="multilabel")


def gradients(stage: CrnStage, epochs_done: float) -> dict[str, torch.Tensor]:
    params, state = stage.initial(0)
    params = {name: value[None].double().requires_grad_() for name, value in params.items()}
    state = {name: value[None].double() for name, value in state.items()}
    state["updates"] = state["updates"] + epochs_done * -(-stage.n_train // stage.config.batch_size)
    loss, after = stage.loss(params, state, torch.arange(16)[None], [Stream("x")])
    assert after["updates"] == state["updates"] + 1
    loss.sum().backward()
    return {name: value.grad for name, value in params.items()}


def test_before_the_first_epoch_ends_crn_learns_outcomes_as_erm_does(dataset):
    plain, balanced = gradients(crn_stage(dataset, None), 5), gradients(crn_stage(dataset, 1.0), 0)
    for name, value in plain.items():
        if name.startswith("head.treatment."):
            assert value is None
            assert balanced[name].any()
        else:
            torch.testing.assert_close(balanced[name], value)


def test_balancing_then_pushes_the_representation_away_from_the_treatment(dataset):
    none, half, whole = (gradients(crn_stage(dataset, alpha), 200) for alpha in (0.0, 0.5, 1.0))
    for name, value in none.items():
        if name.startswith(("lstm.", "head.representation.")):
            assert (half[name] - value).abs().sum() > 0
            torch.testing.assert_close(whole[name] - value, 2 * (half[name] - value))
        else:
            torch.testing.assert_close(whole[name], value)


def test_decoders_learn_from_every_window_of_the_training_subjects(dataset, monkeypatch):
    seen = []
    monkeypatch.setattr(OriginRows, "__len__", lambda rows: seen.append(len(rows.subject_M)) or len(rows.subject_M))
    fit("crn", dataset, epochs=1, members=1)
    windows = [(dataset.panel("source", split).length - 1 - 3 - 1).clip(0).sum() for split in ("train", "val")]
    assert seen == windows
