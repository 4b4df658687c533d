"""The body of `costar whatif --sensitivity`: how strong a hidden confounder changes which plan is better."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costar_cli.cli.session import Session

if TYPE_CHECKING:
    from costar_cli.questions import WhatIfReport
    from costar_cli.questions.sensitivity import Sensitivity


def sensitivity_plot(plot: Path) -> Path:
    """Return the file of the plot of sensitivity, beside that of the estimates."""
    return plot.with_name(f"{plot.stem}-sensitivity{plot.suffix}")


def bounds_of(reports: "Sequence[WhatIfReport]") -> "list[list[Sensitivity]]":
    """Return the bounds of every model's estimates, by report.

    Raises:
        UsageError: a model has no calibration.
    """
    from costar_cli.questions.sensitivity import sensitivity

    return [[sensitivity(answers, abstain=report.abstain) for answers in report.models] for report in reports]


def show_sensitivity(
    session: Session,
    reports: "Sequence[WhatIfReport]",
    bounds: "Sequence[Sequence[Sensitivity]]",
    plot: Path | None,
) -> list[dict[str, Any]]:
    """Print the bounds of estimates, draw those of a single subject, and return them as plain JSON data."""
    from costar_cli.questions.sensitivity import ASSUMPTIONS
    from costar_cli.report.figures.sensitivity import plot_sensitivity

    several, documents = len(reports) > 1, []
    for report, found in zip(reports, bounds, strict=True):
        for one in found:
            who = {"subject": report.history.subject, "label": report.history.name} if several else {}
            documents.append(who | one.to_json())
            _show(session, documents[-1], report)
        if plot is not None and len(report.plans) > 1:
            first = plot_sensitivity(report, found[0], sensitivity_plot(plot))
            session.out.wrote("sensitivity", first, kind="plot")
    session.out.text(*ASSUMPTIONS)
    return documents


def _show(session: Session, document: Mapping[str, Any], report: "WhatIfReport") -> None:
    """Print the bounds of differences at the last common step: a column per Gamma, then where they reach zero.

    `document` is what `Sensitivity.to_json` returned.
    """
    from costar_cli.data.schema import step_axis
    from costar_cli.questions.sensitivity import flip_words
    from costar_cli.questions.tables import decimals_of, limits_text, number_text

    decimals = {
        outcome.name: decimals_of(row["difference"] for row in document["flips"] if row["outcome"] == outcome.name)
        for outcome in report.schema.outcomes
    }
    limits = {
        (row["plan"], row["outcome"], row["step"], row["gamma"]): limits_text(
            row["lower"], row["upper"], decimals[row["outcome"]]
        )
        for row in document["differences"]
    }
    model, strong = document["model"], [gamma for gamma in document["gammas"] if gamma > 1]
    headers = ["plan", step_axis(report.schema.step), "difference", *[f"Gamma {g:g}" for g in strong], "flips at"]
    for outcome in report.schema.outcomes:
        rows = [
            [row["plan"], row["time"], "left out !", *[None] * (len(strong) + 1)]
            if row["difference"] is None
            else [row["plan"], row["time"], number_text(row["difference"], decimals[outcome.name])]
            + [limits[row["plan"], outcome.name, row["step"], gamma] for gamma in strong]
            + [flip_words(row["gamma"], row["searched_to"])]
            for row in document["flips"]
            if row["outcome"] == outcome.name
        ]
        unit = f" ({outcome.unit})" if outcome.unit else ""
        title = f"{outcome.name}{unit}: difference from `{report.reference}` under hidden confounding, by {model}"
        title += f" (subject {report.history.name})" * ("label" in document)
        if rows:
            session.out.table(headers, rows, title=title, keys=3)
    plans = (
        f"{plan}: probability in practice by step {', '.join(f'{p:.2f}' for p in likely)}"
        for plan, likely in document["probabilities"].items()
    )
    session.out.text(*plans)
