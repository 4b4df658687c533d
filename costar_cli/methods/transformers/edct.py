"""EDCT: an encoder on whole series, then a decoder that walks into the plans that follow (spec EDCT-1 to 5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from costar_cli.artifact import Artifact
from costar_cli.config.models import TrainingConfig
from costar_cli.methods.base import Fit, FitTask, Fitted, LastStage
from costar_cli.methods.shared.members import Params, n_members, of_members, submodule
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.windows import Batch as Windows
from costar_cli.methods.shared.windows import OriginRows, decoder_training, stage_shares
from costar_cli.methods.transformers.balancing_objective import BalancingObjective, Target
from costar_cli.methods.transformers.edct_network import EdctDecoder, EdctEncoder
from costar_cli.methods.transformers.kv_cache import KeyValueCache, Relative, attend
from costar_cli.methods.transformers.model import (
    TransformerModel,
    encode_in_microbatches,
    few_shot_start,
    member_network,
)
from costar_cli.methods.transformers.settings import EdctConfig
from costar_cli.methods.transformers.stage import BalancedStage, Batch, PartName, SeriesStage
from costar_cli.methods.transformers.units import Tables
from costar_cli.panel.tensors import PanelTensors

__all__ = ["EDCT", "DecoderStage", "EdctMethod", "EdctModel", "EdctStates", "encode_edct"]


@dataclass(frozen=True)
class EdctStates:
    """One member's representation of every history; there is no decoder where only one step is predicted."""

    encoder: EdctEncoder
    decoder: EdctDecoder | None
    representation_NTr: Tensor
    statics_NV: Tensor

    @property
    def kept_per_step(self) -> int:
        """Return how many numbers of a prefix are kept per step while its queries are answered."""
        return 2 * self.decoder.width * len(self.decoder.block_list) if self.decoder else 0

    @property
    def scores_per_step(self) -> int:
        """Return how many attention scores a plan has per step of the prefix."""
        return self.decoder.config.heads if self.decoder else 0

    def walks(self, subjects: slice) -> Callable[[Tensor, int], "EdctWalk"]:
        """Return what begins a walk from some of these subjects, counted from the slice's start, and an origin."""
        representation_CTr, statics_CV = self.representation_NTr[subjects], self.statics_NV[subjects]
        blocks = self.decoder.block_list if self.decoder else []
        series = [KeyValueCache.of_series(block.cross, representation_CTr[None]) for block in blocks]

        def begin(subject_M: Tensor, origin: int) -> EdctWalk:
            kept = [memory.prefix(subject_M, origin) for memory in series]
            return EdctWalk(self, kept, representation_CTr[subject_M, origin], statics_CV[subject_M], origin)

        return begin


def encode_edct(encoder: EdctEncoder, history_NTS: Tensor, statics_NV: Tensor) -> Tensor:
    """Return the representations `[N,T,r]` by one member, whose parameters the encoder holds."""

    def encode(history_BTS: Tensor, statics_BV: Tensor) -> tuple[Tensor, ...]:
        return (encoder.represent(history_BTS, statics_BV),)

    (representation_NTr,) = encode_in_microbatches(encode, encoder, history_NTS, statics_NV)
    return representation_NTr


class EdctWalk:
    """M histories that end at one origin, and the decoder's steps since, for G plans of each."""

    def __init__(
        self, states: EdctStates, kept: list[KeyValueCache], representation_Mr: Tensor, statics_MV: Tensor, origin: int
    ) -> None:
        self.states, self.kept, self.origin = states, kept, origin
        self.representation_Mr, self.statics_MV = representation_Mr, statics_MV
        self.since: list[KeyValueCache | None] = [None for _ in kept]
        self.steps = 0

    def first(self, treatment_MGA: Tensor) -> Tensor:
        """Return the encoder's outcomes `[M,G,dy]` one step after the origin."""
        representation_MGr = self.representation_Mr[:, None].expand(-1, treatment_MGA.shape[1], -1)
        return self.states.encoder.head.outcomes(representation_MGr, treatment_MGA)

    def next(self, outcome_MGY: Tensor, previous_MGA: Tensor, treatment_MGA: Tensor) -> Tensor:
        """Return the decoder's outcomes one step later, after outcomes that are taken for true."""
        decoder = self.states.decoder
        if decoder is None:
            raise ValueError("a model of one predicted step has no decoder")
        statics_MGV = self.statics_MV[:, None].expand(-1, outcome_MGY.shape[1], -1)
        tokens = decoder.embedding(torch.cat([previous_MGA, outcome_MGY, statics_MGV], dim=-1))[None]
        plan = _rows(decoder.own_tables, nearest=0, count=self.steps + 1, zero_row=decoder.steps)
        memory = _rows(
            decoder.cross_tables, nearest=self.steps, count=self.origin + 1, zero_row=decoder.config.clip_distance
        )
        self.steps += 1
        for index, block in enumerate(decoder.block_list):
            since = self.since[index] = KeyValueCache.grown(self.since[index], block.own, tokens)
            own = attend(block.own, tokens, plan, since=since)
            tokens = block.feed_forward(attend(block.cross, own, memory, past=self.kept[index]))
        return decoder.head.outcomes(decoder.head.represent(tokens[0]), treatment_MGA)


def _rows(tables: Tables, *, nearest: int, count: int, zero_row: int) -> Relative:
    keys, values = tables()
    return Relative.at(keys, values, nearest, count, zero_row)


ENCODER, DECODER = "encoder.", "decoder."


class DecoderStage(BalancedStage[EdctDecoder]):
    """Every origin's next steps, with observed outcomes as inputs and the encoder's representations as memory.

    Args:
        name: what progress and random streams call the stage.
        config: settings of the training.
        make: returns a freshly initialised decoder.
        rows: the origins of both parts, each with all members' representations `[R,N,T,r]`.
        dropout: rate of every mask.
        objective: what balances, and how weights are averaged.
        start_R: parameters to start from, or none.
    """

    def __init__(
        self,
        name: str,
        config: TrainingConfig,
        make: Callable[[], EdctDecoder],
        rows: dict[PartName, OriginRows],
        *,
        dropout: float,
        objective: BalancingObjective,
        start_R: Params | None = None,
    ) -> None:
        self.rows = rows
        self.longest: dict[PartName, int] = {part: int(origins.start_M.max()) for part, origins in rows.items()}
        super().__init__(
            name,
            config,
            make,
            dropout=dropout,
            objective=objective,
            n_steps=self.longest["train"],
            device=rows["train"].initial_RNTD.device,
            start_R=start_R,
        )

    @property
    def n_train(self) -> int:
        """Return the number of training origins."""
        return len(self.rows["train"])

    @property
    def n_validation(self) -> int:
        """Return the number of validation origins."""
        return len(self.rows["validation"])

    def initial(self, member: int) -> tuple[Params, Params]:
        """Return a member, whose state says which one it is: each has representations of its own."""
        params, state = super().initial(member)
        return params, state | {"member": torch.full_like(state["updates"], member)}

    def batch(self, part: PartName, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> Batch:
        """Return origins: their memory, right-aligned, and the P steps after their next one."""
        rows, member_R = self.rows[part], state_R["member"].long()
        subject_RB, start_RB = rows.subject_M[rows_RB], rows.start_M[rows_RB]
        step_RBW = start_RB[..., None] + torch.arange(-self.longest[part], 0, device=start_RB.device)
        memory_RBWr = rows.initial_RNTD[member_R[:, None, None], subject_RB[..., None], step_RBW.clamp(min=0)]
        windows = Windows.windows(rows.panel, member_R, subject_RB, start_RB, rows.steps)
        previous, outcomes, statics = (windows.column(name) for name in ("previous", "outcomes", "statics"))
        inputs_RBJI = torch.cat([previous, outcomes, statics], dim=-1).transpose(1, 2)
        plan_RBJA = windows.column("treatment").transpose(1, 2)
        observed = windows.observed
        target = Target(
            plan_RBJA,
            windows.target.transpose(1, 2),
            windows.active.transpose(1, 2),
            None if observed is None else observed.transpose(1, 2),
        )
        return Batch((memory_RBWr, (step_RBW < 0).to(memory_RBWr), inputs_RBJI, plan_RBJA), target)


@dataclass(frozen=True)
class EdctModel(TransformerModel[EdctConfig]):
    """A trained encoder-decoder transformer; `params` hold `encoder.*` and `decoder.*`."""

    def states(self, member: int, panel: PanelTensors) -> EdctStates:
        """Return what a member knows of every history of a scaled panel."""
        encoder = member_network(_encoder(self.schema.dims, self.settings), self.params, member, ENCODER)
        decoder = None
        if self.horizon > 1:
            network = _decoder(self.schema.dims, self.settings, self.horizon)
            decoder = member_network(network, self.params, member, DECODER)
        return EdctStates(encoder, decoder, encode_edct(encoder, panel.history_NTS, panel.v_NV), panel.v_NV)


@dataclass(frozen=True)
class EdctMethod:
    """The encoder-decoder causal transformer (spec EDCT-1 to 5)."""

    name: str = "edct"

    def fit(self, task: FitTask) -> Fit:
        """Train the encoder, then the decoder on its representations; few-shot starts from both of the source's.

        Raises:
            DataError: no subject is long enough to learn the later steps from.
            MismatchError: the model to start from differs in method or shape, or has fewer members than asked for.
        """
        settings = task.settings or EdctConfig()
        if not isinstance(settings, EdctConfig):
            raise TypeError(f"{self.name} does not take {type(settings).__name__}")
        start_R = few_shot_start(task, EdctModel, self.name, settings) or {}
        where = "" if task.domain == "source" else " on target"
        dims, panels = task.schema.dims, (task.tensors(task.train), task.tensors(task.validation))
        shared = stage_shares(task.config, task.horizon)
        config = settings.encoder.training(shared[0])
        encoder_stage = SeriesStage(
            f"{self.name} encoder{where}",
            config,
            partial(_encoder, dims, settings),
            train=panels[0],
            validation=panels[1],
            dropout=settings.encoder.dropout,
            objective=_objective(task, settings, config, len(panels[0].length_N)),
            start_R=submodule(start_R, ENCODER),
        )
        if task.horizon == 1:
            encoder_R = yield LastStage(encoder_stage, lambda params_R, _: _fitted(params_R))
            return _fitted(encoder_R)
        encoder_R = yield encoder_stage
        rows: dict[PartName, OriginRows] = {
            "train": _origins(panels[0], encoder_R, dims, settings, task.horizon),
            "validation": _origins(panels[1], encoder_R, dims, settings, task.horizon),
        }
        config = decoder_training(settings.decoder, shared[1])
        decoder_stage = DecoderStage(
            f"{self.name} decoder{where}",
            config,
            partial(_decoder, dims, settings, task.horizon),
            rows,
            dropout=settings.decoder.dropout,
            objective=_objective(task, settings, config, len(rows["train"])),
            start_R=submodule(start_R, DECODER),
        )
        decoder_R = yield LastStage(
            decoder_stage, lambda params_R, members: _fitted(of_members(encoder_R, members), params_R)
        )
        return _fitted(encoder_R, decoder_R)

    def load(self, artifact: Artifact, device: torch.device | str = "cpu") -> EdctModel:
        """Return the model that an artifact holds."""
        return EdctModel.from_artifact(artifact, device)


EDCT = EdctMethod()


def _fitted(encoder_R: Params, decoder_R: Params | None = None) -> Fitted:
    params = {ENCODER + name: value for name, value in encoder_R.items()}
    return Fitted(params | {DECODER + name: value for name, value in (decoder_R or {}).items()})


def _encoder(dims: tuple[int, int, int, int], settings: EdctConfig) -> EdctEncoder:
    return EdctEncoder(dims, settings.encoder)


def _decoder(dims: tuple[int, int, int, int], settings: EdctConfig, horizon: int) -> EdctDecoder:
    return EdctDecoder(dims, settings.encoder.representation, horizon - 1, settings.decoder)


def _objective(task: FitTask, settings: EdctConfig, config: TrainingConfig, n_rows: int) -> BalancingObjective:
    return BalancingObjective.over(
        config,
        n_rows,
        balancing=settings.balancing,
        alpha=settings.alpha,
        averaging=settings.averaging,
        mode=task.schema.treatments.mode,
    )


def _origins(
    panel: PanelTensors, encoder_R: Params, dims: tuple[int, int, int, int], settings: EdctConfig, horizon: int
) -> OriginRows:
    """Return a panel's origins with the representations by all members."""
    members = [member_network(_encoder(dims, settings), encoder_R, r) for r in range(n_members(encoder_R))]
    representations = [encode_edct(encoder, panel.history_NTS[:, :-1], panel.v_NV) for encoder in members]
    return OriginRows(panel, horizon - 1, torch.stack(representations))
