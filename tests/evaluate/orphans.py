"""Workers of a benchmark whose parent is killed: a script that starts one, and what it does meanwhile.

python -m tests.evaluate.orphans NAME
"""

import atexit
import os
import sys
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from costar_cli.cli.benchmarking import Contender, plan_cells, workers
from costar_cli.cli.benchmarking.cells import Cell


@dataclass
class Bench:
    """What a maker of cells is told."""

    reporter: Any = None


def idle(bench: Bench, cell: Cell, ledger: object) -> float:
    """Have made a cell, so that the worker waits for the next one."""
    return 0.0


def leaving(bench: Bench, cell: Cell, ledger: object) -> float:
    """Have made a cell, and take a while to end; what ends a worker with its parent comes meanwhile."""
    kill = os.kill

    def late(process: int, number: int) -> None:
        time.sleep(0.2)
        kill(process, number)

    os.kill = late
    atexit.register(time.sleep, 0.5)
    return 0.0


def telling(bench: Bench, cell: Cell, ledger: object) -> float:
    """Tell the parent something again and again."""
    while True:
        bench.reporter.note("on")


def working(bench: Bench, cell: Cell, ledger: object) -> float:
    """Work, in a library that makes an error of its own of what a signal raises."""
    bench.reporter.note("begun")
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        raise RuntimeError("panicked") from None
    return 0.0


MAKERS = {maker.__name__: maker for maker in (idle, leaving, telling, working)}

if __name__ == "__main__":
    from tests.evaluate import orphans

    workers.told = lambda *_: cast("Any", orphans.Bench())
    reporter = SimpleNamespace(note=lambda _: None, cell=None)
    ledger = cast("Any", None)
    bench = cast("Any", SimpleNamespace(reporter=reporter))
    crew = workers.Workers(bench, ledger, cast("Any", orphans.MAKERS[sys.argv[1]]), 1)
    crew.begin(plan_cells([10], [Contender("ridge", "ridge")], few_shot=False)[0])
    for _ in range(2):  # that the worker is ready, and the first that it tells
        crew.ends()
    print("ready", flush=True)
    time.sleep(60)
