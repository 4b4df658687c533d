"""A question about many subjects: answers chunk by chunk, to a table or kept, and what they come to."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from costar_cli.data.compatible import same_data
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import UsageError
from costar_cli.files.tables import QUESTION, SHARD, table_file
from costar_cli.inference import calibration_of, interval_kind
from costar_cli.questions import MOST_PLANS, AverageEffects, Question, Tally
from costar_cli.questions.diagnostics import on_widened
from costar_cli.questions.rows import label_columns
from costar_cli.reporting import NullReporter, Reporter

if TYPE_CHECKING:
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
    keep: bool = False,
    shard: str | None = None,
    reporter: Reporter | None = None,
) -> CohortAnswers:
    """Answer a question about many subjects, a chunk at a time, so that memory stays bounded.

    Args:
        question: what is asked; its shard says which of the answers are made.
        csv: the table to write every answer to; none where averages are asked for.
        labels: the table of labels in the layout of MEDS to write; none where averages are asked for.
        keep: keep the rows in memory, too.
        shard: what the table says of its part, `1/8`.
        reporter: shows progress.

    Raises:
        UsageError: very many answers are to be kept; plans that cannot be averaged.
    """
    request, schema, reporter = question.request, question.schema, reporter or NullReporter()
    count = len(question.models) * len(question)
    rows = count * question.plans.horizon * len(schema.outcomes)
    rows *= 1 + (request.reference is not None)  # differences have rows of their own
    if keep and rows > MOST_KEPT:
        problem = f"--out of {rows:,} rows; at most {MOST_KEPT:,} at once"
        raise UsageError(problem, where="--out", fix="write a table: `--csv answers.parquet`")
    tallies = {label: Tally(schema.outcomes, model.horizon) for label, model in question.models.items()}
    averagers = {label: question.averager() for label in question.models if request.average}
    csv, tables = None if request.average else csv, list["Columns"]()
    mark = {QUESTION: question.fingerprint} if csv else {}
    mark |= {SHARD: shard} if shard else {}
    with (
        table_file(csv, mark) if csv else nullcontext() as table,
        table_file(labels) if labels else nullcontext() as labelled,
        reporter.task("estimate", total=count, unit="answer") as task,
    ):
        for label, tally in tallies.items():
            for answers, truth in question.answers(label):
                tally.add(answers)
                if averagers:
                    averagers[label].add(answers, truth)
                if labelled is not None:
                    labelled.write(label_columns(answers, abstain=request.abstain))
                for columns in question.tables(answers, truth) if table is not None or keep else ():
                    if table is not None:
                        table.write(columns)
                    if keep:
                        tables.append(columns)
                task.advance(len(answers))
    averages = [made.finish(label, question.models[label], request.levels) for label, made in averagers.items()]
    return CohortAnswers(question=question, shard=shard, tallies=tallies, averages=averages, tables=tables)
