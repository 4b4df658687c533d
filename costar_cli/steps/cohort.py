"""The body of `costar whatif` about many subjects: answers to a file, a summary to the terminal."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any, Final

from costar_cli.artifact.tables import check_table_name
from costar_cli.errors import UsageError
from costar_cli.outputs import Files
from costar_cli.steps.averages import show_average_sweep, show_averages
from costar_cli.steps.defaults import ModelChoice
from costar_cli.steps.estimates import Question, files_read
from costar_cli.steps.model import load_models, name_models
from costar_cli.steps.session import Session

if TYPE_CHECKING:
    from costar_cli.artifact.shards import Shard
    from costar_cli.methods.base import FittedModel
    from costar_cli.panel import Dataset, Location
    from costar_cli.plans import Origin, PlanRequest
    from costar_cli.plans.sweep import Sweep
    from costar_cli.questions import AverageEffects, Averager, Cohort, Tally

__all__ = ["CohortQuestion", "run_cohort"]

MOST_SHOWN: Final = 20  # plans in a terminal


@dataclass(frozen=True, kw_only=True)
class CohortQuestion(Question):
    """What is asked of many subjects: `who` is what `--subjects` says, or their names; none: those of the plans."""

    who: str | tuple[str, ...]
    skip_unknown: bool = False
    average: bool = False
    by: str | None = None
    shard: "Shard | None" = None

    @property
    def part(self) -> "Shard":
        """Return the part that is answered: the whole, unless a shard is asked for."""
        from costar_cli.artifact.shards import WHOLE

        return self.shard or WHOLE

    def of_shard(self) -> "CohortQuestion":
        """Return the question with the file of its shard, where it is a shard's.

        Raises:
            UsageError: there is no table that could be merged.
        """
        if self.shard is None:
            return self
        if self.average or self.csv is None or self.csv.suffix.lower() != ".parquet":
            fix = "name the whole table with --csv FILE.parquet, without --average"
            raise UsageError("parts are tables of answers", where="--shard", fix=fix)
        return replace(self, csv=self.shard.beside(self.csv))

    def check(self, read: Files = ()) -> None:
        """See, before any work, that the answers can be written, and to nothing that is `read`.

        Raises:
            UsageError: options for a single subject, a table of an unknown kind.
        """
        subjects = [("file of subjects", Path(self.who))] if isinstance(self.who, str) else []
        super().check([*read, *subjects])
        alone = {"--sensitivity": self.sensitivity, "--widen": self.widen, "--report": self.report, "--out": self.out}
        averaged = {} if self.average else {"--plot": self.plot, "--by": self.by, "--reference": self.reference}
        if given := [flag for flag, value in alone.items() if value]:
            problem = f"{given[0]} is for one subject"
            raise UsageError(problem, where=given[0], fix="leave it out, or ask about one subject with --subject")
        if given := [flag for flag, value in averaged.items() if value]:
            raise UsageError(f"{given[0]} of a cohort is for averages", where=given[0], fix="add --average")
        if self.csv is not None:
            check_table_name(self.csv, flag="--csv")


def run_cohort(session: Session, question: CohortQuestion, data: Path, models: Sequence[Path]) -> None:
    """Answer a question about many subjects, write the answers and show what they come to."""
    whole, question = question.csv, question.of_shard()
    choice = ModelChoice.of(session.workspace, models).fitting(session.workspace, data)
    question.check(files_read(session, data, models))
    session.read("dataset", data)
    from costar_cli.plans import COHORT_DRAWS, Moments, TreatmentPlan, parse_origin, parse_plans, read_plan_file
    from costar_cli.questions import (
        Cohort,
        check_questions,
        choose_subjects,
        join_places,
        names_of,
        subjects_of_plans,
        warnings_about,
        with_plans,
    )
    from costar_cli.questions.notes import notes_on_transforms
    from costar_cli.questions.rules import rule_notes

    written = b"" if question.sweep is not None else read_plan_file(question.plan_file)
    dataset = session.load_dataset(data, queries=False, truth=question.truth)
    document = sweep.document() if (sweep := question.swept(dataset)) else written
    from_plans = not question.who
    who = subjects_of_plans(document) if from_plans else question.who
    where = "--plan" if from_plans else "--subjects" if isinstance(who, str) else "--subject"
    skip, reporter = question.skip_unknown, session.reporter
    told = None if from_plans else reporter  # `with_plans` tells of unknown ones, too
    places = choose_subjects(dataset, who, skip=skip, where=where, reporter=told)
    paths = choice.about(session, {place.part.domain for place in places})
    named = name_models(paths, session.workspace.root)
    headers = {name: session.read("model", path, role=name) for name, path in named.items()}
    loaded = load_models(session, headers, named)
    place = "standard input" if str(question.plan) == "-" else str(question.plan or "--sweep")
    horizon = min(model.horizon for model in loaded.values())
    asked = None if question.origin is None else parse_origin(question.origin)
    panel = join_places(dataset, places)
    begin = partial(Moments.of, panel, where="--plan" if asked is None else "--origin")
    request = parse_plans(document, dataset.schema, horizon=horizon, where=place, origin=asked, begin=begin)
    origin: Origin = asked if asked is not None else "last" if request.origin is None else request.origin
    if request.by_subject:
        places = with_plans(dataset, places, request, skip=skip, reporter=reporter)
        panel = join_places(dataset, places)
    said = f"`origin` in {place}" if asked is None and request.origin is not None else "--origin"
    cohort = Cohort.of(
        panel,
        names_of(panel),
        places,
        origin=origin,
        skip=skip,
        where=said,
        terminal=dataset.schema.terminal,
        reporter=reporter,
    )
    check_questions(dataset, loaded, request, question.levels, unsupported=question.unsupported)
    doubts = warnings_about(dataset, loaded, cohort, request, shard=question.part)
    for warning in (*doubts, *_losses(dataset, loaded, places)):
        session.out.warn(warning)
    notes = [
        *(f"rule `{plan.name}`: {plan.text}" for plan in request.plans if not isinstance(plan, TreatmentPlan)),
        *rule_notes(loaded, request.plans, dataset, truth=question.truth, n=COHORT_DRAWS),
        *notes_on_transforms(loaded),
    ]
    for note in notes:
        session.out.note(note)
    averages = _averagers(question, dataset, loaded, cohort, request)
    tallies = _answer(session, question, dataset, loaded, cohort, request, averages, document, sweep)
    found = [averages[label].finish(label, loaded[label], question.levels) for label in averages]
    result = _summary(question, dataset, loaded, cohort, tallies, found) | {"notes": notes}
    result |= {} if sweep is None else {"sweep": sweep.to_json()}
    _show(session, result, most=MOST_SHOWN if sweep is None else len(sweep.values))
    if question.average:
        result["averages"] = _averaged(session, question, dataset, found, sweep)
    else:
        _tell_where(session, question, whole)
    session.out.done(result)


def _averaged(
    session: Session,
    question: CohortQuestion,
    dataset: "Dataset",
    found: "Sequence[AverageEffects]",
    sweep: "Sweep | None",
) -> list[dict[str, Any]]:
    """Show averages by plan, or those of a sweep by dose, and return their rows."""
    if sweep is None:
        return show_averages(session, found, csv=question.csv, plot=question.plot)
    return show_average_sweep(session, found, sweep=sweep, dataset=dataset, csv=question.csv, plot=question.plot)


def _tell_where(session: Session, question: CohortQuestion, whole: Path | None) -> None:
    """Say where the answers are, and of a shard how they become those of the `whole`."""
    if question.csv is None:
        session.out.note("this is a summary: `--csv answers.parquet` (or .csv, .jsonl) keeps every answer")
        return
    session.out.wrote("answers", question.csv)
    if question.shard is not None:
        session.out.next(join(["costar", "merge", str(whole)]))


def _losses(dataset: "Dataset", models: "Mapping[str, FittedModel]", places: "Sequence[Location]") -> list[str]:
    """Return a warning for each model that does badly on a domain that is asked about."""
    from costar_cli.api.estimates import losses_on_domain

    domains = dict.fromkeys(place.part.domain for place in places)
    return [warning for domain in domains for warning in losses_on_domain(dataset, models, domain)]


def _averagers(
    question: CohortQuestion,
    dataset: "Dataset",
    models: "Mapping[str, FittedModel]",
    cohort: "Cohort",
    request: "PlanRequest",
) -> "dict[str, Averager]":
    """Return what gathers each model's answers for averages; nothing where none are asked for."""
    from costar_cli.questions import Averager, groups_of

    if not question.average:
        return {}
    groups, in_GM = groups_of(cohort, dataset.schema, question.by)
    return {label: Averager(cohort, request, groups, in_GM, question.reference) for label in models}


def _answer(
    session: Session,
    question: CohortQuestion,
    dataset: "Dataset",
    models: "Mapping[str, FittedModel]",
    cohort: "Cohort",
    request: "PlanRequest",
    averages: "Mapping[str, Averager]",
    document: bytes,
    sweep: "Sweep | None",
) -> "dict[str, Tally]":
    """Write every answer, where a file of them is named, and return what they come to, by model.

    `document` is the file of plans; those of a sweep have a column of their doses.
    """
    from costar_cli.artifact.tables import QUESTION, SHARD, table_file
    from costar_cli.questions import Tally, answer_cohort, count_questions, tidy_columns, true_answers

    tallies = {label: Tally(dataset.schema.outcomes, model.horizon) for label, model in models.items()}
    shard = question.part
    mark = {QUESTION: _fingerprint(question, dataset, models, cohort, document)} if question.csv else {}
    mark |= {SHARD: str(question.shard)} if question.shard else {}
    total = len(models) * count_questions(cohort, request, shard)
    with (
        table_file(question.csv, mark) if question.csv and not averages else nullcontext() as table,
        session.reporter.task("estimate", total=total, unit="answer") as task,
    ):
        for label, model in models.items():
            for answers in answer_cohort(label, model, cohort, request, levels=question.levels, shard=shard):
                tallies[label].add(answers)
                truth = true_answers(dataset, answers) if question.truth else None
                if averages:
                    averages[label].add(answers, truth)
                if table is not None:
                    rows = tidy_columns(answers, truth_QHY=truth, abstain=question.abstain)
                    rows |= {} if sweep is None else {"dose": sweep.doses_of(rows["plan"])}
                    who = {"dataset": dataset.name, "model": label}
                    table.write({name: [value] * len(rows["step"]) for name, value in who.items()} | rows)
                task.advance(len(answers))
    return tallies


def _fingerprint(
    question: CohortQuestion, dataset: "Dataset", models: "Mapping[str, FittedModel]", cohort: "Cohort", document: bytes
) -> str:
    """Return what tells a table of answers from those to other questions; all shards of one have the same."""
    from costar_cli.artifact import fingerprint

    who = "\n".join(f"{cohort.names[i]} {t}" for i, t in zip(cohort.subject_M, cohort.origin_M, strict=True))
    asked = {"levels": question.levels, "truth": question.truth, "abstain": question.abstain}
    asked |= {"subjects": sha256(who.encode()).hexdigest(), "plan": sha256(document).hexdigest()}
    parents = {"dataset": dataset.digest} | {f"model/{label}": model.digest for label, model in models.items()}
    return fingerprint("answers", parents=parents, config=asked)


def _summary(
    question: CohortQuestion,
    dataset: "Dataset",
    models: "Mapping[str, FittedModel]",
    cohort: "Cohort",
    tallies: "Mapping[str, Tally]",
    averages: "Sequence[AverageEffects]",
) -> dict[str, Any]:
    """Return what `--json` has of a cohort: counts, means by plan, and the kind of intervals, also of averages."""
    from costar_cli.panel.compatible import same_data
    from costar_cli.questions import MOST_PLANS
    from costar_cli.uncertainty import interval_kind

    plans = set[str]().union(*(tally.names for tally in tallies.values()))
    parts = Counter(str(cohort.places[i].part) for i in set(cohort.subject_M.tolist()))
    kinds = {label: tally.interval_kind or interval_kind(models[label]) for label, tally in tallies.items()}
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
                "method": models[label].method,
                "members": models[label].members,
                "same_data": same_data(models[label].parents, dataset),
                "interval_kind": kinds[label],
                "plans": list(tally.rows()),
            }
            for label, tally in tallies.items()
        },
    }


def _show(session: Session, result: Mapping[str, Any], *, most: int = MOST_SHOWN) -> None:
    """Print how many were asked about what, and a table of means at the end of so many plans at `most`."""
    from costar_cli.panel.findings import counted
    from costar_cli.panel.schema import steps_axis
    from costar_cli.questions.tables import decimals_of, number_text

    out, cohort = session.out, result["cohort"]
    parts = ", ".join(f"{count:,} of {part}" for part, count in cohort["parts"].items())
    moments = "" if cohort["moments"] == cohort["subjects"] else f", {cohort['moments']:,} origins"
    plans, n, shard = counted(result["plans"], "plan"), result["answers"], result.get("shard")
    if shard and not n:
        out.text(f"{counted(cohort['subjects'], 'subject')} ({parts}){moments}: part {shard} has no answers")
        return
    out.text(f"{counted(cohort['subjects'], 'subject')} ({parts}){moments}, {plans}: {n:,} answer{'s' * (n != 1)}")
    over = f"mean over part {shard} of the cohort" if shard else "mean over the cohort"
    for label, facts in result["models"].items():
        shown = set(list(dict.fromkeys(row["plan"] for row in facts["plans"]))[:most])
        rows = [row for row in facts["plans"] if row["plan"] in shown]
        ends: dict[str, list[float]] = {}
        for row in rows:
            ends.setdefault(row["outcome"], []).append(row["mean_at_end"])
        decimals = {outcome: decimals_of(values) for outcome, values in ends.items()}
        lines = [
            [row["plan"], row["outcome"], _lengths(row), number_text(row["mean_at_end"], decimals[row["outcome"]]),
             row["unit"], *(f"{row['support'][light]:,}" if row["support"] else None for light in ("amber", "red"))]
            for row in rows
        ]  # fmt: skip
        headers = ["plan", "outcome", steps_axis(result["step_unit"]), "mean at the end", "unit", "amber", "red"]
        out.table(headers, lines, title=f"{over}, by {label}", keys=2)
        if left := result["plans"] - len(shown):
            out.text(f"and {counted(left, 'more plan')}")


def _lengths(row: Mapping[str, Any]) -> str:
    """Return the steps of a plan; from the shortest to the longest where subjects have their own of the same name."""
    shortest, longest = row["answers_per_step"].count(row["answers"]), row["steps"]
    return str(longest) if shortest == longest else f"{shortest} to {longest}"
