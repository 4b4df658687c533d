"""Random numbers as pure functions of a key (spec PANEL-13)."""

import hashlib

import numpy as np


def keyed_bits(*key: int | str) -> np.random.SFC64:
    """Return the generator of random bits that belongs to a key, such as (seed, stage, purpose, step)."""
    digest = hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=16).digest()
    return np.random.SFC64(np.random.SeedSequence(int.from_bytes(digest, "little")))
