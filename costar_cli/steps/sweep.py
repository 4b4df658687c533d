"""The dose-response curve of `costar whatif --sweep`: a table, and a figure."""

from pathlib import Path
from typing import TYPE_CHECKING

from costar_cli.ui.output import Output

if TYPE_CHECKING:
    from costar_cli.panel import Dataset
    from costar_cli.plans.sweep import Sweep
    from costar_cli.whatif import WhatIfReport

__all__ = ["draw_sweep", "show_sweep"]


def show_sweep(out: Output, report: "WhatIfReport", sweep: "Sweep") -> None:
    """Print the answers under each dose, a row per dose and a column per step; with `--truth` that below each."""
    from costar_cli.panel.schema import labelled
    from costar_cli.whatif.tables import answer_table, is_probability

    out.text(f"subject {report.history.name} ({report.history.part}); {sweep.dose.range} were given")
    for model in report.models:
        for outcome in report.schema.outcomes:
            (_, *heads), by_step = answer_table(report, model, outcome.name)
            times, *answers = zip(*by_step, strict=True)
            doses = [head.removeprefix(f"{sweep.dose.name}=") for head in heads]
            table = [[dose, *answer] for dose, answer in zip(doses, answers, strict=True)]
            unit = "%" if is_probability(report, outcome.name) else outcome.unit
            title = f"{labelled(outcome.name, unit)}, by {model.heading}, by {report.schema.step}"
            out.table([labelled(sweep.dose.name, sweep.dose.unit), *map(str, times)], table, title=title, keys=1)
    for note in report.notes:
        out.note(note)


def draw_sweep(dataset: "Dataset", report: "WhatIfReport", sweep: "Sweep", path: Path) -> None:
    """Draw the dose-response curve beside all doses of the data set, and save it."""
    import numpy as np

    from costar_cli.figures.sweep import plot_sweep

    encoding = dataset.schema.treatments
    place = encoding.all_names.index(sweep.dose.name)
    given = [encoding.decode(panel.treatments[panel.decided])[:, place] for panel in dataset.panels.values()]
    plot_sweep(report, sweep, np.concatenate(given), path)
