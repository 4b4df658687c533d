"""The yardstick: COSTAR's steps of training written down as spec COSTAR-1 to 17 read, with no thought for speed.

One member, eager: every token attends with gathered relative vectors, `nn.Dropout` everywhere, statics broadcast to
every step, N x N logits and log-softmax, every origin's plan and answer cut out of the series.
`tests/benchmarks/test_yardsticks.py` holds it against the fast encoder and head.
"""

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from costar_cli.config.models import EncoderConfig
from costar_cli.methods.costar.encoder import CostarEncoder
from costar_cli.methods.costar.predictor import OutcomePredictor
from costar_cli.methods.costar.supervised import step_weights

__all__ = ["LiteralEncoder", "LiteralFinetuner", "LiteralPretrainer", "literal_info_nce"]


class LiteralNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, u: Tensor) -> Tensor:
        return self.gain * (u - u.mean(-1, keepdim=True)) / (u.std(-1, keepdim=True) + 1e-6) + self.bias


class LiteralAttention(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        d = config.width
        self.heads = config.heads
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.dropout, self.norm = nn.Dropout(config.dropout), LiteralNorm(d)

    def forward(
        self,
        q_in: Tensor,
        kv_in: Tensor,
        masks: tuple[Tensor, Tensor] | None = None,
        tables: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        def split(u: Tensor) -> Tensor:
            return u.view(*u.shape[:2], self.heads, -1).transpose(1, 2)

        q, k, v = split(self.q(q_in)), split(self.k(kv_in)), split(self.v(kv_in))
        score = q @ k.transpose(-1, -2)
        if tables is not None:
            score = score + torch.einsum("bhqn,qkn->bhqk", q, tables[0])
        score = score / math.sqrt(q.shape[-1])
        if masks is not None:
            for mask in masks:  # activity first, then causality
                score = score.masked_fill(~mask, -1e9)
        p = self.dropout(torch.softmax(score, dim=-1))
        o = p @ v
        if tables is not None:
            o = o + torch.einsum("bhqk,qkn->bhqn", p, tables[1])
        return self.norm(o.transpose(1, 2).flatten(2) + q_in)


class LiteralFeedForward(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        d = config.width
        self.inner, self.outer, self.norm = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), LiteralNorm(d)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, u: Tensor) -> Tensor:
        return self.norm(self.dropout(self.outer(self.dropout(torch.relu(self.inner(u))))) + u)


class LiteralLayer(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.temporal, self.temporal_ff = LiteralAttention(config), LiteralFeedForward(config)
        self.feature, self.feature_ff = LiteralAttention(config), LiteralFeedForward(config)

    def forward(self, zs: Tensor, zv: Tensor, active: Tensor, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        b, t, f, d = zs.shape
        causal = torch.ones(t, t, dtype=torch.bool).tril()
        active_queries = active.repeat_interleave(f, dim=0)[:, None, :, None]
        series = zs.transpose(1, 2).reshape(b * f, t, d)
        series = self.temporal_ff(self.temporal(series, series, (active_queries, causal), tables))
        zs, zv = series.view(b, f, t, d).transpose(1, 2), self.temporal_ff(zv)
        tokens = torch.cat([zs, zv[:, None].expand(-1, t, -1, -1)], dim=2).reshape(b * t, f + zv.shape[1], d)
        zs = self.feature_ff(self.feature(tokens, tokens)[:, :f]).view(b, t, f, d)
        return zs, self.feature_ff(self.feature(zv, zv))


class LiteralEncoder(nn.Module):
    """Spec COSTAR-1 to 7, tree feature encoding, component pooling."""

    def __init__(self, dims: tuple[int, int, int, int], config: EncoderConfig) -> None:
        super().__init__()
        d, k = config.width, config.clip_distance
        self.dims, self.clip = dims, k
        self.scalar = nn.Linear(1, d)
        self.component, self.index = nn.Embedding(4, d), nn.Embedding(max(dims), d)
        self.key = nn.Parameter(torch.randn(2 * k + 1, d // config.heads))
        self.value = nn.Parameter(torch.randn(2 * k + 1, d // config.heads))
        self.layers = nn.ModuleList(LiteralLayer(config) for _ in range(config.layers))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, history: Tensor, statics: Tensor, active: Tensor) -> tuple[Tensor, list[Tensor]]:
        dx, da, dy, _ = self.dims
        code = torch.cat([self.component.weight[c] + self.index.weight[:n] for c, n in enumerate(self.dims) if n])
        zs = self.scalar(history[..., None]) + code[: dx + da + dy]
        zv = self.scalar(statics[..., None]) + code[dx + da + dy :]
        t = torch.arange(history.shape[1])
        distance = (t[None] - t[:, None]).clamp(-self.clip, self.clip) + self.clip
        for layer in self.layers:
            zs, zv = layer(zs, zv, active, (self.key[distance], self.value[distance]))
        parts = [zs[:, :, dx + da :], zs[:, :, dx : dx + da], zs[:, :, :dx]]
        components = [part.mean(dim=2) for part in parts if part.shape[2]]
        return self.dropout(torch.stack(components).mean(dim=0)), components

    def load_fast(self, fast: CostarEncoder) -> None:
        """Copy the parameters of the fast encoder."""
        state = {
            "scalar.weight": fast.embedding.scalar.weight,
            "scalar.bias": fast.embedding.scalar.bias,
            "component.weight": fast.embedding.feature.component,
            "index.weight": fast.embedding.feature.index,
            "key": fast.relative.key,
            "value": fast.relative.value,
        }
        for i, layer in enumerate(fast.layer_list):
            for name, block in (("temporal", layer.temporal), ("feature", layer.feature)):
                for part, weight, bias in zip(
                    "qkv", block.unit.qkv.weight.chunk(3), block.unit.qkv.bias.chunk(3), strict=True
                ):
                    state[f"layers.{i}.{name}.{part}.weight"] = weight
                    state[f"layers.{i}.{name}.{part}.bias"] = bias
                norm, ff = block.unit.norm, block.feed_forward
                state |= {f"layers.{i}.{name}.norm.{k}": getattr(norm, k) for k in ("gain", "bias")}
                state |= {f"layers.{i}.{name}_ff.norm.{k}": getattr(ff.norm, k) for k in ("gain", "bias")}
                for linear in ("inner", "outer"):
                    for k in ("weight", "bias"):
                        state[f"layers.{i}.{name}_ff.{linear}.{k}"] = getattr(getattr(ff, linear), k)
        self.load_state_dict({k: v.detach().clone() for k, v in state.items()})


def literal_info_nce(q: Tensor, k: Tensor, temperature: float) -> Tensor:
    """Materialised logits, log-softmax, diagonal."""
    logits = functional.normalize(q, dim=-1) @ functional.normalize(k, dim=-1).T / temperature
    return -2 * temperature * torch.log_softmax(logits, dim=1).diagonal().mean()


def _taken(adam: torch.optim.Adam, loss: Tensor) -> float:
    """Take an optimiser step, and return the loss."""
    adam.zero_grad()
    loss.backward()
    adam.step()
    return loss.item()


class LiteralPretrainer:
    """Spec COSTAR-8 to 11 with default settings, one optimiser step at a time."""

    def __init__(self, dims: tuple[int, int, int, int], config: EncoderConfig) -> None:
        self.encoder = LiteralEncoder(dims, config)
        d = config.width
        self.predictor = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
        self.momentum = copy.deepcopy(self.encoder).requires_grad_(requires_grad=False)
        self.adam = torch.optim.Adam([*self.encoder.parameters(), *self.predictor.parameters()], lr=1e-3)

    def step(self, history: Tensor, statics: Tensor, active: Tensor) -> float:
        """Augment twice, update the momentum encoder, contrast, take an optimiser step."""

        def augment(u: Tensor) -> Tensor:
            for transform in ("scale", "shift", "jitter"):
                if torch.rand(()) < 0.5:
                    noise = torch.randn(u.shape if transform == "jitter" else u.shape[-1:]) * 0.5
                    u = u * (1 + noise) if transform == "scale" else u + noise
            return u

        loss = self.loss((augment(history), augment(history)), statics, active)
        return _taken(self.adam, loss)

    def loss(
        self, views: tuple[Tensor, Tensor], statics: Tensor, active: Tensor, contrasted: Tensor | None = None
    ) -> Tensor:
        """Return the loss of two views, over all active positions or those given; the momentum encoder moves first."""
        contrasted = active if contrasted is None else contrasted

        def encode(encoder: LiteralEncoder, view: Tensor) -> list[Tensor]:
            z, components = encoder(view, statics, active)
            return [representation[contrasted] for representation in (z, *components)]

        queries = [[self.predictor(r) for r in encode(self.encoder, view)] for view in views]
        with torch.no_grad():
            for slow, fast in zip(self.momentum.parameters(), self.encoder.parameters(), strict=True):
                slow.mul_(0.99).add_(0.01 * fast)
            keys = [encode(self.momentum, view) for view in views]
        kinds = zip(*queries, *keys, strict=True)
        pair = [literal_info_nce(q1, k2, 1.0) + literal_info_nce(q2, k1, 1.0) for q1, q2, k1, k2 in kinds]
        return pair[0] + torch.stack(pair[1:]).mean()


class LiteralHead(nn.Module):
    """Spec COSTAR-14 and 15: a causal convolution over earlier treatments, and the treatment of now."""

    def __init__(self, dims: tuple[int, int, int, int], config: EncoderConfig, horizon: int, hidden: int) -> None:
        super().__init__()
        self.past, self.current = nn.Conv1d(dims[1], config.width, horizon), nn.Linear(dims[1], config.width)
        self.first, self.last = nn.Linear(config.width, hidden), nn.Linear(hidden, dims[2])
        self.horizon = horizon

    def forward(self, z_MD: Tensor, plan_MHA: Tensor) -> Tensor:
        earlier = functional.pad(plan_MHA[:, :-1].transpose(1, 2), (self.horizon, 0))
        codes = self.past(earlier).transpose(1, 2) + self.current(plan_MHA)
        answer: Tensor = self.last(torch.relu(self.first(z_MD[:, None] + codes)))
        return answer

    def load_fast(self, fast: OutcomePredictor) -> None:
        """Copy the parameters of the fast head."""
        state = {f"past.{name}": getattr(fast.past, name) for name in ("weight", "bias")}
        state |= {"current.weight": fast.current.weight[..., 0], "current.bias": fast.current.bias}
        for name, layer in zip(("first", "last"), fast.layers, strict=True):
            state |= {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}
        self.load_state_dict({k: v.detach().clone() for k, v in state.items()})


class LiteralFinetuner:
    """Spec COSTAR-14 to 17 with default settings, one optimiser step at a time."""

    def __init__(self, dims: tuple[int, int, int, int], config: EncoderConfig, horizon: int, hidden: int) -> None:
        self.encoder, self.head = LiteralEncoder(dims, config), LiteralHead(dims, config, horizon, hidden)
        self.weight_H = step_weights("inverse", horizon)
        self.adam = torch.optim.Adam([*self.encoder.parameters(), *self.head.parameters()], lr=1e-3)

    def step(
        self, history: Tensor, statics: Tensor, active: Tensor, treatment_BTA: Tensor, outcome_BTY: Tensor
    ) -> float:
        """Predict every origin's next steps, take an optimiser step."""
        loss = self.loss(history, statics, active, treatment_BTA, outcome_BTY)
        return _taken(self.adam, loss)

    def loss(
        self, history: Tensor, statics: Tensor, active: Tensor, treatment_BTA: Tensor, outcome_BTY: Tensor
    ) -> Tensor:
        """Return the weighted squared error of treatments from each position on, and of the outcomes after them."""
        z, _ = self.encoder(history, statics, active)

        def ahead(series: Tensor) -> Tensor:
            padded = functional.pad(series, (0, 0, 0, self.head.horizon - 1))
            return padded.unfold(1, self.head.horizon, 1).transpose(2, 3).flatten(0, 1)

        counts = ahead(active[..., None].to(z))[..., 0]
        predicted = self.head(z.flatten(0, 1), ahead(treatment_BTA))
        error = (predicted - ahead(outcome_BTY)).square().sum(dim=-1)
        return (error * counts * self.weight_H.to(z)).sum() / counts.sum()
