"""Temporal counterfactual outcome estimation, from the command line and from Python.

`import costar_cli as costar` is instant: what a name stands for is imported when it is first used.
"""

from typing import TYPE_CHECKING

from costar_cli.config import VERSION, importer

if TYPE_CHECKING:
    from costar_cli.api.data import ingest, read_dataset, read_new_subjects, read_table, simulate
    from costar_cli.api.effects import estimate_effects
    from costar_cli.api.estimates import estimate_outcomes
    from costar_cli.api.events import read_events
    from costar_cli.api.model import Encoder, Model, load_model
    from costar_cli.api.pages import write_report
    from costar_cli.api.scores import evaluate_models, judge_gates, score_search
    from costar_cli.api.search import search_plans
    from costar_cli.api.training import fit, pretrain
    from costar_cli.cli.benchmarking.call import benchmark_methods
    from costar_cli.data import Dataset
    from costar_cli.errors import CostarError, CostarWarning

__all__ = [
    "CostarError",
    "CostarWarning",
    "Dataset",
    "Encoder",
    "Model",
    "__version__",
    "benchmark_methods",
    "estimate_effects",
    "estimate_outcomes",
    "evaluate_models",
    "fit",
    "ingest",
    "judge_gates",
    "load_model",
    "pretrain",
    "read_dataset",
    "read_events",
    "read_new_subjects",
    "read_table",
    "score_search",
    "search_plans",
    "simulate",
    "write_report",
]

__version__ = VERSION

_HOMES = {  # the module of each name
    "CostarError": "errors",
    "CostarWarning": "errors",
    "Dataset": "data",
    "Encoder": "api.model",
    "Model": "api.model",
    "benchmark_methods": "cli.benchmarking.call",
    "estimate_effects": "api.effects",
    "estimate_outcomes": "api.estimates",
    "evaluate_models": "api.scores",
    "fit": "api.training",
    "ingest": "api.data",
    "judge_gates": "api.scores",
    "load_model": "api.model",
    "pretrain": "api.training",
    "read_dataset": "api.data",
    "read_events": "api.events",
    "read_new_subjects": "api.data",
    "read_table": "api.data",
    "score_search": "api.scores",
    "search_plans": "api.search",
    "simulate": "api.data",
    "write_report": "api.pages",
}


if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others
    __getattr__ = importer(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
