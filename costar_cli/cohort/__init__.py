"""Cohorts: many subjects under the same plans, answered in chunks; and what the answers come to on average."""

from costar_cli.cohort.answers import (
    CohortAnswers,
    answer_cohort,
    doubts,
    join_columns,
    tidy_columns,
    true_answers,
)
from costar_cli.cohort.subjects import (
    Cohort,
    Origin,
    choose_subjects,
    join_places,
    names_of,
    parse_origin,
    read_subjects,
)

__all__ = [
    "Cohort",
    "CohortAnswers",
    "Origin",
    "answer_cohort",
    "choose_subjects",
    "doubts",
    "join_columns",
    "join_places",
    "names_of",
    "parse_origin",
    "read_subjects",
    "tidy_columns",
    "true_answers",
]
