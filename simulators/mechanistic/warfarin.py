"""INR under daily warfarin: the K-PD model of Hamberg et al. (2010) (spec WARFARIN-1 to 4)."""

from typing import Final

import numpy as np

from simulators.mechanistic.mechanism import Floats, Mechanism, Patients

__all__ = ["INR_MAX", "Warfarin", "inhibited"]

# Hamberg et al. 2010, tables 2 and 4
CLEARANCE_L_H: Final = (0.174, 0.0879, 0.0422)  # per allele CYP2C9 *1, *2, *3, at 71 years
EC50_MG_L: Final = (0.96, 2.05)  # per allele VKORC1 A, G
VOLUME_L: Final = 14.3
HILL: Final = 1.15
TRANSIT_H: Final = (28.6, 118.3)  # mean times of the two chains, of three compartments each
INR_MAX: Final = 20.0
CLEARANCE_SD, EC50_SD = 0.089**0.5, 0.34**0.5  # of logarithms between patients, from their variances
S_SHARE: Final = 0.5  # of warfarin that is the active enantiomer
CYP2C9_RARE: Final = (0.11, 0.07)  # frequencies of *2, *3: ours
VKORC1_G: Final = 0.6  # frequency: ours
NOISE_SD: Final = 0.1  # of the logarithm of a measured INR: ours
USUAL_MG: Final = 5.0  # median daily dose at the target: ours
TARGET: Final = 2.5  # INR
MISSED: Final = 0.1  # share of doses: ours


def inhibited(supply_mg_h: Floats, half_mg_h: Floats) -> Floats:
    """Return the share of the synthesis of coagulation factors that a supply of S-warfarin stops."""
    relative = (supply_mg_h / half_mg_h) ** HILL
    return np.asarray(relative / (1 + relative))


class Warfarin(Mechanism):
    """S-warfarin in the body (mg), and two chains of coagulation activity, 1 each without the drug.

    A treatment is a daily dose of warfarin in mg.
    """

    step = 24.0  # hours
    substeps = 12
    mean_noise = NOISE_SD / 2  # at which the factor of `measure` is 1, its mean

    def draw(self, n: int, rng: np.random.Generator) -> Patients:
        """Draw n patients by their alleles, which are known, and variation that is not, before their first dose."""
        allele_rng, normal_rng = rng.spawn(2)
        allele_N4 = allele_rng.random((n, 4))
        third_N2 = allele_N4[:, :2] < CYP2C9_RARE[1]
        second_N2 = ~third_N2 & (allele_N4[:, :2] < sum(CYP2C9_RARE))
        g_N2 = allele_N4[:, 2:] < VKORC1_G
        normal_N2 = normal_rng.standard_normal((n, 2))
        by_allele = np.where(third_N2, CLEARANCE_L_H[2], np.where(second_N2, CLEARANCE_L_H[1], CLEARANCE_L_H[0]))
        clearance_N = by_allele.sum(axis=1) * np.exp(CLEARANCE_SD * normal_N2[:, 0])
        ec50_N = np.where(g_N2, EC50_MG_L[1], EC50_MG_L[0]).sum(axis=1) * np.exp(EC50_SD * normal_N2[:, 1])
        state_NS = np.ones((n, 7))
        state_NS[:, 0] = 0.0
        return Patients(
            parameters=np.stack([clearance_N, ec50_N], axis=1),
            state=state_NS,
            statics=np.stack([second_N2, third_N2, g_N2], axis=2).sum(axis=1, dtype=np.float64),
        )

    def give(self, state: Floats, treatment: Floats, event: Floats) -> Floats:
        """Return the state with the dose in the body."""
        return np.concatenate([state[:1] + S_SHARE * treatment, state[1:]])

    def rate(self, parameters: Floats, state: Floats, treatment: Floats) -> Floats:
        """Return the derivative by hours."""
        clearance, ec50 = parameters
        supply = clearance / VOLUME_L * state[0]
        left = 1.0 - inhibited(supply, clearance * ec50)
        fast, slow = 3.0 / TRANSIT_H[0], 3.0 / TRANSIT_H[1]
        return np.concatenate(
            [
                [-supply, fast * (left - state[1])],
                fast * (state[1:3] - state[2:4]),
                [slow * (left - state[4])],
                slow * (state[4:6] - state[5:7]),
            ]
        )

    def measure(self, state: Floats, event: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Return no covariates, and the INR as measured."""
        inr = 1.0 + INR_MAX * (1.0 - (state[3] + state[6]) / 2)
        return np.zeros((0, state.shape[1])), inr * np.exp(NOISE_SD * noise - NOISE_SD**2 / 2)

    def treat(self, covariates: Floats, outcome: Floats, gamma: float, uniform: Floats, normal: Floats) -> Floats:
        """Return doses in halves of a mg: larger below the target and smaller above; some are missed."""
        dose = USUAL_MG * np.exp(0.8 * np.tanh(gamma * (TARGET - outcome)) + 0.3 * normal[:1])
        return np.where(uniform[:1] < MISSED, 0.0, np.maximum((2 * dose).round() / 2, 0.5))
