"""EDCT: an encoder on whole series, then a decoder that walks into the plans that follow (spec EDCT-1 to 5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.base import Fit, FitTask, Stage
from costar_cli.methods.shared.members import Dims, Params, member_module, n_members, submodule
from costar_cli.methods.shared.relative_attention import RelativeTables
from costar_cli.methods.shared.stage import NetworkTraining, encoder_then_decoder
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.trained import ReadsModels
from costar_cli.methods.shared.windows import OriginRows, Windows
from costar_cli.methods.transformers.balancing_objective import BalancingObjective
from costar_cli.methods.transformers.edct_network import EdctDecoder, EdctEncoder
from costar_cli.methods.transformers.kv_cache import KeyValueCache, Relative, attend
from costar_cli.methods.transformers.model import TransformerModel
from costar_cli.methods.transformers.settings import EdctConfig
from costar_cli.methods.transformers.stage import BalancedStage, Batch, MakeObjective, PartName, SeriesStage
from costar_cli.methods.transformers.units import encode_series


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

    (representation_NTr,) = encode_series(encoder, encode, history_NTS, statics_NV)
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
        """Return the encoder's outcomes `[M,G,Y]` one step after the origin."""
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


def _rows(tables: RelativeTables, *, nearest: int, count: int, zero_row: int) -> Relative:
    keys, values = tables()
    return Relative.at(keys, values, nearest, count, zero_row)


class DecoderStage(BalancedStage[EdctDecoder]):
    """Every origin's next steps, with observed outcomes as inputs and the encoder's representations as memory.

    Its rows are `OriginRows`; the rest is as in `BalancedStage`.
    """

    def __init__(self, training: NetworkTraining[EdctDecoder], objective: MakeObjective) -> None:
        self.rows: dict[PartName, OriginRows] = {
            "train": cast("OriginRows", training.train),
            "validation": cast("OriginRows", training.validation),
        }
        self.longest: dict[PartName, int] = {part: int(rows.start_M.max()) for part, rows in self.rows.items()}
        super().__init__(training, objective, self.longest["train"])

    def inputs(self, part: PartName, windows: Windows, streams: Sequence[Stream]) -> Batch:
        """Return origins: their memory, right-aligned, and the steps of the plan after their next one."""
        subject_RB, start_RB = windows.subject_RB, windows.at[..., 0]
        step_RBW = start_RB[..., None] + torch.arange(-self.longest[part], 0, device=start_RB.device)
        of_member = windows.member_R[:, None, None], subject_RB[..., None], step_RBW.clamp(min=0)
        memory_RBWr = self.rows[part].encoded_RNTD[of_member]
        read = [windows.column("previous"), windows.column("outcomes"), windows.column("statics")]
        hidden_RBW = (step_RBW < 0).to(memory_RBWr)
        return Batch((memory_RBWr, hidden_RBW, torch.cat(read, dim=-1), windows.treatment), windows)


@dataclass(frozen=True)
class EdctModel(TransformerModel):
    """A trained encoder-decoder transformer; `params` hold `encoder.*` and `decoder.*`."""

    def networks(self) -> dict[str, Callable[[], Any]]:
        """Return the encoder, and the decoder if there is one."""
        makes = edct_networks(self.schema.dims, self.settings, self.horizon)
        return {f"{name}.": make for name, make in makes.items() if name == "encoder" or self.horizon > 1}

    def encode_history(self, member: int, panel: PanelTensors) -> EdctStates:
        """Return what a member knows of every history of a scaled panel."""
        makes = self.networks()
        encoder, *decoder = (member_module(make(), submodule(self.params, p), member) for p, make in makes.items())
        known = encode_edct(encoder, panel.history_NTS, panel.v_NV)
        return EdctStates(encoder, decoder[0] if decoder else None, known, panel.v_NV)


def edct_networks(dims: Dims, settings: EdctConfig, horizon: int) -> dict[str, Callable[[], Any]]:
    """Return what makes the encoder, and the decoder of the steps after the first."""
    width = settings.encoder.representation
    return {
        "encoder": partial(EdctEncoder, dims, settings.encoder),
        "decoder": partial(EdctDecoder, dims, width, horizon - 1, settings.decoder),
    }


@dataclass(frozen=True)
class EdctMethod(ReadsModels):
    """The encoder-decoder causal transformer (spec EDCT-1 to 5)."""

    model = EdctModel

    name: str = "edct"

    def fit(self, task: FitTask) -> Fit:
        """Train the encoder, then the decoder on its representations; few-shot starts from both of the source's.

        Raises:
            DataError: no subject is long enough to learn the later steps from.
            MismatchError: the model to start from is of a different method, or has fewer members than asked for.
            UsageError: the settings give the networks a different shape than what to start from.
        """
        settings = task.settings_of(EdctConfig)
        makes = edct_networks(task.schema.dims, settings, task.horizon)
        objective = partial(
            BalancingObjective.over,
            balancing=settings.balancing,
            alpha=settings.alpha,
            averaging=settings.averaging,
            mode=task.schema.treatments.mode,
        )

        def stage(name: str, training: NetworkTraining[Any]) -> Stage:
            return SeriesStage(training, objective) if name == "encoder" else DecoderStage(training, objective)

        def encode(panel: PanelTensors, encoder_R: Params) -> Tensor:
            encoders = [member_module(makes["encoder"](), encoder_R, member) for member in range(n_members(encoder_R))]
            return torch.stack([encode_edct(one, panel.history_NTS[:, :-1], panel.v_NV) for one in encoders])

        return (
            yield from encoder_then_decoder(
                task,
                self.name,
                settings,
                makes,
                [task.tensors(task.train), task.tensors(task.validation)],
                stage=stage,
                encode=encode,
                start=EdctModel.start_of(task, self.name, settings),
            )
        )


EDCT = EdctMethod()
