"""EDCT's networks: self-attention over the history; over the plan, with a look back (spec EDCT-1 to 3)."""

import torch
from torch import Tensor, nn

from costar_cli.methods.shared.balancing import BalancingHead
from costar_cli.methods.shared.dropout import Masks, MaskShapes, masked, per_kept
from costar_cli.methods.shared.members import Dims
from costar_cli.methods.shared.relative_attention import RelativeTables
from costar_cli.methods.transformers.plan_attention import look_back, short_causal_attention
from costar_cli.methods.transformers.settings import EdctDecoderConfig, EdctEncoderConfig
from costar_cli.methods.transformers.units import Attention, BalancedNetwork, FeedForward

SHORT = 512  # products behind the scores of a sample and head, up to which they are taken one by one (measured)


class EncoderBlock(nn.Module):
    """Causal self-attention with an output projection, then feed-forward."""

    def __init__(self, config: EdctEncoderConfig) -> None:
        super().__init__()
        self.own = Attention(1, config.width, config.heads, config.dropout, projected=True)
        self.feed_forward = FeedForward(1, config.width, config.dropout)

    def mask_shapes(self, name: str, n_steps: int) -> MaskShapes:
        """Return the dropout masks of one sample."""
        own = self.own.mask_shapes(f"{name}.own", n_steps, n_steps)
        return own | self.feed_forward.mask_shapes(name, n_steps)

    def forward(self, tokens_1BTD: Tensor, tables: RelativeTables, masks: Masks, name: str) -> Tensor:
        """Return the tokens after the block."""
        own = self.own(tokens_1BTD, tokens_1BTD, tables, masks, f"{name}.own")
        return self.feed_forward(own, masks, name)  # type: ignore[no-any-return]


class EdctEncoder(BalancedNetwork):
    """Histories to balanced representations, and the outcome one step ahead (spec EDCT-1).

    Args:
        dims: numbers of covariates, treatments, outcomes and statics.
        config: shape of the network.
    """

    def __init__(self, dims: Dims, config: EdctEncoderConfig) -> None:
        super().__init__()
        _, n_treatments, n_outcomes, _ = dims
        self.config = config
        self.embedding = nn.Linear(sum(dims), config.width)
        self.tables = RelativeTables(2 * config.clip_distance + 1, config.width // config.heads)
        self.block_list = [EncoderBlock(config) for _ in range(config.layers)]
        self.blocks = nn.ModuleList(self.block_list)
        self.head = BalancingHead(
            config.width, config.representation, config.hidden, n_treatments=n_treatments, n_outcomes=n_outcomes
        )

    def mask_shapes(self, n_steps: int) -> MaskShapes:
        """Return the shape of every dropout mask of one sample."""
        shapes: MaskShapes = {}
        for index, block in enumerate(self.block_list):
            shapes |= block.mask_shapes(str(index), n_steps)
        return shapes | {"output": (n_steps, self.config.width)}

    def represent(self, history_BTS: Tensor, statics_BV: Tensor, masks: Masks = None) -> Tensor:
        """Return the representations `[B,T,r]` of histories `[x_t, a_{t-1}, y_t]`."""
        statics_BTV = statics_BV[:, None].expand(-1, history_BTS.shape[1], -1)
        tokens_1BTD = self.embedding(torch.cat([history_BTS, statics_BTV], dim=-1))[None]
        for index, block in enumerate(self.block_list):
            tokens_1BTD = block(tokens_1BTD, self.tables, masks, str(index))
        return self.head.represent(dropped(tokens_1BTD.squeeze(0), masks, self.config.dropout))

    def forward(
        self, history_BTS: Tensor, statics_BV: Tensor, plan_BTA: Tensor, masks: Masks = None
    ) -> tuple[Tensor, Tensor]:
        """Return representations `[B,T,r]`, and scaled outcomes `[B,T,Y]` after the treatments of `plan_BTA`."""
        representation_BTr = self.represent(history_BTS, statics_BV, masks or None)
        return representation_BTr, self.head.outcomes(representation_BTr, plan_BTA)


class DecoderBlock(nn.Module):
    """Causal self-attention over the plan, cross-attention to the encoder's representations, feed-forward."""

    def __init__(self, width: int, config: EdctDecoderConfig) -> None:
        super().__init__()
        self.own = Attention(1, width, config.heads, config.dropout)
        self.cross = Attention(1, width, config.heads, config.dropout)
        self.feed_forward = FeedForward(1, width, config.dropout)

    def mask_shapes(self, name: str, steps: int, n_history: int) -> MaskShapes:
        """Return the dropout masks of one sample."""
        return {
            **self.own.mask_shapes(f"{name}.own", steps, steps),
            **self.cross.mask_shapes(f"{name}.cross", steps, n_history),
            **self.feed_forward.mask_shapes(name, steps),
        }

    def forward(
        self,
        tokens_1BJD: Tensor,
        memory_BWr: Tensor,
        hidden_BW: Tensor,
        tables: tuple[RelativeTables, RelativeTables],
        masks: Masks,
        name: str,
    ) -> Tensor:
        """Return the tokens of J steps of the plan after the block; `tables` are those of the plan and of memory."""
        own = self._own(tokens_1BJD, tables[0], masks, f"{name}.own")
        looked_back = self._look_back(own, memory_BWr, hidden_BW, tables[1], masks, f"{name}.cross")
        return self.feed_forward(looked_back, masks, name)  # type: ignore[no-any-return]

    def _own(self, tokens_1BJD: Tensor, tables: RelativeTables, masks: Masks, name: str) -> Tensor:
        """Return causal self-attention over the J steps of the plan."""
        steps = tokens_1BJD.shape[2]
        if steps**2 * tokens_1BJD.shape[3] // self.own.heads > SHORT:
            return self.own(tokens_1BJD, tokens_1BJD, tables, masks, name)  # type: ignore[no-any-return]
        q, k, v = (x.squeeze(0) for x in (self.own.queries(tokens_1BJD), *self.own.keys_values(tokens_1BJD)))
        step_J = torch.arange(steps, device=q.device)
        row_JJ = (step_J - step_J[:, None]).clamp(max=0) + len(tables.key) // 2  # of the future's, any row will do
        key_table, value_table = tables()
        mask = None if masks is None else masks[name][:, 0]
        o_BJhn = short_causal_attention(q, k, v, key_table[row_JJ], value_table[row_JJ], mask)
        return self.own.finish((o_BJhn if masks is None else o_BJhn * self.own.per_kept)[None], tokens_1BJD)

    def _look_back(
        self, own_1BJD: Tensor, memory_BWr: Tensor, hidden_BW: Tensor, tables: RelativeTables, masks: Masks, name: str
    ) -> Tensor:
        """Return cross-attention to all W steps of memory, the youngest of which is the origin.

        Memory is much longer than the plan, so queries are taken to memory instead of memory to keys and values:
        `q . (K m + b) = (K' q) . m + q . b`, whose last term softmax ignores, and `sum p (V m + b) = V sum p m + ...`.
        Distances at or beyond the clip share a row of the tables; less that row, only the nearest steps have one.
        """
        q_BJhn = self.cross.queries(own_1BJD).squeeze(0)
        width = memory_BWr.shape[2]
        key, value = (w.view(self.cross.heads, -1, width) for w in self.cross.key_value.weight.squeeze(0).chunk(2))
        bias_hn = self.cross.key_value.bias.squeeze(0).view(2, *q_BJhn.shape[2:])[1]
        clip_distance = len(tables.key) - 1
        farthest = q_BJhn.shape[1] + min(clip_distance, memory_BWr.shape[1]) - 2
        row_E = (clip_distance - torch.arange(farthest, -1, -1, device=q_BJhn.device)).clamp(min=0)
        key_table, value_table = tables()
        asking_BJhr = (q_BJhn.flatten(2) @ _side_by_side(key)).view(*q_BJhn.shape[:3], width)
        near_BJhE = q_BJhn @ (key_table[row_E] - key_table[0]).T
        mask = None if masks is None else masks[name][:, 0]
        seen_BJhr, near_BJhE, total_BJh1 = look_back(asking_BJhr, near_BJhE, memory_BWr, hidden_BW, mask)
        o_BJhn = (seen_BJhr.flatten(2) @ _side_by_side(value).T).view_as(q_BJhn)
        o_BJhn = o_BJhn + near_BJhE @ (value_table[row_E] - value_table[0]) + total_BJh1 * (bias_hn + value_table[0])
        return self.cross.finish((o_BJhn if masks is None else o_BJhn * self.cross.per_kept)[None], own_1BJD)


def _side_by_side(weight_hnr: Tensor) -> Tensor:
    """Return the maps of all heads as one, `[h*n,h*r]`, zero between different heads."""
    same_hh = torch.eye(len(weight_hnr), device=weight_hnr.device, dtype=weight_hnr.dtype)
    return (weight_hnr[:, :, None] * same_hh[:, None, :, None]).flatten(2).flatten(0, 1)


class EdctDecoder(BalancedNetwork):
    """The plan after its first step, one outcome per step (spec EDCT-2).

    Args:
        dims: numbers of covariates, treatments, outcomes and statics; covariates are not read.
        width: the encoder's representation r, which is also the decoder's width.
        steps: P, steps of the plan after the first; relative positions among them are clipped there.
        config: shape of the network.
    """

    def __init__(self, dims: Dims, width: int, steps: int, config: EdctDecoderConfig) -> None:
        super().__init__()
        _, n_treatments, n_outcomes, n_statics = dims
        self.config, self.steps, self.width = config, steps, width
        self.embedding = nn.Linear(n_treatments + n_outcomes + n_statics, width)
        self.own_tables = RelativeTables(2 * steps + 1, width // config.heads)
        self.cross_tables = RelativeTables(config.clip_distance + 1, width // config.heads)
        self.block_list = [DecoderBlock(width, config) for _ in range(config.layers)]
        self.blocks = nn.ModuleList(self.block_list)
        self.head = BalancingHead(
            width, config.representation, config.hidden, n_treatments=n_treatments, n_outcomes=n_outcomes
        )

    def mask_shapes(self, n_steps: int) -> MaskShapes:
        """Return the shape of every dropout mask of one sample; `n_steps` are the steps of the history."""
        shapes: MaskShapes = {}
        for index, block in enumerate(self.block_list):
            shapes |= block.mask_shapes(str(index), self.steps, n_steps)
        return shapes | {"output": (self.steps, self.width)}

    def forward(
        self, memory_BWr: Tensor, hidden_BW: Tensor, inputs_BJI: Tensor, plan_BJA: Tensor, masks: Masks = None
    ) -> tuple[Tensor, Tensor]:
        """Return representations `[B,J,r']` and scaled outcomes `[B,J,Y]` of the steps after the first.

        Args:
            memory_BWr: the encoder's representations of the history, the origin's last.
            hidden_BW: 1 where there was no such step.
            inputs_BJI: `[a_{t-1}, y_t, v]` per step.
            plan_BJA: treatments of the steps.
            masks: dropout masks, or none.
        """
        masks = masks or None
        tokens_1BJD = self.embedding(inputs_BJI)[None]
        for index, block in enumerate(self.block_list):
            tables = (self.own_tables, self.cross_tables)
            tokens_1BJD = block(tokens_1BJD, memory_BWr, hidden_BW, tables, masks, str(index))
        representation_BJr = self.head.represent(dropped(tokens_1BJD.squeeze(0), masks, self.config.dropout))
        return representation_BJr, self.head.outcomes(representation_BJr, plan_BJA)


def dropped(values: Tensor, masks: Masks, rate: float) -> Tensor:
    """Return what dropout leaves of a network's output; all of it without masks."""
    return values if masks is None else masked(values, masks, "output") * per_kept(rate)
