"""How often calibrated bands hold the truth, of answers and of differences, on the source and on the target.

    python -m benchmarks.calibration [DATA.h5 ...] [--methods stack,costar] [--preset quick] [--out FILE.csv]
    python -m benchmarks.calibration --table FILE.csv

Without data sets, those of seed 10 are simulated, of the preset `quick` but with as many subjects for calibration and
test as telling levels apart takes (`SIZES`). Each method is fitted to its source, then adapted to the target's few
labelled subjects. The parts of a stack are fitted as each is fitted alone and are calibrated as each is alone: closed
forms on all validation subjects, others on the half that selected nothing; each has rows of its own.

Bands are scored as `costar evaluate` scores them (spec SCORE-14 to 19), in the data set's error unit: `supervised` on
the source's test subjects, `zero-shot` and `few-shot` on the target's. Bands of differences (spec BAND-7) are those
between the first treatment at every step and any treatment at any step, one origin of each of at most `PAIRS` subjects.

Rows of another preset than `quick` are those of another data set, such as `tumor-default`.

FILE.json beside the table has machine, versions, commit, and wall and processor seconds of each method and data set. A
later run keeps the rows of other data sets and methods, so that one can be measured after the other (`--worlds`,
`--methods`); two at once, one thread each, take two cores.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import comparing, support
from benchmarks.comparing import Row, made, read
from benchmarks.machine import commit, machine, versions
from costar_cli.config.models import Config
from costar_cli.data import Dataset, Domain, Part, Queries
from costar_cli.data.registry import sources
from costar_cli.data.store import read_dataset
from costar_cli.evaluation.bands import BandTest
from costar_cli.evaluation.calibrated import WINDOWS, Calibrated, Kind, band_summary
from costar_cli.evaluation.calibration import covered
from costar_cli.evaluation.metrics import average_over_steps
from costar_cli.evaluation.run import part_to_score
from costar_cli.evaluation.score import score
from costar_cli.evaluation.sums import REPORTED
from costar_cli.inference import (
    Calibration,
    OutcomeFacts,
    calibrate,
    calibration_of,
    differences,
    draws,
    estimate,
    halves,
    held_out,
)
from costar_cli.inference import floor as floors
from costar_cli.methods.base import FittedModel
from costar_cli.methods.registry import METHODS
from costar_cli.reporting import NullReporter, NullTask
from costar_cli.settings.resolve import resolve

PARTS: Final = "mixed,ridge,growth"
PAIRS: Final = 150
TARGET: Final = Part("target", "test")
SETUPS: Mapping[Domain, Mapping[str, Part]] = {
    "source": {"supervised": Part("source", "test"), "zero-shot": TARGET},
    "target": {"few-shot": TARGET},
}
SIZES: Mapping[str, Mapping[str, float]] = {
    "tumor": {"train": 1_000, "val": 300, "test": 500, "target_train": 100, "target_test": 500},
    "linear": {"train": 500, "val": 300, "test": 300, "target_test": 300},
    "mimic": {"source_val": 0.25, "source_test": 0.25},
    "m5": {"train_items": 10, "val_items": 20, "test_items": 20, "target_test_items": 20},
}
SHORTER: Mapping[tuple[str, str], Mapping[str, object]] = {  # `quick` has 640 and 160 of these steps
    ("mimic", "costar"): {"updates": 150},
    ("m5", "costar"): {"updates": 20},
}
FIELDS = (
    "data", "method", "members", "setup", "queries", "calibrated", "subjects", "rmse",
    *(f"coverage_{level}" for level in REPORTED), "lower_0.9", "upper_0.9",
    "width_0.9", "interval_score_0.9", "crps", "absorbed_share",
)  # fmt: skip


def simulated(name: str, seed: int) -> Dataset:
    """Return a data set of the quick preset, with the subjects that coverage takes."""
    source = sources()[name]
    flags: dict[type[Config], dict[str, object]] = {source.settings: {"seed": seed, **SIZES.get(name, {})}}
    settings = resolve(flags, preset="quick", dataset=source.dataset)
    return source.simulate(settings[source.settings], NullReporter())


def calibrations(
    dataset: Dataset, model: FittedModel, domain: Domain
) -> Iterator[tuple[str, FittedModel, Calibration]]:
    """Yield a model, and each part of a stack, with the calibration that its own fit to a domain would end with."""
    own = calibration_of(model)
    if own is not None:
        yield model.method, model, own
    if not model.parts:
        return
    validation, facts = (
        dataset.panel(domain, "val"),
        OutcomeFacts.of(dataset.panel("source", "train"), dataset.schema, model.scaler),
    )
    for name, part in model.parts.items():
        panel = halves(validation)[1] if METHODS[name].selects_on_validation else validation
        found = calibrate(part, held_out(part, panel, facts), facts, domain=domain, apart=True)
        if found is not None:
            yield name, part, found


def scored(
    dataset: Dataset, model: FittedModel, calibration: Calibration, part: Part
) -> dict[str, tuple[float, Calibrated]]:
    """Return the error and the bands' scores of a model on a test part, by kind of question."""
    unit, test = dataset.schema.error_unit, part_to_score(dataset, part)
    sd_Y = model.scaler.error_scale(dataset.schema)
    bands = BandTest(model, calibration.facts, test.panel, test.horizon, sd_Y, calibration)
    errors = score(model, test, denominator_Y=sd_Y, batch_size=16_384, task=NullTask(), bands=bands)
    found: dict[str, tuple[float, Calibrated]] = {}
    absorbed: dict[Kind, float] = {kind: none / max(answers, 1) for kind, (answers, none) in bands.absorbed.items()}
    groups = {name: labels for name, (labels, _) in bands.groupings.items()}
    for kind in bands.absorbed:
        summary = band_summary(bands.sums, kind, factor=unit.factor, groups=groups, absorbed_share=absorbed)
        rmse = float("nan")
        if kind != WINDOWS:
            rmse = float(average_over_steps(unit.factor * errors[kind].ensemble_rmse()))
        if summary is not None:
            found["factual" if kind == WINDOWS else kind] = rmse, summary
    return found


def plans(dataset: Dataset, part: Part, calibration: Calibration) -> tuple[support.Asked, support.Asked]:
    """Return questions about the two plans that are compared, of the same subjects and origins."""
    alive_NT, rng = support.alive(dataset.panel(*part), calibration), np.random.default_rng(0)
    asked = dict(support.plans(dataset, part, alive_NT, rng, PAIRS))
    return asked["first treatment"], asked["random"]


def apart(
    dataset: Dataset, model: FittedModel, calibration: Calibration, part: Part, asked: Sequence[support.Asked]
) -> Row:
    """Return how bands of differences between two plans do, averages over subjects and steps."""
    first, other = asked
    fields = ("subject", "origin", "plan")
    queries = Queries(*(np.concatenate([getattr(each.queries, x) for each in asked]) for x in fields))
    count = len(first.queries)
    panel, of_M = dataset.panel(*part), np.arange(count)
    found = estimate(model, panel, queries, calibration.facts, floor=calibration.floor)
    drawn_SQHY = draws(model, panel, queries, floor=calibration.floor)
    between = differences(drawn_SQHY, found, of_M + count, of_M)
    bands, unit = calibration.bands(between, REPORTED, clip=False), dataset.schema.error_unit
    truth_MHY = other.truth_QHY - first.truth_QHY
    inside_LMHY = covered(bands.lower_LQHY, bands.upper_LQHY, truth_MHY)
    sd_Y = model.scaler.error_scale(dataset.schema)
    width_MHY = (bands.upper_LQHY - bands.lower_LQHY)[REPORTED.index(0.9)] / sd_Y
    error_MHY = np.abs(truth_MHY - between.mean_QHY) / sd_Y
    score_MHY = width_MHY + 2 / (1 - 0.9) * np.maximum(error_MHY - width_MHY / 2, 0.0)
    values = dict(zip((f"coverage_{level}" for level in REPORTED), inside_LMHY.mean(axis=(1, 2, 3)), strict=True))
    values |= {"width_0.9": unit.factor * width_MHY.mean(), "interval_score_0.9": unit.factor * score_MHY.mean()}
    values["rmse"] = unit.factor * np.sqrt((error_MHY**2).mean())
    return {"subjects": str(count)} | {
        name: f"{value:.5g}" if np.isfinite(value) else "" for name, value in values.items()
    }


def measure(name: str, dataset: Dataset, method: str, options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each model, set-up and kind of question."""
    how = {"preset": options.preset, "members": options.members, **SHORTER.get((name, method), {})}
    how |= {"parts": options.parts} if method == METHODS.combining.name else {}
    source, asked = made(dataset, method, **how), {}
    for domain, model in (("source", source), ("target", made(dataset, method, start=source, **how))):
        for label, own, calibration in calibrations(dataset, model.fitted, domain):
            about = {"data": name, "method": label, "members": str(own.members)}
            about["calibrated"] = str(calibration.subjects)
            for setup, part in SETUPS[domain].items():
                for kind, (rmse, found) in scored(dataset, own, calibration, part).items():
                    yield about | {"setup": setup, "queries": kind} | numbers(rmse, found)
                if own.tells_differences:
                    asked[part] = asked.get(part) or plans(dataset, part, calibration)  # simulators take their time
                    between = apart(dataset, own, calibration, part, asked[part])
                    yield dict.fromkeys(FIELDS, "") | about | {"setup": setup, "queries": "differences"} | between


def numbers(rmse: float, found: Calibrated) -> Row:
    """Return what a row says of bands, averages over steps."""
    level = found.calibration["0.9"]
    values = {f"coverage_{name}": scores.coverage.average for name, scores in found.calibration.items()} | {
        "rmse": rmse,
        "lower_0.9": level.coverage_lower.average,
        "upper_0.9": level.coverage_upper.average,
        "width_0.9": level.width.average,
        "interval_score_0.9": level.interval_score.average,
        "crps": found.details.crps.average,
        "absorbed_share": found.details.absorbed_share,
    }
    shown = {name: "" if value is None or np.isnan(value) else f"{value:.5g}" for name, value in values.items()}
    return shown | {"subjects": str(found.details.subjects)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every data set, write rows as they come, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", type=Path, help="data sets, called by the name of the file without digits")
    parser.add_argument("--table", type=Path, help="measure nothing, print the table of a file")
    parser.add_argument("--worlds", default="tumor,linear,mimic,m5", help="what to simulate where no data are given")
    parser.add_argument("--methods", default="stack,costar", help="methods, separated by commas")
    parser.add_argument("--parts", default=PARTS, help="of a stack, as in `stack.parts`")
    parser.add_argument("--preset", default="quick", choices=("quick", "default", "paper"))
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--floor", type=float, help="of the scale of black boxes (spec BAND-9), instead of choosing it")
    parser.add_argument("--seed", type=int, default=10, help="of the data sets that are simulated")
    parser.add_argument("--out", type=Path, help="table to write; rows of other data sets and methods are kept")
    options = parser.parse_args(arguments)
    if options.table:
        sys.stdout.write("\n".join(table(read(options.table))) + "\n")
        return 0
    if options.floor:
        floors.FLOORS = (options.floor,)
    rows = read(options.out) if options.out and options.out.exists() else []
    names = [path.stem.rstrip("0123456789") for path in options.data] or options.worlds.split(",")
    for i, name in enumerate(names):
        dataset = read_dataset(options.data[i]) if options.data else simulated(name, options.seed)
        name = name if options.preset == "quick" else f"{name}-{options.preset}"  # noqa: PLW2901 - in the rows
        for method in options.methods.split(","):
            begun, used = time.perf_counter(), time.process_time()
            new = list(measure(name, dataset, method, options))
            seconds = {"seconds": time.perf_counter() - begun, "processor_s": time.process_time() - used}
            rows = merged(read(options.out) if options.out and options.out.exists() else rows, new)
            if options.out:
                write(options.out, rows, name, method, seconds, options)
    sys.stdout.write("\n".join(table(rows)) + "\n")
    return 0


def merged(rows: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return rows with those of the same data sets and methods replaced, in the order of data sets and methods."""
    order, place = list(LABELS), METHODS.place
    return sorted(
        comparing.replaced(rows, new, "data", "method"),
        key=lambda row: (order.index(row["data"]), place(row["method"])),
    )


COLUMNS: Final = (
    ("source, factual", "supervised", "factual"),
    ("source, counterfactual", "supervised", "counterfactual"),
    ("zero-shot, factual", "zero-shot", "factual"),
    ("zero-shot, counterfactual", "zero-shot", "counterfactual"),
    ("few-shot, factual", "few-shot", "factual"),
    ("few-shot, counterfactual", "few-shot", "counterfactual"),
)
DIFFERENCES: Final = tuple((setup, setup, "differences") for setup in ("supervised", "zero-shot", "few-shot"))
LABELS: Final = {
    "tumor": "tumour",
    "tumor-default": "tumour, `default`",
    "linear": "linear",
    "mimic": "ICU",
    "icu": "ICU",
    "m5": "retail",
    "retail": "retail",
}
NOMINAL: Final = (0.8, 0.9, 0.95)  # of the goals
DISTRIBUTED: Final = ("mixed", "stack")


def goal(row: Row) -> float | None:
    """Return how far coverage may be from its level; None where nothing is asked."""
    factual = row["queries"] == "factual"
    if row["queries"] == "differences":
        return None
    if row["method"] not in DISTRIBUTED:
        return 0.05 if factual else None
    if row["data"].partition("-")[0] == "tumor":
        return 0.02 if factual else 0.03
    return 0.03 if factual else 0.05


def shortfall(row: Row) -> float | None:
    """Return by how much the worst of the nominal levels misses its goal; 0 where it is met, None where none is set."""
    allowed = goal(row)
    if allowed is None:
        return None
    apart = max((abs(share - level) for level, share in _known(row).items()), default=0.0)
    return max(0.0, round(apart - allowed, 4))


def _known(row: Row) -> dict[float, float]:
    """Return the coverage of the nominal levels for which there are bands."""
    return {level: float(share) for level in NOMINAL if (share := row[f"coverage_{level}"])}


def table(rows: Sequence[Row], columns: Sequence[tuple[str, str, str]] = COLUMNS) -> Iterator[str]:
    """Yield coverage at 80, 90 and 95 % in percent, by data set and method; bold where a goal is missed."""
    found = {(row["data"], row["method"], row["setup"], row["queries"]): row for row in rows}
    yield "| data | method | " + " | ".join(title for title, *_ in columns) + " |"
    yield "|---|---|" + "---|" * len(columns)
    for data, method in dict.fromkeys((row["data"], row["method"]) for row in rows):
        cells = [_coverage(found.get((data, method, setup, kind))) for _, setup, kind in columns]
        if any(cells):
            yield f"| {LABELS.get(data, data)} | {METHODS.label(method)} | {' | '.join(cells)} |"


def _coverage(row: Row | None) -> str:
    if row is None:
        return ""
    known = _known(row)
    text = " / ".join(f"{100 * known[level]:.1f}" if level in known else "-" for level in NOMINAL)
    return f"**{text}**" if shortfall(row) else text


def sharpness(rows: Sequence[Row]) -> Iterator[str]:
    """Yield width, interval score and CRPS of 90 % bands on counterfactual questions about the target."""
    yield "| data | method | width | interval score | CRPS |"
    yield "|---|---|---:|---:|---:|"
    for row in rows:
        if (row["setup"], row["queries"]) == ("zero-shot", "counterfactual"):
            cells = [
                f"{float(row[name]):.3g}" if row[name] else "" for name in ("width_0.9", "interval_score_0.9", "crps")
            ]
            yield f"| {LABELS.get(row['data'], row['data'])} | {METHODS.label(row['method'])} | {' | '.join(cells)} |"


def misses(rows: Sequence[Row]) -> Iterator[str]:
    """Yield where a goal is missed, with the worst coverage and by how much."""
    for row in rows:
        if by := shortfall(row):
            known = _known(row)
            worst = max(known, key=lambda level: abs(known[level] - level))
            where = next(title for title, *key in COLUMNS if key == [row["setup"], row["queries"]])
            told = f"{100 * known[worst]:.1f} instead of {100 * worst:g}"
            name = f"{METHODS.label(row['method'])}, {LABELS.get(row['data'], row['data'])}, {where}"
            yield f"- {name}: {told}, {100 * by:.1f} points beyond the goal of ±{100 * (goal(row) or 0):g}"


def write(
    path: Path, rows: Sequence[Row], name: str, method: str, seconds: Mapping[str, float], options: argparse.Namespace
) -> None:
    """Write rows as a table, and beside it what they were made with and how long what was just done took."""
    comparing.write(path, rows, FIELDS)
    facts = path.with_suffix(".json")
    known: dict[str, Any] = json.loads(facts.read_text("utf-8")) if facts.exists() else {}
    asked = {key: getattr(options, key) for key in ("preset", "members", "seed")}
    asked |= {"parts": options.parts} if method == METHODS.combining.name else SHORTER.get((name, method), {})
    runs = known.setdefault("runs", {}).setdefault(name, {})
    load = round(os.getloadavg()[0], 1)
    runs[method] = {key: round(s) for key, s in seconds.items()} | {"load": load, "commit": commit(), **asked}
    known |= {"machine": machine(), "versions": versions()}
    facts.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
