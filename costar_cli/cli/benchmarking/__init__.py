"""Benchmarks: which jobs they consist of, the paper's tables from their scores, paired tests, exports and figures."""

from costar_cli.cli.benchmarking.cost_log import CostLog
from costar_cli.cli.benchmarking.jobs import Job, plan_jobs
from costar_cli.cli.benchmarking.methods import ABLATIONS, BenchmarkMethod, choose_methods, choose_setups
from costar_cli.cli.benchmarking.report import BenchmarkReport, Failure, JobCost, measure_model
from costar_cli.cli.benchmarking.tables import (
    Comparison,
    DataSetFacts,
    ResultRow,
    ResultTable,
    Score,
    build_tables,
    holm,
)
from costar_cli.methods.registry import REFERENCE

__all__ = [
    "ABLATIONS",
    "REFERENCE",
    "BenchmarkMethod",
    "BenchmarkReport",
    "Comparison",
    "CostLog",
    "DataSetFacts",
    "Failure",
    "Job",
    "JobCost",
    "ResultRow",
    "ResultTable",
    "Score",
    "build_tables",
    "choose_methods",
    "choose_setups",
    "holm",
    "measure_model",
    "plan_jobs",
]
