"""The natural course: mean outcomes as predicted under the treatments given, over those observed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from costar_cli.data.schema import step_axis, steps_axis
from costar_cli.evaluation import EvaluationReport
from costar_cli.evaluation.natural import Axis, NaturalCourse
from costar_cli.report.figures.rmse import Style, model_styles
from costar_cli.report.figures.style import BLACK, GREY, caption, figure, label_lines, label_text, save

SHADE: Final = 0.12
MOST_MODELS: Final = 12
MOST_MARKS: Final = 12  # of a line
TOO_FEW: Final = "fewer than 10 answers at every step"  # see `FEWEST_ANSWERS` of `costar_cli.evaluation.natural`


def plot_natural(report: EvaluationReport, path: Path) -> Path:
    """Draw the natural course of each set-up and outcome: by step since the origin, and by step of the series.

    Raises:
        StorageError: the file cannot be written.
    """
    setups = dict.fromkeys((course.setup, course.test) for course in report.natural)
    outcomes = dict.fromkeys((step.outcome, step.unit) for course in report.natural for step in course.steps)
    rows = [(setup, test, *outcome) for setup, test in setups for outcome in outcomes]
    labels = list(dict.fromkeys(course.label for course in report.natural))[:MOST_MODELS]
    styles = model_styles(report.rows)
    with figure(11.0, 1.0 + 2.9 * len(rows)) as drawn:
        for (setup, test, outcome, unit), axes in zip(rows, drawn.subplots(len(rows), 2, squeeze=False), strict=True):
            mine = [course for course in report.natural if course.setup == setup and course.label in labels]
            for axis, ax in zip(("origin", "series"), axes, strict=True):
                _draw(ax, mine, axis, outcome, styles)  # type: ignore[arg-type]
            axes[0].set_title(f"{setup}, {test}")
            shown = f" ({label_text(unit, 20)})" if unit else ""
            axes[0].set_ylabel(f"mean {label_text(outcome, 30)}{shown}")
            axes[0].set_xlabel(f"{steps_axis(report.step)} since the origin")
            axes[1].set_xlabel(step_axis(report.step))
        handles = [Line2D([], [], color=BLACK, marker="o", label="observed")]
        handles += [Line2D([], [], label=label_lines(name, 26), **styles[name]) for name in labels]
        drawn.legend(handles=handles, loc="outside right center")
        bands = any(step.observed_lower is not None for course in report.natural for step in course.steps)
        about = f"; band: {100 * report.level:g} % interval of what was observed, over subjects" if bands else ""
        caption(drawn, f"Mean predictions under the treatments that were given{about}")
        return save(drawn, path)


def _draw(ax: Axes, courses: Sequence[NaturalCourse], axis: Axis, outcome: str, styles: Mapping[str, Style]) -> None:
    for course in courses:
        steps = [step for step in course.steps if (step.axis, step.outcome) == (axis, outcome)]
        x = np.array([step.step for step in steps])
        if course is courses[0]:
            low, high = (
                np.array([getattr(step, f"observed_{side}") for step in steps], dtype=np.float64)
                for side in ("lower", "upper")
            )
            ax.fill_between(x, low, high, color=BLACK, alpha=SHADE, lw=0)
            ax.plot(x, [step.observed for step in steps], color=BLACK, marker="o", ms=3.5, lw=1.2, zorder=3)
        marks = {"lw": 1.4, "ms": 3.5, "markevery": max(1, len(x) // MOST_MARKS)}
        ax.plot(x, [step.predicted for step in steps], **{**styles[course.label], **marks})
    if not any(len(line.get_xdata()) for line in ax.lines):  # type: ignore[arg-type]
        ax.set(xticks=[], yticks=[])
        ax.text(0.5, 0.5, TOO_FEW, transform=ax.transAxes, ha="center", va="center", color=GREY)
