"""Benchmarks: which cells they consist of, the paper's tables from their scores, paired tests, exports and figures."""

from costar_cli.benchmark.cells import Cell, plan_cells
from costar_cli.benchmark.contenders import ABLATIONS, REFERENCE, Contender, choose_methods, choose_setups
from costar_cli.benchmark.ledger import Ledger, Meter
from costar_cli.benchmark.report import BenchmarkReport, CellCost, Failure, measure_model
from costar_cli.benchmark.statistics import Comparison, holm
from costar_cli.benchmark.tables import DataSetFacts, ResultRow, ResultTable, Score, build_tables

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
