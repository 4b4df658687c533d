"""Regressions of many answers at once on histories and treatments (spec EFFECT-3).

`M` rows, `P` columns of a history, `A` of a treatment, `D` columns of a design, `Q` answers, `L` penalties.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from costar_cli.config.choices import LearnerName
from costar_cli.methods.shared.combining import FOLDS, Errors, weigh

Floats = NDArray[np.float64]
DesignName = Literal["now", "lines", "now curves", "curves"]

DESIGNS: Final[tuple[DesignName, ...]] = ("now", "lines", "now curves", "curves")
PENALTIES: Final = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)  # of standardised columns, as if by so many rows
MOST_COLUMNS: Final = 400  # of a design; of a wider one a regression would be solved for minutes
KNOTS: Final = (0.1, 0.5, 0.9)  # quantiles at which the effect of a current value may bend
MOST_CROSSED: Final = 8  # current columns whose products with one another and with treatments are columns of `curves`
NEWTON: Final = 30  # steps at most
TOLERANCE: Final = 1e-5  # of coefficients of standardised columns
# Times less than predicts best, since shrunk confounders leave part of their effect to treatments: with 100 covariates
# and 1,000 subjects the bias is .08 at best prediction, .05 at 10 and -.02 at 100 times less, of 1.38; few columns do
# not feel it.
UNDERSMOOTHED: Final = 100.0
FREED: Final = 30.0  # times the sd that columns of treatments have, which penalties then hardly touch
# Of logistic regressions: none sends perfect separation to infinity, and squared errors of rare events say little of
# larger ones, which shrink confounders (risk of death 8 % too small at 1,000 subjects).
LOGISTIC_PENALTIES: Final = (1e-2, 1.0)
EDGE: Final = 1e-6  # of probabilities, from 0 and 1
SMALL: Final = 1e-12
# Standard errors. None takes noise for structure, one misses an effect that depends on the course: RMSEs of
# g-computation in four worlds, 10 seeds (0 / .3 / 1): linear .067/.059/.054, its threshold .034/.026/.029, binary
# .037/.037/.037, threshold of a micro-randomised trial .041/.041/.116.
CLEARLY: Final = 0.3
FEWEST_TRIED: Final = 50  # rows with every answer, below which nothing is compared
MOST_TRIED: Final = 4_000  # rows on which learners are compared
NO_SPREAD: Final = 1e-9  # sds, or less, that a column of no use has
LEAST_REST: Final = 1e-3  # share of a row that others do not determine
FARTHEST: Final = 5.0  # that a coefficient moves in one step
BOOSTED: Final[dict[str, Any]] = {"max_iter": 120, "learning_rate": 0.08, "max_leaf_nodes": 12, "min_samples_leaf": 20,
                                  "max_bins": 63, "l2_regularization": 1.0}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Design:
    """Columns that are made of a history and a treatment: of the present alone, or of all that was.

    `lines` take columns as they are; `curves` bend, and have products of current columns and of treatments.
    """

    name: DesignName
    kept: NDArray[np.intp]
    crossed: NDArray[np.intp]
    knots_KC: Floats

    @classmethod
    def of(cls, name: DesignName, history_MP: Floats, present: Sequence[int]) -> "Design":
        """Return a design, whose bends are at quantiles of the first columns that are of the `present`."""
        spread_P = history_MP.std(axis=0)
        here = np.array([p for p in present if spread_P[p] > 0], dtype=np.intp)
        kept = here if name.startswith("now") else np.flatnonzero(spread_P > 0)
        crossed = here[:MOST_CROSSED] if name.endswith("curves") else here[:0]
        return cls(name, kept, crossed, np.quantile(history_MP[:, crossed], KNOTS, axis=0))

    def columns(self, history_MP: Floats, given_MA: Floats) -> Floats:
        """Return the columns `[M,D]`, without an intercept."""
        plain_MD = np.concatenate([history_MP[:, self.kept], given_MA], axis=1)
        if not self.name.endswith("curves"):
            return plain_MD
        now_MC, doses = history_MP[:, self.crossed], given_MA.T
        bends = [np.maximum(now_MC - knots_C, 0.0) for knots_C in self.knots_KC]
        count, few = now_MC.shape[1], min(len(doses), MOST_CROSSED)
        pairs = [now_MC[:, i] * now_MC[:, j] for i in range(count) for j in range(i + 1, count)]
        pairs += [doses[i] * doses[j] for i in range(few) for j in range(i, few)]
        crossed = [now_MC * dose_M[:, None] for dose_M in doses]
        return np.concatenate([plain_MD, *bends, *crossed, *(column[:, None] for column in pairs)], axis=1)

    def width(self, treatments: int) -> int:
        """Return the number of columns, of so many of treatments."""
        bare = np.zeros((1, int(self.kept.max(initial=-1)) + 1))
        return len(self.columns(bare, np.zeros((1, treatments)))[0])


@dataclass(frozen=True, eq=False)
class Linear:
    """Ridge regressions of Q answers on one design, logistic ones where answers are shares from 0 to 1.

    `value_D` and `vector_DD` are of the products of scaled columns, per row; `penalty_Q` what is added to the values.
    Logistic answers have the inverse of their second derivatives in `precision`, by their place.
    """

    design: Design
    mean_D: Floats
    sd_D: Floats
    beta_DQ: Floats
    value_D: Floats
    vector_DD: Floats
    penalty_Q: Floats
    precision: Mapping[int, Floats]
    logistic_Q: NDArray[np.bool_]
    error_MQ: Floats

    def columns(self, history_MP: Floats, given_MA: Floats) -> Floats:
        """Return the intercept and the scaled columns `[M,D]`."""
        x_MD = (self.design.columns(history_MP, given_MA) - self.mean_D) / self.sd_D
        return np.concatenate([np.ones((len(x_MD), 1)), x_MD], axis=1)

    def predict(self, history_MP: Floats, given_MA: Floats) -> Floats:
        """Return the expected answers `[M,Q]`."""
        return self._law(self.columns(history_MP, given_MA) @ self.beta_DQ)

    def _law(self, raw_MQ: Floats) -> Floats:
        if self.logistic_Q.any():
            raw_MQ[:, self.logistic_Q] = expit(raw_MQ[:, self.logistic_Q])
        return raw_MQ

    def slopes(self, history_MP: Floats, given_MA: Floats, weight_MQ: Floats) -> Floats:
        """Return the derivatives `[D,Q]` of weighted sums of predictions by the coefficients."""
        x_MD = self.columns(history_MP, given_MA)
        curve_MQ = np.ones_like(weight_MQ)
        if self.logistic_Q.any():
            share_MQ = self._law(x_MD @ self.beta_DQ)
            curve_MQ = np.where(self.logistic_Q, share_MQ * (1 - share_MQ), 1.0)
        return np.asarray(x_MD.T @ (weight_MQ * curve_MQ))

    def implied(self, history_MP: Floats, given_MA: Floats, slope_DQ: Floats) -> Floats:
        """Return the weights `[M,Q]` with which residuals of its rows move what has these slopes.

        A regression reweights its rows to those that it is asked about (Chattopadhyay & Zubizarreta 2023).
        """
        shrunk_DQ = 1.0 / (self.value_D[:, None] + self.penalty_Q)
        moved_DQ = np.concatenate([slope_DQ[:1], self.vector_DD @ (shrunk_DQ * (self.vector_DD.T @ slope_DQ[1:]))])
        for q, precision_DD in self.precision.items():
            moved_DQ[:, q] = precision_DD @ slope_DQ[:, q]
        return np.asarray(self.columns(history_MP, given_MA) @ moved_DQ / len(self.error_MQ))


def fit_linear(
    design: Design, history_MP: Floats, given_MA: Floats, answer_MQ: Floats, logistic_Q: NDArray[np.bool_]
) -> Linear:
    """Fit one design; each answer has the penalty under which rows that are left out are predicted best.

    Args:
        design: which columns.
        history_MP: what was known.
        given_MA: what was given.
        answer_MQ: what followed.
        logistic_Q: which answers lie between 0 and 1, and are expected values of a logistic law.
    """
    raw_MD = design.columns(history_MP, given_MA)
    n, count = len(raw_MD), answer_MQ.shape[1]
    mean_D, sd_D = raw_MD.mean(axis=0), raw_MD.std(axis=0)
    first = len(design.kept)
    sd_D[first : first + given_MA.shape[1]] /= FREED  # a penalty on treatments would shrink what is asked about
    sd_D = np.where(sd_D > NO_SPREAD, sd_D, np.inf)  # what never changes moves nothing
    x_MD, mean_Q = (raw_MD - mean_D) / sd_D, answer_MQ.mean(axis=0)
    y_MQ = answer_MQ - mean_Q
    value_D, vector_DD = np.linalg.eigh(x_MD.T @ x_MD / n)
    value_D = np.maximum(value_D, 0.0)
    z_MD = x_MD @ vector_DD
    target_DQ, square_MD = z_MD.T @ y_MQ / n, z_MD**2
    least_Q, penalty_Q = np.full(count, np.inf), np.zeros(count)
    error_MQ = np.zeros((n, count))
    for penalty in PENALTIES:
        shrunk_D = 1.0 / (value_D + penalty / n)
        leverage_M = (square_MD @ shrunk_D + 1.0) / n
        rest_MQ = (y_MQ - z_MD @ (shrunk_D[:, None] * target_DQ)) / np.maximum(1.0 - leverage_M, LEAST_REST)[:, None]
        loss_Q = np.mean(rest_MQ**2, axis=0)
        better_Q = loss_Q < least_Q
        least_Q, penalty_Q = np.where(better_Q, loss_Q, least_Q), np.where(better_Q, penalty, penalty_Q)
        error_MQ[:, better_Q] = rest_MQ[:, better_Q] ** 2
    penalty_Q /= UNDERSMOOTHED
    coef_DQ = target_DQ / (value_D[:, None] + penalty_Q / n)
    beta_DQ = np.concatenate([mean_Q[None], vector_DD @ coef_DQ])
    precision: dict[int, Floats] = {}
    for q in np.flatnonzero(logistic_Q).tolist():
        penalty = float(np.clip(UNDERSMOOTHED * penalty_Q[q], *LOGISTIC_PENALTIES)) / n
        beta_DQ[:, q], precision[q], error_MQ[:, q] = _fit_logistic(x_MD, answer_MQ[:, q], penalty)
    return Linear(design, mean_D, sd_D, beta_DQ, value_D, vector_DD, penalty_Q / n, precision, logistic_Q, error_MQ)


def _fit_logistic(x_MD: Floats, share_M: Floats, penalty: float) -> tuple[Floats, Floats, Floats]:
    """Return coefficients, the inverse second derivatives, and squared errors of rows as if each were left out.

    Answers may be any shares from 0 to 1 (Papke & Wooldridge 1996).
    """
    n = len(x_MD)
    x_MD = np.concatenate([np.ones((n, 1)), x_MD], axis=1)
    ridge_D = np.full(x_MD.shape[1], penalty / 4)  # the steepest logistic law has a quarter of a line's curvature
    ridge_D[0] = SMALL
    beta_D = np.zeros(x_MD.shape[1])
    beta_D[0] = logit(np.clip(share_M.mean(), EDGE, 1 - EDGE))
    for _ in range(NEWTON):
        p_M = expit(x_MD @ beta_D)
        curve_M = np.maximum(p_M * (1 - p_M), SMALL)
        hessian_DD = (x_MD * curve_M[:, None]).T @ x_MD / n + np.diag(ridge_D)
        move_D = np.linalg.solve(hessian_DD, x_MD.T @ (share_M - p_M) / n - ridge_D * beta_D)
        size = float(np.abs(move_D).max())
        beta_D = beta_D + move_D * min(1.0, FARTHEST / max(size, SMALL))
        if size < TOLERANCE:
            break
    precision_DD = np.asarray(np.linalg.inv(hessian_DD), dtype=np.float64)
    leverage_M = ((x_MD @ precision_DD) * x_MD).sum(axis=1) * curve_M / n
    rest_M = (share_M - expit(x_MD @ beta_D)) / np.maximum(1.0 - leverage_M, LEAST_REST)
    return beta_D, precision_DD, np.asarray(rest_M**2)


@dataclass(frozen=True, eq=False)
class Boosted:
    """Trees by scikit-learn, an ensemble per answer, or the mean where there is nothing to split."""

    trees: Sequence[Any]
    low_Q: Floats
    high_Q: Floats

    @classmethod
    def fit(cls, history_MP: Floats, given_MA: Floats, answer_MQ: Floats) -> Self:
        """Grow trees for each answer."""
        from sklearn.ensemble import HistGradientBoostingRegressor  # noqa: PLC0415 - it loads for a second

        x_MD = np.concatenate([history_MP, given_MA], axis=1)
        growers = [HistGradientBoostingRegressor(**BOOSTED, random_state=q) for q in range(answer_MQ.shape[1])]
        trees = [grower.fit(x_MD, answer_M) for grower, answer_M in zip(growers, answer_MQ.T, strict=True)]
        return cls(trees, answer_MQ.min(axis=0), answer_MQ.max(axis=0))

    def predict(self, history_MP: Floats, given_MA: Floats) -> Floats:
        """Return the expected answers `[M,Q]`, within those that it learnt from."""
        x_MD = np.concatenate([history_MP, given_MA], axis=1)
        return np.asarray(np.clip(np.stack([tree.predict(x_MD) for tree in self.trees], 1), self.low_Q, self.high_Q))


@dataclass(frozen=True, eq=False)
class Mixture:
    """A weighted mean of a linear or logistic regression and trees."""

    regression: Linear
    trees: Boosted
    share: float

    def predict(self, history_MP: Floats, given_MA: Floats) -> Floats:
        """Return the expected answers `[M,Q]`."""
        line_MQ, grown_MQ = (part.predict(history_MP, given_MA) for part in (self.regression, self.trees))
        return line_MQ + self.share * (grown_MQ - line_MQ)


@dataclass(frozen=True)
class Learner:
    """How regressions are made.

    Attributes:
        name: `regression` chooses one of four designs, `trees` grows trees, `super-learner` mixes both.
        present: places of the columns of histories that stand in every design.
        share: the weight of trees in a mixture.
    """

    name: Literal["regression", "trees", "super-learner"]
    present: tuple[int, ...]
    share: float = 0.0

    @property
    def weights(self) -> dict[str, float]:
        """Return the weight of each part."""
        share = float(self.name == "trees") or self.share
        return {"regression": 1 - share, "trees": share}

    @property
    def text(self) -> str:
        """Return the name, of a mixture with its weights."""
        if self.name != "super-learner":
            return self.name
        return f"{self.name} ({', '.join(f'{weight:.2f} {part}' for part, weight in self.weights.items())})"

    def fit(
        self,
        history_MP: Floats,
        given_MA: Floats,
        answer_MQ: Floats,
        logistic_Q: NDArray[np.bool_],
        designs: Sequence[DesignName] = DESIGNS,
    ) -> Linear | Boosted | Mixture:
        """Return a regression, of some designs the smallest than which no larger one is clearly better.

        A larger one lowers the error of rows that are left out, over all answers in units of their own error, by more
        than a share of its standard error.
        """
        share = self.weights["trees"]
        if share == 1:
            return Boosted.fit(history_MP, given_MA, answer_MQ)
        best: Linear | None = None
        error_M = scale_Q = np.zeros(0)
        for name in designs:
            design = Design.of(name, history_MP, self.present)
            width = design.width(given_MA.shape[1])
            if best is not None and (width > MOST_COLUMNS or 2 * width > len(answer_MQ)):
                continue
            fitted = fit_linear(design, history_MP, given_MA, answer_MQ, logistic_Q)
            if best is None:
                scale_Q = np.maximum(fitted.error_MQ.mean(axis=0), SMALL)
            rival_M = (fitted.error_MQ / scale_Q).mean(axis=1)
            gain_M = error_M - rival_M if best is not None else rival_M
            if best is None or gain_M.mean() > CLEARLY * gain_M.std() / np.sqrt(len(gain_M)):
                best, error_M = fitted, rival_M
        assert best is not None  # noqa: S101 - the first design always is
        return Mixture(best, Boosted.fit(history_MP, given_MA, answer_MQ), share) if share else best


def chosen_learner(
    name: LearnerName,
    answers: Sequence[tuple[Floats, Floats, Floats, NDArray[np.integer]]],
    present: tuple[int, ...],
    logistic_Q: NDArray[np.bool_],
) -> Learner:
    """Return the learner of a name; `auto` is trees where these predict the next step better, beyond chance.

    Args:
        name: the learner.
        answers: histories `[M,P]`, treatments `[M,A]`, what followed `[M,Q]`, and units of sampling `[M]`, by decision.
        present: places of the columns that stand in every design.
        logistic_Q: which answers are events or binary.
    """
    linear = Learner("regression", present)
    if name in ("regression", "trees"):
        return Learner(name, present)
    history_MP, given_MA, answer_MQ, unit_M = (np.concatenate(parts) for parts in zip(*answers, strict=True))
    if len(answer_MQ) < FEWEST_TRIED:
        return linear
    some = np.random.default_rng(0).permutation(len(answer_MQ))[:MOST_TRIED]
    if name == "super-learner":
        share = _share_of_trees(linear, history_MP[some], given_MA[some], answer_MQ[some], logistic_Q, unit_M[some])
        return replace(linear, name=name, share=share)
    train, test = some[len(some) // 3 :], some[: len(some) // 3]
    rows = history_MP[train], given_MA[train], answer_MQ[train]
    lines, trees = linear.fit(*rows, np.zeros(answer_MQ.shape[1], dtype=bool)), Boosted.fit(*rows)
    error_2MQ = [(answer_MQ[test] - law.predict(history_MP[test], given_MA[test])) ** 2 for law in (lines, trees)]
    scale_Q = np.maximum(error_2MQ[0].mean(axis=0), SMALL)
    gain_M = ((error_2MQ[0] - error_2MQ[1]) / scale_Q).mean(axis=1)
    return Learner("trees", present) if gain_M.mean() > gain_M.std() / np.sqrt(len(gain_M)) else linear


def _share_of_trees(
    linear: Learner, history_MP: Floats, given_MA: Floats, answer_MQ: Floats, logistic_Q: NDArray[np.bool_],
    unit_M: NDArray[np.integer],
) -> float:  # fmt: skip
    """Return the weight of trees beside a regression, by their errors in units that neither learnt from.

    The weights are those of a stack of two parts (spec STACK-3, 4): least squares, no negative ones, a sum of one; what
    has trees errs less than the regression alone by more than a standard error, since trees that have weight by chance
    (up to .12 where the regression is the law) do not extrapolate.
    """
    place_M = np.unique(unit_M, return_inverse=True)[1]
    fold_M = place_M % FOLDS
    error_2MQ = np.zeros((2, *answer_MQ.shape))
    for fold in np.unique(fold_M):
        train_M, test_M = fold_M != fold, fold_M == fold
        rows = history_MP[train_M], given_MA[train_M], answer_MQ[train_M]
        for error_MQ, law in zip(error_2MQ, (linear.fit(*rows, logistic_Q), Boosted.fit(*rows)), strict=True):
            error_MQ[test_M] = answer_MQ[test_M] - law.predict(history_MP[test_M], given_MA[test_M])
    error_2MQ /= np.sqrt(np.maximum(np.mean(error_2MQ[0] ** 2, axis=0), SMALL))
    gram_CPP = np.zeros((place_M.max() + 1, 2, 2))
    np.add.at(gram_CPP, place_M, np.einsum("pmq,rmq->mpr", error_2MQ, error_2MQ))
    count_C = (np.bincount(place_M) * answer_MQ.shape[1]).astype(np.float64)
    weights = weigh(Errors(gram_CPP[:, None, None], count_C[:, None, None]), anchors=(0,))
    return float(weights.weight_PHY[1, 0, 0])
