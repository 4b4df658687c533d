"""The pictures of a data report."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from costar_cli.data.levels import in_order
from costar_cli.data.report import CourseOfOutcome, DataReport, OutcomeSummary
from costar_cli.data.schema import labelled, step_axis, steps_axis
from costar_cli.report.figures.style import (
    BLACK,
    BLUE,
    COLOURS,
    DOMAIN_COLOURS,
    GREY,
    VERMILION,
    figure,
    label_text,
    shade,
    spans_decades,
    tint,
)

if TYPE_CHECKING:
    from costar_cli.inference.overlap import ArmPropensity, Overlap

WIDTH_IN: Final = 8.2
ROW_IN: Final = 0.24
MOST_VARIABLES: Final = 30
MOST_TREATMENTS: Final = 8
MOST_LEVELS: Final = 7
MOST_OUTCOMES: Final = 6
MOST_BINS: Final = 60
LONGEST: Final = 44  # letters of a variable's name
# not those of the domains
LEVEL_COLOURS: Final = (*(colour for colour in COLOURS if colour not in DOMAIN_COLOURS.values()), BLACK, GREY)


def draw_lengths(report: DataReport) -> Figure:
    """Draw how many subjects have each number of steps, by domain."""
    with figure(WIDTH_IN, 2.3) as drawn:
        axes = drawn.subplots(1, len(report.lengths), squeeze=False)[0]
        for panel, (domain, counts) in zip(axes, report.lengths.items(), strict=True):
            filled = [length for length, count in enumerate(counts) if count]
            width = -(-(filled[-1] - filled[0] + 1) // MOST_BINS)  # of a bin, in whole lengths
            starts = range(filled[0], filled[-1] + 1, width)
            length = [start + (width - 1) / 2 for start in starts]
            subjects = [sum(counts[start : start + width]) for start in starts]
            panel.bar(length, subjects, width=0.9 * (length[1] - length[0] if len(length) > 1 else 1),
                      color=DOMAIN_COLOURS[domain])  # fmt: skip
            panel.set_title(f"{domain}: {sum(counts):,} subjects")
            panel.set_xlabel(f"observed {_named(steps_axis(report.step))}")
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
            panel.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes[0].set_ylabel("subjects")
    return drawn


def draw_missing(report: DataReport) -> Figure:
    """Draw the share of missing values of each variable that had any."""
    shown = report.missing[:MOST_VARIABLES]
    with figure(WIDTH_IN, 0.8 + ROW_IN * len(shown)) as drawn:
        axes = drawn.subplots()
        place = np.arange(len(shown))
        axes.barh(place, [missing.share for missing in shown], color=GREY, height=0.7)
        axes.set_yticks(place, [_named(missing.variable) for missing in shown])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xlim(0, max(0.05, *(1.05 * missing.share for missing in shown)))
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        axes.set_xlabel("missing values")
    return drawn


def draw_treatments(report: DataReport) -> Figure:
    """Draw how often each level of each treatment is given over time, by domain."""
    names = list(dict.fromkeys(use.treatment for use in report.treatments))[:MOST_TREATMENTS]
    domains = list(report.lengths)
    with figure(WIDTH_IN, 0.4 + 1.9 * len(names)) as drawn:
        grid = drawn.subplots(len(names), len(domains), sharex=True, sharey="row", squeeze=False)
        for row, name in zip(grid, names, strict=True):
            shares: dict[str, float] = {}
            for use in report.treatments:
                if use.treatment == name:
                    shares[use.level] = shares.get(use.level, 0.0) + use.share
            every = list(shares)  # the first is the reference, which is not shown
            frequent = sorted(every[1:], key=lambda level: -shares[level])[:MOST_LEVELS]
            levels, rarer = [every[i] for i in in_order(every) if every[i] in frequent], len(every) - 1 - len(frequent)
            highest = 0.01
            for axes, domain in zip(row, domains, strict=True):
                uses = {use.level: use for use in report.treatments if (use.treatment, use.domain) == (name, domain)}
                shown = [uses[level] for level in levels]
                for colour, use in zip(LEVEL_COLOURS, shown, strict=False):
                    share = [np.nan if value is None else value for value in use.by_step]
                    axes.plot(share, color=colour, label=_named(use.level), marker="." if len(share) < 30 else "")
                axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
                highest = max(highest, *(share or 0.0 for use in shown for share in use.by_step))
                axes.set_title(f"{_named(name)}, {domain}")
            row[0].set_ylim(0, 1.08 * highest)
            title = f"not shown: {rarer} rarer levels" if rarer else None
            row[-1].legend(
                loc="upper left",
                bbox_to_anchor=(1, 1),
                handlelength=1.2,
                title=title,
                title_fontsize=8,
                alignment="left",
            )
            row[0].set_ylabel("share of decisions")
        for axes in grid[-1]:
            axes.set_xlabel(_named(step_axis(report.step)))
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return drawn


def draw_outcomes(every: Sequence[OutcomeSummary], step: str, observed: str = "all observed steps") -> Figure:
    """Draw the distribution of each outcome or dose, and its median and quartiles over time, by domain."""
    names = list(dict.fromkeys(summary.outcome for summary in every))[:MOST_OUTCOMES]
    with figure(WIDTH_IN, 0.5 + 2.2 * len(names)) as drawn:
        grid = drawn.subplots(len(names), 2, squeeze=False)
        for (left, right), name in zip(grid, names, strict=True):
            summaries = [summary for summary in every if summary.outcome == name]
            label = _named(labelled(name, summaries[0].unit))
            for summary in summaries:
                colour, share = DOMAIN_COLOURS[summary.domain], np.array(summary.counts) / max(sum(summary.counts), 1)
                if summary.domain == "source":  # shades over each other make a colour of their own
                    left.stairs(share, summary.edges, color=tint(colour, 0.18), fill=True)
                left.stairs(share, summary.edges, color=colour, label=summary.domain, linewidth=1.3)
                _draw_quartiles(right, np.arange(len(summary.course.median)), summary.course, colour)
            if spans_decades([np.array([q for q in side if q is not None], dtype=np.float64) for summary in summaries
                              for side in (summary.course.lower, summary.course.upper)]):  # fmt: skip
                right.set_yscale("log")
            if spans_decades([np.array(summary.edges) for summary in summaries]):
                left.set_xscale("log")
            left.set_xlabel(label)
            left.set_ylabel("share of steps")
            left.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            right.set_ylabel(label)
            right.set_xlabel(_named(step_axis(step)))
            right.xaxis.set_major_locator(MaxNLocator(integer=True))
        grid[0, 0].set_title(f"{observed}; the outer bars include the tails")
        grid[0, 1].set_title("median and quartiles over time")
        grid[0, 0].legend()
    return drawn


def _draw_quartiles(
    axes: Axes,
    x: NDArray[np.integer] | Sequence[float],
    of: "CourseOfOutcome | ArmPropensity",
    colour: str,
    **line: Any,  # noqa: ANN401 - what `plot` takes
) -> None:
    """Draw a median with its quartiles, where they are known; `line` is how the median is drawn."""
    lower, median, upper = (
        np.array([np.nan if q is None else q for q in values]) for values in (of.lower, of.median, of.upper)
    )
    shade(axes, x, (lower, upper), colour, 0.15)
    axes.plot(x, median, color=colour, **line)


def draw_shifts(report: DataReport) -> Figure:
    """Draw the standardised mean difference of each variable between the domains, the largest on top."""
    shown = [shift for shift in report.shifts if shift.difference is not None][:MOST_VARIABLES]
    with figure(WIDTH_IN, 0.9 + ROW_IN * len(shown)) as drawn:
        axes = drawn.subplots()
        place = np.arange(len(shown))
        difference = [shift.difference or 0.0 for shift in shown]
        axes.axvspan(-0.25, 0.25, color="#f3f3f3", linewidth=0)
        axes.axvline(0, color=GREY, linewidth=0.8)
        axes.hlines(place, 0, difference, color=GREY, linewidth=1)
        axes.plot(difference, place, "o", color=DOMAIN_COLOURS["target"], markersize=5)
        axes.set_yticks(place, [_named(labelled(shift.variable, "")) for shift in shown])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        reach = 1.1 * max(0.3, *(abs(value) for value in difference))
        axes.set_xlim(-reach, reach)
        axes.set_xlabel("standardised mean difference, target minus source")
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
    return drawn


def figures(report: DataReport, overlap: "Overlap | None" = None) -> Iterator[tuple[str, str, Figure]]:
    """Yield each picture that has something to show, with its name and the title of its section."""
    yield "lengths", "Subjects and lengths", draw_lengths(report)
    if report.missing:
        yield "missing", "Missing values", draw_missing(report)
    if any(use.by_step for use in report.treatments):
        yield "treatments", "Treatments", draw_treatments(report)
    if overlap and overlap.propensities:
        names = {one.outcome: labelled(one.outcome, one.unit) for one in report.outcomes}
        yield "overlap", "Overlap", draw_overlap(overlap, names)
    if report.doses:
        yield "doses", "Doses", draw_outcomes(report.doses, report.step, "steps with a dose")
    if report.outcomes:
        yield "outcomes", "Outcomes", draw_outcomes(report.outcomes, report.step)
    if any(shift.difference is not None for shift in report.shifts):
        yield "shifts", "Shift from source to target", draw_shifts(report)


def _named(text: str) -> str:
    return label_text(text, LONGEST)


ARM_ROW_IN: Final = 1.9
MOST_ARMS: Final = 6
MOST_AXES: Final = 3  # outcomes and time
LONGEST_ARM: Final = 32
ARMS: Final = {True: ("given", VERMILION, "-"), False: ("not given", BLUE, "--")}


def draw_overlap(overlap: "Overlap", labels: Mapping[str, str]) -> Figure:
    """Draw the probability of each treatment in both arms, along outcomes and time, a row per treatment and domain.

    `labels` are what axes call the outcomes, with their units.
    """
    along = list(dict.fromkeys(arm.along for arm in overlap.propensities))
    along = [*along[: MOST_AXES - 1], along[-1]] if len(along) > MOST_AXES else along
    names = list(dict.fromkeys(arm.treatment for arm in overlap.propensities))[:MOST_ARMS]
    rows = [(arm.treatment, arm.domain) for arm in overlap.propensities if arm.treatment in names]
    rows = list(dict.fromkeys(rows))
    with figure(WIDTH_IN, 0.5 + ARM_ROW_IN * len(rows)) as drawn:
        grid = drawn.subplots(len(rows), len(along), sharex="col", sharey=True, squeeze=False)
        for line, (name, domain) in zip(grid, rows, strict=True):
            for axes, what in zip(line, along, strict=True):
                for arm in overlap.propensities:
                    if (arm.treatment, arm.domain, arm.along) == (name, domain, what):
                        label, colour, dashes = ARMS[arm.given]
                        _draw_quartiles(axes, arm.at, arm, colour, linestyle=dashes, marker=".", label=label)
            line[0].set_title(f"{label_text(name, LONGEST_ARM)}, {domain}")
            line[0].set_ylabel("probability")
        for axes, what in zip(grid[-1], along, strict=True):
            axes.set_xlabel(label_text(labels.get(what, what), LONGEST_ARM))
            if what in labels and spans_decades(  # where an arm has enough decisions to be drawn
                [np.array([at for at, median in zip(arm.at, arm.median, strict=True) if median is not None])
                 for arm in overlap.propensities if arm.along == what]
            ):  # fmt: skip
                axes.set_xscale("log")
        grid[0, 0].set_ylim(0, 1)
        grid[0, 0].yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        grid[0, -1].legend(loc="upper left", bbox_to_anchor=(1, 1), handlelength=1.8)
    return drawn
