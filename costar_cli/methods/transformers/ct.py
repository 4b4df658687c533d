"""CT and CT(ERM): training, what they know of a panel, and the walk from an origin into a plan (spec CT-1 to 7)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.shared.members import Params, member_module
from costar_cli.methods.shared.rolled_model import fit_rolled
from costar_cli.methods.shared.stage import NetworkTraining, one_stage
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.trained import ReadsModels
from costar_cli.methods.shared.windows import SubjectRows, Windows
from costar_cli.methods.transformers.balancing_objective import BalancingObjective
from costar_cli.methods.transformers.ct_network import COVARIATES, KNOWN, CtBlock, CtNetwork
from costar_cli.methods.transformers.kv_cache import KeyValueCache, Relative, attend, past_and_since
from costar_cli.methods.transformers.model import TransformerModel
from costar_cli.methods.transformers.rolled import RolledStreams, RolledStreamsModel
from costar_cli.methods.transformers.settings import CausalTransformerConfig, CtConfig, CtErmConfig
from costar_cli.methods.transformers.stage import Batch, PartName, SeriesStage
from costar_cli.methods.transformers.units import encode_series


@dataclass(frozen=True)
class CtStates:
    """One member's pass over a panel: what entered each block, `[S,N,T,D]`, and what came of it.

    Keys and values of the blocks are linear in this; they are formed for the subjects at hand.
    """

    network: CtNetwork
    entrances: tuple[Tensor, ...]
    representation_NTr: Tensor
    static_ND: Tensor

    @property
    def kept_per_step(self) -> int:
        """Return how many numbers of a prefix are kept per step while its queries are answered."""
        per_block = 4 if self.network.covariates is None else 6
        return 2 * per_block * self.network.config.width * len(self.entrances)

    @property
    def scores_per_step(self) -> int:
        """Return how many attention scores a plan has per step of the prefix."""
        return len(KNOWN) * self.network.config.heads

    def walks(self, subjects: slice) -> Callable[[Tensor, int], "CtWalk"]:
        """Return what begins a walk from some of these subjects, counted from the slice's start, and an origin."""
        blocks = [
            BlockKeys.of_series(block, entrance[:, subjects])
            for block, entrance in zip(self.network.block_list, self.entrances, strict=True)
        ]
        representation_CTr, static_CD = self.representation_NTr[subjects], self.static_ND[subjects]

        def begin(subject_M: Tensor, origin: int) -> CtWalk:
            kept = [block.prefix(subject_M, origin) for block in blocks]
            return CtWalk(self.network, kept, representation_CTr[subject_M, origin], static_CD[subject_M], origin)

        return begin


class BlockKeys(NamedTuple):
    """Keys and values of a block's prefix: of each stream for itself, of the other stream, of the covariates."""

    own: KeyValueCache
    cross: KeyValueCache
    covariates: KeyValueCache | None

    @classmethod
    def of_series(cls, block: CtBlock, entrance_SNTD: Tensor) -> "BlockKeys":
        """Return those of every step of N series."""
        own = KeyValueCache.of_series(block.own, entrance_SNTD[KNOWN], KNOWN)
        cross = KeyValueCache.of_series(block.cross, entrance_SNTD[KNOWN[::-1]], block.units(KNOWN))
        if block.streams <= COVARIATES:
            return cls(own, cross, None)
        seen = entrance_SNTD[[COVARIATES] * len(KNOWN)]
        return cls(own, cross, KeyValueCache.of_series(block.cross, seen, block.units([COVARIATES])))

    def prefix(self, subject_M: Tensor, origin: int) -> "BlockKeys":
        """Return those of the steps up to an origin, of some of the series."""
        covariates = self.covariates.prefix(subject_M, origin) if self.covariates else None
        return BlockKeys(self.own.prefix(subject_M, origin), self.cross.prefix(subject_M, origin), covariates)


class CtWalk:
    """M histories that end at one origin, and what the steps since have added, for G plans of each."""

    def __init__(
        self, network: CtNetwork, kept: list[BlockKeys], representation_Mr: Tensor, static_MD: Tensor, origin: int
    ) -> None:
        self.network, self.kept, self.origin = network, kept, origin
        self.representation_Mr, self.static_MD = representation_Mr, static_MD
        self.since: list[tuple[KeyValueCache | None, KeyValueCache | None]] = [(None, None) for _ in kept]
        self.steps = 0

    def first(self, treatment_MGA: Tensor) -> Tensor:
        """Return scaled outcomes `[M,G,Y]` one step after the origin."""
        representation_MGr = self.representation_Mr[:, None].expand(-1, treatment_MGA.shape[1], -1)
        return self.network.head.outcomes(representation_MGr, treatment_MGA)

    def next(self, outcome_MGY: Tensor, previous_MGA: Tensor, treatment_MGA: Tensor) -> Tensor:
        """Return outcomes one step later, after outcomes that are taken for true and the treatment before them."""
        tokens_2MGD = torch.stack([self.network.treatments(previous_MGA), self.network.outcomes(outcome_MGY)])
        self.steps += 1
        past = self._relative(nearest=self.steps, count=self.origin + 1)
        everything = past_and_since(past, self._relative(nearest=0, count=self.steps))
        for index, block in enumerate(self.network.block_list):
            kept, (own_since, cross_since), pairs = self.kept[index], self.since[index], block.units(KNOWN)
            own_since = KeyValueCache.grown(own_since, block.own, tokens_2MGD, KNOWN)
            cross_since = KeyValueCache.grown(cross_since, block.cross, tokens_2MGD[KNOWN[::-1]], pairs)
            self.since[index] = own_since, cross_since
            own = attend(block.own, tokens_2MGD, everything, past=kept.own, since=own_since, units=KNOWN)
            mixed = attend(block.cross, own, everything, past=kept.cross, since=cross_since, units=pairs)
            if kept.covariates is not None:
                mixed = mixed + attend(block.cross, own, past, past=kept.covariates, units=block.units([COVARIATES]))
            tokens_2MGD = block.feed_forward(mixed + self.static_MD[:, None], units=KNOWN)
        representation_MGr = self.network.head.represent(tokens_2MGD.mean(dim=0))
        return self.network.head.outcomes(representation_MGr, treatment_MGA)

    def _relative(self, nearest: int, count: int) -> Relative:
        keys, values = self.network.tables()
        return Relative.at(keys, values, nearest, count, zero_row=len(keys) // 2)


class CtStage(SeriesStage[CtNetwork]):
    """Whole series; in training each comes twice where there are covariates, the copy losing them at a random step."""

    def inputs(self, part: PartName, windows: Windows, streams: Sequence[Stream]) -> Batch:
        """Return the subjects and, in training, their copies whose covariates are hidden from a split on.

        The split is uniform on 0 to the number of active positions, per subject, from the member's stream.
        """
        active_RBT = windows.active
        hidden_RBT = torch.zeros_like(active_RBT)
        if part == "train" and self.network.covariates is not None:
            length_RB = active_RBT.sum(dim=-1)
            shape, device = length_RB.shape[1:], length_RB.device
            u_RB = torch.stack([stream.uniform(*shape, device=device) for stream in streams]).to(length_RB)
            split_RB = torch.floor(u_RB * (length_RB + 1))
            step_T = torch.arange(hidden_RBT.shape[-1], device=hidden_RBT.device)
            hidden_RBT = torch.cat([hidden_RBT, (step_T >= split_RB[..., None]).to(hidden_RBT)], dim=1)
            windows = windows.twice()
        return Batch((windows.history, windows.statics_RBV, hidden_RBT, windows.treatment), windows)


@dataclass(frozen=True)
class CtModel(TransformerModel):
    """A trained causal transformer."""

    def networks(self) -> dict[str, Callable[[], CtNetwork]]:
        """Return the one network, whose name its parameters do not have."""
        return {"": partial(CtNetwork, self.schema.dims, self.settings.network)}

    def encode_history(self, member: int, panel: PanelTensors) -> CtStates:
        """Return what a member knows of every history of a scaled panel.

        Covariates are visible throughout: a history ends before they are hidden, and attention is causal.
        """
        network = member_module(self.networks()[""](), self.params, member)

        def encode(history_BTS: Tensor, statics_BV: Tensor) -> tuple[Tensor, ...]:
            entrances, representation = network.trace(history_BTS, statics_BV, torch.zeros_like(history_BTS[..., 0]))
            return representation, *(entrance_SBTD.transpose(0, 1) for entrance_SBTD in entrances)

        representation_NTr, *entrances = encode_series(network, encode, panel.history_NTS, panel.v_NV)
        return CtStates(
            network,
            tuple(entrance_NSTD.transpose(0, 1) for entrance_NSTD in entrances),
            representation_NTr,
            network.static_vector(panel.v_NV),
        )


@dataclass(frozen=True)
class CtMethod(ReadsModels):
    """The causal transformer: one network on streams of treatments, outcomes and covariates (spec CT-1 to 7)."""

    model = CtModel
    rolled = RolledStreamsModel

    name: str = "ct"
    defaults: type[CausalTransformerConfig] = CtConfig

    def fit(self, task: FitTask) -> Fit:
        """Train from scratch, or from the source's model (few-shot).

        Raises:
            MismatchError: the model to start from is of a different method, or has fewer members than asked for.
            UsageError: the settings give the network a different shape than what to start from.
        """
        settings = task.settings_of(self.defaults)
        if settings.outputs.structured:
            of_network = settings.network.training(task.config)
            # States are rolled out (spec NET-21), and weights averaged after each step.
            optimiser = of_network.optimiser.model_copy(update={"averaging": settings.averaging})
            balancing, alpha = settings.balance
            return (
                yield from fit_rolled(
                    task,
                    self.name,
                    settings.network,
                    partial(RolledStreams, task.schema, settings),
                    RolledStreamsModel.start_of(task, self.name, settings),
                    of_network.model_copy(update={"optimiser": optimiser}),
                    balance=None if balancing == "none" else (balancing, alpha),
                )
            )
        start = CtModel.start_of(task, self.name, settings)
        stage = ct_stage(task, settings, self.name, start.params if start else None)
        return (yield from one_stage(task, stage, lambda params_R, _: Fitted(params_R)))


CT, CT_ERM = CtMethod(), CtMethod("ct-erm", CtErmConfig)


def ct_stage(task: FitTask, settings: CausalTransformerConfig, name: str, start_R: Params | None) -> CtStage:
    """Return the one stage of the fit."""
    balancing, alpha = settings.balance
    training = NetworkTraining(
        name=task.stage_name(name),
        make=partial(CtNetwork, task.schema.dims, settings.network),
        network=settings.network,
        config=settings.network.training(task.config),
        train=SubjectRows(task.tensors(task.train)),
        validation=SubjectRows(task.tensors(task.validation)),
        start_R=start_R,
    )
    mode = task.schema.treatments.mode
    return CtStage(
        training,
        partial(BalancingObjective.over, balancing=balancing, alpha=alpha, averaging=settings.averaging, mode=mode),
    )
