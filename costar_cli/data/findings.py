"""What checks find, and what must hold of every panel and query set, wherever it comes from."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.dataset import Dataset
from costar_cli.data.panel import Panel
from costar_cli.data.queries import Queries
from costar_cli.data.schema import PanelSchema, TreatmentEncoding, Variable
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError, first_of


def invalid(problem: str, where: str = "", fix: str = "") -> Diagnostic:
    """Return what makes data unusable: `raise_errors` raises it, together with the others."""
    return Diagnostic.of("invalid-data", where, fix=fix, problem=problem)


def raise_errors(findings: Iterable[Diagnostic], *, what: str) -> None:
    """Raise one error that tells every finding of severity `error`.

    `what` was checked, for example `the table`; warnings and notes are passed over.

    Raises:
        DataError: there is at least one error.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    if not errors:
        return
    first = errors[0]
    if len(errors) == 1:
        raise DataError(first.text, where=first.subject or None, fix=first.fix or None)
    raise DataError(
        f"{what} has {len(errors)} problems",
        where=what,
        fix="correct all of the problems listed",
        details=first_of([str(error) for error in errors]),
    )


def shown(names: Iterable[object], limit: int = 5) -> str:
    """Return names for a message, the first few of them: `'a', 'b' and 7 more`."""
    quoted = [f"'{name}'" for name in names]
    more = len(quoted) - limit
    return ", ".join(quoted[:limit]) + (f" and {more} more" if more > 0 else "")


def counted(n: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: `1 row`, `14 rows`; `many` is the plural where it is not `one` with an s."""
    return f"{n} {one}" if n == 1 else f"{n:,} {many or one + 's'}"


def percent(share: object) -> str | None:
    """Return a share of 1 in percent; None for what is no number, in files of anybody's."""
    return f"{100 * share:.1f} %" if isinstance(share, float) else None


def broken_invariants(dataset: Dataset) -> list[Diagnostic]:
    """Return an error for everything in a data set that is not finite or breaks an invariant."""
    findings = []
    for part, panel in dataset.panels.items():
        broken = panel_problems(panel, dataset.schema, str(part))
        findings += broken or not_finite(panel, dataset.schema, str(part))
        for name, queries in dataset.queries.get(part, {}).items():
            findings += query_problems(queries, panel, dataset.schema, f"{part}, {name}")
            findings += not_finite_answers(queries, f"{part}, {name}")
    return findings


def panel_problems(panel: Panel, schema: PanelSchema, where: str = "panel") -> list[Diagnostic]:
    """Return every broken invariant of a panel's structure as an error with its first place."""
    widths = _widths(
        where,
        covariates=(panel.covariates, len(schema.covariates)),
        treatments=(panel.treatments, schema.treatments.width),
        outcomes=(panel.outcomes, len(schema.outcomes)),
        statics=(panel.statics, len(schema.statics)),
    )
    if widths:
        return widths
    findings: list[Diagnostic] = []
    for field in ("covariates", "treatments", "outcomes"):
        values = getattr(panel, field)
        padding = (values != 0).any(axis=-1) & ~panel.observed
        if padding.any():
            row, step = np.argwhere(padding)[0]
            place = f"{where}, {field}, subject {panel.subject_id[row]}, step {step}"
            findings.append(invalid(f"{counted(int(padding.sum()), 'padded step')} with values other than zero", place))
    for of, mask in (("outcome", panel.outcome_observed), ("covariate", panel.covariate_observed)):
        if mask is not None and (mask & ~panel.observed[..., None]).any():
            row, step = np.argwhere(mask & ~panel.observed[..., None])[0][:2]
            place = f"{where}, {of}_observed, subject {panel.subject_id[row]}, step {step}"
            findings.append(invalid(f"padded steps whose {of}s are marked as observed", place))
    if panel.calendar is not None and not panel.calendar.is_ordered(panel.length):
        problem = "times outside the years 1 to 9999, or steps that go back in time"
        findings.append(invalid(problem, f"{where}, time"))
    if (unnamed_N := (panel.ends < 0) | (panel.ends > len(schema.ends))).any():
        row = int(np.argmax(unnamed_N))
        problem = f"a series ends for reason {panel.ends[row]}, the schema names {len(schema.ends)}"
        findings.append(invalid(problem, f"{where}, end, subject {panel.subject_id[row]}"))
    unclear = _unclear_treatments(panel.treatments, schema.treatments) & panel.observed
    if schema.treatments.mode == "multiclass":  # the last observed step may have no recorded treatment
        last = np.arange(panel.n_steps) == panel.length[:, None] - 1
        unclear &= ~(last & ~panel.treatments.any(axis=-1))
    if unclear.any():
        row, step = np.argwhere(unclear)[0]
        findings.append(
            invalid(
                f"{counted(int(unclear.sum()), 'step')} with treatments that the schema does not encode",
                f"{where}, treatments, subject {panel.subject_id[row]}, step {step}",
            )
        )
    return findings


def not_finite(panel: Panel, schema: PanelSchema, where: str = "panel") -> list[Diagnostic]:
    """Return an error for each variable of a panel that holds NaN or infinite values, with count and first place."""
    return [
        *_not_finite(panel, panel.covariates, schema.covariates, f"{where}, covariates"),
        *_not_finite(panel, panel.outcomes, schema.outcomes, f"{where}, outcomes"),
        *_not_finite(panel, panel.statics, schema.statics, f"{where}, statics"),
    ]


def query_problems(queries: Queries, panel: Panel, schema: PanelSchema, where: str = "queries") -> list[Diagnostic]:
    """Return every broken invariant of a query set on its panel as an error with its first place."""
    widths = _widths(where, plan=(queries.plan, schema.treatments.width))
    if queries.outcomes is not None:
        widths += _widths(where, outcomes=(queries.outcomes, len(schema.outcomes)))
    subject, origin = queries.subject.astype(np.int64), queries.origin.astype(np.int64)
    outside = (subject < 0) | (subject >= panel.n_subjects)
    if outside.any():
        first = subject[outside][0]
        problem = f"{_queries(outside)} about rows outside the panel's 0 to {panel.n_subjects - 1}"
        return [*widths, invalid(problem, f"{where}, subject {first}")]
    beyond = (origin < 0) | (origin >= panel.length[subject])
    findings = list(widths)
    if beyond.any():
        first = int(np.flatnonzero(beyond)[0])
        row = subject[first]
        problem = f"{_queries(beyond)} with an origin outside the subject's observed steps"
        place = f"{where}, query {first}, subject {panel.subject_id[row]}"
        allowed = f"origin {origin[first]} must be between 0 and {panel.length[row] - 1}"
        findings.append(invalid(problem, place, allowed))
    if widths:
        return findings
    unclear: NDArray[np.bool_] = np.any(_unclear_treatments(queries.plan, schema.treatments), axis=-1)
    if unclear.any():
        problem = f"{_queries(unclear)} with treatments that the schema does not encode"
        findings.append(invalid(problem, f"{where}, query {int(np.flatnonzero(unclear)[0])}"))
    return findings


def not_finite_answers(queries: Queries, where: str = "queries") -> list[Diagnostic]:
    """Return an error if known answers are NaN or infinite, with count and first place."""
    if queries.outcomes is None or np.isfinite(queries.outcomes).all():
        return []
    bad = np.argwhere(~np.isfinite(queries.outcomes))
    problem = counted(len(bad), "NaN or infinite answer")
    return [invalid(problem, f"{where}, query {bad[0][0]}, step {bad[0][1]}")]


def _widths(where: str, **fields: tuple[NDArray[np.generic], int]) -> list[Diagnostic]:
    return [
        invalid(f"{field} has {values.shape[-1]} columns, the schema has {want}", f"{where}, {field}")
        for field, (values, want) in fields.items()
        if values.shape[-1] != want
    ]


def _not_finite(
    panel: Panel, values: NDArray[np.float32], variables: Sequence[Variable], where: str
) -> list[Diagnostic]:
    bad = ~np.isfinite(values)
    findings = []
    for column in np.flatnonzero(bad.any(axis=tuple(range(bad.ndim - 1)))):
        places = np.argwhere(bad[..., column])
        step = f", step {places[0][1]}" if places.shape[1] > 1 else ""
        findings.append(
            invalid(
                f"'{variables[int(column)].name}' has {counted(len(places), 'NaN or infinite value')}",
                f"{where}, first at subject {panel.subject_id[places[0][0]]}{step}",
                "fill or remove the missing values",
            )
        )
    return findings


def _queries(mask: NDArray[np.bool_]) -> str:
    return counted(int(mask.sum()), "query", "queries")


def _unclear_treatments(encoded: NDArray[np.generic], encoding: TreatmentEncoding) -> NDArray[np.bool_]:
    """Return which steps are neither one class (multiclass) nor zeros and ones (multilabel), or have no finite dose."""
    levels, doses = np.split(encoded, [encoding.level_width], axis=-1)
    ones = levels == 1
    unclear: NDArray[np.bool_] = (~ones & (levels != 0)).any(axis=-1) | ~np.isfinite(doses).all(axis=-1)
    if encoding.mode == "multiclass":
        unclear |= ones.sum(axis=-1) != 1
    return unclear
