"""A table of intervals `(start, stop]`: a drug, drawn for each, triples a constant hazard until the interval's end."""

import numpy as np
import polars as pl

__all__ = ["LENGTH", "intervals", "true_survival"]

LENGTH, HAZARD, RATIO, INTERVALS = 10.0, 0.02, 3.0, 6


def true_survival(drug: int, steps: int) -> np.ndarray:
    """The probability `[H]` of no event after 1, 2, ... whole intervals without the drug (0) or with it (1)."""
    return np.exp(-HAZARD * RATIO**drug * LENGTH * np.arange(1, steps + 1))


def intervals(n: int, seed: int = 0) -> pl.DataFrame:
    """Subjects of one interval or more: id, start, stop, drug, hb (measured at the start), event (at the stop)."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        hb = 12.0
        for k in range(INTERVALS):
            drug = rng.random() < 0.5
            until = rng.exponential(1 / (HAZARD * (RATIO if drug else 1.0)))
            event = until < LENGTH
            stop = k * LENGTH + (max(round(until, 2), 0.01) if event else LENGTH)
            rows.append((i, k * LENGTH, stop, int(drug), round(hb, 2), int(event)))
            if event:
                break
            hb += 0.5 * drug + rng.normal(0, 0.3)
    return pl.DataFrame(rows, schema=["id", "start", "stop", "drug", "hb", "event"], orient="row")
