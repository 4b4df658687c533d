"""Write small.csv: blood glucose of inpatients with diabetes in two invented hospitals, one row per patient and day.

python make_small_csv.py [FILE]

Insulin and steroids act as in `glucose_next`; the north treats by what it measures, the south by habit. Nobody's data.
"""

import csv
import sys
from datetime import date, timedelta
from pathlib import Path

import numpy as np

SEED = 7
PATIENTS = {"north": 110, "south": 60}
INSULIN = ("none", "basal", "basal-bolus")
COLUMNS = ("patient", "date", "hospital", "age", "sex", "diabetes", "carbs", "crp", "insulin", "steroid", "glucose")


def glucose_next(glucose: float, base: float, carbs: float, insulin: int, steroid: int, noise: float) -> float:
    """Return tomorrow's fasting glucose in mg/dL: it returns to the patient's base, moved by what is given today."""
    drift = 0.6 * (glucose - base) + 0.15 * (carbs - 180) + 32 * steroid - (0, 24, 45)[insulin]
    return float(np.clip(base + drift + noise, 45, 480))


def rows(rng: np.random.Generator, hospital: str, number: int) -> list[list[object]]:
    """Return the days of one patient."""
    south = hospital == "south"
    age = int(np.clip(rng.normal(74 if south else 61, 9), 30, 96))
    diabetes = "type 1" if rng.random() < 0.15 else "type 2"
    base = rng.normal(205 if diabetes == "type 1" else 188, 18) + 0.4 * (age - 65)
    start = date(2024, 1, 1) + timedelta(days=int(rng.integers(300)))
    inflamed = rng.normal(3.4, 0.7)  # log of C-reactive protein in mg/L
    who = [f"{hospital[0].upper()}-{number:03d}", start, hospital, age, "fm"[int(rng.integers(2))], diabetes]
    glucose, made = base + rng.normal(0, 20), []
    for day in range(int(rng.integers(8, 16))):
        carbs = round(float(np.clip(rng.normal(180, 35), 60, 300)) / 5) * 5
        inflamed += rng.normal(-0.12, 0.25)
        steroid = int(rng.random() < (0.1 if south else 0.22))
        urge = rng.normal(-0.3, 1.1) if south else (glucose - 178) / 30 + rng.normal(0, 0.7)
        insulin = int(np.digitize(urge, (-0.6, 0.8)))
        crp = f"{np.exp(inflamed):.1f}" if day % 3 == 0 or rng.random() < 0.35 else ""  # not measured every day
        made.append([*who, carbs, crp, INSULIN[insulin], steroid, round(glucose)])
        made[-1][1] = (start + timedelta(days=day)).isoformat()
        glucose = glucose_next(glucose, base, carbs, insulin, steroid, rng.normal(0, 12))
    return made


def main() -> None:
    """Write the file."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("small.csv")
    seeds = np.random.SeedSequence(SEED).spawn(sum(PATIENTS.values()))
    patients = [(hospital, number) for hospital, n in PATIENTS.items() for number in range(1, n + 1)]
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for seed, (hospital, number) in zip(seeds, patients, strict=True):
            writer.writerows(rows(np.random.default_rng(seed), hospital, number))


if __name__ == "__main__":
    main()
