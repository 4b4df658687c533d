"""Published differential equations of disease and drug, each a cohort with known counterfactuals (spec ODE-1).

A typical use: `simulate_course(HIV(), n, steps, rng, gamma=1)`, then `HIV().follow` for the outcomes of any plan.
"""

from simulators.mechanistic.glucose import Glucose
from simulators.mechanistic.hiv import HIV
from simulators.mechanistic.mechanism import Course, Mechanism, Patients, simulate_course
from simulators.mechanistic.warfarin import Warfarin

__all__ = ["HIV", "Course", "Glucose", "Mechanism", "Patients", "Warfarin", "simulate_course"]
