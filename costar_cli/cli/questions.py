"""The body of `costar whatif`: questions about one subject or many, their answers shown and written."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any, Final, Literal

from costar_cli.api.outputs import Files, check_artifact_name, check_outputs, check_page
from costar_cli.cli.answers import show_answers, show_cohort, show_sweep
from costar_cli.cli.averages import show_average_sweep, show_averages
from costar_cli.cli.defaults import ModelChoice
from costar_cli.cli.model import load_models, name_models
from costar_cli.cli.sensitivity import bounds_of, sensitivity_plot, show_sensitivity
from costar_cli.cli.session import Session
from costar_cli.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from costar_cli.data import Dataset
    from costar_cli.files.shards import Shard
    from costar_cli.methods.base import FittedModel
    from costar_cli.plans import PlanRequest
    from costar_cli.plans.sweep import Sweep
    from costar_cli.questions import AverageEffects, Averager, Cohort, ModelAnswers, Tally, WhatIfReport
    from costar_cli.questions.rows import Columns
    from costar_cli.questions.sensitivity import Sensitivity
    from costar_cli.reporting import Reporter

__all__ = ["Question", "check_plot", "files_read", "run_whatif"]

PLOT_FORMATS: Final = (".png", ".svg", ".pdf")
MOST_REPORTED: Final = 50  # subjects of one page, or with bounds of sensitivity
RECORDED: Final = ("origin", "reference", "levels", "truth", "unsupported", "abstain", "widen")  # in a fingerprint


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked, and which files shall hold the answer.

    `who` is what `--subjects` says, or the names of subjects; none: those of the plans.
    """

    who: str | tuple[str, ...]
    plan: Path | None
    origin: str | None
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
    skip_unknown: bool = False
    average: bool = False
    by: str | None = None
    shard: "Shard | None" = None

    @property
    def alone(self) -> bool:
        """Return whether it is about one subject, from one origin."""
        one = not isinstance(self.who, str) and len(self.who) == 1
        return one and self.origin != "all" and not (self.average or self.by)

    @property
    def place(self) -> str:
        """Return what messages call the place of the plans."""
        return "standard input" if str(self.plan) == "-" else str(self.plan or "--sweep")

    @property
    def part(self) -> "Shard":
        """Return the part that is answered: the whole, unless a shard is asked for."""
        from costar_cli.files.shards import WHOLE

        return self.shard or WHOLE

    def of_shard(self) -> "Question":
        """Return the question with the file of its shard, where it is a shard's.

        Raises:
            UsageError: there is no table that could be merged.
        """
        if self.shard is None:
            return self
        if self.alone:
            raise UsageError("a question about one subject has no parts", where="--shard", fix="leave it out")
        if self.average or self.csv is None or self.csv.suffix.lower() != ".parquet":
            fix = "name the whole table with --csv FILE.parquet, without --average"
            raise UsageError("parts are tables of answers", where="--shard", fix=fix)
        return replace(self, csv=self.shard.beside(self.csv))

    def check(self, read: Files = ()) -> None:
        """See, before any work, that the answer can be written, and to nothing that is `read`.

        Raises:
            UsageError: a file of an unknown kind, two files of the same name, options that do not go together.
            MismatchError: a file is read, or exists and may not be replaced.
            StorageError: a folder does not exist, or a file is no regular one.
        """
        from costar_cli.files.tables import check_table_name

        check_plot(self.plot)
        beside = sensitivity_plot(self.plot) if self.plot is not None and self.sensitivity else None
        read = [*read, *([("plan", self.plan)] if self.plan else [])]
        read += [("file of subjects", Path(self.who))] if isinstance(self.who, str) else []
        files = (
            ("--csv", self.csv),
            ("--plot", self.plot),
            ("--plot", beside),
            ("--report", self.report),
            ("--out", self.out),
        )
        check_outputs(files, read=read, overwrite=self.overwrite)
        check_page(self.report, flag="--report")
        check_artifact_name(self.out)
        if self.csv is not None:
            check_table_name(self.csv, flag="--csv")
        if not self.alone:
            self._check_cohort()

    def _check_cohort(self) -> None:
        """See that options go with several subjects.

        Raises:
            UsageError: one does not.
        """
        if self.out is not None:
            problem, fix = (
                "--out is for one subject",
                "name a table with --csv, or ask about one subject with --subject",
            )
            raise UsageError(problem, where="--out", fix=fix)
        averaged = {} if self.average else {"--plot": self.plot, "--by": self.by}
        averaged |= {} if self.average or self.csv else {"--reference": self.reference}
        if given := [flag for flag, value in averaged.items() if value]:
            fix = "add --average" + " or --csv" * (given[0] == "--reference")
            raise UsageError(f"{given[0]} of a cohort is for averages", where=given[0], fix=fix)
        single = {"--sensitivity": self.sensitivity, "--report": self.report, "--widen": self.widen}
        if self.average and (given := [flag for flag, value in single.items() if value]):
            problem = f"{given[0]} is about subjects, not averages"
            raise UsageError(problem, where=given[0], fix=f"leave out {given[0]} or --average")


def check_plot(path: Path | None) -> None:
    """See that a figure can be drawn.

    Raises:
        UsageError: it is of an unknown kind.
    """
    if path is not None and path.suffix.lower() not in PLOT_FORMATS:
        raise UsageError(f"cannot draw `{path.name}`", where="--plot", fix=f"end the name in {', '.join(PLOT_FORMATS)}")


def files_read(session: Session, data: Path, models: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return what a question about a data set and its models reads; without models, each that it may read."""
    asked = models or session.workspace.models()
    return [*session.read_by(), ("data set", data), *(("model", path) for path in asked)]


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A question with all that it is about: data, models, subjects at their origins, plans."""

    question: Question
    dataset: "Dataset"
    models: "Mapping[str, FittedModel]"
    cohort: "Cohort"
    request: "PlanRequest"
    document: bytes
    sweep: "Sweep | None"

    def report(self, moment: int, reporter: "Reporter | None" = None) -> "WhatIfReport":
        """Return the report of one subject, of whose warnings the reporter hears."""
        from costar_cli.questions.estimate import report_on

        asked, cohort = self.question, self.cohort.take(slice(moment, moment + 1))
        request = self.request.of(str(cohort.names[0]))
        report = report_on(
            self.dataset, self.models, cohort, request, levels=asked.levels, truth=asked.truth,
            reference=asked.reference, unsupported=asked.unsupported, abstain=asked.abstain, widen=asked.widen,
            reporter=reporter,
        )  # fmt: skip
        return replace(report, warnings=(*report.warnings, *self.losses))

    @cached_property
    def losses(self) -> list[str]:
        """Return a warning for each model that does badly on a domain that is asked about."""
        from costar_cli.api.estimates import losses_on

        return losses_on(self.dataset, self.models, self.cohort.places)


def run_whatif(session: Session, question: Question, data: Path, models: Sequence[Path]) -> None:
    """Answer a question, show the answer, and write it where files are named."""
    whole, question = question.csv, question.of_shard()
    choice = ModelChoice.of(session.workspace, models).fitting(session.workspace, data)
    question.check(files_read(session, data, models))
    session.read("dataset", data)
    asked = _read(session, question, data, choice)
    if question.alone:
        _answer_one(session, asked)
    else:
        _answer_many(session, asked, whole)


def _read(session: Session, question: Question, data: Path, choice: ModelChoice) -> _Prepared:
    """Read data, subjects, models and plans, in the order in which errors help most."""
    from costar_cli.plans import parse_origin, parse_plans, read_plan_file
    from costar_cli.plans.sweep import Sweep
    from costar_cli.questions import Places, choose_subjects, join_places, read_request, subjects_of_plans

    document = b"" if question.sweep is not None else read_plan_file(question.plan or Path("-"))
    dataset = session.load_dataset(data, queries=False, truth=question.truth)
    sweep = Sweep.parse(question.sweep, dataset.schema.treatments) if question.sweep is not None else None
    document = sweep.document() if sweep else document
    skip, alone = question.skip_unknown, question.alone
    if alone:
        places = [dataset.find_subject(question.who[0])]
    else:
        who = question.who or subjects_of_plans(document)
        where = "--subjects" if isinstance(who, str) else "--subject" if question.who else "--plan"
        reporter = session.reporter if question.who else None  # `read_request` warns of those of a table, too
        places = choose_subjects(dataset, who, skip=skip, where=where, reporter=reporter)
    paths = choice.about(session, {place.part.domain for place in places})
    named = name_models(paths, session.workspace.root)
    headers = {name: session.read("model", path, role=name) for name, path in named.items()}
    loaded = load_models(session, headers, named)
    horizon = min(model.horizon for model in loaded.values())
    origin = None if question.origin is None else parse_origin(question.origin)
    cohort, request = read_request(
        loaded,
        join_places(dataset, places),
        places,
        lambda begin: parse_plans(
            document, dataset.schema, horizon=horizon, where=question.place, origin=origin, begin=begin
        ),
        dataset=dataset,
        origin=origin,
        levels=question.levels,
        reference=question.reference,
        compared=alone or any((question.reference, question.report, question.sensitivity)),
        where=Places(document=f"`origin` in {question.place}"),
        alone=alone,
        skip=skip,
        reporter=session.reporter,
    )
    _check_reported(question, request, len(cohort))
    return _Prepared(question, dataset, loaded, cohort, request, document, sweep)


def _answer_one(session: Session, asked: _Prepared) -> None:
    """Answer a question about one subject."""
    question, sweep = asked.question, asked.sweep
    report = asked.report(0, session.reporter)
    for warning in asked.losses:
        session.out.warn(warning)
    if sweep:
        show_sweep(session.out, report, sweep)
    else:
        show_answers(session.out, report)
    bounds = bounds_of([report]) if question.sensitivity else []
    _write(session, asked, report, bounds)
    more: dict[str, object] = {} if sweep is None else {"sweep": sweep.to_json()}
    if question.sensitivity:
        more["sensitivity"] = show_sensitivity(session, [report], bounds, question.plot)
    session.out.done(report.to_json() | more)


def _write(
    session: Session, asked: _Prepared, report: "WhatIfReport", bounds: "Sequence[Sequence[Sensitivity]]"
) -> None:
    from costar_cli.files import fingerprint, write_bytes
    from costar_cli.questions import write_csv, write_estimates

    question = asked.question
    if question.csv is not None:
        write_csv(question.csv, report)
        session.out.wrote("csv", question.csv)
    if question.plot is not None:
        _drawing(asked, report)(question.plot)
        session.out.wrote("plot", question.plot)
    if question.report is not None:
        from costar_cli.report.pages.whatif import whatif_page

        page = whatif_page(report, report.parents, bounds=bounds[0] if bounds else ())
        write_bytes(question.report, page.encode())
        session.out.wrote("report", question.report, kind="html")
    if question.out is not None:
        config = {name: getattr(question, name) for name in RECORDED}
        config |= {"subject": question.who[0], "origin": report.history.origin if question.origin else None}
        mark = fingerprint("estimates", parents=report.parents, config={**config, "plan": asked.document.decode()})
        artifact = write_estimates(
            question.out, report, parents=report.parents, fingerprint=mark, overwrite=question.overwrite
        )
        session.out.wrote("estimates", question.out, artifact.digest)


def _drawing(asked: _Prepared, report: "WhatIfReport") -> Callable[[Path], object]:
    if asked.sweep is None:
        from costar_cli.report.figures.whatif import plot_whatif

        return partial(plot_whatif, report)
    from costar_cli.report.figures.sweep import plot_sweep

    return partial(plot_sweep, report, asked.sweep, asked.sweep.given(asked.dataset))


def _answer_many(session: Session, asked: _Prepared, whole: Path | None) -> None:
    """Answer a question about many subjects: answers to a file, a summary to the terminal."""
    from costar_cli.inference import COHORT_DRAWS, calibration_of
    from costar_cli.plans import TreatmentPlan
    from costar_cli.questions import (
        possible_plans,
        refuse_unseen,
        unseen_in_plans,
        warnings_about,
    )
    from costar_cli.questions.notes import notes_on_transforms, on_widened, rule_notes

    question, models, request, sweep = asked.question, asked.models, asked.request, asked.sweep
    if not question.unsupported:
        refuse_unseen(unseen_in_plans(models, possible_plans(request)))
    warned = warnings_about(models, asked.cohort, request, dataset=asked.dataset, shard=question.part)
    for warning in (*warned, *asked.losses):
        session.out.warn(warning)
    notes = [
        *(f"rule `{plan.name}`: {plan.text}" for plan in request.plans if not isinstance(plan, TreatmentPlan)),
        *rule_notes(models, request.plans, asked.dataset, truth=question.truth, n=COHORT_DRAWS),
        *notes_on_transforms(models),
    ]
    for note in notes:
        session.out.note(note)
    averages = _averagers(asked)
    tallies = _gather(session, asked, averages)
    for label, tally in tallies.items():
        if tally.effective and (calibration := calibration_of(models[label])):
            notes.append(on_widened(label, tally.effective, calibration, asked.dataset.schema.step))
            session.out.note(notes[-1])
    found = [averages[label].finish(label, models[label], question.levels) for label in averages]
    result = _summary(asked, tallies, found) | {"notes": notes}
    result |= {} if sweep is None else {"sweep": sweep.to_json()}
    show_cohort(session.out, result, most=None if sweep is None else len(sweep.values))
    if question.average:
        files = {"csv": question.csv, "plot": question.plot}
        result["averages"] = (
            show_averages(session, found, **files)
            if sweep is None
            else show_average_sweep(session, found, sweep=sweep, dataset=asked.dataset, **files)
        )
    else:
        result |= _by_subject(session, asked)
        _tell_where(session, question, whole)
    session.out.done(result)


def _check_reported(question: Question, request: "PlanRequest", count: int) -> None:
    """See that a page, or bounds, are asked for of few subjects, and bounds of plans alone.

    Raises:
        UsageError: of too many, or of rules or shifts.
    """
    from costar_cli.plans import TreatmentPlan

    rules = [repr(plan.name) for plan in request.plans if not isinstance(plan, TreatmentPlan)]
    if question.sensitivity and rules:
        problem = f"--sensitivity is about plans, and {', '.join(rules)} depend on the course"
        raise UsageError(problem, where="--sensitivity", fix="leave rules and shifts out, or write their steps")
    flag = "--report" if question.report else "--sensitivity" if question.sensitivity else ""
    if flag and count > MOST_REPORTED:
        fix = "name fewer subjects, or write a table with --csv"
        raise UsageError(f"{count:,} subjects are too many: at most {MOST_REPORTED}", where=flag, fix=fix)


def _by_subject(session: Session, asked: _Prepared) -> dict[str, Any]:
    """Write the page of all subjects, and show their bounds of sensitivity, where these are asked for."""
    question = asked.question
    if not (question.report or question.sensitivity):
        return {}
    count = len(asked.cohort)
    with session.reporter.task("report", total=count, unit="subject") as task:
        reports = []
        for moment in range(count):
            reports.append(asked.report(moment))
            task.advance()
    bounds = bounds_of(reports) if question.sensitivity else []
    if question.report is not None:
        from costar_cli.files import write_bytes
        from costar_cli.report.pages.whatif import subjects_page

        write_bytes(question.report, subjects_page(reports, bounds).encode())
        session.out.wrote("report", question.report, kind="html")
    return {"sensitivity": show_sensitivity(session, reports, bounds, None)} if question.sensitivity else {}


def _tell_where(session: Session, question: Question, whole: Path | None) -> None:
    """Say where the answers are, and of a shard how they become those of the `whole`."""
    if question.csv is None:
        session.out.note("this is a summary: `--csv answers.parquet` (or .csv, .jsonl) keeps every answer")
        return
    session.out.wrote("answers", question.csv)
    if question.reference is not None:
        session.out.note(f"the table has differences from plan `{question.reference}`, too: `quantity` is `difference`")
    if question.shard is not None:
        session.out.next(join(["costar", "merge", str(whole)]))


def _averagers(asked: _Prepared) -> "dict[str, Averager]":
    """Return what gathers each model's answers for averages; nothing where none are asked for."""
    from costar_cli.questions import Averager, groups_of

    question, cohort = asked.question, asked.cohort
    if not question.average:
        return {}
    groups, in_GM = groups_of(cohort, asked.dataset.schema, question.by)
    return {label: Averager(cohort, asked.request, groups, in_GM, question.reference) for label in asked.models}


def _gather(session: Session, asked: _Prepared, averages: "Mapping[str, Averager]") -> "dict[str, Tally]":
    """Write every answer, where a file of them is named, and return what they come to, by model."""
    from costar_cli.files.tables import QUESTION, SHARD, table_file
    from costar_cli.questions import Tally, answer_cohort, count_questions, true_answers

    question, dataset, shard = asked.question, asked.dataset, asked.question.part
    tallies = {label: Tally(dataset.schema.outcomes, model.horizon) for label, model in asked.models.items()}
    reference = None if averages else question.reference
    mark = {QUESTION: _fingerprint(asked)} if question.csv else {}
    mark |= {SHARD: str(question.shard)} if question.shard else {}
    count = count_questions(asked.cohort, asked.request, shard, compared=reference is not None)
    with (
        table_file(question.csv, mark) if question.csv and not averages else nullcontext() as table,
        session.reporter.task("estimate", total=len(asked.models) * count, unit="answer") as task,
    ):
        for label, model in asked.models.items():
            for answers in answer_cohort(
                label, model, asked.cohort, asked.request, levels=question.levels, shard=shard, reference=reference,
                widen=question.widen,
            ):  # fmt: skip
                tallies[label].add(answers)
                truth = true_answers(dataset, answers) if question.truth else None
                if averages:
                    averages[label].add(answers, truth)
                if table is not None:
                    for rows in _tables(asked, answers, truth, reference):
                        table.write(rows)
                task.advance(len(answers))
    return tallies


def _tables(
    asked: _Prepared, answers: "ModelAnswers", truth_QHY: "NDArray[np.float64] | None", reference: str | None
) -> "Iterator[Columns]":
    """Yield the columns of a chunk's outcomes, and of their differences from a reference plan where one is named."""
    from costar_cli.questions import tidy_columns
    from costar_cli.questions.answers import objects

    quantities: Sequence[Literal["outcome", "difference"]] = ("outcome", "difference") if reference else ("outcome",)
    for quantity in quantities:
        rows = tidy_columns(answers, quantity=quantity, truth_QHY=truth_QHY, abstain=asked.question.abstain)
        if asked.sweep is not None:
            rows["dose"] = asked.sweep.doses_of(rows["plan"])
        rows.pop("reference", None)
        who: dict[str, str | None] = {"dataset": asked.dataset.name, "model": answers.label}
        if reference is not None:
            who |= {"quantity": quantity, "reference": reference if quantity == "difference" else None}
        yield {name: objects([value] * len(rows["step"])) for name, value in who.items()} | rows


def _fingerprint(asked: _Prepared) -> str:
    """Return what tells a table of answers from those to other questions; all shards of one have the same."""
    from costar_cli.files import fingerprint

    question, cohort = asked.question, asked.cohort
    who = "\n".join(f"{cohort.names[i]} {t}" for i, t in zip(cohort.subject_M, cohort.origin_M, strict=True))
    config: dict[str, object] = {"levels": question.levels, "truth": question.truth, "abstain": question.abstain}
    config |= {"subjects": sha256(who.encode()).hexdigest(), "plan": sha256(asked.document).hexdigest()}
    config |= {name: value for name in ("widen", "reference") if (value := getattr(question, name))}
    parents = {"dataset": asked.dataset.digest} | {f"model/{name}": one.digest for name, one in asked.models.items()}
    return fingerprint("answers", parents=parents, config=config)


def _summary(asked: _Prepared, tallies: "Mapping[str, Tally]", averages: "Sequence[AverageEffects]") -> dict[str, Any]:
    """Return what `--json` has of a cohort: counts, means by plan, and the kind of intervals, also of averages."""
    from costar_cli.data.compatible import same_data
    from costar_cli.inference import interval_kind
    from costar_cli.questions import MOST_PLANS

    question, dataset, cohort = asked.question, asked.dataset, asked.cohort
    plans = set[str]().union(*(tally.names for tally in tallies.values()))
    parts = Counter(str(cohort.places[i].part) for i in set(cohort.subject_M.tolist()))
    kinds = {label: tally.interval_kind or interval_kind(asked.models[label]) for label, tally in tallies.items()}
    kinds |= {effects.label: effects.interval_kind for effects in averages}
    return {
        "dataset": dataset.name,
        "step_unit": dataset.schema.step,
        "cohort": {"subjects": sum(parts.values()), "moments": len(cohort), "parts": dict(parts)},
        "plans": len(plans),
        "plans_listed": min(len(plans), MOST_PLANS),
        **({"shard": str(question.shard)} if question.shard else {}),
        "answers": sum(tally.answers for tally in tallies.values()),
        "level": question.levels[0],
        "levels": list(question.levels),
        "models": {
            label: {
                "method": asked.models[label].method,
                "members": asked.models[label].members,
                "same_data": same_data(asked.models[label].parents, dataset),
                "interval_kind": kinds[label],
                "plans": list(tally.rows()),
            }
            for label, tally in tallies.items()
        },
    }
