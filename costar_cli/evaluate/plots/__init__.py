"""Figures, drawn with matplotlib's Agg canvas; import this package only where a figure is wanted."""

from costar_cli.evaluate.plots.embedding import plot_representations
from costar_cli.evaluate.plots.learning import LearningCurve, plot_learning
from costar_cli.evaluate.plots.rmse import plot_rmse
from costar_cli.evaluate.plots.trajectories import plot_trajectories

__all__ = ["LearningCurve", "plot_learning", "plot_representations", "plot_rmse", "plot_trajectories"]
