"""Training members in several processes: dividing them, sharing each one's batches, or one process with threads.

    python -m benchmarks.processes [--json] [--out FILE] [--quick] [--members 4] [--processes 2] [--repeats 3]

COSTAR's pretraining and its supervised stage from scratch, a few epochs on simulated tumour patients, in processes that
`torchrun` starts, on one thread each. The ways take turns: members divided among processes; all
processes sharing each member's batches, as where members are fewer; one process with as many threads,
and with one, while the others wait. Seconds on the clock are of the slowest process, processor seconds of all together.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from unittest import mock

from benchmarks.cohort import training_data
from benchmarks.measure import Figure, Measured, run, run_child
from costar_cli.config.models import EncoderConfig, FinetuneConfig, PretrainConfig, RuntimeConfig
from costar_cli.data import Dataset
from costar_cli.methods.shared import processes
from costar_cli.reporting import NullReporter
from costar_cli.training import RunIdentity, Runtime, finetune, loop, pretrain

__all__ = ["main"]

WAYS = ("divided", "shared", "threads", "alone")
STAGES = ("pretrain", "finetune")
Times = dict[str, dict[str, list[list[float]]]]  # of each stage and way: clock and processor seconds of each repeat


def measure(options: argparse.Namespace) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(options.processes)]
        sizes = [options.members, options.repeats, options.seed, int(options.quick)]
        run_child(*torchrun, "-m", "benchmarks.processes", folder, *map(str, sizes))
        times: Times = json.loads((Path(folder) / "times.json").read_text())
    figures: dict[str, Figure] = {}
    for stage in STAGES:
        clock, cpu = ({way: median(pair[k] for pair in times[stage][way]) for way in WAYS} for k in (0, 1))
        for way in WAYS:
            figures[f"{stage}_{way}_s"] = Figure(f"{stage}, {way}: on the clock", clock[way], "s")
            figures[f"{stage}_{way}_cpu_s"] = Figure(f"{stage}, {way}: of processors", cpu[way], "s")
        for way in WAYS[1:]:
            figures[f"{stage}_divided_over_{way}"] = Figure(
                f"{stage}: clock, divided over {way}", clock["divided"] / clock[way], "x", at_most=True
            )
        figures[f"{stage}_cpu_divided_over_shared"] = Figure(
            f"{stage}: processors, divided over shared", cpu["divided"] / cpu["shared"], "x", at_most=True
        )
    return Measured(figures, {"members": options.members, "processes": options.processes, "times": times})


def work(folder: Path, members: int, repeats: int, seed: int, *, quick: bool) -> None:
    """Time all ways in one of the processes; the first one writes what they took."""
    dataset = training_data(40 if quick else 300, steps=20 if quick else 60, seed=seed)
    Runtime.resolve(RuntimeConfig(device="cpu"))  # where processes meet
    times: Times = {stage: {way: [] for way in WAYS} for stage in STAGES}
    for turn in range(repeats + 1):  # the first one is not counted
        for stage in STAGES:
            for way in WAYS:
                took = timed(dataset, stage, way, folder / f"{turn}-{way}-{stage}.h5", members, seed)
                times[stage][way] += [took] if turn else []
    if processes.rank() == 0:
        (folder / "times.json").write_text(json.dumps(times))


def timed(dataset: Dataset, stage: str, way: str, checkpoint: Path, members: int, seed: int) -> list[float]:
    """Return the clock's and all processors' seconds of training in some way."""
    is_idle = way in {"threads", "alone"} and processes.rank() > 0
    threads = processes.count() if way == "threads" else 1
    processes.wait()
    clock_s, cpu_s = time.perf_counter(), time.process_time()
    if not is_idle:
        with in_way(way):
            train(dataset, stage, checkpoint, members, seed, threads)
    spent_s = time.process_time() - cpu_s
    took = processes.said((time.perf_counter() - clock_s, spent_s))
    return [max(clock for clock, _ in took), sum(cpu for _, cpu in took)]


@contextmanager
def in_way(way: str) -> Iterator[None]:
    with ExitStack() as stack:
        if way == "shared":
            stack.enter_context(mock.patch.object(loop, "own_groups", return_value=None))
        if way in {"threads", "alone"}:
            stack.enter_context(processes.apart())
        yield


def train(dataset: Dataset, stage: str, checkpoint: Path, members: int, seed: int, threads: int) -> None:
    runtime = RuntimeConfig(device="cpu", threads=threads)
    state, reporter = {"checkpoint": checkpoint, "identity": RunIdentity(checkpoint.name)}, NullReporter()
    if stage == "pretrain":
        pretrain(dataset, PretrainConfig(epochs=2, members=members, seed=seed), runtime, reporter=reporter, **state)
        return
    config = FinetuneConfig(epochs=2, members=members, seed=seed, encoder=EncoderConfig())
    finetune(dataset, config, runtime, domain="source", start=None, reporter=reporter, judged=False, **state)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--processes", type=int, default=2)


def main(argv: Sequence[str] | None = None) -> None:
    run("processes", __doc__, measure, argv, repeats=3, add_options=_add_options)


if __name__ == "__main__":
    if "TORCHELASTIC_RUN_ID" in os.environ:
        with processes.together():
            folder, *sizes = sys.argv[1:]
            members, repeats, seed, quick = map(int, sizes)
            work(Path(folder), members, repeats, seed, quick=bool(quick))
    else:
        main()
