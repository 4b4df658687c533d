"""Temporal counterfactual outcome estimation from the command line."""

__all__ = ["__version__"]

__version__ = "0.2.0.dev0"
