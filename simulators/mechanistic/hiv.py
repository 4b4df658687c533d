"""HIV under two drugs: the model of six states of Adams et al. (2004) (spec HIV-1 to 4)."""

from typing import Final

import numpy as np
from scipy.special import expit

from simulators.mechanistic.mechanism import Floats, Mechanism, Patients

__all__ = ["HEALTHY", "HIV", "TYPICAL", "UNHEALTHY"]

# k1, k2 (mL per virion and day), virions per infected cell, b_E (per day): Adams et al. 2004, table 1
TYPICAL: Final = (8e-7, 1e-4, 100.0, 0.3)
PARAMETERS_SD: Final = (0.1, 0.1, 0.1, 0.1)  # of logarithms between patients: ours
# Steady states without treatment of a typical patient (Adams et al. 2004): T1, T2, T1*, T2*, V, E per mL
UNHEALTHY: Final = (163_573.0, 5.0, 11_945.0, 46.0, 63_919.0, 24.0)
HEALTHY: Final = (967_839.0, 621.0, 76.0, 6.0, 415.0, 353_108.0)
START_SD: Final = 0.2  # of logarithms about the unhealthy state: ours
NOISE_SD: Final = 0.1  # of the logarithm of virus and infected cells, per step: ours
DETECTED: Final = 50.0  # copies per mL, below which an assay reads no less: ours
EFFICACY: Final = (0.7, 0.3)  # of a reverse transcriptase and a protease inhibitor: Adams et al. 2004
# The rest of table 1, in the paper's letters
SUPPLY_1, SUPPLY_2, DEATH_1, DEATH_2 = 10_000.0, 31.98, 0.01, 0.01  # lambda_1, lambda_2, d_1, d_2
PARTIAL, DELTA, CLEARANCE = 0.34, 0.7, 13.0  # f, delta, c
KILL_1, KILL_2 = 1e-5, 1e-5  # m_1, m_2
SUPPLY_E, DEATH_E, LOSS_E, HALF_B, HALF_D = 1.0, 0.25, 0.1, 100.0, 500.0  # lambda_E, d_E, delta_E, K_b, K_d


class HIV(Mechanism):
    """Healthy cells of two kinds, infected ones, virus, and immune effectors, per mL; T1 are CD4+ cells.

    Treatments are a reverse transcriptase inhibitor and a protease inhibitor, 0 or 1, for five days each time.
    """

    step = 5.0  # days
    substeps = 50  # the virus turns over in a thirteenth of a day

    def draw(self, n: int, rng: np.random.Generator) -> Patients:
        """Draw n patients, lognormal about the typical one, near its unhealthy steady state."""
        normal_NK = rng.standard_normal((n, 10))
        parameters_NP = np.array(TYPICAL) * np.exp(np.array(PARAMETERS_SD) * normal_NK[:, :4])
        return Patients(parameters_NP, np.array(UNHEALTHY) * np.exp(START_SD * normal_NK[:, 4:]), np.zeros((n, 0)))

    def rate(self, parameters: Floats, state: Floats, treatment: Floats) -> Floats:
        """Return the derivative by days."""
        k1, k2, burst, birth_e = parameters
        t1, t2, sick1, sick2, virus, effector = state
        rti, pi = EFFICACY[0] * treatment[0], EFFICACY[1] * treatment[1]
        infected1 = (1 - rti) * k1 * virus * t1
        infected2 = (1 - PARTIAL * rti) * k2 * virus * t2
        sick = sick1 + sick2
        return np.stack(
            [
                SUPPLY_1 - DEATH_1 * t1 - infected1,
                np.zeros_like(t2),  # see `settle`
                infected1 - (DELTA + KILL_1 * effector) * sick1,
                infected2 - (DELTA + KILL_2 * effector) * sick2,
                (1 - pi) * burst * DELTA * sick - CLEARANCE * virus - infected1 - infected2,
                SUPPLY_E + (birth_e * sick / (sick + HALF_B) - DEATH_E * sick / (sick + HALF_D) - LOSS_E) * effector,
            ]
        )

    def settle(self, parameters: Floats, state: Floats, treatment: Floats, dt: float) -> Floats:
        """Return the state with T2 after dt at this much virus: a burst infects these cells within minutes."""
        loss = DEATH_2 + (1 - PARTIAL * EFFICACY[0] * treatment[0]) * parameters[1] * state[4]
        state[1] = SUPPLY_2 / loss + (state[1] - SUPPLY_2 / loss) * np.exp(-loss * dt)
        return state

    def disturb(self, state: Floats, noise: Floats) -> Floats:
        """Return the state with virus and infected cells moved by one factor."""
        return np.concatenate([state[:2], state[2:5] * np.exp(NOISE_SD * noise), state[5:]])

    def measure(self, state: Floats, event: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Return the CD4 count per µL, and the decimal logarithm of the virus per mL as an assay reads it."""
        return (state[:1] + state[2:3]) / 1000.0, np.log10(np.maximum(state[4], DETECTED))

    def treat(self, covariates: Floats, outcome: Floats, gamma: float, uniform: Floats, normal: Floats) -> Floats:
        """Return who gets which drug: both are more likely for much virus and few CD4 cells."""
        need = 0.5 * (outcome - 4.0) + 0.5 * (500.0 - covariates[0]) / 250.0
        return np.where(uniform < expit(gamma * need), 1.0, 0.0)
