"""A panel from a long table, one row per subject and step: all problems of the table at once (polars)."""

import difflib

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.errors import DataError
from costar_cli.panel.findings import Finding, counted, raise_errors, shown
from costar_cli.panel.panel import Panel
from costar_cli.panel.schema import PanelSchema, Variable
from costar_cli.panel.table_columns import read_key, read_treatments, read_variable

__all__ = ["panel_from_frame"]

Floats = NDArray[np.float32]


def panel_from_frame(
    frame: pl.DataFrame,
    schema: PanelSchema,
    *,
    subject: str = "subject",
    time: str = "step",
    allow_constant: bool = False,
) -> Panel:
    """Return the panel of a long table; subjects are ordered by id, steps by time, columns found by name.

    Each subject's first row becomes step 0. Columns that the schema does not name are left out. Values are cast
    where nothing is lost. A treatment is its level's name, its level's number, or a truth value; it may be missing at
    a subject's last step only.

    Args:
        frame: rows in any order.
        schema: the columns to read and what they mean.
        subject: the column of subject ids, whole numbers.
        time: the column of times, whole numbers that rise by one per step.
        allow_constant: accept variables and treatments that never change, as small parts of a data set have.

    Raises:
        DataError: the table cannot be used; the message lists every problem with its place, count and fix.
    """
    findings = _missing_columns(frame, schema, subject, time)
    if not frame.height:
        findings.append(Finding("error", "the table has no rows", fix="give at least one row per subject and step"))
    raise_errors(findings, what="the table")
    keys, findings = _keys(frame, subject, time)
    frame, keys = frame[keys["row"]], keys.drop("row")
    findings += _times(keys)
    covariates, found = _read(frame, keys, schema.covariates, steady=allow_constant)
    findings += found
    outcomes, found = _read(frame, keys, schema.outcomes, steady=allow_constant)
    findings += found
    statics, found = _read(frame, keys, schema.statics, steady=allow_constant)
    findings += found + _changing_statics(statics, keys, schema.statics)
    treatments, found = read_treatments(frame, keys, schema.treatments, allow_constant=allow_constant)
    findings += found
    raise_errors(findings, what="the table")
    return _padded(keys, covariates, treatments, outcomes, statics)


def _missing_columns(frame: pl.DataFrame, schema: PanelSchema, subject: str, time: str) -> list[Finding]:
    variables = (*schema.covariates, *schema.outcomes, *schema.statics)
    wanted = [subject, time, *(v.name for v in variables), *schema.treatments.names]
    if twice := sorted({name for name in wanted if wanted.count(name) > 1}):
        raise DataError(f"{shown(twice)} is used for two roles", fix="name the subject and time columns otherwise")
    findings = []
    for name in wanted:
        if name not in frame.columns:
            near = difflib.get_close_matches(name, frame.columns, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"the table has {shown(frame.columns)}"
            findings.append(Finding("error", f"there is no column '{name}'", fix=hint))
    return findings


def _keys(frame: pl.DataFrame, subject: str, time: str) -> tuple[pl.DataFrame, list[Finding]]:
    """Return the sorted keys `(row, subject, time)` of the rows that have both, and what is wrong with the others."""
    subjects, found = read_key(frame[subject], subject)
    times, more = read_key(frame[time], time)
    keys = pl.DataFrame({"subject": subjects, "time": times}).with_row_index("row")
    return keys.drop_nulls().sort("subject", "time", "row"), found + more


def _times(keys: pl.DataFrame) -> list[Finding]:
    """Find repeated keys and gaps in time."""
    step = pl.col("time") - pl.col("time").shift(1).over("subject")
    findings = []
    if (repeated := keys.filter(step == 0)).height:
        problem = f"{counted(repeated.height, 'repeated row')} of the same subject and time"
        findings.append(Finding("error", problem, _first(repeated), "keep one row per subject and time"))
    if (gaps := keys.filter(step > 1)).height:
        problem = f"{counted(gaps.height, 'gap')} in time: steps must rise by one"
        fix = "add the missing rows, or renumber the times to count steps"
        findings.append(Finding("error", problem, _first(gaps, "before"), fix))
    return findings


def _first(rows: pl.DataFrame, word: str = "at") -> str:
    subject, time = rows.select("subject", "time").row(0)
    return f"first {word} subject {subject}, step {time}"


def _read(
    frame: pl.DataFrame, keys: pl.DataFrame, variables: tuple[Variable, ...], *, steady: bool
) -> tuple[Floats, list[Finding]]:
    """Return the values `[rows, variables]` and what is wrong with them."""
    values, findings = np.zeros((frame.height, len(variables)), dtype=np.float32), []
    for i, variable in enumerate(variables):
        values[:, i], found = read_variable(frame[variable.name], keys, variable, allow_constant=steady)
        findings += found
    return values, findings


def _changing_statics(values: Floats, keys: pl.DataFrame, variables: tuple[Variable, ...]) -> list[Finding]:
    subject = keys["subject"].to_numpy()
    first = np.searchsorted(subject, subject)  # keys are sorted: the subject's first row
    findings = []
    for i, variable in enumerate(variables):
        differs = np.isfinite(values[:, i]) & np.isfinite(values[first, i]) & (values[:, i] != values[first, i])
        if differs.any():
            n = len(np.unique(subject[differs]))
            fix = "declare it as a covariate, or keep one value per subject"
            where = _first(keys.filter(pl.Series(differs)))
            findings.append(
                Finding("error", f"static '{variable.name}' changes within {counted(n, 'subject')}", where, fix)
            )
    return findings


def _padded(keys: pl.DataFrame, covariates: Floats, treatments: Floats, outcomes: Floats, statics: Floats) -> Panel:
    subject, first, row, length = np.unique(
        keys["subject"].to_numpy(), return_index=True, return_inverse=True, return_counts=True
    )
    step = np.arange(len(row)) - first[row]

    def pad(values: Floats) -> Floats:
        result = np.zeros((len(subject), int(length.max()), values.shape[1]), dtype=np.float32)
        result[row, step] = values
        return result

    return Panel(
        covariates=pad(covariates),
        treatments=pad(treatments),
        outcomes=pad(outcomes),
        statics=statics[first],
        length=length.astype(np.int64),
        subject_id=subject.astype(np.int64),
    )
