"""Write clinic.csv: blood pressure of invented patients by month, a drug that some are given for it, strokes, dropout.

python make_clinic.py [FILE]
python make_clinic.py --truth

A row per patient and month. Pressure goes back to 140 by three tenths a month, and a month of the drug lowers it by 8
mmHg. Doctors start the drug the sooner the higher it is, and nine in ten who have it keep it. Each 10 mmHg and each 20
years of age multiply the odds of a stroke in a month by e^0.6; those with a high pressure leave more often. Nobody's
data.
`--truth` prints what the trial of docs/target.md would find in 400,000 such patients whom nobody loses.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SEED, PATIENTS, MONTHS, MANY = 7, 4_000, 9, 400_000
HIGH, AHEAD = 150, 4  # mmHg from which a trial starts, months that it takes

Floats = NDArray[np.float64]


def odds(logit: Floats) -> Floats:
    """Return a probability."""
    return 1 / (1 + np.exp(-logit))


def courses(n: int, plan: float | None = None, *, losing: bool = True) -> dict[str, Floats]:
    """Return age `[n]`; pressure, drug, and whether a stroke or the loss comes after the month `[n,months]`.

    Under a `plan` the drug is that from the first month on with a high pressure and no drug in the month before.
    """
    rng = np.random.default_rng(SEED)
    age, pressure, drug = rng.uniform(45, 75, n), 140 + 11 * rng.normal(size=n), np.zeros(n)
    begun = np.full(n, -1)
    columns: dict[str, list[Floats]] = {name: [] for name in ("pressure", "drug", "stroke", "lost", "begun")}
    for month in range(MONTHS):
        starts = (begun < 0) & (pressure >= HIGH) & (drug == 0)
        begun[starts] = month
        usual = rng.random(n) < np.where(drug == 1, 0.9, odds(-0.6 + 0.05 * (pressure - HIGH)))
        drug = np.where(begun >= 0, plan, usual) if plan is not None else usual.astype(float)
        stroke = rng.random(n) < odds(-4.5 + 0.06 * (pressure - 8 * drug - 140) + 0.03 * (age - 60))
        lost = losing & (rng.random(n) < odds(-4 + 0.05 * (pressure - 140)))
        for name, column in zip(columns, (pressure, drug, stroke, lost, begun), strict=True):
            columns[name].append(np.array(column, dtype=float))
        pressure = 140 + 0.7 * (pressure - 140) - 8 * drug + 8 * rng.normal(size=n)
    return {"age": age, **{name: np.stack(column, axis=1) for name, column in columns.items()}}


def main(path: Path) -> None:
    """Write the table; the last row of those who had a stroke has neither pressure nor drug."""
    made = courses(PATIENTS)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", "month", "age", "pressure", "drug", "stroke", "lost"])
        for i in range(PATIENTS):
            age = int(made["age"][i])
            for month in range(MONTHS):
                last, stroke = month == MONTHS - 1, bool(made["stroke"][i, month])
                lost = bool(made["lost"][i, month]) and not stroke and not last
                drug = "on" if made["drug"][i, month] else "off"
                writer.writerow([f"C{i:04d}", month, age, f"{made['pressure'][i, month]:.1f}", drug, 0, int(lost)])
                if stroke and not last:
                    writer.writerow([f"C{i:04d}", month + 1, age, "", "", 1, 0])
                if stroke or lost:
                    break


def truth() -> None:
    """Print the mean pressure after each month, and the risk of a stroke by then, under both plans."""
    for name, plan in (("wait", 0.0), ("start", 1.0)):
        made = courses(MANY, plan, losing=False)
        begun = made["begun"].max(axis=1).astype(int)
        had = made["stroke"].cumsum(axis=1) > 0
        free = np.concatenate([np.zeros((MANY, 1), bool), had], axis=1)[np.arange(MANY), np.maximum(begun, 0)]
        entered = np.flatnonzero((begun >= 0) & (begun + AHEAD <= MONTHS - 1) & ~free)
        at = begun[entered]
        pressure = [made["pressure"][entered, at + h].mean() for h in range(1, AHEAD + 1)]
        risk = [had[entered, at + h - 1].mean() for h in range(1, AHEAD + 1)]
        levels, risks = ", ".join(f"{x:.1f}" for x in pressure), ", ".join(f"{x:.4f}" for x in risk)
        sys.stdout.write(f"{name}: pressure {levels}; risk of a stroke {risks}\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--truth"]:
        truth()
    else:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "clinic.csv"))
