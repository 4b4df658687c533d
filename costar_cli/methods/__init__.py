"""Methods: what estimates counterfactual outcomes."""

from costar_cli.methods.base import FittedModel
from costar_cli.methods.registry import METHODS, load_model

__all__ = ["METHODS", "FittedModel", "load_model"]
