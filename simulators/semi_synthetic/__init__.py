"""Outcomes and treatments simulated on ICU covariates, with known counterfactuals (spec ICU-6 to 15).

Schulam & Saria (2017) had the idea, Melnychuk, Frauen & Feuerriegel (2022) made the benchmark of it: two outcomes from
splines, Gaussian process paths and random functions of covariates, and three treatments that are given by outcomes and
covariates and lower the outcomes for hours. The released code is corrected: paths are
independent, and a patient has one world, whatever the order, the company or the test set.

A typical use: `draw_functions`, `simulate_baseline`, `draw_uniforms`, `simulate_factual`, then
`one_step_counterfactuals`, `sequence_counterfactuals`, or `answer_plan` for any other plan. A file needs only the
baseline and the factual treatments: `replay_factual` gives the rest again, bit by bit.
"""

from simulators.semi_synthetic.baseline import TREND_HOURS, Baseline, simulate_baseline, systematic_outcomes
from simulators.semi_synthetic.counterfactual import (
    SemiSyntheticCounterfactuals,
    answer_plan,
    one_step_counterfactuals,
    sequence_counterfactuals,
)
from simulators.semi_synthetic.draws import PatientSeeds, draw_uniforms
from simulators.semi_synthetic.factual import SemiSyntheticFactual, replay_factual, simulate_factual
from simulators.semi_synthetic.fourier import CovariateFunctions, FourierFunction, draw_functions
from simulators.semi_synthetic.limit import expected_outcomes
from simulators.semi_synthetic.mechanism import OUTCOMES, TREATMENTS, OutcomeMechanism, TreatmentMechanism
from simulators.semi_synthetic.trend import gaussian_paths, matern_covariance, trend_basis

__all__ = [
    "OUTCOMES",
    "TREATMENTS",
    "TREND_HOURS",
    "Baseline",
    "CovariateFunctions",
    "FourierFunction",
    "OutcomeMechanism",
    "PatientSeeds",
    "SemiSyntheticCounterfactuals",
    "SemiSyntheticFactual",
    "TreatmentMechanism",
    "answer_plan",
    "draw_functions",
    "draw_uniforms",
    "expected_outcomes",
    "gaussian_paths",
    "matern_covariance",
    "one_step_counterfactuals",
    "replay_factual",
    "sequence_counterfactuals",
    "simulate_baseline",
    "simulate_factual",
    "systematic_outcomes",
    "trend_basis",
]
