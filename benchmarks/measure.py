"""What every benchmark shares: interleaved timing, peak memory of a fresh process, the JSON document.

A benchmark is a module with a function `measure(options) -> Measured` and a `main` that calls `run` here:

    python -m benchmarks.NAME [--json] [--out FILE] [--quick] [--threads 2] [--repeats N]

Rivals take turns (A B A B ...) within one process, so that whatever else the machine does slows all of them; the ratio
of their medians is what counts. Peak memory is that of a process that does nothing else.
"""

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import psutil
import torch

from benchmarks.machine import ROOT, commit, is_busy, load_before_and_after, machine, versions
from costar_cli.methods.shared.logistic import one_thread

__all__ = [
    "Child",
    "Figure",
    "Measured",
    "Timing",
    "describe",
    "document",
    "interleaved",
    "load_text",
    "number",
    "peak_gflops",
    "ratio",
    "run",
    "run_child",
    "unit_s",
    "verdict",
]

MEGABYTE = 1e6
Name = TypeVar("Name", bound=Hashable)

# The peak that the kernel reports for a process counts what it inherited between fork and exec, that is, the memory of
# the process that started it. Hence a small process in between; it reports the peak of its children.
_LAUNCHER = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
code = subprocess.call(sys.argv[2:])
elapsed = time.perf_counter() - start
used = resource.getrusage(resource.RUSAGE_CHILDREN)
peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
with open(sys.argv[1], "w") as file:
    json.dump({"elapsed_s": elapsed, "peak_bytes": peak, "cpu_s": used.ru_utime + used.ru_stime}, file)
sys.exit(code)
"""


@dataclass(frozen=True)
class Timing:
    """Repeated times of one thing, in seconds."""

    median_s: float
    best_s: float
    worst_s: float
    spread: float  # distance of the quartiles over the median
    repeats: int

    @classmethod
    def of(cls, times: Sequence[float]) -> "Timing":
        low, median, high = np.quantile(times, [0.25, 0.5, 0.75])
        return cls(float(median), min(times), max(times), float((high - low) / median), len(times))


class Child(NamedTuple):
    """What a process of its own took, and what it printed."""

    elapsed_s: float
    peak_mb: float
    stdout: str
    cpu_s: float = 0.0


@dataclass(frozen=True)
class Figure:
    """One number of the result; `goal` is a bound, from below unless `at_most`."""

    label: str
    value: float
    unit: str = ""
    goal: float | None = None
    at_most: bool = False

    @property
    def met(self) -> bool | None:
        """Return whether the goal is reached, None where there is none."""
        if self.goal is None:
            return None
        return self.value <= self.goal if self.at_most else self.value >= self.goal

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


@dataclass(frozen=True)
class Measured:
    """The figures of a benchmark by name, and whatever explains them."""

    figures: dict[str, Figure]
    details: dict[str, Any] = field(default_factory=dict)


def interleaved(
    runs: Mapping[Name, Callable[[], object]],
    repeats: int,
    *,
    warmup: int = 1,
    synchronize: Callable[[], object] = lambda: None,
) -> dict[Name, Timing]:
    """Time several things that take turns; the first `warmup` rounds do not count."""
    times: dict[Name, list[float]] = {name: [] for name in runs}
    for turn in range(warmup + repeats):
        for name, call in runs.items():
            gc.collect()
            synchronize()
            start = time.perf_counter()
            call()
            synchronize()
            if turn >= warmup:
                times[name].append(time.perf_counter() - start)
    return {name: Timing.of(taken) for name, taken in times.items()}


def ratio(timings: Mapping[Name, Timing], slow: Name, fast: Name) -> float:
    """Return the ratio of two medians."""
    return timings[slow].median_s / timings[fast].median_s


def run_child(*arguments: str, python: bool = True) -> Child:
    """Run `python ARGUMENTS` (or any command) in a process of its own; its peak includes its children's.

    Raises:
        RuntimeError: it failed; with the end of what it said.
    """
    command = [sys.executable, *arguments] if python else list(arguments)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(report), *command]
        done = subprocess.run(launcher, capture_output=True, text=True, cwd=ROOT, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        measured = json.loads(report.read_text())
    return Child(measured["elapsed_s"], measured["peak_bytes"] / MEGABYTE, done.stdout, measured["cpu_s"])


def peak_gflops(size: int = 2048, inner: int | None = None, *, device: str = "cpu", repeats: int = 12) -> float:
    """Return the best rate of a float32 product `[size,inner] @ [inner,size]` in this process, in GFLOP/s."""
    inner = inner or size
    a, b = torch.rand(size, inner, device=device), torch.rand(inner, size, device=device)
    out = torch.empty(size, size, device=device)
    sync: Callable[[], object] = torch.cuda.synchronize if device == "cuda" else lambda: None
    best = interleaved({"product": lambda: torch.mm(a, b, out=out)}, repeats, warmup=2, synchronize=sync)["product"]
    return 2 * size * size * inner / best.best_s / 1e9


def unit_s() -> float:
    """Return the processor seconds of a fixed piece of work: what other seconds of the same run are compared with."""
    values, small = np.linspace(0.0, 1.0, 500_000), np.ones((96, 96))

    def work() -> float:
        start = time.process_time()
        sum(i * i for i in range(1_000_000))
        for _ in range(10):
            np.exp(values).sum()
        for _ in range(500):
            small @ small
        return time.process_time() - start

    with one_thread("blas"):  # threads that wait count, too
        return float(np.median([work() for _ in range(9)]))


def document(
    name: str,
    command: Sequence[str],
    options: Mapping[str, Any],
    measured: Measured,
    *,
    load_before: float,
    work_s: float,
) -> dict[str, Any]:
    """Return the result as one JSON document.

    Args:
        name: of the benchmark.
        command: that ran it.
        options: that it ran with.
        measured: what it found.
        load_before: load average over the minute before it began.
        work_s: processor seconds of the fixed piece of work, before and after.
    """
    at, loads = commit(), [round(load, 2) for load in psutil.getloadavg()]
    result = {
        "benchmark": name,
        "command": " ".join(command),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": at,
        "dirty": at.endswith("+"),
        "machine": machine(),
        "versions": versions(),
        "load_average": loads,
        "load": {"before": round(load_before, 2), "after": loads[0]},
        "options": {key: value for key, value in options.items() if isinstance(value, bool | int | float | str)},
        "unit_s": work_s,
        "figures": {key: figure.to_json() for key, figure in measured.figures.items()},
        "details": measured.details,
    }
    return {**result, "busy": is_busy(result)}


def run(
    name: str,
    text: str | None,
    measure: Callable[[argparse.Namespace], Measured],
    argv: Sequence[str] | None,
    *,
    repeats: int,
    add_options: Callable[[argparse.ArgumentParser], None] | None = None,
) -> None:
    """Parse the options of a benchmark, measure, print and write.

    Args:
        name: of the module.
        text: its docstring, the help.
        measure: does the work; sees the options, with `threads` set.
        argv: the command line, None for the process's own.
        repeats: timed rounds, unless told otherwise.
        add_options: adds the benchmark's own options.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--out", type=Path, help="write the JSON document here, too")
    parser.add_argument("--quick", action="store_true", help="toy sizes: shows that it runs, says nothing about speed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--seed", type=int, default=10)
    if add_options is not None:
        add_options(parser)
    options = parser.parse_args(argv)
    if options.quick:
        options.repeats = min(options.repeats, 2)
    before, load_before, unit_before_s = torch.get_num_threads(), psutil.getloadavg()[0], unit_s()
    torch.set_num_threads(options.threads)
    try:
        command = [*parser.prog.split(), *(sys.argv[1:] if argv is None else argv)]
        measured = measure(options)
        work_s = (unit_before_s + unit_s()) / 2  # a shared machine is faster at some minutes than at others
        result = document(name, command, vars(options), measured, load_before=load_before, work_s=work_s)
    finally:
        torch.set_num_threads(before)
    text_json = json.dumps(result, indent=2, allow_nan=False)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text_json + "\n")
    print(text_json if options.json else "\n".join(describe(result)))


def describe(result: Mapping[str, Any]) -> list[str]:
    """Return the result as lines for people."""
    where = result["machine"]
    machine_line = (
        f"{where['gpu'] or where['cpu']}, {where['cores']} cores, {where['threads']} threads, "
        f"torch {where['torch']}; {load_text(result)}"
    )
    return [
        f"{result['command']}  ({result['date']}, commit {result['commit']})",
        machine_line,
        *(
            f"  {figure['label']:<64}{number(figure['value']):>12} {figure['unit']:<10}{verdict(figure)}".rstrip()
            for figure in result["figures"].values()
        ),
    ]


def load_text(result: Mapping[str, Any]) -> str:
    """Return the load average before and after, and whether other work disturbed the measurement."""
    before, after = load_before_and_after(result)
    load = f"{after}" if before is None else f"{before} before, {after} after"
    busy = "; BUSY: other work ran, so times are upper bounds" if is_busy(result) else ""
    return f"load average {load}{busy}"


def number(value: float) -> str:
    """Return four significant digits, without an exponent where that is readable."""
    if value and not 1e-3 <= abs(value) < 1e9:
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def verdict(figure: Mapping[str, Any]) -> str:
    """Return the goal and whether it is reached, empty where there is none."""
    if figure["goal"] is None:
        return ""
    bound = "at most" if figure["at_most"] else "at least"
    return f"goal {bound} {number(figure['goal'])}: {'met' if figure['met'] else 'MISSED'}"
