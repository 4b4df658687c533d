"""Questions about subjects under treatment plans: one subject, a cohort, averages over it, and how far to trust them.

Use: `request = read_plans(path, dataset.schema, horizon=model.horizon)` (`costar_cli.plans`), then
`report = estimate_outcomes(dataset, {label: model}, request, subject=12)` for one subject, or `answer_cohort` for many,
chunk after chunk. A report has `to_rows()`, `difference_rows()` (both with the columns `COLUMNS`), `to_json()` and
`notes`; `write_csv` and `write_estimates` store it.
"""

from costar_cli.questions.answers import (
    CohortAnswers,
    answer_cohort,
    as_told,
    check_questions,
    count_questions,
    doubts,
    join_columns,
    tidy_columns,
    true_answers,
    warnings_about,
)
from costar_cli.questions.averages import AverageEffects, Averager
from costar_cli.questions.estimate import estimate_outcomes
from costar_cli.questions.groups import groups_of
from costar_cli.questions.notes import validated_on
from costar_cli.questions.report import COLUMNS, ModelAnswer, Row, SubjectHistory, WhatIfReport
from costar_cli.questions.store import write_csv, write_estimates
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

__all__ = [
    "COLUMNS",
    "MOST_PLANS",
    "AverageEffects",
    "Averager",
    "Cohort",
    "CohortAnswers",
    "ModelAnswer",
    "Row",
    "SubjectHistory",
    "Tally",
    "WhatIfReport",
    "answer_cohort",
    "as_told",
    "check_questions",
    "check_table",
    "choose_subjects",
    "count_questions",
    "doubts",
    "estimate_outcomes",
    "groups_of",
    "join_columns",
    "join_places",
    "names_of",
    "read_subjects",
    "subjects_of_plans",
    "tidy_columns",
    "true_answers",
    "validated_on",
    "warnings_about",
    "with_plans",
    "write_csv",
    "write_estimates",
]
