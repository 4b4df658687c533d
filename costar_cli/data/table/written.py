"""How the texts of a table are written: the marks in its numbers, and lines that are comments (polars)."""

import re
from dataclasses import dataclass
from typing import Final, Self

import polars as pl

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
    def is_plain(self) -> bool:
        """Return whether numbers are as programs write them."""
        return self.decimal == "." and not self.thousands

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
