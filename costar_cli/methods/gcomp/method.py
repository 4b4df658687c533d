"""The fit of step-by-step g-computation: an equation of each variable, with its residuals (spec GCOMP-3 to 6)."""

from typing import Any, Final

import numpy as np

from costar_cli.data import Part
from costar_cli.errors import Termination
from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.gcomp.design import BLOCKS, Design
from costar_cli.methods.gcomp.learners import BOOSTING, OF_TREES, REGRESSIONS, Chosen, Gram, Task, choose, replicates
from costar_cli.methods.gcomp.model import GcompModel
from costar_cli.methods.gcomp.settings import GcompConfig
from costar_cli.methods.shared.course import Scales
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.grow import Rows
from costar_cli.methods.shared.steps import Steps, whole_residuals
from costar_cli.methods.shared.trained import ReadsModels, model_to_start_from
from costar_cli.methods.shared.trees import forest_params

REPLICATES: Final = 100  # samples of subjects that draws of parameters come from


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
        train = task.subjects_of_both
        design, seed = Design.of(task.schema, scales, config.lags), task.config.seed
        sides = [
            Steps(panel, dose_table(task.schema.treatments), scales, lags=config.lags, rows=config.rows, seed=seed)
            for panel in (train, task.panels[task.validation])
        ]
        blocks = BLOCKS if config.learner != BOOSTING else OF_TREES
        columns = [design.columns(side.course, side.dose_ML, blocks) for side in sides]
        fold_N = np.random.default_rng([seed, 1]).permutation(train.n_subjects) % config.folds
        multiplier_BN = np.random.default_rng([seed, 2]).exponential(size=(REPLICATES, train.n_subjects))
        among = {name: design.among(blocks) for name, blocks in REGRESSIONS.items()} | {
            BOOSTING: design.among(OF_TREES)
        }
        chosen, residual_ME, replicate = list[Chosen](), np.full(sides[0].course.now_ME.shape, np.nan), []
        dispersion, gram_of_all = list[float](), Gram()
        for e in range(len(scales.kinds)):
            rows, validation = (
                Rows(columns_MP if seen_M.all() else columns_MP[seen_M], *rest)
                for (seen_M, *rest), columns_MP in zip((side.answers(e) for side in sides), columns, strict=True)
            )
            kept_M = sides[0].seen_ME[:, e]
            subject_M = sides[0].subject_M[kept_M]
            logistic = scales.kinds[e] == "binary"
            gram = gram_of_all if kept_M.all() else Gram()
            one = Task(*rows, subject_M, fold_N[subject_M], validation, logistic, among, gram)
            chosen.append(choose(one, config, seed))
            Termination.stop_if_signalled()
            replicate.append(replicates(one, chosen[-1], multiplier_BN))
            residual_ME[kept_M, e], of_counts = sides[0].residuals(e, kept_M, chosen[-1].held_out_M, seed)
            dispersion.append(of_counts)
        equations = [one.equation for one in chosen]
        arrays = {
            "linear.weight": np.stack([equation.weight_P for equation in equations]),
            "linear.replicates": np.stack(replicate, axis=1),
            "residuals": whole_residuals(residual_ME, sides[0].subject_M, scales.quantile_E, seed),
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
