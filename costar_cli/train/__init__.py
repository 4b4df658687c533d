"""Training: any stage of any method, R members at once, resumable."""

from costar_cli.train.checkpoint import START_OVER, forget_runs
from costar_cli.train.identity import RunIdentity
from costar_cli.train.log import TrainingLog, check_log, log_file
from costar_cli.train.runtime import Runtime
from costar_cli.train.workflow import Trained, finetune, pretrain

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
