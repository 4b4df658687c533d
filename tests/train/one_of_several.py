"""One of two processes that train together, started by a test as `torchrun` would."""

import signal
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from costar_cli.methods.shared import processes
from costar_cli.panel.store import read_dataset
from costar_cli.reporting import launched
from costar_cli.train import Runtime, loop
from tests.train.test_together import gradients
from tests.train.worlds import CPU, EXACT, run_pretrain

STEPS_BEFORE = 3


def main(folder: Path) -> None:
    dataset, rank = read_dataset(folder / "data.h5"), launched("RANK")
    np.savez(folder / f"gradients-{rank}.npz", **gradients(dataset, Runtime.resolve(CPU)))
    step, calls = loop.training_step, iter(range(10**6))

    def interrupted_in_the_second(*args: object) -> torch.Tensor:
        if next(calls) == STEPS_BEFORE and rank == 1:
            signal.raise_signal(signal.SIGINT)
        return step(*args)  # type: ignore[arg-type]

    loop.training_step = interrupted_in_the_second
    with suppress(KeyboardInterrupt):
        run_pretrain(dataset, folder, EXACT, members=2)
        sys.exit(1)


if __name__ == "__main__":
    with processes.together():
        main(Path(sys.argv[1]))
