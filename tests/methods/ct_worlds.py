"""Small worlds for the transformers: their settings, fits that take a second, and the formulas written out."""

from collections.abc import Callable

import torch
from torch import Tensor

from costar_cli.config.models import Config, FinetuneConfig, RuntimeConfig
from costar_cli.data import Dataset, Panel, Queries, Scaler
from costar_cli.methods.base import FitTask, FittedModel, Place
from costar_cli.methods.shared.relative_attention import RelativeTables
from costar_cli.methods.transformers.ct_network import CtNetwork
from costar_cli.methods.transformers.model import TransformerModel
from costar_cli.methods.transformers.settings import CtConfig, CtErmConfig, EdctConfig
from costar_cli.methods.transformers.units import Attention, FeedForward, Norm
from costar_cli.training import Trained
from tests.fits import fit_method, model_of
from tests.methods import rnn_worlds

SMALL = {"batch_size": 16, "learning_rate": 0.01}
CT_SHAPE = {"width": 8, "representation": 6, "hidden": 5, "layers": 2, "clip_distance": 4, **SMALL}
EDCT_SHAPE = {
    "encoder": {"width": 8, "representation": 6, "hidden": 5, "clip_distance": 4, **SMALL},
    "decoder": {"representation": 5, "hidden": 4, "clip_distance": 3, "batch_size": 64, "learning_rate": 0.01},
}
SETTINGS: dict[str, Config] = {
    "ct": CtConfig.model_validate({"network": CT_SHAPE}),
    "ct-erm": CtErmConfig.model_validate({"network": CT_SHAPE}),
    "edct": EdctConfig.model_validate(EDCT_SHAPE),
    "edct with confusion": EdctConfig.model_validate(
        {"balancing": "confusion", "alpha": 0.01, "averaging": 0.99, **EDCT_SHAPE}
    ),
}
EXACT = RuntimeConfig(device="cpu", precision="float64")


def fit(
    name: str,
    dataset: Dataset,
    start: FittedModel | None = None,
    runtime: RuntimeConfig | None = None,
    **changes: object,
) -> tuple[Trained, TransformerModel]:
    """Fit a method of `SETTINGS` and read what it stored."""
    domain, settings = changes.pop("domain", "source"), changes.pop("settings", SETTINGS[name])
    config = FinetuneConfig.model_validate({"epochs": 2, "members": 2, "seed": 5, "select_on": "own-loss", **changes})
    method = name.split(maxsplit=1)[0]
    trained = fit_method(dataset, method, settings, config, runtime=runtime, domain=domain, start=start)
    return trained, model_of(trained)


def task(dataset: Dataset, name: str, *, members: int = 1, **changes: object) -> FitTask:
    """Return what a method would be fitted to, in double precision."""
    config = FinetuneConfig.model_validate({"epochs": 4, "seed": 5, **changes})
    scaler = Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    return FitTask(
        dataset.schema, dataset.horizon, "source", dataset.panels, scaler, config, SETTINGS[name], members, None,
        Place(precision="float64"),
    )  # fmt: skip


def ask(dataset: Dataset, panel: Panel, n: int = 40, horizon: int | None = None) -> Queries:
    """Return queries at random origins, the first and the last observed step among them, with random plans."""
    queries = rnn_worlds.ask(dataset, panel, n, horizon)
    for values in (queries.subject, queries.origin):
        values[-6:] = values[1]  # several plans of one history
    return queries


def normalised(norm: Norm, unit: int, values: Tensor) -> Tensor:
    """Return the layer norm, written out (spec NET-5)."""
    centred = values - values.mean(dim=-1, keepdim=True)
    return norm.gain[unit] * centred / (values.std(dim=-1, correction=1, keepdim=True) + 1e-6) + norm.bias[unit]


def attended(
    attention: Attention,
    unit: int,
    q_in: Tensor,
    kv_in: Tensor,
    allowed_BQK: Tensor,
    row_QK: Tensor,
    tables: RelativeTables,
    factor: Tensor | float = 1.0,
) -> Tensor:
    """Return one attention unit, written out (spec NET-7).

    `row_QK` are the rows of the relative tables, `factor` is what dropout multiplies the probabilities with.
    """
    heads = attention.heads
    width = q_in.shape[-1]
    q = q_in @ attention.query.weight[unit].T + attention.query.bias[unit]
    k, v = (kv_in @ attention.key_value.weight[unit].T + attention.key_value.bias[unit]).split(width, dim=-1)
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v))
    keys, values = tables.key[row_QK], tables.value[row_QK]
    score = (q @ k.transpose(-1, -2) + torch.einsum("bhqn,qkn->bhqk", q, keys)) / (width / heads) ** 0.5
    p = torch.softmax(score.masked_fill(~allowed_BQK[:, None], -torch.inf), dim=-1).nan_to_num(0) * factor
    o = p @ v + torch.einsum("bhqk,qkn->bhqn", p, values)
    together = o.transpose(1, 2).flatten(-2)
    if attention.output is not None:
        together = together @ attention.output.weight[unit].T + attention.output.bias[unit]
    return normalised(attention.norm, unit, together + q_in)


def fed_forward(
    feed_forward: FeedForward, unit: int, values: Tensor, factors: tuple[Tensor | float, Tensor | float] = (1.0, 1.0)
) -> Tensor:
    """Return one feed-forward unit, written out (spec NET-8), with dropout factors after both maps."""
    inner, outer = feed_forward.inner, feed_forward.outer
    hidden = torch.relu(values @ inner.weight[unit].T + inner.bias[unit]) * factors[0]
    out = (hidden @ outer.weight[unit].T + outer.bias[unit]) * factors[1]
    return normalised(feed_forward.norm, unit, out + values)


def causal_rows(n_steps: int, clip: int) -> Tensor:
    """Return the rows `[T,T]` of relative tables of `2 clip + 1` rows."""
    step = torch.arange(n_steps)
    return (step[None] - step[:, None]).clamp(-clip, clip) + clip


def literal_ct(net: CtNetwork, history: Tensor, statics: Tensor, hidden_BT: Tensor, plan: Tensor) -> Tensor:
    """Return the outcomes `[B,T,dy]` of a causal transformer, unit by unit (spec CT-2)."""
    x, a, y = history.split(list(net.dims[:3]), dim=-1)
    n_steps = history.shape[1]
    causal = torch.ones(n_steps, n_steps, dtype=torch.bool).tril().expand(len(history), -1, -1)
    seen = causal & ~hidden_BT[:, None].bool()
    sv = net.statics(statics)[:, None] if net.statics is not None else 0
    streams = {"t": net.treatments(a), "o": net.outcomes(y)}
    if net.covariates is not None:
        streams["v"] = net.covariates(x * (1 - hidden_BT[..., None]))
    names = list(streams)
    for block in net.block_list:
        look = attender(net, n_steps)
        own = {s: look(block.own, i, streams[s], streams[s], causal) for i, s in enumerate(names)}
        pairs = [(s, o) for s in names for o in names if s != o]
        crossed = dict.fromkeys(names, sv)
        for unit, (s, o) in enumerate(pairs):
            crossed[s] = crossed[s] + look(block.cross, unit, own[s], streams[o], seen if o == "v" else causal)
        streams = {s: fed_forward(block.feed_forward, i, crossed[s]) for i, s in enumerate(names)}
    total = streams["t"] + streams["o"]
    mean = total / 2
    if "v" in streams:
        mean = torch.where(hidden_BT[..., None].bool(), mean, (total + streams["v"]) / 3)
    return net.head.outcomes(net.head.represent(mean), plan)


def attender(net: CtNetwork, n_steps: int) -> Callable[..., Tensor]:
    """Return `attended` with a causal transformer's tables."""
    rows = causal_rows(n_steps, net.config.clip_distance)
    return lambda attention, unit, q, kv, allowed: attended(attention, unit, q, kv, allowed, rows, net.tables)
