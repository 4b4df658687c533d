"""The causal transformer: treatments, outcomes and covariates as streams that attend to themselves and each other."""

import torch
from torch import Tensor, nn

from costar_cli.methods.shared.balancing import BalancingHead
from costar_cli.methods.shared.dropout import Masks, MaskShapes, masked, per_kept
from costar_cli.methods.shared.members import Dims
from costar_cli.methods.shared.relative_attention import RelativeTables
from costar_cli.methods.transformers.settings import TransformerConfig
from costar_cli.methods.transformers.units import Attention, BalancedNetwork, FeedForward

KNOWN = [0, 1]  # numbers of the streams that go on after the origin: treatments and outcomes
COVARIATES = 2  # number of the covariates' stream


class CtBlock(nn.Module):
    """Self-attention of each stream, cross-attention to each other stream, feed-forward (spec CT-2).

    Cross-attention asks with what self-attention returned, and finds keys and values in the block's inputs.
    """

    asking: Tensor  # [U]: the stream that asks in each unit of cross-attention
    source: Tensor  # [U]: the stream that it asks

    def __init__(self, streams: int, config: TransformerConfig) -> None:
        super().__init__()
        pairs = [(asking, source) for asking in range(streams) for source in range(streams) if asking != source]
        self.register_buffer("asking", torch.tensor([pair[0] for pair in pairs]), persistent=False)
        self.register_buffer("source", torch.tensor([pair[1] for pair in pairs]), persistent=False)
        self.streams = streams
        size = (config.width, config.heads, config.dropout)
        self.own = Attention(streams, *size)
        self.cross = Attention(len(pairs), *size)
        self.feed_forward = FeedForward(streams, config.width, config.dropout)

    def units(self, sources: list[int]) -> list[int]:
        """Return the cross-attention units with which treatments and outcomes ask the given streams, in that order."""
        pairs = zip(self.asking.tolist(), self.source.tolist(), strict=True)
        return [unit for unit, (asking, source) in enumerate(pairs) if asking in KNOWN and source in sources]

    def mask_shapes(self, name: str, n_steps: int) -> MaskShapes:
        """Return the dropout masks of one sample."""
        return {
            **self.own.mask_shapes(f"{name}.own", n_steps, n_steps),
            **self.cross.mask_shapes(f"{name}.cross", n_steps, n_steps),
            **self.feed_forward.mask_shapes(name, n_steps),
        }

    def forward(
        self,
        streams_SBTD: Tensor,
        static_BD: Tensor,
        tables: RelativeTables,
        hidden_BT: Tensor | None,
        masks: Masks,
        name: str,
    ) -> Tensor:
        """Return the streams after the block; `hidden_BT` is 1 where nobody may see the covariates, if anywhere."""
        own_SBTD = self.own(streams_SBTD, streams_SBTD, tables, masks, f"{name}.own")
        hidden_BUT = None
        if self.streams > COVARIATES and hidden_BT is not None:
            hidden_BUT = hidden_BT[:, None] * (self.source == COVARIATES)[:, None]
        crossed_UBTD = self.cross(
            own_SBTD[self.asking], streams_SBTD[self.source], tables, masks, f"{name}.cross", hidden_BUT
        )
        mixed_SBTD = crossed_UBTD.unflatten(0, (self.streams, -1)).sum(dim=1) + static_BD[:, None]
        return self.feed_forward(mixed_SBTD, masks, name)  # type: ignore[no-any-return]


class CtStreams(nn.Module):
    """Streams and L blocks; also an encoder of COSTAR's ablations (spec CT-1 to 3, COSTAR-20).

    Args:
        dims: numbers of covariates, treatments, outcomes and statics; covariates and statics may be 0.
        config: shape of the network.
    """

    def __init__(self, dims: Dims, config: TransformerConfig) -> None:
        super().__init__()
        self.dims, self.config = dims, config
        n_covariates, n_treatments, n_outcomes, n_statics = dims
        width = config.width
        self.treatments = nn.Linear(n_treatments, width)
        self.outcomes = nn.Linear(n_outcomes, width)
        self.covariates = nn.Linear(n_covariates, width) if n_covariates else None
        self.statics = nn.Linear(n_statics, width) if n_statics else None
        self.streams = 3 if n_covariates else 2
        self.tables = RelativeTables(2 * config.clip_distance + 1, width // config.heads)
        self.block_list = [CtBlock(self.streams, config) for _ in range(config.layers)]
        self.blocks = nn.ModuleList(self.block_list)

    def mask_shapes(self, n_steps: int) -> MaskShapes:
        """Return the shape of every dropout mask of one sample; `mean` is for the mean of the streams."""
        shapes: MaskShapes = {}
        for index, block in enumerate(self.block_list):
            shapes |= block.mask_shapes(str(index), n_steps)
        return shapes | {"mean": (n_steps, self.config.width)}

    def static_vector(self, statics_BV: Tensor) -> Tensor:
        """Return what every block adds of the statics, `[B,D]`."""
        if self.statics is None:
            return statics_BV.new_zeros(len(statics_BV), self.config.width)
        return self.statics(statics_BV)  # type: ignore[no-any-return]

    def walk(
        self, history_BTS: Tensor, statics_BV: Tensor, hidden_BT: Tensor | None, masks: Masks = None
    ) -> list[Tensor]:
        """Return the streams `[S,B,T,D]` (treatments, outcomes, covariates) before each block and after the last.

        Args:
            history_BTS: `[x_t, a_{t-1}, y_t]`, scaled.
            statics_BV: scaled statics.
            hidden_BT: 1 from the step on at which the covariates are hidden, 0 before; nobody sees those values. None
                where all are visible.
            masks: dropout masks, or none.
        """
        x_BTX, a_BTA, y_BTY = torch.split(history_BTS, list(self.dims[:3]), dim=-1)
        streams = [self.treatments(a_BTA), self.outcomes(y_BTY)]
        if self.covariates is not None:
            visible = x_BTX if hidden_BT is None else x_BTX * (1 - hidden_BT)[..., None]
            streams.append(self.covariates(visible))
        static_BD, places = self.static_vector(statics_BV), [torch.stack(streams)]
        for index, block in enumerate(self.block_list):
            places.append(block(places[-1], static_BD, self.tables, hidden_BT, masks, str(index)))
        return places


class CtNetwork(CtStreams, BalancedNetwork):
    """Streams, L blocks, their mean, balancing head (spec CT-1 to 4)."""

    def __init__(self, dims: Dims, config: TransformerConfig) -> None:
        super().__init__(dims, config)
        self.head = BalancingHead(
            config.width, config.representation, config.hidden, n_treatments=dims[1], n_outcomes=dims[2]
        )

    def trace(
        self, history_BTS: Tensor, statics_BV: Tensor, hidden_BT: Tensor, masks: Masks = None
    ) -> tuple[list[Tensor], Tensor]:
        """Return the streams `[S,B,T,D]` at the entrance of each block, and the representations `[B,T,r]`.

        The arguments are those of `walk`.
        """
        hidden_BT = hidden_BT.to(history_BTS.dtype)
        *entrances, streams_SBTD = self.walk(history_BTS, statics_BV, hidden_BT, masks)
        mean_BTD = self.mean(streams_SBTD, hidden_BT)
        if masks is not None:
            mean_BTD = masked(mean_BTD, masks, "mean") * per_kept(self.config.dropout)
        return entrances, self.head.represent(mean_BTD)

    def mean(self, streams_SBTD: Tensor, hidden_BT: Tensor) -> Tensor:
        """Return the mean of the streams, without the covariates' where they are hidden."""
        total_BTD = streams_SBTD[:COVARIATES].sum(dim=0)
        if self.covariates is None:
            return total_BTD / COVARIATES
        visible_BT1 = (1 - hidden_BT)[..., None]
        return (total_BTD + streams_SBTD[COVARIATES] * visible_BT1) / (COVARIATES + visible_BT1)

    def forward(
        self, history_BTS: Tensor, statics_BV: Tensor, hidden_BT: Tensor, plan_BTA: Tensor, masks: Masks = None
    ) -> tuple[Tensor, Tensor]:
        """Return representations `[B,T,r]`, and scaled outcomes `[B,T,Y]` after the treatments of `plan_BTA`."""
        _, representation_BTr = self.trace(history_BTS, statics_BV, hidden_BT, masks or None)
        return representation_BTr, self.head.outcomes(representation_BTr, plan_BTA)
