"""CRN and RMSN with the structured decoder in place of theirs (spec NET-21): one LSTM, one stage."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from costar_cli.data import PanelSchema
from costar_cli.methods.recurrent.lstm import draw_masks, variational_lstm
from costar_cli.methods.recurrent.settings import CrnConfig, CrnErmConfig, RmsnConfig
from costar_cli.methods.shared.balancing import Balancer
from costar_cli.methods.shared.covariate_transition import Reach
from costar_cli.methods.shared.members import Params, call_members, submodule
from costar_cli.methods.shared.outcome_forms import OutcomeForm
from costar_cli.methods.shared.rolled import RolledNetwork
from costar_cli.methods.shared.rolled_model import RolledModel
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.windows import Windows


class RolledLstm(RolledNetwork):
    """The encoder of CRN, with its balanced representation, or of RMSN, and the decoder of its states.

    Args:
        schema: columns of the panel.
        config: settings of the method.
        forms: one per outcome.
        reach: smallest and largest covariates and statics that were learned from.
    """

    def __init__(
        self,
        schema: PanelSchema,
        config: CrnConfig | CrnErmConfig | RmsnConfig,
        forms: Sequence[OutcomeForm],
        reach: Reach,
    ) -> None:
        super().__init__(schema, forms, reach)
        shape = config.encoder
        self.rate, width = shape.dropout, shape.width
        self.lstm = nn.LSTM(self.n_inputs, width, shape.layers)
        self.head = None
        if not isinstance(config, RmsnConfig):
            width = config.encoder.representation
            self.head = Balancer(shape.width, width, config.encoder.hidden, n_treatments=schema.dims[1])
        self.decoder = self.make_decoder(width, config.outputs)

    @property
    def elements_per_position(self) -> int:
        """Return how many numbers one position of one row takes at its widest."""
        return 4 * self.lstm.hidden_size

    def states(self, params_R: Params, series: Windows, streams: Sequence[Stream] | None = None) -> Tensor:
        """Return the states `[R,B,T,D]` of members at every position: balanced representations, or outputs."""
        inputs_RTBI, batch = self.inputs(series).transpose(1, 2), series.at.shape[1]
        masks = None if streams is None else draw_masks(self.lstm, self.rate, streams, batch, inputs_RTBI)
        outputs = variational_lstm(submodule(params_R, "lstm."), inputs_RTBI, masks=masks).outputs.transpose(1, 2)
        if self.head is None:
            return outputs
        z_RBTD: Tensor = call_members(self.head, submodule(params_R, "head."), outputs)
        return z_RBTD


@dataclass(frozen=True, kw_only=True)
class RolledLstmModel(RolledModel):
    """A fitted CRN or RMSN whose outcomes are rolled out."""

    def make(self) -> RolledLstm:
        """Return the network, freshly initialised."""
        return RolledLstm(self.schema, self.settings, self.forms, self.reach)
