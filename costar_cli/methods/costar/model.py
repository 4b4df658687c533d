"""A trained COSTAR ensemble: encode a panel once, answer any number of queries."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from costar_cli.artifact import Artifact
from costar_cli.config.models import EncoderConfig
from costar_cli.errors import UsageError
from costar_cli.methods.arrays import params_from_arrays, scaler_from_arrays
from costar_cli.methods.costar.answer import answer_queries
from costar_cli.methods.costar.encode import encode_panel
from costar_cli.methods.costar.encoder import CostarEncoder
from costar_cli.methods.costar.predictor import OutcomePredictor
from costar_cli.methods.costar.supervised import ENCODER, HEAD, outcome_head
from costar_cli.methods.members import Params, n_members, submodule
from costar_cli.methods.pieces import on_cores
from costar_cli.panel import Panel, PanelSchema, Queries, Scaler
from costar_cli.panel.tensors import PanelTensors
from costar_cli.reporting import NullReporter, Reporter

__all__ = ["CostarModel"]


@dataclass(frozen=True)
class CostarModel:
    """An encoder and, when fine-tuned, an outcome predictor, for R members.

    `params` hold `encoder.*` and, for a fine-tuned model, `head.*`, each `[R,...]`.
    """

    params: Params
    schema: PanelSchema
    scaler: Scaler
    encoder_config: EncoderConfig
    horizon: int = 0
    hidden: int = 0
    meta: Mapping[str, Any] | None = None
    digest: str = ""
    parents: Mapping[str, str] | None = None
    device: torch.device | str = "cpu"
    method: str = "costar"

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: torch.device | str = "cpu") -> Self:
        """Read an encoder or model artifact."""
        meta = artifact.meta
        return cls(
            params={name: value.to(device) for name, value in params_from_arrays(artifact.arrays).items()},
            schema=PanelSchema.model_validate(meta["schema"]),
            scaler=scaler_from_arrays(artifact.arrays),
            encoder_config=EncoderConfig.model_validate(meta["encoder"]),
            horizon=int(meta.get("horizon", 0)),
            hidden=int(meta.get("hidden", 0)),
            meta=meta,
            digest=artifact.digest,
            parents=artifact.parents,
            device=device,
        )

    @property
    def members(self) -> int:
        """Return R."""
        return n_members(self.params)

    @property
    def trained_on(self) -> Mapping[str, int]:
        """Return the number of labelled subjects per part that the model has learned from."""
        return dict((self.meta or {}).get("trained_on", {}))

    def represent(self, panel: Panel) -> NDArray[np.float32]:
        """Return `z [R,N,T,D]`, the representation of every subject's history at every step."""
        return self.encode(panel).float().cpu().numpy()

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict the outcomes of every query, `[R,Q,tau,dy]` in the units of the data.

        Only the subjects asked about are encoded, each once.

        Raises:
            UsageError: the plans are longer than the horizon that the model was trained for.
        """
        subjects, row = np.unique(queries.subject, return_inverse=True)
        asked = replace(queries, subject=row.astype(np.int32))
        states = self.encode(panel.take(subjects.astype(np.int64)))
        return self.answer(states, asked, batch_size=batch_size, reporter=reporter)

    def encode(self, panel: Panel) -> Tensor:
        """Return `z [R,N,T,D]` of every subject's history at every step, on the model's device."""
        tensors = PanelTensors.from_panel(
            panel, self.scaler, device=self.device, dtype=next(iter(self.params.values())).dtype
        )
        encoder = CostarEncoder(self.schema.dims, self.encoder_config).to(self.device)
        return encode_panel(encoder, submodule(self.params, ENCODER), tensors.history_NTS, tensors.v_NV)

    def answer(
        self, states: Tensor, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict as `rollout` does, on a panel that `encode` has seen.

        Raises:
            UsageError: the plans are longer than the horizon that the model was trained for.
        """
        if queries.horizon > self.horizon:
            raise UsageError(
                f"plans of {queries.horizon} steps are longer than the model's horizon",
                fix=f"ask for 1 to {self.horizon} steps, or train with a longer `--horizon`",
            )
        heads = [self._head(member) for member in range(self.members)]
        result = np.empty((self.members, len(queries), queries.horizon, len(self.schema.outcomes)), dtype=np.float32)

        def fill(first: int) -> int:
            part = slice(first, first + batch_size)
            scaled = answer_queries(heads, states, queries.take(part))
            result[:, part] = self.scaler.unscale_outcomes(scaled.cpu().numpy())
            return int(scaled.shape[1])

        with (reporter or NullReporter()).task("rollout", total=len(queries), unit="query") as task:
            for count in on_cores(fill, range(0, len(queries), batch_size), device=states.device):
                task.advance(count)
        return result

    def _head(self, member: int) -> OutcomePredictor:
        """Return the outcome predictor with one member's parameters."""
        head = outcome_head(self.schema.dims, self.horizon, self.encoder_config, self.hidden)
        head.load_state_dict({n: v[member] for n, v in submodule(self.params, HEAD).items()}, assign=True)
        return head.requires_grad_(False)
