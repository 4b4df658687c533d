"""Sepsis in intensive care as a Markov decision process estimated from MIMIC-III, ICU-Sepsis (spec SEPSIS-1 to 4).

Choudhary, Gupta & Thomas (2024) estimated its probabilities. They come with the package icu-sepsis and are an argument
here. Letters: S states, of which the last three are death, survival and what follows them; A pairs of doses; F facts.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEVELS", "SepsisCourse", "SepsisProcess"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEVELS: Final = 5  # of fluids and of vasopressors: action 5 * fluids + vasopressor


@dataclass(frozen=True, eq=False)
class SepsisCourse:
    """N patients: `state [N,T]` and `action [N,T]` by step, `length [N]` up to death or survival.

    Beyond the length the last state stays. `uniform [N,T+H]` decides on the state of its step.
    """

    state: Ints
    action: Ints
    length: Ints
    uniform: Floats


@dataclass(frozen=True, eq=False)
class SepsisProcess:
    """The process: `transition [S,A,S]`, `start [S]`, the clinicians' probabilities `[S,A]`, `features [S,F]`."""

    transition: Floats
    start: Floats
    clinicians: Floats
    features: Floats

    def __post_init__(self) -> None:
        n = len(self.start)
        shapes = self.transition.shape, self.clinicians.shape, self.features.shape[:1]
        if shapes != ((n, LEVELS**2, n), (n, LEVELS**2), (n,)):
            raise ValueError(f"arrays of {n} states and {LEVELS**2} actions disagree")

    @cached_property
    def absorbing(self) -> Floats:
        """Return the transitions `[S,A,S]` where death and survival last, not one step."""
        lasting = self.transition.copy()
        for state in (-3, -2):
            lasting[state], lasting[state, :, state] = 0.0, 1.0
        return lasting

    @cached_property
    def risk(self) -> Floats:
        """Return the probability `[S]` that a patient dies under the clinicians' treatment from each state on."""
        going = slice(0, -3)
        by_step = np.einsum("sa,sat->st", self.clinicians[going], self.transition[going])
        risk = np.zeros(len(self.start))
        risk[going] = np.linalg.solve(np.eye(len(by_step)) - by_step[:, going], by_step[:, -3])
        risk[-3] = 1.0
        return risk

    def policy(self, gamma: float) -> Floats:
        """Return probabilities `[S,A]`: as the clinicians at 1, all that they ever do alike at 0; none at the end."""
        power = np.where(self.clinicians > 0, self.clinicians**gamma, 0.0)
        return np.asarray(power / np.maximum(power.sum(axis=1, keepdims=True), 1e-300))

    def simulate(self, n: int, steps: int, rng: np.random.Generator, *, gamma: float, horizon: int = 0) -> SepsisCourse:
        """Simulate n patients, of whom the first do not depend on n, under the policy of strength gamma."""
        state_rng, action_rng = rng.spawn(2)
        uniform_NT, action_uniform_NT = state_rng.random((n, steps + horizon)), action_rng.random((n, steps))
        state_NT, action_NT = (np.zeros((n, steps), dtype=np.int64) for _ in range(2))
        policy_SA = self.policy(gamma)
        state_NT[:, 0] = _inverted(np.broadcast_to(self.start, (n, len(self.start))), uniform_NT[:, 0])
        for t in range(steps):
            action_NT[:, t] = _inverted(policy_SA[state_NT[:, t]], action_uniform_NT[:, t])
            if t + 1 < steps:
                state_NT[:, t + 1] = self.next(state_NT[:, t], action_NT[:, t], uniform_NT[:, t + 1])
        going_NT = state_NT < len(self.start) - 3
        length_N = np.minimum(going_NT.sum(axis=1) + 1, steps)
        return SepsisCourse(state_NT, np.where(going_NT, action_NT, 0), length_N, uniform_NT)

    def next(self, state: Ints, action: Ints, uniform: Floats) -> Ints:
        """Return the states `[N]` that uniforms decide on; the same ones under every plan."""
        return _inverted(self.absorbing[state, action], uniform)

    def follow(self, state: Ints, plan: Ints, uniform: Floats) -> Floats:
        """Return the risks `[Q,H]` of actions `[Q,H]` from states `[Q]`, of uniforms `[Q,H]` of the steps after."""
        risk_QH = np.empty(plan.shape)
        for h in range(plan.shape[1]):
            state = self.next(state, plan[:, h], uniform[:, h])
            risk_QH[:, h] = self.risk[state]
        return risk_QH

    def expected(self, state: Ints, plan: Ints) -> Floats:
        """Return the expected risks `[Q,H]` of actions `[Q,H]` from states `[Q]`."""
        share_QS = np.zeros((len(state), len(self.start)))
        share_QS[np.arange(len(state)), state] = 1.0
        risk_QH = np.empty(plan.shape)
        for h in range(plan.shape[1]):
            for action in np.unique(plan[:, h]):
                rows = plan[:, h] == action
                share_QS[rows] = share_QS[rows] @ self.absorbing[:, action]
            risk_QH[:, h] = share_QS @ self.risk
        return risk_QH


def _inverted(probability: Floats, uniform: Floats) -> Ints:
    """Return what uniforms `[N]` pick of probabilities `[N,K]`; the last possible one where rounding lacks a bit."""
    below = probability.cumsum(axis=1) <= uniform[:, None]
    last = probability.shape[1] - 1 - (probability[:, ::-1] > 0).argmax(axis=1)
    return np.asarray(np.minimum(below.sum(axis=1), last), dtype=np.int64)
