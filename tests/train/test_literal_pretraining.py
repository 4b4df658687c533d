"""The contrastive stage is the literal one: a view against the other's keys, of the updated momentum encoder."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from benchmarks.literal_costar import LiteralEncoder, LiteralPretrainer
from costar_cli.data import Dataset
from costar_cli.methods.costar.architectures import make_encoder
from costar_cli.methods.costar.pretraining import ENCODER, PREDICTOR, PretrainStage, augment
from costar_cli.methods.shared.members import Params, stack_members
from costar_cli.methods.shared.streams import Stream
from tests.train.worlds import ENCODER as SHAPE
from tests.train.worlds import pretrain_stage

ROWS = torch.tensor([[3, 0, 7, 5, 11, 2], [1, 4, 6, 8, 9, 10]])
EXACT_SHAPE = SHAPE.model_copy(update={"dropout": 0.0})
# float32; leaving the momentum encoder where it was moves the loss by 50 times this
CLOSE = {"rtol": 2e-5, "atol": 2e-5}


def ragged_stage(dataset: Dataset, **changes: object) -> PretrainStage:
    """Return a stage without dropout whose subjects end at different steps."""
    stage = pretrain_stage(dataset, encoder=EXACT_SHAPE, **changes)
    panel = stage._panels["train"]
    shorter_N = panel.length_N - torch.arange(len(panel.length_N)) % 5
    stage._panels["train"] = replace(panel, length_N=shorter_N.clamp(min=3))
    return stage


def streams() -> list[Stream]:
    return [Stream("literal", r) for r in range(2)]


def begin(stage: PretrainStage) -> tuple[Params, Params]:
    """Return members whose momentum encoders have been left behind, as they are in the middle of training."""
    params, states = (stack_members(list(of)) for of in zip(*[stage.initial(m) for m in range(2)], strict=True))
    generator = torch.Generator().manual_seed(0)
    state = {n: v + 0.5 * torch.randn(v.shape, generator=generator) for n, v in states.items()}
    return {n: v.requires_grad_() for n, v in params.items()}, state


def literal_encoder(stage: PretrainStage, values_R: Params, member: int) -> LiteralEncoder:
    """Return a member's encoder, or whatever has its shape such as gradients, as the literal one."""
    own = {n.removeprefix(ENCODER): v[member].detach() for n, v in values_R.items() if n.startswith(ENCODER)}
    fast = make_encoder(stage.encoder.dims, EXACT_SHAPE)
    fast.load_state_dict(own)
    literal = LiteralEncoder(stage.encoder.dims, EXACT_SHAPE)
    literal.load_fast(fast)
    return literal


def literal_stage(stage: PretrainStage, params: Params, state: Params, member: int) -> LiteralPretrainer:
    literal = LiteralPretrainer(stage.encoder.dims, EXACT_SHAPE)
    literal.encoder = literal_encoder(stage, params, member)
    literal.momentum = literal_encoder(stage, state, member).requires_grad_(requires_grad=False)
    own = {n.removeprefix(PREDICTOR): v[member].detach() for n, v in params.items() if n.startswith(PREDICTOR)}
    literal.predictor.load_state_dict(own)
    return literal


def batch(stage: PretrainStage, member: int, stream: Stream) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
    """Return two views, statics and active positions of a member's rows."""
    panel, rows = stage._panels["train"], ROWS[member]
    history = panel.history_NTS[rows, :-1]
    views = augment(history, stage.config, stream), augment(history, stage.config, stream)
    active = torch.arange(history.shape[1]) < (panel.length_N[rows] - 1)[:, None]
    return views, panel.v_NV[rows], active


def equal(found: LiteralEncoder, expected: dict[str, Tensor]) -> None:
    for name, value in found.named_parameters():
        torch.testing.assert_close(value, expected[name], msg=lambda text, name=name: f"{name}: {text}", **CLOSE)


def test_loss_gradient_and_new_momentum_encoder_are_those_of_the_literal_stage(tumor_dataset: Dataset):
    stage = ragged_stage(tumor_dataset)
    params, state = begin(stage)
    loss_R, after = stage.loss(params, state, ROWS, streams())
    slopes = dict(zip(params, torch.autograd.grad(loss_R.sum(), list(params.values())), strict=True))
    for member, stream in enumerate(streams()):
        literal = literal_stage(stage, params, state, member)
        expected = literal.loss(*batch(stage, member, stream))
        torch.testing.assert_close(loss_R[member], expected, **CLOSE)
        equal(literal_encoder(stage, after, member), dict(literal.momentum.named_parameters()))
        expected.backward()
        moved = {n: torch.zeros_like(v) if v.grad is None else v.grad for n, v in literal.encoder.named_parameters()}
        equal(literal_encoder(stage, slopes, member), moved)
        for name, value in literal.predictor.named_parameters():
            torch.testing.assert_close(slopes[PREDICTOR + name][member], value.grad, **CLOSE)


def test_validation_contrasts_with_the_momentum_encoder_as_it_is(tumor_dataset: Dataset):
    stage = ragged_stage(tumor_dataset)
    stage._panels["validation"], stage._history["validation"] = stage._panels["train"], stage._history["train"]
    params, state = begin(stage)
    found_R, _ = stage.validation_loss(params, state, ROWS, streams())
    for member, stream in enumerate(streams()):
        literal = literal_stage(stage, params, state, member)
        for slow, fast in zip(literal.momentum.parameters(), literal.encoder.parameters(), strict=True):
            slow.copy_((slow - 0.01 * fast) / 0.99)  # which the literal stage's own update undoes
        torch.testing.assert_close(found_R[member], literal.loss(*batch(stage, member, stream)), **CLOSE)


@pytest.mark.parametrize("most", [20, 10**6])
def test_a_subset_of_positions_is_contrasted_as_if_there_were_no_others(tumor_dataset: Dataset, most: int):
    stage = ragged_stage(tumor_dataset, max_contrast=most)
    params, state = begin(stage)
    loss_R, _ = stage.loss(params, state, ROWS, streams())
    for member, stream in enumerate(streams()):
        literal = literal_stage(stage, params, state, member)
        views, statics, active = batch(stage, member, stream)
        contrasted = active.clone()
        if most < active.sum():
            chosen = (stream.uniform(active.numel(), device=active.device) + active.flatten()).topk(most).indices
            contrasted = torch.zeros_like(active).flatten().index_fill(0, chosen, value=True).view_as(active)
        assert contrasted.sum() == min(most, int(active.sum()))
        assert (contrasted <= active).all()
        torch.testing.assert_close(loss_R[member], literal.loss(views, statics, active, contrasted), **CLOSE)
