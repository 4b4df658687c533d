"""Plans that begin alike: found as such, and stepped along as if each went alone."""

import torch
from torch import nn

from costar_cli.methods.recurrent.lstm import LstmState
from costar_cli.methods.recurrent.plan_prefixes import LstmSteps, PlanPrefixes, PrefixState


def test_branches_are_the_distinct_beginnings_of_plans():
    history = torch.tensor([[7, 3], [7, 3], [2, 3], [7, 3], [2, 4]])
    plan = torch.tensor([[0, 0, 1], [0, 1, 1], [0, 0, 1], [0, 0, 1], [0, 0, 1]]).float()[..., None]
    histories, *steps = PlanPrefixes.along(history, plan)
    assert [len(prefixes.query_K) for prefixes in (histories, *steps)] == [3, 3, 4, 4]
    before = histories
    for step, prefixes in enumerate(steps):
        known = torch.cat([history.float(), plan[:, : step + 1, 0]], dim=1)
        assert torch.equal(known[prefixes.query_K][prefixes.prefix_Q], known)
        assert torch.equal(prefixes.parent_K[prefixes.prefix_Q], before.prefix_Q)
        before = prefixes


def test_steps_along_branches_are_those_of_the_framework():
    torch.manual_seed(0)
    shared, own = [0, 4, 5], [3, 1, 2]
    lstm = nn.LSTM(6, 5, 2).double().requires_grad_(False)
    hidden, cell = torch.randn(2, 2, 3, 5, dtype=torch.float64)
    steps, state = (
        LstmSteps(lstm, torch.tensor(shared), torch.tensor(own)),
        PrefixState.of(LstmState(hidden[None], cell[None])),
    )
    parents = [torch.tensor([0, 1, 2, 1]), torch.tensor([3, 0, 0, 2, 1])]
    samples = [1, 7, 7]
    expected = [[(hidden[:, n : n + 1], cell[:, n : n + 1])] for n in range(3)]  # of each prefix and future
    for turn, parent in enumerate(parents):
        own_PSJ = torch.randn(len(expected), samples[turn + 1] if turn else 1, 3).double()
        shared_KI = torch.randn(len(parent), 3).double()
        state = steps.next(parent, shared_KI, own_PSJ, state)
        after = []
        for k, p in enumerate(parent.tolist()):
            futures = []
            for s in range(own_PSJ.shape[1]):
                inputs = torch.empty(6).double()
                inputs[shared], inputs[own] = shared_KI[k], own_PSJ[p, s]
                futures.append(lstm(inputs[None, None], expected[p][min(s, len(expected[p]) - 1)])[1])
            after.append(futures)
        expected = after
        for layer in range(2):
            for part, found in enumerate((state.hidden, state.cell)):
                plain = torch.stack([torch.stack([future[part][layer, 0] for future in prefix]) for prefix in expected])
                torch.testing.assert_close(found[layer], plain, rtol=1e-10, atol=1e-12)
