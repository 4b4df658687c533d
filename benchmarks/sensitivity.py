"""Whether bounds under hidden confounding hold the truth, where a confounder was left out of simulated data.

python -m benchmarks.sensitivity [METHOD...] [--world "linear, gamma 1"] [--out benchmarks/results/sensitivity.csv]

Without names: mixed, ridge and msm in all worlds, about five minutes. `--out` keeps rows of other methods and worlds.

Always treating against never treating, averaged over test subjects: the truth, the estimate, its bounds at some Gammas,
the smallest Gamma whose bounds hold the truth, the Gammas that bound the real odds of 90, 95 and 99 % of decisions, and
the share of rankings of the two plans, subject by subject, that no Gamma up to 100 flips (docs/spec/sensitivity.md,
LINEAR-6, TUMOR-14).
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.special import logit

import costar_cli as costar
from benchmarks.comparing import provenance, read, replaced, write
from costar_cli.data import Dataset, Part, Queries
from costar_cli.data.registry import truth_of
from costar_cli.inference import calibration_of, estimate, support_of
from costar_cli.inference.propensity import decisions_of
from costar_cli.inference.sensitivity import Confounded, largest_gamma
from costar_cli.methods.base import FittedModel

TEST = Part("source", "test")
STEPS = (1, 2, 4, 6)
GAMMAS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0)
QUANTILES = (0.9, 0.95, 0.99)
FINE = np.geomspace(1, 100, 60)
ORIGINS = 2  # of each test subject
METHODS = ("mixed", "ridge", "msm")
FIELDS = (
    "world", "method", "step", "truth", "found", *(f"{end}_{g:g}" for g in GAMMAS for end in ("lower", "upper")),
    "needs", "never_flip", *(f"real_{q:g}" for q in QUANTILES), "machine", "versions", "commit",
)  # fmt: skip
SIZES = {"train": 1000, "val": 300, "test": 200, "target_test": 10, "target_val": 10}
WORLDS = {
    "linear, gamma 1": ("linear", {"gamma": 1.0, "drop_confounder": True, "steps": 20, **SIZES}),
    "linear, gamma 2": ("linear", {"gamma": 2.0, "drop_confounder": True, "steps": 20, **SIZES}),
    "linear, gamma 1, nothing dropped": ("linear", {"gamma": 1.0, "steps": 20, **SIZES}),
    "tumour, gamma 10": ("tumor", {"gamma": 10.0, "drop_confounder": True, **SIZES}),
    "tumour, gamma 10, nothing dropped": ("tumor", {"gamma": 10.0, **SIZES}),
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


def rows(data: Dataset, model: FittedModel) -> Iterator[dict[str, str]]:
    """Yield by step the truth, the estimate, its bounds, the Gamma that they need and those of the real odds."""
    queries, panel = asked(data), data.panels[TEST]
    calibration, support, answer = calibration_of(model), support_of(model), truth_of(data.name)
    if calibration is None or support is None or answer is None:
        raise SystemExit("a model without calibration has no bounds")
    values = data.schema.treatments.decode(queries.plan)
    truth_QH = np.reshape(answer(data, TEST, queries.subject, queries.origin, values), (len(queries), data.horizon))
    found = estimate(model, panel, queries)
    confounded = Confounded.along(model, panel, queries, found, calibration, support.practice)

    def bounds(gamma: float) -> tuple[np.ndarray, np.ndarray]:
        lower, upper = (side[..., 0] for side in confounded.bounds(gamma))
        return lower[1::2] - upper[::2], upper[1::2] - lower[::2]

    truth_H, found_H = ((x[1::2] - x[::2]).mean(axis=0) for x in (truth_QH, found.mean_QHY[..., 0]))
    fine = np.stack([np.stack(bounds(gamma)).mean(axis=1) for gamma in FINE])
    named = {
        f"{end}_{g:g}": side.mean(axis=0)
        for g in GAMMAS
        for end, side in zip(("lower", "upper"), bounds(g), strict=True)
    }
    real = {f"real_{q:g}": f"{g:.4g}" for q, g in zip(QUANTILES, real_gammas(data, model), strict=True)}
    for step in STEPS:
        h = step - 1
        holds = (fine[:, 0, h] <= truth_H[h]) & (truth_H[h] <= fine[:, 1, h])
        numbers = {"truth": truth_H[h], "found": found_H[h], **{name: side[h] for name, side in named.items()}}
        lower, upper = (side[:, h] for side in bounds(largest_gamma(step)))
        numbers["never_flip"] = ((lower > 0) | (upper < 0)).mean()
        needs = f"{FINE[holds.argmax()]:.4g}" if holds.any() else ""
        yield {"step": str(step), **{name: f"{value:.4g}" for name, value in numbers.items()}, "needs": needs, **real}


def table(stored: Sequence[dict[str, str]]) -> Iterator[str]:
    """Yield the first and last step of each world and method, with the bounds at two Gammas."""
    yield "| world | method | step | truth | found | bounds at 1.5 | at 3 | needs | real | never flip, % |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row in stored:
        if row["step"] in ("1", "6"):
            bounds = [
                "{:.3g} to {:.3g}".format(*(float(row[f"{x}_{g}"]) for x in ("lower", "upper"))) for g in (1.5, 3)
            ]
            cells = [row["world"], row["method"], row["step"], *(f"{float(row[x]):.3g}" for x in ("truth", "found"))]
            needs = f"{float(row['needs']):.3g}" if row["needs"] else f"over {FINE[-1]:.0f}"
            never = f"{100 * float(row['never_flip']):.0f}" if row["never_flip"] else ""
            real = f"{float(row['real_0.95']):.3g}" if np.isfinite(float(row["real_0.95"])) else ""
            yield f"| {' | '.join([*cells, *bounds, needs, real, never])} |"


def real_gammas(data: Dataset, model: FittedModel) -> np.ndarray:
    """Return quantiles of the ratio of the real odds of treatment to those that the recorded history gives."""
    if data.name == "tumor":
        hidden = float(data.config["gamma"]) if data.config.get("drop_confounder") else 0.0
        return np.full(len(QUANTILES), np.exp(2 * hidden / 13))
    support, decided = support_of(model), decisions_of(data.panels[TEST], most=100_000)
    if support is None or decided is None:
        return np.full(len(QUANTILES), np.nan)
    likely, _ = support.practice.expected(data.panels[TEST], decided)
    real = data.truth[TEST]["treatment_probability"][decided.subject, decided.origin]
    return np.exp(np.quantile(np.abs(logit(real) - logit(likely[:, 0])), QUANTILES))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every method in every world, store the rows as they come, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--world", action="append", choices=tuple(WORLDS), help="a world; all without this")
    parser.add_argument("--out", type=Path, help="table to write; rows of other worlds and methods are kept")
    options = parser.parse_args(arguments)
    stored = read(options.out) if options.out and options.out.exists() else []
    made = provenance()
    order = [(world, method) for world in WORLDS for method in METHODS]
    for world in options.world or WORLDS:
        name, settings = WORLDS[world]
        data = costar.simulate(name, **settings)
        for method in options.methods:
            about = {"world": world, "method": method} | made
            new = [about | row for row in rows(data, costar.fit(data, method).fitted)]
            stored = replaced(stored, new, "world", "method")
            stored.sort(key=lambda row: order.index((row["world"], row["method"])))
            if options.out:
                write(options.out, stored, FIELDS)
    sys.stdout.write("\n".join(table(stored)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
