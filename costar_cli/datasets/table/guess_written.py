"""How the texts of a table seem to be written: marks in numbers, texts that stand for a missing value (polars)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from costar_cli.datasets.table.written import OTHERS, PLAIN, Written

MOSTLY: Final = 0.9  # of the values of a column, share that is numbers where others are slips
STAND_FOR_MISSING: Final = (".", "n/a", "#n/a", "<na>")  # among numbers; `.` of NONMEM and SAS
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
            missing = pl.all().str.to_lowercase().is_in(list(self.blank))
            frame = frame.select(pl.when(~missing).then(pl.all()))
        if self.written.is_plain:
            return frame
        columns = [name for name in frame.columns if _share(frame[name], self.written) >= MOSTLY]
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
    blank = tuple(text for text in STAND_FOR_MISSING if _stands_among_numbers(texts, text))
    frame = WrittenGuess(blank=blank).plain(texts)
    ways = (PLAIN, *sorted(OTHERS, key=lambda way: (way.decimal == ",") is (separator == ",")))
    shares = {way: [_share(frame[name], way) for name in frame.columns] for way in ways}
    score = {way: (sum(x >= MOSTLY for x in of), sum(x for x in of if x >= MOSTLY)) for way, of in shares.items()}
    best = max(ways, key=lambda way: score[way])
    if best == PLAIN or score[best][0] == score[PLAIN][0]:
        return WrittenGuess(blank=blank)
    as_good = [way for way in ways if score[way] == score[best] and len(way.keys) == len(best.keys)]
    other = " and ".join(f'`{key} = "{mark}"`' for key, mark in as_good[1].keys.items()) if len(as_good) > 1 else ""
    return WrittenGuess(best, f"or {other}?" if other else "", blank)


def _share(column: pl.Series, way: Written) -> float:
    """Return the share of the known values of a column that are numbers of a way of writing."""
    known = column.drop_nulls()
    return float(known.str.contains(way.number).mean() or 0.0) if len(known) else 0.0  # type: ignore[arg-type]


def _stands_among_numbers(texts: pl.DataFrame, text: str) -> bool:
    """Return whether a text stands among numbers in some column, and in none among words."""
    found = False
    for column in texts.get_columns():
        here = (column.str.to_lowercase() == text).fill_null(value=False)
        others = column.filter(~here).drop_nulls()
        if not here.any() or not len(others):
            continue
        if max(_share(others, way) for way in (PLAIN, *OTHERS)) < MOSTLY:
            return False
        found = True
    return found


def written_lines(guess: WrittenGuess, check: str) -> Sequence[tuple[str, object, str]]:
    """Return the keys of a schema that say how a table is written, with a remark each; `check` starts a question."""
    lines: list[tuple[str, object, str]] = [(key, mark, "") for key, mark in guess.written.keys.items()]
    if guess.doubt and lines:
        lines[0] = (*lines[0][:2], check + guess.doubt)
    if guess.blank:
        lines.append(("blank", [*DEFAULT_BLANK, *guess.blank], f"# {guess.blank[0]} stands among numbers"))
    return lines
