"""Regression trees as plain arrays, and answers from them without the library that grew them (spec BOOST-4 and 5).

`K` trees, `M` rows, `P` columns, `B` codes of a column: how many of its thresholds a value exceeds, or that it is
missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Masks = NDArray[np.uint32]

MOST_LEAVES: Final = 32  # one bit each
MISSING: Final = 255  # the code of a missing value
EVERY: Final = np.uint32(2**MOST_LEAVES - 1)
# A power of two times this has its logarithm's own 5 bits in front (de Bruijn).
SEQUENCE: Final = np.uint32(0x077CB531)
LOWEST_BIT: Final = np.argsort((np.uint64(SEQUENCE) << np.arange(32, dtype=np.uint64)) % 2**32 >> np.uint64(27))
NODE_ARRAYS: Final = ("feature", "threshold", "right", "value", "missing_left")
ARRAYS: Final = {  # type and number of axes, that of members among them
    "base": (np.float64, 3),
    "trees": (np.int64, 3),
    "first": (np.int64, 2),
    "feature": (np.int32, 2),
    "threshold": (np.float64, 2),
    "right": (np.int32, 2),
    "value": (np.float64, 2),
    "missing_left": (np.uint8, 2),
}


class Reached(NamedTuple):
    """Per tree and distinct row, the leaves that its columns leave possible, `[K,M]`."""

    mask_KM: Masks


class _Split(NamedTuple):
    """What one column says about the leaves of a tree: those that are possible under each of its codes."""

    column: int
    leaves_B: Masks


@dataclass(frozen=True)
class Forest:
    """The trees of one outcome and step: `base` plus the values of the leaves that a row ends in.

    Nodes stand in preorder: the left child follows its parent, and the right one is at `right`, counted from the root
    of its tree; a leaf has 0 there. A row goes left where its column is at most the threshold, or missing and
    `missing_left`. `first` is the node with which each tree begins, and the number of nodes.

    Raises:
        ValueError: the arrays are no such trees.
    """

    base: float
    feature: NDArray[np.int32]
    threshold: Floats
    right: NDArray[np.int32]
    value: Floats
    missing_left: NDArray[np.uint8]
    first: Ints

    def __post_init__(self) -> None:
        n = len(self.feature)
        arrays = [getattr(self, f.name) for f in fields(self) if f.name not in ("base", "first")]
        size = np.diff(self.first)
        whole = self.first[0] == 0 and self.first[-1] == n and (size > 0).all()
        if not whole or any(array.shape != (n,) for array in arrays):
            raise ValueError("trees and their nodes disagree in number")
        start = np.repeat(self.first[:-1], size)
        inner = self.right > 0
        if (self.right[inner] != _after_left(inner, start)[inner]).any() or (self.right < 0).any():
            raise ValueError("a node of a tree leads nowhere")
        if (self.feature < 0).any() or (self.missing_left > 1).any():
            raise ValueError("a tree asks about no column, or answers otherwise than yes or no")
        if not (np.isfinite(self.value).all() and np.isfinite(self.threshold).all() and np.isfinite(self.base)):
            raise ValueError("a tree has values that are no numbers")
        leaves = np.add.reduceat(~inner, self.first[:-1]) if len(size) else size
        if (2 * leaves - 1 != size).any() or (leaves > MOST_LEAVES).any():
            raise ValueError(f"a tree has other than 1 to {MOST_LEAVES} leaves")

    @classmethod
    def of(cls, base: float, trees: Sequence[Mapping[str, NDArray[np.generic]]]) -> Self:
        """Join trees, each with the arrays of its nodes."""
        first = np.cumsum([0, *(len(tree["feature"]) for tree in trees)], dtype=np.int64)
        kinds = {"feature": np.int32, "threshold": np.float64, "right": np.int32, "value": np.float64}
        kinds["missing_left"] = np.uint8
        joined = {
            name: np.concatenate([np.zeros(0, kind), *(tree[name] for tree in trees)]).astype(kind)
            for name, kind in kinds.items()
        }
        return cls(base, first=first, **joined)

    @property
    def n_trees(self) -> int:
        """Return K."""
        return len(self.first) - 1

    @property
    def inner(self) -> NDArray[np.bool_]:
        """Return which nodes split rows."""
        return self.right > 0

    @cached_property
    def thresholds(self) -> dict[int, Floats]:
        """Return the thresholds of each column that a tree asks about, in order.

        Raises:
            ValueError: there are more than codes can count.
        """
        found = {
            int(column): np.unique(self.threshold[self.inner & (self.feature == column)])
            for column in np.unique(self.feature[self.inner])
        }
        if any(len(values) >= MISSING for values in found.values()):
            raise ValueError(f"a column is split at more than {MISSING - 1} thresholds")
        return found

    @cached_property
    def splits(self) -> list[list[_Split]]:
        """Return for each tree what each of its columns says, by code."""
        return [list(self._splits_of(k)) for k in range(self.n_trees)]

    def _splits_of(self, k: int) -> Iterator[_Split]:
        """Yield a tree's columns: a node that sends a row right takes all leaves on its left away."""
        nodes = slice(self.first[k], self.first[k + 1])
        right, feature = self.right[nodes], self.feature[nodes]
        before = np.concatenate([[0], np.cumsum(right == 0)])  # leaves before each node
        codes = np.arange(MISSING)
        for column in np.unique(feature[right > 0]):
            leaves_B = np.full(MISSING + 1, EVERY, dtype=np.uint32)
            for i in np.flatnonzero((right > 0) & (feature == column)):
                on_left = np.uint32((1 << int(before[right[i]])) - (1 << int(before[i])))
                place = np.searchsorted(self.thresholds[int(column)], self.threshold[nodes][i])
                leaves_B[:MISSING][codes > place] &= ~on_left
                if not self.missing_left[nodes][i]:
                    leaves_B[MISSING] &= ~on_left
            yield _Split(int(column), leaves_B)

    @cached_property
    def leaf_values(self) -> list[Floats]:
        """Return the values of each tree's leaves, from left to right."""
        return [self.value[a:b][self.right[a:b] == 0] for a, b in zip(self.first[:-1], self.first[1:], strict=True)]

    def reach(self, columns_MP: Floats, start: int = 0) -> Reached:
        """Return the leaves that some columns leave possible: those of the trees from `start` on."""
        mask_KM = np.full((self.n_trees, len(columns_MP)), EVERY, dtype=np.uint32)
        codes = {}
        for column, thresholds in self.thresholds.items():
            if 0 <= column - start < columns_MP.shape[1]:
                values_M = columns_MP[:, column - start]
                code_M = np.searchsorted(thresholds, values_M, side="left")
                codes[column] = np.where(np.isnan(values_M), MISSING, code_M)
        for k, splits in enumerate(self.splits):
            for column, leaves_B in splits:
                if column in codes:
                    mask_KM[k] &= leaves_B.take(codes[column])
        return Reached(mask_KM)

    def sums(self, parts: Sequence[tuple[Reached, NDArray[np.intp]]]) -> Floats:
        """Return the prediction of rows `[M]` whose columns come in parts, each with the row of it that they have."""
        total_M = np.full(len(parts[0][1]), self.base)
        for k, values in enumerate(self.leaf_values):
            mask_M = parts[0][0].mask_KM[k].take(parts[0][1])
            for reached, row_M in parts[1:]:
                mask_M &= reached.mask_KM[k].take(row_M)
            total_M += values.take(_lowest_bit(mask_M))
        return total_M

    def predict(self, columns_MP: Floats) -> Floats:
        """Return the prediction of rows, `[M]`."""
        total_M = np.full(len(columns_MP), self.base)
        for mask_M, values in zip(self.reach(columns_MP).mask_KM, self.leaf_values, strict=True):
            total_M += values.take(_lowest_bit(mask_M))
        return total_M


def _after_left(inner: NDArray[np.bool_], start: Ints) -> Ints:
    """Return where the right child of each inner node is in preorder, counted from its tree's `start`; else -1.

    Let a node's height be the inner nodes before it less the leaves. The left child stands one higher than its parent,
    none of its subtree stands lower, and the next node that stands as high as the parent is the right child.
    """
    height = np.concatenate([[0], np.where(inner, 1, -1).cumsum()])[:-1]
    order = np.lexsort((height, start))  # stable: nodes of one tree and height stay in order
    here, following = order[:-1], order[1:]
    same = (start[here] == start[following]) & (height[here] == height[following])
    found = np.full(len(inner), -1, dtype=np.int64)
    found[here[same]] = (following - start[here])[same]
    return found


def _lowest_bit(mask_M: Masks) -> Ints:
    """Return the number of the lowest bit that is set: the leftmost leaf that is possible is where a row ends."""
    lowest_M = mask_M & (~mask_M + np.uint32(1))
    return np.asarray(LOWEST_BIT.take((lowest_M * SEQUENCE) >> np.uint32(27)))


def forest_params(forests: Sequence[Sequence[Forest]]) -> dict[str, NDArray[Any]]:
    """Return the parameters `[1,...]` of the forests of every step and outcome, `[H][Y]`, behind one another.

    `base [1,H,Y]`; `trees [1,H,Y]`, how many each has; `first`, the node with which each tree begins, and the number of
    nodes; and the arrays of all nodes.
    """
    flat = [forest for row in forests for forest in row]
    offset = np.cumsum([0, *(forest.first[-1] for forest in flat)])
    first = np.concatenate([*(f.first[:-1] + start for f, start in zip(flat, offset[:-1], strict=True)), offset[-1:]])
    arrays: dict[str, NDArray[Any]] = {
        "base": np.array([[forest.base for forest in row] for row in forests]),
        "trees": np.array([[forest.n_trees for forest in row] for row in forests]),
        "first": first,
        **{name: np.concatenate([getattr(forest, name) for forest in flat]) for name in NODE_ARRAYS},
    }
    return {name: values[None] for name, values in arrays.items()}


def forests_of(params: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> list[list[Forest]]:
    """Return the forests of so many steps and outcomes, of the parameters that `forest_params` made.

    Raises:
        ValueError: they are no such arrays.
    """
    for name, (kind, n_axes) in ARRAYS.items():
        value = params[name]
        if value.dtype != kind or value.ndim != n_axes or len(value) != 1:
            raise ValueError(f"{name} is no array of one member, {n_axes} axes and type {kind}")
    arrays = {name: params[name][0] for name in ARRAYS}
    count_HY, first = arrays["trees"], arrays["first"]
    last_F = count_HY.cumsum()
    shapes = {count_HY.shape, arrays["base"].shape}
    if shapes != {shape} or not count_HY.size or not ((count_HY >= 0) & (count_HY < len(first))).all():
        raise ValueError("the number of trees is not that of the steps and outcomes")
    if last_F[-1] != len(first) - 1 or first[0] != 0 or (np.diff(first) < 1).any():
        raise ValueError("trees and their nodes disagree in number")
    forests = []
    for count, stop, base in zip(count_HY.ravel(), last_F, arrays["base"].ravel(), strict=True):
        own = first[stop - count : stop + 1]
        nodes = slice(int(own[0]), int(own[-1]))
        forests.append(Forest(float(base), first=own - own[0], **{name: arrays[name][nodes] for name in NODE_ARRAYS}))
    return [forests[h * shape[1] : (h + 1) * shape[1]] for h in range(shape[0])]
