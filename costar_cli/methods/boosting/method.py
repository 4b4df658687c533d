"""The fit of gradient boosting: one forest for each step of the horizon and outcome (spec BOOST-1 to 3)."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from costar_cli.data import Panel, Part
from costar_cli.errors import DataError, Termination
from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.boosting.features import Histories, plan_columns
from costar_cli.methods.boosting.model import BoostingModel
from costar_cli.methods.boosting.settings import BoostingConfig
from costar_cli.methods.shared.grow import Rows, grow, spread_rows
from costar_cli.methods.shared.outcome_forms import LIMITS, choose_forms
from costar_cli.methods.shared.trained import ReadsModels, model_to_start_from
from costar_cli.methods.shared.trees import Forest, forest_params

HALF: Final = 0.5  # between the values of a binary outcome
POWER: Final = {"relative": 0.0, "additive": 0.0, "local": 1.0}  # of the unit, by which a row counts


class BoostingMethod(ReadsModels):
    """Gradient boosting on lags and plan; few-shot refits it to both domains' subjects, stopping on the target's."""

    model = BoostingModel

    def fit(self, task: FitTask) -> Fit:
        """Grow the trees of every step and outcome.

        Raises:
            DataError: no training subject has an observed outcome at some step of the horizon.
            MismatchError: what to start from is of another method.
        """
        yield from ()
        start, config = model_to_start_from(task, BoostingModel, "boosting"), task.settings_of(BoostingConfig)
        source = task.panels[Part("source", "train")]
        forms = start.forms if start else choose_forms(source, task.schema, task.scaler)
        train = task.subjects_of_both
        panels = train, task.panels[task.validation]
        seen = [Histories(panel, task.scaler, task.schema.treatments, forms, config.lags) for panel in panels]
        sides = [_Side(panel, histories) for panel, histories in zip(panels, seen, strict=True)]
        # Log loss for boosting alone: its excess over the truth's fell from 0.053 to 0.012 on five data sets
        # (benchmarks/binary.py). Networks would need another head, selection error and bands.
        binary = [outcome.kind == "binary" for outcome in task.schema.outcomes]
        seed, grown = task.config.seed, list[list[Forest]]()
        for h in range(task.horizon):
            row = []
            for outcome, logistic in enumerate(binary):
                Termination.stop_if_signalled()
                learned, validation = (side.rows(h, outcome, config.rows, seed, logistic=logistic) for side in sides)
                if not len(learned.answer_M):
                    name = task.schema.outcomes[outcome].name
                    raise DataError(
                        f"no training subject has an observed '{name}' {h + 1} steps after another step",
                        fix="choose a shorter horizon, or add longer series",
                    )
                forest, _ = grow(learned, validation, config, seed, logistic=logistic, library=config.library)
                row.append(forest)
                del learned, validation  # before the next rows are made: up to 100,000 each
            grown.append(row)
        meta = {
            "forms": [form.to_meta() for form in forms],
            "lags": config.lags,
            "width": seen[0].width,
            "trees": [[forest.n_trees for forest in row] for row in grown],
            **({"logistic": binary} if any(binary) else {}),
        }
        return Fitted(forest_params(grown), meta)


BOOSTING = BoostingMethod()


@dataclass(frozen=True)
class _Side:
    """The subjects to learn from, or to stop on, and their histories."""

    panel: Panel
    histories: Histories

    def rows(self, h: int, outcome: int, most: int, seed: int, *, logistic: bool) -> Rows:
        """Return the origins that an observed outcome of step h follows, at most so many, with the plan up to it.

        Answers are how it has changed since, or, of `logistic` trees, whether it is 1.
        """
        answered_NT = self.panel.targets[:, h + 1 :, outcome]
        subject, origin = np.nonzero(answered_NT)
        kept = spread_rows(subject, most, seed)
        subject, origin = subject[kept], origin[kept]
        seen, kind = self.histories, self.histories.forms[outcome].kind
        dose_MHL = seen.dose_NTL[subject[:, None], origin[:, None] + np.arange(h + 1)]
        unit_M = seen.unit(subject, origin, outcome)
        change_M = seen.y_NTY[subject, origin + h + 1, outcome] - seen.y_NTY[subject, origin, outcome]
        columns_MP = np.concatenate([seen.at(subject, origin, outcome), plan_columns(dose_MHL)], axis=1)
        if logistic:
            came_M = seen.y_NTY[subject, origin + h + 1, outcome] > HALF
            return Rows(columns_MP, came_M.astype(np.float64), np.ones(len(came_M)))
        return Rows(
            columns_MP,
            (change_M / unit_M).clip(*LIMITS[kind]),
            (unit_M / seen.sd_Y[outcome]) ** POWER[kind],
        )
