"""Questions about subjects under treatment plans: one subject, a cohort, averages over it, and how far to trust them.

Use: `request = read_plans(path, dataset.schema, horizon=model.horizon)` (`costar_cli.plans`), then
`report = estimate_outcomes(dataset, {label: model}, request, subject=12)` for one subject, or `answer_cohort` for many,
chunk after chunk. A report has `to_rows()`, `difference_rows()` (both with the columns `COLUMNS`), `to_json()` and
`notes`; `write_csv` and `write_estimates` store it.
"""

from costar_cli.questions.answers import Band, ModelAnswers, answer_cohort, count_questions
from costar_cli.questions.averages import AverageEffects, Averager
from costar_cli.questions.diagnostics import validated_on, warnings_about, warnings_on_plans
from costar_cli.questions.groups import groups_of
from costar_cli.questions.question import Places, Question, estimate_outcomes
from costar_cli.questions.report import COLUMNS, Row, SubjectHistory, WhatIfReport
from costar_cli.questions.request import possible_plans, refuse_unseen, unseen_in_plans
from costar_cli.questions.rows import join_columns, tidy_columns
from costar_cli.questions.store import write_answers, write_csv, write_estimates, write_labels
from costar_cli.questions.subjects import (
    Cohort,
    check_table,
    choose_subjects,
    join_places,
    names_of,
    read_subjects,
    subjects_of_plans,
    with_plans,
)
from costar_cli.questions.summary import MOST_PLANS, Tally
from costar_cli.questions.truth import true_answers

__all__ = [
    "COLUMNS",
    "MOST_PLANS",
    "AverageEffects",
    "Averager",
    "Band",
    "Cohort",
    "ModelAnswers",
    "Places",
    "Question",
    "Row",
    "SubjectHistory",
    "Tally",
    "WhatIfReport",
    "answer_cohort",
    "check_table",
    "choose_subjects",
    "count_questions",
    "estimate_outcomes",
    "groups_of",
    "join_columns",
    "join_places",
    "names_of",
    "possible_plans",
    "read_subjects",
    "refuse_unseen",
    "subjects_of_plans",
    "tidy_columns",
    "true_answers",
    "unseen_in_plans",
    "validated_on",
    "warnings_about",
    "warnings_on_plans",
    "with_plans",
    "write_answers",
    "write_csv",
    "write_estimates",
    "write_labels",
]
