"""Plans of treatment that somebody asks about, read from files and from Python, and checked against a data set."""

from costar_cli.plans.plan import PlanRequest, TreatmentPlan, parse_plans, read_plans

__all__ = ["PlanRequest", "TreatmentPlan", "parse_plans", "read_plans"]
