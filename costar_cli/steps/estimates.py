"""The body of `costar whatif`: a question in, estimates out."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from costar_cli.errors import UsageError
from costar_cli.outputs import Files, check_artifact_name, check_outputs, check_page
from costar_cli.steps.answers import show_answers, show_sweep
from costar_cli.steps.defaults import ModelChoice
from costar_cli.steps.model import load_models, name_models
from costar_cli.steps.sensitivity import sensitivity_plot, show_sensitivity
from costar_cli.steps.session import Session

if TYPE_CHECKING:
    from costar_cli.panel import Dataset
    from costar_cli.plans.sweep import Sweep
    from costar_cli.questions import WhatIfReport

__all__ = ["Question", "check_plot", "files_read", "run_whatif"]

PLOT_FORMATS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Question:
    """What is asked, and which files shall hold the answer."""

    plan: Path | None
    subject: str
    origin: int | str | None
    reference: str | None
    levels: tuple[float, ...]
    truth: bool
    csv: Path | None
    plot: Path | None
    out: Path | None
    overwrite: bool
    unsupported: bool = False
    sensitivity: bool = False
    abstain: bool = False
    widen: bool = False
    report: Path | None = None
    sweep: str | None = None

    @property
    def plan_file(self) -> Path:
        """Return the file of plans, standard input where none is named."""
        return self.plan or Path("-")

    def swept(self, dataset: "Dataset") -> "Sweep | None":
        """Return the doses to compare, where some are asked about in place of plans.

        Raises:
            UsageError: they are none of the data set's.
        """
        from costar_cli.plans.sweep import Sweep

        return Sweep.parse(self.sweep, dataset.schema.treatments) if self.sweep is not None else None

    def check(self, read: Files = ()) -> None:
        """See, before any work, that the answer can be written, and to nothing that is `read`.

        Raises:
            UsageError: a plot, a page, an artifact or a table of an unknown kind, or two files of the same name.
            MismatchError: a file is read, or exists and may not be replaced.
            StorageError: a folder does not exist, or a file is no regular one.
        """
        from costar_cli.artifact.tables import check_table_name

        check_plot(self.plot)
        beside = sensitivity_plot(self.plot) if self.plot is not None and self.sensitivity else None
        files = (
            ("--csv", self.csv),
            ("--plot", self.plot),
            ("--plot", beside),
            ("--report", self.report),
            ("--out", self.out),
        )
        check_outputs(files, read=[*read, *([("plan", self.plan)] if self.plan else [])], overwrite=self.overwrite)
        check_page(self.report, flag="--report")
        check_artifact_name(self.out)
        if self.csv is not None:
            check_table_name(self.csv, flag="--csv")


def check_plot(path: Path | None) -> None:
    """See that a figure can be drawn.

    Raises:
        UsageError: it is of an unknown kind.
    """
    if path is not None and path.suffix.lower() not in PLOT_FORMATS:
        raise UsageError(f"cannot draw `{path.name}`", where="--plot", fix=f"end the name in {', '.join(PLOT_FORMATS)}")


def run_whatif(session: Session, question: Question, data: Path, models: Sequence[Path]) -> None:
    """Answer a question and show the answer."""
    choice = ModelChoice.of(session.workspace, models).fitting(session.workspace, data)
    question.check(files_read(session, data, models))
    session.read("dataset", data)
    from costar_cli.api.estimates import ask
    from costar_cli.plans import Moments, parse_origin, parse_plans, read_plan_file, step_of

    document = b"" if question.sweep is not None else read_plan_file(question.plan_file)
    dataset = session.load_dataset(data, queries=False, truth=question.truth)
    sweep = question.swept(dataset)
    document = sweep.document() if sweep else document
    location = dataset.find_subject(question.subject)
    domain, panel = location.part.domain, dataset.panel_of(location)
    origin = None if question.origin is None else step_of(panel, parse_origin(question.origin))
    question = replace(question, origin=origin)
    named = name_models(choice.about(session, [domain]), session.workspace.root)
    headers = {name: session.read("model", path, role=name) for name, path in named.items()}
    loaded = load_models(session, headers, named)
    horizon = min(model.horizon for model in loaded.values())
    place = "standard input" if str(question.plan) == "-" else str(question.plan or "--sweep")
    report = ask(
        dataset,
        loaded,
        lambda: parse_plans(
            document,
            dataset.schema,
            horizon=horizon,
            where=place,
            origin=origin,
            begin=partial(Moments.of, panel, where="--plan"),
        ),
        subject=question.subject,
        origin=origin,
        level=question.levels,
        truth=question.truth,
        reference=question.reference,
        unsupported=question.unsupported,
        abstain=question.abstain,
        widen=question.widen,
        reporter=session.reporter,
    )
    if question.sensitivity and report.rules:
        problem = f"--sensitivity is about plans, and {', '.join(map(repr, report.rules))} depend on the course"
        raise UsageError(problem, where="--sensitivity", fix="leave rules and shifts out, or write their steps")
    if sweep:
        show_sweep(session.out, report, sweep)
    else:
        show_answers(session.out, report)
    draw = partial(_draw_sweep, dataset, report, sweep) if sweep else None
    _write(session, question, report, document, draw)
    more: dict[str, object] = {} if sweep is None else {"sweep": sweep.to_json()}
    if question.sensitivity:
        more["sensitivity"] = show_sensitivity(session, dataset, loaded, report, question.plot)
    session.out.done(report.to_json() | more)


def files_read(session: Session, data: Path, models: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return what a question about a data set and its models reads; without models, each that it may read."""
    asked = models or session.workspace.models()
    return [*session.read_by(), ("data set", data), *(("model", path) for path in asked)]


def _write(
    session: Session,
    question: Question,
    report: "WhatIfReport",
    document: bytes,
    draw: Callable[[Path], object] | None = None,
) -> None:
    from costar_cli.artifact import fingerprint, write_bytes
    from costar_cli.questions import write_csv, write_estimates

    if question.csv is not None:
        write_csv(question.csv, report)
        session.out.wrote("csv", question.csv)
    if question.plot is not None:
        from costar_cli.figures.whatif import plot_whatif

        (draw or partial(plot_whatif, report))(question.plot)
        session.out.wrote("plot", question.plot)
    if question.report is not None:
        from costar_cli.api.pages import html_of

        write_bytes(question.report, html_of(report).encode())
        session.out.wrote("report", question.report, kind="html")
    if question.out is not None:
        asked = {key: value for key, value in asdict(question).items() if key in _ASKED}
        mark = fingerprint("estimates", parents=report.parents, config={**asked, "plan": document.decode("utf-8")})
        artifact = write_estimates(
            question.out, report, parents=report.parents, fingerprint=mark, overwrite=question.overwrite
        )
        session.out.wrote("estimates", question.out, artifact.digest)


def _draw_sweep(dataset: "Dataset", report: "WhatIfReport", sweep: "Sweep", path: Path) -> None:
    from costar_cli.figures.sweep import plot_sweep

    plot_sweep(report, sweep, sweep.given(dataset), path)


_ASKED = ("subject", "origin", "reference", "levels", "truth", "unsupported", "abstain", "widen")
