"""A question about many subjects: answers chunk by chunk, to a table or kept, and what they come to."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from numpy.typing import NDArray

from costar_cli.data.compatible import same_data
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import ArtifactError, UsageError
from costar_cli.files import complete
from costar_cli.files.parts import write_part
from costar_cli.files.tables import QUESTION, SHARD, table_file
from costar_cli.inference import calibration_of, interval_kind
from costar_cli.questions import MOST_PLANS, AverageEffects, Question, Tally
from costar_cli.questions.diagnostics import on_widened
from costar_cli.questions.rows import label_columns
from costar_cli.questions.store import meds_files
from costar_cli.reporting import NullReporter, Reporter

if TYPE_CHECKING:
    from costar_cli.files import Artifact
    from costar_cli.questions.averages import Averager
    from costar_cli.questions.rows import Columns

MOST_KEPT: Final = 2_000_000  # rows of an artifact, which are held in memory twice: some 1 GB


@dataclass(frozen=True, eq=False, kw_only=True)
class CohortAnswers:
    """What the answers to a question about many subjects come to.

    Attributes:
        question: what was asked.
        shard: which of the answers were made, `1/8`; None for all.
        tallies: their sums, by model.
        averages: of each model, where averages were asked for.
        tables: the rows themselves, where they were to be kept.
    """

    question: Question
    shard: str | None
    tallies: Mapping[str, Tally]
    averages: Sequence[AverageEffects]
    tables: "Sequence[Columns]"

    @property
    def notes(self) -> list[Diagnostic]:
        """Return what wider bands rest on, which the answers alone tell."""
        found = []
        for label, tally in self.tallies.items():
            if tally.effective and (calibration := calibration_of(self.question.models[label])):
                found.append(on_widened(label, tally.effective, calibration, self.question.schema.step))
        return found

    def summary(self) -> dict[str, Any]:
        """Return what `--json` has of a cohort: counts, means by plan, and the kind of intervals, also of averages."""
        question, tallies = self.question, self.tallies
        models, dataset, cohort, levels = question.models, question.dataset, question.cohort, question.request.levels
        assert dataset is not None  # noqa: S101 - cohorts are subjects of a data set
        plans = set[str]().union(*(tally.names for tally in tallies.values()))
        parts = Counter(str(cohort.places[i].part) for i in set(cohort.subject_M.tolist()))
        kinds = {label: tally.interval_kind or interval_kind(models[label]) for label, tally in tallies.items()}
        kinds |= {effects.label: effects.interval_kind for effects in self.averages}
        return {
            "dataset": dataset.name,
            "step_unit": dataset.schema.step,
            "cohort": {"subjects": sum(parts.values()), "moments": len(cohort), "parts": dict(parts)},
            "plans": len(plans),
            "plans_listed": min(len(plans), MOST_PLANS),
            **({"shard": self.shard} if self.shard else {}),
            "answers": sum(tally.answers for tally in tallies.values()),
            "level": levels[0],
            "levels": list(levels),
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


def answer_many(
    question: Question,
    *,
    csv: Path | None = None,
    labels: Path | None = None,
    events: Path | None = None,
    keep: bool = False,
    shard: str | None = None,
    part_of: Path | None = None,
    parts: "Sequence[Artifact]" = (),
    reporter: Reporter | None = None,
) -> CohortAnswers:
    """Answer a question about many subjects, a chunk at a time, so that memory stays bounded.

    Args:
        question: what is asked; its shard says which of the answers are made.
        csv: the table to write every answer to; none where averages are asked for.
        labels: the table of labels in the layout of MEDS to write; none where averages are asked for.
        events: the same as a table of events.
        keep: keep the rows in memory, too.
        shard: what the table says of its part, `1/8`.
        part_of: the file that averages of all parts become, where those of the question's shard are to be kept for it.
        parts: all of them, in order, from which averages are made instead.
        reporter: shows progress.

    Raises:
        UsageError: very many answers are to be kept; plans that cannot be averaged.
        ArtifactError: parts are not what `part_of` leaves.
    """
    request, schema, reporter = question.request, question.schema, reporter or NullReporter()
    count = len(question.models) * len(question)
    rows = count * question.plans.horizon * len(schema.outcomes)
    rows *= 1 + (request.reference is not None)  # differences have rows of their own
    if (keep or events) and rows > MOST_KEPT:
        flag = "--out" if keep else "--events"
        problem = f"{flag} of {rows:,} rows; at most {MOST_KEPT:,} at once"
        raise UsageError(problem, where=flag, fix="write a table: `--csv answers.parquet`")
    tallies = {label: Tally(schema.outcomes, model.horizon) for label, model in question.models.items()}
    averagers = {label: question.averager() for label in question.models if request.average}
    csv, tables = None if request.average else csv, list["Columns"]()
    mark = {QUESTION: question.fingerprint} if csv else {}
    mark |= {SHARD: shard} if shard else {}
    with (
        table_file(csv, mark) if csv else nullcontext() as table,
        meds_files(labels, events) as write_labels,
        reporter.task("estimate", total=count, unit="answer") as task,
    ):
        for i, (label, tally) in enumerate(tallies.items()):
            for part in parts:
                _take_part(part, i, tally, averagers[label])
            for answers, truth in question.answers(label) if not parts else ():
                tally.add(answers)
                if averagers:
                    averagers[label].add(answers, truth)
                if write_labels is not None:
                    write_labels(label_columns(answers, abstain=request.abstain))
                for columns in question.tables(answers, truth) if table is not None or keep else ():
                    if table is not None:
                        table.write(columns)
                    if keep:
                        tables.append(columns)
                task.advance(len(answers))
    for label, averager in averagers.items() if parts else ():
        if len(averager) != len(question.cohort):
            problem = f"the parts have answers of `{label}` about {len(averager):,} of {len(question.cohort):,} origins"
            raise ArtifactError(problem, where=str(parts[0].path), fix="make all of them again with --overwrite")
    if part_of is not None:
        _write_part(question, part_of, tallies, averagers)
        averagers = {}
    averages = [made.finish(label, question.models[label], request.levels) for label, made in averagers.items()]
    return CohortAnswers(question=question, shard=shard, tallies=tallies, averages=averages, tables=tables)


def _write_part(
    question: Question, whole: Path, tallies: Mapping[str, Tally], averagers: "Mapping[str, Averager]"
) -> None:
    """Write what a shard of a question about averages gathered: columns are numbered, since names may be any text."""
    arrays, models = dict[str, NDArray[Any]](), list[dict[str, Any]]()
    for i, (label, tally) in enumerate(tallies.items()):
        facts: dict[str, Any] = {"answers": tally.answers, "interval_kind": tally.interval_kind}
        for kind, columns in (("moments", averagers[label].columns), ("sums", tally.columns)):
            arrays |= {f"model/{i}/{kind}/{n}": values for n, values in enumerate(columns.values())}
            facts[kind] = list(columns)
        models.append(facts)
    write_part(whole, question.shard, question.fingerprint, arrays, {"models": models}, question.parents)


def _take_part(part: "Artifact", model: int, tally: Tally, averager: "Averager") -> None:
    """Add what a part gathered of a model.

    Raises:
        ArtifactError: it lacks something.
    """
    with complete(part):
        facts = part.meta["models"][model]
        moments, sums = (
            {name: part.arrays[f"model/{model}/{kind}/{n}"] for n, name in enumerate(facts[kind])}
            for kind in ("moments", "sums")
        )
        plans = [plan.name for plan in averager.plans]
        if len({len(values) for values in moments.values()}) > 1 or any(
            values.shape[1:2] != (len(plans),)
            for values in [*moments.values(), *(sums_P[None] for sums_P in sums.values())]
        ):
            raise ValueError("its columns are not of the same moments and plans")
        averager.take(moments)
        tally.take(sums, plans, answers=int(facts["answers"]), interval_kind=str(facts["interval_kind"]))
