"""Times that are periods: months, quarters, weeks and years, each of them when it begins (polars)."""

import re
from typing import Final

import polars as pl

from costar_cli.data.calendar import FORMS, period_pattern

MONTH: Final = "%Y-%m"
_OF_DAYS: Final = ("%d", "%e", "%j", "%u", "%w", "%a", "%A", "%D", "%F", "%x", "%c", "%v", "%s", "%+")


def format_of_period(cell: object, written: str) -> str:
    """Return the advice to give the format of a time that looks like a period, if it was not `written` so."""
    text = str(cell).strip()
    looks = [form for form in (*FORMS, MONTH) if re.fullmatch(period_pattern(form) or "", text, re.IGNORECASE)]
    return f'give `format = "{looks[0]}"` in [time]' if looks and looks[0] != written else ""


def length_of(written: str) -> str:
    """Return how long the periods are that a format writes, as a duration of polars; empty where it writes days."""
    if any(day in written for day in _OF_DAYS):
        return ""
    lengths = {"%V": "1w", "%q": "3mo", "%m": "1mo", "%b": "1mo", "%B": "1mo", "%Y": "1y", "%y": "1y"}
    return next((length for part, length in lengths.items() if part in written), "")


def of_format(raw: pl.Expr, written: str) -> pl.Expr:
    """Return texts in a format as times; a period is when it begins: a week on Monday, others on their first day."""
    if "%q" in written:
        part = raw.str.extract_groups(f"(?i)^{period_pattern(written)}$").struct
        year, quarter = (part.field(name).cast(pl.Int32, strict=False) for name in ("Y", "q"))
        return pl.datetime(year, 3 * quarter - 2, 1, time_unit="us")
    if not any(day in written for day in _OF_DAYS):
        first = {"%V": (" 1", " %u"), "%m": (" 01", " %d"), "%b": (" 01", " %d"), "%B": (" 01", " %d")}
        text, form = next((added for part, added in first.items() if part in written), ("", ""))
        raw, written = raw + text, written + form
    return raw.str.to_datetime(written, strict=False, time_unit="us")
