"""What several models answer to the same question, side by side."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from costar_cli.ui.output import Output

if TYPE_CHECKING:
    from costar_cli.whatif import WhatIfReport

__all__ = ["decimals_of", "estimate_text", "number_text", "show_comparison"]

Rows = Sequence[Mapping[str, object]]


def show_comparison(out: Output, report: "WhatIfReport") -> None:
    """Print a column per model: estimates of every plan and step, then differences from the reference plan.

    Where the truth is known it stands beside, and each model's root mean squared error below.
    """
    for outcome in report.schema.outcomes:
        unit = f" ({outcome.unit})" if outcome.unit else ""
        _show(out, report, outcome.name, report.to_rows(), f"{outcome.name}{unit}, by model")
        if len(report.plans) > 1:
            title = f"{outcome.name}{unit}: difference from `{report.reference}`, by model"
            _show(out, report, outcome.name, report.difference_rows(), title)


def _show(out: Output, report: "WhatIfReport", outcome: str, rows: Rows, title: str) -> None:
    mine = [row for row in rows if row["outcome"] == outcome]
    models = [model.label for model in report.models]
    decimals = decimals_of(row["estimate"] for row in mine)
    lines: dict[tuple[object, object], dict[object, Mapping[str, object]]] = {}
    for row in mine:
        lines.setdefault((row["plan"], row["time"]), {})[row["model"]] = row
    with_truth = report.truth is not None
    table = [
        [plan, time, *(estimate_text(by_model[model], decimals) for model in models)]
        + [number_text(by_model[models[0]]["truth"], decimals)] * with_truth
        for (plan, time), by_model in lines.items()
    ]
    if with_truth:
        errors = [_rmse([row for row in mine if row["model"] == model]) for model in models]
        table.append(["RMSE", None, *(number_text(error, decimals) for error in errors), None])
    headings = [model.heading for model in report.models]
    out.table(["plan", report.schema.step, *headings, *["truth"] * with_truth], table, title=title)


def _rmse(rows: Rows) -> float | None:
    errors = [error for row in rows if isinstance(error := row["error"], float)]
    return math.sqrt(sum(error**2 for error in errors) / len(errors)) if errors else None


def decimals_of(values: Iterable[object]) -> int:
    """Return how many decimals show the largest value with four digits."""
    largest = max((abs(value) for value in values if isinstance(value, float)), default=0.0)
    return min(9, max(0, 3 - math.floor(math.log10(largest)))) if largest > 0 else 3


def estimate_text(row: Mapping[str, object], decimals: int) -> str | None:
    """Return an estimate with its interval, where it has one."""
    estimate, lower, upper = (number_text(row[name], decimals) for name in ("estimate", "lower", "upper"))
    return estimate if lower is None or upper is None else f"{estimate} ({lower} to {upper})"


def number_text(value: object, decimals: int) -> str | None:
    """Return a number with so many decimals, None for anything else."""
    return f"{value:.{decimals}f}" if isinstance(value, float) else None
