"""Heads: the contrastive predictor of pretraining, and the outcome predictors of every decoder."""

from collections.abc import Iterator, Mapping
from typing import Final, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from costar_cli.config.choices import DecoderName
from costar_cli.config.models import EncoderConfig
from costar_cli.data import TreatmentEncoding
from costar_cli.methods.shared.members import Dims


def contrast_predictor(width: int) -> nn.Sequential:
    """Return the MoCo-v3 style predictor `d -> 2d -> relu -> d`, shared by overall and components (spec COSTAR-9)."""
    return nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))


class CausalKernel(nn.Module):
    """The weights of a one-dimensional convolution, `[D,A,K]` and `[D]`, with the framework's initialisation."""

    def __init__(self, n_in: int, n_out: int, width: int) -> None:
        super().__init__()
        bound = (n_in * width) ** -0.5
        self.weight = nn.Parameter(torch.empty(n_out, n_in, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n_out).uniform_(-bound, bound))

    def earlier(self, horizon: int) -> Tensor:
        """Return blocks `[A,D,I,H]`: what step i adds to step h, zero unless i < h (the newest meets the last column).

        So the convolution reads everything one step late, and `H` may be less than the kernel's width.
        """
        kernel_ADK = self.weight.transpose(0, 1)
        step = torch.arange(horizon, device=kernel_ADK.device)
        lag = step - step[:, None]  # [i, h]: h - i
        width = kernel_ADK.shape[2]
        return kernel_ADK[:, :, (width - lag).clamp(0, width - 1)] * (lag > 0).to(kernel_ADK.dtype)

    def of_earlier(self, series_MHA: Tensor) -> Tensor:
        """Return the convolution `[M,H,D]` of a series with each step's past, without the bias."""
        matrix = as_matrix(self.earlier(series_MHA.shape[1]))
        return (series_MHA.flatten(1) @ matrix).view(*series_MHA.shape[:2], -1)


def as_matrix(blocks_ADIH: Tensor) -> Tensor:
    """Return the matrix `[I*A,H*D]` of blocks."""
    return blocks_ADIH.permute(2, 0, 3, 1).flatten(2, 3).flatten(0, 1)


class OutcomePredictor(nn.Module):
    """All steps of the horizon in one pass from `z_t` and the plan (spec COSTAR-14, COSTAR-15).

    Step h adds three codes: the history `z_t`, the treatment `a_{t+h}` now, and a causal convolution over the
    treatments `(0, a_t, .., a_{t+h-1})` before it; a small network shared by all steps reads their sum. Both treatment
    codes are linear in the plan, so they are one matrix product with a block-triangular matrix.

    Args:
        n_treatments: da.
        n_outcomes: dy.
        width: d.
        horizon: H, also the width of the convolution's kernel.
        hidden: hidden units of the network.
    """

    def __init__(self, n_treatments: int, n_outcomes: int, *, width: int, horizon: int, hidden: int) -> None:
        super().__init__()
        self.horizon, self.hidden = horizon, hidden
        self.past = CausalKernel(n_treatments, width, horizon)
        self.current = CausalKernel(n_treatments, width, 1)
        self.network = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, n_outcomes))

    @property
    def layers(self) -> tuple[nn.Linear, nn.Linear]:
        """Return the two layers of the network."""
        return cast("nn.Linear", self.network[0]), cast("nn.Linear", self.network[2])

    def plan_matrix(self, horizon: int) -> Tensor:
        """Return the map `[H*A, H*D]` from a flat plan to the treatment codes of every step.

        Block (i, h) is the kernel at offset `i - h` for i < h (the convolution reads the treatment one step late),
        the current map for i = h, and zero for i > h: a plan changes nothing before it acts.
        """
        blocks_ADIH = self.past.earlier(horizon)
        current_AD = self.current.weight[:, :, 0].T
        diagonal_IH = torch.eye(horizon, dtype=current_AD.dtype, device=current_AD.device)
        return as_matrix(blocks_ADIH + current_AD[:, :, None, None] * diagonal_IH)

    def plan_codes(self, plan_MHA: Tensor) -> Tensor:
        """Return the treatment codes `[M,H,D]` of plans; the first `H <= horizon` steps of the horizon."""
        horizon = plan_MHA.shape[1]
        codes = plan_MHA.flatten(1) @ self.plan_matrix(horizon)
        return codes.view(len(plan_MHA), horizon, -1) + (self.past.bias + self.current.bias)

    def forward(self, z_MD: Tensor, plan_MHA: Tensor) -> Tensor:
        """Return scaled outcomes `[M,H,dy]` after each step of each plan."""
        return self.network(z_MD[:, None] + self.plan_codes(plan_MHA))  # type: ignore[no-any-return]

    def pairs(
        self, z_UD: Tensor, plan_PHA: Tensor, history_M: Tensor, plan_M: Tensor, *, rows: int
    ) -> Iterator[Tensor]:
        """Yield `forward(z[history], plan[plan])` for pairs of histories and plans, `rows` of them at a time.

        The hidden layer is affine in history and plan. Each half is computed once; as `relu(a + b) = max(a, -b) + b`, a
        pair costs one maximum and one product with the last layer.

        Args:
            z_UD: representations.
            plan_PHA: plans.
            history_M: row of `z_UD` for each pair.
            plan_M: row of `plan_PHA` for each pair.
            rows: what fits into the cache.
        """
        first, last = self.layers
        weight_WY = last.weight.T
        history_UW = functional.linear(z_UD, first.weight, first.bias)
        plan_PHW = functional.linear(self.plan_codes(plan_PHA), first.weight)
        offset_PHY = plan_PHW @ weight_WY + last.bias
        minus_PK = plan_PHW.flatten(1).neg()
        for histories, plans in zip(torch.split(history_M, rows), torch.split(plan_M, rows), strict=True):
            hidden_MHW = minus_PK.index_select(0, plans).view(len(plans), *plan_PHW.shape[1:])
            torch.maximum(hidden_MHW, history_UW.index_select(0, histories)[:, None], out=hidden_MHW)
            yield hidden_MHW @ weight_WY + offset_PHY.index_select(0, plans)


class SteppedPredictor(OutcomePredictor):
    """The outcome predictor with one more code, the step's own.

    Without it a plan of zeros has the same codes at every step: where "no treatment" is all zeros (binary treatments),
    the course without treatment would be flat, whatever the history.
    """

    def __init__(self, n_treatments: int, n_outcomes: int, *, width: int, horizon: int, hidden: int) -> None:
        super().__init__(n_treatments, n_outcomes, width=width, horizon=horizon, hidden=hidden)
        self.step_codes = nn.Parameter(torch.zeros(horizon, width))

    def plan_codes(self, plan_MHA: Tensor) -> Tensor:
        """Return the codes `[M,H,D]` of treatments and steps; the first `H <= horizon` steps of the horizon."""
        return super().plan_codes(plan_MHA) + self.step_codes[: plan_MHA.shape[1]]


# The paper's autoregressive row rests on a decoder of which the first step alone was trained; its text suggests teacher
# forcing. Parameters are the same, so both are decoders of `finetune.decoder`, stored with the model.
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


# A plan of zeros has the same code at every step, so that an untreated course would be flat: hence `stepped` for binary
# treatments. The paper's parameter count on ICU data has no room for it, nor has `--preset paper` there.
DEFAULT_DECODER: Final[DecoderName] = "non_autoregressive"

_HEADS: Final[Mapping[DecoderName, type[OutcomePredictor]]] = {
    DEFAULT_DECODER: OutcomePredictor,
    "stepped": SteppedPredictor,
    "autoregressive": AutoregressivePredictor,
    "autoregressive_one_step": AutoregressivePredictor,
}


def outcome_head(
    dims: Dims, horizon: int, encoder: EncoderConfig, hidden: int, *, decoder: DecoderName = DEFAULT_DECODER
) -> OutcomePredictor:
    """Return a freshly initialised outcome predictor, of any decoder but the structured one."""
    return _HEADS[decoder](dims[1], dims[2], width=encoder.width, horizon=horizon, hidden=hidden)


def decoder_for(treatments: TreatmentEncoding) -> DecoderName:
    """Return the decoder that suits treatments, where nobody asks for another.

    Classes are one-hot, no treatment included, and so tell steps apart; binary treatments that are all zero do not.
    """
    return "stepped" if treatments.mode == "multilabel" else DEFAULT_DECODER


def known_decoder(name: object) -> DecoderName:
    """Return the decoder of this name, of those here or the structured one.

    Raises:
        ValueError: there is none.
    """
    found: DecoderName | None = next((known for known in get_args(DecoderName) if known == name), None)
    if found is None:
        raise ValueError(f"unknown decoder: {name!r}")
    return found
