"""The body of `costar search`: an objective in, the best plans out."""

import math
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from costar_cli.api.outputs import Files, check_outputs, check_page
from costar_cli.cli.defaults import ModelChoice
from costar_cli.cli.model import load_models, name_models
from costar_cli.cli.session import Session
from costar_cli.cli.whatif import check_plot, files_read
from costar_cli.config.choices import RankingName
from costar_cli.errors import UsageError
from costar_cli.reporting.text import columns_of

if TYPE_CHECKING:
    from costar_cli.data import Dataset
    from costar_cli.files.tables import TableFile
    from costar_cli.methods.base import FittedModel
    from costar_cli.questions import Cohort
    from costar_cli.questions.search import SearchReport, SearchRequest

__all__ = ["Search", "run_search"]

BESIDE = 90  # letters of a line beside a plan in words


@dataclass(frozen=True)
class Search:
    """What is searched, and which files shall hold the answer."""

    subject: str | None
    subjects: str | None
    skip_unknown: bool
    origin: str
    minimise: tuple[str, ...]
    maximise: tuple[str, ...]
    cost: tuple[str, ...]
    at_most: tuple[str, ...]
    at_least: tuple[str, ...]
    not_consecutive: tuple[str, ...]
    not_with: tuple[str, ...]
    levels: tuple[str, ...]
    only_from: Path | None
    steps: int | None
    beam: int | None
    reference: Path | None
    by: RankingName
    level: float
    unsupported: bool
    csv: Path | None
    plot: Path | None
    report: Path | None
    out: Path | None
    overwrite: bool

    def check(self, read: Files = ()) -> None:
        """See, before any work, who is asked about, and that the answer can be written, to nothing that is `read`.

        Raises:
            UsageError: nobody, or one subject and many; a file of an unknown kind; two of the same name.
            MismatchError: a file is read, or exists and may not be replaced.
            StorageError: a folder does not exist, or a file is no regular one.
        """
        from costar_cli.files.tables import check_table_name

        if (self.subject is None) == (self.subjects is None):
            both = "both --subject and --subjects" if self.subject else "neither --subject nor --subjects"
            raise UsageError(f"there is {both}", where="`costar search`", fix="give one of them")
        if self.csv is not None:
            check_table_name(self.csv, flag="--csv")
        if self.plot is not None and self.subjects is not None:
            raise UsageError("figures are of one subject", where="--plot", fix="leave it out, or give --subject")
        if self.report is not None and self.subjects is not None:
            raise UsageError("the page is of one subject", where="--report", fix="leave it out, or give --subject")
        check_plot(self.plot)
        kind = ".json" if self.subjects is None else ".csv"
        if self.out is not None and self.out.suffix.lower() != kind:
            whose = "one subject" if self.subjects is None else "many subjects"
            fix = f"end the name in {kind}"
            raise UsageError(f"plans of {whose} are written as {kind}, not `{self.out.name}`", where="--out", fix=fix)
        files = {"--csv": self.csv, "--plot": self.plot, "--report": self.report, "--out": self.out}
        plans = [("plan", self.only_from), ("plan", self.reference)]
        subjects = [("file of subjects", Path(self.subjects))] if self.subjects else []
        check_outputs(files.items(), read=[*read, *plans, *subjects], overwrite=self.overwrite)
        check_page(self.report, flag="--report")

    def request(self, model: "FittedModel") -> "SearchRequest":
        """Return what is asked of a model, with the plans of the files.

        Raises:
            UsageError: plans that do not fit.
        """
        from costar_cli.api.search import fixed_plans
        from costar_cli.questions.search import SearchRequest

        only, reference = None, None
        if self.only_from is not None:
            only = fixed_plans(self.only_from, model, where="--only-from")
        if self.reference is not None:
            [reference] = fixed_plans(self.reference, model, where="--reference", single=True)
        return SearchRequest(
            self.minimise, self.maximise, self.cost, self.at_most, self.at_least, self.not_consecutive, self.not_with,
            only, self.steps, reference, self.by, self.level, self.unsupported, self.beam, self.levels,
        )  # fmt: skip


def run_search(session: Session, asked: Search, data: Path, model: Path | None) -> None:
    """Search, and show and write the answer."""
    choice = ModelChoice.of(session.workspace, [model] if model else []).fitting(session.workspace, data)
    asked.check(files_read(session, data, [model] if model else []))
    session.read("dataset", data)
    from costar_cli.api.search import search_cohort
    from costar_cli.data.compatible import require_compatible

    dataset = session.load_dataset(data, queries=False, truth=False)
    cohort = _cohort(session, asked, dataset)
    paths = choice.about(session, {place.part.domain for place in cohort.places})
    named = name_models(paths, session.workspace.root)
    headers = {name: session.read("model", path, role=name) for name, path in named.items()}
    [(label, fitted)] = load_models(session, headers, named).items()
    require_compatible(dataset, fitted.schema, model=f"model `{label}`")
    reports = search_cohort(label, fitted, dataset, cohort, asked.request(fitted), session.reporter)
    whole = _written(session, asked, reports)
    if asked.report is not None:
        from costar_cli.api.pages import html_of
        from costar_cli.files import write_bytes

        write_bytes(asked.report, html_of(whole).encode())
        session.out.wrote("report", asked.report, kind="html")
    if asked.subject is not None:
        _show(session, whole)
    else:
        _show_many(session, whole)
    for note in whole.notes:
        session.out.note(note)
    session.out.done(whole.to_json())


def _cohort(session: Session, asked: Search, dataset: "Dataset") -> "Cohort":
    from costar_cli.plans import parse_origin
    from costar_cli.questions import Cohort, choose_subjects, join_places, names_of

    origin = parse_origin(asked.origin, single=True)
    if asked.subject is not None:
        places = [dataset.find_subject(asked.subject)]
    else:
        places = choose_subjects(dataset, asked.subjects or "all", skip=asked.skip_unknown, reporter=session.reporter)
    panel, skip = join_places(dataset, places), asked.skip_unknown
    return Cohort.of(
        panel,
        names_of(panel),
        places,
        origin=origin,
        skip=skip,
        terminal=dataset.schema.terminal,
        reporter=session.reporter,
    )


def _written(session: Session, asked: Search, reports: "Iterator[SearchReport]") -> "SearchReport":
    """Write the files while subjects are searched, and return the whole report."""
    from costar_cli.files import write_bytes
    from costar_cli.files.tables import table_file
    from costar_cli.questions.search import notes_on

    done: list[SearchReport] = []
    with ExitStack() as files:

        def opened(path: Path | None) -> "TableFile | None":
            return None if path is None else files.enter_context(table_file(path))

        ranked, plans = opened(asked.csv), opened(asked.out if asked.subject is None else None)
        for report in reports:
            done.append(report)
            if ranked is not None:
                ranked.write(report.columns(report.answers))
            if plans is not None and any(answer.best.found for answer in report.answers):
                plans.write(report.plan_columns(report.answers))
    whole = replace(done[0], answers=[answer for report in done for answer in report.answers])
    whole = replace(whole, notes=tuple(notes_on(whole)))
    if asked.out is not None and asked.subject is not None:
        write_bytes(asked.out, whole.plan_document())
    if asked.plot is not None:
        from costar_cli.report.figures.search import plot_search

        plot_search(whole, asked.plot)
    for role, path in (("csv", asked.csv), ("plot", asked.plot), ("plans", asked.out)):
        if path is not None:
            session.out.wrote(role, path)
    return whole


def _show(session: Session, report: "SearchReport") -> None:
    """Print the best plans of one subject, and how sure it is which is best."""
    from costar_cli.data.schema import step_word
    from costar_cli.report.pages.search import how_sure, rank_table

    out, answer, objective = session.out, report.answers[0], report.question.objective
    unit = f" ({objective.unit})" if objective.unit else ""
    where = f"subject {answer.name} ({answer.part}), known up to {step_word(report.schema.step)} {answer.when}"
    out.text(f"{where} of {answer.length - 1}", f"{objective.text}{unit}, by {report.label}")
    headers, table = rank_table(report)
    title = f"best plans, and their difference from `{report.reference}`"
    narrow = (columns_of(sys.stdout) or math.inf) < max(len(str(row[1])) for row in table) + BESIDE
    if narrow:  # plans last, so that numbers stay beside each other
        turned = [[*row[:1], *row[2:], row[1]] for row in [list[object](headers), *table]]
        out.table([str(name) for name in turned[0]], turned[1:], title=title)
    else:
        out.table(headers, table, title=title, keys=2)
    for line in how_sure(report):
        out.text(line)


def _show_many(session: Session, report: "SearchReport") -> None:
    """Print what the best plans of many subjects come to, and which are the most frequent."""
    import numpy as np

    from costar_cli.plans.words import in_words

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
    out.table(["subjects", "share", "plan (steps from the origin)"], rows, title="most frequent best plans")
