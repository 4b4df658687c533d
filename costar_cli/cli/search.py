"""`costar search`: the treatment plan that makes an outcome best, for one subject or for each of many."""

import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_letters, ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from costar_cli.api.outputs import Files, check_outputs, check_page
from costar_cli.cli import options
from costar_cli.cli.models import ModelChoice
from costar_cli.cli.options import FILES, expanded
from costar_cli.cli.session import RunFlags, Session
from costar_cli.cli.whatif import check_plot, files_read
from costar_cli.config.requests import SearchWords
from costar_cli.errors import UsageError
from costar_cli.reporting.text import columns_of

if TYPE_CHECKING:
    from costar_cli.files.tables import TableFile
    from costar_cli.questions.search import SearchReport
    from costar_cli.reporting.output import Output

SCREEN_PLANS: Final = 3
MOST_DAYS: Final = 8  # whose numbers stand above a calendar
NO_TREATMENT: Final = "."
LINE: Final = 80  # letters of a headline; a longer one has two lines
TOGETHER: Final = re.compile(r"(?<!=)\+")  # between treatments at one step; `price=+10 %` is a level
SUPPORT_WORDS: Final = {"green": "well supported", "amber": "? little support", "red": "! no support"}
BESIDE: Final = 90  # letters of a line beside a plan in words; where there are fewer, plans stand above the numbers


@dataclass(frozen=True, kw_only=True)
class Subjects:
    """Who is asked about, and from when."""

    subject: Annotated[
        str | None, typer.Option("--subject", "-s", help="Subject: its label, or its number if it has no label")
    ] = None
    subjects: options.SubjectsOpt = None
    skip_unknown: options.SkipUnknownFlag = False
    origin: Annotated[
        str,
        typer.Option(
            "--origin",
            metavar="last|N|-K|DATE",
            help="Last observed step, from 0, K steps before the last, or at a date",
        ),
    ] = "last"


@dataclass(frozen=True, kw_only=True)
class OutputFiles:
    """Which files shall hold the answer."""

    csv: Annotated[
        Path | None,
        typer.Option("--csv", help="Table of the best plans: .csv, .parquet or .jsonl", rich_help_panel=FILES),
    ] = None
    csv_safe: options.CsvSafeFlag = False
    plot: options.PlotOpt = None
    report: options.ReportOpt = None
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The best plan as a plan file: .json, of many subjects .csv", rich_help_panel=FILES
        ),
    ] = None
    overwrite: options.OverwriteFlag = False

    def check(self, about: Subjects, read: Files) -> None:
        """See, before any work, who is asked about, and that the answer can be written, to nothing that is `read`.

        Raises:
            UsageError: nobody, or one subject and many; a file of an unknown kind; two of the same name.
            MismatchError: a file is read, or exists and may not be replaced.
            StorageError: a folder does not exist, or a file is no regular one.
        """
        from costar_cli.files.tables import check_table_name

        if (about.subject is None) == (about.subjects is None):
            both = "both --subject and --subjects" if about.subject else "neither --subject nor --subjects"
            raise UsageError(f"there is {both}", where="`costar search`", fix="give one of them")
        if self.csv is not None:
            check_table_name(self.csv, flag="--csv")
        many = about.subjects is not None
        if self.plot is not None and many:
            raise UsageError("figures are of one subject", where="--plot", fix="leave it out, or give --subject")
        if self.report is not None and many:
            raise UsageError("the page is of one subject", where="--report", fix="leave it out, or give --subject")
        check_plot(self.plot)
        kind, whose = (".csv", "many subjects") if many else (".json", "one subject")
        if self.out is not None and self.out.suffix.lower() != kind:
            fix = f"end the name in {kind}"
            raise UsageError(f"plans of {whose} are written as {kind}, not `{self.out.name}`", where="--out", fix=fix)
        files = {"--csv": self.csv, "--plot": self.plot, "--report": self.report, "--out": self.out}
        check_outputs(files.items(), read=read, overwrite=self.overwrite)
        check_page(self.report, flag="--report")


@expanded
def search(
    ctx: typer.Context,
    about: Subjects,
    words: SearchWords,
    files: OutputFiles,
    run: RunFlags,
    data: options.DataOpt = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", "-m", help=f"Model to ask ({options.DEFAULT_MODEL})", rich_help_panel=FILES),
    ] = None,
) -> None:
    """Find the treatment plan that makes an outcome best, with its uncertainty."""
    session = run.open(ctx)
    session.out.hold()
    data, models = data or session.workspace.data, session.workspace.named([model] if model else [])
    choice = ModelChoice.of(session.workspace, models).fitting(session.workspace, data)
    plans = [("plan", words.only_from), ("plan", words.reference)]
    subjects = [("file of subjects", Path(about.subjects))] if about.subjects else []
    files.check(about, [*files_read(session, data, models), *plans, *subjects])
    session.read("dataset", data)
    from costar_cli.api.search import cohort_of, request_of, search_cohort
    from costar_cli.data.compatible import require_compatible
    from costar_cli.files.tables import safe_cells
    from costar_cli.questions import choose_subjects

    dataset = session.load_dataset(data, queries=False, truth=False)
    if about.subject is not None:
        places = [dataset.find_subject(about.subject)]
    else:
        skip, everyone = about.skip_unknown, about.subjects or "all"
        places = choose_subjects(dataset, everyone, skip=skip, reporter=session.reporter)
    cohort = cohort_of(
        dataset, places, about.origin, where="--origin", skip=about.skip_unknown, reporter=session.reporter
    )
    [(label, fitted)] = choice.load(session, {place.part.domain for place in cohort.places}).items()
    require_compatible(dataset, fitted.schema, model=f"model `{label}`")
    request = request_of(fitted, words, flags=True)
    with safe_cells(files.csv_safe):
        reports = search_cohort(label, fitted, dataset, cohort, request, session.reporter)
        report = _written(session, files, reports, many=about.subject is None)
    for note in report.diagnostics:
        if note.severity == "note":
            session.out.say(note)
    if about.subject is not None:
        _show(session, report)
    else:
        _show_many(session, report)
        session.out.release(2)
        session.out.more()
    session.out.done(report.to_json())


def _written(session: Session, files: OutputFiles, reports: "Iterator[SearchReport]", *, many: bool) -> "SearchReport":
    """Write the files while subjects are searched, and return the whole report."""
    from costar_cli.files import write_bytes
    from costar_cli.files.tables import table_file
    from costar_cli.questions.search import with_notes

    done: list[SearchReport] = []
    with ExitStack() as tables:

        def opened(path: Path | None) -> "TableFile | None":
            return None if path is None else tables.enter_context(table_file(path))

        ranked, plans = opened(files.csv), opened(files.out if many else None)
        for report in reports:
            done.append(report)
            if ranked is not None:
                ranked.write(report.columns(report.answers))
            if plans is not None and any(answer.best.found for answer in report.answers):
                plans.write(report.plan_columns(report.answers))
    whole = with_notes(replace(done[0], answers=[answer for report in done for answer in report.answers]))
    if files.out is not None and not many:
        write_bytes(files.out, whole.plan_document())
    if files.plot is not None:
        from costar_cli.report.figures.search import plot_search

        plot_search(whole, files.plot)
    for role, path in (("csv", files.csv), ("plot", files.plot), ("plans", files.out)):
        if path is not None:
            session.out.wrote(role, path)
    if files.report is not None:
        from costar_cli.api.pages import html_of

        write_bytes(files.report, html_of(whole).encode())
        session.out.wrote("report", files.report, kind="html")
    return whole


def _show(session: Session, report: "SearchReport") -> None:
    """Print the best plans of one subject as calendars; before them, of `--show days`, in words, and how sure it is."""
    from costar_cli.data.schema import step_word
    from costar_cli.inference import RANGE
    from costar_cli.questions.tables import decimals_of, limits_text, number_text
    from costar_cli.report.pages.search import how_sure, rank_table

    out, answer, question = session.out, report.answers[0], report.question
    best, objective, unit = answer.best, report.question.objective, step_word(report.schema.step)
    if out.shows("days"):
        headers, table = rank_table(report)
        title, keys = f"best plans, and their difference from `{report.reference}`", 2
        if (columns_of(sys.stdout) or math.inf) < max(len(str(row[1])) for row in table) + BESIDE:
            out.text(*(f"plan {rank}: {plan}" for rank, plan, *_ in table))
            headers = ["plan", *(header.replace(RANGE, "range") for header in headers[2:])]
            table, keys = [[rank, *numbers] for rank, _, *numbers in table], 1
        out.table(headers, table, title=title, keys=keys)
        out.text(*how_sure(report))
    about = f"{objective.text}" + f" in {objective.unit}" * bool(objective.unit)
    who = f"Subject {answer.name} from {unit} {answer.when} by {report.label}:"
    lines = [f"{who} {about}"] if len(who) + len(about) < LINE else [who, f"   {about}"]
    if not best.found:
        out.text(*lines, *how_sure(report))
    else:
        ranked = report.rows(answer, SCREEN_PLANS)
        decimals = decimals_of((row["objective"] for row in ranked), digits=3)
        first, last = ranked[0], ranked[-1]
        behind = f" ({limits})" if (limits := limits_text(first["lower"], first["upper"], decimals)) else ""
        lead = "Best" if question.unsupported else "Best supported"
        amount = f"{number_text(first['objective'], decimals)} {objective.unit}".rstrip()
        versus = f"{report.reference} {number_text(last['objective'], decimals)}"
        out.text(*lines, f"{lead} of {best.considered:,} plans: {amount}{behind}, {versus}")
        _show_calendars(out, report, ranked, decimals)
        left = best.left_out
        if left and not question.unsupported:
            look, lack = ("s look", "lack") if left > 1 else (" looks", "lacks")
            out.text(f"{left:,} plan{look} better but {lack} support (--unsupported)")
        if others := best.alike - 1:
            out.text(f"{others:,} other{'s do' if others > 1 else ' does'} not differ clearly from the best")
    out.release(2)
    out.more("days", files="picture --plot; page --report")


def _show_calendars(out: "Output", report: "SearchReport", ranked: Sequence[Mapping[str, Any]], decimals: int) -> None:
    """Print a row per plan with a letter per step, and below them what the letters stand for."""
    from costar_cli.data.findings import percent
    from costar_cli.data.schema import step_word
    from costar_cli.inference import RANGE
    from costar_cli.questions.tables import limits_text, number_text

    answer = report.answers[0]
    places = [*range(len(ranked) - 1), len(answer.best.values_MHA) - 1]
    describe, idle = report.schema.treatments.describe, report.schema.treatments.idle
    nothing = set(TOGETHER.split(describe(idle)))  # `insulin=none` is a dot, as no treatment is
    plans = [
        ["+".join(name for name in TOGETHER.split(describe(row)) if name not in nothing) or "none" for row in values_HA]
        for values_HA in (answer.best.values_MHA[i] for i in places)
    ]
    letters = letters_of(what for plan in plans for what in plan)
    days = [str(answer.origin + h) for h in range(len(plans[0]))]
    wide = max(map(len, days)) if len(days) <= MOST_DAYS else 1
    days = [f"{day:>{wide}}" for day in days] if len(days) <= MOST_DAYS else days
    unit = step_word(report.schema.step)
    days_head = f"{unit} {' '.join(days)}" if wide > 1 or len(days) <= MOST_DAYS else f"from {unit} {days[0]}"
    kind = report.objective_kind if report.objective_kind == RANGE else f"{100 * report.question.level:g} % interval"
    bounded, survived = any(row["lower"] is not None for row in ranked), any("survival" in row for row in ranked)
    headers = ["", days_head, "objective", *[kind] * bounded, *["survival"] * survived, "support"]
    lines: list[list[object]] = []
    for row, plan in zip(ranked, plans, strict=True):
        gap = " " * (len(days_head) - len(" ".join(days))) if len(days) <= MOST_DAYS else ""
        course = (" " if len(days) <= MOST_DAYS else "").join(f"{letters[what]:>{wide}}" for what in plan)
        line: list[object] = [row["rank"] or report.reference, gap + course]
        line.append(number_text(row["objective"], decimals))
        line += [limits_text(row["lower"], row["upper"], decimals)] * bounded
        line += [percent(row.get("survival"))] * survived
        lines.append([*line, SUPPORT_WORDS.get(str(row["support"])) if row["rank"] else None])
    out.table(headers, lines, keys=2)
    if legend := {what: x for what, x in letters.items() if x != NO_TREATMENT}:
        names = {what.partition("=")[0] for what in legend}
        if len(legend) > 1 and len(names) == 1 and all("=" in what for what in legend):  # levels of one treatment
            levels = [f"{x} {what.partition('=')[2]}" for what, x in legend.items()]
            out.text(f"{names.pop()}: {', '.join(levels)}")
        else:
            together = {1: "", 2: "both "}  # of treatments at one step
            parts = [(x, TOGETHER.split(what)) for what, x in legend.items()]
            out.text(", ".join(f"{x} {together.get(len(of), 'all of ')}{' and '.join(of)}" for x, of in parts))


def letters_of(given: Iterable[str]) -> dict[str, str]:
    """Return a letter for each treatment, a dot for none: the first of its own that is free, `B` for both of two.

    Treatments at one step do not have the first letter of one of them, which would be read as that one alone.
    """
    letters: dict[str, str] = {}
    for what in sorted(
        dict.fromkeys(given), key=lambda what: bool(TOGETHER.search(what))
    ):  # single treatments choose first
        if what == "none":
            letters[what] = NO_TREATMENT
            continue
        names = TOGETHER.split(what)
        own = what.upper() if len(names) == 1 and what[:1].isalpha() and "=" not in what else ""
        taken = {name[:1].upper() for name in names} if len(names) > 1 else set[str]()
        taken.update(letters.values())
        wanted = [*own, *("B" if len(names) == 2 else ""), *ascii_uppercase, *ascii_lowercase]
        letters[what] = next((x for x in wanted if x in ascii_letters and x not in taken), "#")
    return letters


def _show_many(session: Session, report: "SearchReport") -> None:
    """Print what the best plans of many subjects come to, and which are the most frequent."""
    import numpy as np

    from costar_cli.plans.plan import in_words

    found = [answer for answer in report.answers if answer.best.found]
    out, objective = session.out, report.question.objective
    unit = f" {objective.unit}" if objective.unit else ""
    out.text(f"{len(report.answers):,} subjects: {objective.text}, by {report.label}")
    reasons = Counter(answer.best.why for answer in report.answers if not answer.best.found)
    for why, count in reasons.items():
        out.text(f"{count:,} subject{'s have' if count > 1 else ' has'} no plan: {why}")
    if not found:
        return
    objective_N, difference_N = (
        np.array([getattr(answer.best, name)[0] for answer in found]) for name in ("estimate_M", "difference_M")
    )
    out.text(
        f"best plan: mean objective {objective_N.mean():.4g}{unit}, "
        f"{difference_N.mean():+.4g} against `{report.reference}`"
    )
    counts: dict[tuple[tuple[int, ...], ...], int] = {}
    for answer in found:
        key = tuple(map(tuple, answer.best.values_MHA[0].tolist()))
        counts[key] = counts.get(key, 0) + 1
    most = sorted(counts.items(), key=lambda item: -item[1])[:5]
    rows = [
        [count, f"{100 * count / len(found):.0f} %", in_words(report.schema, np.array(plan), 1)] for plan, count in most
    ]
    out.table(["subjects", "share", "plan (steps from the forecast start)"], rows, title="most frequent best plans")
