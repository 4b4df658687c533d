"""Whether bounds under hidden confounding hold the truth, where a confounder was left out of simulated data.

python -m benchmarks.sensitivity [METHOD...]    # mixed, ridge and msm without names; about five minutes

Always treating against never treating, averaged over test subjects: the truth, the estimate, its bounds at some Gammas,
the smallest Gamma whose bounds hold the truth, and the Gammas that bound the real odds of 90, 95 and 99 % of decisions
(docs/spec/sensitivity.md, LINEAR-6, TUMOR-14).
"""

import sys
from collections.abc import Iterator

import numpy as np
from scipy.special import logit

import costar_cli as costar
from costar_cli.datasets.registry import truth_of
from costar_cli.methods.base import FittedModel
from costar_cli.panel import Dataset, Part, Queries
from costar_cli.uncertainty import calibration_of, estimate, support_of
from costar_cli.uncertainty.practice import decisions_of
from costar_cli.uncertainty.sensitivity import Confounded

TEST = Part("source", "test")
STEPS = (1, 2, 4, 6)
GAMMAS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0)
QUANTILES = (0.9, 0.95, 0.99)
FINE = np.geomspace(1, 100, 200)
ORIGINS = 2  # of each test subject
SIZES = {"train": 1000, "val": 300, "test": 200, "target_test": 10, "target_val": 10}
WORLDS = {
    "linear, gamma 1": ("linear", {"gamma": 1.0, "drop_confounder": True, "steps": 20, **SIZES}),
    "linear, gamma 2": ("linear", {"gamma": 2.0, "drop_confounder": True, "steps": 20, **SIZES}),
    "linear, gamma 1, nothing dropped": ("linear", {"gamma": 1.0, "steps": 20, **SIZES}),
    "tumour, gamma 10": ("tumor", {"gamma": 10.0, "drop_confounder": True, **SIZES}),
}


def plans(data: Dataset) -> np.ndarray:
    """Return never and always treating, `[2,H,A]`; tumours get radiotherapy."""
    names = data.schema.treatments.names
    values = np.zeros((2, data.horizon, len(names)), dtype=np.int64)
    values[1, :, -1] = 1
    return values


def asked(data: Dataset) -> Queries:
    """Return never and always of some origins of every test subject that lives long enough."""
    panel = data.panels[TEST]
    origin_NO = np.stack([panel.length * (i + 1) // (ORIGINS + 1) for i in range(ORIGINS)], axis=1)
    subject_M, origin_M = np.repeat(np.arange(panel.n_subjects), ORIGINS), origin_NO.ravel()
    plan_2HA = data.schema.treatments.encode(plans(data)).astype(np.uint8)
    shape = (len(subject_M), *plan_2HA.shape)
    return Queries(
        np.repeat(subject_M, 2).astype(np.int32),
        np.repeat(origin_M, 2).astype(np.int16),
        np.broadcast_to(plan_2HA, shape).reshape(-1, *plan_2HA.shape[1:]),
    )


def lines(data: Dataset, model: FittedModel) -> Iterator[str]:
    """Yield the truth, the estimate and its bounds by step, and the Gammas of the real odds."""
    queries, panel = asked(data), data.panels[TEST]
    calibration, support, answer = calibration_of(model), support_of(model), truth_of(data.name)
    if calibration is None or support is None or answer is None:
        yield "no calibration"
        return
    values = data.schema.treatments.decode(queries.plan)
    truth_QH = np.reshape(answer(data, TEST, queries.subject, queries.origin, values), (len(queries), data.horizon))
    found = estimate(model, panel, queries)
    likely_QH = np.exp(support.practice.log_probability(panel, queries, found.mean_QHY))
    confounded = Confounded.of(found, calibration, likely_QH)

    def mean_bounds(gamma: float) -> tuple[np.ndarray, np.ndarray]:
        lower, upper = (side[..., 0] for side in confounded.bounds(gamma))
        return (lower[1::2] - upper[::2]).mean(axis=0), (upper[1::2] - lower[::2]).mean(axis=0)

    truth_H, found_H = (x[1::2] - x[::2] for x in (truth_QH, found.mean_QHY[..., 0]))
    truth_H, found_H = truth_H.mean(axis=0), found_H.mean(axis=0)
    fine = np.stack([np.stack(mean_bounds(gamma)) for gamma in FINE])
    for step in STEPS:
        h = step - 1
        holds = (fine[:, 0, h] <= truth_H[h]) & (truth_H[h] <= fine[:, 1, h])
        bounds = "  ".join("{:.2f} to {:.2f}".format(*(side[h] for side in mean_bounds(g))) for g in GAMMAS)
        needed = f"{FINE[holds.argmax()]:.2f}" if holds.any() else "over 100"
        yield f"step {step}: truth {truth_H[h]:.2f}, found {found_H[h]:.2f}; {bounds}; needs {needed}"
    real = zip(QUANTILES, real_gammas(data, model), strict=True)
    yield "; ".join(f"Gamma of {q:.0%} of decisions {g:.2f}" for q, g in real)


def real_gammas(data: Dataset, model: FittedModel) -> np.ndarray:
    """Return quantiles of the ratio of the real odds of treatment to those that the recorded history gives."""
    if data.name == "tumor":
        return np.full(len(QUANTILES), np.exp(2 * float(data.config["gamma"]) / 13))
    support, decided = support_of(model), decisions_of(data.panels[TEST], most=100_000)
    if support is None or decided is None:
        return np.full(len(QUANTILES), np.nan)
    likely, _ = support.practice.expected(data.panels[TEST], decided)
    real = data.truth[TEST]["treatment_probability"][decided.subject, decided.origin]
    return np.exp(np.quantile(np.abs(logit(real) - logit(likely[:, 0])), QUANTILES))


def main(methods: list[str]) -> None:
    """Print what every method finds in every world."""
    print(f"bounds at Gamma {', '.join(f'{gamma:g}' for gamma in GAMMAS)}")
    for world, (name, settings) in WORLDS.items():
        data = costar.simulate(name, **settings)
        for method in methods or ["mixed", "ridge", "msm"]:
            model = costar.fit(data, method)
            print(f"{world}, {method}")
            for line in lines(data, model.fitted):
                print(f"  {line}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
