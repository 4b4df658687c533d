"""What a column of an unknown table looks like: types, values, whether it changes within a subject (polars)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import polars as pl

from costar_cli.panel.findings import shown
from costar_cli.panel.tables.files import TableFile, collected
from costar_cli.panel.tables.readings import Reading, as_read

__all__ = ["Facts", "Sample", "sample_of"]

MOST_ROWS: Final = 200_000
BLANK: Final = ("NA", "NaN", "null")


@dataclass(frozen=True, eq=False)
class Facts:
    """One column of a sample."""

    name: str
    text: pl.Series

    @cached_property
    def known(self) -> pl.Series:
        """Return the values that are not missing."""
        return self.text.drop_nulls()

    @property
    def missing(self) -> int:
        """Return how many values are missing."""
        return int(self.text.null_count())

    @cached_property
    def values(self) -> list[str]:
        """Return the first few different values, sorted."""
        return [str(value) for value in self.known.unique().sort().head(200).to_list()]

    @cached_property
    def distinct(self) -> int:
        """Return the number of different values."""
        return int(self.known.n_unique())

    @cached_property
    def numbers(self) -> pl.Series | None:
        """Return the values as numbers, None where one of them is none."""
        numbers = self.text.cast(pl.Float64, strict=False)
        return numbers if numbers.is_finite().sum() == len(self.known) > 0 else None

    @cached_property
    def moments(self) -> pl.Series | None:
        """Return the values as dates and times, None where one of them is none."""
        if self.numbers is not None or not len(self.known):
            return None
        frame = pl.DataFrame({"x": self.text})
        moments = frame.select(as_read(pl.col("x"), pl.String(), Reading("x", "us"), BLANK)).to_series()
        return None if (moments.drop_nulls() < -(2**62)).any() else moments.cast(pl.Datetime("us"))

    @property
    def binary(self) -> bool:
        """Return whether all values are 0 and 1, or true and false."""
        low = {value.lower() for value in self.values} if self.distinct <= 2 else {""}
        return low <= {"0", "1", "0.0", "1.0"} or low <= {"true", "false"}

    @cached_property
    def words(self) -> set[str]:
        """Return the words of the name: `heartRate_bpm` has `heart`, `rate` and `bpm`."""
        apart = re.sub(r"([a-z])([A-Z])", r"\1 \2", self.name)
        return {word for word in re.split(r"[\W_\d]+", apart.lower()) if word}

    @property
    def summary(self) -> str:
        """Return a few words on the values."""
        numbers, moments = self.numbers, self.moments
        if numbers is not None and not self.binary:
            known = numbers.drop_nulls().to_list()
            text = f"{min(known):g} to {max(known):g}"
        elif moments is not None:
            dates = moments.drop_nulls().to_list()
            text = f"{min(dates)} to {max(dates)}"
        else:
            text = shown(self.values, 4).replace("'", "") if self.values else "no value"
        return f"{text}, {self.missing:,} missing" if self.missing else text


@dataclass(frozen=True, eq=False)
class Sample:
    """The first rows of a table, column by column; `unusable` are columns of types that no role takes."""

    name: str
    columns: dict[str, Facts]
    unusable: list[str] = field(default_factory=list)
    height: int = 0

    def steady(self, subject: str, name: str) -> bool:
        """Return whether a column has at most one value per subject."""
        pair = pl.DataFrame({"subject": self.columns[subject].text, "value": self.columns[name].text}).drop_nulls()
        return bool(pair.group_by("subject").agg(pl.col("value").n_unique())["value"].max() in (None, 1))

    def lengths(self, subject: str) -> list[int]:
        """Return the number of rows per subject, sorted."""
        return sorted(int(count) for count in self.columns[subject].known.value_counts()["count"].to_list())


def sample_of(files: Sequence[TableFile]) -> Sample:
    """Return the first 200,000 rows of the first file that has any."""
    for file in files:
        unusable = [name for name, kind in file.types.items() if kind.is_nested() or kind in (pl.Binary, pl.Object)]
        usable = [name for name in file.types if name not in unusable]
        readings = [Reading(name, "text") for name in usable]
        columns = [
            as_read(file.column(r.column), file.types[r.column], r, BLANK).alias(str(i)) for i, r in enumerate(readings)
        ]
        with collected(file.path):
            frame = file.scan.head(MOST_ROWS).select(columns).collect()
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
        if frame.height:
            facts = {name: Facts(name, frame[str(i)]) for i, name in enumerate(usable)}
            return Sample(file.path.stem, facts, unusable, frame.height)
    return Sample("", {})
