"""Methods: what estimates counterfactual outcomes. A folder for each family; `registry` knows them all."""

from costar_cli.methods.entry import Method
from costar_cli.methods.registry import METHODS
from costar_cli.methods.stored import load_model

__all__ = ["METHODS", "Method", "load_model"]
