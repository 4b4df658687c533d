"""Make sales.csv: weekly sales of invented shops of very different size, which a promotion multiplies by 1.5."""

import csv
import sys
from datetime import date, timedelta
from pathlib import Path

import numpy as np

SHOPS, WEEKS, FIRST = 30, 40, date(2024, 1, 1)
FACTOR = 1.5  # of the next week's sales, after a promotion
SEASON = 0.3  # of the logarithm of sales, from midwinter to midsummer


def rows() -> list[dict[str, object]]:
    """Return a row per shop and week."""
    rng, made = np.random.default_rng(7), list[dict[str, object]]()
    for shop in range(1, SHOPS + 1):
        size, state, promoted = rng.normal(6, 1), 0.0, 0
        for week in range(WEEKS):
            day = FIRST + timedelta(weeks=week)
            state = 0.6 * state + rng.normal(0, 0.15)
            season = -SEASON * np.cos(2 * np.pi * (day.month - 1) / 12)
            sold = np.exp(size + season + state) * FACTOR**promoted
            promoted = int(rng.random() < 0.3)
            made.append({"shop": f"S{shop:02d}", "week": day, "sales": f"{sold:.2f}", "promotion": promoted})
    return made


if __name__ == "__main__":
    with Path(sys.argv[1] if len(sys.argv) > 1 else "sales.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["shop", "week", "sales", "promotion"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows())
