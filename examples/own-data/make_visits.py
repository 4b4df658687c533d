"""Write visits.csv: blood pressure of outpatients, who come when they can, under an invented drug.

python make_visits.py [FILE]

Day by day the pressure goes back to the patient's own level by a tenth of the distance, with an sd of 1.2 mmHg, and
the drug lowers it by 3 mmHg on its first day, by half as much four days later. Nobody's data.
"""

import csv
import sys
from datetime import date, timedelta
from pathlib import Path

import numpy as np

SEED, PATIENTS, DAYS = 11, 60, 150
HALF_LIFE_DAYS, FIRST_DAY_MMHG = 4.0, -3.0


def main(path: Path) -> None:
    """Simulate each patient by the day, and write the days of visits."""
    rng = np.random.default_rng(SEED)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("patient", "date", "pressure", "drug"))
        for number in range(1, PATIENTS + 1):
            usual, left = rng.normal(155, 8), 0.0
            pressure = usual + rng.normal(scale=5)
            first = date(2024, 1, 8) + timedelta(days=int(rng.integers(30)))
            for day in range(DAYS):
                if day == 0 or rng.random() < 0.12:
                    given = rng.random() < 1 / (1 + np.exp((150 - pressure) / 4))
                    left += given
                    when = (first + timedelta(days=day)).isoformat()
                    writer.writerow((f"V-{number:02d}", when, f"{pressure:.1f}", "yes" if given else "no"))
                pressure += 0.1 * (usual - pressure) + FIRST_DAY_MMHG * left + rng.normal(scale=1.2)
                left *= 0.5 ** (1 / HALF_LIFE_DAYS)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("visits.csv"))
