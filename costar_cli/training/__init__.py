"""Training: any stage of any method, R members at once, resumable."""

from costar_cli.training.identity import RunIdentity
from costar_cli.training.log import TrainingLog, check_log, log_file
from costar_cli.training.run_files import START_OVER, forget_runs
from costar_cli.training.runtime import Runtime
from costar_cli.training.workflow import Trained, finetune, pretrain

__all__ = [
    "START_OVER",
    "RunIdentity",
    "Runtime",
    "Trained",
    "TrainingLog",
    "check_log",
    "finetune",
    "forget_runs",
    "log_file",
    "pretrain",
]
