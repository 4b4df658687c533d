"""One column of a long table at a time: cast what can be cast, name the first value that cannot (polars)."""

import difflib

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.panel.findings import Finding, counted, shown
from costar_cli.panel.schema import TreatmentEncoding, Variable
from costar_cli.panel.write_table import labels_are_numbers

__all__ = ["read_key", "read_treatments", "read_variable"]

Mask = NDArray[np.bool_]

LARGEST = float(np.finfo(np.float32).max)
MISSING, UNKNOWN = -1, -2
BLANK = ["", "nan", "null"]


def read_key(series: pl.Series, name: str) -> tuple[pl.Series, list[Finding]]:
    """Return a column of whole numbers as int64, null where it is not one, and what is wrong with it."""
    stripped = _plain(series)
    if stripped is None or series.dtype == pl.Boolean:
        fix = "give whole numbers, counting steps" if series.dtype.is_temporal() else "give whole numbers"
        whole = pl.Series([None] * len(series), dtype=pl.Int64)
        return whole, [Finding("error", f"column '{name}' holds {series.dtype}, not whole numbers", fix=fix)]
    whole = stripped.cast(pl.Int64, strict=False)
    if not series.dtype.is_integer():  # 7.0 and "7.0" are whole, 7.5 is not
        number = stripped.cast(pl.Float64, strict=False)
        exact = pl.select(pl.when((number == number.floor()) & (number.abs() < 2**53)).then(number)).to_series()
        whole = pl.select(pl.coalesce(exact.cast(pl.Int64, strict=False), whole)).to_series()
        whole = pl.select(pl.when(number.is_null() | (number == number.floor())).then(whole)).to_series()
    findings = []
    for mask, problem in [
        (stripped.is_null(), "missing"),
        (whole.is_null() & stripped.is_not_null(), "not whole"),
    ]:
        if mask.any():
            row = mask.arg_true()[0]
            first = "" if stripped[row] is None else f", first {stripped[row]!r}"
            text = f"column '{name}': {counted(int(mask.sum()), 'value')} {problem}{first}"
            findings.append(Finding("error", text, f"row {row + 1} of the table", "give whole numbers"))
    return whole, findings


def read_variable(
    series: pl.Series, keys: pl.DataFrame, variable: Variable, *, allow_constant: bool
) -> tuple[NDArray[np.float32], list[Finding]]:
    """Return a variable's column as numbers, NaN where it has none, and what is wrong with it.

    Args:
        series: the column, in the order of `keys`.
        keys: subject and time of each row, to name places.
        variable: what the column should hold.
        allow_constant: accept a column that never changes.
    """
    name, plain = variable.name, _plain(series)
    if plain is None:
        problem = f"column '{name}' holds {series.dtype}, not numbers"
        return np.full(len(series), np.nan, np.float32), [Finding("error", problem, fix="give numbers")]
    number = plain.cast(pl.Float64, strict=False).to_numpy().astype(np.float64)
    empty = plain.is_null().to_numpy()
    worded = ~empty & np.isnan(number)
    huge = np.abs(number) > LARGEST
    findings = _bad(series, "infinite or too large", huge, keys, fix="correct them", show=True)
    findings += _bad(series, "not numeric", worded, keys, fix="give numbers", show=True)
    good = ~(empty | worded | huge)
    if variable.kind == "binary":
        odd = good & ~np.isin(number, (0, 1))
        findings += _bad(
            series, "other than 0 or 1", odd, keys, fix=f"declare it as continuous, not {variable.kind}", show=True
        )
    if variable.kind == "count":
        odd = good & ((number < 0) | (number != np.floor(number)))
        findings += _bad(
            series,
            "negative or fractional",
            odd,
            keys,
            fix=f"declare it as continuous, not {variable.kind}",
            show=True,
        )
    sound = not findings
    findings += _bad(series, "missing", empty, keys, fix="fill or remove them")
    number[huge] = np.nan
    values: NDArray[np.float32] = number.astype(np.float32)
    known = values[~np.isnan(values)]
    if sound and not allow_constant and len(known) and (known == known[0]).all():
        problem = f"column '{name}' never changes, all values are {known[0]:g}"
        findings.append(Finding("error", problem, fix="leave it out of the schema"))
    return values, findings


def read_treatments(
    frame: pl.DataFrame, keys: pl.DataFrame, encoding: TreatmentEncoding, *, allow_constant: bool
) -> tuple[NDArray[np.float32], list[Finding]]:
    """Return the encoded treatments `[rows, da]`, zeros where none was recorded, and what is wrong with them."""
    findings: list[Finding] = []
    values = np.full((frame.height, len(encoding.names)), UNKNOWN, dtype=np.int64)
    for i, (name, levels) in enumerate(zip(encoding.names, encoding.levels, strict=True)):
        values[:, i] = _levels(frame[name], levels)
        one_of = f"use one of {shown(levels, 12)}"
        near = _near(frame[name], levels, values[:, i])
        unknown = values[:, i] == UNKNOWN
        findings += _bad(frame[name], "unknown", unknown, keys, fix=near or one_of, show=True)
        known = values[values[:, i] >= 0, i]
        if not allow_constant and not unknown.any() and len(known) and (known == known[0]).all():
            problem = f"treatment '{name}' never changes, it is always '{levels[known[0]]}'"
            findings.append(Finding("error", problem, fix="leave it out of the schema: nothing can be learned of it"))
    last = (keys["subject"] != keys["subject"].shift(-1)).fill_null(value=True).to_numpy()
    unrecorded = last & (values == MISSING).all(axis=1)
    for i, name in enumerate(encoding.names):
        missing = (values[:, i] == MISSING) & ~unrecorded
        fix = "fill them; only a subject's last step may have no treatments"
        findings += _bad(frame[name], "missing", missing, keys, fix=fix)
    complete = (values >= 0).all(axis=1)
    if encoding.mode == "multiclass":
        classless = complete & ~(values[:, None, :] == np.asarray(encoding.classes)).all(axis=-1).any(axis=-1)
        if classless.any():
            first = encoding.describe(values[classless][0])
            rows = counted(int(classless.sum()), "row")
            problem = f"{rows} with a combination of treatments that has no class, first {first}"
            findings.append(Finding("error", problem, _place(keys, classless), "add the class to the schema"))
        complete &= ~classless
    encoded = np.zeros((frame.height, encoding.width), dtype=np.float32)
    encoded[complete] = encoding.encode(values[complete])
    return encoded, findings


def _plain(series: pl.Series) -> pl.Series | None:
    """Return a column of numbers, truth values or text, blanks as null and text stripped; None for other types."""
    if series.dtype in (pl.Categorical, pl.Enum):
        series = series.cast(pl.String)
    if series.dtype == pl.String:
        text = series.str.strip_chars()
        absent = text.is_null() | text.str.to_lowercase().is_in(BLANK)
        return pl.select(pl.when(~absent).then(text)).to_series()
    if series.dtype == pl.Null:
        return series.cast(pl.Float64)
    if series.dtype.is_float():
        return series.fill_nan(None)
    return series if series.dtype.is_numeric() or series.dtype == pl.Boolean else None


def _bad(
    series: pl.Series, what: str, mask: Mask, keys: pl.DataFrame, *, fix: str, show: bool = False
) -> list[Finding]:
    if not mask.any():
        return []
    first = f", first {series[int(mask.argmax())]!r}" if show else ""
    problem = f"column '{series.name}': {counted(int(mask.sum()), 'value')} {what}{first}"
    return [Finding("error", problem, _place(keys, mask), fix)]


def _place(keys: pl.DataFrame, mask: Mask) -> str:
    subject, time = keys.select("subject", "time").row(int(mask.argmax()))
    return f"first at subject {subject}, step {time}"


def _levels(series: pl.Series, levels: tuple[str, ...]) -> NDArray[np.int64]:
    """Return each row's level number, MISSING where there is none, UNKNOWN where it is not a level."""
    values = series.cast(pl.String) if series.dtype in (pl.Categorical, pl.Enum) else series
    if values.dtype != pl.String and _plain(values) is None:
        return np.where(series.is_null().to_numpy(), MISSING, UNKNOWN)
    distinct = values.drop_nulls().unique()
    codes = pl.Series([_level(value, levels) for value in distinct.to_list()], dtype=pl.Int64)
    numbered = values.replace_strict(distinct, codes, default=MISSING, return_dtype=pl.Int64)
    return numbered.to_numpy().astype(np.int64)


def _level(value: object, levels: tuple[str, ...]) -> int:
    text = str(value).strip()
    if text in levels:
        return levels.index(text)
    if text.lower() in BLANK:
        return MISSING
    if len(levels) == 2 and text.lower() in ("true", "false"):
        return int(text.lower() == "true")
    try:
        number = float(text)
    except ValueError:
        return UNKNOWN
    if labels_are_numbers(levels):
        number = next((i for i, label in enumerate(levels) if _equals(label, number)), UNKNOWN)
    return int(number) if number in range(len(levels)) else UNKNOWN


def _equals(label: str, number: float) -> bool:
    try:
        return float(label) == number
    except ValueError:
        return False


def _near(series: pl.Series, levels: tuple[str, ...], codes: NDArray[np.int64]) -> str:
    unknown = np.flatnonzero(codes == UNKNOWN)
    close = difflib.get_close_matches(str(series[int(unknown[0])]), levels, n=1) if len(unknown) else []
    return f"did you mean '{close[0]}'?" if close else ""
