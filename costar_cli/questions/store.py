"""Write a what-if report: CSV for people, an `estimates` artifact for the record."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from costar_cli.files import Artifact, write_artifact
from costar_cli.files.tables import table_file
from costar_cli.questions.report import WhatIfReport, stacked

__all__ = ["write_csv", "write_estimates"]


def write_csv(path: Path, report: WhatIfReport) -> None:
    """Write one row per quantity, model, plan, step and outcome; differences follow the outcomes.

    The ending of the name says what kind of table it is: `.csv`, `.parquet` or `.jsonl`.

    Raises:
        StorageError: the file cannot be written.
    """
    with table_file(path) as table:
        for columns in report.tables():
            table.write(columns)


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
    return write_artifact(
        path, kind="estimates", arrays=_arrays(report), meta=meta, parents=parents, overwrite=overwrite
    )


def _arrays(report: WhatIfReport) -> dict[str, NDArray[np.generic]]:
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
    return arrays
