"""What simulators of differential equations share: integration, courses of patients, and plans (spec ODE-1 to 4).

Letters: P parameters, S states, A treatments, X covariates. Inside a mechanism patients are the last axis, so that each
quantity is one contiguous row; what a course holds has patients first.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Course", "Mechanism", "Patients", "simulate_course"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Patients:
    """N patients before step 0: parameters `[N,P]`, state `[N,S]`, and what is known of them, statics `[N,V]`."""

    parameters: Floats
    state: Floats
    statics: Floats


class Mechanism(ABC):
    """Differential equations of a patient, and a policy that treats by what is measured.

    Attributes:
        step: time between two measurements, in the unit of the rates.
        substeps: steps of the integration in one of these.
        mean_event: expected event of a step.
        mean_noise: the noise under which the outcome is its expectation.
    """

    step: ClassVar[float]
    substeps: ClassVar[int]
    mean_event: ClassVar[float] = 0.0
    mean_noise: ClassVar[float] = 0.0

    @abstractmethod
    def draw(self, n: int, rng: np.random.Generator) -> Patients:
        """Draw n patients, of whom the first do not depend on n."""

    @abstractmethod
    def rate(self, parameters: Floats, state: Floats, treatment: Floats) -> Floats:
        """Return the derivative `[S,N]` of a state after time."""

    @abstractmethod
    def measure(self, state: Floats, event: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Return the covariates `[X,N]` and the outcome `[N]` that are observed."""

    @abstractmethod
    def treat(self, covariates: Floats, outcome: Floats, gamma: float, uniform: Floats, normal: Floats) -> Floats:
        """Return the treatments `[A,N]` that the policy of strength gamma chooses, of its noise `[A,N]` each."""

    def events(self, n: int, steps: int, rng: np.random.Generator) -> Floats:
        """Draw what happens to patients whatever their treatment `[N,T]`; by default nothing."""
        return np.zeros((n, steps))

    def give(self, state: Floats, treatment: Floats, event: Floats) -> Floats:
        """Return the state right after treatment and event; by default these act through `rate` alone."""
        return state

    def settle(self, parameters: Floats, state: Floats, treatment: Floats, dt: float) -> Floats:
        """Return the state after dt of what is too quick for `rate`, solved exactly; by default there is none."""
        return state

    def disturb(self, state: Floats, noise: Floats) -> Floats:
        """Return the state with the noise of its step; by default the noise is of the measurement alone."""
        return state

    def advance(self, parameters: Floats, state: Floats, treatment: Floats, event: Floats, noise: Floats) -> Floats:
        """Return the state `[S,N]` one step later, by the classical Runge-Kutta method of fixed step."""
        state, dt = self.give(state, treatment, event), self.step / self.substeps
        for _ in range(self.substeps):
            k1 = self.rate(parameters, state, treatment)
            k2 = self.rate(parameters, state + dt / 2 * k1, treatment)
            k3 = self.rate(parameters, state + dt / 2 * k2, treatment)
            k4 = self.rate(parameters, state + dt * k3, treatment)
            state = self.settle(parameters, state + dt / 6 * (k1 + 2 * (k2 + k3) + k4), treatment, dt)
        return self.disturb(state, noise)

    def follow(self, parameters: Floats, state: Floats, plan: Floats, event: Floats, noise: Floats) -> Floats:
        """Return the outcomes `[Q,H]` of plans `[Q,H,A]` from states `[Q,S]`.

        Args:
            parameters: of the patients, `[Q,P]`.
            state: at the origins, before their treatment.
            plan: treatments of origin to origin+H-1.
            event: of the same steps, `[Q,H]`.
            noise: of the steps after, origin+1 to origin+H, `[Q,H]`.
        """
        parameters_PQ, state_SQ = np.ascontiguousarray(parameters.T), np.ascontiguousarray(state.T)
        outcome_QH = np.empty(plan.shape[:2])
        for h in range(plan.shape[1]):
            state_SQ = self.advance(parameters_PQ, state_SQ, plan[:, h].T, event[:, h], noise[:, h])
            outcome_QH[:, h] = self.measure(state_SQ, event[:, h], noise[:, h])[1]
        return outcome_QH


@dataclass(frozen=True, slots=True)
class Course:
    """N patients over T steps: `covariates [N,T,X]` and `outcome [N,T]`, then `treatments [N,T,A]` of the same step.

    `state [N,T,S]` is what each step begins with. `event` and `noise` `[N,T+H]` reach H steps beyond the last.
    """

    patients: Patients
    state: Floats
    event: Floats
    noise: Floats
    covariates: Floats
    treatments: Floats
    outcome: Floats


def simulate_course(
    mechanism: Mechanism, n: int, steps: int, rng: np.random.Generator, *, gamma: float, horizon: int = 0
) -> Course:
    """Simulate n patients over `steps` steps under the policy of strength `gamma`, 0 for one that ignores them.

    Patients, events, noise and policy have streams of their own: the first m of n patients do not depend on n, and
    cohorts of one seed share all but the policy's reaction.
    """
    patient_rng, event_rng, noise_rng, uniform_rng, normal_rng = rng.spawn(5)
    patients = mechanism.draw(n, patient_rng)
    event_NT = mechanism.events(n, steps + horizon, event_rng)
    noise_NT = noise_rng.standard_normal((n, steps + horizon))
    parameters_PN, state_SN = np.ascontiguousarray(patients.parameters.T), np.ascontiguousarray(patients.state.T)
    states, covariates, treatments, outcomes = [], [], [], []
    # as many as any mechanism has treatments: streams stay in step whatever is drawn for each
    uniform_NTA, normal_NTA = uniform_rng.random((n, steps, 2)), normal_rng.standard_normal((n, steps, 2))
    for t in range(steps):
        measured = mechanism.measure(state_SN, event_NT[:, t], noise_NT[:, t])
        treatment_AN = mechanism.treat(*measured, gamma, uniform_NTA[:, t].T, normal_NTA[:, t].T)
        states.append(state_SN.T)
        covariates.append(measured[0].T)
        outcomes.append(measured[1])
        treatments.append(treatment_AN.T)
        if t + 1 < steps:
            state_SN = mechanism.advance(parameters_PN, state_SN, treatment_AN, event_NT[:, t], noise_NT[:, t + 1])
    return Course(
        patients=patients,
        state=np.stack(states, axis=1),
        event=event_NT,
        noise=noise_NT,
        covariates=np.stack(covariates, axis=1),
        treatments=np.stack(treatments, axis=1),
        outcome=np.stack(outcomes, axis=1),
    )
