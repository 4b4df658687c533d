"""What the benchmarks compare gives the same numbers, and their operations are counted right."""

from contextlib import nullcontext
from typing import cast

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.cohort import finetune_stage, literal_inputs, train_panel, untrained_model
from benchmarks.literal_costar import LiteralEncoder, LiteralFinetuner, LiteralPretrainer, literal_info_nce
from benchmarks.literal_networks import written_out
from benchmarks.pretrain_step import encoder_flops, step_flops
from benchmarks.profile_steps import fit_task, stages_of
from benchmarks.scoring import even_batches, literal_encoder, re_encode
from costar_cli.config.models import EncoderConfig, FinetuneConfig, PretrainConfig, RuntimeConfig
from costar_cli.data import Dataset, Part
from costar_cli.methods.costar.encoder import CostarEncoder
from costar_cli.methods.costar.predictor import OutcomePredictor
from costar_cli.methods.costar.supervised import ENCODER, HEAD
from costar_cli.methods.registry import METHODS
from costar_cli.methods.shared.members import member_module, stack_members, submodule
from costar_cli.methods.shared.streams import Stream
from costar_cli.training.group import GroupState
from costar_cli.training.runtime import Runtime
from costar_cli.training.step import gradients, step_streams

TUMOR = (0, 4, 1, 1)


@pytest.mark.parametrize("crop", [False, True])
@pytest.mark.parametrize("name", ["one_step", "sequence"])
def test_re_encoding_own_histories_predicts_what_rollout_predicts(
    tumor_dataset: Dataset, name: str, *, crop: bool
) -> None:
    model = untrained_model(tumor_dataset)
    part = Part("target", "test")
    panel, queries = tumor_dataset.panels[part], tumor_dataset.queries[part][name].take(slice(0, 70))
    once = model.rollout(panel, queries)
    assert np.ptp(once) > 0
    np.testing.assert_allclose(re_encode(model, panel, queries, rows=32, crop=crop), once, rtol=1e-4, atol=1e-4)


def test_the_fair_rival_gets_batches_without_padding_from_all_over_the_set(tumor_dataset: Dataset) -> None:
    queries = tumor_dataset.queries[Part("source", "test")]["sequence"]
    sampled = even_batches(queries, 32, rows=4)
    batches = sampled.origin.reshape(-1, 4)
    assert len(batches) == 8
    assert (np.ptp(batches, axis=1) <= 1).all()  # here few queries share an origin; of paper size, all of a batch do
    assert (batches[0, 0], batches[-1, -1]) == (queries.origin.min(), queries.origin.max())


def test_literal_encoder_predicts_the_same(tumor_dataset: Dataset) -> None:
    model = untrained_model(tumor_dataset)
    part = Part("source", "test")
    panel, queries = tumor_dataset.panels[part], tumor_dataset.queries[part]["sequence"].take(slice(0, 40))
    literal = re_encode(model, panel, queries, encode=literal_encoder(model))
    np.testing.assert_allclose(literal, model.rollout(panel, queries), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "name",
    [name for name, method in METHODS.items() if not (method.closed_form or method.combines or method.pretrained)],
)
def test_steps_written_out_have_the_same_loss_and_gradient(tumor_dataset: Dataset, name: str) -> None:
    runtime = Runtime.resolve(RuntimeConfig(device="cpu", precision="float64"))
    for stage in stages_of(METHODS[name], fit_task(tumor_dataset, METHODS[name], runtime, seed=3)):
        found = []
        for form in (nullcontext(), written_out()):
            state = GroupState.fresh(stage, [0], runtime)
            with form:
                found.append(gradients(stage, state, torch.arange(8)[None], step_streams(stage, state), runtime))
        torch.testing.assert_close(found[1], found[0])
        assert found[0].squared_R > 0


def test_counted_operations_are_those_of_the_literal_encoder() -> None:
    config, samples, n_steps = EncoderConfig(dropout=0), 3, 20
    encoder = LiteralEncoder(TUMOR, config)
    history, statics = torch.randn(samples, n_steps, 5), torch.randn(samples, 1)
    with FlopCounterMode(display=False) as counter:
        encoder(history, statics, torch.ones(samples, n_steps, dtype=torch.bool))
    # The literal one has relative terms over all distances, statics beside the series at every step, and after it.
    width = config.width
    embedding = 2 * samples * (n_steps * 5 + 1) * width
    statics_flops = 2 * samples * n_steps * width * 3 * width + 2 * 2 * samples * n_steps * (1 * 6) * width
    after = samples * (2 * 2 * width * 4 * width + 2 * width * 3 * width + 4 * width)
    counted = encoder_flops(TUMOR, config, samples, n_steps, relative_width=n_steps)
    assert counter.get_total_flops() == pytest.approx(counted + embedding + statics_flops + after, rel=0.02)


def test_counted_operations_of_the_contrast_are_its_two_products() -> None:
    n, width = 50, 24
    q, k = torch.randn(n, width, requires_grad=True), torch.randn(n, width)
    with FlopCounterMode(display=False) as counter:
        literal_info_nce(q, k, 1.0).backward()
    flops = step_flops(TUMOR, PretrainConfig(), 1, n, n_active=n)
    assert flops["contrast"] == 6 * counter.get_total_flops()  # overall, outcomes, treatments; two directions


def test_the_literal_finetuner_has_the_same_loss_and_gradient(tumor_dataset: Dataset) -> None:
    runtime = Runtime.resolve(RuntimeConfig(device="cpu"))
    config, small = FinetuneConfig(hidden=8), EncoderConfig(dropout=0, width=8, heads=2, clip_distance=4)
    stage = finetune_stage(tumor_dataset, config, runtime, small)
    params_R = stack_members([stage.initial(0)[0]])
    last_R = params_R["head.network.2.weight"].requires_grad_()
    rows_B, panel = torch.arange(8), train_panel(tumor_dataset, runtime)
    fast = stage.loss(params_R, {}, rows_B[None], [Stream(1, "masks")])[0].squeeze()

    literal = LiteralFinetuner(tumor_dataset.schema.dims, small, tumor_dataset.horizon, config.hidden)
    encoder, head = cast("CostarEncoder", stage.encoder), cast("OutcomePredictor", stage.decoder.head)
    literal.encoder.load_fast(member_module(encoder, submodule(params_R, ENCODER), 0))
    literal.head.load_fast(member_module(head, submodule(params_R, HEAD), 0))
    read = literal_inputs(panel, rows_B)
    slow = literal.loss(*read, panel.a_NTA[rows_B, : read[0].shape[1]], panel.y_NTY[rows_B, 1:])
    torch.testing.assert_close(slow, fast)
    found, known = torch.autograd.grad(slow, literal.head.last.weight), torch.autograd.grad(fast, last_R)
    torch.testing.assert_close(found[0], known[0][0])


def test_literal_pretrainer_learns() -> None:
    torch.manual_seed(0)
    pretrainer = LiteralPretrainer(TUMOR, EncoderConfig(width=8, clip_distance=4))
    before = [parameter.clone() for parameter in pretrainer.encoder.parameters()]
    active = torch.arange(10) < torch.tensor([[10], [4]])
    loss = pretrainer.step(torch.randn(2, 10, 5), torch.randn(2, 1), active)
    assert loss > 0
    changed = [not torch.equal(a, b) for a, b in zip(before, pretrainer.encoder.parameters(), strict=True)]
    assert sum(changed) > len(changed) / 2
