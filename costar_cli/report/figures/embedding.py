"""t-SNE of representations, coloured by the treatment that follows and by the outcome."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import BoundaryNorm
from numpy.typing import NDArray

from costar_cli.errors import DataError
from costar_cli.report.figures.style import (
    COLOURS,
    GREY,
    LIGHT_GREY,
    figure,
    label_lines,
    label_text,
    legend_columns,
    save,
)

_MOST_POINTS = 750
_SEED = 0  # of the thinning and of t-SNE: the same map each time
_ITERATIONS = 500  # 1,500 points and 1,000 iterations take four times as long, and show the same groups
_FEWEST_POINTS = 10
_WIDTH_IN = 8.2
_MOST_COLUMNS = 4
_LONGEST_LABEL = 40
_TITLE_LETTERS = 96
_LONGEST_BAR = 30  # letters beside the colour bar


def plot_representations(
    z_MD: NDArray[np.floating],
    treatment_M: Sequence[str],
    outcome_M: NDArray[np.floating],
    path: Path,
    *,
    outcome_label: str,
    title: str = "",
) -> Path:
    """Draw the t-SNE map of representations twice: by treatment, and by outcome.

    Args:
        z_MD: representations of M histories; more than 750 are thinned at random.
        treatment_M: name of the treatment applied after each history.
        outcome_M: outcome of each history, in the units of the data; coloured by decile.
        path: PNG file to write.
        outcome_label: name and unit of the outcome.
        title: whose representations of whom, above both maps.
    """
    rows = np.arange(len(z_MD))
    if len(rows) > _MOST_POINTS:
        rows = np.sort(np.random.default_rng(_SEED).choice(len(rows), size=_MOST_POINTS, replace=False))
    map_M2 = embed(z_MD[rows])
    given_M = np.asarray(treatment_M)[rows]
    names, counts = np.unique(given_M, return_counts=True)
    common = names[np.argsort(-counts, kind="stable")]
    shown = common[: len(COLOURS) - 1] if len(common) > len(COLOURS) else common
    groups, colours, palette = [(str(name), given_M == name) for name in shown], {"none": GREY}, iter(COLOURS)
    if len(shown) < len(common):
        groups.append((f"{len(common) - len(shown)} others", ~np.isin(given_M, shown)))
        colours[groups[-1][0]] = LIGHT_GREY
    labels = [f"{label_text(name, _LONGEST_LABEL)} ({member.sum():,})" for name, member in groups]
    columns = min(_MOST_COLUMNS, legend_columns(labels, _WIDTH_IN))
    above_in = 0.3 if title else 0.0
    with figure(_WIDTH_IN, 4.0 + above_in + 0.19 * -(-len(groups) // columns)) as drawn:
        if title:
            drawn.suptitle(label_lines(title, _TITLE_LETTERS, most=1), x=0.01, ha="left", fontsize=10)
        by_treatment, by_outcome = drawn.subplots(1, 2)
        for label, (name, member) in zip(labels, groups, strict=True):
            colour = colours.get(name) or next(palette)
            by_treatment.scatter(map_M2[member, 0], map_M2[member, 1], s=9, color=colour, alpha=0.75, lw=0, label=label)
        by_treatment.set_title("Next treatment")
        y_M = np.asarray(outcome_M, dtype=np.float64)[rows]
        edges = np.unique(np.quantile(y_M, np.linspace(0, 1, 11)))
        if len(edges) < 2:
            edges = np.array([edges[0] - 0.5, edges[0] + 0.5])
        order = np.argsort(y_M, kind="stable")
        points = by_outcome.scatter(map_M2[order, 0], map_M2[order, 1], c=y_M[order], cmap="viridis",
                                    norm=BoundaryNorm(edges, 256), s=9, alpha=0.85, lw=0)  # fmt: skip

        def short(value: float, _: object) -> str:  # three digits, without a power of ten below a million
            return f"{value:,.0f}" if 1_000 <= abs(value) < 1_000_000 else f"{value:.3g}"

        bar = drawn.colorbar(points, ax=by_outcome, spacing="uniform", ticks=edges, shrink=0.85, format=short)
        bar.set_label(f"{label_lines(outcome_label, _LONGEST_BAR, most=1)}, by decile")
        bar.outline.set_visible(False)
        by_outcome.set_title("Outcome")
        for ax in (by_treatment, by_outcome):
            ax.set(xticks=[], yticks=[], xlabel="t-SNE 1")
            ax.set_box_aspect(1)
        by_treatment.set_ylabel("t-SNE 2")
        drawn.legend(loc="outside lower left", ncols=columns, markerscale=2, handletextpad=0.2)
        return save(drawn, path)


def embed(z_MD: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the t-SNE map `[M,2]` of standardised representations.

    Raises:
        DataError: there are too few representations, or some are not finite.
    """
    from sklearn.decomposition import PCA  # noqa: PLC0415  # a second to import, needed here alone
    from sklearn.manifold import TSNE  # noqa: PLC0415
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # noqa: PLC0415

    if len(z_MD) < _FEWEST_POINTS:
        raise DataError(f"t-SNE needs at least {_FEWEST_POINTS} representations, there are {len(z_MD)}")
    if not np.isfinite(z_MD).all():
        raise DataError("the representations are not finite")
    centred = z_MD.astype(np.float64) - z_MD.mean(axis=0)
    start = PCA(n_components=2, random_state=_SEED).fit_transform(centred)
    spread = float(start[:, 0].std()) or 1.0
    perplexity = min(30.0, (len(centred) - 1) / 3)
    tsne = TSNE(
        perplexity=perplexity,
        init=1e-4 * start / spread,
        learning_rate="auto",
        max_iter=_ITERATIONS,
        random_state=_SEED,
    )
    with threadpool_limits(1):  # spinning OpenMP threads triple the time on a busy machine
        points: NDArray[np.float64] = tsne.fit_transform(centred).astype(np.float64)
    return points
