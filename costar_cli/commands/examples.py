"""One or two command lines per verb, shown in its help and in the reference; a test parses each of them."""

from collections.abc import Mapping
from typing import Final

__all__ = ["EXAMPLES"]

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "simulate tumor": (
        "costar simulate tumor --gamma 10",
        "costar simulate tumor --preset quick --workspace demo",
    ),
    "simulate linear": ("costar simulate linear --gamma 4 --preset quick",),
    "simulate m5": ("costar simulate m5 --scale 0.1",),
    "simulate mimic": (
        "costar simulate mimic --stays 2000",
        "costar simulate mimic --mimic-extract all_hourly_data.h5",
    ),
    "ingest m5": ("costar ingest m5 m5-forecasting-accuracy",),
    "ingest mimic": ("costar ingest mimic all_hourly_data.h5 --patients 5000",),
    "ingest table": (
        "costar ingest table visits.csv --init",
        "costar ingest table visits.csv --schema schema.toml --statics patients.csv",
    ),
    "pretrain": ("costar pretrain --members 5", "costar pretrain --preset quick --workspace demo"),
    "finetune": (
        "costar finetune",
        "costar finetune --method crn --domain target",
    ),
    "evaluate": ("costar evaluate", "costar evaluate --setup few-shot --csv scores.csv"),
    "whatif": (
        "costar whatif --subject 12 --plan plan.json",
        "costar whatif --subject 12 --plan plan.json --truth --plot whatif.png",
    ),
    "benchmark": (
        "costar benchmark tumor --methods all --members 5",
        "costar benchmark tumor --preset quick --methods costar,crn --list",
    ),
    "inspect": (
        "costar inspect costar-workspace/model.h5",
        "costar inspect costar-workspace/data.h5 --report data.html",
    ),
    "verify": ("costar verify costar-workspace/model.h5",),
    "doctor": ("costar doctor", "costar doctor --workspace demo --json"),
}
