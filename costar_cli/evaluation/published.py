"""The published tables (spec SCORE-13)."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

from costar_cli.data.registry import protocol_of
from costar_cli.evaluation.metrics import Truth
from costar_cli.methods.registry import METHODS

Table = Literal["zero_shot", "few_shot", "supervised", "ablation"]
TABLES: tuple[Table, ...] = ("zero_shot", "few_shot", "supervised", "ablation")
TABLE_OF_SETUP: Mapping[str, Table] = {
    "zero-shot": "zero_shot",
    "few-shot": "few_shot",
    "supervised": "supervised",
}

STEPS = range(1, 7)

LATER: Final = ("drop_confounder", "price")  # settings that make other data, and are kept only where they do
TOLERANCE: Final = 0.05  # of how many subjects were kept: extractions of MIMIC-III differ a little


def is_published_data(dataset: str, config: Mapping[str, Any]) -> bool:
    """Return whether a data set is one that the published tables are about.

    Tumours: simulated with the published confounding, cohort sizes, length and horizon. ICU: outcomes simulated on a
    real MIMIC-Extract file with the published age groups, hours and shares, as many patients as published (within 5 %),
    and the functions left as drawn. M5: Kaggle's own files, without limits on items.

    Args:
        dataset: its name.
        config: the settings and facts that its file keeps; what an old file lacks counts as different.
    """
    protocol = protocol_of(dataset)
    if (
        protocol is None
        or any(config.get(name) for name in LATER)
        or any(name not in config or config[name] != value for name, value in protocol.settings.items())
    ):
        return False
    kept = config.get("kept", {})
    return all(abs(kept.get(domain, 0) - n) <= TOLERANCE * n for domain, n in protocol.subjects.items())


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A printed row; None where the table prints a bound (`>20`) or nothing.

    `average` is as printed, whatever steps it rests on (see `average_over`).
    """

    table: Table
    dataset: str
    row: str
    mean: tuple[float | None, ...]
    sd: tuple[float | None, ...]
    average: float | None
    average_sd: float | None

    def average_over(self, first: int, last: int) -> float | None:
        """Return the mean of the printed means over tau = first..last, None if one of them is not a number."""
        values = [value for value in self.mean[first - 1 : last] if value is not None]
        return sum(values) / len(values) if len(values) == last - first + 1 else None


@cache
def read_published(table: Table) -> tuple[PublishedRow, ...]:
    """Return the rows of a published table, in print order."""
    text = (files("costar_cli.evaluation") / "published" / f"{table}.csv").read_text(encoding="utf-8")
    return tuple(
        PublishedRow(
            table=table,
            dataset=line["dataset"],
            row=line["method"] if "method" in line else f"{line['component']}|{line['choice']}",
            mean=tuple(_number(line[f"tau{tau}_mean"]) for tau in STEPS),
            sd=tuple(_number(line[f"tau{tau}_std"]) for tau in STEPS),
            average=_number(line["avg"]),
            average_sd=_number(line["avg_std"]),
        )
        for line in csv.DictReader(text.splitlines())
    )


def published_row(dataset: str, setup: str, method: str) -> PublishedRow | None:
    """Return the printed row of a method, or None where the paper has none."""
    table = TABLE_OF_SETUP.get(setup)
    rows = read_published(table) if table else ()
    return next((row for row in rows if (row.dataset, row.row) == (dataset, METHODS.label(method))), None)


def _number(text: str) -> float | None:
    """Return the number, or None for an empty cell or a bound such as `>20`."""
    return None if not text or text.startswith(">") else float(text)


def paper_truth(dataset: str) -> Truth:
    """Return what the paper's answers are: observed, or simulated."""
    protocol = protocol_of(dataset)
    return protocol.truth if protocol else "counterfactual"
