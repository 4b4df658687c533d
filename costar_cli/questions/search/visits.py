"""Plans of visits at any time that a search compares: their outcomes must be of the same times (spec SEARCH-9)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from costar_cli.data import TreatmentEncoding
from costar_cli.data.schema import steps_axis
from costar_cli.data.visits import elapsed_dose
from costar_cli.plans import TreatmentPlan
from costar_cli.plans.untrusted import Problems
from costar_cli.questions.search.objective import Objective


def seen_like(plan: TreatmentPlan, other: TreatmentPlan, encoding: TreatmentEncoding) -> TreatmentPlan:
    """Return a plan with the visits of another one, where visits are at any time and both have as many."""
    dose = elapsed_dose(encoding)
    if dose is None or len(plan) != len(other):
        return plan
    values, place = plan.values.copy(), encoding.all_names.index(dose.name)
    values[:, place] = other.values[:, place]
    return replace(plan, values=values)


def check_times(
    plans: Sequence[TreatmentPlan], objective: Objective, encoding: TreatmentEncoding, problems: Problems
) -> None:
    """Add a problem where what the objective reads of plans of the same length is seen at different times."""
    dose = elapsed_dose(encoding)
    if dose is None or len({len(plan) for plan in plans}) != 1:
        return
    place = encoding.all_names.index(dose.name)
    time_PH = np.cumsum([plan.values[:, place] for plan in plans], axis=1)
    for step in objective.read:
        time_P = time_PH[:, step]
        other = int(np.abs(time_P - time_P[0]).argmax())
        if not np.isclose(time_P[other], time_P[0], rtol=1e-6):
            seen = " and ".join(f"{time_P[p]:.6g} {steps_axis(dose.unit)} ({plans[p].name})" for p in (0, other))
            problem = f"step {step + 1} of plans is seen after {seen}, and outcomes of different times do not compare"
            problems.add(problem, fix="give all plans, the reference too, the same time until that step")
            return
