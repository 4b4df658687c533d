"""The fit of Chronos-2: which weights answer is all that is kept (spec CHRONOS-1)."""

from pathlib import Path

import numpy as np

from costar_cli.errors import UsageError
from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.chronos.model import ChronosModel
from costar_cli.methods.chronos.settings import ChronosConfig
from costar_cli.methods.chronos.weights import FETCH, SETTING, Weights
from costar_cli.methods.shared.trained import ReadsModels, model_to_start_from


class ChronosMethod(ReadsModels):
    """Chronos-2 as it is; few-shot answers by the source's weights, if the settings name no others."""

    model = ChronosModel

    def fit(self, task: FitTask) -> Fit:
        """Learn nothing, once the weights are seen to be there.

        Raises:
            UsageError: no weights are named, or files or packages are missing.
            MismatchError: what to start from is of another method.
        """
        yield from ()
        start, folder = model_to_start_from(task, ChronosModel, "chronos"), task.settings_of(ChronosConfig).weights
        if folder is not None:
            weights = Weights.of(Path(folder))
        elif start is not None:
            weights = start.weights
        else:
            raise UsageError("chronos needs the weights of Chronos-2", where=SETTING, fix=FETCH)
        weights.load(task.device)
        return Fitted({"none": np.zeros((1, 0))}, weights.to_meta())


CHRONOS = ChronosMethod()
