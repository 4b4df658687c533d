"""The files of `costar evaluate`, and the views of an evaluation: its table and figures, which say what they show."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from costar_cli.api.outputs import Files, check_folder, check_outputs, check_places
from costar_cli.cli.regret import RegretQuestion
from costar_cli.cli.session import Session
from costar_cli.config.choices import DomainName, SetupName
from costar_cli.errors import ArtifactError, DataError, MismatchError, StorageError, UsageError

if TYPE_CHECKING:
    from costar_cli.cli.evaluation import EvaluationInputs
    from costar_cli.data import Dataset
    from costar_cli.evaluation import EvaluationReport
    from costar_cli.files.shards import Shard
    from costar_cli.methods.base import FittedModel
    from costar_cli.report.figures.learning import LearningCurve

LAST: Final = "rmse"  # is drawn last, and names all: where it shows an evaluation, no run was killed before the others
FIGURES: Final = (
    "reliability", "pit", "natural_course", "predictive_check", "residuals", "learning", "trajectories",
    "representations", LAST,
)  # fmt: skip
REPLACE: Final = "add --overwrite to replace it, or choose another"


@dataclass(frozen=True)
class EvaluationFiles:
    """What `evaluate` reads and writes; no `plots`, no drawing, no `refutation`, `search` or `predictions`, none.

    `foreign` are predictions of other programs, which were trained last on the domain `trained`.
    """

    data: Path
    models: Sequence[Path]
    report: Path
    csv: Path
    plots: Path | None
    refutation: Path | None = None
    search: RegretQuestion | None = None
    predictions: Path | None = None
    foreign: Sequence[Path] = ()
    trained: DomainName = "source"

    @property
    def searched(self) -> Path | None:
        """Return the table of regrets, if they are asked for."""
        return self.csv.with_name(f"{self.csv.stem}-search.csv") if self.search else None

    @property
    def owns_csv(self) -> bool:
        """Return whether the table of scores is that of an evaluation beside it, made again whenever that is."""
        return self.csv == self.report.with_suffix(".csv") and self.report.exists()

    @property
    def figures(self) -> dict[str, Path]:
        """Return the files of all figures that there may be, by name."""
        return {name: self.plots / f"{name}.png" for name in FIGURES} if self.plots is not None else {}

    def in_words(self) -> str:
        """Return where the scores and the figures are: the table, and the folder with the number of figures."""
        drawn = sum(path.exists() for path in self.figures.values())
        if self.plots is None or not drawn:
            return str(self.csv)
        folder = self.plots.name if self.plots.parent == self.csv.parent else self.plots
        return f"{self.csv}, {folder}/ ({drawn} figure{'s' * (drawn > 1)})"

    def check(self, read: Files, *, overwrite: bool) -> None:
        """See, before any work, that no output is `read` or no regular file, and that no two are the same.

        Raises:
            MismatchError: an output is read, or there are predictions that may not be replaced.
            StorageError: an output is no regular file, or the folder of plots is none, or that of the table missing.
            UsageError: two outputs have the same name, or a table's name is no table's.
        """
        if self.csv.parent != self.report.parent:
            check_folder("--csv", self.csv)
        if self.predictions is not None:
            from costar_cli.files.tables import check_table_name

            check_table_name(self.predictions, flag="--predictions")
            check_outputs([("--predictions", self.predictions)], read=read, overwrite=overwrite)
        tables = [("--csv", self.csv), ("--search", self.searched), ("--predictions", self.predictions)]
        figures = [("--plots", path) for path in self.figures.values()]
        check_places([("--out", self.report), *tables, ("--refute", self.refutation), *figures], read=read)
        if self.csv.suffix.lower() != ".csv":
            fix = "end the name in .csv"
            raise UsageError(f"cannot write the scores to `{self.csv.name}`", where="--csv", fix=fix)
        if self.plots is not None and self.plots.exists() and not self.plots.is_dir():
            raise StorageError(f"`{self.plots}` is no folder", where="--plots", fix="choose another name")


def check_views(
    session: Session, files: EvaluationFiles, report: "EvaluationReport | None", *, overwrite: bool
) -> None:
    """See, before any work, that views replace nothing but views; of a new report there is no table yet.

    The table beside an evaluation, and figures in the workspace, are made again whenever it is.

    Raises:
        MismatchError: another file has the name of one, and may not be replaced.
    """
    from costar_cli.files.digest import shown_in

    if overwrite:
        return
    if not files.owns_csv and files.csv.exists() and not _shows(files.csv, report):
        raise MismatchError(f"`{files.csv}` exists and is no table of this evaluation", where="--csv", fix=REPLACE)
    searched = files.searched
    if searched is not None and searched.exists() and not files.csv.exists():
        raise MismatchError(f"`{searched}` exists", where="--search", fix=REPLACE)
    if files.plots != session.workspace.plots:
        for path in files.figures.values():
            if path.exists() and shown_in(path) is None:
                raise MismatchError(f"`{path}` exists and shows no evaluation", where="--plots", fix=REPLACE)


def write_views(
    session: Session,
    files: EvaluationFiles,
    inputs: "EvaluationInputs",
    report: "EvaluationReport",
    digest: str,
    *,
    again: bool,
) -> None:
    """Write the table and the figures: `again`, or those that are missing or show an evaluation of another digest."""
    if again or not _shows(files.csv, report):
        from costar_cli.files import write_bytes

        write_bytes(files.csv, _table(report))
        session.out.wrote("csv", files.csv, line=False)
    if files.plots is None:
        return
    from costar_cli.files.digest import drawn_with, shown_in

    # all figures that were drawn together are there, and they alone show an evaluation: of the digest
    there = {name: path for name, path in files.figures.items() if path.exists()}
    together = drawn_with(there[LAST]) if LAST in there else frozenset()
    shows = all(shown_in(path) == (digest if name in together else None) for name, path in there.items())
    if not again and LAST in together and together <= there.keys() and shows:
        return
    drawn = set()
    for name, path in _draw(session, files.figures, inputs, report, digest):
        session.out.wrote(name, path, kind="plot", line=False)
        drawn.add(name)
    for name, path in files.figures.items():
        if name not in drawn and path.exists() and shown_in(path) is not None:
            path.unlink()  # of another evaluation, whose models could be drawn so


def write_predictions(
    session: Session,
    whole: Path,
    inputs: "EvaluationInputs",
    setups: Sequence[SetupName] | None,
    shard: "Shard | None" = None,
) -> None:
    """Predict what the scores rest on again, and write it a chunk of subjects at a time; of a shard, beside `whole`."""
    from costar_cli.config.models import EvaluateConfig
    from costar_cli.evaluation.predictions import predicted_rows
    from costar_cli.evaluation.run import part_to_score, stay_weights
    from costar_cli.evaluation.setups import plan_jobs
    from costar_cli.files.shards import WHOLE
    from costar_cli.files.tables import QUESTION, SHARD, table_file

    dataset, config = inputs.dataset, session.settings[EvaluateConfig]
    asked = {**config.model_dump(mode="json"), "setups": setups}
    question = session.step("predictions", whole, parents=inputs.parents, config=asked).fingerprint
    path, mark = whole, {QUESTION: question}
    if shard is not None:
        path, mark = shard.beside(whole), {QUESTION: question, SHARD: str(shard)}
    jobs = plan_jobs(dataset, inputs.candidates, setups)
    tests = {part: part_to_score(dataset, part, shard or WHOLE) for part in {job.setup.test for job in jobs}}
    weights = stay_weights(tests, dataset, [job.candidate for job in jobs]) if config.ipcw else {}
    total = sum(tests[job.setup.test].n_queries for job in jobs)
    with table_file(path, mark) as table, session.reporter.task("Predicting", total=total, unit="query") as task:
        for job in jobs:
            test, weighed = tests[job.setup.test], weights.get(job.setup.test)
            for answered, columns in predicted_rows(job, test, level=config.level, weights=weighed):
                table.write({"dataset": [dataset.name] * len(columns["step"])} | columns)
                task.advance(answered)
    session.out.wrote("predictions", path)


def _shows(csv: Path, report: "EvaluationReport | None") -> bool:
    return report is not None and csv.exists() and csv.read_bytes() == _table(report)


def _table(report: "EvaluationReport") -> bytes:
    from costar_cli.files.tables import as_wanted

    return as_wanted(report.to_csv()).encode()


def _draw(
    session: Session,
    figures: Mapping[str, Path],
    inputs: "EvaluationInputs",
    report: "EvaluationReport",
    digest: str,
) -> Iterator[tuple[str, Path]]:
    """Draw what can be drawn; yield each figure's name and file as it is done. The last one tells them all."""
    from costar_cli.report.figures.evaluation import plot_natural, plot_pit, plot_reliability, plot_rmse
    from costar_cli.report.figures.learning import plot_learning
    from costar_cli.report.figures.style import showing

    dataset, models, reporter = inputs.dataset, inputs.models if inputs.headers else {}, session.reporter
    more = {"reliability": plot_reliability, "pit": plot_pit} if any(row.band_tests for row in report.rows) else {}
    more |= {"natural_course": plot_natural} if report.natural else {}
    if report.doses:
        from costar_cli.report.figures.doses import plot_predictive_check, plot_residuals

        more |= {"predictive_check": plot_predictive_check, "residuals": plot_residuals}
    draw: dict[str, Callable[[Path], Path]] = {name: partial(plot, report) for name, plot in more.items()}
    for called, first in list(models.items())[:1]:
        draw |= {
            "learning": lambda path: plot_learning(_curves(models, session.workspace.encoder), path),
            "trajectories": partial(_trajectories, first, dataset),
            "representations": partial(_representations, called, first, dataset),
        }
    draw[LAST] = partial(plot_rmse, report)
    drawn: list[str] = []
    with reporter.task("Drawing", total=len(draw), unit="figure") as task:
        for name, figure in draw.items():
            try:
                with showing(digest, together=[*drawn, LAST] if name == LAST else ()):
                    path = figure(figures[name])
            except DataError as error:
                reporter.note(f"skipped plot {name}: {error.problem}")
            else:
                drawn.append(name)
                yield name, path
            task.advance()


def _curves(models: Mapping[str, "FittedModel"], encoder: Path) -> list["LearningCurve"]:
    """Return the history of every model, and of the workspace's encoder where a model started from it."""
    from costar_cli.data.record import ModelRecord
    from costar_cli.files import read_header
    from costar_cli.report.figures.learning import LearningCurve

    curves = []
    parents = {model.parents.get("encoder") for model in models.values()}
    try:
        header = read_header(encoder) if encoder.exists() else None
    except ArtifactError:
        header = None
    if header is not None and header.digest in parents:
        record = ModelRecord.of(header)
        curve = LearningCurve.of_last_stage("pretraining", record, loss="contrastive loss")
        keeps_last = (record.config or {}).get("keep") == "last"
        curves.append(replace(curve, best_epoch=()) if keeps_last else curve)
    stages = (LearningCurve.of_stages(name, model.record, loss="loss") for name, model in models.items())
    return [*curves, *chain.from_iterable(stages)]


def _trajectories(model: "FittedModel", dataset: "Dataset", path: Path) -> Path:
    from costar_cli.report.figures.trajectories import choose_examples, plot_trajectories

    part = next((part for part, sets in dataset.queries.items() if "sequence" in sets), None)
    if part is None:
        raise DataError("it shows plans with known outcomes (query set `sequence`), and the data set has none")
    examples = choose_examples(model, dataset.panels[part], dataset.queries[part]["sequence"])
    return plot_trajectories(examples, path)


def _representations(name: str, model: "FittedModel", dataset: "Dataset", path: Path) -> Path:
    """Draw the first member's representations of some test subjects at every step before the last."""
    import numpy as np

    from costar_cli.report.figures.embedding import plot_representations

    part, whole = next(iter(dataset.panels.items()))
    panel = whole.take(np.arange(min(whole.n_subjects, 200)))
    z_RNTD = model.represent(panel)
    if z_RNTD is None:
        raise DataError("the method has no representations")
    encoding, outcome, at = dataset.schema.treatments, dataset.schema.outcomes[0], panel.decided
    given = [encoding.describe(values) for values in encoding.decode(panel.treatments[at])]
    label = f"{outcome.name} ({outcome.unit})" if outcome.unit else outcome.name
    member = ", member 1" if model.members > 1 else ""
    title = f"{name}{member}: histories of {panel.n_subjects:,} subjects of {part}"
    return plot_representations(z_RNTD[0][at], given, panel.outcomes[at][:, 0], path, outcome_label=label, title=title)
