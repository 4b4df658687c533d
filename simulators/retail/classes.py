"""Price classes: how prices become 22 treatments, and which price change each stands for (spec RETAIL-6 to 8)."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.retail.world import RetailWorld

__all__ = ["PRICE_EDGES", "PriceClasses", "class_change"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Edges of 20 quantile bins of non-zero relative price changes: the released constants (spec RETAIL-7)
PRICE_EDGES: Final = (
    -0.9987908101571947,
    -0.15853658536585366,
    -0.10986547085201788,
    -0.08279668813247458,
    -0.05813953488372085,
    -0.0327868852459016,
    -0.008375209380234476,
    0.003367003367003295,
    0.02192982456140363,
    0.036649214659685896,
    0.04899135446685877,
    0.06036217303822934,
    0.07194244604316553,
    0.08718395815170009,
    0.10112359550561795,
    0.11654135338345865,
    0.13761467889908247,
    0.16617210682492584,
    0.19395465994962216,
    0.25188916876574297,
    9.0,
)


@dataclass(frozen=True, slots=True)
class PriceClasses:
    """Classes of the price's change against the first week of a year-sequence.

    Class 0 is no change, class k = 1..E-1 the right-closed bin k of the E `edges` (the first edge belongs to class 1);
    changes beyond the edges count as class 0. `change [E+1]` is the relative change that a class stands for: 0 for
    class 0, and NaN for the last class, which the one-hot code has but no change ever takes.
    """

    edges: Floats
    change: Floats

    @classmethod
    def of(cls, observed: NDArray[np.float64], edges: ArrayLike = PRICE_EDGES) -> Self:
        """Let each class stand for the median of the observed changes in its bin.

        The median is robust against price mistakes in the outer, very wide bins. An empty bin gets its midpoint on the
        scale of ln price; an outer one at most a neighbour's width beyond its inner edge.

        Args:
            observed: relative changes of any shape, such as `RetailWorld.relative_change`; zeros and NaN do not count.
            edges: at least four increasing numbers of -1 or more.

        Raises:
            ValueError: edges that do not increase, are too few, or are below -1.
        """
        edge_E = np.asarray(edges, dtype=np.float64)
        if edge_E.ndim != 1 or len(edge_E) < 4 or edge_E[0] <= -1.0 or (np.diff(edge_E) <= 0.0).any():
            raise ValueError("edges must be four or more increasing numbers above -1")
        log_E = np.log1p(edge_E)
        middle, width = (log_E[1:] + log_E[:-1]) / 2.0, np.diff(log_E)
        middle[0] = max(middle[0], log_E[1] - width[1])
        middle[-1] = min(middle[-1], log_E[-2] + width[-2])
        classes = cls(edge_E, np.concatenate([[0.0], np.expm1(middle), [np.nan]]))
        changed = observed[np.isfinite(observed) & (observed != 0.0)]
        of_change = classes.classify(changed)
        for k in np.unique(of_change[of_change > 0]).tolist():
            classes.change[k] = np.median(changed[of_change == k])
        return classes

    def __len__(self) -> int:
        return int(self.change.shape[0])

    def classify(self, relative_change: ArrayLike) -> Ints:
        """Return the class of each relative change; NaN is class 0."""
        change = np.asarray(relative_change, dtype=np.float64)
        bin_ = np.where(change == self.edges[0], 1, np.searchsorted(self.edges, change, side="left"))
        return np.where((change == 0.0) | (bin_ == len(self.edges)), 0, bin_)


def class_change(
    world: RetailWorld, classes: PriceClasses, item_store: ArrayLike, week: ArrayLike, price_class: ArrayLike
) -> Floats:
    """Return the relative price change that a class means in a week of an item-store; arguments broadcast.

    It is what the class stands for, except for the class that the week really had: that one means the price which was
    really asked, so that a factual plan leads to factual sales.

    Raises:
        ValueError: a class that no price change takes.
    """
    item_store_, week_, class_ = np.broadcast_arrays(item_store, week, price_class)
    if class_.size and (class_.min() < 0 or class_.max() > len(classes) - 2):
        raise ValueError(f"price classes are 0 to {len(classes) - 2}")
    item, store = world.item_and_store(item_store_, week_)
    reference = world.reference_price(item, store, week_)
    asked = (world.price[item, store, week_] - reference) / reference
    return np.asarray(np.where(classes.classify(asked) == class_, asked, classes.change[class_]))
