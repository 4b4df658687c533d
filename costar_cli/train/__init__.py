"""Training: any stage of any method, R members at once, resumable."""

from costar_cli.train.runtime import Runtime
from costar_cli.train.workflow import Trained, finetune, pretrain

__all__ = ["Runtime", "Trained", "finetune", "pretrain"]
