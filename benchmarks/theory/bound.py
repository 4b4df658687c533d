"""The bound on the error in both domains, and what goes into it (spec THEORY-5, THEORY-9)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.theory.graph import Bracket, PairGraph, States

Floats = NDArray[np.float64]


class ErrorViews(NamedTuple):
    """Two views of one error: the probability of missing by more than the tolerance, and the mean squared error."""

    zero_one: float
    squared: float


def error_views(outcomes_NY: Floats, predicted_NY: Floats, tolerance: float) -> ErrorViews:
    """Return both views of the error of predictions."""
    distance_N = np.linalg.norm(outcomes_NY - predicted_NY, axis=1)
    return ErrorViews(float((distance_N > tolerance).mean()), float((distance_N**2).mean()))


def squared_error_bound(zero_one: float, *, tolerance: float, largest: float) -> float:
    """Return what the squared error is at most, `eps^2 + (4 B^2 - eps^2) E01`.

    `zero_one` is the probability of missing by more than the tolerance eps, which is below twice B, the `largest` norm
    of outcomes and predictions.

    Raises:
        ValueError: a tolerance that no error can exceed.
    """
    if not 0 <= tolerance < 2 * largest:
        raise ValueError("the tolerance must be below twice the largest norm")
    return tolerance**2 + (4 * largest**2 - tolerance**2) * zero_one


@dataclass(frozen=True, slots=True)
class BoundIngredients:
    """What the bound is made of.

    `alpha`: how often pairs leave their cluster; `gamma`: how hard clusters are to cut; `rho`: how often a target
    history pairs with its own source cluster; `mismatch`: how often with another one; `clusters`: R, of matched pairs.
    The constant c is not known from the theory: say which one a number rests on.
    """

    alpha: float
    gamma: Bracket
    rho: float
    mismatch: float
    clusters: int

    def holds(self, c: float) -> bool:
        """Return whether the theory speaks at all: `rho >= c * mismatch` and `rho >= c * alpha^2`."""
        return self.rho >= c * self.mismatch and self.rho >= c * self.alpha**2

    def zero_one(self, c: float) -> float:
        """Return the bound on the probability of a miss in the target, at most 1.

        `R / (alpha^2 gamma^4) * exp(-c rho gamma^2 / alpha^2)`; where gamma is only bracketed, its lower end counts.
        """
        gamma = min(self.gamma.low, 1.0)  # a cluster of one state cannot be cut at all
        if self.alpha <= 0 or gamma <= 0:
            return 1.0
        log = math.log(self.clusters) - 2 * math.log(self.alpha) - 4 * math.log(gamma)
        return math.exp(min(log - c * self.rho * gamma**2 / self.alpha**2, 0.0))

    def over_domains(self, c: float, *, share: float, source_error: float, tolerance: float, largest: float) -> float:
        """Return the bound on the squared error of both domains, `P(a) E_S + (1 - P(a)) E_T`.

        c is the constant of the exponent, `share` the probability P(a) of the labelled domain, `source_error` the
        squared error where labels are.
        """
        target = squared_error_bound(self.zero_one(c), tolerance=tolerance, largest=largest)
        return share * source_error + (1 - share) * target


def bound_ingredients(graph: PairGraph, sources: Sequence[States], targets: Sequence[States]) -> BoundIngredients:
    """Measure a graph whose clusters are `sources` and `targets`, matched in order."""
    clusters = [*sources, *targets]
    return BoundIngredients(
        alpha=graph.cross_cluster(clusters),
        gamma=graph.intra_cluster(clusters),
        rho=graph.relative_expansion(sources, targets),
        mismatch=graph.mismatch(sources, targets),
        clusters=len(sources),
    )
