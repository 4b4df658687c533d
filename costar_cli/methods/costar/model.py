"""A trained COSTAR ensemble: encode a panel once, answer any number of queries.

Each history and each plan goes through the head's first layer once.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from costar_cli.artifact import Artifact
from costar_cli.config.choices import DecoderName
from costar_cli.config.models import EncoderConfig
from costar_cli.methods.costar.architectures import make_encoder
from costar_cli.methods.costar.predictor import DEFAULT_DECODER, OutcomePredictor, known_decoder, outcome_head
from costar_cli.methods.costar.representation import encode_panel
from costar_cli.methods.costar.supervised import ENCODER, HEAD
from costar_cli.methods.shared.members import member_module, submodule
from costar_cli.methods.shared.trained import AnswerJob, EncodingModel, read_fields
from costar_cli.panel import Panel, Queries

__all__ = ["CostarModel", "answer_queries", "distinct_rows", "runs"]

CPU_ELEMENTS = 2**19  # hidden units computed at once on a CPU: fewer cost calls, more overflow the caches (measured)
Indices = NDArray[np.int64]


def answer_queries(heads: list[OutcomePredictor], z_RNTD: Tensor, queries: Queries) -> Tensor:
    """Return the scaled outcomes `[R,Q,tau,dy]` of queries.

    Test sets ask many plans of one history and few plans in all, so both are looked up: queries of one history that
    follow one another share it, and equal plans are found wherever they are.
    """
    n_queries, horizon = len(queries), queries.horizon
    first_U, history_Q = runs(queries.subject, queries.origin)
    first_P, plan_Q = distinct_rows(queries.plan.reshape(n_queries, -1))
    subject_U, origin_U = (_tensor(a[first_U], z_RNTD.device) for a in (queries.subject, queries.origin))
    plan_PHA = torch.from_numpy(queries.plan[first_P]).to(z_RNTD)
    at = _tensor(history_Q, z_RNTD.device), _tensor(plan_Q, z_RNTD.device)
    rows = max(1, CPU_ELEMENTS // (horizon * heads[0].hidden)) if z_RNTD.device.type == "cpu" else n_queries
    return torch.stack(
        [
            torch.cat(list(head.pairs(z_NTD[subject_U, origin_U], plan_PHA, *at, rows=rows)))
            for head, z_NTD in zip(heads, z_RNTD, strict=True)
        ]
    )


def runs(*columns_Q: NDArray[np.generic]) -> tuple[Indices, Indices]:
    """Return where each run of equal rows begins, and the run that each row belongs to."""
    starts = np.zeros(len(columns_Q[0]), dtype=bool)
    starts[:1] = True
    for column in columns_Q:
        starts[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(starts), np.cumsum(starts) - 1


def distinct_rows(rows_QB: NDArray[np.uint8]) -> tuple[Indices, Indices]:
    """Return one index of each distinct row of bytes, and which of these each row equals."""
    n_rows, width = rows_QB.shape
    words_QW = np.zeros((n_rows, -(-width // 8)), dtype=np.uint64)
    words_QW.view(np.uint8)[:, :width] = rows_QB
    odd_W = np.random.default_rng(0).integers(2**63, size=words_QW.shape[1], dtype=np.uint64) * 2 + 1
    _, first, inverse = np.unique(words_QW @ odd_W, return_index=True, return_inverse=True)
    if not np.array_equal(words_QW[first[inverse]], words_QW):  # two rows share a hash
        return np.arange(n_rows), np.arange(n_rows)
    return first, inverse


def _tensor(indices: NDArray[np.generic], device: torch.device) -> Tensor:
    return torch.from_numpy(indices.astype(np.int64)).to(device)


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

    def jobs(self, states: Tensor, queries: Queries, batch_size: int) -> Iterator[Iterable[AnswerJob]]:
        """Yield jobs of `batch_size` queries each."""
        heads = [self._head(member) for member in range(self.members)]
        return self.jobs_of_all_members(lambda some: answer_queries(heads, states, some), queries, batch_size)

    def _head(self, member: int) -> OutcomePredictor:
        """Return the outcome predictor with one member's parameters."""
        head = outcome_head(self.schema.dims, self.horizon, self.encoder_config, self.hidden, decoder=self.decoder)
        return member_module(head, submodule(self.params, HEAD), member)
