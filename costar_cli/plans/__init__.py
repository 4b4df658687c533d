"""Plans of treatment that somebody asks about, read from files and from Python, and checked against a data set.

Plans and shifts of what was given are series of treatments; rules decide on the way, on the course that a model gives
them (`play`); `resolve` answers questions about all of them alike.
"""

from costar_cli.plans.moments import Moments, Origin, parse_origin, step_of
from costar_cli.plans.plan import MOST_PAIRS, AnyPlan, PlanRequest, TreatmentPlan
from costar_cli.plans.read import parse_plans, read_plan_file, read_plans
from costar_cli.plans.resolve import COHORT_DRAWS, Resolved, estimate_played, resolve
from costar_cli.plans.rollout import DRAWS, SEED, Played, follow, play, way_of
from costar_cli.plans.rule import PlanRule, PlanShift, Rule

__all__ = [
    "COHORT_DRAWS",
    "DRAWS",
    "MOST_PAIRS",
    "SEED",
    "AnyPlan",
    "Moments",
    "Origin",
    "PlanRequest",
    "PlanRule",
    "PlanShift",
    "Played",
    "Resolved",
    "Rule",
    "TreatmentPlan",
    "estimate_played",
    "follow",
    "parse_origin",
    "parse_plans",
    "play",
    "read_plan_file",
    "read_plans",
    "resolve",
    "step_of",
    "way_of",
]
