"""Scoring the full test sets: encode every subject once, or re-encode every query's own history.

    python -m benchmarks.scoring [--json] [--out FILE] [--quick] [--sample 2048]

Test sets of paper size, 1,000 source patients (gamma 10) and 1,000 target patients (gamma 0), each with a one-step and
a sequence query set, one member, float32. *Once* is what `costar evaluate` does: `CostarModel.encode` on each of the
two panels, then `answer` on the query sets of each. *Re-encode* is the same network, in the same fast code, fed as
published code feeds it: one row per query, its history truncated at its origin and padded to the length of the panel,
256 rows at a time. It is timed on a random sample of every set and scaled to the set. The fair rival, *cropped*, sorts
the whole set by the length of the history, so that a batch needs no padding; it is timed on batches spread evenly over
the sorted set. *Literal* re-encodes with the same weights in
the literal encoder (benchmarks/literal_costar.py), which is what a straightforward implementation of the formulas
does; it gets a quarter of the sample.

A faster encoder lowers the ratios, down to the share of the outcome predictor; at most they reach the number of queries
per subject (811 on the source here).

The predictions of the sample are compared. Peak memory is that of a process that simulates the sets and scores them.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.cohort import untrained_model
from benchmarks.literal_costar import LiteralEncoder
from benchmarks.measure import Figure, Measured, Timing, interleaved, run, run_child
from costar_cli.data import Dataset, Panel, Part, Queries
from costar_cli.data.tensors import PanelTensors
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.methods.costar.encoder import CostarEncoder
from costar_cli.methods.costar.model import CostarModel
from costar_cli.methods.costar.predictor import outcome_head
from costar_cli.methods.costar.representation import encode_panel
from costar_cli.methods.shared.members import member_module, submodule
from costar_cli.reporting import NullReporter

__all__ = ["even_batches", "literal_encoder", "main", "re_encode", "score_all"]

GOAL = 300.0
ROWS = 256  # of a re-encoded batch
LITERAL_SHARE = 4  # the literal rival gets this part of the sample: it is slow
Encode = Callable[[Tensor, Tensor, Tensor], Tensor]


def paper_tests(options: argparse.Namespace) -> Dataset:
    """Simulate the two test parts; the training part is there for the scaler alone."""
    patients, days = (20, 20) if options.quick else (1000, 60)
    sizes = {"train": patients, "val": 1, "test": patients, "target_train": 1, "target_val": 1, "target_test": patients}
    return simulate_tumor(TumorConfig(gamma=10.0, steps=days, seed=options.seed, **sizes), NullReporter())


def query_sets(dataset: Dataset) -> dict[str, tuple[Panel, Queries]]:
    """Return the test sets by name, `source one_step`."""
    parts = [part for part in Part.all() if part.split == "test"]
    return {
        f"{part.domain} {name}": (dataset.panels[part], queries)
        for part in parts
        for name, queries in dataset.queries[part].items()
    }


def by_panel(sets: dict[str, tuple[Panel, Queries]]) -> dict[str, tuple[Panel, dict[str, Queries]]]:
    """Return each domain's test panel with its query sets."""
    panels: dict[str, tuple[Panel, dict[str, Queries]]] = {}
    for name, (panel, queries) in sets.items():
        panels.setdefault(name.partition(" ")[0], (panel, {}))[1][name] = queries
    return panels


def our_encoder(model: CostarModel) -> Encode:
    """Return the encoder of a model of one member: history `[Q,T,S]`, statics and activity to `z [Q,T,D]`."""
    own = CostarEncoder(model.schema.dims, model.encoder_config)
    encoder = member_module(own, submodule(model.params, "encoder."), 0)
    return lambda history_QTS, statics_QV, _: encode_panel([encoder], history_QTS, statics_QV)[0]


def literal_encoder(model: CostarModel) -> Encode:
    """Return the eager encoder with the same weights."""
    fast = CostarEncoder(model.schema.dims, model.encoder_config)
    fast.load_state_dict({name: value[0] for name, value in submodule(model.params, "encoder.").items()}, strict=False)
    literal = LiteralEncoder(model.schema.dims, model.encoder_config).eval()
    literal.load_fast(fast)

    def encode(history_QTS: Tensor, statics_QV: Tensor, active_QT: Tensor) -> Tensor:
        z_QTD, _ = literal(history_QTS, statics_QV, active_QT)
        return z_QTD  # type: ignore[no-any-return]

    return encode


def re_encode(
    model: CostarModel,
    panel: Panel,
    queries: Queries,
    *,
    rows: int = ROWS,
    crop: bool = False,
    encode: Encode | None = None,
) -> NDArray[np.float32]:
    """Predict as `model.rollout` does, `[1,Q,tau,dy]`, from each query's own history, for a model of one member.

    Args:
        model: with one member.
        panel: subjects.
        queries: what to predict.
        rows: queries per batch.
        crop: pad to the longest history of a batch, not to the length of the panel.
        encode: the encoder, ours by default.
    """
    encode = encode or our_encoder(model)
    tensors = PanelTensors.from_panel(panel, model.scaler)
    history_NTS = tensors.history_NTS
    head = outcome_head(model.schema.dims, model.horizon, model.encoder_config, model.shape.hidden)
    head_params = {name: value[0] for name, value in submodule(model.params, "head.").items()}
    result = np.empty((1, len(queries), queries.horizon, len(model.schema.outcomes)), dtype=np.float32)
    with torch.no_grad():
        for first in range(0, len(queries), rows):
            batch = slice(first, first + rows)
            subject = torch.from_numpy(queries.subject[batch].astype(np.int64))
            origin = torch.from_numpy(queries.origin[batch].astype(np.int64))
            n_steps = int(origin.max()) + 1 if crop else panel.n_steps
            past_QT = torch.arange(n_steps) <= origin[:, None]
            own_history = history_NTS[subject, :n_steps] * past_QT[..., None]
            z_QTD = encode(own_history, tensors.v_NV[subject], past_QT)
            z_QD = z_QTD[torch.arange(len(origin)), origin]
            plan_QHA = torch.from_numpy(queries.plan[batch]).to(z_QD)
            scaled = torch.func.functional_call(head, head_params, (z_QD, plan_QHA))
            result[0, batch] = model.scaler.unscale_outcomes(scaled.numpy())
    return result


def even_batches(queries: Queries, size: int, rows: int = ROWS) -> Queries:
    """Return whole batches of a set that is sorted by origin, spread evenly over it: about `size` queries.

    In a large set the queries of a batch share their origin, so that cropped histories need no padding.
    """
    order = np.argsort(queries.origin, kind="stable")
    rows = min(rows, len(queries))
    starts = np.linspace(0, len(queries) - rows, max(1, size // rows)).round().astype(np.int64)
    return queries.take(order[(starts[:, None] + np.arange(rows)).ravel()])


def score_all(*, quick: bool, seed: int, threads: int, score: bool = True) -> None:
    """Simulate the test sets and score them in this process, for its peak memory."""
    torch.set_num_threads(threads)
    dataset = paper_tests(argparse.Namespace(quick=quick, seed=seed))
    model = untrained_model(dataset)
    for panel, sets in by_panel(query_sets(dataset)).values() if score else ():
        states = model.encode(panel)
        for queries in sets.values():
            model.answer(states, queries)


def peak_memory(options: argparse.Namespace) -> dict[str, float]:
    """Return peaks in MB: simulating and scoring the sets, and only simulating them."""
    arguments = f"quick={options.quick}, seed={options.seed}, threads={options.threads}"
    code = f"from benchmarks.scoring import score_all; score_all({arguments}, score={{}})"
    return {
        "scoring": run_child("-c", code.format(True)).peak_mb,
        "simulation": run_child("-c", code.format(False)).peak_mb,
    }


def measure(options: argparse.Namespace) -> Measured:
    dataset = paper_tests(options)
    model, sets = untrained_model(dataset), query_sets(dataset)
    rng = np.random.default_rng(options.seed)
    size = min(options.sample, 64) if options.quick else options.sample
    sorted_ = {name: (panel, even_batches(queries, size)) for name, (panel, queries) in sets.items()}
    shuffled = {}
    for name, (panel, queries) in sets.items():
        chosen = rng.choice(len(queries), size=min(size, len(queries)), replace=False)
        shuffled[name] = (panel, queries.take(chosen))
    panels = by_panel(sets)
    states = {domain: model.encode(panel) for domain, (panel, _) in panels.items()}
    calls: dict[tuple[str, str], Callable[[], object]] = {
        ("encode", domain): partial(model.encode, panel) for domain, (panel, _) in panels.items()
    }
    for domain, (_, asked) in panels.items():
        calls |= {("answer", name): partial(model.answer, states[domain], queries) for name, queries in asked.items()}
    few = {name: (panel, q.take(slice(0, -(-len(q) // LITERAL_SHARE)))) for name, (panel, q) in shuffled.items()}
    literal = literal_encoder(model)
    calls |= {("re-encode", name): partial(re_encode, model, *shuffled[name]) for name in sets}
    calls |= {("cropped", name): partial(re_encode, model, *sorted_[name], crop=True) for name in sets}
    calls |= {("literal", name): partial(re_encode, model, *few[name], encode=literal) for name in sets}
    timings = interleaved(calls, options.repeats)
    encode_s = sum(timings["encode", domain].median_s for domain in panels)
    once_s = encode_s + sum(timings["answer", name].median_s for name in sets)
    sampled = {"re-encode": shuffled, "cropped": sorted_, "literal": few}
    seconds = {way: _scaled(timings, sets, taken, way) for way, taken in sampled.items()}
    n_queries = {name: len(queries) for name, (_, queries) in sets.items()}
    total = sum(n_queries.values())
    scale_cm3 = float(model.scaler.outcomes[1][0])
    difference_cm3 = max(
        float(np.abs(model.rollout(panel, q) - re_encode(model, panel, q)).max()) for panel, q in shuffled.values()
    )
    memory = peak_memory(options)
    return Measured(
        {
            "ratio_to_cropped": Figure(
                "times the rate of re-encoding every query, sorted and cropped", seconds["cropped"] / once_s, "x"
            ),
            "ratio": Figure("the same, every history padded", seconds["re-encode"] / once_s, "x", GOAL),
            "ratio_to_literal": Figure("the same, padded, literal encoder", seconds["literal"] / once_s, "x"),
            "queries": Figure("queries, source and target", total),
            "score_s": Figure("scoring all of them", once_s, "s"),
            "encode_s": Figure("encoding the panels, a part of it", encode_s, "s"),
            "re_encode_s": Figure("re-encoding all of them (scaled from a sample)", seconds["re-encode"], "s"),
            "queries_per_s": Figure("rate", total / once_s, "queries/s"),
            "re_encode_queries_per_s": Figure("rate of re-encoding", total / seconds["re-encode"], "queries/s"),
            **{
                f"answer_s_{name.replace(' ', '_')}": Figure(
                    f"answering {name.replace('_', '-')}: {n_queries[name]:,} queries",
                    timings["answer", name].median_s,
                    "s",
                )
                for name in sets
            },
            "largest_difference": Figure("largest difference of predictions", difference_cm3 / scale_cm3, "sd"),
            "peak_rss_mb": Figure("peak memory, simulating and scoring", memory["scoring"], "MB"),
            "simulation_rss_mb": Figure("peak memory, simulating alone", memory["simulation"], "MB"),
        },
        {
            "patients_per_part": next(iter(sets.values()))[0].n_subjects,
            "queries": n_queries,
            "sampled_queries": {way: {n: len(q) for n, (_, q) in taken.items()} for way, taken in sampled.items()},
            "rows_per_batch": ROWS,
            "largest_difference_cm3": difference_cm3,
            "timings": {f"{way}, {name}": vars(timing) for (way, name), timing in timings.items()},
            "peak_rss_mb": memory,
        },
    )


def _scaled(
    timings: dict[tuple[str, str], Timing],
    sets: dict[str, tuple[Panel, Queries]],
    samples: dict[str, tuple[Panel, Queries]],
    way: str,
) -> float:
    """Return the seconds of all sets, each scaled from its sample."""
    return sum(timings[way, name].median_s * len(sets[name][1]) / len(samples[name][1]) for name in sets)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sample", type=int, default=2048, help="re-encoded queries per set")


def main(argv: Sequence[str] | None = None) -> None:
    run("scoring", __doc__, measure, argv, repeats=5, add_options=_add_options)


if __name__ == "__main__":
    main()
