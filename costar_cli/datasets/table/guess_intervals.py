"""Whether each row of an unknown table is an interval `(start, stop]`, and which column its end is (polars)."""

from typing import Final

import polars as pl

from costar_cli.datasets.table.guess_keys import Guess, ordered
from costar_cli.datasets.table.intervals import PAIRS
from costar_cli.datasets.table.profile import Facts

STARTS, STOPS = ({pair[end] for pair in PAIRS} for end in (0, 1))
MEETING: Final = (0.5, 0.95)  # of rows with a next one, share that end where that begins: if called a stop, and if not


def find_intervals(guess: Guess) -> None:
    """Note the end of the rows' intervals: after the time of each row, and for most the time of the subject's next one.

    Where the column that seemed to be the time is that end, by the names of both, the other one becomes the time.
    """
    if guess.subject is None or guess.time is None:
        return
    time = guess.facts(guess.time)
    for column in guess.sample.columns.values():
        if column.name in (guess.subject, guess.time) or (column.moments is None) != (time.moments is None):
            continue
        swapped = time.words & STOPS or column.words & STARTS  # else it may be when the row before was
        for start, stop in ((time, column), *([(column, time)] if swapped else [])):
            if _are_intervals(guess.facts(guess.subject), start, stop):
                del guess.entries[guess.time]
                guess.time, guess.stop = start.name, stop.name
                guess.entries[start.name] = {"role": "time"}
                guess.doubt(
                    start.name,
                    f"each row is an interval that ends at `{stop.name}`: was its treatment given in it, and did an "
                    "event that it marks come at its end?",
                )
                return


def _are_intervals(subject: Facts, start: Facts, stop: Facts) -> bool:
    """Return whether all rows end after they begin, none after the subject's next one begins, and most just then."""
    begin, end = ordered(start), ordered(stop)
    if begin is start.text or end is stop.text or start.missing or stop.missing or begin.dtype != end.dtype:
        return False
    frame = pl.DataFrame({"s": subject.text, "start": begin, "stop": end}).drop_nulls().sort("s", "start")
    frame = frame.with_columns(next=pl.col("start").shift(-1).over("s"))
    followed = frame.drop_nulls("next")
    if not followed.height or not (frame["stop"] > frame["start"]).all():
        return False
    if (followed["stop"] > followed["next"]).any():
        return False
    share, called = float((followed["stop"] == followed["next"]).sum()) / followed.height, stop.words & STOPS
    return share >= MEETING[0 if called else 1]
