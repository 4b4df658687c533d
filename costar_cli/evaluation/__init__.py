"""Scoring: one metric, the paper's set-ups, bootstrap intervals, and the published tables beside ours."""

from costar_cli.config.choices import SetupName
from costar_cli.evaluation.bootstrap import Interval, PairedDifference, bootstrap_interval, paired_difference
from costar_cli.evaluation.metrics import PerStep, SquaredErrors
from costar_cli.evaluation.report import EvaluationReport, read_evaluation, write_evaluation
from costar_cli.evaluation.rows import ReportRow
from costar_cli.evaluation.run import run_evaluation
from costar_cli.evaluation.setups import SETUPS, Candidate, named_candidates

__all__ = [
    "SETUPS",
    "Candidate",
    "EvaluationReport",
    "Interval",
    "PairedDifference",
    "PerStep",
    "ReportRow",
    "SetupName",
    "SquaredErrors",
    "bootstrap_interval",
    "named_candidates",
    "paired_difference",
    "read_evaluation",
    "run_evaluation",
    "write_evaluation",
]
