"""The fit of step-by-step g-computation: an equation of each variable, with its residuals (spec GCOMP-3 to 6)."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from costar_cli.data import Part
from costar_cli.data.panel import Panel, join_panels
from costar_cli.errors import Termination
from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.gcomp.course import BLOCKS, Course, Design, Floats, Scales, along
from costar_cli.methods.gcomp.learners import BOOSTING, OF_TREES, REGRESSIONS, Chosen, Task, choose, replicates
from costar_cli.methods.gcomp.model import GcompModel, count_quantiles
from costar_cli.methods.gcomp.settings import GcompConfig
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.grow import Rows, spread_rows
from costar_cli.methods.shared.trained import ReadsModels, model_to_start_from
from costar_cli.methods.shared.trees import forest_params

POWER: Final = {"local": 1.0}  # of the unit, by which a row counts; 0 for other kinds
REPLICATES: Final = 100  # samples of subjects that draws of parameters come from
RESIDUALS: Final = 4_096  # rows whose residuals are kept
HALF: Final = 0.5  # between the values of a binary variable
LEAST_DISPERSION, MOST_DISPERSION = 1e-3, 1e3


class GcompMethod(ReadsModels):
    """Step-by-step g-computation; few-shot refits it to both domains' subjects."""

    model = GcompModel

    def fit(self, task: FitTask) -> Fit:
        """Choose and fit the equation of every outcome and covariate.

        Raises:
            MismatchError: what to start from is of another method.
        """
        yield from ()
        start, config = model_to_start_from(task, GcompModel, "gcomp"), task.settings_of(GcompConfig)
        source = task.panels[Part("source", "train")]
        scales = start.scales if start else Scales.learned(source, task.schema, task.scaler)
        train = source if task.domain == "source" else join_panels([source, task.panels[task.train]])
        design, seed = Design.of(task.schema, scales, config.lags), task.config.seed
        sides = [_Steps(panel, design, task, config) for panel in (train, task.panels[task.validation])]
        fold_N = np.random.default_rng([seed, 1]).permutation(train.n_subjects) % config.folds
        multiplier_BN = np.random.default_rng([seed, 2]).exponential(size=(REPLICATES, train.n_subjects))
        among = {name: design.among(blocks) for name, blocks in REGRESSIONS.items()} | {
            BOOSTING: design.among(OF_TREES)
        }
        chosen, residual_ME, replicate = list[Chosen](), np.full(sides[0].course.now_ME.shape, np.nan), []
        dispersion = list[float]()
        for e in range(len(scales.kinds)):
            rows, validation = (side.rows(e) for side in sides)
            kept_M = sides[0].seen_ME[:, e]
            subject_M = sides[0].subject_M[kept_M]
            logistic = scales.kinds[e] == "binary"
            one = Task(*rows, subject_M, fold_N[subject_M], validation, logistic, among)
            chosen.append(choose(one, config, seed))
            Termination.stop_if_signalled()
            replicate.append(replicates(one, chosen[-1], multiplier_BN))
            residual_ME[kept_M, e], of_counts = sides[0].residuals(e, kept_M, chosen[-1].held_out_M, seed)
            dispersion.append(of_counts)
        equations = [one.equation for one in chosen]
        arrays = {
            "linear.weight": np.stack([equation.weight_P for equation in equations]),
            "linear.replicates": np.stack(replicate, axis=1),
            "residuals": _whole(residual_ME, sides[0].subject_M, scales.quantile_E, seed),
            "dispersion": np.array(dispersion),
        }
        params = {name: np.ascontiguousarray(values)[None] for name, values in arrays.items()}
        grown = [equation.forest for equation in equations if equation.forest is not None]
        meta: dict[str, Any] = {
            "variables": scales.to_meta(),
            "lags": config.lags,
            "learners": [equation.learner for equation in equations],
            "losses": [dict(one.losses) for one in chosen],
        }
        trees = forest_params([grown]) if grown else {}
        return Fitted(params | {f"trees.{name}": values for name, values in trees.items()}, meta)


GCOMP = GcompMethod()


class _Steps:
    """The steps of some subjects to learn from, or to stop on: M of them, with what was observed after each."""

    def __init__(self, panel: Panel, design: Design, task: FitTask, config: GcompConfig) -> None:
        self.design, self.scales = design, design.scales
        dose_NTL = panel.treatments.astype(np.float64) @ dose_table(task.schema.treatments)
        from_NT1 = (np.arange(panel.n_steps) >= (0 if panel.since is None else panel.since[:, None]))[..., None]
        covariates_NTX = panel.observed_covariates
        never_X = ~covariates_NTX[:, 1:].any(axis=(0, 1))  # what it was filled with is all there is
        covariates_NTX = (covariates_NTX | never_X) & from_NT1
        seen_NTE = np.concatenate([panel.targets, covariates_NTX], axis=2)
        subject_M, step_M = np.nonzero(panel.decided)
        answered_M = panel.targets[subject_M, step_M + 1].any(axis=1)  # an outcome may be a rare measurement
        kept = [
            rows[spread_rows(subject_M[rows], config.rows, task.config.seed)]
            for rows in map(np.flatnonzero, (answered_M, ~answered_M))
        ]
        kept_M = np.sort(np.concatenate(kept))
        self.subject_M, step_M = subject_M[kept_M], step_M[kept_M]
        course = along(panel, self.scales, config.lags, dose_NTL)
        self.course: Course = course.take(step_M * panel.n_subjects + self.subject_M)
        self.after_ME: Floats = course.now_ME[(step_M + 1) * panel.n_subjects + self.subject_M]
        self.unit_ME = self.course.unit(self.scales)
        self.seen_ME = seen_NTE[self.subject_M, step_M + 1]
        blocks = BLOCKS if config.learner != BOOSTING else OF_TREES
        self.columns_MP = design.columns(self.course, dose_NTL[self.subject_M, step_M], blocks)

    def rows(self, e: int) -> Rows:
        """Return a variable's rows: those after which it was observed, with its change or whether it is 1."""
        seen_M, kind = self.seen_ME[:, e], self.scales.kinds[e]
        unit_M, after_M = self.unit_ME[seen_M, e], self.after_ME[seen_M, e]
        columns_MP = self.columns_MP if seen_M.all() else self.columns_MP[seen_M]
        if kind == "binary":
            return Rows(columns_MP, (after_M > HALF).astype(np.float64), np.ones(len(after_M)))
        low_E, high_E = self.scales.limits
        change_M = (after_M - self.course.now_ME[seen_M, e]) / unit_M
        weight_M = (unit_M / self.scales.sd_E[e]) ** POWER.get(kind, 0.0)
        return Rows(columns_MP, change_M.clip(low_E[e], high_E[e]), weight_M)

    def residuals(self, e: int, seen_M: NDArray[np.bool_], predicted_M: Floats, seed: int) -> tuple[Floats, float]:
        """Return what subjects held out differ from their predictions by `[M]`, and a count's dispersion (GCOMP-5).

        Of binary variables and counts it is a quantile that the value leaves open: of a 1 above the probability of 0.
        """
        scales, after_M, unit_M = self.scales, self.after_ME[seen_M, e], self.unit_ME[seen_M, e]
        u_M = np.random.default_rng([seed, 3, e]).random(len(after_M))
        if scales.kinds[e] == "binary":
            zero_M = expit(-predicted_M)
            return np.where(after_M > HALF, zero_M + (1 - zero_M) * u_M, zero_M * u_M), 1.0
        expected_M = self.course.now_ME[seen_M, e] + unit_M * predicted_M
        if scales.whole_E[e]:
            mean_M = expected_M.clip(0, None)
            excess = ((after_M - mean_M) ** 2 - mean_M).sum() / max((mean_M**2).sum(), LEAST_DISPERSION)
            dispersion = float(np.clip(excess, LEAST_DISPERSION, MOST_DISPERSION))
            return count_quantiles(after_M, mean_M, dispersion, u_M), dispersion
        # the sd of what is never negative and returns from zero grows with the root of its size
        size_M = np.sqrt(unit_M * scales.sd_E[e]) if scales.kinds[e] == "local" else unit_M
        return np.asarray((after_M - expected_M) / size_M), 1.0


def _whole(residual_ME: Floats, subject_M: NDArray[np.int64], quantile_E: NDArray[np.bool_], seed: int) -> Floats:
    """Return residuals of steps `[R,E]`, those of one step together; one that was not observed is any other step's.

    Quantiles keep their order and become evenly spaced, the rest is centred: what is drawn has the predicted mean.
    """
    rng = np.random.default_rng([seed, 4])
    known_M = ~np.isnan(residual_ME[:, 0])
    residual_RE, subject_R = residual_ME[known_M], subject_M[known_M]
    for column_R, column_M in zip(residual_RE.T, residual_ME.T, strict=True):
        lacking_R = np.isnan(column_R)
        column_R[lacking_R] = rng.choice(column_M[~np.isnan(column_M)], size=int(lacking_R.sum()))
    residual_RE = residual_RE[spread_rows(subject_R, RESIDUALS, seed)]
    rank_RE = residual_RE.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    return np.where(quantile_E, (rank_RE + HALF) / len(rank_RE), residual_RE - residual_RE.mean(axis=0))
