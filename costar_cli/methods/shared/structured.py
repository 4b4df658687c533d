"""The structured decoder: a state z becomes effects, which are rolled out step by step under a plan (spec GROWTH-4).

Any network that gives a state `z [N,T,D]` of the history at each origin can take it. In a stage of training, where each
position of a series is an origin and `series` are the `Windows` of a batch, under `call_members`:

    decoder = StructuredDecoder(D, forms, dose_table(schema.treatments))
    y, ahead = series.column("outcomes"), series.unrolled(H)
    unit = decoder.scale.units(y)
    predicted_RNTHY = call_members(decoder, params_R, z, y, unit, series.column("previous"), ahead.treatment)
    error_RNTH = decoder.penalty(predicted_RNTHY, ahead.target, y, unit, ahead.observed)

`forms` come of `choose_forms` on the training panel; a model's file records them, and adapting to the target keeps the
source's. To answer queries, what does not depend on the plan is found once for all origins, with one member's
parameters in the module; then only the rollout is left for each query:

    theta_NTYP, exposure_NTJ = decoder.theta(z), decoder.exposures(previous_NTA)
    predicted_QHY = decoder.roll(theta[n, t], y[n, t], unit[n, t], exposure[n, t], plan_QHA)

Letters: `L` dose factors, `C` carry-overs of each, `J = C L` exposures, `P` effects per outcome, `M` rows.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from costar_cli.methods.shared.balancing import sum_of_observed
from costar_cli.methods.shared.outcome_forms import OutcomeForm, OutcomeScale

__all__ = ["StructuredDecoder"]

FIRST_DECAYS: Final = (0.3, 0.9)  # of what is left of a dose after a step, before anything is learnt
FIRST_FADING: Final = 0.5
SMALL_START: Final = 0.1  # weights of the last layer at first: predictions begin near the last value


class StructuredDecoder(nn.Module):
    """Effects of a state, and their rollout: `r_h = theta' [1, levels_h, exposures_h, fading_h]`, then one step by r_h.

    The effects of an outcome are those of a constant, of the levels of all outcomes, of what is left of each dose, and
    of what is fading since the origin (`rho^h`), which stands for all else that z knows and that does not last.

    Args:
        width: D.
        forms: one per outcome.
        dose_AL: doses of each encoded treatment column, of `dose_table`.
        carry_overs: C, learnt decays of each factor's dose.
        fading: number of columns that fade from the origin on, each at a learnt rate.
        hidden: hidden units between state and effects.
    """

    dose_AL: Tensor

    def __init__(
        self,
        width: int,
        forms: Sequence[OutcomeForm],
        dose_AL: NDArray[np.float64],
        *,
        carry_overs: int = 1,
        fading: int = 0,
        hidden: int = 64,
    ) -> None:
        super().__init__()
        self.scale = OutcomeScale(forms)
        self.register_buffer("dose_AL", torch.from_numpy(dose_AL).float(), persistent=False)
        self.carry_overs, self.n_outcomes = carry_overs, len(forms)
        first_CL = torch.tensor(FIRST_DECAYS[:carry_overs])[:, None].expand(-1, dose_AL.shape[1])
        self.decay_CL = nn.Parameter(torch.logit(first_CL).contiguous())
        self.fading = nn.Parameter(torch.full((fading,), FIRST_FADING).logit()) if fading else None
        self.n_effects = 1 + len(forms) + first_CL.numel() + fading
        last = nn.Linear(hidden, len(forms) * self.n_effects)
        with torch.no_grad():
            last.weight.mul_(SMALL_START)
            last.bias.zero_()
        self.effects = nn.Sequential(nn.Linear(width, hidden), nn.SiLU(), last)

    def forward(
        self, z_NTD: Tensor, y_NTY: Tensor, unit_NTY: Tensor, previous_NTA: Tensor, plan_NTHA: Tensor
    ) -> Tensor:
        """Return standardised outcomes `[N,T,H,Y]` from every origin of every series.

        Args:
            z_NTD: states of the histories.
            y_NTY: standardised outcomes at the origins.
            unit_NTY: of `scale.units`.
            previous_NTA: treatments before the origins, `a_{t-1}`, from the first step of the series on.
            plan_NTHA: treatments from the origins on.
        """
        inputs = self.theta(z_NTD), y_NTY, unit_NTY, self.exposures(previous_NTA), plan_NTHA
        predicted_MHY = self.roll(*(values.flatten(0, 1) for values in inputs))
        return predicted_MHY.view(*y_NTY.shape[:-1], *predicted_MHY.shape[1:])

    def theta(self, z_MD: Tensor) -> Tensor:
        """Return the effects `[...,Y,P]` of states."""
        effects: Tensor = self.effects(z_MD)
        return effects.view(*z_MD.shape[:-1], self.n_outcomes, self.n_effects)

    def exposures(self, previous_NTA: Tensor) -> Tensor:
        """Return what is left of all earlier doses at every origin, `[N,T,J]` (spec GROWTH-4).

        Sums over the last 2, 4, 8, ... doses are made of one another: a recurrence over T steps in log T operations.
        """
        left_NTJ = self._doses(previous_NTA)
        decay_J, distance, steps = self._decay_J(), 1, left_NTJ.shape[-2]
        while distance < steps:
            earlier_NTJ = nn.functional.pad(left_NTJ[..., :-distance, :], (0, 0, distance, 0))
            left_NTJ = left_NTJ + decay_J * earlier_NTJ
            decay_J, distance = decay_J.square(), 2 * distance
        return left_NTJ

    def roll(self, theta_MYP: Tensor, y_MY: Tensor, unit_MY: Tensor, exposure_MJ: Tensor, plan_MHA: Tensor) -> Tensor:
        """Return standardised outcomes `[M,H,Y]` under plans, one step after another.

        Args:
            theta_MYP: effects of each origin's state.
            y_MY: standardised outcomes at the origin.
            unit_MY: of `scale.units`.
            exposure_MJ: of `exposures`.
            plan_MHA: treatments from the origin on.
        """
        u_MY, decay_J, dose_MHJ = self.scale.in_sd(y_MY), self._decay_J(), self._doses(plan_MHA)
        bounds, rows, reached = self.scale.bounds(u_MY), u_MY.shape[:1], []
        constant = torch.ones_like(u_MY[:, :1])
        fading = () if self.fading is None else (torch.sigmoid(self.fading).expand(*rows, -1),)
        for step in range(plan_MHA.shape[-2]):
            exposure_MJ = decay_J * exposure_MJ + dose_MHJ[:, step]
            faded = tuple(rate**step for rate in fading)
            columns_MP = torch.cat([constant, self.scale.level(u_MY, unit_MY), exposure_MJ, *faded], dim=-1)
            response_MY = (theta_MYP * columns_MP[:, None]).sum(dim=-1)
            u_MY = self.scale.after(u_MY, response_MY, unit_MY, bounds)
            reached.append(u_MY)
        return self.scale.standardised(torch.stack(reached, dim=1))

    def penalty(
        self, predicted_MHY: Tensor, true_MHY: Tensor, y_MY: Tensor, unit_MY: Tensor, observed_MHY: Tensor | None = None
    ) -> Tensor:
        """Return what is minimised, `[M,H]`, summed over outcomes as `squared_error` does.

        Each error is in the scale of its subject and origin.
        """
        error_unit_MY = self.scale.error_unit(y_MY, unit_MY)
        penalty_MHY = self.scale.penalty(predicted_MHY, true_MHY, error_unit_MY[..., None, :])
        return sum_of_observed(penalty_MHY, observed_MHY)

    def _doses(self, treatment_MA: Tensor) -> Tensor:
        """Return the doses `[...,J]` of encoded treatments, once per carry-over."""
        dose_ML = treatment_MA @ self.dose_AL.to(treatment_MA)
        return torch.cat([dose_ML] * self.carry_overs, dim=-1)

    def _decay_J(self) -> Tensor:
        return torch.sigmoid(self.decay_CL).flatten()
