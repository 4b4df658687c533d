"""How much faster the vectorised tumour simulator is than a plain per-patient Python loop of the same equations.

    python -m benchmarks.simulate [--json] [--out FILE] [--quick] [--patients 1000] [--loop-patients 20]

The loop runs on a few patients and is scaled to the cohort. It comes in two forms: on Python floats (the harder
yardstick, and the one that counts) and on numpy scalars, as one gets by indexing arrays. It is given its patients and
noise for free; the vectorised time includes drawing them.
"""

import argparse
from collections.abc import Sequence
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
from benchmarks.measure import Figure, Measured, interleaved, ratio, run
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


def measure(options: argparse.Namespace) -> Measured:
    n, n_loop, gamma, seed = options.patients, options.loop_patients, options.gamma, options.seed
    if options.quick:
        n, n_loop = 50, 2
    patients, noise, _ = cohort(n, gamma, seed)
    subjects = [(tumor_of(patients, i), chance_of(noise, i)) for i in range(n_loop)]
    arrays = [on_numpy_scalars(*subject) for subject in subjects]
    one_step, sequences = simulate_vectorised(n, gamma, seed)
    timings = interleaved(
        {
            "vectorised": lambda: simulate_vectorised(n, gamma, seed),
            "loop": lambda: simulate_loop(subjects, gamma),
            "numpy_loop": lambda: simulate_loop(arrays, gamma),
        },
        options.repeats,
    )
    scale = n / n_loop
    speedup, numpy_speedup = (scale * ratio(timings, slow, "vectorised") for slow in ("loop", "numpy_loop"))
    difference_cm3 = largest_difference(n, gamma, seed, subjects)
    return Measured(
        {
            "ratio_to_loop": Figure("times faster than a loop on Python floats", speedup, "x", GOAL),
            "ratio_to_numpy_loop": Figure("times faster than a loop on numpy scalars", numpy_speedup, "x"),
            "simulate_s": Figure(f"{n:,} patients with both query sets", timings["vectorised"].median_s, "s"),
            "loop_s": Figure("loop on Python floats (scaled)", scale * timings["loop"].median_s, "s"),
            "largest_difference_cm3": Figure("largest difference of volumes", difference_cm3, "cm³"),
        },
        {
            "patients": n,
            "one_step_queries": one_step,
            "sequence_queries": sequences,
            "loop_patients": n_loop,
            "timings": {name: vars(timing) for name, timing in timings.items()},
        },
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--patients", type=int, default=1000)
    parser.add_argument("--loop-patients", type=int, default=20)
    parser.add_argument("--gamma", type=float, default=10.0)


def main(argv: Sequence[str] | None = None) -> None:
    run("simulate", __doc__, measure, argv, repeats=9, add_options=_add_options)


if __name__ == "__main__":
    main()
