"""The figures of an evaluation: RMSE by horizon, learning curves, example trajectories, a map of representations."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from costar_cli.errors import ArtifactError, DataError
from costar_cli.reporting import Reporter
from costar_cli.steps.model import LoadedModel

if TYPE_CHECKING:
    from costar_cli.evaluate import EvaluationReport
    from costar_cli.figures.learning import LearningCurve
    from costar_cli.panel import Dataset

__all__ = ["draw_plots"]


def draw_plots(
    folder: Path,
    report: "EvaluationReport",
    dataset: "Dataset",
    models: Sequence[LoadedModel],
    encoder: Path,
    reporter: Reporter,
) -> Iterator[tuple[str, Path]]:
    """Draw what can be drawn into a folder; yield each figure's name and file as it is done."""
    from costar_cli.figures.learning import plot_learning
    from costar_cli.figures.rmse import plot_rmse

    with reporter.task("Drawing", total=4, unit="figure") as task:
        yield "rmse", plot_rmse(report, folder / "rmse.png")
        task.advance()
        draw: dict[str, Callable[[Path], Path]] = {
            "learning": lambda path: plot_learning(_curves(models, encoder), path),
            "trajectories": lambda path: _trajectories(models[0], dataset, path),
            "representations": lambda path: _representations(models[0], dataset, path),
        }
        for name, figure in draw.items():
            try:
                yield name, figure(folder / f"{name}.png")
            except DataError as error:
                reporter.note(f"skipped plot {name}: {error.problem}")
            task.advance()


def _curves(models: Sequence[LoadedModel], encoder: Path) -> list["LearningCurve"]:
    """Return the history of every model, and of the workspace's encoder where a model started from it."""
    from costar_cli.artifact import read_header
    from costar_cli.figures.learning import LearningCurve

    curves = []
    parents = {model.header.parents.get("encoder") for model in models}
    try:
        header = read_header(encoder) if encoder.exists() else None
    except ArtifactError:
        header = None
    if header is not None and header.digest in parents:
        curve = LearningCurve.from_meta("pretraining", header.meta, loss="contrastive loss")
        keeps_last = header.meta["config"].get("keep") == "last"
        curves.append(replace(curve, best_epoch=()) if keeps_last else curve)
    stages = (LearningCurve.of_stages(model.name, model.header.meta, loss="loss") for model in models)
    return [*curves, *chain.from_iterable(stages)]


def _trajectories(loaded: LoadedModel, dataset: "Dataset", path: Path) -> Path:
    from costar_cli.evaluate.examples import choose_examples
    from costar_cli.figures.trajectories import plot_trajectories

    part = next((part for part, sets in dataset.queries.items() if "sequence" in sets), None)
    if part is None:
        raise DataError("the data set has no treatment sequences")
    examples = choose_examples(loaded.model, dataset.panels[part], dataset.queries[part]["sequence"])
    return plot_trajectories(examples, path)


def _representations(loaded: LoadedModel, dataset: "Dataset", path: Path) -> Path:
    """Draw the first member's representations of some test subjects at every step before the last."""
    import numpy as np

    from costar_cli.figures.embedding import plot_representations

    represent = getattr(loaded.model, "represent", None)
    if represent is None:
        raise DataError("the method has no representations")
    part, whole = next(iter(dataset.panels.items()))
    panel = whole.take(np.arange(min(whole.n_subjects, 200)))
    encoding, outcome = dataset.schema.treatments, dataset.schema.outcomes[0]
    at = np.arange(panel.n_steps) < panel.length[:, None] - 1
    given = [encoding.describe(values) for values in encoding.decode(panel.treatments[at])]
    label = f"{outcome.name} ({outcome.unit})" if outcome.unit else outcome.name
    member = ", member 1" if loaded.header.meta["members"] > 1 else ""
    title = f"{loaded.name}{member}: histories of {panel.n_subjects:,} subjects of {part}"
    return plot_representations(
        represent(panel)[0][at], given, panel.outcomes[at][:, 0], path, outcome_label=label, title=title
    )
