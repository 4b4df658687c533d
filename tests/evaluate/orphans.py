"""ProcessPool of a benchmark whose parent is killed: a script that starts one, and what it does meanwhile.

python -m tests.evaluate.orphans NAME
"""

import atexit
import os
import sys
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from costar_cli.cli.benchmarking import pool as pools
from costar_cli.cli.benchmarking.jobs import Job, plan_jobs
from costar_cli.cli.benchmarking.methods import BenchmarkMethod


@dataclass
class BenchmarkWorkspace:
    """What a maker of jobs is told."""

    reporter: Any = None


def idle(benchmark: BenchmarkWorkspace, job: Job, cost_log: object) -> float:
    """Have made a job, so that the worker waits for the next one."""
    return 0.0


def _let_signals_come_late() -> None:
    kill = os.kill

    def late(process: int, number: int) -> None:
        time.sleep(0.2)
        kill(process, number)

    os.kill = late


def leaving(benchmark: BenchmarkWorkspace, job: Job, cost_log: object) -> float:
    """Have made a job, and take a while to end; what ends a worker with its parent comes meanwhile."""
    _let_signals_come_late()
    atexit.register(time.sleep, 0.5)
    return 0.0


def telling(benchmark: BenchmarkWorkspace, job: Job, cost_log: object) -> float:
    """Tell the parent something again and again."""
    while True:
        benchmark.reporter.note("on")


def telling_first(benchmark: BenchmarkWorkspace, job: Job, cost_log: object) -> float:
    """Find that the parent is dead by telling it something, before the signal comes."""
    _let_signals_come_late()
    return telling(benchmark, job, cost_log)


def working(benchmark: BenchmarkWorkspace, job: Job, cost_log: object) -> float:
    """Work, in a library that makes an error of its own of what a signal raises."""
    benchmark.reporter.note("begun")
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        raise RuntimeError("panicked") from None
    return 0.0


MAKERS = {maker.__name__: maker for maker in (idle, leaving, telling, telling_first, working)}

if __name__ == "__main__":
    from tests.evaluate import orphans

    pools.for_workers = lambda *_: cast("Any", orphans.BenchmarkWorkspace())
    reporter = SimpleNamespace(note=lambda _: None, job=None)
    cost_log = cast("Any", None)
    benchmark = cast("Any", SimpleNamespace(reporter=reporter))
    pool = pools.ProcessPool(benchmark, cost_log, cast("Any", orphans.MAKERS[sys.argv[1]]), 1)
    pool.begin(plan_jobs([10], [BenchmarkMethod("ridge", "ridge")], few_shot=False)[0])
    for _ in range(2):  # that the worker is ready, and the first that it tells
        pool.ends()
    print("ready", flush=True)
    time.sleep(60)
