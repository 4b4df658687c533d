"""The balancing head: what each loss moves, and when it counts."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.config.models import TrainingConfig
from costar_cli.methods.shared.balancing import (
    BalancingHead,
    masked_mean,
    reverse_gradient,
    squared_error,
    treatment_cross_entropy,
    unknown_treatment,
)
from costar_cli.methods.shared.members import call_members, named_params, stack_members
from costar_cli.methods.shared.stage import AlphaSchedule


@pytest.fixture
def head() -> BalancingHead:
    torch.manual_seed(0)
    return BalancingHead(6, 5, 4, n_treatments=3, n_outcomes=2).double()


def inputs(n: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    sequence = torch.randn(n, 6, dtype=torch.float64, generator=generator)
    return sequence, torch.eye(3, dtype=torch.float64)[torch.randint(3, (n,), generator=generator)]


def n_parameters(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_the_head_has_the_parameters_of_its_five_maps(head):
    def linear(i: int, o: int) -> int:
        return i * o + o

    assert n_parameters(head) == linear(6, 5) + linear(5, 4) + linear(4, 3) + linear(5 + 3, 4) + linear(4, 2)


def test_the_head_is_the_three_formulas(head):
    sequence, treatment = inputs()
    representation, logits, outcomes = head(sequence, treatment)
    elu = torch.nn.functional.elu
    torch.testing.assert_close(representation, elu(head.representation(sequence)))
    torch.testing.assert_close(logits, head.treatment[2](elu(head.treatment[0](representation))))
    both = torch.cat([representation, treatment], dim=-1)
    torch.testing.assert_close(outcomes, head.outcome[2](elu(head.outcome[0](both))))


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_reversal_changes_no_value_and_turns_the_gradient(alpha):
    x = torch.randn(5, 3, requires_grad=True)
    y = reverse_gradient(x, alpha)
    assert torch.equal(y, x)
    (y * torch.arange(3.0)).sum().backward()
    torch.testing.assert_close(x.grad, -alpha * torch.arange(3.0).expand(5, 3))


def test_reversal_reaches_the_representation_but_not_the_treatment_network(head):
    sequence, treatment = inputs()

    def gradients(alpha: float | None) -> dict[str, torch.Tensor]:
        head.zero_grad()
        logits = head(sequence, treatment, alpha).treatment_logits
        treatment_cross_entropy(logits, treatment, "multiclass").sum().backward()
        return {name: p.grad.clone() for name, p in head.named_parameters() if p.grad is not None}

    plain, turned = gradients(None), gradients(0.25)
    assert set(plain) == {n for n, _ in head.named_parameters() if not n.startswith("outcome.")}
    for name, value in plain.items():
        factor = 1 if name.startswith("treatment.") else -0.25
        torch.testing.assert_close(turned[name], factor * value)
        assert value.abs().sum() > 0


def test_each_member_has_its_own_alpha():
    params = stack_members([named_params(BalancingHead(6, 5, 4, n_treatments=3, n_outcomes=2))] * 2)
    module = BalancingHead(6, 5, 4, n_treatments=3, n_outcomes=2)
    params = {n: v.requires_grad_() for n, v in params.items()}
    sequence, treatment = (t.float().expand(2, *t.shape) for t in inputs())
    balanced = call_members(module, params, sequence, treatment, torch.tensor([0.5, 1.0]))
    treatment_cross_entropy(balanced.treatment_logits, treatment, "multiclass").sum().backward()
    grad = params["representation.weight"].grad
    torch.testing.assert_close(2 * grad[0], grad[1])


def test_cross_entropy_of_classes_equals_the_frameworks():
    logits, treatment = torch.randn(7, 3), inputs()[1].float()
    expected = torch.nn.functional.cross_entropy(logits, treatment.argmax(-1), reduction="none")
    torch.testing.assert_close(treatment_cross_entropy(logits, treatment, "multiclass"), expected)


def test_cross_entropy_of_labels_is_the_mean_over_them():
    logits, treatment = torch.randn(7, 3), (torch.rand(7, 3) < 0.5).float()
    p = torch.sigmoid(logits)
    expected = -(treatment * p.log() + (1 - treatment) * (1 - p).log()).mean(-1)
    torch.testing.assert_close(treatment_cross_entropy(logits, treatment, "multilabel"), expected)


@pytest.mark.parametrize(("mode", "least"), [("multiclass", math.log(3)), ("multilabel", math.log(2))])
def test_confusion_is_least_where_nothing_is_known(mode, least):
    target = unknown_treatment(torch.empty(2, 3), mode)
    assert treatment_cross_entropy(torch.zeros(2, 3), target, mode).tolist() == pytest.approx([least] * 2)
    assert (
        treatment_cross_entropy(torch.randn(50, 3), unknown_treatment(torch.empty(50, 3), mode), mode) > least
    ).all()


@given(seed=st.integers(0, 2**32 - 1), members=st.integers(1, 3), rows=st.integers(1, 5))
def test_masked_mean_is_the_mean_of_what_is_active(seed, members, rows):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(members, rows, 4, generator=generator)
    active = (torch.rand(members, rows, 4, generator=generator) < 0.6).float()
    expected = [float(v[a > 0].mean()) if bool(a.any()) else 0.0 for v, a in zip(values, active, strict=True)]
    assert masked_mean(values, active).tolist() == pytest.approx(expected, abs=1e-6)


def test_squared_errors_are_summed_over_outcomes():
    assert squared_error(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 4.0]])).tolist() == [5.0]


def test_alpha_is_zero_in_the_first_epoch_and_nearly_largest_at_the_end():
    schedule = AlphaSchedule(largest=0.5, epochs=20, steps_per_epoch=7)
    assert schedule.alpha(torch.arange(7.0)).tolist() == [0.0] * 7
    for epoch in range(1, 21):
        p = epoch / 20  # set at the end of the epoch before
        expected = 0.5 * (2 / (1 + math.exp(-10 * p)) - 1)
        during = schedule.alpha(torch.arange(7.0 * epoch, 7.0 * epoch + 7))
        assert during.tolist() == pytest.approx([expected] * 7, rel=1e-5)
    assert float(schedule.alpha(torch.tensor(140.0))) == pytest.approx(0.9999 * 0.5, rel=1e-4)


@pytest.mark.parametrize(
    ("n_rows", "drop_last", "steps"), [(100, False, 4), (100, True, 3), (20, True, 1), (20, False, 1), (96, True, 3)]
)
def test_the_schedule_knows_the_steps_of_an_epoch(n_rows, drop_last, steps):
    schedule = AlphaSchedule.over(1.0, TrainingConfig(epochs=5, batch_size=32), n_rows, drop_last=drop_last)
    assert schedule.steps_per_epoch == steps
