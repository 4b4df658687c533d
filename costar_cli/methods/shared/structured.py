"""The structured decoder: a state z becomes effects, which are rolled out step by step under a plan (spec GROWTH-4).

Any network that gives a state `z [N,T,D]` of the history at each origin can take it. In a stage of training, where each
position of a series is an origin and `series` are the `Windows` of a batch:

    decoder = StructuredDecoder(D, forms, dose_table(encoding, timeless=True), gaps=GapColumn.of(encoding))
    y, ahead = series.column("outcomes"), series.unrolled(H)
    predicted = predict_ahead(decoder, params_R, z, series, ahead)
    error_RNTH = decoder.penalty(predicted.outcomes, ahead.target, y, decoder.scale.units(y), ahead.observed)

`forms` come of `choose_forms` on the training panel; a model's file records them, and adapting to the target keeps the
source's. To answer queries, what does not depend on the plan is found once for all origins, with one member's
parameters in the module; then only the rollout is left for each query:

    theta_NTYP, exposure_NTJ = decoder.theta(z), decoder.exposures(previous_NTA)
    predicted_QHY = decoder.roll(theta[n, t], y[n, t], unit[n, t], exposure[n, t], plan_QHA, history_Q=...)

Given the ranges of covariates, the decoder forecasts these, too: then `predict_ahead` takes each step from the truth
before it, `predicted.beside` is added to the error, and `roll` is given where covariates are, and their drift, at the
origin.

Where steps are visits, `gaps` reads how long each is from its treatments, and all that acts is integrated over that
(spec GROWTH-8).

Letters: `L` dose factors, `C` carry-overs of each, `J = C L` exposures, `P` effects per outcome, `M` rows, `I` inputs
of a step (levels and exposures; doses, too, where covariates follow), `G = X + I` columns of the covariates' law, `K`
courses (`plan_forks`).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from costar_cli.methods.shared.balancing import sum_of_observed
from costar_cli.methods.shared.covariate_transition import (
    SMALL_START,
    CovariateCourse,
    CovariateTransition,
    Rates,
    Reach,
)
from costar_cli.methods.shared.gaps import GapColumn, Span, carried_over
from costar_cli.methods.shared.members import Params, call_members
from costar_cli.methods.shared.outcome_forms import OutcomeForm
from costar_cli.methods.shared.outcome_scale import OutcomeScale
from costar_cli.methods.shared.plan_forks import forks
from costar_cli.methods.shared.windows import Windows

FIRST_DECAYS: Final = (0.3, 0.9)  # of what is left of a dose after a step, before anything is learnt
FIRST_FADING: Final = 0.5
LOGITS: Final = ("decay_CL", "fading")  # parameters of which the sigmoid is taken: nothing says that one half is usual


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
        covariates: smallest and largest values of the covariates that are forecast; None to forecast none.
        gaps: where treatments tell how long a step is; None where all are of one length.
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
        covariates: Reach | None = None,
        gaps: GapColumn | None = None,
    ) -> None:
        super().__init__()
        self.scale = OutcomeScale(forms)
        self.register_buffer("dose_AL", torch.from_numpy(dose_AL).float(), persistent=False)
        self.carry_overs, self.n_outcomes, self.gaps = carry_overs, len(forms), gaps
        cpu = torch.device("cpu")  # also where parameters have no values: logits of these import PyTorch's compiler
        first_CL = torch.tensor(FIRST_DECAYS[:carry_overs], device=cpu)[:, None].expand(-1, dose_AL.shape[1])
        self.decay_CL = nn.Parameter(torch.logit(first_CL).contiguous())
        self.fading = nn.Parameter(torch.full((fading,), FIRST_FADING, device=cpu).logit()) if fading else None
        self.n_effects = 1 + len(forms) + first_CL.numel() + fading
        last = nn.Linear(hidden, len(forms) * self.n_effects)
        with torch.no_grad():
            last.weight.mul_(SMALL_START)
            last.bias.zero_()
        self.effects = nn.Sequential(nn.Linear(width, hidden), nn.SiLU(), last)
        n_exposures = first_CL.numel()
        self.covariates = CovariateTransition(width, len(forms), n_exposures, covariates) if covariates else None

    def forward(
        self,
        z_NTD: Tensor,
        y_NTY: Tensor,
        unit_NTY: Tensor,
        previous_NTA: Tensor,
        plan_NTHA: Tensor,
        x_NTHX: Tensor | None = None,
    ) -> Tensor:
        """Return standardised outcomes `[N,T,H,Y]` from every origin of every series.

        Where covariates are forecast each step is taken from the truth before it, and covariates follow the outcomes,
        `[N,T,H,Y+X]`: what decided a treatment inside the plan is then known, and not taken for its effect.

        Args:
            z_NTD: states of the histories.
            y_NTY: standardised outcomes at the origins; `[N,T,H,Y]` before every step where covariates are forecast.
            unit_NTY: of `scale.units`.
            previous_NTA: treatments before the origins, `a_{t-1}`, from the first step of the series on.
            plan_NTHA: treatments from the origins on.
            x_NTHX: standardised covariates before every step, where they are forecast.
        """
        if self.covariates is not None:
            assert x_NTHX is not None  # noqa: S101 - a decoder that forecasts them is given them
            return self._taught(self.covariates, z_NTD, y_NTY, unit_NTY, previous_NTA, plan_NTHA, x_NTHX)
        inputs = self.theta(z_NTD), y_NTY, unit_NTY, self.exposures(previous_NTA), plan_NTHA
        predicted_MHY = self.roll(*(values.flatten(0, 1) for values in inputs))
        return predicted_MHY.view(*y_NTY.shape[:-1], *predicted_MHY.shape[1:])

    def _taught(
        self,
        law: CovariateTransition,
        z_NTD: Tensor,
        y_NTHY: Tensor,
        unit_NTY: Tensor,
        previous_NTA: Tensor,
        plan_NTHA: Tensor,
        x_NTHX: Tensor,
    ) -> Tensor:
        rates, steps, u_NTHY = self.rates(), y_NTHY.shape[2], self.scale.in_sd(y_NTHY)
        course = CovariateCourse(law, rates, x_NTHX, law.drift(z_NTD)[:, :, None])
        gap_NTH, dose_NTHJ = self._gaps(plan_NTHA), self._doses(plan_NTHA)
        faded_HF = rates.fading_1F ** torch.arange(steps, device=u_NTHY.device)[:, None]
        if gap_NTH is not None:
            faded_HF = rates.fading_1F ** (gap_NTH.cumsum(dim=-1) - gap_NTH)[..., None]
        before_NTJ = nn.functional.pad(self.exposures(previous_NTA), (0, 0, 0, steps - 1))
        before_NTHJ = before_NTJ.unfold(1, steps, 1).movedim(-1, 2)
        exposure_NTHJ = self._left(rates, before_NTHJ) + dose_NTHJ
        after_NTHY, known_NTHI = self._step(
            self.theta(z_NTD)[:, :, None],
            u_NTHY,
            unit_NTY[:, :, None].expand_as(u_NTHY),
            exposure_NTHJ,
            faded_HF.expand(*u_NTHY.shape[:-1], -1),
            course.links(),
            self.scale.bounds(u_NTHY),
            None if gap_NTH is None else Span(gap_NTH, rates),
        )
        course.advance(torch.cat([known_NTHI, dose_NTHJ], dim=-1), gap_NTH)
        return torch.cat([self.scale.standardised(after_NTHY), course.x_MX], dim=-1)

    def theta(self, z_MD: Tensor) -> Tensor:
        """Return the effects `[...,Y,P]` of states."""
        effects: Tensor = self.effects(z_MD)
        return effects.view(*z_MD.shape[:-1], self.n_outcomes, self.n_effects)

    def exposures(self, previous_NTA: Tensor) -> Tensor:
        """Return what is left of all earlier doses at every origin, `[N,T,J]` (spec GROWTH-4).

        It is after the last dose, or, where steps are visits, at the origin. Sums over the last 2, 4, 8, ... doses
        are made of one another: a recurrence over T steps in log T operations.
        """
        left_NTJ, gap_NT = self._doses(previous_NTA), self._gaps(previous_NTA)
        if gap_NT is not None:
            return carried_over(left_NTJ, gap_NT, self._decay_J())
        decay_J, distance, steps = self._decay_J(), 1, left_NTJ.shape[-2]
        while distance < steps:
            earlier_NTJ = nn.functional.pad(left_NTJ[..., :-distance, :], (0, 0, distance, 0))
            left_NTJ = left_NTJ + decay_J * earlier_NTJ
            decay_J, distance = decay_J.square(), 2 * distance
        return left_NTJ

    def roll(
        self,
        theta_UYP: Tensor,
        y_UY: Tensor,
        unit_UY: Tensor,
        exposure_UJ: Tensor,
        plan_QHA: Tensor,
        x_UX: Tensor | None = None,
        drift_UX: Tensor | None = None,
        *,
        history_Q: Tensor | None = None,
        rates: Rates | None = None,
    ) -> Tensor:
        """Return standardised outcomes `[Q,H,Y]` under plans, one step after another.

        With the rates of R members everything but plans may lead with these, and the outcomes do.

        Args:
            theta_UYP: effects of each origin's state.
            y_UY: standardised outcomes at the origin.
            unit_UY: of `scale.units`.
            exposure_UJ: of `exposures`.
            plan_QHA: treatments from the origin on.
            x_UX: standardised covariates at the origin, where they are forecast.
            drift_UX: of each origin's state, likewise.
            history_Q: the origin that each plan begins at; by default each its own. Plans side by side that begin alike
                are rolled out once until they part.
            rates: of members; the decoder's own by default.
        """
        rates, dose_QHJ, members = rates or self.rates(), self._doses(plan_QHA), theta_UYP.shape[:-3]
        u, unit = (values.expand(*members, *values.shape[-2:]) for values in (self.scale.in_sd(y_UY), unit_UY))
        known, left, gap_QH = [unit, *self.scale.bounds(u)], self._left(rates, exposure_UJ), self._gaps(plan_QHA)
        theta, course = theta_UYP, None
        if self.covariates is not None:
            if x_UX is None or drift_UX is None:
                raise TypeError("a decoder that forecasts covariates knows where they are and drift")
            course = CovariateCourse(self.covariates, rates, x_UX.expand_as(drift_UX), drift_UX)
        parts = None if history_Q is None else forks(history_Q, plan_QHA)
        reached = []
        for step, dose in enumerate(dose_QHJ.unbind(1)):
            fork = None if parts is None else next(parts)
            if fork is not None:
                dose = dose[fork.query_K]  # noqa: PLW2901 - of those that have not parted
                if not step or len(fork.parent_K) > u.shape[-2]:  # otherwise no two plans part here
                    theta = theta.index_select(-3, fork.parent_K)
                    u, left, *known = (x.index_select(-2, fork.parent_K) for x in (u, left, *known))
                    if course:
                        course.fork(fork.parent_K)
            exposure = left + dose
            gap, fading = None, rates.fading_1F**step
            if gap_QH is not None:
                of_course_KH = gap_QH if fork is None else gap_QH[fork.query_K]
                gap, fading = of_course_KH[:, step], rates.fading_1F ** of_course_KH[:, :step].sum(dim=1)[:, None]
            faded = fading.expand(*u.shape[:-1], -1)
            links = course.links() if course else torch.zeros_like(u)
            span = None if gap is None else Span(gap, rates)
            u, read = self._step(theta, u, known[0], exposure, faded, links, (known[1], known[2]), span)
            if course:
                course.advance(torch.cat([read, dose.expand(*members, *dose.shape)], dim=-1), gap)
            left = (rates.decay_1J if gap is None else rates.decay_1J ** gap[:, None]) * exposure
            reached.append(u if fork is None else u.index_select(-2, fork.course_Q))
        return self.scale.standardised(torch.stack(reached, dim=-2))

    def rates(self) -> Rates:
        """Return what every step of a rollout needs."""
        none, law = self.decay_CL.new_zeros(0), self.covariates
        fading = none if self.fading is None else torch.sigmoid(self.fading)
        weights = (none, none) if law is None else (law.links.weight.T, law.change.weight.T)
        return Rates(self._decay_J()[None], fading[None], *weights)

    def _step(
        self,
        theta_MYP: Tensor,
        u_MY: Tensor,
        unit_MY: Tensor,
        exposure_MJ: Tensor,
        faded_MF: Tensor,
        links_MY: Tensor,
        bounds: tuple[Tensor, Tensor],
        span: Span | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return u after a step; and levels and exposures, side by side, which made it."""
        known_MI = torch.cat([self.scale.level(u_MY, unit_MY), exposure_MJ], dim=-1)
        columns_MP = torch.cat([torch.ones_like(u_MY[..., :1]), known_MI, faded_MF], dim=-1)
        if span is None:
            response_MY = (theta_MYP * columns_MP[..., None, :]).sum(dim=-1) + links_MY
            return self.scale.after(u_MY, response_MY, unit_MY, bounds), known_MI
        own_MY = torch.diagonal(theta_MYP[..., 1 : 1 + self.n_outcomes], dim1=-2, dim2=-1)
        of_level_MY, weight_MYP = span.weights(self.scale.reverting(own_MY))
        response_MY = (theta_MYP * weight_MYP * columns_MP[..., None, :]).sum(dim=-1) + of_level_MY * links_MY
        return self.scale.after(u_MY, response_MY, unit_MY, bounds, span.gap_M[..., None]), known_MI

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

    def _gaps(self, treatment_MA: Tensor) -> Tensor | None:
        """Return how long each step is, in usual gaps; None where all are of one length."""
        return None if self.gaps is None else self.gaps.read(treatment_MA)

    def _left(self, rates: Rates, exposure_MJ: Tensor) -> Tensor:
        """Return what is left at an origin of what `exposures` tells of it."""
        return rates.decay_1J * exposure_MJ if self.gaps is None else exposure_MJ

    def _decay_J(self) -> Tensor:
        return torch.sigmoid(self.decay_CL).flatten()


class Predicted(NamedTuple):
    """Standardised outcomes `[R,..,H,Y]` from some origins, and the error `[R,..,H]` of covariates, if forecast."""

    outcomes: Tensor
    beside: Tensor | None = None


def predict_ahead(
    decoder: StructuredDecoder, params_R: Params, z_RNTD: Tensor, series: Windows, ahead: Windows
) -> Predicted:
    """Return what members predict from every origin of a batch in training, axes `[R,N,T,...]` (spec GROWTH-7).

    Where covariates are forecast each step is taken from the truth before it, and their mean squared error is `beside`.

    Args:
        decoder: which parameters are of.
        params_R: of the members.
        z_RNTD: states of the histories.
        series: every position of the subjects, from the first on.
        ahead: the steps from each position on.
    """
    y_RNTY = series.column("outcomes")
    given = decoder.scale.units(y_RNTY), series.column("previous"), ahead.treatment
    if decoder.covariates is None:
        return Predicted(call_members(decoder, params_R, z_RNTD, y_RNTY, *given))
    before = ahead.column("outcomes"), *given, ahead.column("covariates")
    both: Tensor = call_members(decoder, params_R, z_RNTD, *before)
    outcomes, covariates = both[..., : decoder.n_outcomes], both[..., decoder.n_outcomes :]
    return Predicted(outcomes, ahead.error_of_covariates(covariates))
