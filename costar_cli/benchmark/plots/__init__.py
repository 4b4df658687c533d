"""Figures of a benchmark, drawn with matplotlib's Agg canvas; import this package only where a figure is wanted."""

from costar_cli.benchmark.plots.differences import plot_differences
from costar_cli.benchmark.plots.horizons import plot_horizons

__all__ = ["plot_differences", "plot_horizons"]
