"""Every prediction behind the scores of an evaluation, as tidy rows."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from costar_cli.data import Location, PanelSchema, Queries
from costar_cli.evaluation.dropout import StayWeights
from costar_cli.evaluation.score import TestPart, subject_chunks
from costar_cli.evaluation.setups import Job
from costar_cli.inference import calibration_of, encoded_predictor, estimate, support_of
from costar_cli.plans import TreatmentPlan
from costar_cli.questions.answers import ModelAnswers
from costar_cli.questions.rows import Columns, tidy_columns
from costar_cli.questions.subjects import Cohort, names_of

MOST_QUERIES = 16_384  # answered at once: their predictions and lights take some hundred MB


def predicted_rows(
    job: Job, test: TestPart, *, level: float, weights: StayWeights | None = None
) -> Iterator[tuple[int, Columns]]:
    """Yield, for some subjects after others, how many queries were answered, and their rows.

    A row is a scored step of a query, and an outcome. Columns are those of `tidy_columns`, behind `setup`, `method`,
    `model`, `queries` (the query set) and `kind` of its truth (`factual`: what was observed); then `members_sd`, the
    standard deviation of the members' predictions, not a number for one member; and, given `weights`, the `weight` of
    the squared error, 1 where the truth is not `factual`. `plan` has the treatments of all steps.
    """
    model, label = job.candidate.model, job.candidate.label
    told = {"setup": job.setup.name, "method": model.method, "model": label}
    calibration, support = calibration_of(model), support_of(model)
    sets = [(truth, name, steps_H) for truth, of in test.serving.items() for name, steps_H in of.items()]
    every = [test.query_sets[name].of_subjects(test.own) for _, name, _ in sets]
    for subjects, rows_of in subject_chunks(test.panel, every, [MOST_QUERIES] * len(every)):
        panel = test.panel.take(subjects)
        ask, names = encoded_predictor(panel), names_of(panel)
        places = [Location(job.setup.test, row) for row in subjects.tolist()]
        for (truth, name, steps_H), queries, rows in zip(sets, every, rows_of, strict=True):
            if not len(rows):
                continue
            some = queries.take(rows)
            row_Q = np.searchsorted(subjects, some.subject)
            asked = replace(some, subject=row_Q.astype(np.int32), outcomes=None, scored=None)
            found = estimate(model, panel, asked, ask=ask)
            answers = ModelAnswers(
                label, model, Cohort(panel, names, places, row_Q, some.origin.astype(np.int64)), np.arange(len(some)),
                plans_in_words(model.schema, some), asked, found, (level,), calibration,
                support.ratings(panel, asked, found) if support else None,
            )  # fmt: skip
            assert some.outcomes is not None and some.scored is not None  # noqa: S101, PT018 - sets that serve have both
            members_RQHY = found.members_RQHY.astype(np.float64)  # as of one member: files hold one type
            q, h, y = np.nonzero(answers.own_QHY)
            columns = tidy_columns(answers, truth_QHY=some.outcomes.astype(np.float64))
            several = len(members_RQHY) > 1
            columns["members_sd"] = members_RQHY.std(axis=0, ddof=1)[q, h, y] if several else np.full(len(q), np.nan)
            if weights is not None:  # one where the truth is a simulator's
                weight_QH = weights.at(some) if truth == "factual" else np.ones(some.plan.shape[:2])
                columns["weight"] = weight_QH[q, h]
            scored = (some.scored & steps_H[: some.horizon])[q, h]
            columns = {name: values[scored] for name, values in columns.items()}
            said = told | {"queries": name, "kind": truth}
            count = len(columns["step"])
            yield len(some), {key: np.full(count, value, dtype=object) for key, value in said.items()} | columns


def plans_in_words(schema: PanelSchema, queries: Queries) -> list[TreatmentPlan]:
    """Return the plan of each query, called after the treatments of its steps: `none, chemotherapy, none`."""
    encoding = schema.treatments
    every_PHA, plan_Q = np.unique(queries.plan, axis=0, return_inverse=True)
    plans = [
        TreatmentPlan(", ".join(encoding.describe(step) for step in values), values)
        for values in map(encoding.decode, every_PHA)
    ]
    return [plans[i] for i in plan_Q.reshape(-1).tolist()]
