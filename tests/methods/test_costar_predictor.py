"""The outcome predictor: what each step may know of the plan."""

import pytest
import torch

from costar_cli.methods.costar.predictor import OutcomePredictor
from costar_cli.methods.costar.supervised import step_weights

HORIZON = 5


@pytest.fixture
def head() -> OutcomePredictor:
    torch.manual_seed(0)
    return OutcomePredictor(3, 2, width=8, horizon=HORIZON, hidden=16).double()


def plans(n: int = 4) -> torch.Tensor:
    return torch.randn(n, HORIZON, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_plan_codes_equal_the_two_convolutions(head):
    plan = plans()
    past = torch.zeros_like(plan)
    past[:, 1:] = plan[:, :-1]
    padded = torch.nn.functional.pad(past.transpose(1, 2), (HORIZON - 1, 0))
    expected = torch.nn.functional.conv1d(padded, head.past.weight, head.past.bias)
    expected = expected + torch.nn.functional.conv1d(plan.transpose(1, 2), head.current.weight, head.current.bias)
    torch.testing.assert_close(head.plan_codes(plan), expected.transpose(1, 2))


def test_past_code_of_the_first_step_is_the_bias(head):
    codes = head.plan_codes(torch.zeros_like(plans()))
    torch.testing.assert_close(codes[:, 0], (head.past.bias + head.current.bias).expand(4, -1))


@pytest.mark.parametrize("step", range(HORIZON))
def test_a_treatment_changes_no_prediction_before_it_acts(head, step):
    z, plan = torch.randn(4, 8, dtype=torch.float64), plans()
    changed = plan.clone()
    changed[:, step] += 1
    before, after = head(z, plan), head(z, changed)
    assert torch.equal(before[:, :step], after[:, :step])
    assert ((before[:, step:] - after[:, step:]).abs() > 1e-9).all()


@pytest.mark.parametrize("asked", range(1, HORIZON + 1))
def test_a_short_plan_gives_the_first_steps_of_a_long_one(head, asked):
    z, plan = torch.randn(4, 8, dtype=torch.float64), plans()
    torch.testing.assert_close(head(z, plan[:, :asked]), head(z, plan)[:, :asked])


@pytest.mark.parametrize("kind", ["uniform", "inverse", "sq_inverse", "first_only"])
def test_step_weights_sum_to_the_horizon(kind):
    weights = step_weights(kind, 6)
    assert weights.sum().item() == pytest.approx(6)
    assert (weights.diff() <= 0).all()
    assert (kind == "uniform") == bool((weights == 1).all())
