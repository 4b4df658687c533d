"""How the texts of a table are written, or seem to be: marks in numbers, comments, what stands for missing (polars)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import polars as pl

from costar_cli.data.calendar import FORMS, period_pattern
from costar_cli.data.table.schema import TableSchema

SPACES: Final = "[ \u00a0\u202f]"  # French Excel writes one that breaks no line
NO_NUMBER: Final = "?"


@dataclass(frozen=True, slots=True)
class Written:
    """The decimal mark of numbers, the mark between their thousands, and what a comment begins with; empty for none."""

    decimal: str = "."
    thousands: str = ""
    comment: str = ""

    @classmethod
    def of(cls, schema: TableSchema) -> Self:
        """Return how a schema says that its table is written."""
        return cls(schema.decimal, schema.thousands, schema.comment)

    @property
    def _between(self) -> str:
        return SPACES if self.thousands == " " else re.escape(self.thousands)

    @property
    def keys(self) -> dict[str, str]:
        """Return the keys of a schema that say so."""
        said = {"decimal": self.decimal, "thousands": self.thousands, "comment": self.comment}
        return {key: text for key, text in said.items() if text != getattr(PLAIN, key)}

    @property
    def grouped(self) -> str:
        """Return the regular expression of a number with marks between its thousands, without its beginning and end."""
        return rf"[+-]?\d{{1,3}}(?:{self._between}\d{{3}})+(?:{re.escape(self.decimal)}\d*)?"

    @property
    def number(self) -> str:
        """Return the regular expression of a number."""
        plain = rf"[+-]?(?:\d+(?:{re.escape(self.decimal)}\d*)?|{re.escape(self.decimal)}\d+)(?:[eE][+-]?\d+)?"
        return f"^(?:{self.grouped}|{plain})$" if self.thousands else f"^{plain}$"

    def plain(self, text: pl.Expr) -> pl.Expr:
        """Return texts with the numbers among them as programs write them.

        Marks that do not stand between thousands, or that are the decimal mark of others, make no number: 12.5 is not
        125 where `.` stands between thousands.
        """
        if self.thousands:
            without = text.str.replace_all(self._between, "")
            text = pl.when(text.str.contains(f"^{self.grouped}$")).then(without).otherwise(text)
        if self.decimal != ".":
            whole = ~text.str.contains(".", literal=True).fill_null(value=False)
            text = pl.when(whole).then(text.str.replace(self.decimal, ".", literal=True)).otherwise(pl.lit(NO_NUMBER))
        return text


PLAIN: Final = Written()
OTHERS: Final = tuple(Written(d, t) for d, t in ((",", ""), (".", ","), (",", "."), (",", " "), (".", " "), (".", "'")))


def advice_on_marks(cell: object) -> str:
    """Return what to do about a text that is a number with other marks than the schema says; nothing of others."""
    text = str(cell).strip()
    if re.match(PLAIN.number, text):
        return "write all numbers with the marks that `decimal` and `thousands` say"
    fits = [written.keys for written in OTHERS if re.match(written.number, text)]
    if not fits:
        return ""
    fewest = [keys for keys in fits if len(keys) == min(map(len, fits))]
    ways = [" and ".join(f'`{key} = "{mark}"`' for key, mark in keys.items()) for keys in fewest]
    return f"declare {' or '.join(ways)}, or write numbers with a decimal point, and without separators of thousands"


MOSTLY: Final = 0.9  # of the values of a column, share that is numbers where others are slips
STAND_FOR_MISSING: Final = (".", "n/a", "#n/a", "<na>")  # among numbers; `.` of NONMEM and SAS
FEWEST_ROWS, MOST_VALUES = 100, 500_000  # that are looked at for marks
MOST_COLUMNS: Final = 200  # of numbers, and of others: six ways of writing take seconds for thousands
DEFAULT_BLANK: Final = ("NA", "NaN", "null")


@dataclass(frozen=True, slots=True)
class WrittenGuess:
    """How a table is written, by what it is not sure, and the texts to be added to `blank`."""

    written: Written = PLAIN
    doubt: str = ""
    blank: tuple[str, ...] = ()

    def plain(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return texts with numbers as programs write them, null where they stand for a missing value."""
        if self.blank:
            frame = frame.select(pl.when(~_is_any(self.blank)).then(pl.all()))
        if self.written.decimal == "." and not self.written.thousands:
            return frame
        columns = [name for name, share in _shares(frame, self.written).items() if share >= MOSTLY]
        return frame.with_columns(
            pl.when(pl.col(name).str.contains(self.written.number))
            .then(self.written.plain(pl.col(name)))
            .otherwise(name)
            for name in columns
        )


def guess_written(texts: pl.DataFrame, separator: str) -> WrittenGuess:
    """Return how the numbers of columns of texts are written, of all of them alike.

    That is the way in which most columns are numbers: of several, as programs write them, else the one with the fewest
    values left. Where that does not tell either, a table whose `separator` is no comma has decimal commas.
    """
    some = _with_any(texts, STAND_FOR_MISSING)
    blank: tuple[str, ...] = ()  # those that stand among numbers in each column that holds others, and in one at all
    for text in STAND_FOR_MISSING:
        others = _with_any(some, [text])
        if others.width:
            others = others.select(pl.when(~_is_any([text])).then(pl.all()))
            others = others.select(name for name in others.columns if others[name].null_count() < others.height)
        by_way = [_shares(others, way) for way in (PLAIN, *OTHERS)] if others.width else []
        if by_way and min(pl.DataFrame(by_way).max().row(0)) >= MOSTLY:
            blank += (text,)
    frame = WrittenGuess(blank=blank).plain(texts)
    ways = (PLAIN, *sorted(OTHERS, key=lambda way: (way.decimal == ",") is (separator == ",")))
    plain = _shares(frame, PLAIN)
    odd = [name for name, share in plain.items() if share < MOSTLY]
    frame = frame.select(
        *odd[:MOST_COLUMNS], *[name for name, share in plain.items() if share >= MOSTLY][:MOST_COLUMNS]
    )
    shares = {way: [share for share in _shares(frame, way).values() if share >= MOSTLY] for way in ways}
    score = {way: (len(of), sum(of)) for way, of in shares.items()}
    best = max(ways, key=lambda way: score[way])
    if best == PLAIN:
        return WrittenGuess(blank=blank)
    as_good = [way for way in ways if score[way] == score[best] and len(way.keys) == len(best.keys)]
    other = " and ".join(f'`{key} = "{mark}"`' for key, mark in as_good[1].keys.items()) if len(as_good) > 1 else ""
    return WrittenGuess(best, f"or {other}?" if other else "", blank)


def _shares(frame: pl.DataFrame, way: Written) -> dict[str, float]:
    """Return the share of the known values of columns that are numbers of a way of writing, by the first rows.

    All columns are one query, as there may be many.
    """
    if not frame.width or not frame.height:
        return {}
    some = frame.head(max(FEWEST_ROWS, MOST_VALUES // frame.width))
    shares = some.select(pl.all().drop_nulls().str.contains(way.number).mean().fill_null(0.0)).row(0, named=True)
    return {name: float(share) for name, share in shares.items()}


def _with_any(texts: pl.DataFrame, of: Sequence[str]) -> pl.DataFrame:
    """Return the columns that hold some of the texts."""
    if not texts.width or not texts.height:
        return pl.DataFrame()
    has = texts.select(_is_any(of).any()).row(0)
    return texts.select(name for name, has_it in zip(texts.columns, has, strict=True) if has_it)


def _is_any(of: Sequence[str]) -> pl.Expr:
    return pl.all().is_in([*of, *(text.upper() for text in of)])


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
