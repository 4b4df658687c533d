"""Write an invented table of doses: units of insulin, each of which lowers the next morning's glucose by 6 mg/dL.

Half of that carries over to the day after. Those with high glucose get more.
"""

import csv
import sys

import numpy as np


def main(path: str) -> None:
    """Write 120 patients of 12 days."""
    rng = np.random.default_rng(0)
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["patient", "day", "insulin", "glucose"])
        for patient in range(120):
            usual, left = rng.normal(190, 20), 0.0
            glucose = rng.normal(usual, 15)
            for day in range(12):
                dose = max(0.0, round(4 + 0.06 * (glucose - 170) + rng.normal(0, 2.5), 1))
                table.writerow([f"P-{patient:03d}", day, dose, round(glucose)])
                left = 0.5 * left + dose
                glucose = usual + 0.5 * (glucose - usual) - 6 * (left - 9) + rng.normal(0, 8)


if __name__ == "__main__":
    main(sys.argv[1])
