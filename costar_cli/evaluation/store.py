"""The evaluation artifact: the report as meta, the errors as arrays, so that later tests need no scoring."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costar_cli.errors import ArtifactError
from costar_cli.evaluation.metrics import PerStep, SquaredErrors
from costar_cli.evaluation.report import EvaluationReport
from costar_cli.evaluation.rows import ReportRow
from costar_cli.files import Artifact, read_artifact, write_artifact

__all__ = ["read_evaluation", "write_evaluation"]


def write_evaluation(
    path: Path,
    report: EvaluationReport,
    *,
    parents: Mapping[str, str],
    fingerprint: str,
    config: Mapping[str, Any],
    overwrite: bool = False,
) -> Artifact:
    """Write a report as an `evaluation` artifact.

    Arrays: `rmse [rows,R,H]` and `interval [rows,2,H+1]` (lower and upper bound; the last column is the average), NaN
    where unknown, over all rows of the report; `rows/<i>/members|ensemble|count`, the squared errors of row i, in
    squared outcome units (or squared sd, in the standardised space), before the unit's factor; `rows/<i>/cluster`,
    the units to which its subjects belong, where they are not units of their own; `rows/<i>/weight`, the sums of the
    weights of its answers, where they were weighed for dropout. `config` is what the report was asked
    for with, so that another question can be told from it.
    """
    meta = {"report": report.to_json(), "fingerprint": fingerprint, "config": dict(config)}
    return write_artifact(
        path, kind="evaluation", arrays=_arrays(report), meta=meta, parents=parents, overwrite=overwrite
    )


def read_evaluation(path: Path, *, errors: bool = True) -> EvaluationReport:
    """Read a report back, with its squared errors if asked for.

    Raises:
        ArtifactError: the file is missing, damaged, no evaluation, or incomplete.
    """
    artifact = read_artifact(path, kind="evaluation", only=None if errors else ("rmse",))
    try:
        report = EvaluationReport.from_json(artifact.meta["report"])
        kept = tuple(_errors(artifact.arrays, i) for i in range(len(report.rows)))
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        problem = f"the evaluation is incomplete or damaged ({type(error).__name__})"
        fix = "`costar evaluate --overwrite` makes it again"
        raise ArtifactError(problem, where=str(path), fix=fix) from error
    return EvaluationReport(**{**vars(report), "errors": kept}) if errors else report


def _arrays(report: EvaluationReport) -> dict[str, NDArray[np.generic]]:
    arrays: dict[str, NDArray[np.generic]] = {
        "rmse": _rmse(report.rows, report.horizon),
        "interval": np.stack([_interval(row, report.horizon) for row in report.rows]),
    }
    for i, errors in enumerate(report.errors):
        if errors is not None:
            arrays |= {f"rows/{i:03d}/{name}": column for name, column in errors.columns.items()}
    return arrays


def _rmse(rows: tuple[ReportRow, ...], horizon: int) -> NDArray[np.float64]:
    members = max(len(row.members) for row in rows)
    rmse = np.full((len(rows), members, horizon), np.nan)
    for i, row in enumerate(rows):
        for r, member in enumerate(row.members):
            rmse[i, r] = _floats(member)[:-1]
    return rmse


def _interval(row: ReportRow, horizon: int) -> NDArray[np.float64]:
    if row.lower is None or row.upper is None:
        return np.full((2, horizon + 1), np.nan)
    return np.stack([_floats(row.lower), _floats(row.upper)])


def _floats(values: PerStep) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in (*values.steps, values.average)])


def _errors(arrays: Mapping[str, NDArray[np.generic]], row: int) -> SquaredErrors | None:
    prefix = f"rows/{row:03d}"
    if f"{prefix}/count" not in arrays:
        return None
    cluster, weight = (arrays.get(f"{prefix}/{name}") for name in ("cluster", "weight"))
    return SquaredErrors(
        members=arrays[f"{prefix}/members"].astype(np.float64),
        ensemble=arrays[f"{prefix}/ensemble"].astype(np.float64),
        count=arrays[f"{prefix}/count"].astype(np.int64),
        cluster=None if cluster is None else cluster.astype(np.int64),
        weight=None if weight is None else weight.astype(np.float64),
    )
