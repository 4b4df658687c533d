"""How cost grows with subjects, steps, covariates and members: processor seconds and memory, and their slopes.

    python -m benchmarks.growth [--json] [--out FILE] [--quick] [--plot FILE.png]

A linear system (128 subjects of 32 steps with 2 covariates) grows in one direction at a time, by doubling. Each point
is a process of its own, on one thread: an epoch of COSTAR's pretraining (`quick` sizes, one member unless members
grow), a fit of `mixed` of 15 iterations and of `ridge`, the answers of `mixed` to two plans about every subject, and
the scores of `mixed` on as many test subjects. Processor seconds do not depend on what else the machine does, but for
its caches. Memory is the peak beyond that of a process that has the data. A slope is that of log cost over the three
largest sizes: 1 grows in proportion, 2 with the square.
"""

import argparse
import math
import multiprocessing
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from matplotlib.ticker import FuncFormatter, LogLocator

import costar_cli
from benchmarks.measure import Figure, Measured, run
from costar_cli.api.scores import evaluate_models
from costar_cli.data import Dataset, Panel
from costar_cli.data.schema import Variable
from costar_cli.plans import PlanRequest, TreatmentPlan
from costar_cli.questions import Cohort, answer_cohort, names_of
from costar_cli.report.figures.style import COLOURS, PLAN_MARKERS, figure, save

FEW: Final = {"val": 64, "target_train": 8, "target_val": 8, "target_test": 8}
BASE: Final = {"subjects": 128, "steps": 32, "covariates": 2, "members": 1}
GROWN: Final[dict[str, tuple[int, ...]]] = {
    "subjects": (128, 256, 512, 1024, 2048, 4096, 8192),
    "steps": (16, 32, 64, 128, 256),
    "covariates": (2, 4, 8, 16),
    "members": (1, 2, 4),
}
QUICK: Final = {"subjects": (32, 64), "steps": (16, 32), "covariates": (2, 4), "members": (1, 2)}
ITERATIONS: Final = 15
OTHERS: Final = ("mixed", "ridge", "answers", "scores")  # which have one member
PLANS: Final = tuple(TreatmentPlan(str(i), np.array(values)[:, None]) for i, values in enumerate([[0] * 6, [1] * 6]))


class Cost(NamedTuple):
    """What a point took: processor seconds, and megabytes at the peak above those before."""

    cpu_s: float
    peak_mb: float


def data(subjects: int, steps: int, covariates: int, seed: int, *, test: int = 8) -> Dataset:
    """Return a linear system, with covariates of pure noise beside its two."""
    made = costar_cli.simulate("linear", train=subjects, test=test, steps=steps, seed=seed, origins=2, **FEW)
    rng, more = np.random.default_rng(seed), covariates - len(made.schema.covariates)

    def widened(panel: Panel) -> Panel:
        noise = rng.normal(size=(*panel.covariates.shape[:2], more)).astype(np.float32)
        return replace(panel, covariates=np.concatenate([panel.covariates, noise], axis=-1))

    extra = tuple(Variable(name=f"noise_{i}") for i in range(more))
    schema = made.schema.model_copy(update={"covariates": made.schema.covariates + extra})
    panels = {part: widened(panel) for part, panel in made.panels.items()}
    return replace(made, name="growth", schema=schema, panels=panels, digest="")  # whose truth no simulator knows


def work_of(name: str, size: Mapping[str, int], seed: int) -> Callable[[], object]:
    """Return what is measured on data of a size; what it needs is made before."""
    shape = size["steps"], size["covariates"], seed
    dataset = data(size["subjects"], *shape)
    if name == "pretraining":
        costar: dict[str, Any] = {"preset": "quick", "members": size["members"], "epochs": 1, "updates": None}
        return partial(costar_cli.pretrain, dataset, **costar)
    if name in {"mixed", "ridge"}:
        return partial(costar_cli.fit, dataset, name, **({"iterations": ITERATIONS} if name == "mixed" else {}))
    mixed = costar_cli.fit(data(64, *shape), "mixed", iterations=ITERATIONS)
    if name == "scores":
        return partial(evaluate_models, mixed, data(64, *shape, test=size["subjects"]), bootstrap=0)
    panel = dataset.panel("source", "train")
    asked = Cohort.of(panel, names_of(panel))
    return lambda: [len(answers) for answers in answer_cohort(name, mixed.fitted, asked, PlanRequest(PLANS))]


def measured(name: str, size: Mapping[str, int], seed: int) -> Cost:
    """Do one piece of work, and return what it took."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # so few iterations do not converge
    work_of(name, {**BASE, "subjects": 32}, seed)()  # what is imported and set up once does not count
    work = work_of(name, size, seed)
    before = _reset_peak()
    start = time.process_time()
    work()
    return Cost(time.process_time() - start, _peak_mb() - before)


def _reset_peak() -> float:
    Path("/proc/self/clear_refs").write_text("5")
    return _peak_mb()


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return float(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


def slope(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Return the slope of log cost over the three largest sizes, by least squares."""
    return float(np.polyfit(np.log(sizes[-3:]), np.log(np.maximum(costs[-3:], 1e-9)), 1)[0])


def measure(options: argparse.Namespace) -> Measured:
    points: dict[str, dict[str, list[Cost]]] = {}
    figures: dict[str, Figure] = {}
    base, grown = ({**BASE, "subjects": 32, "steps": 16}, QUICK) if options.quick else (BASE, GROWN)
    context = multiprocessing.get_context("fork")  # what is loaded is loaded once, and no operator has run yet
    for axis, sizes in grown.items():
        for name in ("pretraining", *(() if axis == "members" else OTHERS)):
            costs = []
            for n in sizes:
                with context.Pool(1) as pool:
                    costs.append(Cost(*pool.apply(measured, (name, {**base, axis: n}, options.seed))))
            points.setdefault(axis, {})[name] = costs
            for what, unit, of in (("time", "s", 0), ("memory", "MB", 1)):
                values = [cost[of] for cost in costs]
                label = f"{what} of {name}, {sizes[-1]:,} {axis} ({values[-1]:.3g} {unit})"
                figures[f"{what}_{name}_{axis}"] = Figure(f"slope of {label}", slope(sizes, values))
    if options.plot is not None:
        draw(points, grown, options.plot)
    return Measured(figures, {"sizes": grown, "points": points})


LABELS: Final = (
    ("processor seconds", 0.0),
    ("memory beyond the start\n(MB, less than 1 drawn as 1)", 1.0),
)  # and least


def draw(points: Mapping[str, Mapping[str, Sequence[Cost]]], grown: Mapping[str, Sequence[int]], path: Path) -> None:
    """Draw processor seconds and memory against each size, both axes logarithmic.

    Less than 1 MB is drawn as 1 MB: it is what the process happened to keep, not what the work needs.
    """
    with figure(2.6 * len(grown), 5.2) as fig:
        axes = fig.subplots(2, len(grown))
        for column, (axis, by_name) in enumerate(points.items()):
            for of, (label, least) in enumerate(LABELS):
                ax = axes[of][column]
                for (name, costs), colour, marker in zip(by_name.items(), COLOURS, PLAN_MARKERS, strict=False):
                    values = [max(cost[of], least) or math.nan for cost in costs]
                    ax.loglog(grown[axis], values, color=colour, marker=marker, markersize=3.5, label=name)
                low, high = ax.get_ylim()
                if high < 30 * low:  # powers of 10 alone would be a tick or two
                    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                ax.minorticks_off()
                ticks = grown[axis][:: 1 + len(grown[axis]) // 6]
                ax.set_xticks(ticks, [f"{n:,}" for n in ticks])
                ax.set_xlabel(axis)
                ax.set_ylabel("" if column else label)
        fig.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=len(OTHERS) + 1)
        save(fig, path)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plot", type=Path, help="also draw the points here")


def main(argv: Sequence[str] | None = None) -> None:
    run("growth", __doc__, measure, argv, repeats=1, add_options=_add_options)


if __name__ == "__main__":
    main()
