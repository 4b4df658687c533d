"""Write theophylline.csv: concentrations of an invented drug after oral doses, in NONMEM's layout.

python make_theophylline.py [FILE]

One compartment with first-order absorption: half of what was swallowed is absorbed in 15 minutes, and half of what is
in the blood is gone in 6 hours (patients differ by 20 %). A dose of 320 mg adds some 10 mg/L. Every 4 hours the
concentration is measured, and a patient who is low is likelier to get a dose. Nobody's data.
"""

import sys
from pathlib import Path

import numpy as np

SEED, PATIENTS, VISITS, HOURS = 7, 150, 14, 4.0
ABSORPTION, HALF_LIFE_H, LITRES = np.log(2) / 0.25, 6.0, 32.0


def main(path: Path) -> None:
    """Simulate each patient from visit to visit, and write records of observations and doses."""
    rng = np.random.default_rng(SEED)
    lines = ["ID,TIME,DV,AMT,EVID,MDV,WT"]
    for patient in range(1, PATIENTS + 1):
        weight = rng.normal(72, 9)
        elimination = np.log(2) / (HALF_LIFE_H * np.exp(rng.normal(scale=0.2)))
        gut, blood, before = 0.0, 0.0, 0.0
        for visit in range(VISITS):
            time = HOURS * visit + (rng.uniform(-0.5, 0.5) if visit else 0.0)
            if visit:
                hours = time - before
                moved = gut * ABSORPTION / (ABSORPTION - elimination)
                decay, absorbed = np.exp(-elimination * hours), np.exp(-ABSORPTION * hours)
                blood = blood * decay + moved * (decay - absorbed)
                gut *= absorbed
            level = blood / LITRES
            measured = max(level + rng.normal(scale=0.3), 0.0)
            lines.append(f"{patient},{time:.2f},{measured:.2f},.,0,0,{weight:.1f}")
            if rng.random() < 1 / (1 + np.exp((level - 7) / 1.5)):
                amount = int(rng.choice([160, 240, 320]))
                lines.append(f"{patient},{time:.2f},.,{amount},1,1,{weight:.1f}")
                gut += amount
            before = time
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("theophylline.csv"))
