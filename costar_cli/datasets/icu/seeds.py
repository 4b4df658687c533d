"""One seed for a data set, and a seed of its own for each thing that is drawn."""

from enum import IntEnum

import numpy as np

__all__ = ["Stream", "child_seed"]


class Stream(IntEnum):
    """What a child seed is for; the numbers are part of what a seed means."""

    COHORT = 0
    WORLD = 1
    SOURCE_SPLIT = 2
    TARGET_SPLIT = 3
    SUBSAMPLE = 4


def child_seed(seed: int, stream: Stream) -> int:
    """Return the seed of a stream, 63 bits; the simulators make child seeds of their own from it."""
    state = np.random.SeedSequence(seed, spawn_key=(int(stream),)).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))
