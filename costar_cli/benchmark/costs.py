"""What a cell costs: time and memory while it is made, parameters and epochs of what was made."""

import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
import psutil

__all__ = ["Meter", "ModelSize", "give_memory_back", "measure_model"]

SAMPLE_S = 0.02
MEGABYTE = 1e6
# What models keep of their training data beside parameters: G-Net's residuals, the scales of the ridge's columns.
KEPT_DATA = ("params/residuals.", "params/columns.")


class Meter:
    """Measures wall time and peak memory of the process while the context lasts.

    Memory is what the process holds in the machine's main memory, the program included, sampled every 20 ms.
    """

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.memory_mb = 0.0
        self.device_memory_mb: float | None = None
        self._done = threading.Event()
        self._process = psutil.Process(os.getpid())
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        _on_gpu("reset_peak_memory_stats")
        self._begun = time.perf_counter()
        self._look()
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._sampler.join()
        self._look()
        self.wall_s = time.perf_counter() - self._begun
        peak = _on_gpu("max_memory_allocated")
        self.device_memory_mb = None if peak is None else peak / MEGABYTE

    def _sample(self) -> None:
        while not self._done.wait(SAMPLE_S):
            self._look()

    def _look(self) -> None:
        with suppress(psutil.Error):
            self.memory_mb = max(self.memory_mb, self._process.memory_info().rss / MEGABYTE)


def give_memory_back() -> None:
    """Return freed memory to the system, which training keeps for reuse (train/allocator.py).

    What one cell leaves behind would otherwise count as the next one's, as far as the C library can tell.
    """
    gc.collect()
    if sys.platform.startswith("linux"):
        with suppress(AttributeError, OSError):  # other C libraries have no such call
            ctypes.CDLL(None).malloc_trim(0)


def _on_gpu(call: str) -> int | None:
    """Ask the framework about the GPU's memory, if it is loaded and there is one in use."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    answer = getattr(torch.cuda, call)()
    return None if answer is None else int(answer)


@dataclass(frozen=True, slots=True)
class ModelSize:
    """How large a model is and how long it was trained: parameters of one member, epochs and updates of each stage.

    Both are by the stage's name and the mean over members; `updates` are optimiser steps. `by_budget` names the stages
    in which a member's training ended because they ran out. A model in closed form has no stages.
    """

    parameters: int
    epochs: dict[str, float]
    updates: dict[str, float]
    by_budget: tuple[str, ...] = ()

    @property
    def total_epochs(self) -> float | None:
        """Return the epochs of all stages together, None for a model in closed form."""
        return sum(self.epochs.values()) if self.epochs else None

    @property
    def total_updates(self) -> float | None:
        """Return the updates of all stages together, None for a model in closed form or of an older version."""
        return sum(self.updates.values()) if self.updates else None

    @property
    def outcome_updates(self) -> float | None:
        """Return the updates of the stages that learn outcomes."""
        return sum(n for stage, n in self.updates.items() if not is_auxiliary(stage)) if self.updates else None

    @property
    def other_updates(self) -> float | None:
        """Return the updates of the other stages: pretraining, propensity networks."""
        return sum(n for stage, n in self.updates.items() if is_auxiliary(stage)) if self.updates else None


def is_auxiliary(stage: str) -> bool:
    """Return whether a stage, by its name, learns no outcomes: COSTAR's pretraining, RMSN's propensity networks."""
    return not {"pretrain", "propensity"}.isdisjoint(stage.split())


def measure_model(described: Mapping[str, Any]) -> ModelSize:
    """Return the size of a model or encoder from what `costar inspect` knows of its file."""
    arrays, meta = described["arrays"], described["meta"]
    learned = [a for a in arrays if a["name"].startswith("params/") and not a["name"].startswith(KEPT_DATA)]
    stages = meta.get("stages", [{"name": "pretrain", "history": meta["history"]}])
    return ModelSize(
        parameters=sum(int(np.prod(array["shape"][1:])) for array in learned),
        epochs={str(stage["name"]): _epochs(stage["history"]) for stage in stages},
        updates={str(stage["name"]): float(np.mean(stage["steps"])) for stage in stages if "steps" in stage},
        by_budget=tuple(str(stage["name"]) for stage in stages if "budget" in stage.get("ended_by", ())),
    )


def _epochs(history: Mapping[str, Sequence[Sequence[float]]]) -> float:
    return float(np.mean([len(losses) for losses in history["train_loss"]]))
