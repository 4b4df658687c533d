"""Trees that a library grows on rows, stopping early on validation rows, as arrays (spec BOOST-3)."""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from costar_cli.config.choices import TreeLibrary
from costar_cli.errors import TrainingError, UsageError
from costar_cli.methods.shared.cores import thread_count
from costar_cli.methods.shared.trees import MISSING, Floats, Forest

Nodes = Mapping[str, NDArray[Any]]  # the arrays of one tree

CHECKED_ROWS: Final = 256  # on which the arrays must answer as the library does
LEAST_ROWS: Final = 3  # the library bins no fewer
NAN_IS_MISSING: Final = 2  # in LightGBM's third and fourth bit of how a node decides; the second: missing goes left
LARGEST: Final = np.finfo(np.float64).max  # for an infinite threshold, which separates missing values from others


class _Grown(NamedTuple):
    """The trees of a library that are kept, validation losses from none on, and its answers to `CHECKED_ROWS`."""

    base: float
    trees: list[Nodes]
    losses: list[float]
    answer_M: Floats


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
    train: Rows,
    validation: Rows,
    config: TreeSettings,
    seed: int,
    *,
    logistic: bool = False,
    library: TreeLibrary = "scikit-learn",
) -> tuple[Forest, list[float]]:
    """Return the trees with the smallest squared error on validation rows, and that error before and after each tree.

    Without validation rows all trees are kept. Too few rows for a split, or answers that are all the same, give no
    tree: the prediction is the mean. Where answers are 0 or 1, `logistic` trees predict the logit of their probability,
    and the error is the log loss.

    Raises:
        UsageError: the library is not installed.
        TrainingError: the trees do not answer as the library that grew them does.
    """
    mean = float(np.average(train.answer_M, weights=train.weight_M))
    if logistic:  # as if half an answer more had been given either way
        n = len(train.answer_M)
        mean = float(logit((mean * n + 0.5) / (n + 1)))
    if len(train.answer_M) < max(2 * config.leaf_rows, LEAST_ROWS) or np.ptp(train.answer_M) == 0:
        return Forest.of(mean, []), []
    # scikit-learn is the default: LightGBM errs the same, two to six times as fast (benchmarks/boosting.py), but is
    # 10 MB more, needs the system's OpenMP, and no command may answer otherwise where a package happens to be there.
    if library == "lightgbm":
        grown = _by_lightgbm(train, validation, config, seed, mean, logistic=logistic)
    else:
        grown = _by_scikit_learn(train, validation, config, seed, logistic=logistic)
    forest = Forest.of(grown.base, grown.trees)
    # Nothing is unpickled: nodes become arrays, which must agree.
    if not np.allclose(forest.predict(train.columns_MP[:CHECKED_ROWS]), grown.answer_M, rtol=1e-9, atol=1e-12):
        raise TrainingError(
            f"the stored trees answer otherwise than those of {library}",
            fix=f"install the version of constraints.txt: `pip install -c constraints.txt {library}`",
        )
    return forest, grown.losses


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
            seen_M = ~np.isnan(column_M) & (weight_M > 0)
            order = np.argsort(column_M[seen_M], kind="stable")
            sorted_M, upto_M = column_M[seen_M][order], np.cumsum(weight_M[seen_M][order])
            distinct = np.unique(sorted_M)
            if len(distinct) < MISSING:
                edges = (distinct[:-1] + distinct[1:]) / 2
            else:
                wanted = np.linspace(0, 100, MISSING)[1:-1] / 100 * upto_M[-1]
                at = np.searchsorted(upto_M, wanted)
                after = np.minimum(at + 1, len(upto_M) - 1)
                between = upto_M[at] - wanted <= np.finfo(np.float64).eps  # two rows
                edges = np.unique(np.where(between, (sorted_M[at] + sorted_M[after]) / 2, sorted_M[at]))
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


def _by_scikit_learn(train: Rows, validation: Rows, config: TreeSettings, seed: int, *, logistic: bool) -> _Grown:
    from sklearn import ensemble  # noqa: PLC0415  # a second to import, needed here alone

    stops, bins = len(validation.answer_M) > 0, Bins.of(train.columns_MP, train.weight_M)
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
    boosted.fit(codes_MU, train.answer_M, sample_weight=train.weight_M, **(checked if stops else {}))
    losses = [-float(score) for score in boosted.validation_score_]
    kept = int(np.argmin(losses)) if losses else int(boosted.n_iter_)
    base = float(np.ravel(boosted._baseline_prediction)[0])  # the library offers its trees in no other way
    trees = [_nodes_of_scikit_learn(step[0].nodes, bins) for step in boosted._predictors[:kept]]
    some_MU = bins.codes(train.columns_MP[:CHECKED_ROWS])
    staged = boosted.staged_decision_function(some_MU) if logistic else boosted.staged_predict(some_MU)
    answer_M = np.ravel(next(islice(staged, kept - 1, None))) if kept else np.full(len(some_MU), base)
    return _Grown(base, trees, losses, answer_M)


def _nodes_of_scikit_learn(nodes: NDArray[Any], bins: Bins) -> Nodes:
    inner = nodes["is_leaf"] == 0
    feature = np.where(inner, nodes["feature_idx"], 0)
    return _in_preorder(
        nodes["left"] * inner,
        nodes["right"] * inner,
        feature=bins.used_U[feature],
        threshold=bins.thresholds(feature, nodes["num_threshold"]),
        value=nodes["value"],
        missing_left=nodes["missing_go_to_left"],
    )


def _by_lightgbm(
    train: Rows, validation: Rows, config: TreeSettings, seed: int, base: float, *, logistic: bool
) -> _Grown:
    try:
        import lightgbm  # noqa: PLC0415  # an extra
    except (ImportError, OSError) as error:  # no such package, or no OpenMP on this system
        problem, fix = f"LightGBM cannot be imported: {error}", "`pip install 'costar[lightgbm]'`"
        raise UsageError(problem, where="boosting.library", fix=fix) from error

    def table(rows: Rows, like: Any = None) -> Any:  # noqa: ANN401 - untyped library
        start_M = np.full(len(rows.answer_M), base)
        return lightgbm.Dataset(rows.columns_MP, rows.answer_M, like, rows.weight_M, init_score=start_M)

    settings = {
        "objective": "binary" if logistic else "l2",
        "num_leaves": config.leaves,
        "min_data_in_leaf": config.leaf_rows,
        "learning_rate": config.learning_rate,
        "lambda_l2": config.penalty,
        "max_bin": MISSING,
        "seed": seed % 2**31,
        "num_threads": thread_count(),
        # By default it times both layouts of histograms and takes the faster, whose sums differ in the last digits.
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    learned, series = table(train), dict[str, dict[str, list[float]]]()
    checked = [table(validation, learned)] if len(validation.answer_M) else []
    stop: list[Any] = [lightgbm.early_stopping(config.patience, verbose=False), lightgbm.record_evaluation(series)]
    booster = lightgbm.train(settings, learned, config.trees, checked, callbacks=stop if checked else [])
    losses = [loss for of_metric in series.values() for values in of_metric.values() for loss in values]
    if losses:  # of no tree, too, which is the mean
        y_M = validation.answer_M
        loss_M = np.logaddexp(0, base) - y_M * base if logistic else (y_M - base) ** 2
        losses = [float(np.average(loss_M, weights=validation.weight_M)), *losses]
    kept = int(np.argmin(losses)) if losses else booster.num_trees()
    # Its text has the numbers of a tree in a row of each kind, with all their digits.
    blocks = booster.model_to_string(num_iteration=kept).split("\nTree=")[1 : kept + 1]
    some_MP = train.columns_MP[:CHECKED_ROWS]
    answer_M = np.full(len(some_MP), base)
    if kept:
        answer_M += booster.predict(some_MP, num_iteration=kept, raw_score=True)
    return _Grown(base, [_nodes_of_lightgbm(block) for block in blocks], losses, answer_M)


def _nodes_of_lightgbm(block: str) -> Nodes:
    """Return the arrays of one tree; its text counts leaves apart, in children as -1, -2, .., and puts them last."""
    rows = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)

    n_inner = int(rows["num_leaves"]) - 1

    def numbers(name: str) -> NDArray[np.int64]:
        return np.array([*rows.get(name, "").split(), *[0] * (n_inner + 1)], dtype=np.int64)

    left, right, decision = numbers("left_child"), numbers("right_child"), numbers("decision_type")
    asked, values = (np.array(rows.get(name, "").split(), dtype=np.float64) for name in ("threshold", "leaf_value"))
    threshold = np.append(asked.clip(-LARGEST, LARGEST), np.zeros(n_inner + 1))
    goes_left = np.where(decision >> 2 == NAN_IS_MISSING, decision >> 1 & 1, threshold >= 0)  # else NaN counts as 0
    return _in_preorder(
        np.where(left < 0, n_inner + ~left, left),
        np.where(right < 0, n_inner + ~right, right),
        feature=numbers("split_feature"),
        threshold=threshold,
        value=np.append(np.zeros(n_inner), values),
        missing_left=goes_left,
    )


def _in_preorder(left: NDArray[Any], right: NDArray[Any], **arrays: NDArray[Any]) -> Nodes:
    """Return the arrays of one tree, its nodes in preorder, children's places counted from the root; leaves have none.

    Leaves ask nothing and other nodes have no value: those numbers are 0.
    """
    children, order, ahead = list(zip(left.tolist(), right.tolist(), strict=True)), list[int](), [0]
    while ahead:
        node = ahead.pop()
        order.append(node)
        on_left, on_right = children[node]
        if on_right:
            ahead += [on_right, on_left]
    place = np.zeros(len(right), dtype=np.int64)
    place[order] = np.arange(len(order))
    inner = right[order] > 0
    sorted_ = {name: np.where(inner == (name != "value"), values[order], 0) for name, values in arrays.items()}
    return {**sorted_, "right": np.where(inner, place[right[order]], 0)}
