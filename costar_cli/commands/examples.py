"""One or two command lines per verb, shown in its help and in the reference; a test parses each of them."""

from collections.abc import Mapping
from typing import Final

__all__ = ["EXAMPLES", "examples_of"]

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
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


def examples_of(path: str) -> tuple[str, ...]:
    """Return the examples of a verb, `ingest table`; those of a data set come from its entry in the registry."""
    if path in EXAMPLES:
        return EXAMPLES[path]
    from costar_cli.datasets.registry import all_sources

    return next((source.examples for source in all_sources() if f"{source.verb} {source.name}" == path), ())
