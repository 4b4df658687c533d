"""The stepped decoder: a course without binary treatments is not flat."""

import numpy as np
import pytest
import torch

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Queries
from costar_cli.data.linear.settings import LinearGaussianConfig
from costar_cli.data.linear.simulate import simulate_linear
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.methods.costar.predictor import OutcomePredictor, SteppedPredictor
from costar_cli.reporting import NullReporter
from costar_cli.settings.resolve import resolve
from tests.train.worlds import as_model, run_finetune

SIZES = {"train": 16, "val": 6, "test": 4, "target_train": 5, "target_val": 4, "target_test": 6, "steps": 11}


@pytest.fixture(scope="module")
def binary() -> Dataset:
    return simulate_linear(LinearGaussianConfig(**SIZES, horizon=3, seed=3), NullReporter())


def untreated(dataset: Dataset) -> Queries:
    zeros = np.zeros((2, dataset.horizon, dataset.schema.treatments.width), dtype=np.float32)
    return Queries(subject=np.array([0, 1], np.int32), origin=np.array([4, 6], np.int32), plan=zeros)


def test_without_step_codes_a_plan_of_zeros_is_flat_and_with_them_it_is_not(binary: Dataset) -> None:
    flat, stepped = (
        as_model(run_finetune(binary, decoder=name, learning_rate=0.02)).rollout(
            binary.panel("source", "test"), untreated(binary)
        )
        for name in ("non_autoregressive", "stepped")
    )
    assert np.ptp(flat, axis=2).max() < 1e-5
    assert np.ptp(stepped, axis=2).min() > 1e-3


def test_binary_treatments_get_step_codes_and_classes_do_not(binary: Dataset) -> None:
    tumor = simulate_tumor(TumorConfig(**SIZES, horizon=3, seed=3), NullReporter())
    assert as_model(run_finetune(binary)).shape.decoder == "stepped"
    assert as_model(run_finetune(tumor)).shape.decoder == "non_autoregressive"


def test_the_papers_preset_keeps_the_papers_decoder() -> None:
    assert resolve({}, preset="paper", dataset="mimic")[FinetuneConfig].decoder == "non_autoregressive"
    assert resolve({}, preset="default", dataset="mimic")[FinetuneConfig].decoder == "structured"


def test_a_step_code_adds_one_vector_per_step_and_starts_as_nothing() -> None:
    torch.manual_seed(0)
    plain = OutcomePredictor(3, 2, width=8, horizon=5, hidden=16)
    stepped = SteppedPredictor(3, 2, width=8, horizon=5, hidden=16)
    stepped.load_state_dict(plain.state_dict(), strict=False)
    z, plan = torch.randn(4, 8), torch.randn(4, 3, 3)
    assert torch.equal(stepped(z, plan), plain(z, plan))
    assert sum(p.numel() for p in stepped.parameters()) - sum(p.numel() for p in plain.parameters()) == 5 * 8


def test_pairs_of_histories_and_plans_have_step_codes_too() -> None:
    torch.manual_seed(0)
    head = SteppedPredictor(3, 2, width=8, horizon=5, hidden=16)
    torch.nn.init.normal_(head.step_codes)
    head.requires_grad_(False)
    z, plan, rows = torch.randn(4, 8), torch.randn(2, 3, 3), torch.tensor([0, 1, 2, 3])
    which = torch.tensor([0, 1, 1, 0])
    paired = torch.cat(list(head.pairs(z, plan, rows, which, rows=3)))
    assert torch.allclose(paired, head(z, plan[which]), atol=1e-5)
