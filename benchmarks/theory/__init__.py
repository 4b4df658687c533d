"""What the theory of the paper speaks of, on data small enough to compute it: losses, heads, graphs, and the bound."""

from benchmarks.theory.bound import BoundIngredients, bound_ingredients, error_views, squared_error_bound
from benchmarks.theory.graph import (
    PairGraph,
    graph_of_augmentation,
    graph_of_pairs,
    jitter_transitions,
    population_spectral_loss,
    spectral_minimiser,
)
from benchmarks.theory.pfa import PfaHead, binned_values, clustered_values

__all__ = [
    "BoundIngredients",
    "PairGraph",
    "PfaHead",
    "binned_values",
    "bound_ingredients",
    "clustered_values",
    "error_views",
    "graph_of_augmentation",
    "graph_of_pairs",
    "jitter_transitions",
    "population_spectral_loss",
    "spectral_minimiser",
    "squared_error_bound",
]
