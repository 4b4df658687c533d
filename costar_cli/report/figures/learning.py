"""Learning curves: each member's training and validation loss by epoch, and the line of what guessing costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from costar_cli.data.record import ModelRecord, StageRecord
from costar_cli.errors import DataError
from costar_cli.report.figures.style import BLACK, BLUE, ORANGE, figure, label_lines, legend_below, save

_PANELS_PER_LINE = 4
_TITLE_LETTERS = 40
_CHANCE = "random guessing"


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """The history of one training stage.

    Shapes: `train_loss` and `validation_loss` hold one series per member, of any length; `best_epoch` counts from 0.
    `references` are losses to compare with, by name, such as that of guessing among N positions.
    """

    title: str
    train_loss: Sequence[Sequence[float | None]]
    validation_loss: Sequence[Sequence[float | None]]
    best_epoch: Sequence[int | None] = ()
    references: Mapping[str, float] = field(default_factory=dict)
    loss: str = "Loss"

    @classmethod
    def of_last_stage(cls, title: str, record: ModelRecord, *, loss: str = "Loss") -> Self:
        """Return the history of an encoder, or of the last stage of a model."""
        return cls._of(title, record.history or {}, record, loss)

    @classmethod
    def of_stages(cls, title: str, record: ModelRecord, *, loss: str = "Loss") -> list[Self]:
        """Return the history of every stage of a model's training; one in closed form has none."""
        stages = record.stages
        if stages is None:
            stages = (StageRecord(history=record.history or {}),)
        shown = [stage for stage in stages if any(stage.history["train_loss"])]
        names = [f"{title}: {stage.name}" if len(shown) > 1 else title for stage in shown]
        return [cls._of(name, stage.history, record, loss) for name, stage in zip(names, shown, strict=True)]

    @classmethod
    def _of(cls, title: str, history: Mapping[str, Any], record: ModelRecord, loss: str) -> Self:
        log_n = history.get("log_n_reference", record.log_n_reference)
        named = log_n if isinstance(log_n, Mapping) else {_CHANCE: log_n}
        return cls(
            title=title,
            train_loss=history["train_loss"],
            validation_loss=history["validation_loss"],
            best_epoch=history.get("best_epoch", ()),
            # Files call it `log N`, which it is a multiple of
            references={
                name.replace("log N", _CHANCE): float(np.mean(value))
                for name, value in named.items()
                if value is not None
            },
            loss=loss,
        )


def plot_learning(curves: Sequence[LearningCurve], path: Path) -> Path:
    """Draw learning curves and save the figure."""
    return save(draw_learning(curves), path)


def draw_learning(curves: Sequence[LearningCurve]) -> Figure:
    """Draw one panel per training stage, four to a line.

    Raises:
        DataError: nothing was trained step by step.
    """
    if not curves:
        raise DataError("the models are fitted in closed form, without epochs")
    columns = min(len(curves), _PANELS_PER_LINE)
    lines = -(-len(curves) // columns)
    with figure(max(4.2, 0.4 + 3.4 * columns), 0.4 + 3.1 * lines) as drawn:
        axes = drawn.subplots(lines, columns, squeeze=False, gridspec_kw={"wspace": 0.08}).ravel()
        for ax, curve in zip(axes, curves, strict=False):
            _draw(ax, curve)
        for ax in axes[len(curves) :]:
            ax.set_visible(False)
        handles = [
            Line2D([], [], color=BLUE, lw=1.3, label="training"),
            Line2D([], [], color=ORANGE, lw=1.3, label="validation"),
        ]
        if any(epoch is not None for curve in curves for epoch in curve.best_epoch):
            handles.append(Line2D([], [], color=ORANGE, marker="o", mec="white", ls="", label="best epoch, kept"))
        legend_below(drawn, handles)
    return drawn


def _draw(ax: Axes, curve: LearningCurve) -> None:
    for losses, colour in ((curve.train_loss, BLUE), (curve.validation_loss, ORANGE)):
        for series in losses:
            epochs = np.arange(1, len(series) + 1)
            mark = "." if len(series) == 1 else ""  # a line of one point shows nothing
            ax.plot(epochs, _array(series), color=colour, lw=1.1, alpha=0.75, marker=mark)
    for series, best in zip(curve.validation_loss, curve.best_epoch, strict=False):
        if best is not None and 0 <= best < len(series):
            ax.plot(best + 1, _array(series)[best], "o", color=ORANGE, mec="white", ms=5.5, zorder=4)
    for name, value in curve.references.items():
        ax.axhline(value, color=BLACK, lw=0.9, ls=(0, (4, 2)))
        ax.annotate(
            name, (1, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8, color=BLACK,
            xytext=(0, 1.5), textcoords="offset points",
        )  # fmt: skip
    longest = max((len(series) for series in (*curve.train_loss, *curve.validation_loss)), default=1)
    ax.set_xlim(0.5, max(longest, 1) + 0.5)
    ax.margins(y=0.12)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    members = len(curve.train_loss)
    title = label_lines(curve.title, _TITLE_LETTERS)
    ax.set_title(f"{title}\n{members} member{'s' if members > 1 else ''}")
    ax.set_xlabel("Epoch")
    ax.set_ylabel(curve.loss)
    values = np.concatenate([_array(series) for series in (*curve.train_loss, *curve.validation_loss)])
    values = values[np.isfinite(values)]
    if len(values) and values.min() > 0 and values.max() / values.min() > 10:
        ax.set_yscale("log")


def _array(series: Sequence[float | None]) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in series], dtype=np.float64)
