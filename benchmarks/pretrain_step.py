"""The steps of pretraining and fine-tuning against a literal eager implementation, one member, the same mini-batch.

    python -m benchmarks.pretrain_step [--json] [--out FILE] [--quick] [--threads 2] [--repeats 9]

Ours is `costar_cli.training.loop.training_step` on a `PretrainStage`: views, dropout bytes, two encoders, contrast,
backward, finite checks, Adam. The yardstick is `LiteralPretrainer.step` (benchmarks/literal_costar.py). Both contrast
all active positions of 64 simulated tumour patients at gamma 10 (T = 59), in float32, and take turns in one process. So
do a step of `SupervisedStage` with the published decoder and `LiteralFinetuner.step`, on 32 patients, our steps
in bfloat16 (`--precision bf16`), and those of a group, whose members share a step. All else is about pretraining.

**Parts.** The methods of the stage are wrapped by a stopwatch whose parts exclude one another, in a run apart from the
timed comparison. Dropout bytes are drawn in the encoders' threads and count as theirs. Momentum and online encoder run
side by side and count as one. "rest" is the momentum update, finite checks, zeroing.

**Floating point operations** are those of the matrix products that the mathematics needs, two per multiply-add; what an
implementation does on top of that (padding heads, masks, normalisation, softmax, recomputation) is not counted. With
S = 2 x batch samples, T steps, F series tokens, V static tokens, width D, H heads of n = D/H, W = min(K, T) relative
distances, M = S F T series rows, L layers:

    temporal block   2 M D 3D  +  2 * 2 S F H T T n  +  2 * 2 S F H T W n  +  2 * 2 M D 4D  (+ the last on S V rows)
    feature block    2 (M + S V) D 3D  +  2 * 2 S T F (F + V) D            +  2 * 2 M D 4D
    encoder forward  L times both;  backward is twice the forward;  the momentum encoder has no backward
    predictor        2 C' M' D 2D * 2 with C' = 1 + components, M' = S T rows; backward twice that
    contrast         2 C' pairs of N x N: 2 N N D for the logits, as much for their gradient (keys have none)

Scores are counted as full squares although half of them are masked: dense kernels compute them. The literal
implementation does more (relative terms over all distances, statics at every step); its own count is not used.
"""

import argparse
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks.cohort import MEMBERS, Steps, finetune_stage, literal_inputs, pretrain_stage, train_panel, training_data
from benchmarks.literal_costar import LiteralFinetuner, LiteralPretrainer
from benchmarks.measure import Figure, Measured, Timing, interleaved, peak_gflops, ratio, run, run_child
from costar_cli.config.models import EncoderConfig, FinetuneConfig, PretrainConfig, RuntimeConfig
from costar_cli.data import Dataset
from costar_cli.methods.costar.pretraining import PretrainStage
from costar_cli.training.optimiser import Adam
from costar_cli.training.runtime import Runtime

__all__ = ["main", "step_flops", "take_steps"]

GOAL, AIM, GOAL_MB = 8.0, 10.0, 600.0
PARTS = (
    "views",
    "encoders forward",
    "contrast",
    "backward",
    "optimiser",
    "rest",
)


def encoder_flops(
    dims: tuple[int, int, int, int], config: EncoderConfig, samples: int, n_steps: int, relative_width: int
) -> float:
    """Return the operations of one forward pass (see the module's docstring)."""
    s, t, f, v, d = samples, n_steps, sum(dims[:3]), dims[3], config.width
    rows = s * f * t
    feed_forward = 2 * 2 * rows * d * 4 * d
    temporal = 2 * rows * d * 3 * d + 2 * 2 * s * f * t * t * d + 2 * 2 * s * f * t * relative_width * d
    temporal += feed_forward + 2 * 2 * s * v * d * 4 * d
    feature = 2 * (rows + s * v) * d * 3 * d + 2 * 2 * s * t * f * (f + v) * d + feed_forward
    return config.layers * (temporal + feature)


def step_flops(
    dims: tuple[int, int, int, int], config: PretrainConfig, batch: int, n_steps: int, n_active: int
) -> dict[str, float]:
    """Return the operations of one pretraining step by part (see the module's docstring)."""
    d = config.encoder.width
    width = min(config.encoder.clip_distance, n_steps)
    forward = encoder_flops(dims, config.encoder, 2 * batch, n_steps, width)
    kinds = 1 + (sum(size > 0 for size in dims[:3]) if config.components else 0)
    predictor = 2 * 2 * kinds * 2 * batch * n_steps * d * 2 * d
    n = min(n_active, config.max_contrast or n_active)
    contrast = 2 * kinds * 2 * 2 * n * n * d
    return {
        "encoders forward": 2 * forward + predictor,
        "contrast": contrast,
        "backward": 2 * (forward + predictor),
    }


class Stopwatch:
    """Times of parts that may nest: the inner one is taken off the outer one. Other threads are not looked at."""

    def __init__(self) -> None:
        self.elapsed_s: dict[str, float] = defaultdict(float)
        self._stack: list[str] = []
        self._since = time.perf_counter()
        self._thread = threading.get_ident()

    def switch(self, part: str | None) -> None:
        """Enter a part, or leave the innermost one."""
        now = time.perf_counter()
        if self._stack:
            self.elapsed_s[self._stack[-1]] += now - self._since
        self._since = now
        if part is None:
            self._stack.pop()
        else:
            self._stack.append(part)

    def around(self, call: Callable[..., Any], part: Callable[[], str]) -> Callable[..., Any]:
        """Return the call, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:
                return call(*args, **kwargs)
            self.switch(part())
            try:
                return call(*args, **kwargs)
            finally:
                self.switch(None)

        return timed


def time_parts(steps: Steps, repeats: int) -> dict[str, float]:
    """Return the median seconds of every part of a step."""

    hooks: list[tuple[Any, str, Callable[[], str]]] = [
        (PretrainStage, "_views", lambda: "views"),
        (PretrainStage, "_start_keys", lambda: "encoders forward"),
        (PretrainStage, "_queries", lambda: "encoders forward"),
        (PretrainStage, "_contrast", lambda: "contrast"),
        (torch.autograd, "backward", lambda: "backward"),
        (Adam, "step", lambda: "optimiser"),
    ]
    records = []
    for _ in range(repeats):
        watch = Stopwatch()
        with ExitStack() as stack:
            for owner, name, part in hooks:
                stack.enter_context(mock.patch.object(owner, name, watch.around(getattr(owner, name), part)))
            watch.around(steps, lambda: "rest")()
        records.append(watch.elapsed_s)
    return {part: float(np.median([record[part] for record in records])) for part in PARTS}


def cohort(options: argparse.Namespace) -> tuple[Dataset, PretrainConfig, Runtime]:
    """Return data, settings and runtime: batch 64 and 60 days, or toy sizes."""
    patients, days, batch = (40, 20, 8) if options.quick else (1000, 60, 64)
    config = PretrainConfig(members=1, batch_size=batch, seed=options.seed)
    runtime = Runtime.resolve(RuntimeConfig(device="cpu", threads=options.threads))
    return training_data(patients, steps=days, seed=options.seed), config, runtime


def take_steps(n: int, *, threads: int, quick: bool, seed: int) -> None:
    """Take steps in this process, for its peak memory."""
    dataset, config, runtime = cohort(argparse.Namespace(quick=quick, threads=threads, seed=seed))
    steps = Steps(pretrain_stage(dataset, config, runtime), [0], runtime)
    for _ in range(n):
        steps()


def peak_memory(options: argparse.Namespace, n_steps: int = 5) -> dict[str, float]:
    """Return the peak of a process that takes steps, and of one that only imports what they need, in MB."""
    arguments = f"threads={options.threads}, quick={options.quick}, seed={options.seed}"
    code = f"from benchmarks.pretrain_step import take_steps; take_steps({{}}, {arguments})"
    return {
        "steps": run_child("-c", code.format(n_steps)).peak_mb,
        "imports": run_child("-c", "import benchmarks.pretrain_step").peak_mb,
    }


def in_turns(ours: Steps, literal: Callable[[], float], options: argparse.Namespace) -> dict[str, Timing]:
    """Return the times of a step: ours, of a group, in bfloat16, and the literal one's."""
    half = Runtime.resolve(RuntimeConfig(device="cpu", threads=options.threads, precision="bf16"))
    group = Steps(ours.stage, list(range(MEMBERS)), ours.runtime)
    rivals = {"ours": ours, "group": group, "bf16": Steps(ours.stage, [0], half), "literal": literal}
    return interleaved(rivals, options.repeats, warmup=1 if options.quick else 2)


def time_finetuning(dataset: Dataset, runtime: Runtime, options: argparse.Namespace) -> dict[str, Timing]:
    """Return the times of a step of fine-tuning, ours and the literal one's."""
    config = FinetuneConfig(members=1, batch_size=8 if options.quick else 32, seed=options.seed)
    ours = Steps(finetune_stage(dataset, config, runtime), [0], runtime)
    panel, rows = train_panel(dataset, runtime), ours.rows_B
    read = literal_inputs(panel, rows)
    ahead = panel.a_NTA[rows, : read[0].shape[1]], panel.y_NTY[rows, 1:]
    torch.manual_seed(options.seed)
    literal = LiteralFinetuner(dataset.schema.dims, EncoderConfig(), dataset.horizon, config.hidden)
    return in_turns(ours, partial(literal.step, *read, *ahead), options)


def measure(options: argparse.Namespace) -> Measured:
    dataset, config, runtime = cohort(options)
    ours = Steps(pretrain_stage(dataset, config, runtime), [0], runtime)
    panel, rows = train_panel(dataset, runtime), ours.rows_B
    history_BTS, statics_BV, active_BT = literal_inputs(panel, rows)
    torch.manual_seed(options.seed)
    literal = LiteralPretrainer(dataset.schema.dims, config.encoder)
    timings = in_turns(ours, partial(literal.step, history_BTS, statics_BV, active_BT), options)
    finetuning = time_finetuning(dataset, runtime, options)
    parts = time_parts(ours, options.repeats)
    n_active = int(active_BT.sum())
    flops = step_flops(dataset.schema.dims, config, len(rows), history_BTS.shape[1], n_active)
    peak = peak_gflops(256 if options.quick else 3072)
    narrow = peak_gflops(256 if options.quick else 2048, config.encoder.width)
    memory = peak_memory(options)
    gflop = sum(flops.values()) / 1e9
    rate = gflop / timings["ours"].median_s
    whole = sum(parts.values())
    figures = {
        "ratio_to_literal": Figure("times faster than the literal step", ratio(timings, "literal", "ours"), "x", GOAL),
        "group_ratio_to_literal": Figure(
            f"each of {MEMBERS} members in one step, times faster",
            MEMBERS * ratio(timings, "literal", "group"),
            "x",
            GOAL,
        ),
        "bf16_ratio": Figure("in bfloat16, over single precision", ratio(timings, "bf16", "ours"), "times"),
        "finetune_bf16_ratio": Figure(
            "fine-tuning: in bfloat16, over single precision", ratio(finetuning, "bf16", "ours"), "times"
        ),
        "step_s": Figure("step of one member", timings["ours"].median_s, "s"),
        "literal_step_s": Figure("literal step", timings["literal"].median_s, "s"),
        "finetune_ratio_to_literal": Figure(
            "fine-tuning: times faster than the literal step", ratio(finetuning, "literal", "ours"), "x", GOAL
        ),
        "finetune_group_ratio_to_literal": Figure(
            f"fine-tuning: each of {MEMBERS} members in one step, times faster",
            MEMBERS * ratio(finetuning, "literal", "group"),
            "x",
            GOAL,
        ),
        "finetune_step_s": Figure("fine-tuning: step of one member", finetuning["ours"].median_s, "s"),
        "finetune_literal_step_s": Figure("fine-tuning: literal step", finetuning["literal"].median_s, "s"),
        **{f"share_{p.replace(' ', '_')}": Figure(f"share: {p}", 100 * parts[p] / whole, "%") for p in PARTS},
        "step_gflop": Figure("operations counted per step", gflop, "GFLOP"),
        "gflops": Figure("achieved", rate, "GFLOP/s"),
        "peak_gflops": Figure("large float32 product in this process", peak, "GFLOP/s"),
        "share_of_peak": Figure("achieved share of that", 100 * rate / peak, "%"),
        "peak_rss_mb": Figure("peak memory, process of 5 steps", memory["steps"], "MB", GOAL_MB, at_most=True),
        "import_rss_mb": Figure("peak memory, imports alone", memory["imports"], "MB"),
        "step_rss_mb": Figure("difference of the two", memory["steps"] - memory["imports"], "MB"),
    }
    details = {
        "aim": AIM,
        "batch": len(rows),
        "steps": history_BTS.shape[1],
        "active_positions": n_active,
        "timings": {name: vars(timing) for name, timing in timings.items()},
        "finetune_timings": {name: vars(timing) for name, timing in finetuning.items()},
        "ratio_of_best": timings["literal"].best_s / timings["ours"].best_s,
        "parts_s": parts,
        "gflop": {part: value / 1e9 for part, value in flops.items()},
        "part_gflops": {part: value / 1e9 / parts[part] for part, value in flops.items()},
        "narrow_product_gflops": narrow,
        "peak_rss_mb": memory,
    }
    return Measured(figures, details)


def main(argv: Sequence[str] | None = None) -> None:
    run("pretrain_step", __doc__, measure, argv, repeats=9)


if __name__ == "__main__":
    main()
