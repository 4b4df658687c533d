"""Whether each row of an unknown table is an interval `(start, stop]`, and which column its end is (polars)."""

from typing import Final

import polars as pl

from costar_cli.data.findings import counted
from costar_cli.data.table.guess_keys import Guess, ordered
from costar_cli.data.table.intervals import MOST, meeting
from costar_cli.data.table.profile import STARTS, STOPS, Facts, few

MOSTLY: Final = 0.95  # of rows with a next one, share that end where that begins, if the end is not called a stop


def find_intervals(guess: Guess) -> None:
    """Note the end of the rows' intervals: after the time of each row, and for most the time of the subject's next one.

    Where the column that seemed to be the time is that end, by the names of both, the other one becomes the time.
    """
    if guess.subject is None or guess.time is None:
        return
    time, subject = guess.facts(guess.time), guess.facts(guess.subject)
    for column in guess.sample.columns.values():
        if column.name in (guess.subject, guess.time) or (column.moments is None) != (time.moments is None):
            continue
        swapped = time.words & STOPS or column.words & STARTS  # else it may be when the row before was
        for pair in ((time, column), *([(column, time)] if swapped else [])):
            start, stop = _alike(*pair)
            unit = _closing_unit(subject, start, stop)
            if unit is not None:
                del guess.entries[guess.time]
                guess.time, guess.stop, guess.closed = start.name, stop.name, bool(unit)
                guess.sample.columns[start.name] = start
                guess.entries[start.name] = {"role": "time"}
                when = "with" if unit else "at"
                guess.doubt(
                    start.name,
                    f"each row is an interval that ends {when} `{stop.name}`: was its treatment given in it, and did "
                    "an event that it marks come at its end?",
                )
                return
            if start.words & STARTS and stop.words & STOPS and (overlaps := _overlaps(subject, start, stop)):
                guess.doubt(stop.name, overlaps)


def _alike(start: Facts, stop: Facts) -> tuple[Facts, Facts]:
    """Return both ends with the formats of dates that fit both: of 02/01/2022 to 02/28/2022 the second one tells."""
    both = tuple(written for written in start.date_formats if written in stop.date_formats)
    if not both or start.date_formats == stop.date_formats == both:
        return start, stop
    begin, end = (Facts(column.name, column.text, column.as_text) for column in (start, stop))
    begin.__dict__["date_formats"] = end.__dict__["date_formats"] = both  # as `cached_property` keeps it
    return begin, end


def _closing_unit(subject: Facts, start: Facts, stop: Facts) -> str | None:
    """Return the unit that ends of closed intervals lack, empty for half-open ones; None where rows are no intervals.

    All are to end after they begin, none after the subject's next one begins, and most just then.
    """
    frame = _ends(subject, start, stop)
    if frame is None:
        return None
    share, unit = meeting(frame, next(iter(start.date_formats), ""))
    called = bool(stop.words & STOPS)
    return None if share < (MOST if called else MOSTLY) or (unit and not called) else unit


def _ends(subject: Facts, start: Facts, stop: Facts) -> pl.DataFrame | None:
    """Return subjects `s` and both ends of their rows; None where an end is missing or cannot be read."""
    begin, end = ordered(start), ordered(stop)
    if begin is start.text or end is stop.text or start.missing or stop.missing or begin.dtype != end.dtype:
        return None
    return pl.DataFrame({"s": subject.text, "start": begin, "stop": end})


def _overlaps(subject: Facts, start: Facts, stop: Facts) -> str:
    """Return which of a few subjects have rows that reach into their next one; nothing where rows are no intervals."""
    frame = _ends(subject, start, stop)
    if frame is None:
        return ""
    frame = frame.drop_nulls().with_row_index("row", 1).sort("s", "start", maintain_order=True)
    wrong = frame.filter(pl.col("stop") > pl.col("start").shift(-1).over("s")).sort("row")
    subjects = wrong["s"].n_unique()
    rest = frame.filter(~pl.col("s").is_in(wrong["s"].implode())).drop("row")
    if not 0 < subjects <= few(frame.height) or meeting(rest, next(iter(start.date_formats), ""))[0] < MOST:
        return ""
    row, who = wrong["row"][0], wrong["s"][0]
    return (
        f"rows seem to be intervals that end at it, but those of {counted(subjects, 'subject')} overlap, first of "
        f"{who} in row {row}: correct them and run `--init` again"
    )
