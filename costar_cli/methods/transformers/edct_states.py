"""What EDCT knows of a panel, and how its decoder walks into a plan (spec EDCT-5)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from costar_cli.methods.transformers.cached import Kept, Relative, attend
from costar_cli.methods.transformers.edct_network import EdctDecoder, EdctEncoder
from costar_cli.methods.transformers.encode import encode_in_pieces
from costar_cli.methods.transformers.units import Tables

__all__ = ["EdctStates", "encode_edct"]


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
        series = [Kept.of_series(block.cross, representation_CTr[None]) for block in blocks]

        def begin(subject_M: Tensor, origin: int) -> EdctWalk:
            kept = [memory.prefix(subject_M, origin) for memory in series]
            return EdctWalk(self, kept, representation_CTr[subject_M, origin], statics_CV[subject_M], origin)

        return begin


def encode_edct(encoder: EdctEncoder, history_NTS: Tensor, statics_NV: Tensor) -> Tensor:
    """Return the representations `[N,T,r]` by one member, whose parameters the encoder holds."""

    def encode(history_BTS: Tensor, statics_BV: Tensor) -> tuple[Tensor, ...]:
        return (encoder.represent(history_BTS, statics_BV),)

    (representation_NTr,) = encode_in_pieces(encode, encoder, history_NTS, statics_NV)
    return representation_NTr


class EdctWalk:
    """M histories that end at one origin, and the decoder's steps since, for G plans of each."""

    def __init__(
        self, states: EdctStates, kept: list[Kept], representation_Mr: Tensor, statics_MV: Tensor, origin: int
    ) -> None:
        self.states, self.kept, self.origin = states, kept, origin
        self.representation_Mr, self.statics_MV = representation_Mr, statics_MV
        self.since: list[Kept | None] = [None for _ in kept]
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
            since = self.since[index] = Kept.grown(self.since[index], block.own, tokens)
            own = attend(block.own, tokens, plan, since=since)
            tokens = block.feed_forward(attend(block.cross, own, memory, past=self.kept[index]))
        return decoder.head.outcomes(decoder.head.represent(tokens[0]), treatment_MGA)


def _rows(tables: Tables, *, nearest: int, count: int, zero_row: int) -> Relative:
    keys, values = tables()
    return Relative.at(keys, values, nearest, count, zero_row)
