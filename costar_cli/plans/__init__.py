"""Plans of treatment that somebody asks about, read from files and from Python, and checked against a data set."""

from costar_cli.plans.plan import MOST_PAIRS, PlanRequest, TreatmentPlan
from costar_cli.plans.read import parse_plans, read_plan_file, read_plans

__all__ = ["MOST_PAIRS", "PlanRequest", "TreatmentPlan", "parse_plans", "read_plan_file", "read_plans"]
