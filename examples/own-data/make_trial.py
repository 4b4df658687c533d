"""Write trial.csv: tumours of invented patients under doses of a drug, with deaths and dropout.

python make_trial.py [FILE]
python make_trial.py --truth

A row per patient and cycle of three weeks. From one cycle to the next a tumour grows by e^g, g around 0.08 and each
patient's own, and 100 mg shrink it by e^-0.2. Doctors give more for larger tumours. Each 10 mm above 50 multiply the
odds of death in a cycle by e^0.5, and 100 mg by e^0.8: the drug is toxic. One in thirty leaves at each cycle. Nobody's
data.
`--truth` prints what becomes of 40,000 such patients, alive at cycle 3, under doses from there on.
"""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SEED, PATIENTS, CYCLES, MANY = 5, 500, 12, 40_000
GROWTH, SHRINKS, LARGE, TOXIC = 0.08, 0.2, 0.05, 0.8  # per cycle, per 100 mg, per mm, per 100 mg
ORIGIN, AHEAD = 3, 4  # cycles of the truth

Cycle = tuple[float, int, bool]


def usual_dose(rng: np.random.Generator, size: float) -> int:
    """Return what a doctor gives, in mg."""
    return 0 if rng.random() < 0.15 else 5 * round(np.clip(rng.normal(40 + 0.6 * (size - 40), 20), 0, 150) / 5)


def course(rng: np.random.Generator, cycles: int, fixed: int | None = None) -> Iterator[Cycle]:
    """Yield size in mm, dose, and whether the patient dies before the next cycle; `fixed` doses begin at ORIGIN."""
    size, growth = 50 * np.exp(rng.normal(0, 0.3)), rng.normal(GROWTH, 0.03)
    for cycle in range(cycles):
        dose = usual_dose(rng, size) if fixed is None or cycle < ORIGIN else fixed
        dies = rng.random() < 1 / (1 + np.exp(4.2 - LARGE * (size - 50) - TOXIC * dose / 100))
        yield float(size), dose, bool(dies)
        if dies:
            return
        size *= np.exp(growth - SHRINKS * dose / 100 + rng.normal(0, 0.05))


def rows(rng: np.random.Generator, patient: int) -> Iterator[list[object]]:
    """Yield the rows of a patient; the last one of the dead has neither tumour nor dose."""
    age = int(rng.integers(40, 80))
    for cycle, (size, dose, dies) in enumerate(course(rng, CYCLES)):
        left = cycle < CYCLES - 1 and rng.random() < 1 / 30
        yield [f"T{patient:03d}", cycle, age, f"{size:.1f}", dose, 0, int(left)]
        if left:
            return
        if dies:
            yield [f"T{patient:03d}", cycle + 1, age, "", "", 1, 0]


def truth() -> Iterator[str]:
    """Yield the mean size after each cycle of those alive, and their share, under each dose."""
    for dose in (0, 20, 40, 60, 80, 100):
        rng = np.random.default_rng(SEED)
        every = [list(course(rng, ORIGIN + AHEAD + 1, dose)) for _ in range(MANY)]
        known = [one for one in every if len(one) > ORIGIN]
        alive = [[one[ORIGIN + h][0] for one in known if len(one) > ORIGIN + h] for h in range(1, AHEAD + 1)]
        sizes = ", ".join(f"{np.mean(some):.1f}" for some in alive)
        yield f"{dose} mg: {sizes} mm; alive {', '.join(f'{len(some) / len(known):.3f}' for some in alive)}"


def main(path: Path) -> None:
    """Write the table."""
    rng = np.random.default_rng(SEED)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("patient", "cycle", "age", "tumour", "dose", "death", "dropout"))
        for patient in range(1, PATIENTS + 1):
            writer.writerows(rows(rng, patient))


if __name__ == "__main__":
    if sys.argv[1:] == ["--truth"]:
        sys.stdout.writelines(f"{line}\n" for line in truth())
    else:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("trial.csv"))
