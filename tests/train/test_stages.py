"""The two stages of COSTAR: losses, momentum encoder, what is touched and what is not."""

import math

import numpy as np
import pytest
import torch

from costar_cli.data import Dataset, Scaler
from costar_cli.methods.shared.members import stack_members
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.windows import Windows
from tests.train.worlds import pretrain_stage, supervised_stage


def start(stage):
    params, states = zip(*[stage.initial(m) for m in range(2)], strict=True)
    params, state = stack_members(params), stack_members(states)
    return {n: v.requires_grad_() for n, v in params.items()}, state


ROWS = torch.arange(16).expand(2, -1)


def test_momentum_encoder_starts_as_a_copy_and_follows_slowly(tumor_dataset: Dataset):
    stage = pretrain_stage(tumor_dataset)
    params, state = start(stage)
    online = {n: v for n, v in params.items() if n.startswith("encoder.")}
    assert set(state) == set(online)
    assert all(torch.equal(state[n], online[n]) for n in state)
    with torch.no_grad():
        for value in params.values():
            value.add_(1.0)
    _, after = stage.loss(params, state, ROWS, [Stream(r) for r in range(2)])
    for name, value in after.items():
        torch.testing.assert_close(value, 0.99 * state[name] + 0.01 * params[name])
        assert not value.requires_grad


def test_validation_leaves_parameters_and_momentum_encoder_unchanged(tumor_dataset: Dataset):
    stage = pretrain_stage(tumor_dataset)
    params, state = start(stage)
    before = {n: v.detach().clone() for n, v in (params | state).items()}
    rows = torch.arange(12).expand(2, -1)
    first, weight = stage.validation_loss(params, state, rows, [Stream(r) for r in range(2)])
    again, _ = stage.validation_loss(params, state, rows, [Stream(r) for r in range(2)])
    assert torch.equal(first, again)
    assert (weight == (tumor_dataset.panel("source", "val").length - 1).sum()).all()
    assert all(torch.equal(before[n], v) for n, v in (params | state).items())


def test_guessing_reference_is_the_logarithm_of_the_positions_of_a_mean_batch(tumor_dataset: Dataset):
    length = tumor_dataset.panel("source", "train").length
    positions = 16 * float(length.mean() - 1)
    assert pretrain_stage(tumor_dataset).reference() == pytest.approx(8 * math.log(positions))
    assert pretrain_stage(tumor_dataset, components=False).reference() == pytest.approx(4 * math.log(positions))
    assert pretrain_stage(tumor_dataset, temperature=0.5).reference() == pytest.approx(4 * math.log(positions))
    assert pretrain_stage(tumor_dataset, max_contrast=20).reference() == pytest.approx(8 * math.log(20))
    held_out = tumor_dataset.panel("source", "val").length - 1
    assert pretrain_stage(tumor_dataset).reference(validation=True) == pytest.approx(8 * math.log(held_out.sum()))


def windows(stage, part: str) -> Windows:
    """The steps that follow each origin of each subject."""
    rows = stage._rows[part]
    return rows.batch(torch.arange(len(rows))[None], torch.zeros(1, dtype=torch.long)).unrolled(6)


def test_uniform_supervised_loss_is_the_masked_squared_error(tumor_dataset: Dataset):
    stage = supervised_stage(tumor_dataset, step_weights="uniform")
    params, _ = start(stage)
    with torch.no_grad():
        for name in ("head.network.2.weight", "head.network.2.bias"):
            params[name].zero_()  # predicts 0 everywhere
    loss, weight = stage.validation_loss(params, {}, torch.arange(12).expand(2, -1), [])
    answers = windows(stage, "validation")
    expected = (answers.target.square().sum(-1) * answers.active).sum() / answers.active.sum()
    torch.testing.assert_close(loss, expected.expand(2))
    assert (weight == answers.active.sum()).all()


def test_targets_are_the_outcomes_after_each_treatment(tumor_dataset: Dataset):
    stage = supervised_stage(tumor_dataset)
    answers, panel = windows(stage, "train"), tumor_dataset.panel("source", "train")
    scaler = Scaler.fit(panel, tumor_dataset.schema)
    scaled = scaler.scale_outcomes(panel.outcomes)
    row = int((panel.length == panel.length.max()).nonzero()[0][0])
    for origin in (0, 2, 4):
        plan = answers.treatment[0, row, origin]
        assert torch.equal(plan, torch.from_numpy(panel.treatments[row, origin : origin + tumor_dataset.horizon]))
        answer = answers.target[0, row, origin].numpy()
        np.testing.assert_allclose(answer, scaled[row, origin + 1 : origin + 1 + tumor_dataset.horizon], rtol=1e-6)
    assert answers.active[0, row].sum() == sum(
        min(tumor_dataset.horizon, int(panel.length[row]) - 1 - t) for t in range(int(panel.length[row]) - 1)
    )


def test_supervised_gradients_reach_encoder_and_head(tumor_dataset: Dataset):
    stage = supervised_stage(tumor_dataset)
    params, state = start(stage)
    loss, _ = stage.loss(params, state, ROWS, [Stream(r) for r in range(2)])
    loss.sum().backward()
    untouched = [n for n, v in params.items() if v.grad is None or not v.grad.abs().sum() > 0]
    assert untouched == []
