"""One of two processes that train together, started by a test as `torchrun` would."""

import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import numpy as np

from costar_cli.data.store import read_dataset
from costar_cli.errors import CostarError, DeviceError, StorageError, TrainingError
from costar_cli.methods.base import Stage
from costar_cli.methods.shared import processes
from costar_cli.reporting import launched
from costar_cli.training import Runtime, TrainingLog, divided, loop
from costar_cli.training.group import MemberRecord
from costar_cli.training.log import EpochLog
from tests.train.test_together import ONE_THREAD, gradients
from tests.train.worlds import CPU, EXACT, LEAVING, run_finetune, run_pretrain

STEPS_BEFORE = 3


@contextmanager
def in_the_second(act: Callable[[], None]) -> Iterator[list[list[int]]]:
    """Let something happen to the second process after some steps; yield the members of each step of this one."""
    with in_process(1, act, STEPS_BEFORE) as taken:
        yield taken


@contextmanager
def in_process(rank: int, act: Callable[[], None], after: int) -> Iterator[list[list[int]]]:
    """Let something happen to a process after so many steps; yield the members of each step of this one."""
    step, taken = loop.training_step, list[list[int]]()

    def acting(*args):
        if len(taken) == after and launched("RANK") == rank:
            act()
        taken.append(args[1].members)
        return step(*args)

    loop.training_step = acting
    try:
        yield taken
    finally:
        loop.training_step = step


def fail() -> None:
    raise TrainingError("the loss is not finite", where="a member of the second process", details=["one", "two"])


class FullLog:
    """A log whose disk is full once the second member comes."""

    def of_part(self) -> EpochLog:
        return self.add

    def add(self, stage: Stage, members: Sequence[int], records: Sequence[MemberRecord], seconds: float | None) -> None:
        if 1 in members:
            raise StorageError("the disk is full", where="log.csv")


def run_out_of_memory() -> None:
    raise MemoryError


def main(folder: Path) -> None:
    dataset, rank = read_dataset(folder / "data.h5"), launched("RANK")
    divided.MEET_S = 0.1
    np.savez(folder / f"gradients-{rank}.npz", **gradients(dataset, Runtime.resolve(CPU)))
    with nullcontext() if rank else TrainingLog(folder / "log.csv", "run") as log, in_the_second(int) as taken:
        whole = run_pretrain(dataset, folder / "whole", ONE_THREAD, members=3, log=log)
    np.savez(folder / f"whole-{rank}.npz", **whole.arrays)
    (folder / f"taken-{rank}.json").write_text(json.dumps(taken))
    goes_on = run_pretrain(dataset, folder / "goes-on", ONE_THREAD, members=3)
    np.savez(folder / f"goes-on-{rank}.npz", **goes_on.arrays)
    parted = run_finetune(dataset, folder / "parted", runtime=EXACT, **LEAVING)
    np.savez(folder / f"parted-{rank}.npz", **parted.arrays)
    divided.MEET_S = 60.0  # only in the end
    stop = partial(signal.raise_signal, signal.SIGINT)
    for name, act in {"full": int, "full-stopped": stop, "full-failed": fail}.items():
        with in_the_second(act):
            try:
                run_pretrain(dataset, folder / name, ONE_THREAD, members=3, log=None if rank else FullLog())
            except CostarError as error:
                (folder / f"{name}-{rank}.json").write_text(json.dumps(error.to_json()))
            except KeyboardInterrupt:
                assert (name, rank) == ("full-stopped", 1)
    with in_process(0, run_out_of_memory, 1):
        try:
            run_pretrain(dataset, folder / "failed-early", ONE_THREAD, members=3)
        except (MemoryError, DeviceError):
            processes.wait()
    divided.MEET_S = 0.0  # after each step
    for name, members, runtime in (("shared", 1, EXACT), ("divided", 3, ONE_THREAD)):
        with in_the_second(stop) as taken:
            try:
                run_pretrain(dataset, folder / name, runtime, members=members)
            except KeyboardInterrupt:
                assert len(taken) in {STEPS_BEFORE, STEPS_BEFORE + 1}
            else:
                sys.exit("not interrupted")
    with in_the_second(fail):
        try:
            run_pretrain(dataset, folder / "failed", ONE_THREAD, members=3)
        except TrainingError as error:
            (folder / f"failed-{rank}.json").write_text(json.dumps(error.to_json()))


if __name__ == "__main__":
    with processes.together():
        main(Path(sys.argv[1]))
