"""Cohorts: many subjects under the same plans, answered in chunks; and what the answers come to on average."""

from costar_cli.cohort.answers import (
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
from costar_cli.cohort.averages import AverageEffects, Averager
from costar_cli.cohort.groups import groups_of
from costar_cli.cohort.predictions import predicted_rows
from costar_cli.cohort.subjects import (
    Cohort,
    check_table,
    choose_subjects,
    join_places,
    names_of,
    read_subjects,
    subjects_of_plans,
    with_plans,
)
from costar_cli.cohort.summary import MOST_PLANS, Tally

__all__ = [
    "MOST_PLANS",
    "AverageEffects",
    "Averager",
    "Cohort",
    "CohortAnswers",
    "Tally",
    "answer_cohort",
    "as_told",
    "check_questions",
    "check_table",
    "choose_subjects",
    "count_questions",
    "doubts",
    "groups_of",
    "join_columns",
    "join_places",
    "names_of",
    "predicted_rows",
    "read_subjects",
    "subjects_of_plans",
    "tidy_columns",
    "true_answers",
    "warnings_about",
    "with_plans",
]
