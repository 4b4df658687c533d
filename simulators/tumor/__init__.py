"""Tumour growth under chemotherapy and radiotherapy: a PK-PD simulator with known counterfactuals.

Geng, Paganetti & Grassberger (2017) modelled lung tumours; Lim, Alaa & van der Schaar (2018) and Bica et al. (2020)
made the benchmark of it. Behaviour is the corrected one of docs/spec/tumor.md: one policy for training
and test, a factual loop to the last day, and counterfactuals that are clipped and absorbed as the factual ones are.

A typical use: `sample_patients`, `draw_noise`, `simulate_factual`, then `one_step_counterfactuals`,
`sequence_counterfactuals`, or `answer_plan` for any other plan.
"""

from simulators.tumor.counterfactual import (
    PlanKind,
    TumorCounterfactuals,
    answer_plan,
    one_step_counterfactuals,
    sequence_counterfactuals,
)
from simulators.tumor.dynamics import (
    CARRYING_CAPACITY_CM3,
    MAX_VOLUME_CM3,
    TumorNoise,
    draw_noise,
    drug_concentration,
)
from simulators.tumor.factual import TumorFactual, known_growth, simulate_factual, treatment_probability
from simulators.tumor.limit import expected_volumes, volume_quantiles
from simulators.tumor.patients import STAGES, Stage, TumorPatients, diameter_cm, sample_patients, volume_cm3
from simulators.tumor.visits import (
    TumorVisits,
    answer_visits,
    days_needed,
    draw_visits,
    seen_days,
    visit_counterfactuals,
)

__all__ = [
    "CARRYING_CAPACITY_CM3",
    "MAX_VOLUME_CM3",
    "STAGES",
    "PlanKind",
    "Stage",
    "TumorCounterfactuals",
    "TumorFactual",
    "TumorNoise",
    "TumorPatients",
    "TumorVisits",
    "answer_plan",
    "answer_visits",
    "days_needed",
    "diameter_cm",
    "draw_noise",
    "draw_visits",
    "drug_concentration",
    "expected_volumes",
    "known_growth",
    "one_step_counterfactuals",
    "sample_patients",
    "seen_days",
    "sequence_counterfactuals",
    "simulate_factual",
    "treatment_probability",
    "visit_counterfactuals",
    "volume_cm3",
    "volume_quantiles",
]
