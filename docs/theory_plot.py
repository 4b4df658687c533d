"""Draw docs/img/theory-bound.png: the bound and what it bounds, on a two-domain example small enough to compute.

python docs/theory_plot.py
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.theory import (
    BoundIngredients,
    PairGraph,
    PfaHead,
    bound_ingredients,
    error_views,
    graph_of_augmentation,
    jitter_transitions,
    spectral_minimiser,
)
from costar_cli.report.figures.style import COLOURS, PLAN_MARKERS, figure, save

TARGET = Path(__file__).parent / "img" / "theory-bound.png"

SCALES = np.round(np.geomspace(0.3, 5.0, 15), 3)  # of the augmentation's jitter
POWERS = (1, 2, 4)  # t of the head
CONSTANTS = (100.0, 300.0, 1000.0)  # c of the bound
SEEDS = range(5)
WIDTH = 8  # K: twice the number of clusters, as the theory asks
PER_CLUSTER = 14  # histories: few enough to look at every way to cut a cluster
SHIFT, GAP, SPREAD = 2.5, 4.0, 0.5  # between domains, between outcomes, within clusters


class Measured(NamedTuple):
    """What one augmentation does on one draw of histories."""

    ingredients: BoundIngredients
    errors: tuple[float, ...]  # of the target, by power


def draw_histories(seed: int) -> tuple[NDArray[np.float64], list[NDArray[np.int64]]]:
    """Return histories as points in the plane, and four clusters: source 0, source 1, target 0, target 1."""
    rng = np.random.default_rng(seed)
    centres = [(domain * SHIFT, outcome * GAP) for domain in (0, 1) for outcome in (0, 1)]
    points = np.concatenate([centre + SPREAD * rng.standard_normal((PER_CLUSTER, 2)) for centre in np.array(centres)])
    return points, [np.arange(PER_CLUSTER) + i * PER_CLUSTER for i in range(4)]


def measure(scale: float, seed: int) -> Measured:
    """Return the ingredients of the bound and the head's error in the target, with labels in the source alone."""
    points, clusters = draw_histories(seed)
    graph = graph_of_augmentation(jitter_transitions(points, scale))
    ingredients = bound_ingredients(graph, clusters[:2], clusters[2:])
    return Measured(ingredients, tuple(target_error(graph, clusters, power) for power in POWERS))


def target_error(graph: PairGraph, clusters: list[NDArray[np.int64]], power: int) -> float:
    """Return the share of target histories that the head gets wrong."""
    labelled, target = np.concatenate(clusters[:2]), np.concatenate(clusters[2:])
    outcomes = np.repeat([0.0, 1.0, 0.0, 1.0], PER_CLUSTER)[:, None]
    features = spectral_minimiser(graph, WIDTH)
    head = PfaHead.fit(
        features,
        features[labelled],
        outcomes[labelled],
        values_RY=np.array([[0.0], [1.0]]),
        tolerance=0.1,
        power=power,
        probability_N=graph.degree,
        probability_M=graph.degree[labelled],
    )
    return error_views(outcomes[target], head.predict(features[target]), 0.1).zero_one


def main() -> None:
    """Measure, and draw both panels."""
    runs = [[measure(float(scale), seed) for seed in SEEDS] for scale in SCALES]
    ingredients = {
        r"$\alpha$: pair leaves its cluster": lambda found: found.alpha,
        r"$\rho$: pair with own source cluster": lambda found: found.rho,
        "mismatch: with another source cluster": lambda found: found.mismatch,
        r"$\gamma$: hardness of cutting a cluster": lambda found: found.gamma.low,
    }
    with figure(9.6, 4.6) as drawn:
        left, right = drawn.subplots(1, 2, sharex=True)
        for (label, value), colour in zip(ingredients.items(), COLOURS, strict=False):
            left.plot(
                SCALES, [np.mean([value(run.ingredients) for run in at]) for at in runs], color=colour, label=label
            )
        left.set(yscale="log", ylim=(1e-5, 1), ylabel="probability", title="Ingredients of the bound")
        for i, (power, colour, marker) in enumerate(zip(POWERS, COLOURS, PLAN_MARKERS, strict=False)):
            error = [np.mean([run.errors[i] for run in at]) for at in runs]
            right.plot(SCALES, error, color=colour, marker=marker, label=f"measured, t = {power}")
        for c, colour in zip(CONSTANTS, COLOURS[len(POWERS) :], strict=False):
            bound = [np.mean([run.ingredients.zero_one(c) for run in at]) for at in runs]
            right.plot(SCALES, bound, color=colour, linestyle="--", label=f"bound, c = {c:,.0f}")
        right.set(ylabel="share of target histories missed", ylim=(-0.03, 1.05), title="Error in the target domain")
        for axes, columns in ((left, 1), (right, 2)):
            axes.set(xscale="log", xticks=(0.3, 0.5, 1, 2, 4), xticklabels=("0.3", "0.5", "1", "2", "4"))
            axes.set_xlabel("scale of the augmentation")
            axes.minorticks_off()
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=columns)
        save(drawn, TARGET)


if __name__ == "__main__":
    main()
