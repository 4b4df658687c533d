"""The variational LSTM: the framework's recurrence without masks, one mask per batch with them."""

import pytest
import torch
from torch import nn

from costar_cli.methods.recurrent.lstm import LstmState, draw_masks, variational_lstm
from costar_cli.methods.shared.members import named_params, stack_members
from costar_cli.methods.shared.streams import Stream

R, B, T, N_IN, WIDTH = 3, 5, 7, 4, 6


def lstms(layers: int, members: int = R) -> list[nn.LSTM]:
    torch.manual_seed(layers)
    return [nn.LSTM(N_IN, WIDTH, layers).double() for _ in range(members)]


def stacked(modules: list[nn.LSTM]) -> dict[str, torch.Tensor]:
    return {name: value.requires_grad_() for name, value in stack_members(map(named_params, modules)).items()}


def inputs(members: int = R) -> torch.Tensor:
    return torch.randn(members, T, B, N_IN, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def ones(layers: int, members: int = R) -> dict[str, torch.Tensor]:
    names = [f"{part}_l{k}" for k in range(layers) for part in ("output", "hidden", "cell")]
    return {name: torch.ones(members, B, WIDTH, dtype=torch.float64) for name in names}


@pytest.mark.parametrize("masked", [False, True], ids=["no masks", "masks of ones"])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("members", [1, 3])
def test_outputs_states_and_gradients_equal_the_frameworks_lstm(members, layers, masked):
    modules, x = lstms(layers, members), inputs(members)
    params = stacked(modules)
    masks = ones(layers, members) if masked else None
    run = variational_lstm(params, x, masks=masks)
    run.outputs.sin().sum().backward()
    for member, module in enumerate(modules):
        outputs, (hidden, cell) = module(x[member])
        outputs.sin().sum().backward()
        torch.testing.assert_close(run.outputs[member], outputs)
        torch.testing.assert_close(run.last.hidden[member], hidden.detach())
        torch.testing.assert_close(run.last.cell[member], cell.detach())
        for name, value in module.named_parameters():
            torch.testing.assert_close(params[name].grad[member], value.grad)


def test_gradients_with_masks_and_a_start_are_those_of_the_formulas():
    params = stacked(lstms(2))
    masks = draw_masks(lstms(2)[0], 0.4, [Stream(r) for r in range(R)], B, inputs())
    names = list(params)

    def outputs(x, start, *values):
        state = LstmState.both(start, 2)
        return variational_lstm(dict(zip(names, values, strict=True)), x, start=state, masks=masks).outputs

    x = inputs()[:, :3].requires_grad_()
    start = torch.randn(R, B, WIDTH, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(outputs, (x, start, *params.values()), fast_mode=True)


def test_masked_recurrence_is_the_cell_by_cell_one():
    module = lstms(1, 1)[0]
    masks = draw_masks(module, 0.4, [Stream(0)], B, inputs(1))
    run = variational_lstm(stacked([module]), inputs(1), masks=masks)
    cell = nn.LSTMCell(N_IN, WIDTH).double()
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in module.state_dict().items()})
    h = c = torch.zeros(B, WIDTH, dtype=torch.float64)
    for t in range(T):
        h, c = cell(inputs(1)[0, t], (h, c))
        torch.testing.assert_close(run.outputs[0, t], h * masks["output_l0"][0])
        torch.testing.assert_close(run.hidden[0][0, t], h)
        h, c = h * masks["hidden_l0"][0], c * masks["cell_l0"][0]


def test_masks_are_constant_over_time_differ_by_row_and_keep_the_mean():
    module = lstms(2, 1)[0]
    masks = draw_masks(module, 0.25, [Stream("a"), Stream("b")], 400, inputs())
    assert {tuple(mask.shape) for mask in masks.values()} == {(2, 400, WIDTH)}
    assert set(torch.cat([mask.flatten() for mask in masks.values()]).unique().tolist()) == {0.0, 4 / 3}
    for mask in masks.values():
        assert mask.mean().item() == pytest.approx(1, abs=0.05)
        assert not torch.equal(mask[0], mask[1])
        assert len(mask[0].unique(dim=0)) > 1
    zero = variational_lstm(stacked([module]), inputs(1), masks={k: v[:1, :B] for k, v in masks.items()}).outputs == 0
    assert torch.equal(zero.all(dim=1), masks["output_l1"][:1, :B] == 0)  # an output is off at every step or at none
    assert torch.equal(zero.any(dim=1), masks["output_l1"][:1, :B] == 0)


def test_no_dropout_draws_no_masks():
    assert draw_masks(lstms(1)[0], 0.0, [Stream(0)], B, inputs()) is None


def test_a_run_in_two_halves_equals_one_run():
    params, x = stacked(lstms(2)), inputs()
    whole = variational_lstm(params, x)
    first = variational_lstm(params, x[:, :4])
    second = variational_lstm(params, x[:, 4:], start=first.last)
    torch.testing.assert_close(torch.cat([first.outputs, second.outputs], dim=1), whole.outputs)
    torch.testing.assert_close(second.last.cell, whole.last.cell)


def test_outputs_do_not_depend_on_later_inputs():
    params, x = stacked(lstms(2)), inputs()
    changed = x.clone()
    changed[:, 4:] += 1
    before, after = variational_lstm(params, x).outputs, variational_lstm(params, changed).outputs
    assert torch.equal(before[:, :4], after[:, :4])
    assert (before[:, 4:] != after[:, 4:]).all()


def test_half_precision_autocast_reaches_the_products_only():
    module = nn.LSTM(N_IN, WIDTH)
    params = {name: value.requires_grad_() for name, value in stack_members([named_params(module)]).items()}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = variational_lstm(params, inputs(1).float()).outputs
        outputs.square().sum().backward()
    assert outputs.dtype == torch.float32
    torch.testing.assert_close(outputs[0], module(inputs(1).float()[0])[0], rtol=0.05, atol=0.02)
    assert all(value.grad.dtype == torch.float32 for value in params.values())
