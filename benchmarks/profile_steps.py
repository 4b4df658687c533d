"""Where the processor time of a training step goes, and what the machine could do at best.

    python -m benchmarks.profile_steps [--json] [--out FILE] [--quick] [--threads 1] [--repeats 9] [--only NAME ...]

A step of pretraining and of every stage of every network in the registry (one member, sizes and batches of the paper,
1,000 simulated tumour patients, T = 59), and fits in closed form that take more than a moment (300 patients).

**Parts** of a step: `products` (matrix products, attention), `kernels` (all else that computes), `copies` (also lookups
by index), `memory` (getting and clearing it), `random` (drawing numbers), and `python`: what is left of the processor
time, which is the interpreter, dispatch, views and the autograd graph. Times of operators are those that torch's
profiler measures, scaled to processor time; what the profiler itself costs is in neither, since `python` is the rest
of steps that were not profiled. Of a fit in numpy cProfile sees functions, not operators on arrays: these are in
`python`, too.

**Floor**: floating point operations over the rate of a large product in this process, plus bytes that operators other
than products read and write over the bandwidth of a copy within the caches. It is that of the operators that run: fewer
or fused ones would have a lower one. A fit in closed form has that of what its inner loops cannot do without: two
products of the rows with a vector per gradient of a logistic regression, one of the rows with themselves per least
squares, four with a matrix of effects by effects per gradient of `mixed`, and each tree's reading of all binned rows,
with gradient and curvature, once.

**The paper's size**: steps of pretraining and fine-tuning of one member under `--preset paper` and `default`, times the
processor time of a step; validation comes on top.
"""

import argparse
import cProfile
import pstats
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from benchmarks.cohort import MEMBERS, Steps, pretrain_stage, training_data
from benchmarks.literal_networks import written_out
from benchmarks.measure import Figure, Measured, run
from costar_cli.config.choices import PresetName
from costar_cli.config.models import FinetuneConfig, PretrainConfig, RuntimeConfig, TrainingConfig
from costar_cli.data import Dataset, Scaler
from costar_cli.methods.base import FinalStage, FitTask, Stage
from costar_cli.methods.entry import Method
from costar_cli.methods.mixed import likelihood
from costar_cli.methods.registry import METHODS
from costar_cli.methods.shared.members import stack_members
from costar_cli.methods.shared.stage import EpochSchedule
from costar_cli.methods.shared.streams import Stream
from costar_cli.settings.resolve import resolve
from costar_cli.training.runtime import Runtime

__all__ = ["PARTS", "fit_task", "hours_of", "main", "stages_of"]

PARTS: Final = ("products", "kernels", "copies", "memory", "random", "python")
PRETRAINING: Final = "pretrain"  # stages of the reference
FINETUNING: Final = "finetune"
ATTENTION: Final = "_scaled_dot_product_flash_attention_for_cpu"
PRODUCTS: Final = {"mm", "addmm", "bmm", "baddbmm", "addmm_", "baddbmm_", ATTENTION}
COPIES: Final = {"copy_", "cat", "index", "index_select", "gather", "clone", "_to_copy", "constant_pad_nd", "repeat",
                 "stack", "index_put_", "_index_put_impl_", "scatter_add_", "contiguous"}  # fmt: skip
MEMORY: Final = {"empty", "empty_strided", "empty_like", "new_empty", "resize_", "zeros", "zeros_like", "ones_like",
                 "new_zeros", "new_ones", "full", "full_like", "zero_", "fill_"}  # fmt: skip
RANDOM: Final = "random numbers"  # the name under which drawing is recorded
OF_NUMPY: Final = {
    "products": ("einsum", "matmul", "dot", "linalg", "solve", "cholesky", "potr", "inv", "eigh", "lstsq", "svd"),
    "copies": ("concatenate", "copy", "astype", "take", "repeat", "stack", "tile", "tolist", "array'", "asarray"),
    "memory": ("empty", "zeros", "ones", "full"),
    "random": ("random", "normal", "permutation", "integers"),
}
PAPER_PATIENTS: Final = 10_000
LITERAL: Final = 3.0  # times that a baseline's step shall be faster than written out
PRESETS: Final[tuple[PresetName, ...]] = ("paper", "default")


class OperatorCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operators that compute, their floating point operations and, of all but products, their bytes.

    `taken_s` is the processor time of each, with the call from Python.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()
        self.taken_s: dict[str, float] = defaultdict(float)
        self.flop, self.n_bytes = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and count it."""
        start = time.thread_time()
        out = func(*args, **(kwargs or {}))
        taken_s, name = time.thread_time() - start, func.overloadpacket.__name__
        if func.is_view or name in {"detach", "empty", "empty_like", "empty_strided", "new_empty"}:
            return out
        self.calls[name] += 1
        self.taken_s[name] += taken_s
        if name == ATTENTION:  # which torch's list lacks: two products of every query with every key
            self.flop += 4 * args[0].numel() * args[1].shape[-2]
        elif func.overloadpacket in flop_registry:
            self.flop += flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=out)
        else:
            self.n_bytes += sum(map(_bytes_of, tree_leaves((args, kwargs, out))))
        return out


def _bytes_of(value: object) -> int:
    """Return the bytes of a tensor in memory, what is expanded counted once."""
    if not isinstance(value, Tensor):
        return 0
    sizes = (size for size, stride in zip(value.shape, value.stride(), strict=True) if stride)
    return int(np.prod(list(sizes), dtype=np.int64)) * value.element_size()


def processor_s(call: Callable[[], object], repeats: int, *, warmup: int = 1) -> list[float]:
    """Return the processor times of calls, after some that do not count."""
    for _ in range(warmup):
        call()
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return taken


def product_gflops(size: int, dtype: torch.dtype = torch.float32) -> float:
    """Return the rate of the best of several large products, over processor time: other work does not count."""
    a, out = torch.rand(size, size, dtype=dtype), torch.empty(size, size, dtype=dtype)
    return 2 * size**3 / min(processor_s(lambda: torch.mm(a, a, out=out), 7)) / 1e9


def bandwidth(copies: int) -> float:
    """Return bytes per second, read and written, of the best of copies of a megabyte, which the caches hold."""
    source = torch.rand(2**18)
    target = torch.empty_like(source)
    best = min(processor_s(lambda: [target.copy_(source) for _ in range(copies)], 9))
    return 2 * 2**20 * copies / best


def fit_task(dataset: Dataset, method: Method, runtime: Runtime, seed: int) -> FitTask:
    """Return the fit of a group to a source cohort, with the method's default settings."""
    scaler, config = Scaler.fit(dataset.panel("source", "train"), dataset.schema), FinetuneConfig(seed=seed)
    settings = method.default_settings()
    return FitTask(
        dataset.schema, dataset.horizon, "source", dataset.panels, scaler, config, settings, MEMBERS, None, runtime
    )


def stages_of(method: Method, task: FitTask) -> Iterator[Stage]:
    """Yield the stages of a fit; each later one starts from what random weights of those before say."""
    fit = method.fit(task)
    try:
        step = next(fit)
        while True:
            stage = step.stage if isinstance(step, FinalStage) else step
            yield stage
            fresh = stack_members(stage.initial(member)[0] for member in range(task.members))
            step = fit.send({name: value.to(task.device, task.dtype) for name, value in fresh.items()})
    except StopIteration:
        return


def _recorded(call: Callable[..., Any]) -> Callable[..., Any]:
    def drawing(*args: Any, **kwargs: Any) -> Any:
        with record_function(RANDOM):
            return call(*args, **kwargs)

    return drawing


def operators_s(steps: Steps, repeats: int) -> dict[str, float]:
    """Return the seconds of each operator in a step, without those that it calls.

    Operators come in the same order at each step; of each the least time of several steps counts, since other work on
    the machine interrupts some of them.
    """
    least: dict[tuple[str, int], float] = {}
    with ExitStack() as stack:
        for name in ("random_bytes", "normal", "uniform", "permutation", "__init__"):
            stack.enter_context(mock.patch.object(Stream, name, _recorded(getattr(Stream, name))))
        for _ in range(repeats):
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                steps()
            met: Counter[str] = Counter()
            for event in profiler.events() or ():
                met[event.name] += 1
                key = event.name, met[event.name]
                least[key] = min(least.get(key, float("inf")), event.self_cpu_time_total / 1e6)
    total: dict[str, float] = defaultdict(float)
    for (name, _), seconds in least.items():
        total[name.removeprefix("aten::")] += seconds
    return total


def parts_of_step(stage: Stage, runtime: Runtime, repeats: int, gflops: float, per_s: float) -> dict[str, Any]:
    """Return the processor seconds of a step by part, its floor, and the operators that cost most."""
    steps, group = Steps(stage, [0], runtime), Steps(stage, list(range(MEMBERS)), runtime)
    taken, together, plainly = processor_s(steps, 1), processor_s(group, 1), []
    literal = None if stage.name in {PRETRAINING, FINETUNING} else Steps(stage, [0], runtime)  # theirs are elsewhere
    for _ in range(repeats):
        taken += processor_s(steps, 1, warmup=0)
        together += processor_s(group, 1, warmup=0)
        if literal is not None:
            with written_out():
                plainly += processor_s(literal, 1, warmup=0)
    step_s = min(taken)
    with OperatorCounter() as counted:
        steps()
    part_s, each_s = dict.fromkeys(PARTS, 0.0), {}
    for name, clock_s in operators_s(steps, repeats).items():
        seconds = min(clock_s, counted.taken_s.get(name, clock_s))  # long operators are interrupted at every step
        part = _part(name, counted.calls)
        part_s[part] += seconds
        if part != "python":
            each_s[name] = seconds
    part_s["python"] = max(0.0, step_s - sum(part_s[part] for part in PARTS if part != "python"))
    most = sorted(each_s.items(), key=lambda pair: -pair[1])[:8]
    return {
        "batch": stage.config.batch_size,
        "step_s": step_s,
        "of_group_s": min(together) / MEMBERS,
        "literal_s": min(plainly) if plainly else None,
        "parts_s": part_s,
        "operators": counted.calls.total(),
        "gflop": counted.flop / 1e9,
        "megabytes": counted.n_bytes / 1e6,
        "floor_s": counted.flop / 1e9 / gflops + counted.n_bytes / per_s,
        "most": [[name, counted.calls[name], seconds] for name, seconds in most],
    }


def _part(name: str, computed: Counter[str]) -> str:
    """Return the part of an operator; what only arranges others, and what is no operator, is `python`."""
    for part, names in (("products", PRODUCTS), ("copies", COPIES), ("memory", MEMORY), ("random", {RANDOM})):
        if name in names:
            return part
    return "kernels" if name in computed else "python"


class InnerLoops:
    """While it is entered, counts the operations and bytes of fits by scikit-learn and numpy (see "Floor" above)."""

    def __init__(self) -> None:
        self.flop, self.n_bytes = 0, 0
        self._stack = ExitStack()

    def __enter__(self) -> "InnerLoops":
        from sklearn.ensemble._hist_gradient_boosting.grower import TreeGrower  # noqa: PLC0415
        from sklearn.linear_model._linear_loss import LinearModelLoss  # noqa: PLC0415

        for owner, name, count in (
            (LinearModelLoss, "loss_gradient", lambda args: 4 * args[2].size),
            (np.linalg, "lstsq", lambda args: 2 * args[0].size * args[0].shape[1]),
            (likelihood, "_linear", lambda args: 8 * args[0].size * args[0].shape[-1]),
        ):
            self._count(owner, name, count, "flop")
        self._count(TreeGrower, "grow", lambda args: args[0].X_binned.nbytes + 8 * len(args[0].X_binned), "n_bytes")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _count(self, owner: Any, name: str, count: Callable[[Any], int], what: str) -> None:
        call = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            setattr(self, what, getattr(self, what) + count(args))
            return call(*args, **kwargs)

        self._stack.enter_context(mock.patch.object(owner, name, counted))


def parts_of_fit(method: Method, task: FitTask, gflops: float, per_s: float) -> dict[str, Any]:
    """Return the processor seconds of a fit without stages by part, its floor, and the functions that cost most."""

    def fit() -> None:
        for _ in method.fit(task):
            raise TypeError(f"{method.name} is fitted in stages")

    step_s = min(processor_s(fit, 2, warmup=0))
    profiler = cProfile.Profile(time.process_time)
    profiler.runcall(fit)
    own_s: dict[str, float] = defaultdict(float)
    part_s = dict.fromkeys(PARTS, 0.0)
    for (file, _, function), (_, calls, seconds, _, _) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        own_s[f"{function} ({calls} calls)"] += seconds
        compiled = file == "~"
        named = (part for part, names in OF_NUMPY.items() if compiled and any(name in function for name in names))
        part_s[next(named, "kernels" if compiled else "python")] += seconds
    with InnerLoops() as counted:
        fit()
    scale = step_s / sum(part_s.values())
    most = sorted(own_s.items(), key=lambda pair: -pair[1])[:8]
    return {
        "step_s": step_s,
        "parts_s": {part: seconds * scale for part, seconds in part_s.items()},
        "gflop": counted.flop / 1e9,
        "megabytes": counted.n_bytes / 1e6,
        "floor_s": counted.flop / 1e9 / gflops + counted.n_bytes / per_s,
        "most": [[name, seconds * scale] for name, seconds in most],
    }


def updates_of(preset: PresetName, patients: int) -> dict[str, int]:
    """Return the optimiser steps of one member of the reference under a preset, by stage, without early stopping."""
    settings = resolve({}, preset=preset, dataset="tumor")
    configs: dict[str, TrainingConfig] = {PRETRAINING: settings[PretrainConfig], FINETUNING: settings[FinetuneConfig]}
    return {name: EpochSchedule.of(config, patients, drop_last=True).steps for name, config in configs.items()}


def hours_of(updates: Mapping[str, int], step_s: Mapping[str, float]) -> float:
    """Return the hours that a member of the reference trains, by the seconds of a step of each stage."""
    return sum(n * step_s[stage] for stage, n in updates.items()) / 3600


def measure(options: argparse.Namespace) -> Measured:
    runtime = Runtime.resolve(RuntimeConfig(device="cpu", threads=options.threads))
    size = 256 if options.quick else 1024
    rates = product_gflops(size), bandwidth(5 if options.quick else 200)
    of_doubles = product_gflops(size, torch.float64)
    many, few = (training_data(n, steps=20 if options.quick else 60, seed=options.seed) for n in _patients(options))

    stages: dict[str, Stage] = {}
    found: dict[str, dict[str, Any]] = {}
    if PRETRAINING in options.only:
        stages[PRETRAINING] = pretrain_stage(many, PretrainConfig(seed=options.seed), runtime)
    for method in (METHODS[name] for name in options.only if name in METHODS and not METHODS[name].closed_form):
        stages |= {stage.name: stage for stage in stages_of(method, fit_task(many, method, runtime, options.seed))}
    for name, stage in stages.items():
        found[name] = parts_of_step(stage, runtime, options.repeats, *rates)
    for method in (METHODS[name] for name in options.only if name in METHODS and METHODS[name].closed_form):
        found[method.name] = parts_of_fit(method, fit_task(few, method, runtime, options.seed), of_doubles, rates[1])
    figures = {}
    for name, values in found.items():
        key, what = name.replace(" ", "_"), f"{name}: a {'step' if 'batch' in values else 'fit'}"
        figures[f"ms_{key}"] = Figure(what, 1000 * values["step_s"], "ms")
        figures[f"python_{key}"] = Figure(f"{name}: python", 100 * values["parts_s"]["python"] / values["step_s"], "%")
        if values["floor_s"]:
            figures[f"floor_{key}"] = Figure(f"{name}: over its floor", values["step_s"] / values["floor_s"], "x")
        if values.get("literal_s"):
            times = values["literal_s"] / values["step_s"]
            figures[f"literal_{key}"] = Figure(f"{name}: times faster than written out", times, "x", LITERAL)
            times, what = values["literal_s"] / values["of_group_s"], f"{name}: each of {MEMBERS} members in one step"
            figures[f"group_{key}"] = Figure(f"{what}, times faster than written out", times, "x", LITERAL)
    updates = {preset: updates_of(preset, PAPER_PATIENTS) for preset in PRESETS}
    if {PRETRAINING, FINETUNING} <= set(found):
        step_s = {stage: found[stage]["step_s"] for stage in (PRETRAINING, FINETUNING)}
        for preset, of_stage in updates.items():
            hours = hours_of(of_stage, step_s)
            figures[f"hours_{preset}"] = Figure(f"training a member on {PAPER_PATIENTS:,}, {preset}", hours, "h")
    details = {
        "gflops": rates[0],
        "gflops_of_doubles": of_doubles,
        "bytes_per_s": rates[1],
        "found": found,
        "updates": updates,
    }
    return Measured(figures, details | {"patients": _patients(options)})


def _patients(options: argparse.Namespace) -> tuple[int, int]:
    return (40, 40) if options.quick else (1000, 300)


def _add_options(parser: argparse.ArgumentParser) -> None:
    networks = [name for name, method in METHODS.items() if not (method.closed_form or method.combines)]
    closed = [
        name
        for name, method in METHODS.items()
        if method.closed_form and method.learns_from_source and not method.needs
    ]
    quick = [name for name in closed if METHODS[name].short_list_width is None]
    names = [PRETRAINING, *networks, *closed]
    parser.add_argument("--only", nargs="+", choices=names, default=[PRETRAINING, *networks, *quick])
    parser.set_defaults(threads=1)


def main(argv: Sequence[str] | None = None) -> None:
    run("profile_steps", __doc__, measure, argv, repeats=9, add_options=_add_options)


if __name__ == "__main__":
    main()
