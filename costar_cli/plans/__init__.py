"""Plans of treatment that somebody asks about, read from files and from Python, and checked against a data set.

Plans and shifts of what was given are series of treatments; rules decide on the way, on the course that a model gives
them (`play`), and are estimated by `estimate_played`.
"""

from costar_cli.plans.plan import MOST_PAIRS, AnyPlan, PlanRequest, TreatmentPlan
from costar_cli.plans.read import parse_plans, read_plan_file, read_plans
from costar_cli.plans.rollout import COHORT_DRAWS, DRAWS, SEED, Played, draw_played, estimate_played, follow, play
from costar_cli.plans.rule import PlanRule, PlanShift, Rule

__all__ = [
    "COHORT_DRAWS",
    "DRAWS",
    "MOST_PAIRS",
    "SEED",
    "AnyPlan",
    "PlanRequest",
    "PlanRule",
    "PlanShift",
    "Played",
    "Rule",
    "TreatmentPlan",
    "draw_played",
    "estimate_played",
    "follow",
    "parse_plans",
    "play",
    "read_plan_file",
    "read_plans",
]
