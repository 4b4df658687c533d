"""Plans of treatment that somebody asks about, read from files and from Python, and checked against a data set.

Plans and shifts of what was given are series of treatments; rules decide on the way, on the course that a model gives
them (`costar_cli.inference.resolve`).
"""

from costar_cli.plans.plan import (
    MOST_PAIRS,
    AnyPlan,
    IndexTimes,
    Origin,
    PlanRequest,
    TreatmentPlan,
    parse_origin,
    step_of,
)
from costar_cli.plans.read import parse_plans, read_plan_file, read_plans
from costar_cli.plans.rule import Course, Options, PlanOdds, PlanRule, PlanShift, Rule

__all__ = [
    "MOST_PAIRS",
    "AnyPlan",
    "Course",
    "IndexTimes",
    "Options",
    "Origin",
    "PlanOdds",
    "PlanRequest",
    "PlanRule",
    "PlanShift",
    "Rule",
    "TreatmentPlan",
    "parse_origin",
    "parse_plans",
    "read_plan_file",
    "read_plans",
    "step_of",
]
