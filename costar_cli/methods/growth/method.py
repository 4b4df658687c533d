"""The growth GRU: its network, its fit in one stage, and the fitted model (spec GROWTH-5 to 6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from costar_cli.data import PanelSchema
from costar_cli.methods.base import Fit, FitTask
from costar_cli.methods.growth.gru import run_gru
from costar_cli.methods.growth.settings import GrowthConfig, GrowthNetworkConfig
from costar_cli.methods.shared.covariate_transition import Reach
from costar_cli.methods.shared.dropout import MaskSource, per_kept
from costar_cli.methods.shared.members import Params, submodule
from costar_cli.methods.shared.outcome_forms import OutcomeForm
from costar_cli.methods.shared.rolled import RolledNetwork
from costar_cli.methods.shared.rolled_model import RolledModel, fit_rolled
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.trained import ReadsModels
from costar_cli.methods.shared.windows import Windows


class GrowthNetwork(RolledNetwork):
    """A GRU, `gru.*`, whose states the decoder reads; dropout is of covariates and statics, and of states."""

    def __init__(
        self, schema: PanelSchema, config: GrowthNetworkConfig, forms: Sequence[OutcomeForm], reach: Reach
    ) -> None:
        super().__init__(schema, forms, reach)
        self.config = config
        self.gru = nn.GRU(self.n_inputs, config.width)
        self.decoder = self.make_decoder(config.width, config.outputs, fading=config.fading)

    @property
    def elements_per_position(self) -> int:
        """Return how many numbers one position of one row takes at its widest."""
        return 3 * self.config.width

    def states(self, params_R: Params, series: Windows, streams: Sequence[Stream] | None = None) -> Tensor:
        """Return the states `[R,B,T,D]` of members at every position, differentiable by their parameters."""
        known = _mask(self.config.input_dropout, (len(self.low_I),), series, streams)
        states = _mask(self.config.dropout, (series.at.shape[2], self.config.width), series, streams)
        inputs_RTBI = self.inputs(series, known).transpose(1, 2)
        z_RBTD = run_gru(submodule(params_R, "gru."), inputs_RTBI).transpose(1, 2)
        return z_RBTD if states is None else z_RBTD * states


def _mask(rate: float, shape: tuple[int, ...], series: Windows, streams: Sequence[Stream] | None) -> Tensor | None:
    """Return a mask `[R,B,..]` that keeps the mean, None where nothing is dropped."""
    if streams is None:
        return None
    like = series.panel.y_NTY
    source = MaskSource({"mask": shape}, rate, streams, device=like.device, dtype=like.dtype)
    mask = source.draw(series.at.shape[1])().get("mask")
    return None if mask is None else mask * per_kept(rate)


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
