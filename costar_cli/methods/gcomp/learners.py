"""What predicts one step of a variable: regressions and trees, chosen by cross-validation (spec GCOMP-3 and 4).

`P` columns, the intercept before them in weights `[1+P]`; `M` rows; `N` subjects; `L` penalties; `B` replicates.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from costar_cli.errors import Termination
from costar_cli.methods.gcomp.settings import GcompConfig
from costar_cli.methods.shared.grow import Rows, grow
from costar_cli.methods.shared.logistic import one_thread
from costar_cli.methods.shared.trees import Forest

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PENALTIES: Final = (1.0, 0.1, 1e-2, 1e-3, 1e-4)  # per row, on standardised columns
LEAST_SD: Final = 1e-9
BOOSTING: Final = "boosting"
REGRESSIONS: Final[Mapping[str, tuple[str, ...]]] = {  # the blocks of columns of each regression, the simplest first
    "recent": ("recent",),
    "history": ("recent", "history"),
    "recent-products": ("recent", "products"),
    "history-products": ("recent", "history", "products"),
}
OF_TREES: Final = ("recent", "history")
BASE: Final = "recent"  # the regression that trees are added to
LEAST_CURVATURE: Final = 0.01  # of a log loss


@dataclass(frozen=True)
class Equation:
    """What predicts a step of a variable: its change in units, or the logit of its probability where it is binary."""

    learner: str
    weight_P: Floats
    forest: Forest | None = None

    def predict(self, columns_MP: Floats) -> Floats:
        """Return the prediction of rows, `[M]`."""
        response_M = columns_MP @ self.weight_P[1:] + self.weight_P[0]
        return np.asarray(response_M if self.forest is None else response_M + self.forest.predict(columns_MP))


@dataclass
class Gram:
    """What ridge regressions need of columns, whatever they predict: moments, and axes of the products with each other.

    Variables that are seen in the same rows share theirs: `known` are those of earlier regressions.
    """

    known: dict[tuple[str, bytes, bytes], tuple[Floats, ...]] = field(default_factory=dict)

    def of(self, columns_MP: Floats, weight_M: Floats, which: tuple[str, bytes]) -> tuple[Floats, ...]:
        """Return weighted means and sds `[P]`, sizes `[P]` and axes `[P,P]`; `which` tells columns and rows."""
        key = *which, sha256(weight_M.tobytes()).digest()
        if key not in self.known:
            mean_P, sd_P = _moments(columns_MP, weight_M)
            scaled_MP = (columns_MP - mean_P) / sd_P
            gram_PP = scaled_MP.T @ (scaled_MP * weight_M[:, None]) / weight_M.sum()
            self.known[key] = mean_P, sd_P, *np.linalg.eigh(gram_PP)
        return self.known[key]


class Task(NamedTuple):
    """One variable's rows: columns, answers, weights and subjects, sorted by subject; folds; validation rows.

    `gram` is that of all variables with these rows.
    """

    columns_MP: Floats
    answer_M: Floats
    weight_M: Floats
    subject_M: Ints
    fold_M: Ints
    validation: Rows
    logistic: bool
    among: Mapping[str, NDArray[np.bool_]]
    gram: Gram

    def loss(self, predicted: Floats) -> Floats:
        """Return the loss of each row `[..., M]`: squared, or the log loss."""
        if self.logistic:
            return np.asarray(-log_expit(np.where(self.answer_M > 0, predicted, -predicted)))
        return np.asarray(self.weight_M * (predicted - self.answer_M) ** 2)


class Chosen(NamedTuple):
    """The equation of a variable, its predictions `[M]` of subjects held out, and the mean loss of each candidate."""

    equation: Equation
    held_out_M: Floats
    losses: Mapping[str, float]
    penalty: float


def choose(task: Task, config: GcompConfig, seed: int) -> Chosen:
    """Return the simplest equation whose loss on held-out subjects is within a standard error of the least."""
    names = [*REGRESSIONS, BOOSTING]
    if config.learner != "auto":
        names = [BOOSTING] if config.learner == BOOSTING else list(REGRESSIONS)
    held_out: dict[str, tuple[Floats, float]] = {}
    for name in REGRESSIONS:
        if name not in {*names, BASE}:
            continue
        columns_MP = task.columns_MP[:, task.among[name]]
        predicted_LM = np.zeros((len(PENALTIES), len(columns_MP)))
        for fold in np.unique(task.fold_M):
            Termination.stop_if_signalled()
            out_M = task.fold_M == fold
            answer_M, weight_M = task.answer_M[~out_M], task.weight_M[~out_M]
            which = name, (~out_M).tobytes()
            path_LP = _path(task, which, columns_MP[~out_M], answer_M, weight_M, PENALTIES)
            predicted_LM[:, out_M] = path_LP[:, 1:] @ columns_MP[out_M].T + path_LP[:, :1]
        least = int(np.argmin(task.loss(predicted_LM).mean(axis=1)))  # the largest penalty of equally good ones
        held_out[name] = predicted_LM[least], PENALTIES[least]
        del columns_MP, answer_M, weight_M  # copies as large as the data
    if BOOSTING in names:
        penalty, others = held_out[BASE][1], [held_out[name][0] for name in names if name != BOOSTING]
        if (grown_M := _grown_held_out(task, config, seed, penalty, others)) is not None:
            held_out[BOOSTING] = grown_M, penalty
    names = [name for name in names if name in held_out]
    losses = {name: task.loss(held_out[name][0]) for name in names}
    best = min(losses, key=lambda name: float(losses[name].mean()))
    name = next(name for name in losses if _as_good(losses[name] - losses[best], task.subject_M))
    predicted_M, penalty = held_out[name]
    equation = _fit(task, slice(None), name, penalty, config, seed)
    return Chosen(equation, predicted_M, {key: float(loss_M.mean()) for key, loss_M in losses.items()}, penalty)


def _fit(
    task: Task, rows: slice | NDArray[np.generic], name: str, penalty: float, config: GcompConfig, seed: int
) -> Equation:
    """Return the equation of some rows: a regression, or one with trees of what it leaves over."""
    columns_MP, answer_M, weight_M = task.columns_MP[rows], task.answer_M[rows], task.weight_M[rows]
    of_line = BASE if name == BOOSTING else name
    among_P, weight_P = task.among[of_line], np.zeros(1 + columns_MP.shape[1])
    which = of_line, b"" if isinstance(rows, slice) else rows.tobytes()
    path_1P = _path(task, which, columns_MP[:, among_P], answer_M, weight_M, (penalty,))
    weight_P[np.append(True, among_P)] = path_1P[0]
    equation = Equation(name, weight_P)
    if name != BOOSTING:
        return equation
    # Trees alone do not extrapolate to plans that few follow, and shrink effects (spec GCOMP-4).
    train = _left_over(Rows(columns_MP, answer_M, weight_M), equation, task)
    forest, _ = grow(train, _left_over(task.validation, equation, task), config, seed)
    return Equation(name, weight_P, forest)


def _left_over(rows: Rows, equation: Equation, task: Task) -> Rows:
    """Return what a regression leaves over, in columns that trees see; of logits, in one Newton step.

    Of products trees see none, as they make their own.
    """
    columns_MP, answer_M, weight_M = rows
    predicted_M = equation.predict(columns_MP)
    seen_MP = columns_MP[:, : int(task.among[BOOSTING].sum())]
    if not task.logistic:
        return Rows(seen_MP, answer_M - predicted_M, weight_M)
    probability_M = expit(predicted_M)
    curvature_M = np.maximum(probability_M * (1 - probability_M), LEAST_CURVATURE)
    return Rows(seen_MP, (answer_M - probability_M) / curvature_M, curvature_M)


def _as_good(excess_M: Floats, subject_M: Ints) -> bool:
    """Return whether losses are larger than others by no more than a standard error, over subjects, of the mean."""
    excess_N = np.bincount(subject_M, excess_M)
    present_N = np.bincount(subject_M) > 0
    excess_N = excess_N[present_N] - excess_M.mean() * np.bincount(subject_M)[present_N]
    error = np.sqrt((excess_N**2).sum()) / len(excess_M)
    return bool(excess_M.mean() <= error)


def _grown_held_out(
    task: Task, config: GcompConfig, seed: int, penalty: float, others: Sequence[Floats]
) -> Floats | None:
    """Return the predictions of held-out subjects by equations with trees that learned from the others.

    None where they err more on the first fold than the best of `others`: trees take most of the time.
    """
    predicted_M = np.zeros(len(task.answer_M))
    for fold in np.unique(task.fold_M):
        Termination.stop_if_signalled()
        out_M = task.fold_M == fold
        predicted_M[out_M] = _fit(task, ~out_M, BOOSTING, penalty, config, seed).predict(task.columns_MP[out_M])
        loss, *least = (float(task.loss(made_M)[out_M].mean()) for made_M in (predicted_M, *others))
        if fold == task.fold_M.min() and loss > min(least, default=np.inf):
            return None
    return predicted_M


def _path(
    task: Task,
    which: tuple[str, bytes],
    columns_MP: Floats,
    answer_M: Floats,
    weight_M: Floats,
    penalties: tuple[float, ...],
) -> Floats:
    """Return the weights `[L,1+P]` of ridge or logistic regressions for each penalty; intercepts are free.

    `which` tells the columns and rows from the task's others.
    """
    with one_thread("blas"):
        if task.logistic:
            mean_P, sd_P = _moments(columns_MP, weight_M)
            scaled_LP, intercept_L = _logistic_path((columns_MP - mean_P) / sd_P, answer_M, penalties)
        else:
            level = float(np.average(answer_M, weights=weight_M))
            mean_P, sd_P, size_P, axes_PP = task.gram.of(columns_MP, weight_M, which)
            scaled_MP = (columns_MP - mean_P) / sd_P
            cross_P = axes_PP.T @ (scaled_MP.T @ (weight_M * (answer_M - level)) / weight_M.sum())
            scaled_LP = np.stack([axes_PP @ (cross_P / (size_P.clip(min=0) + penalty)) for penalty in penalties])
            intercept_L = np.full(len(penalties), level)
    weight_LP = scaled_LP / sd_P
    return np.concatenate([(intercept_L - weight_LP @ mean_P)[:, None], weight_LP], axis=1)


def _moments(columns_MP: Floats, weight_M: Floats) -> tuple[Floats, Floats]:
    """Return weighted means and sds of columns, infinite ones for constants, which have no weight then."""
    mean_P = np.average(columns_MP, axis=0, weights=weight_M)
    sd_P = np.sqrt(np.average((columns_MP - mean_P) ** 2, axis=0, weights=weight_M))
    return mean_P, np.where(sd_P > LEAST_SD, sd_P, np.inf)


def _logistic_path(scaled_MP: Floats, answer_M: Floats, penalties: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Return weights `[L,P]` and intercepts `[L]`; where all answers are the same, half an answer more either way."""
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415  # a second to import, needed here alone
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    n, shape = len(answer_M), (len(penalties), scaled_MP.shape[1])
    if np.ptp(answer_M) == 0 or not shape[1]:
        share = (answer_M.sum() + 0.5) / (n + 1)
        return np.zeros(shape), np.full(len(penalties), np.log(share / (1 - share)))
    model = LogisticRegression(solver="newton-cholesky", warm_start=True, max_iter=100)
    found, intercepts = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a penalty that separates is not the one chosen
        for penalty in penalties:
            model.set_params(C=1 / (penalty * n)).fit(scaled_MP, answer_M > 0)
            found.append(model.coef_[0].copy())
            intercepts.append(float(model.intercept_[0]))
    return np.stack(found), np.array(intercepts)


def replicates(task: Task, chosen: Chosen, multiplier_BN: Floats) -> Floats:
    """Return the weights `[B,1+P]` that other samples of subjects would give, in one Newton step (spec GCOMP-6).

    A sample gives each subject a weight; all equations have the same ones, so that they move together. Trees stay.
    """
    weight_P = chosen.equation.weight_P
    learner = chosen.equation.learner
    among_P = task.among[BASE if learner == BOOSTING else learner]
    mean_P, sd_P = _moments(task.columns_MP[:, among_P], task.weight_M)
    scaled_MP = np.concatenate(
        [np.ones((len(task.answer_M), 1)), (task.columns_MP[:, among_P] - mean_P) / sd_P], axis=1
    )
    predicted_M = chosen.equation.predict(task.columns_MP)
    probability_M = expit(predicted_M)
    error_M = task.answer_M - (probability_M if task.logistic else predicted_M)
    curvature_M = task.weight_M * (probability_M * (1 - probability_M) if task.logistic else 1.0)
    with one_thread("blas"):
        hessian_PP = scaled_MP.T @ (scaled_MP * curvature_M[:, None]) / task.weight_M.sum()
        hessian_PP += np.diag(np.append(0.0, np.full(len(mean_P), chosen.penalty)))
        score_MP = scaled_MP * (task.weight_M * error_M)[:, None]
        present_N, first = np.unique(task.subject_M, return_index=True)
        score_NP = np.add.reduceat(score_MP, first, axis=0) / task.weight_M.sum()
        moved_BP = (multiplier_BN[:, present_N] - 1) @ score_NP @ np.linalg.pinv(hessian_PP, hermitian=True)
    made_BP = np.tile(weight_P, (len(multiplier_BN), 1))
    slope_BP = moved_BP[:, 1:] / sd_P
    made_BP[:, 1:][:, among_P] += slope_BP
    made_BP[:, 0] += moved_BP[:, 0] - slope_BP @ mean_P
    return made_BP
