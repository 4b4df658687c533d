"""A trained COSTAR ensemble: encode a panel once, answer any number of queries."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from costar_cli.artifact import Artifact
from costar_cli.config.choices import DecoderName
from costar_cli.config.models import EncoderConfig
from costar_cli.methods.costar.answer import answer_queries
from costar_cli.methods.costar.architectures import make_encoder
from costar_cli.methods.costar.encode import encode_panel
from costar_cli.methods.costar.heads import DEFAULT_DECODER, known_decoder, outcome_head
from costar_cli.methods.costar.predictor import OutcomePredictor
from costar_cli.methods.costar.supervised import ENCODER, HEAD
from costar_cli.methods.shared.members import submodule
from costar_cli.methods.shared.trained import EncodingModel, read_fields, require_horizon
from costar_cli.panel import Panel, Queries
from costar_cli.reporting import Reporter

__all__ = ["CostarModel"]


@dataclass(frozen=True, kw_only=True)
class CostarModel(EncodingModel[Tensor]):
    """An encoder and, when fine-tuned, an outcome predictor, for R members.

    `params` hold `encoder.*` and, for a fine-tuned model, `head.*`, each `[R,...]`.
    """

    method: str = "costar"
    horizon: int = 0
    encoder_config: EncoderConfig
    hidden: int = 0
    decoder: DecoderName = DEFAULT_DECODER

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: torch.device | str = "cpu", **own: Any) -> Self:  # noqa: ANN401
        """Read an encoder or model artifact."""
        meta = artifact.meta
        return cls(
            horizon=int(meta.get("horizon", 0)),
            encoder_config=EncoderConfig.model_validate(meta["encoder"]),
            hidden=int(meta.get("hidden", 0)),
            decoder=known_decoder(meta.get("decoder", DEFAULT_DECODER)),
            **read_fields(artifact, device),
            **own,
        )

    def represent(self, panel: Panel) -> NDArray[np.float32]:
        """Return `z [R,N,T,D]`, the representation of every subject's history at every step."""
        return self.encode(panel).float().cpu().numpy()

    def encode(self, panel: Panel) -> Tensor:
        """Return `z [R,N,T,D]` of every subject's history at every step, on the model's device."""
        tensors = self.scaled(panel)
        encoder = make_encoder(self.schema.dims, self.encoder_config).to(self.device)
        return encode_panel(encoder, submodule(self.params, ENCODER), tensors.history_NTS, tensors.v_NV)

    def answer(
        self, states: Tensor, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict as `rollout` does, on a panel that `encode` has seen.

        Raises:
            UsageError: the plans are longer than the horizon that the model was trained for.
        """
        require_horizon(self.horizon, queries)
        heads = [self._head(member) for member in range(self.members)]

        def predict(some: Queries) -> NDArray[np.floating]:
            return answer_queries(heads, states, some).cpu().numpy()

        return self.in_batches(predict, queries, size=batch_size, device=states.device, reporter=reporter)

    def _head(self, member: int) -> OutcomePredictor:
        """Return the outcome predictor with one member's parameters."""
        head = outcome_head(self.schema.dims, self.horizon, self.encoder_config, self.hidden, decoder=self.decoder)
        head.load_state_dict({n: v[member] for n, v in submodule(self.params, HEAD).items()}, assign=True)
        return head.requires_grad_(False)
