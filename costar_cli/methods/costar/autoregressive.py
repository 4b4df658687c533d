"""The outcome predictor of an ablation: each step also reads the outcomes before it (spec COSTAR-22)."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from costar_cli.methods.costar.predictor import CausalKernel, OutcomePredictor

__all__ = ["AutoregressivePredictor"]


class AutoregressivePredictor(OutcomePredictor):
    """Steps in order: a third code is a causal convolution over the outcomes `(0, y_{t+1}, .., y_{t+h})` before a step.

    In training these are given (teacher forcing). Otherwise they are the predictor's own, through which no gradient
    flows.

    Args:
        n_treatments: da.
        n_outcomes: dy.
        width: d.
        horizon: H, also the width of the convolutions' kernels.
        hidden: hidden units of the network.
    """

    def __init__(self, n_treatments: int, n_outcomes: int, *, width: int, horizon: int, hidden: int) -> None:
        super().__init__(n_treatments, n_outcomes, width=width, horizon=horizon, hidden=hidden)
        self.feedback = CausalKernel(n_outcomes, width, horizon)

    def outcome_codes(self, outcome_MHY: Tensor) -> Tensor:
        """Return the code `[M,H,D]` that each step has of the outcomes before it."""
        return self.feedback.of_earlier(outcome_MHY) + self.feedback.bias

    def forward(self, z_MD: Tensor, plan_MHA: Tensor, given_MHY: Tensor | None = None) -> Tensor:
        """Return scaled outcomes `[M,H,dy]` after each step of each plan, each after the outcomes given before it.

        Without `given_MHY` a step comes after those that were predicted.
        """
        codes_MHD = z_MD[:, None] + self.plan_codes(plan_MHA)
        if given_MHY is not None:
            return self.network(codes_MHD + self.outcome_codes(given_MHY))  # type: ignore[no-any-return]
        first, _ = self.layers
        return self._in_order(functional.linear(codes_MHD + self.feedback.bias, first.weight, first.bias))

    def pairs(
        self, z_UD: Tensor, plan_PHA: Tensor, history_M: Tensor, plan_M: Tensor, *, rows: int
    ) -> Iterator[Tensor]:
        """Yield `forward(z[history], plan[plan])` for pairs of histories and plans, `rows` of them at a time.

        Each half of what the hidden layer adds up is computed once per history and per plan.
        """
        first, _ = self.layers
        history_UW = functional.linear(z_UD, first.weight, first.bias)
        plan_PHW = functional.linear(self.plan_codes(plan_PHA) + self.feedback.bias, first.weight)
        for histories, plans in zip(torch.split(history_M, rows), torch.split(plan_M, rows), strict=True):
            yield self._in_order(plan_PHW.index_select(0, plans) + history_UW.index_select(0, histories)[:, None])

    def _in_order(self, hidden_MHW: Tensor) -> Tensor:
        """Return outcomes `[M,H,dy]`, given what each hidden unit adds up besides earlier outcomes."""
        first, last = self.layers
        effect_KYW = torch.einsum("dyk,wd->kyw", self.feedback.weight, first.weight)
        outcomes: list[Tensor] = []
        for sum_MW in hidden_MHW.unbind(1):
            all_MW = sum_MW
            if outcomes:  # the oldest first, as the last columns of the kernel have them
                earlier_MB = torch.cat(outcomes, dim=1).detach()
                all_MW = torch.addmm(sum_MW, earlier_MB, effect_KYW[-len(outcomes) :].flatten(0, 1))
            outcomes.append(functional.linear(torch.relu(all_MW), last.weight, last.bias))
        return torch.stack(outcomes, dim=1)
