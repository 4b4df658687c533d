"""Benchmarks: which cells they consist of, the paper's tables from their scores, paired tests, exports and figures."""

from costar_cli.cli.benchmarking.cells import Cell, plan_cells
from costar_cli.cli.benchmarking.contenders import ABLATIONS, REFERENCE, Contender, choose_methods, choose_setups
from costar_cli.cli.benchmarking.ledger import Ledger, Meter
from costar_cli.cli.benchmarking.report import BenchmarkReport, CellCost, Failure, measure_model
from costar_cli.cli.benchmarking.statistics import Comparison, holm
from costar_cli.cli.benchmarking.tables import DataSetFacts, ResultRow, ResultTable, Score, build_tables

__all__ = [
    "ABLATIONS",
    "REFERENCE",
    "BenchmarkReport",
    "Cell",
    "CellCost",
    "Comparison",
    "Contender",
    "DataSetFacts",
    "Failure",
    "Ledger",
    "Meter",
    "ResultRow",
    "ResultTable",
    "Score",
    "build_tables",
    "choose_methods",
    "choose_setups",
    "holm",
    "measure_model",
    "plan_cells",
]
