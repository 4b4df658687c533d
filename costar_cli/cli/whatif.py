"""`costar whatif`: the outcomes of a subject, or of many, under treatment plans, shown and written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from costar_cli.api.outputs import Files, check_artifact_name, check_outputs, check_page
from costar_cli.cli import options
from costar_cli.cli.answers import bounds_of, sensitivity_plot, show_answers, show_cohort, show_sensitivity
from costar_cli.cli.averages import show_average_sweep, show_averages
from costar_cli.cli.models import ModelChoice
from costar_cli.cli.options import FILES, expanded
from costar_cli.cli.parts import check_part, check_whole, end_part
from costar_cli.cli.session import RunFlags, Session
from costar_cli.config.requests import WhatIfRequest
from costar_cli.errors import UsageError

if TYPE_CHECKING:
    from costar_cli.api.cohorts import CohortAnswers
    from costar_cli.files.shards import Shard
    from costar_cli.questions import Question, WhatIfReport
    from costar_cli.questions.sensitivity import Sensitivity

PLOT_FORMATS: Final = (".png", ".svg", ".pdf")
MOST_REPORTED: Final = 50  # subjects of one page, or with bounds of sensitivity


@dataclass(frozen=True, kw_only=True)
class Subjects:
    """Who is asked about, and the plans or doses."""

    plan: Annotated[
        Path | None,
        typer.Option("--plan", "-p", help="Plans (required): a JSON file, a .csv, or `-` for JSON on standard input"),
    ] = None
    subject: Annotated[
        list[str] | None,
        typer.Option(
            "--subject", "-s", help="Subject: its label, or its number if it has no label; several make a cohort"
        ),
    ] = None
    subjects: options.SubjectsOpt = None
    skip_unknown: options.SkipUnknownFlag = False
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep",
            metavar="'DOSE FIRST:LAST:STEP'",
            help="Doses to compare in place of plans, for a dose-response curve",
        ),
    ] = None

    def who(self) -> str | tuple[str, ...]:
        """Return the cohort or the subjects that are named; none where the plans name them.

        Raises:
            UsageError: what is missing, all at once, a cohort beside subjects, or a sweep beside plans.
        """
        if self.sweep is not None and self.plan is not None:
            raise UsageError("both --sweep and --plan are given", where="--sweep", fix="give one of them")
        if self.subject and self.subjects is not None:
            fix = "give --subject for one, or --subjects for a cohort"
            raise UsageError("both --subject and --subjects are given", fix=fix)
        who = tuple(dict.fromkeys(self.subject or ())) if self.subjects is None else self.subjects
        if not who and self.subjects is None and self.plan is not None and self.plan.suffix.lower() == ".csv":
            from costar_cli.plans import read_plan_file
            from costar_cli.questions import subjects_of_plans

            if subjects_of_plans(read_plan_file(self.plan)):
                return ()
        missing = ["'--subject' / '-s' (or '--subjects')"] * (not who)
        missing += ["'--plan' / '-p'"] * (self.plan is None and self.sweep is None)
        if missing:
            fix = "`costar whatif --help` shows what it takes"
            raise UsageError(f"missing option{'s' * (len(missing) > 1)} {', '.join(missing)}", fix=fix)
        return who


@dataclass(frozen=True, kw_only=True)
class OutputFiles:
    """Which files shall hold the answer."""

    csv: Annotated[
        Path | None,
        typer.Option("--csv", "--answers", help="Table to write: .csv, .parquet or .jsonl", rich_help_panel=FILES),
    ] = None
    csv_safe: options.CsvSafeFlag = False
    labels: Annotated[
        Path | None,
        typer.Option("--labels", help="Estimates as MEDS labels to write: .parquet", rich_help_panel=FILES),
    ] = None
    events: Annotated[
        Path | None,
        typer.Option("--events", help="Estimates as MEDS events to write: .parquet", rich_help_panel=FILES),
    ] = None
    plot: options.PlotOpt = None
    report: options.ReportOpt = None
    out: options.OutOpt = None
    overwrite: options.OverwriteFlag = False
    shard: options.ShardOpt = None
    merge: options.MergeFlag = False

    @property
    def meds(self) -> dict[str, Path]:
        """Return the files in the layout of MEDS, by their flags."""
        files = {"--labels": self.labels, "--events": self.events}
        return {flag: path for flag, path in files.items() if path is not None}

    def check(self, request: WhatIfRequest, *, alone: bool, read: Files, part: "Shard | None" = None) -> None:
        """See, before any work, that the answer can be written, and to nothing that is `read`.

        Raises:
            UsageError: a file of an unknown kind, two files of the same name, options that do not go together.
            MismatchError: a file is read, or exists and may not be replaced.
            StorageError: a folder does not exist, or a file is no regular one.
        """
        from costar_cli.files.tables import check_table_name

        check_plot(self.plot)
        beside = sensitivity_plot(self.plot) if self.plot is not None and request.sensitivity else None
        plots, others = [("--plot", self.plot), ("--plot", beside)], [("--report", self.report), ("--out", self.out)]
        if part is not None and self.csv is not None:
            check_part(part, self.csv, read)
        csv = self.csv if part is None else None
        check_outputs([("--csv", csv), *self.meds.items(), *plots, *others], read=read, overwrite=self.overwrite)
        check_page(self.report, flag="--report")
        check_artifact_name(self.out)
        if self.csv is not None:
            check_table_name(self.csv, flag="--csv")
        for flag, path in self.meds.items():
            if path.suffix.lower() != ".parquet":
                problem = f"{flag[2:]} are Parquet, not `{path.name}`"
                raise UsageError(problem, where=flag, fix="end it in .parquet")
        if alone:
            return
        averaged = {} if request.average else {"--plot": self.plot, "--by": request.by}
        averaged |= {} if request.average or self.csv or self.out else {"--reference": request.reference}
        if flags := [flag for flag, value in averaged.items() if value]:
            fix = "add --average" + " or --csv" * (flags[0] == "--reference")
            raise UsageError(f"{flags[0]} of a cohort is for averages", where=flags[0], fix=fix)
        single: dict[str, object] = {"--sensitivity": request.sensitivity, "--widen": request.widen, "--out": self.out}
        single |= self.meds
        if request.average and (flags := [flag for flag, value in single.items() if value]):
            problem = f"{flags[0]} is about subjects, not averages"
            raise UsageError(problem, where=flags[0], fix=f"leave out {flags[0]} or --average")

    def of_shard(self, shard: "Shard | None", *, alone: bool, average: bool) -> "OutputFiles":
        """Return the files with the table of the shard, where it is a shard's.

        Raises:
            UsageError: there is no table that could be merged.
        """
        if self.merge and not average:
            fix = "leave it out; `costar merge` brings together parts of answers"
            raise UsageError("--merge is for averages", where="--merge", fix=fix)
        if average:
            check_whole(shard, self.csv, [("--plot", self.plot), ("--report", self.report)], merge=self.merge)
        if shard is None:
            return self
        if alone:
            raise UsageError("a question about one subject has no parts", where="--shard", fix="leave it out")
        if single := ["--out"] * (self.out is not None) + [*self.meds]:
            raise UsageError("parts are tables", where=single[0], fix=f"leave out {single[0]} or --shard")
        if average:
            return self
        if self.csv is None or self.csv.suffix.lower() != ".parquet":
            fix = "name the whole table with --csv FILE.parquet"
            raise UsageError("parts are tables of answers", where="--shard", fix=fix)
        return replace(self, csv=shard.beside(self.csv))


def check_plot(path: Path | None) -> None:
    """See that a figure can be drawn.

    Raises:
        UsageError: it is of an unknown kind.
    """
    if path is not None and path.suffix.lower() not in PLOT_FORMATS:
        raise UsageError(f"cannot draw `{path.name}`", where="--plot", fix=f"end the name in {', '.join(PLOT_FORMATS)}")


def files_read(session: Session, data: Path, models: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return what a question about a data set and its models reads; without models, each that it may read."""
    paths = models or session.workspace.models()
    return [*session.read_by(), ("data set", data), *(("model", path) for path in paths)]


@expanded
def whatif(
    ctx: typer.Context,
    about: Subjects,
    request: WhatIfRequest,
    files: OutputFiles,
    run: RunFlags,
    data: options.DataOpt = None,
    model: options.AskedModelsOpt = None,
) -> None:
    """Estimate the outcomes of a subject, or of many, under treatment plans, and the differences between plans."""
    from costar_cli.files.shards import Shard
    from costar_cli.files.tables import safe_cells

    session, who = run.open(ctx), about.who()
    one = not isinstance(who, str) and len(who) == 1
    alone = one and request.origin != "all" and not (request.average or request.by)
    shard = None if files.shard is None else Shard.parse(files.shard)
    whole, files = files.csv, files.of_shard(shard, alone=alone, average=request.average)
    session.out.hold()
    place, data = session.workspace, data or session.workspace.data
    models = place.named(model or [])
    choice = ModelChoice.of(place, models).fitting(place, data)
    read = [*files_read(session, data, models), *([("plan", about.plan)] if about.plan else [])]
    read += [("file of subjects", Path(who))] if isinstance(who, str) else []
    files.check(request, alone=alone, read=read, part=shard if request.average else None)
    session.read("dataset", data)
    with safe_cells(files.csv_safe):
        question = _read(session, about, who, request, data, choice, alone=alone, compared=bool(files.report))
        question = replace(question, shard=shard) if shard else question
        _check_reported(request, question, page=files.report is not None)
        if alone:
            _answer_one(session, question, files)
        elif request.average and shard is not None and whole is not None:
            from costar_cli.api.cohorts import answer_many
            from costar_cli.files.parts import is_made

            made = not is_made(whole, shard, question.fingerprint, overwrite=files.overwrite)
            if made:
                question.warn(session.reporter)
                answer_many(question, part_of=whole, reporter=session.reporter)
            end_part(session, shard, whole, made=made)
        else:
            _answer_many(session, question, files, whole)


def _read(
    session: Session,
    about: Subjects,
    who: str | tuple[str, ...],
    request: WhatIfRequest,
    data: Path,
    choice: ModelChoice,
    *,
    alone: bool,
    compared: bool,
) -> "Question":
    """Read data, subjects, models and plans, in the order in which errors help most."""
    from costar_cli.api.estimates import with_losses
    from costar_cli.plans import parse_plans, read_plan_file
    from costar_cli.plans.doses import Sweep
    from costar_cli.questions import Places, Question, choose_subjects, join_places, subjects_of_plans

    document = b"" if about.sweep is not None else read_plan_file(about.plan or Path("-"))
    dataset = session.load_dataset(data, queries=False, truth=request.truth)
    sweep = Sweep.parse(about.sweep, dataset.schema.treatments) if about.sweep is not None else None
    document = sweep.document() if sweep else document
    if alone:
        places = [dataset.find_subject(who[0])]
    else:
        where = "--subjects" if isinstance(who, str) else "--subject" if who else "--plan"
        reporter = session.reporter if who else None  # `Question.read` warns of those of a table, too
        everyone = who or subjects_of_plans(document)
        places = choose_subjects(dataset, everyone, skip=about.skip_unknown, where=where, reporter=reporter)
    loaded = choice.load(session, {place.part.domain for place in places})
    horizon = min(model.horizon for model in loaded.values())
    of_plans = "standard input" if str(about.plan) == "-" else str(about.plan or "--sweep")
    question = Question.read(
        request, loaded, join_places(dataset, places), places,
        lambda origin, begin: parse_plans(
            document, dataset.schema, horizon=horizon, where=of_plans, origin=origin, begin=begin
        ),
        dataset=dataset, compared=alone or compared or bool(request.reference or request.sensitivity),
        where=Places(document=f"`origin` in {of_plans}"), alone=alone, skip=about.skip_unknown,
        reporter=session.reporter,
    )  # fmt: skip
    return with_losses(replace(question, document=document, sweep=sweep))


def _check_reported(request: WhatIfRequest, question: "Question", *, page: bool) -> None:
    """See that a page, or bounds, are asked for of few subjects, and bounds of plans alone, by models that have them.

    Raises:
        UsageError: of too many, of rules or shifts, or of a model that has no calibration.
    """
    from costar_cli.plans import TreatmentPlan
    from costar_cli.questions.sensitivity import require_sensitivity

    count = len(question.cohort)
    for label, model in question.models.items() if request.sensitivity else ():
        require_sensitivity(label, model)
    rules = [repr(plan.name) for plan in question.plans.plans if not isinstance(plan, TreatmentPlan)]
    if request.sensitivity and rules:
        problem = f"--sensitivity is about plans, and {', '.join(rules)} depend on the course"
        raise UsageError(problem, where="--sensitivity", fix="leave rules and shifts out, or write their steps")
    flag = "--report" if page and not request.average else "--sensitivity" if request.sensitivity else ""
    if flag and count > MOST_REPORTED:
        fix = "name fewer subjects, or write a table with --csv"
        raise UsageError(f"{count:,} subjects are too many: at most {MOST_REPORTED}", where=flag, fix=fix)


def _answer_one(session: Session, question: "Question", files: OutputFiles) -> None:
    """Show the answer about one subject, and write it."""
    from costar_cli.files import write_bytes
    from costar_cli.questions import write_csv, write_estimates, write_labels

    sweep, out = question.sweep, session.out
    report = question.report(reporter=session.reporter)
    show_answers(out, report, sweep)
    bounds = bounds_of([report]) if question.request.sensitivity else []
    if files.csv is not None:
        write_csv(files.csv, report, sweep)
        out.wrote("csv", files.csv)
    write_labels(report, files.labels, files.events)
    for flag, path in files.meds.items():
        out.wrote(flag[2:], path)
    if files.plot is not None:
        if sweep is None:
            from costar_cli.report.figures.whatif import plot_whatif

            plot_whatif(report, files.plot)
        else:
            from costar_cli.report.figures.effects import plot_sweep

            assert question.dataset is not None  # noqa: S101 - it was read
            plot_sweep(report, sweep, sweep.given(question.dataset), files.plot)
        out.wrote("plot", files.plot)
    if files.report is not None:
        from costar_cli.report.pages.whatif import whatif_page

        page = whatif_page(report, report.parents, bounds=bounds[0] if bounds else ())
        write_bytes(files.report, page.encode())
        out.wrote("report", files.report, kind="html")
    if files.out is not None:
        artifact = write_estimates(
            files.out, report, parents=report.parents, fingerprint=question.mark, overwrite=files.overwrite
        )
        out.wrote("estimates", files.out, artifact.digest)
    more: dict[str, object] = {} if sweep is None else {"sweep": sweep.to_json()}
    if question.request.sensitivity:
        more["sensitivity"] = show_sensitivity(session, [report], bounds, files.plot)
    out.done(report.to_json() | more)


def _answer_many(session: Session, question: "Question", files: OutputFiles, whole: Path | None) -> None:
    """Answer a question about many subjects: answers to a file, a summary to the terminal."""
    from costar_cli.api.cohorts import answer_many
    from costar_cli.files.parts import read_parts
    from costar_cli.questions import write_answers

    sweep = question.sweep
    parts = read_parts(files.csv, question.fingerprint) if files.merge and files.csv is not None else ()
    question.warn(session.reporter)
    notes = question.notes
    for note in notes:
        session.out.say(note)
    answered = answer_many(
        question,
        csv=files.csv,
        labels=files.labels,
        events=files.events,
        keep=files.out is not None,
        shard=files.shard,
        parts=parts,
        reporter=session.reporter,
    )
    for note in answered.notes:
        session.out.say(note)
    for warning in question.warnings_of_effects(answered.averages):
        session.reporter.say(warning)
    result = answered.summary() | {"notes": list(map(str, (*notes, *answered.notes)))}
    result |= {} if sweep is None else {"sweep": sweep.to_json()}
    if session.out.shows("days") or not question.request.average:
        show_cohort(session.out, result, most=None if sweep is None else len(sweep.values))
    if question.request.average:
        result["averages"] = _averaged(session, question, answered, files)
        session.out.done(result)
        return
    session.out.release(2)
    if files.report or question.request.sensitivity:
        result |= _by_subject(session, question, files.report)
    if files.out is not None:
        artifact = write_answers(files.out, question, answered.tables, overwrite=files.overwrite)
        session.out.wrote("out", files.out, artifact.digest, kind="answers")
    for flag, path in files.meds.items():
        session.out.wrote(flag[2:], path)
    if files.csv is None and files.out is None and not files.meds:
        session.out.note("this is a summary: `--csv answers.parquet` (or .csv, .jsonl) keeps every answer")
    if files.csv is not None:
        session.out.wrote("answers", files.csv)
        if reference := question.request.reference:
            session.out.note(f"the table has differences from plan `{reference}`, too: `quantity` is `difference`")
        if files.csv != whole:
            session.out.next(join(["costar", "merge", str(whole)]))
    session.out.done(result)


def _averaged(
    session: Session,
    question: "Question",
    answered: "CohortAnswers",
    files: OutputFiles,
) -> list[dict[str, Any]]:
    """Show averages, write them, also as a page with the warnings and notes of this run, and return their rows."""
    sweep, dataset, found = question.sweep, question.dataset, answered.averages
    assert dataset is not None  # noqa: S101 - it was read
    if sweep is None:
        rows = show_averages(session, found, csv=files.csv, plot=files.plot)
    else:
        rows = show_average_sweep(session, found, sweep=sweep, dataset=dataset, csv=files.csv, plot=files.plot)
    if files.report is not None:
        from costar_cli.files import write_bytes
        from costar_cli.report.pages.averages import averages_page

        page = averages_page(found, dataset.name, question.parents, session.out.diagnostics)
        write_bytes(files.report, page.encode())
        session.out.wrote("report", files.report, kind="html")
    return rows


def _by_subject(session: Session, question: "Question", page: Path | None) -> dict[str, Any]:
    """Write the page of all subjects, and show their bounds of sensitivity, where these are asked for."""
    count = len(question.cohort)
    with session.reporter.task("report", total=count, unit="subject") as task:
        reports: list[WhatIfReport] = []
        for moment in range(count):
            reports.append(question.report(moment))
            task.advance()
    bounds: Sequence[Sequence[Sensitivity]] = bounds_of(reports) if question.request.sensitivity else []
    if page is not None:
        from costar_cli.files import write_bytes
        from costar_cli.report.pages.whatif import subjects_page

        write_bytes(page, subjects_page(reports, bounds, session.out.diagnostics).encode())
        session.out.wrote("report", page, kind="html")
    shown = question.request.sensitivity
    return {"sensitivity": show_sensitivity(session, reports, bounds, None)} if shown else {}
