"""Write visits, doses and deaths of invented patients: python make_deaths_csv.py > deaths.csv

A drug lowers a marker from week to week. Each unit of the marker above 5 multiplies the odds of death by e^0.5, and the
drug itself those of the week by e^0.7: it is toxic. One in fifty leaves the study each week.
"""

import csv
import math
import random
import sys

PATIENTS, WEEKS = 1000, 16


def chance(logit: float) -> float:
    """Return a probability."""
    return 1 / (1 + math.exp(-logit))


def main() -> None:
    """Write a row per patient and week; the last one of the dead has no marker."""
    draw = random.Random(7)  # noqa: S311
    out = csv.writer(sys.stdout)
    out.writerow(["patient", "week", "age", "marker", "drug", "death", "dropout"])
    for patient in range(1, PATIENTS + 1):
        age, marker, dead = draw.randint(40, 80), draw.gauss(6, 1), False
        for week in range(WEEKS):
            drug = int(draw.random() < chance(marker - 6))
            left = not dead and week < WEEKS - 1 and draw.random() < 0.02
            row = ["", ""] if dead else [f"{marker:.2f}", drug]
            out.writerow([f"P{patient:03d}", week, age, *row, int(dead), int(left)])
            if dead or left:
                break
            dead = draw.random() < chance(-4.5 + 0.5 * (marker - 5) + 0.7 * drug)
            marker += 0.15 * (6.5 - marker) - 0.5 * drug + draw.gauss(0, 0.3)


if __name__ == "__main__":
    main()
