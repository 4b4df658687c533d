"""Scoring: one metric, the paper's set-ups, bootstrap intervals, and the published tables beside ours."""

from costar_cli.evaluate.bootstrap import Interval, PairedDifference, bootstrap_interval, paired_difference
from costar_cli.evaluate.metrics import PerStep, SquaredErrors
from costar_cli.evaluate.report import EvaluationReport
from costar_cli.evaluate.rows import ReportRow
from costar_cli.evaluate.run import run_evaluation
from costar_cli.evaluate.setups import SETUPS, Candidate, SetupName, named_candidates
from costar_cli.evaluate.store import read_evaluation, write_evaluation

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
