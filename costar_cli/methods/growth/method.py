"""The growth GRU: its fit in one stage, and the fitted model (spec GROWTH-5 to 6)."""

from dataclasses import dataclass
from functools import partial

from costar_cli.methods.base import Fit, FitTask
from costar_cli.methods.growth.network import GrowthNetwork
from costar_cli.methods.growth.settings import GrowthConfig
from costar_cli.methods.shared.rolled_model import RolledModel, fit_rolled
from costar_cli.methods.shared.trained import ReadsModels


@dataclass(frozen=True, kw_only=True)
class GrowthModel(RolledModel):
    """A fitted growth GRU."""

    def make(self) -> GrowthNetwork:
        """Return the network, freshly initialised."""
        return GrowthNetwork(self.schema, self.settings.network, self.forms, self.reach)


class GrowthMethod(ReadsModels):
    """A gated recurrent network with the structured decoder."""

    model = GrowthModel

    def fit(self, task: FitTask) -> Fit:
        """Train the network; few-shot starts from the source's, and keeps its forms.

        Raises:
            MismatchError: what to start from is no growth GRU of enough members.
            UsageError: the settings give the network a different shape than what to start from.
        """
        config = task.settings_of(GrowthConfig)
        start = GrowthModel.start_of(task, "growth", config)
        training = config.network.training(task.config)
        if start:
            rate = config.network.few_shot_rate * training.learning_rate
            training = training.model_copy(update={"learning_rate": rate})
        return (
            yield from fit_rolled(
                task,
                "growth network",
                config.network,
                partial(GrowthNetwork, task.schema, config.network),
                start,
                training,
                form=config.form,
                select_on=config.select_on,
            )
        )


GROWTH = GrowthMethod()
