"""Write tables of other shapes: shelves.csv with stores.csv, and the log of events log.csv. Invented, nobody's data.

python make_shapes.py [FOLDER [TIMES]]

TIMES makes tables of so many times the subjects. A promotion multiplies the sales of its week by 1.5 and those of the
week after by 0.9; a bag of fluid raises the next hour's pressure by 4 mmHg.
"""

import csv
import sys
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np

SEED = 11
STORES, BRANDS, WEEKS = 24, ("oat", "rye"), 16
PATIENTS = 40


def shelves(rng: np.random.Generator, times: int = 1) -> tuple[list[list[object]], list[list[object]]]:
    """Return weekly rows of shelves, each with the promotion of that week, and a row per store."""
    rows, stores = [], []
    for store in range(1, times * STORES + 1):
        area = int(rng.integers(200, 1_200))
        stores.append([store, area])
        for brand in BRANDS:
            level, promo = np.log(area / 8) + rng.normal(0, 0.2), 0
            cents = int(rng.integers(180, 260))
            for week in range(WEEKS):
                before, promo = promo, int(rng.random() < 0.25)
                cents = int(np.clip(cents + rng.integers(-8, 9), 150, 320))
                sold = np.exp(level + promo * np.log(1.5) + before * np.log(0.9) + rng.normal(0, 0.15))
                day = date(2024, 1, 1) + timedelta(weeks=week)
                rows.append([store, brand, day.isoformat(), promo, cents, round(sold)])
    return rows, stores


def log(rng: np.random.Generator, times: int = 1) -> list[list[object]]:
    """Return a row per event: pressure about hourly, bags of fluid where it was low, lactate now and then."""
    rows: list[list[object]] = []
    for patient in range(1, times * PATIENTS + 1):
        start = datetime(2024, 3, 1, 6) + timedelta(hours=int(rng.integers(200)))
        usual = rng.normal(72, 6)
        pressure = usual
        for hour in range(int(rng.integers(10, 16))):
            when = start + timedelta(hours=hour, minutes=int(rng.integers(25)))
            bags = int(rng.random() < 1 / (1 + np.exp((pressure - 68) / 3)))
            if hour == 0 or rng.random() > 0.08:  # a missed measurement now and then
                rows.append([f"P{patient:02d}", f"{when:%Y-%m-%d %H:%M}", "MAP", round(pressure, 1)])
            if bags:
                later = when + timedelta(minutes=30)
                rows.append([f"P{patient:02d}", f"{later:%Y-%m-%d %H:%M}", "fluid", 500])
            if rng.random() < 0.3:
                rows.append([f"P{patient:02d}", f"{when:%Y-%m-%d %H:%M}", "lactate", round(rng.lognormal(2.7, 0.4), 1)])
            pressure = usual + 0.7 * (pressure - usual) + 4 * bags + rng.normal(0, 3)
    return rows


def write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write one table."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def main() -> None:
    """Write the files."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    of_shelves, of_log = (np.random.default_rng(seed) for seed in np.random.SeedSequence(SEED).spawn(2))
    weekly, stores = shelves(of_shelves, times)
    write(folder / "shelves.csv", ("store", "brand", "week", "promotion", "cents", "sold"), weekly)
    write(folder / "stores.csv", ("store", "square_metres"), stores)
    write(folder / "log.csv", ("patient", "when", "item", "amount"), log(of_log, times))


if __name__ == "__main__":
    main()
