"""The last value carried forward under the corrected test policy and under the reference's (docs/reproduction.md).

`python -m benchmarks.reference_policy [--patients 1000] [--seeds 10]` prints, and stores as JSON, the RMSE in % of
V_max at tau = 1..6 of source test patients at gamma 10, our dynamics with either policy.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from simulators.tumor import (
    MAX_VOLUME_CM3,
    TumorFactual,
    TumorNoise,
    TumorPatients,
    diameter_cm,
    draw_noise,
    one_step_counterfactuals,
    sample_patients,
    sequence_counterfactuals,
    simulate_factual,
    treatment_probability,
)

__all__ = ["cohort", "last_value_rmse", "main", "with_policy_of_another_patient"]

N_DAYS, N_OPTIONS = 60, 4


def cohort(seed: int, n_patients: int) -> tuple[TumorPatients, TumorNoise]:
    """Draw virtual patients and their noise."""
    rng = np.random.default_rng(seed)
    return sample_patients(n_patients, rng), draw_noise(n_patients, rng)


def with_policy_of_another_patient(patients: TumorPatients, noise: TumorNoise, gamma: float) -> TumorFactual:
    """The reference's test policy: patient i is treated after row i of the table of all answers so far.

    That row is the series of an early patient, cut after some day, and zeros beyond. Our policy and dynamics do the
    simulating: the patient's uniforms are moved to where our policy decides as the reference's would.
    """
    rows: list[np.ndarray] = []
    single = []
    for i in range(len(patients)):
        seen = rows[i] if i < len(rows) else np.zeros(N_DAYS)
        mean_cm = np.array([diameter_cm(seen[max(t - 15, 0) : t + 1]).mean() for t in range(N_DAYS)])
        given = np.asarray(noise.treatment)[i] < treatment_probability(mean_cm, gamma)[:, None]
        forced = TumorNoise(noise.growth[[i]], noise.recovery[[i]], np.where(given, -1.0, 2.0)[None])
        single.append(simulate_factual(patients.take(np.array([i])), forced, gamma))
        volume = single[-1].volume_cm3[0]
        for t in range(int(single[-1].length[0]) - 1 if len(rows) < len(patients) else 0):
            rows += [np.where(np.arange(N_DAYS) <= t + 1, volume, 0.0)] * N_OPTIONS
    volumes, treatments, lengths = zip(*((f.volume_cm3, f.treatments, f.length) for f in single), strict=True)
    return TumorFactual(np.concatenate(volumes), np.concatenate(treatments), np.concatenate(lengths))


def last_value_rmse(patients: TumorPatients, noise: TumorNoise, factual: TumorFactual) -> np.ndarray:
    """RMSE of the last value carried forward at tau = 1..6, in percent of the largest volume."""
    one, many = (
        one_step_counterfactuals(patients, noise, factual),
        sequence_counterfactuals(patients, noise, factual),
    )
    errors = [q.volume_cm3 - factual.volume_cm3[q.subject, q.origin][:, None] for q in (one, many)]
    per_step = [np.square(error).mean(axis=0) for error in errors]
    return 100 / MAX_VOLUME_CM3 * np.sqrt(np.concatenate([per_step[0], per_step[1][1:]]))


def main() -> int:
    """Simulate cohorts of several seeds both ways and write the errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patients", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "reference_policy.json")
    args = parser.parse_args()
    rows = []
    for seed in range(args.seeds):
        patients, noise = cohort(seed, args.patients)
        worlds = {
            "corrected": simulate_factual(patients, noise, 10.0),
            "reference": with_policy_of_another_patient(patients, noise, 10.0),
        }
        errors = {name: last_value_rmse(patients, noise, factual).round(3).tolist() for name, factual in worlds.items()}
        rows.append({"seed": seed, **errors})
        print(seed, *(f"{name} {np.mean(error):.2f}" for name, error in errors.items()), file=sys.stderr)
    result = {"command": f"python -m benchmarks.reference_policy --patients {args.patients} --seeds {args.seeds}"}
    args.out.write_text(json.dumps({**result, "unit": "% of V_max, tau = 1..6", "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
