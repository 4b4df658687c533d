"""Panels, query sets and truth as the arrays of a file, and back with every check.

`<domain>/<split>/panel/<field>`, `<domain>/<split>/queries/<name>/<field>` and `<domain>/<split>/truth/<name>`: the
fields are those of `Panel` and `Queries`, with treatments and plans as small integers. Multiclass treatments
`[..., da]` become the class number `[...]`, with the largest value of the integer type for steps without a recorded
treatment (all columns zero). Multilabel treatments become bits, `[..., ceil(da / 8)]`. The columns of doses stand
beside them as they are, as `doses [..., columns]`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.calendar import Calendar
from costar_cli.data.findings import counted, panel_problems, query_problems
from costar_cli.data.panel import Panel
from costar_cli.data.queries import Plans, Queries
from costar_cli.data.schema import PanelSchema, TreatmentEncoding
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import ArtifactError, DataError

Arrays = Mapping[str, NDArray[Any]]
Layout = dict[str, tuple[np.dtype[Any], int]]  # type and number of axes by field
PANEL_FIELDS: Layout = {
    "covariates": (np.dtype(np.float32), 3),
    "outcomes": (np.dtype(np.float32), 3),
    "statics": (np.dtype(np.float32), 2),
    "length": (np.dtype(np.int64), 1),
    "subject_id": (np.dtype(np.int64), 1),
}
OPTIONAL_FIELDS: Layout = {
    "label": (np.dtype(np.str_), 1),
    "cluster": (np.dtype(np.int64), 1),
    "outcome_observed": (np.dtype(np.bool_), 3),
    "covariate_observed": (np.dtype(np.bool_), 3),
    "time": (np.dtype(np.int64), 2),
    "since": (np.dtype(np.int64), 1),
    "end": (np.dtype(np.int64), 1),
}
QUERY_FIELDS: Layout = {"subject": (np.dtype(np.int32), 1), "origin": (np.dtype(np.int16), 1)}
DOSES = "doses"
ANSWER_FIELDS: Layout = {"outcomes": (np.dtype(np.float32), 3), "scored": (np.dtype(np.bool_), 2)}


def panel_to_arrays(panel: Panel, schema: PanelSchema, group: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a panel by full name."""
    arrays = {f"{group}/{name}": np.asarray(getattr(panel, name), kind) for name, (kind, _) in PANEL_FIELDS.items()}
    optional = {name: getattr(panel, name) for name in OPTIONAL_FIELDS if name != "time"}
    optional["time"] = panel.calendar and panel.calendar.time_NK
    for name, (kind, _) in OPTIONAL_FIELDS.items():
        if (values := optional[name]) is not None:
            arrays[f"{group}/{name}"] = np.asarray(values, kind)
    return arrays | _packed(panel.treatments, schema.treatments, f"{group}/treatments")


def queries_to_arrays(queries: Queries, schema: PanelSchema, group: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a query set by full name."""
    stored = QUERY_FIELDS | (ANSWER_FIELDS if queries.outcomes is not None else {})
    arrays = {f"{group}/{name}": np.asarray(getattr(queries, name), kind) for name, (kind, _) in stored.items()}
    return arrays | _packed(queries.plan, schema.treatments, f"{group}/plan")


def panel_from_arrays(arrays: Arrays, schema: PanelSchema, group: str, clock: Mapping[str, Any] | None = None) -> Panel:
    """Return the panel of a group; its values may still be NaN. `clock` is the `kind` of its calendar, if it has one.

    Raises:
        ArtifactError: arrays are missing, unexpected or of the wrong type or width.
        DataError: an invariant of panels is broken.
    """
    present = {name: layout for name, layout in OPTIONAL_FIELDS.items() if f"{group}/{name}" in arrays}
    fields = _fields(arrays, group, PANEL_FIELDS | present | _codes(schema.treatments, "treatments"))
    fields["treatments"] = _unpacked(fields, schema.treatments, "treatments").astype(np.float32, copy=False)
    time_NK = fields.pop("time", None)
    if time_NK is not None and clock is None:
        raise ArtifactError("the data set has times, and does not say in which unit", where=group)
    panel = Panel(**fields, calendar=None if time_NK is None else Calendar(time_NK, **(clock or {})))
    _reject(panel_problems(panel, schema, group))
    return panel


def queries_from_arrays(arrays: Arrays, panel: Panel, schema: PanelSchema, group: str) -> Queries:
    """Return the query set of a group, asked about `panel`.

    Raises:
        ArtifactError: arrays are missing, unexpected or of the wrong type or width.
        DataError: an invariant of query sets is broken.
    """
    answered = any(f"{group}/{name}" in arrays for name in ANSWER_FIELDS)
    expected = QUERY_FIELDS | _codes(schema.treatments, "plan") | (ANSWER_FIELDS if answered else {})
    fields = _fields(arrays, group, expected)
    fields["plan"] = _unpacked(fields, schema.treatments, "plan")
    queries = Queries(**fields)
    _reject(query_problems(queries, panel, schema, group))
    return queries


def truth_from_arrays(arrays: Arrays, names: Iterable[str], panel: Panel, group: str) -> dict[str, NDArray[Any]]:
    """Return the truth of a group by name, one row per subject.

    Raises:
        ArtifactError: arrays are missing, unexpected, or have other rows than the panel.
    """
    found = _group(arrays, group)
    problems = [f"{name} is missing" for name in names if name not in found]
    problems += [f"{name} is unexpected" for name in found if name not in names]
    for name, values in found.items():
        rows = values.shape[0] if values.ndim else 0
        if rows != panel.n_subjects:
            problems.append(f"{name} has {counted(rows, 'row')} for {counted(panel.n_subjects, 'subject')}")
    _complain(problems, group)
    return found


def _codes(encoding: TreatmentEncoding, name: str) -> Layout:
    """Return the arrays that hold treatments: codes of levels and, if there are any, the columns of doses."""
    codes: Layout = {name: (code_dtype(encoding), 3 if encoding.mode == "multilabel" else 2)}
    return codes | ({DOSES: (np.dtype(np.float32), 3)} if encoding.doses else {})


def _packed(encoded: Plans, encoding: TreatmentEncoding, name: str) -> dict[str, NDArray[Any]]:
    if not encoding.doses:
        return {name: pack_treatments(encoded, encoding)}
    levels, doses = np.split(encoded, [encoding.level_width], axis=-1)
    return {name: pack_treatments(levels, encoding), f"{name.rpartition('/')[0]}/{DOSES}": doses.astype(np.float32)}


def _unpacked(fields: dict[str, NDArray[Any]], encoding: TreatmentEncoding, name: str) -> Plans:
    levels = unpack_treatments(fields[name], encoding)
    if not encoding.doses:
        return levels
    doses = fields.pop(DOSES)
    if doses.shape[:-1] != levels.shape[:-1]:
        raise DataError(f"doses have shape {doses.shape}, other treatments {levels.shape}")
    return np.concatenate([levels, doses], axis=-1, dtype=np.float32)


def _group(arrays: Arrays, group: str) -> dict[str, NDArray[Any]]:
    return {name.rsplit("/", 1)[1]: values for name, values in arrays.items() if name.rsplit("/", 1)[0] == group}


def _fields(arrays: Arrays, group: str, expected: Layout) -> dict[str, NDArray[Any]]:
    found = _group(arrays, group)
    problems = [f"{name} is missing" for name in expected if name not in found]
    problems += [f"{name} is unexpected" for name in found if name not in expected]
    for name, (dtype, axes) in expected.items():
        if (own := found.get(name)) is None:
            continue
        same = own.dtype.kind == "U" if dtype.kind == "U" else own.dtype == dtype  # text may have any length
        if not same or own.ndim != axes:
            problems.append(f"{name} is {own.ndim}-d {own.dtype}, expected {axes}-d {dtype}")
    _complain(problems, group)
    return found


def _complain(problems: list[str], group: str) -> None:
    if problems:
        raise ArtifactError(f"the arrays of {group} are not as expected", where=group, details=problems)


def _reject(findings: list[Diagnostic]) -> None:
    if findings:
        first = findings[0]
        details = [str(finding) for finding in findings] if len(findings) > 1 else []
        raise DataError(first.text, where=first.subject, fix=first.fix or None, details=details)


def code_dtype(encoding: TreatmentEncoding) -> np.dtype[np.unsignedinteger]:
    """Return the integer type of the codes: one byte unless there are more than 255 classes."""
    wide = encoding.mode == "multiclass" and encoding.level_width > 255
    return np.dtype(np.uint16 if wide else np.uint8)


def pack_treatments(encoded: NDArray[np.generic], encoding: TreatmentEncoding) -> NDArray[np.unsignedinteger]:
    """Return the codes of encoded treatments `[..., da]`.

    Raises:
        DataError: the treatments are not zeros and ones, or a step has more than one class.
    """
    given = encoded != 0
    count = given.sum(axis=-1)
    if encoded.shape[-1] != encoding.level_width or not (encoded[given] == 1).all():
        raise DataError(f"encoded treatments must be zeros and ones in {encoding.level_width} columns")
    if encoding.mode == "multilabel":
        return np.packbits(given, axis=-1)
    if (count > 1).any():
        raise DataError("a step has more than one class of a multiclass treatment")
    dtype = code_dtype(encoding)
    return np.where(count == 0, np.iinfo(dtype).max, given.argmax(axis=-1)).astype(dtype)


def unpack_treatments(codes: NDArray[np.unsignedinteger], encoding: TreatmentEncoding) -> NDArray[np.uint8]:
    """Return the encoded treatments `[..., da]` of codes.

    Raises:
        DataError: codes of the wrong type or width, or of classes that do not exist.
    """
    dtype, width = code_dtype(encoding), encoding.level_width
    if codes.dtype != dtype:
        raise DataError(f"treatment codes have type {codes.dtype}, expected {dtype}")
    if encoding.mode == "multilabel":
        if codes.ndim == 0 or codes.shape[-1] != -(-width // 8):
            raise DataError(f"treatment codes of {width} binary treatments have shape {codes.shape}")
        return np.unpackbits(codes.astype(np.uint8, copy=False), axis=-1, count=width)
    if ((codes >= width) & (codes != np.iinfo(dtype).max)).any():
        raise DataError(f"treatment codes name classes beyond the {width} of the schema")
    encoded: NDArray[np.uint8] = (codes[..., None] == np.arange(width, dtype=dtype)).astype(np.uint8)
    return encoded
