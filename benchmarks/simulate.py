"""How much faster the vectorised tumour simulator is than a plain per-patient Python loop of the same equations.

    python -m benchmarks.simulate [--patients 1000] [--loop-patients 20] [--json]

The loop runs on a few patients and is scaled to the cohort. It comes in two forms: on Python floats (the harder
yardstick, and the one that counts) and on numpy scalars, as one gets by indexing arrays. It is given its patients and
noise for free; the vectorised time includes drawing them.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

import numpy as np

from benchmarks.literal_tumor import (
    Chance,
    Tumor,
    chance_of,
    one_step_queries,
    sequence_queries,
    simulate_story,
    tumor_of,
)
from simulators.tumor import (
    TumorFactual,
    TumorNoise,
    TumorPatients,
    draw_noise,
    one_step_counterfactuals,
    sample_patients,
    sequence_counterfactuals,
    simulate_factual,
)

GOAL = 100.0


def cohort(n: int, gamma: float, seed: int) -> tuple[TumorPatients, TumorNoise, TumorFactual]:
    patient_rng, noise_rng = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
    patients, noise = sample_patients(n, patient_rng), draw_noise(n, noise_rng)
    return patients, noise, simulate_factual(patients, noise, gamma)


def simulate_vectorised(n: int, gamma: float, seed: int) -> tuple[int, int]:
    patients, noise, factual = cohort(n, gamma, seed)
    one_step = one_step_counterfactuals(patients, noise, factual)
    return len(one_step), len(sequence_counterfactuals(patients, noise, factual))


def simulate_loop(subjects: list[tuple[Tumor, Chance]], gamma: float) -> list[list[float]]:
    volumes = []
    for tumor, chance in subjects:
        story = simulate_story(tumor, chance, gamma)
        one_step, sequences = one_step_queries(tumor, chance, story), sequence_queries(tumor, chance, story)
        volumes.append([v for *_, answer in one_step + sequences for v in answer])
    return volumes


def on_numpy_scalars(tumor: Tumor, chance: Chance) -> tuple[Tumor, Chance]:
    series: list[Any] = [np.asarray(values) for values in astuple(chance)]
    return Tumor(*map(np.float64, astuple(tumor))), Chance(*series)


def best_s(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the shortest time of each run; they take turns, so that a busy machine slows all of them."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats + 1):
        for name, run in runs.items():
            gc.collect()
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def largest_difference(n: int, gamma: float, seed: int, subjects: list[tuple[Tumor, Chance]]) -> float:
    patients, noise, factual = cohort(n, gamma, seed)
    one_step = one_step_counterfactuals(patients, noise, factual)
    sequences = sequence_counterfactuals(patients, noise, factual)
    fast = [
        np.concatenate([q.volume_cm3[q.subject == i].ravel() for q in (one_step, sequences)])
        for i in range(len(subjects))
    ]
    slow = simulate_loop(subjects, gamma)
    return max(float(np.abs(a - b).max()) for a, b in zip(fast, slow, strict=True))


def measure(n: int, n_loop: int, gamma: float, seed: int, repeats: int) -> dict[str, Any]:
    patients, noise, _ = cohort(n, gamma, seed)
    subjects = [(tumor_of(patients, i), chance_of(noise, i)) for i in range(n_loop)]
    arrays = [on_numpy_scalars(*subject) for subject in subjects]
    one_step, sequences = simulate_vectorised(n, gamma, seed)
    best = best_s(
        {
            "vectorised": lambda: simulate_vectorised(n, gamma, seed),
            "loop": lambda: simulate_loop(subjects, gamma),
            "numpy_loop": lambda: simulate_loop(arrays, gamma),
        },
        repeats,
    )
    vectorised_s, loop_s, numpy_loop_s = best["vectorised"], best["loop"] * n / n_loop, best["numpy_loop"] * n / n_loop
    return {
        "patients": n,
        "one_step_queries": one_step,
        "sequence_queries": sequences,
        "loop_patients": n_loop,
        "vectorised_s": vectorised_s,
        "loop_s": loop_s,
        "numpy_scalar_loop_s": numpy_loop_s,
        "speedup": loop_s / vectorised_s,
        "speedup_over_numpy_scalars": numpy_loop_s / vectorised_s,
        "goal": GOAL,
        "largest_difference_cm3": largest_difference(n, gamma, seed, subjects),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patients", type=int, default=1000)
    parser.add_argument("--loop-patients", type=int, default=20)
    parser.add_argument("--gamma", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(options.patients, options.loop_patients, options.gamma, options.seed, options.repeats)
    if options.json:
        print(json.dumps(result, allow_nan=False))
        return
    print(f"{result['patients']} patients, {result['one_step_queries']} one-step and", end=" ")
    print(
        f"{result['sequence_queries']} sequence queries; loops timed on {result['loop_patients']} patients and scaled"
    )
    print(f"{'':<28}{'seconds':>10}{'ratio':>9}")
    print(f"{'vectorised':<28}{result['vectorised_s']:>10.3f}{1:>9}")
    print(f"{'loop on Python floats':<28}{result['loop_s']:>10.3f}{result['speedup']:>9.0f}")
    ratio = result["speedup_over_numpy_scalars"]
    print(f"{'loop on numpy scalars':<28}{result['numpy_scalar_loop_s']:>10.3f}{ratio:>9.0f}")
    print(f"goal: {GOAL:.0f}x; largest difference of volumes: {result['largest_difference_cm3']:.1e} cm³")


if __name__ == "__main__":
    main()
