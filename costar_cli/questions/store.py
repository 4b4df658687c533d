"""Write answers: tables for people, artifacts for the record: `estimates` of one subject, `answers` of many."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costar_cli.files import Artifact, write_artifact
from costar_cli.files.tables import table_file
from costar_cli.plans.doses import Sweep
from costar_cli.questions.question import Question
from costar_cli.questions.report import WhatIfReport, stacked
from costar_cli.questions.rows import Columns, event_columns, join_columns, label_columns, with_doses


def write_csv(path: Path, report: WhatIfReport, sweep: Sweep | None = None) -> None:
    """Write one row per quantity, model, plan, step and outcome; differences follow the outcomes.

    The ending of the name says what kind of table it is: `.csv`, `.parquet` or `.jsonl`. Plans of a sweep have a column
    `dose`.

    Raises:
        StorageError: the file cannot be written.
    """
    with table_file(path) as table:
        for columns in report.tables():
            table.write(columns if sweep is None else with_doses(columns, report.models[0], sweep))


@contextmanager
def meds_files(labels: Path | None, events: Path | None) -> Iterator[Callable[[Columns], None] | None]:
    """Yield what writes labels, chunk after chunk, to Parquet files in the layout of MEDS; None where there are none.

    Events have an order, and so are written together at the end.

    Raises:
        StorageError: a file cannot be written.
    """
    kept = list[Columns]()
    with table_file(labels) if labels else nullcontext() as table:

        def write(columns: Columns) -> None:
            if table is not None:
                table.write(columns)
            if events is not None:
                kept.append(columns)

        yield write if labels or events else None
    if events is not None:
        with table_file(events) as table:
            table.write(event_columns(kept))


def write_labels(report: WhatIfReport, labels: Path | None, events: Path | None) -> None:
    """Write estimates as labels in the layout of MEDS, and as events.

    Raises:
        UsageError: subjects are labels, or the data have no dates.
        StorageError: the file cannot be written.
    """
    with meds_files(labels, events) as write:
        if write is not None:
            for model in report.models:
                write(label_columns(model, abstain=report.abstain))


def write_estimates(
    path: Path, report: WhatIfReport, *, parents: Mapping[str, str], fingerprint: str, overwrite: bool = False
) -> Artifact:
    """Write a report as an artifact of kind `estimates`.

    Arrays, with NaN beyond a plan's own steps: `plans/values [P,H,names]` (-1 there), `plans/steps [P]`,
    `plans/observed` and `plans/truth [P,H,Y]`, `history/outcomes [origin+1,Y]`, `history/treatments [origin,names]`,
    and per model, numbered as in meta `models`, `model/0/predictions [R,P,H,Y]`, NaN also where the report abstains.
    Rows with limits and lights are in meta, `estimates` and `differences`.
    """
    meta = {
        **report.summary(),
        "plans": [plan.name for plan in report.plans],
        "models": [{"label": label, **facts} for label, facts in report.model_facts().items()],
        "schema": report.schema.model_dump(mode="json"),
        "estimates": report.to_rows(),
        "differences": report.difference_rows(),
        "fingerprint": fingerprint,
    }
    horizon = max(len(plan) for plan in report.plans)
    arrays: dict[str, NDArray[np.generic]] = {
        "history/outcomes": report.history.outcomes,
        "history/treatments": report.history.treatments,
        "plans/steps": np.array([len(plan) for plan in report.plans]),
        "plans/values": np.stack(
            [np.pad(plan.values, ((0, horizon - len(plan)), (0, 0)), constant_values=-1) for plan in report.plans]
        ),
        "plans/observed": stacked(report.observed, horizon),
    }
    if report.truth is not None:
        arrays["plans/truth"] = stacked(report.truth, horizon)
    for i, model in enumerate(report.models):
        hidden_QHY = ~model.own_QHY | model.hidden_QHY(abstain=report.abstain)
        arrays[f"model/{i}/predictions"] = np.where(hidden_QHY, np.nan, model.estimates.members_RQHY.astype(np.float64))
    return write_artifact(path, kind="estimates", arrays=arrays, meta=meta, parents=parents, overwrite=overwrite)


def write_answers(path: Path, question: Question, tables: Sequence[Columns], *, overwrite: bool = False) -> Artifact:
    """Write the rows of `Question.tables` as an artifact of kind `answers`, one array per column.

    Meta `columns` names `column/0`, `column/1`, ... Texts are codes into the list that `categories` has by column,
    -1 where there is none; all other columns are numbers. Columns that only some models have are NaN for the rest.
    """
    names = dict.fromkeys(name for columns in tables for name in columns)
    whole = join_columns(
        [{name: columns.get(name, np.full(len(columns["step"]), np.nan)) for name in names} for columns in tables]
    )
    arrays: dict[str, NDArray[np.generic]] = {}
    categories: dict[str, list[Any]] = {}
    for place, (name, values) in enumerate(whole.items()):
        if values.dtype == object:
            known = {value: None for value in values.tolist() if value is not None and value == value}  # noqa: PLR0124
            codes = {value: code for code, value in enumerate(known)}
            categories[name] = list(known)
            arrays[f"column/{place}"] = np.array([codes.get(value, -1) for value in values.tolist()], dtype=np.int32)
        else:
            arrays[f"column/{place}"] = values
    meta = {
        "columns": list(whole),
        "categories": categories,
        "rows": len(whole["step"]),
        "models": {
            label: {"method": model.method, "members": model.members} for label, model in question.models.items()
        },
        "levels": list(question.request.levels),
        "fingerprint": question.fingerprint,
    }
    return write_artifact(path, kind="answers", arrays=arrays, meta=meta, parents=question.parents, overwrite=overwrite)
