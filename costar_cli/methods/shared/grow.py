"""Trees grown by scikit-learn on rows, early stopping on validation rows, and turned into arrays (spec BOOST-3)."""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from costar_cli.errors import TrainingError
from costar_cli.methods.shared.trees import MISSING, Floats, Forest

# LightGBM 4.7 erred the same on these rows (tumours .641 and .592 against .645 and .593), two to four times as fast,
# but is 10 MB more and needs the system's OpenMP. Nothing is unpickled: nodes become arrays, which must agree.
CHECKED_ROWS: Final = 256  # on which the arrays must answer as the library does
LEAST_ROWS: Final = 3  # the library bins no fewer
LARGEST: Final = np.finfo(np.float64).max  # for an infinite threshold, which separates missing values from others


class TreeSettings(Protocol):
    """What a method's settings say of its trees."""

    @property
    def trees(self) -> int:
        """Return how many there are at most."""

    @property
    def leaves(self) -> int:
        """Return how many leaves each has at most."""

    @property
    def leaf_rows(self) -> int:
        """Return how many training rows a leaf has at least."""

    @property
    def learning_rate(self) -> float:
        """Return which share of a tree is added."""

    @property
    def penalty(self) -> float:
        """Return the L2 penalty on the values of leaves."""

    @property
    def patience(self) -> int:
        """Return how many trees without improvement on validation rows are the last."""


class Rows(NamedTuple):
    """What trees learn from: columns `[M,P]`, answers `[M]`, and how much each counts `[M]`."""

    columns_MP: Floats
    answer_M: Floats
    weight_M: Floats


def grow(
    train: Rows, validation: Rows, config: TreeSettings, seed: int, *, logistic: bool = False
) -> tuple[Forest, list[float]]:
    """Return the trees with the smallest squared error on validation rows, and that error after each tree.

    Without validation rows all trees are kept. Too few rows for a split, or answers that are all the same, give no
    tree: the prediction is the mean. Where answers are 0 or 1, `logistic` trees predict the logit of their probability,
    and the error is the log loss.

    Raises:
        TrainingError: the trees do not answer as the library that grew them does.
    """
    mean = float(np.average(train.answer_M, weights=train.weight_M))
    if logistic:  # as if half an answer more had been given either way
        n = len(train.answer_M)
        mean = float(logit((mean * n + 0.5) / (n + 1)))
    if len(train.answer_M) < max(2 * config.leaf_rows, LEAST_ROWS) or np.ptp(train.answer_M) == 0:
        return Forest.of(mean, []), []
    bins = Bins.of(train.columns_MP, train.weight_M)
    boosted = _boosted(bins, train, validation, config, seed, logistic=logistic)
    losses = [-float(score) for score in boosted.validation_score_]
    kept = int(np.argmin(losses)) if losses else int(boosted.n_iter_)
    base = float(np.ravel(boosted._baseline_prediction)[0])  # the library offers its trees in no other way
    trees = [_in_preorder(step[0].nodes, bins) for step in boosted._predictors[:kept]]
    forest = Forest.of(base, trees)
    some_MP = train.columns_MP[:CHECKED_ROWS]
    codes_MU = bins.codes(some_MP)
    staged = boosted.staged_decision_function(codes_MU) if logistic else boosted.staged_predict(codes_MU)
    library_M = np.ravel(next(islice(staged, kept - 1, None))) if kept else base
    if not np.allclose(forest.predict(some_MP), library_M, rtol=1e-9, atol=1e-12):
        raise TrainingError(
            "the stored trees answer otherwise than those of scikit-learn",
            fix="install the version of constraints.txt: `pip install -c constraints.txt scikit-learn`",
        )
    return forest, losses


def spread_rows(subject_M: NDArray[np.int64], most: int, seed: int) -> NDArray[np.int64]:
    """Return rows, in order: all, or `most` at random, the same number of each subject as far as it has them."""
    if len(subject_M) <= most:
        return np.arange(len(subject_M))
    key_M = np.random.default_rng(seed).random(len(subject_M))
    order = np.lexsort((key_M, subject_M))
    _, first, count = np.unique(subject_M[order], return_index=True, return_counts=True)
    turn_M = np.empty(len(subject_M))  # whether a row is its subject's first, second, ..; ties in random order
    turn_M[order] = np.arange(len(order)) - np.repeat(first, count) + key_M[order]
    return np.sort(np.argsort(turn_M, kind="stable")[:most])


class Bins(NamedTuple):
    """Where columns are cut into bins of about the same weight: thresholds `[U,B]` in order, then `LARGEST`.

    They are those of scikit-learn 1.9, which takes fifty times as long for them where rows have weights. `used_U` are
    the columns that can be split: a third of a retail panel's 318 are the same in all rows, and cost as much as others.
    """

    edges_UB: Floats
    used_U: NDArray[np.int64]

    @classmethod
    def of(cls, columns_MP: Floats, weight_M: Floats) -> "Bins":
        """Cut columns between distinct values where there are few, otherwise at quantiles."""
        edges_PB = np.full((columns_MP.shape[1], MISSING), LARGEST)
        for row_B, column_M in zip(edges_PB, columns_MP.T, strict=True):
            edges = _edges(column_M, weight_M)
            row_B[: len(edges)] = edges
        missing_MP = np.isnan(columns_MP)
        can_split_P = (edges_PB[:, 0] < LARGEST) | (missing_MP.any(axis=0) & ~missing_MP.all(axis=0))
        can_split_P[0] |= not can_split_P.any()  # the library takes no table without a column
        return cls(edges_PB[can_split_P], np.flatnonzero(can_split_P))

    def codes(self, columns_MP: Floats) -> Floats:
        """Return how many thresholds each number of the used columns is above, `[M,U]`; NaN where it is missing."""
        used_MU = columns_MP[:, self.used_U]
        codes = [np.searchsorted(row_B, column_M) for row_B, column_M in zip(self.edges_UB, used_MU.T, strict=True)]
        return np.where(np.isnan(used_MU), np.nan, np.stack(codes, axis=1))

    def thresholds(self, feature: NDArray[np.int64], code: Floats) -> Floats:
        """Return the thresholds of used columns that stand for those of their codes, of which some are infinite."""
        return np.asarray(self.edges_UB[feature, np.minimum(code, MISSING - 1).astype(np.int64)])


def _edges(column_M: Floats, weight_M: Floats) -> Floats:
    """Return the thresholds between the bins of one column."""
    seen_M = ~np.isnan(column_M) & (weight_M > 0)
    order = np.argsort(column_M[seen_M], kind="stable")
    sorted_M, upto_M = column_M[seen_M][order], np.cumsum(weight_M[seen_M][order])
    distinct = np.unique(sorted_M)
    if len(distinct) < MISSING:
        return np.asarray((distinct[:-1] + distinct[1:]) / 2)
    wanted = np.linspace(0, 100, MISSING)[1:-1] / 100 * upto_M[-1]
    at = np.searchsorted(upto_M, wanted)
    after = np.minimum(at + 1, len(upto_M) - 1)
    between = upto_M[at] - wanted <= np.finfo(np.float64).eps  # two rows
    return np.unique(np.where(between, (sorted_M[at] + sorted_M[after]) / 2, sorted_M[at]))


def _boosted(bins: Bins, train: Rows, validation: Rows, config: TreeSettings, seed: int, *, logistic: bool) -> Any:  # noqa: ANN401 - untyped library
    from sklearn import ensemble  # noqa: PLC0415  # a second to import, needed here alone

    stops = len(validation.answer_M) > 0
    codes_MU = bins.codes(train.columns_MP)
    codes_MU[:, np.isnan(codes_MU).all(axis=0)] = 0.0  # the library takes no column without a value
    kind = ensemble.HistGradientBoostingClassifier if logistic else ensemble.HistGradientBoostingRegressor
    boosted = kind(
        learning_rate=config.learning_rate,
        max_iter=config.trees,
        max_leaf_nodes=config.leaves,
        min_samples_leaf=config.leaf_rows,
        l2_regularization=config.penalty,
        max_bins=MISSING - 1,
        early_stopping=stops,
        n_iter_no_change=config.patience,
        random_state=seed % 2**32,
    )
    checked = {
        "X_val": bins.codes(validation.columns_MP),
        "y_val": validation.answer_M,
        "sample_weight_val": validation.weight_M,
    }
    return boosted.fit(codes_MU, train.answer_M, sample_weight=train.weight_M, **(checked if stops else {}))


def _in_preorder(nodes: NDArray[Any], bins: Bins) -> Mapping[str, NDArray[Any]]:
    """Return the arrays of one tree, its nodes in preorder, children's places counted from the root."""
    order: list[int] = []
    ahead = [0]
    while ahead:
        node = ahead.pop()
        order.append(node)
        if not nodes["is_leaf"][node]:
            ahead += [int(nodes["right"][node]), int(nodes["left"][node])]
    place = np.zeros(len(nodes), dtype=np.int64)
    place[order] = np.arange(len(order))
    sorted_ = nodes[order]
    inner = sorted_["is_leaf"] == 0
    feature = np.where(inner, sorted_["feature_idx"], 0)
    return {
        "feature": np.where(inner, bins.used_U[feature], 0),
        "threshold": np.where(inner, bins.thresholds(feature, sorted_["num_threshold"]), 0.0),
        "right": np.where(inner, place[sorted_["right"] * inner], 0),
        "value": np.where(inner, 0.0, sorted_["value"]),
        "missing_left": np.where(inner, sorted_["missing_go_to_left"], 0),
    }
