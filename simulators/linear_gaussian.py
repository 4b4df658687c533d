"""A linear-Gaussian panel under time-varying confounding, with effects in closed form: the ground truth for tests.

At step t the covariates x_t and the outcome y_t are observed, then a treatment a_t in {0, 1} is given, and

    x_{t+1} = A x_t + b a_t + state_sd * noise
    y_{t+1} = d.x_t + theta a_t + rho y_t + outcome_sd * noise
    P(a_t = 1) = sigmoid(bias + confounding (c.x_t + c_y y_t))

With doses, a_t = 1 is a dose in place of one, lognormal about a size that grows with the same need.

The covariates sway both treatment and outcome (confounding), and earlier treatment sways the covariates, so they also
mediate: adjusting for the history is right, ignoring the covariates is wrong, and conditioning on later ones is too.
Under any plan the expected outcomes are linear in the state at the origin (spec LINEAR-1 to 4).
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

__all__ = ["LinearGaussian", "LinearGaussianPanel", "simulate_linear_gaussian"]

Floats = NDArray[np.float64]

DOSE_GROWTH: Final = 0.4  # of the logarithm of doses, from no need to a great one
DOSE_SD: Final = 0.4  # of the logarithm of doses, given the need
BURN_IN: Final = 50  # steps before step 0: by then the start at zero is forgotten


def _array(*rows: object) -> Floats:
    return np.array(rows, dtype=np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearGaussian:
    """The law of the panel: dx covariates, one treatment, binary or a dose, one outcome.

    Raises:
        ValueError: shapes that disagree, a system that explodes, or noise that is not positive.
    """

    transition: Floats = field(default_factory=lambda: _array([0.7, 0.2], [-0.1, 0.6]))  # A [dx,dx]
    state_effect: Floats = field(default_factory=lambda: _array(-0.6, 0.3))  # b [dx]
    outcome_weights: Floats = field(default_factory=lambda: _array(0.8, 0.4))  # d [dx]
    treatment_effect: float = -1.0  # theta: on the next outcome
    persistence: float = 0.5  # rho
    policy_weights: Floats = field(default_factory=lambda: _array(1.0, 0.5))  # c [dx]
    policy_outcome_weight: float = 0.3  # c_y
    policy_bias: float = 0.0
    confounding: float = 1.0  # 0 treats whatever the history
    doses: bool = False  # what is given has a size
    state_sd: float = 0.5
    outcome_sd: float = 0.5

    def __post_init__(self) -> None:
        dx = len(self.state_effect)
        vectors = self.state_effect, self.outcome_weights, self.policy_weights
        if self.transition.shape != (dx, dx) or any(vector.shape != (dx,) for vector in vectors):
            raise ValueError("transition [dx,dx], state_effect, outcome_weights and policy_weights [dx] disagree")
        if max(np.abs(np.linalg.eigvals(self.transition)).max(), abs(self.persistence)) >= 1.0:
            raise ValueError("the system explodes: eigenvalues of transition, and persistence, must be inside (-1, 1)")
        if self.state_sd <= 0.0 or self.outcome_sd <= 0.0:
            raise ValueError("state_sd and outcome_sd must be positive")

    @property
    def n_covariates(self) -> int:
        """Return dx."""
        return len(self.state_effect)

    def probability(self, covariates: Floats, outcome: Floats) -> Floats:
        """Return the probability of treatment `[...]` after covariates `[...,dx]` and outcome `[...]`."""
        return np.asarray(expit(self.policy_bias + self.confounding * self._need(covariates, outcome)))

    def dose(self, covariates: Floats, outcome: Floats, noise: Floats) -> Floats:
        """Return the size `[...]` of a dose that is given, of standard normal noise, to three decimals."""
        grown = DOSE_GROWTH * np.tanh(self.confounding * self._need(covariates, outcome))
        return np.asarray(np.exp(grown + DOSE_SD * noise).round(3))

    def _need(self, covariates: Floats, outcome: Floats) -> Floats:
        return np.asarray(covariates @ self.policy_weights + self.policy_outcome_weight * outcome)

    def step(self, covariates: Floats, outcome: Floats, treatment: ArrayLike) -> tuple[Floats, Floats]:
        """Return the expected next covariates and outcome."""
        given = np.asarray(treatment, dtype=np.float64)
        next_covariates = covariates @ self.transition.T + given[..., None] * self.state_effect
        return next_covariates, (
            covariates @ self.outcome_weights + self.treatment_effect * given + self.persistence * outcome
        )

    def expected_outcomes(self, covariates: Floats, outcome: Floats, plan: ArrayLike) -> Floats:
        """Return the expected outcomes `[Q,H]` at origin+1 to origin+H, had the plans been followed.

        Args:
            covariates: at the origin, before its treatment, `[Q,dx]`.
            outcome: at the origin, `[Q]`.
            plan: treatments of origin to origin+H-1, `[Q,H]` or `[H]` for all, 0 or 1.
        """
        plan_QH = np.broadcast_to(np.asarray(plan, dtype=np.float64), (len(outcome), np.shape(plan)[-1]))
        expected_QH = np.empty(plan_QH.shape)
        for h, treatment in enumerate(plan_QH.T):
            covariates, outcome = self.step(covariates, outcome, treatment)
            expected_QH[:, h] = outcome
        return expected_QH

    def outcome_sds(self, horizon: int) -> Floats:
        """Return the standard deviations `[H]` of the outcomes at origin+1 to origin+H, given the state at the origin.

        They are the same for every state and plan, as the system is linear.
        """
        dx = self.n_covariates
        moves = np.block([[self.transition, np.zeros((dx, 1))], [self.outcome_weights, self.persistence]])
        noise = np.diag([self.state_sd**2] * dx + [self.outcome_sd**2])
        covariance, sds = np.zeros_like(noise), np.empty(horizon)
        for h in range(horizon):
            covariance = moves @ covariance @ moves.T + noise
            sds[h] = np.sqrt(covariance[-1, -1])
        return sds

    def impulse_response(self, horizon: int) -> Floats:
        """Return the effect of one treatment on the outcomes 1 to `horizon` steps later `[H]`."""
        plan = np.zeros(horizon)
        plan[:1] = 1.0
        zero_QD, zero_Q = np.zeros((1, self.n_covariates)), np.zeros(1)
        return np.asarray(self.expected_outcomes(zero_QD, zero_Q, plan)[0])

    def total_effect(self, horizon: int) -> Floats:
        """Return by how much always treating moves the outcomes 1 to `horizon` steps later against never treating.

        It is the cumulative impulse response: the same for every subject, as the system is linear.
        """
        return self.impulse_response(horizon).cumsum()


@dataclass(frozen=True, slots=True)
class LinearGaussianPanel:
    """N subjects over T steps: `covariates [N,T,dx]` and `outcomes [N,T]`, then `treatments [N,T]` of the same step.

    Treatments are true or false, or doses.
    """

    law: LinearGaussian
    covariates: Floats
    treatments: NDArray[np.bool_] | Floats
    outcomes: Floats

    def __len__(self) -> int:
        return int(self.outcomes.shape[0])

    def expected_outcomes(self, subject: NDArray[np.integer], origin: NDArray[np.integer], plan: ArrayLike) -> Floats:
        """Return the expected outcomes `[Q,H]` at origin+1 to origin+H under plans `[Q,H]`, given the history."""
        return self.law.expected_outcomes(self.covariates[subject, origin], self.outcomes[subject, origin], plan)

    def counterfactual_outcomes(
        self, subject: NDArray[np.integer], origin: NDArray[np.integer], plan: ArrayLike
    ) -> Floats:
        """Return the outcomes `[Q,H]` that these subjects would have had under plans `[Q,H]`, with their own noise.

        Raises:
            ValueError: a plan that ends after the last step.
        """
        horizon = np.shape(plan)[-1]
        if len(origin) and origin.max() + horizon >= self.outcomes.shape[1]:
            raise ValueError(f"a plan ends after the last step, {self.outcomes.shape[1] - 1}")
        step_QH = origin[:, None] + np.arange(1, horizon + 1)
        factual_QH = self.treatments[subject[:, None], step_QH - 1].astype(np.float64)
        # the system is linear and the noise the same: the difference of plans moves the factual outcomes
        moved_QH = self.law.expected_outcomes(
            np.zeros((len(subject), self.law.n_covariates)), np.zeros(len(subject)), np.asarray(plan) - factual_QH
        )
        return np.asarray(self.outcomes[subject[:, None], step_QH] + moved_QH)


def simulate_linear_gaussian(
    law: LinearGaussian, n: int, steps: int, rng: np.random.Generator, *, plan: ArrayLike | None = None
) -> LinearGaussianPanel:
    """Simulate n subjects over `steps` steps, in the long run's distribution at step 0.

    The first m of n subjects do not depend on n. With the same seed, a plan and the policy share their history up to
    step 0 and all noise.

    Args:
        law: the law of the panel.
        n: number of subjects.
        steps: T.
        rng: generator with a seed sequence, as `np.random.default_rng` makes.
        plan: treatments or doses `[T]` or `[N,T]` to follow from step 0 on; without one, the policy treats.
    """
    state_rng, outcome_rng, treatment_rng = rng.spawn(3)
    shape = (n, BURN_IN + steps)
    covariates_NTD = law.state_sd * state_rng.standard_normal((*shape, law.n_covariates))
    outcomes_NT = law.outcome_sd * outcome_rng.standard_normal(shape)
    uniform_NT = treatment_rng.random(shape)
    treatments_NT: NDArray[np.bool_] | Floats = np.zeros(shape, dtype=np.float64 if law.doses else np.bool_)
    size_NT = rng.spawn(1)[0].standard_normal(shape) if law.doses else None
    if plan is not None:
        treatments_NT[:, BURN_IN:] = plan
    for t in range(BURN_IN + steps):
        if t > 0:
            x, y = law.step(covariates_NTD[:, t - 1], outcomes_NT[:, t - 1], treatments_NT[:, t - 1])
            covariates_NTD[:, t] += x
            outcomes_NT[:, t] += y
        if plan is None or t < BURN_IN:
            now = covariates_NTD[:, t], outcomes_NT[:, t]
            treatments_NT[:, t] = uniform_NT[:, t] < law.probability(*now)
            if size_NT is not None:
                treatments_NT[:, t] *= law.dose(*now, size_NT[:, t])
    return LinearGaussianPanel(law, covariates_NTD[:, BURN_IN:], treatments_NT[:, BURN_IN:], outcomes_NT[:, BURN_IN:])
