"""Rollouts of growth: outcomes and covariates step by step, and how a step moves with the one before (MIXED-8 to 9)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.methods.mixed.covariates import CovariateEquations, covariate_columns
from costar_cli.methods.mixed.effects import Effects
from costar_cli.methods.mixed.law import Floats, GrowthTransition, compounding, lasting, noise_over, remaining


@dataclass(frozen=True, slots=True)
class Histories:
    """What the model knows at every step of every subject; the rows of all arrays are M = N T subjects and steps.

    `effects` holds the expected effects `[P,M]` of each outcome, `exposure` what is left of earlier doses `[CL,M]`,
    before the step's own. `own_sd` is the sd of the intercept `[1,M]` of a binary outcome, of others nothing `[0,M]`.
    """

    steps: int
    y_YM: Floats
    usual_YM: Floats
    x_XM: Floats
    before_LM: Floats
    effects: list[Floats]
    exposure: list[Floats]
    own_sd: list[Floats]


@dataclass(frozen=True, slots=True)
class State:
    """Where a rollout stands: outcomes and covariates `[Y,Q]`, `[X,Q]`, what is left of doses `[CL,Q]` per outcome.

    It is left of earlier doses, before the step's own.
    The usual size of outcomes `[Y,Q]`, and the doses before the origin `[L+1,Q]` (`Series`), stay those of the origin.
    """

    y_YQ: Floats
    usual_YQ: Floats
    x_XQ: Floats
    before_LQ: Floats
    exposure: list[Floats]

    def take(self, at_M: NDArray[np.integer]) -> "State":
        """Return the states of some queries."""
        y_YM, usual_YM, x_XM, before_LM, *exposure = (
            np.take(values, at_M, axis=1)
            for values in (self.y_YQ, self.usual_YQ, self.x_XQ, self.before_LQ, *self.exposure)
        )
        return State(y_YM, usual_YM, x_XM, before_LM, exposure)


@dataclass(frozen=True, slots=True)
class Given:
    """What plans give at a step: doses `[L,Q]`, and how long it is `[Q]`, None where all steps are of one length."""

    dose_LQ: Floats
    gap_Q: Floats | None


@dataclass(frozen=True, slots=True)
class _Span:
    """What a step's columns are multiplied with: by how much they act until it ends (spec MIXED-12)."""

    level_Q: Floats | float
    dose_JQ: Floats | float
    noise_Q: Floats | float

    @classmethod
    def of(cls, law: GrowthTransition, learnt: Effects, gap_Q: Floats | None) -> Self:
        """Return it for steps of some lengths; of one everywhere where there are none."""
        if gap_Q is None or law.logit:
            return cls(1.0, 1.0, 1.0)
        return cls(
            lasting(gap_Q, 1.0, law.reversion),
            lasting(gap_Q, learnt.decay.reshape(-1, 1), law.reversion),
            noise_over(gap_Q, law.reversion),
        )

    def over(self, phi: list[Floats], levels: int) -> list[Floats]:
        """Return columns, the first so many of which are levels, integrated until the step ends."""
        doses = np.broadcast_to(self.dose_JQ, (np.shape(self.dose_JQ)[0], len(phi[0])))
        weights = [*[self.level_Q] * levels, *doses, *[self.level_Q] * (len(phi) - levels - len(doses))]
        return [weight * column_Q for weight, column_Q in zip(weights, phi, strict=True)]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a rollout: where it began and ended, how long it was, with columns, growth and span of each outcome."""

    before: State
    after: State
    columns: list[list[Floats]]
    growth: list[Floats]
    spans: list[_Span]
    gap_Q: Floats | None


@dataclass(frozen=True)
class Rollout:
    """What rollouts follow: the law of each outcome, what was learnt of it, and the covariates' equations, if any."""

    laws: list[GrowthTransition]
    effects: list[Effects]
    equations: CovariateEquations | None

    @property
    def moments(self) -> tuple[Floats, Floats]:
        """Return mean and sd of each outcome."""
        return np.array([law.mean for law in self.laws]), np.array([law.sd for law in self.laws])

    def steps(
        self,
        state: State,
        given: Iterable[Given],
        effects: list[Floats],
        shock_HSQ: Floats | None = None,
        weight_SGX: Floats | None = None,
        *,
        chance_HYQ: Floats | None = None,
    ) -> Iterator[Step]:
        """Yield each step of a rollout under some effects `[P,Q]` of each outcome, with noise where it is given.

        Binary outcomes are 0 or 1 where there is noise, else their probabilities: `chance_HYQ` where these are known,
        or what the logit makes of the step before. `weight_SGX` are weights of the covariates' equations in S draws of
        as many queries each.
        """
        mean_Y, sd_Y = self.moments
        reached_YQ = state.y_YQ  # a series that already is beyond the bounds may stay there
        lows = [np.minimum(law.low, reached_YQ[law.outcome]) for law in self.laws]
        highs = [np.maximum(law.high, reached_YQ[law.outcome]) for law in self.laws]
        for h, (dose_LQ, gap_Q) in enumerate((step.dose_LQ, step.gap_Q) for step in given):
            exposures = [
                left_JQ + np.tile(dose_LQ, (len(learnt.decay), 1))
                for learnt, left_JQ in zip(self.effects, state.exposure, strict=True)
            ]
            spans = [_Span.of(law, learnt, gap_Q) for law, learnt in zip(self.laws, self.effects, strict=True)]
            columns, growths, y_YQ = [], [], np.empty_like(state.y_YQ)
            for law, span, exposure_JQ, effects_PQ in zip(self.laws, spans, exposures, effects, strict=True):
                y_Q, usual_Q = state.y_YQ[law.outcome], state.usual_YQ[law.outcome]
                phi = [*law.level(y_Q, usual_Q), *exposure_JQ]
                phi += list(law.links(state.y_YQ.T, state.x_XQ.T, mean_Y, sd_Y, state.before_LQ.T).T)
                growth_Q = effects_PQ[0].copy()
                if gap_Q is not None and not law.logit:
                    phi, growth_Q = span.over(phi, len(law.levels)), span.level_Q * growth_Q
                for column_Q, effect_Q in zip(phi, effects_PQ[1:], strict=True):
                    growth_Q += column_Q * effect_Q
                columns.append(phi)
                growths.append(growth_Q)
                if law.logit and (shock_HSQ is not None or chance_HYQ is not None):
                    drawn = shock_HSQ is not None and growth_Q + shock_HSQ[h, law.outcome] > 0
                    y_YQ[law.outcome] = drawn if chance_HYQ is None else chance_HYQ[h, law.outcome]
                    continue
                if shock_HSQ is not None:
                    growth_Q += shock_HSQ[h, law.outcome] if gap_Q is None else span.noise_Q * shock_HSQ[h, law.outcome]
                y_YQ[law.outcome] = law.next(y_Q, growth_Q, usual_Q, lows[law.outcome], highs[law.outcome], gap_Q)
            x_XQ = state.x_XQ
            if self.equations is not None:
                scaled_QY = (state.y_YQ.T - mean_Y) / sd_Y
                known_QG = covariate_columns(x_XQ.T, scaled_QY, dose_LQ.T, np.concatenate(exposures).T, gap_Q)
                weight = self.equations.weight[None] if weight_SGX is None else weight_SGX
                x_XQ = (
                    x_XQ
                    + (known_QG.reshape(len(weight), -1, weight.shape[1]) @ weight).reshape(known_QG.shape[0], -1).T
                )
                if shock_HSQ is not None:
                    x_XQ += self.equations.noise(gap_Q) * shock_HSQ[h, len(self.laws) :]
                x_XQ = np.clip(x_XQ, self.equations.low[:, None], self.equations.high[:, None])
            pairs = zip(self.effects, exposures, strict=True)
            left = [remaining(learnt.decay.reshape(-1, 1), gap_Q, axis=0) * e_JQ for learnt, e_JQ in pairs]
            after = State(y_YQ, state.usual_YQ, x_XQ, state.before_LQ, left)
            yield Step(state, after, columns, growths, spans, gap_Q)
            state = after

    @staticmethod
    def gain(law: GrowthTransition, step: Step) -> Floats:
        """Return the derivative `[Q]` of an outcome after a step by its growth."""
        if law.logit:
            y_Q = step.after.y_YQ[law.outcome]
            return np.asarray(y_Q * (1 - y_Q))
        scale_Q = law.scale(step.before.y_YQ[law.outcome], step.before.usual_YQ[law.outcome])
        if step.gap_Q is None or not law.relative:
            return scale_Q
        steps_Q = compounding(step.gap_Q)
        growth_Q = np.clip(step.growth[law.outcome] / steps_Q, *law.limits)
        return np.asarray(scale_Q * (1 + growth_Q) ** (steps_Q - 1))

    def slopes(self, step: Step, effects: list[Floats], n_state: int) -> Floats:
        """Return the derivatives `[Q,S,S]` of the state after a step, outcomes then covariates, by that before it."""
        q, n = step.before.y_YQ.shape[1], len(self.laws)
        slope_QSS, sd_Y = np.zeros((q, n_state, n_state)), self.moments[1]
        each = zip(self.laws, self.effects, effects, step.growth, step.spans, strict=True)
        for law, learnt, effects_PQ, growth_Q, span in each:
            o, y_Q, usual_Q = law.outcome, step.before.y_YQ[law.outcome], step.before.usual_YQ[law.outcome]
            scale_Q, (low, high) = self.gain(law, step), law.limits
            steps_Q = np.ones(q) if step.gap_Q is None else compounding(step.gap_Q)
            moves_Q = span.level_Q * ((growth_Q > low * steps_Q) & (growth_Q < high * steps_Q))
            slopes = law.slope(y_Q, usual_Q)
            of_levels_Q = sum((slope * e for slope, e in zip(slopes, effects_PQ[1:], strict=False)), np.zeros(q))
            if law.logit:
                moves_Q = np.ones(q)
            own_Q = (not law.logit) + scale_Q * of_levels_Q * moves_Q
            if law.relative:
                grown_Q = (1 + np.clip(growth_Q / steps_Q, low, high)) ** steps_Q - 1
                own_Q = np.maximum(own_Q + grown_Q, 0)
            slope_QSS[:, o, o] = own_Q
            if law.linked:
                others = [*range(n, n_state), *(other for other in range(n) if other != o)]
                units = np.concatenate([np.ones(n_state - n), sd_Y[[other for other in range(n) if other != o]]])
                own = effects_PQ[learnt.n_random :][: len(others)]  # without those of habits, which stay what they are
                for other, unit, effect_Q in zip(others, units, own, strict=True):
                    slope_QSS[:, o, other] = scale_Q * effect_Q / unit * moves_Q
        if self.equations is not None:
            weight_XG = self.equations.over(step.gap_Q)
            x = n_state - n
            slope_QSS[:, n:, n:] = np.eye(x) + weight_XG[..., 1 : 1 + x]
            slope_QSS[:, n:, :n] = weight_XG[..., 1 + x : 1 + x + n] / sd_Y
        return slope_QSS
