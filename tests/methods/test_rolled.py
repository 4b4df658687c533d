"""CRN, RMSN and CT whose outcomes are rolled out: weights, balance, and what few-shot refuses (spec NET-21)."""

import pytest
import torch

from costar_cli.errors import UsageError
from costar_cli.methods.shared.balancing import Balancer, masked_mean, treatment_cross_entropy, unknown_treatment
from costar_cli.methods.shared.members import named_params, stack_members
from costar_cli.methods.shared.network_weights import TreatmentWeights
from costar_cli.methods.shared.rolled import Balance, BalanceKind
from costar_cli.methods.shared.rolled_model import RolledModel
from costar_cli.methods.shared.stage import AlphaSchedule
from costar_cli.methods.shared.windows import SubjectRows, Windows
from tests.methods.invariant_worlds import ROLLED, as_model, fit, trained, world
from tests.methods.rnn_worlds import tensors, ward

HORIZON = 3


def series(panel) -> Windows:
    rows = SubjectRows(panel)
    return rows.batch(torch.arange(len(rows))[None], torch.zeros(1, dtype=torch.long))


def test_a_step_is_weighted_by_all_treatments_from_the_origin_to_it() -> None:
    panel = tensors(ward(), dtype=torch.float64)
    n, steps = panel.y_NTY.shape[:2]
    log = torch.randn(2, n, steps - 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights, subjects = TreatmentWeights(log, panel), torch.arange(n).expand(2, -1)
    found = weights.of_origins(torch.arange(2), subjects, HORIZON)
    for subject in range(n):
        last = int(panel.length_N[subject]) - 1
        for origin in range(last):
            for h in range(min(HORIZON, last - origin)):
                expected = log[:, subject, origin : origin + h + 1].sum(dim=1).exp()
                torch.testing.assert_close(found[:, subject, origin, h], expected)
    clipped = weights.clipped_over_origins(panel, HORIZON)
    whole = torch.arange(steps - 1) < panel.length_N[:, None] - HORIZON
    bounded = clipped(found[:, whole].movedim(-1, 1))
    torch.testing.assert_close(bounded.mean(dim=-1), torch.ones(2, HORIZON, dtype=torch.float64))


@pytest.mark.parametrize("kind", ["reversal", "confusion"])
def test_states_move_away_from_what_the_treatment_network_moves_towards(kind: BalanceKind) -> None:
    torch.manual_seed(0)
    batch, alpha = series(tensors(ward())), 0.5
    head = Balancer(6, 4, 5, n_treatments=batch.treatment.shape[-1])
    params = {f"head.{name}": value.requires_grad_() for name, value in stack_members([named_params(head)]).items()}
    z = torch.randn(*batch.at.shape, 4, requires_grad=True)
    balance = Balance(kind, AlphaSchedule(alpha / 0.9999, 1, 1), "multilabel")
    guessing = [value for name, value in params.items() if ".treatment." in name]

    def slopes(balance: Balance) -> tuple[torch.Tensor, ...]:
        loss = balance.loss(head, params, z, batch, torch.ones(1)).sum()
        return torch.autograd.grad(loss, [z, *guessing])

    to_states, *to_network = slopes(balance)
    plain, *network = slopes(Balance("reversal", AlphaSchedule(-1 / 0.9999, 1, 1), "multilabel"))  # a plain guess
    share = 1 if kind == "reversal" else alpha
    for own, other in zip(to_network, network, strict=True):
        torch.testing.assert_close(own, share * other, rtol=1e-3, atol=1e-7)
    if kind == "reversal":
        torch.testing.assert_close(to_states, -alpha * plain, rtol=1e-3, atol=1e-7)
    else:
        logits = head.treatment(z)
        even = treatment_cross_entropy(logits, unknown_treatment(logits, "multilabel"), "multilabel")
        (towards_even,) = torch.autograd.grad(masked_mean(even, batch.active).sum(), z)
        torch.testing.assert_close(to_states, alpha * towards_even, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("method", ROLLED)
def test_a_model_says_how_its_outcomes_are_made_and_few_shot_keeps_that(method: str) -> None:
    source = as_model(method, trained(method, "tumor"))
    assert isinstance(source, RolledModel)
    assert source.forms[0].kind == "relative"
    with pytest.raises(UsageError, match="differ in shape") as raised:
        fit(method.partition(",")[0], world("tumor"), start=source, domain="target")
    assert "outputs.decoder: the source model has structured, the settings say published" in raised.value.details
