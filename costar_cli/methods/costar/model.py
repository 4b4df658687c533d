"""A trained COSTAR ensemble: encode a panel once, answer any number of queries.

Each history and each plan goes through the head's first layer once.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from costar_cli.config.models import EncoderConfig
from costar_cli.data import Panel, Queries
from costar_cli.data.record import ModelRecord
from costar_cli.data.tensors import PanelTensors
from costar_cli.files import Artifact
from costar_cli.methods.costar.architectures import make_encoder
from costar_cli.methods.costar.decoding import CostarStates, Decoder, DecoderInput, DecoderShape, make_decoder
from costar_cli.methods.costar.inputs import EncoderInputs
from costar_cli.methods.costar.representation import HistoryEncoder, encode_panel
from costar_cli.methods.costar.supervised import ENCODER, HEAD
from costar_cli.methods.entry import Adjusts
from costar_cli.methods.shared.distinct import distinct_plans, runs
from costar_cli.methods.shared.members import member_module, submodule
from costar_cli.methods.shared.networks import SeriesModel, to_device
from costar_cli.methods.shared.trained import AnswerJob, read_fields

CPU_ELEMENTS = 2**19  # hidden units computed at once on a CPU: fewer cost calls, more overflow the caches (measured)


def _tensor(indices: NDArray[np.generic], device: torch.device) -> Tensor:
    return torch.from_numpy(indices.astype(np.int64)).to(device)


@dataclass(frozen=True, kw_only=True)
class CostarModel(SeriesModel[CostarStates]):
    """An encoder and, when fine-tuned, an outcome predictor, for R members.

    `params` hold `encoder.*` and, for a fine-tuned model, `head.*`, each `[R,...]`.
    """

    method: str = "costar"
    horizon: int = 0
    encoder_config: EncoderConfig
    shape: DecoderShape = field(default_factory=DecoderShape)

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: torch.device | str = "cpu", **own: Any) -> Self:  # noqa: ANN401
        """Read an encoder or model artifact."""
        known = read_fields(artifact)
        known |= {"params": to_device(known["params"], device), "device": device}
        record: ModelRecord = known["record"]
        encoder_config = EncoderConfig.model_validate(record.encoder)
        shape = DecoderShape.from_facts(record.facts)
        return cls(encoder_config=encoder_config, shape=shape, **known, **own).require_shapes()

    def networks(self) -> dict[str, Callable[[], nn.Module]]:
        """Return the encoder, and the head of a fine-tuned model."""
        heads = {HEAD: lambda: self._make_decoder().head} if self.horizon else {}
        return {ENCODER: self._encoder, **heads}

    @property
    def stepwise(self) -> bool:
        """Return whether the decoder predicts each step from the one before."""
        return self.shape.decoder in ("structured", "autoregressive", "autoregressive_one_step")

    @property
    def adjusts(self) -> Adjusts:
        """Return which reactions inside a plan it adjusts for, as its decoder does."""
        if not self.stepwise:
            return "none"
        return "all" if self.shape.covariates == "forecast" else "outcomes"

    def represent(self, panel: Panel) -> NDArray[np.float32]:
        """Return `z [R,N,T,D]`, the representation of every subject's history at every step."""
        return self._represent(self.scaled(panel)).float().cpu().numpy()

    def encode_series(self, panel: Panel) -> CostarStates:
        """Return what is known of every subject's history at every step, on the model's device."""
        tensors, decoder = self.scaled(panel), self._decoder
        exposure_RNTJ = decoder.exposures(self._heads, tensors)
        z_RNTD, y_NTY = self._represent(tensors), tensors.y_NTY
        return CostarStates(z_RNTD, y_NTY, tensors.x_NTX, decoder.units(y_NTY), exposure_RNTJ)

    def encode_asked(self, panel: Panel, queries: Queries) -> tuple[CostarStates, Queries]:
        """Return what is known at the origins alone, as step 0, where each subject is asked about at one."""
        origin_N = np.zeros(panel.n_subjects, dtype=np.int64)
        origin_N[queries.subject] = queries.origin
        if (origin_N[queries.subject] != queries.origin).any():
            return super().encode_asked(panel, queries)
        tensors, decoder = self.scaled(panel), self._decoder
        step_N = _tensor(origin_N, tensors.y_NTY.device)
        at = torch.arange(len(step_N), device=step_N.device), step_N, None
        exposure_RNTJ, unit_NTY = decoder.exposures(self._heads, tensors), decoder.units(tensors.y_NTY)
        states = CostarStates(
            self._represent(tensors, step_N), tensors.y_NTY[at], tensors.x_NTX[at],
            None if unit_NTY is None else unit_NTY[at], None if exposure_RNTJ is None else exposure_RNTJ[:, *at],
        )  # fmt: skip
        return states, replace(queries, origin=np.zeros_like(queries.origin))

    def jobs(self, states: CostarStates, queries: Queries, batch_size: int) -> Iterator[Iterable[AnswerJob]]:
        """Yield jobs of `batch_size` queries each."""
        decoder, heads, z_RNTD = self._decoder, self._heads, states.z_RNTD
        elements = CPU_ELEMENTS if z_RNTD.device.type == "cpu" else sys.maxsize

        def predict(some: Queries) -> Tensor:
            # Test sets ask many plans of one history and few plans in all, so both are looked up: queries of one
            # history that follow one another share it, and equal plans are found wherever they are.
            first_U, history_Q = runs(some.subject, some.origin)
            first_P, plan_Q = distinct_plans(some.plan)
            subject_U, origin_U = (_tensor(a[first_U], z_RNTD.device) for a in (some.subject, some.origin))
            plan_PHA = torch.from_numpy(some.plan[first_P]).to(z_RNTD)
            at = _tensor(history_Q, z_RNTD.device), _tensor(plan_Q, z_RNTD.device)
            return decoder.answers(heads, states, DecoderInput(subject_U, origin_U, plan_PHA, *at), elements)

        return self.jobs_of_all_members(predict, queries, batch_size)

    def _represent(self, tensors: PanelTensors, step_N: Tensor | None = None) -> Tensor:
        return encode_panel(self._encoders, self._inputs.history(tensors), tensors.v_NV, step_N)

    @property
    def _inputs(self) -> EncoderInputs:
        return EncoderInputs(self.schema.dims, self.encoder_config.inputs, self.shape.forms)

    def _encoder(self) -> HistoryEncoder:
        return make_encoder(self._inputs.token_dims, self.encoder_config)

    def _make_decoder(self) -> Decoder:
        return make_decoder(self.shape, self.schema.dims, self.horizon, self.encoder_config, self.schema.treatments)

    @cached_property
    def _decoder(self) -> Decoder:
        return self._make_decoder()

    @cached_property
    def _encoders(self) -> list[HistoryEncoder]:
        """Return the encoders of all members, each with its parameters: somebody may ask for one subject at a time."""
        params_R = submodule(self.params, ENCODER)
        return [member_module(self._encoder(), params_R, member) for member in range(self.members)]

    @cached_property
    def _heads(self) -> list[nn.Module]:
        """Return the heads of all members, each with its parameters: a search asks for them some times per subject."""
        params_R = submodule(self.params, HEAD)
        return [member_module(self._make_decoder().head, params_R, member) for member in range(self.members)]
