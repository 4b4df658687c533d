"""Long series: what training on them takes, and whether contrasting a part of the positions costs accuracy.

    python -m benchmarks.long_series [--json] [--out FILE] [--quick] [--only costar others contrast] [--folder FOLDER]

Two tables by script: sales of 280 products over 270 weeks, and 70 patients of up to 1,151 steps, 13,000 in all.
`costar` runs `pretrain` and `finetune`, `others` runs `finetune` of every other network (two epochs: memory does not
grow with epochs), with `--preset quick`, each in a process of its own. `contrast` pretrains encoders of five members in
batches of 64 stretches, which have some 8,000 positions, once with the default of 4,096 of them and once with all,
fine-tunes both and compares their errors on the test products.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

import costar_cli
from benchmarks.measure import Child, Figure, Measured, run, run_child
from costar_cli.data import Dataset

GOAL_S, GOAL_MB, MEMBERS = 180.0, 1000.0, 5
OTHERS: Final = ("rmsn", "gnet", "edct", "ct", "crn")
WORDS: Final = {"sales": "280 weekly series of 270 steps", "stays": "70 patients of up to 1,151 steps"}
TREATMENT: Final = {"role": "treatment", "levels": ["none", "given"]}


def sales(products: int, weeks: int, seed: int) -> pd.DataFrame:
    """Return weekly sales that a promotion raises, most where they have been low, and that it then lowers a little."""
    rng, week = np.random.default_rng(seed), np.arange(weeks)
    season_T = 0.3 * np.sin(2 * np.pi * week / 52)
    level_N, log_NT = rng.normal(3.0, 0.5, products), np.zeros((products, weeks))
    given_NT, now_N, before_N = np.zeros((products, weeks), dtype=bool), np.zeros(products), np.zeros(products)
    for t in week:
        log_NT[:, t] = now_N + level_N + season_T[t]
        given_NT[:, t] = rng.random(products) < 1 / (1 + np.exp(1.5 + 2.0 * now_N))
        now_N = 0.7 * now_N + 0.4 * given_NT[:, t] - 0.2 * before_N + rng.normal(0, 0.1, products)
        before_N = given_NT[:, t].astype(float)
    return pd.DataFrame({
        "product": np.repeat(np.arange(products), weeks),
        "week": np.tile(week, products),
        "store": np.repeat(np.arange(products) % 4, weeks),
        "season": np.tile(season_T, products),
        "sold": np.exp(log_NT).ravel(),
        "promotion": np.where(given_NT, "given", "none").ravel(),
    })  # fmt: skip


def stays(patients: int, longest: int, rows: int, seed: int) -> pd.DataFrame:
    """Return stays of very different lengths, in which a drug lowers a pressure that it is given for."""
    rng = np.random.default_rng(seed)
    share_N = rng.lognormal(0.0, 0.9, patients)
    length_N = np.sort(np.clip(share_N / share_N.sum() * rows, 12, longest).astype(int))[::-1].copy()
    length_N[0] = longest
    tables = []
    for patient, length in enumerate(length_N.tolist()):
        now, rate, values = 0.0, rng.normal(70, 8), np.zeros((length, 3))
        for t in range(length):
            given = rng.random() < 1 / (1 + np.exp(2.0 - 1.5 * now))
            values[t] = 90 + 10 * now + rng.normal(0, 1), rate + 3 * now + rng.normal(0, 2), given
            now = 0.9 * now - 0.5 * given + rng.normal(0.1, 0.3)
        stay = pd.DataFrame(values, columns=["pressure", "rate", "drug"])
        stay["drug"] = np.where(stay["drug"] > 0, "given", "none")
        tables.append(stay.assign(patient=patient, hour=np.arange(length), ward=patient % 4))
    return pd.concat(tables, ignore_index=True)


def schema(name: str, subject: str, time: str, unit: str, columns: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a table whose fourth unit is the target."""
    roles = {subject: {"role": "subject"}, time: {"role": "time"}, **columns}
    return {"name": name, "horizon": 4, "columns": roles, "domain": {"source": f"{unit} < 3", "target": f"{unit} = 3"}}


def data(name: str, *, quick: bool, seed: int) -> Dataset:
    """Return one of the two data sets."""
    if name == "sales":
        table = sales(60, 150, seed) if quick else sales(280, 270, seed)
        columns = {"season": {"role": "covariate"}, "sold": {"role": "outcome"}, "promotion": TREATMENT}
        return costar_cli.read_table(table, schema=schema(name, "product", "week", "store", columns), seed=seed)
    table = stays(60, 200, 3_000, seed) if quick else stays(70, 1_151, 13_000, seed)
    columns = {"rate": {"role": "covariate"}, "pressure": {"role": "outcome"}, "drug": TREATMENT}
    return costar_cli.read_table(table, schema=schema(name, "patient", "hour", "ward", columns), seed=seed)


def costs(name: str, folder: Path, options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield what training on a data set takes."""
    place = ["--preset", "quick", "-w", str(folder), "--threads", str(options.threads), "--json"]
    short = ["--epochs", "1"] if options.quick else []

    def child(*words: str) -> Child:
        return run_child("-m", "costar_cli", *words, *place)

    if "costar" in options.only:
        parts = [child("pretrain", *short), child("finetune", *short)]
        label = f"COSTAR, `pretrain` and `finetune` on {WORDS[name]}"
        clock_s, cpu_s = sum(part.elapsed_s for part in parts), sum(part.cpu_s for part in parts)
        peak_mb = max(part.peak_mb for part in parts)
        yield f"{name}_costar_s", Figure(f"{label}, on the clock", clock_s, "s", GOAL_S, at_most=True)
        yield f"{name}_costar_cpu_s", Figure(f"{label}, processor time", cpu_s, "s")
        yield f"{name}_costar_mb", Figure(f"{label}, peak memory", peak_mb, "MB", GOAL_MB, at_most=True)
    for method in OTHERS if "others" in options.only else ():
        taken = child("finetune", "--method", method, "--epochs", "1" if options.quick else "2")
        label = f"{method} on {WORDS[name]}, peak memory"
        yield f"{name}_{method}_mb", Figure(label, taken.peak_mb, "MB", GOAL_MB, at_most=True)


def contrast(dataset: Dataset, options: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Yield errors after contrasting a part of the positions, and all."""
    size: dict[str, Any] = {"preset": "quick", "members": 2 if options.quick else MEMBERS, "seed": options.seed}
    short: dict[str, Any] = {"epochs": 1, "updates": 2} if options.quick else {}
    means, sds = [], []
    for words, most in (("4,096 of the positions", None), ("all positions", 10**9)):
        encoder = costar_cli.pretrain(dataset, batch_size=64, max_contrast=most, **size, **short)
        model = costar_cli.fit(dataset, start=encoder, **size, **short)
        report = costar_cli.evaluate_models(model, dataset, setups=["zero-shot"], bootstrap=0)
        (row,) = [row for row in report.rows if row.basis == "ours" and not row.is_last_value]
        if row.sd is None or row.mean.average is None or row.sd.average is None:
            raise RuntimeError(f"no error of {row.label} is known")
        means.append(row.mean.average)
        sds.append(row.sd.average)
        key = "cap" if most is None else "all"
        yield f"rmse_{key}", Figure(f"error on the target after contrasting {words}, mean of members", means[-1])
        yield f"rmse_{key}_sd", Figure("its standard deviation over members", sds[-1])
    noise = float(np.hypot(*sds) / np.sqrt(size["members"]))
    times = abs(means[0] - means[1]) / noise
    yield "difference_of_means", Figure("their difference over its standard error", times, "", 2.0, at_most=True)


def measure(options: argparse.Namespace) -> Measured:
    figures: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in WORDS:
            folder = (options.folder or Path(temporary)) / name
            folder.mkdir(parents=True, exist_ok=True)
            dataset = data(name, quick=options.quick, seed=options.seed)
            if not (folder / "data.h5").exists():
                dataset.save(folder / "data.h5")
            figures |= dict(costs(name, folder, options))
            if name == "sales" and "contrast" in options.only:
                figures |= dict(contrast(dataset, options))
    return Measured(figures)


def _add_options(parser: argparse.ArgumentParser) -> None:
    every = ("costar", "others", "contrast")
    parser.add_argument("--only", nargs="+", choices=every, default=list(every), help="some of what is measured")
    parser.add_argument("--folder", type=Path, help="where files are kept: what is done is not done again, nor timed")


def main(argv: Sequence[str] | None = None) -> None:
    run("long_series", __doc__, measure, argv, repeats=1, add_options=_add_options)


if __name__ == "__main__":
    main()
