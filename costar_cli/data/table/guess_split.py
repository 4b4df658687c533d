"""How an unknown table is split, and how many steps ahead all its parts can be asked for (polars)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from costar_cli.data.findings import counted
from costar_cli.data.table.guess_keys import Guess, is_unread_time, ordered
from costar_cli.data.table.schema_file import toml_value
from costar_cli.data.table.time_split import LEAST

LONGEST_HORIZON: Final = 6
FEWEST_SUBJECTS: Final = 7  # of which a share of 0.15 is at least one
TRAIN, VAL, TEST = 0.7, 0.15, 0.15


@dataclass(frozen=True, slots=True)
class SplitGuess:
    """The horizon; and what `[split]` says: of so many subjects, by time or not, and when val and test begin, and why.

    Without moments, parts are shares of the subjects, or of the rows.
    """

    horizon: int = LONGEST_HORIZON
    subjects: int = 0
    by_time: bool = False
    moments: tuple[int | float | str, ...] = ()
    why: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the lines of `[split]`."""
        of = "moments" if self.moments else "shares of the rows, in the order of time"
        yield f"\n[split]  # {of if self.by_time else 'shares of the subjects'}"
        if self.by_time:
            few = counted(self.subjects, "subject")
            yield f'by = "time"  # {few} cannot fill three parts: each series is split instead'
        if self.moments:
            val, test = map(toml_value, self.moments)
            yield f"val_from = {val}  # {self.why}"
            yield f"test_from = {test}"
        else:
            yield f"train = {TRAIN}\nval = {VAL}\ntest = {TEST}"
        yield "seed = 0"


def find_split(guess: Guess) -> SplitGuess:
    """Return how to split: by subject, or by time where there are too few subjects to fill three parts.

    By time, train is to include a change of each treatment and outcome: where shares of all rows would have little of
    one in it, they are of the rows from that change on. One that changes too late for any such split is doubted.
    """
    if guess.subject is None:
        return SplitGuess()
    steps = _steps(guess)
    lengths = steps["s"].value_counts()["count"].sort()
    horizon = max(1, min(LONGEST_HORIZON, (int(lengths[len(lengths) // 2]) - 1) // 2)) if len(lengths) else 1
    by_time = guess.time is not None and 0 < len(lengths) < FEWEST_SUBJECTS
    if not by_time or guess.named("split") or is_unread_time(guess.facts(guess.time or "")):
        return SplitGuess(horizon, len(lengths), by_time)
    rank, times = steps["rank"], steps["t"].unique().sort()
    changes = {name: _first_change(guess, name, times) for name in guess.named("treatment") + guess.named("outcome")}
    name, change = max(changes.items(), key=lambda item: item[1], default=("", 0))
    whole, before = _begins(rank), int((rank < change).sum())
    late = before > (TRAIN - VAL) * len(rank)
    change_text = f"first changes at {_written(times[change])}" if name else ""
    val, test = _begins(rank.slice(before)) if late else whole
    test = min(test, len(times) - 1)
    val = min(val, test - 1)
    why = f"`{name}` {change_text}, and train is to include that" if late else "each part has a step"
    if val < max(change, 0) + LEAST:
        guess.doubt(name, f"{change_text}, too late to learn from and to test later" * (change >= whole[0]))
        val, test = whole
    own = [rank < val, (rank >= val) & (rank < test), rank >= test]
    longest = [max(steps.filter(part)["s"].value_counts()["count"].to_list(), default=0) for part in own]
    horizon = max(1, min(horizon, longest[0] - 1, *longest[1:]))
    moments = () if (val, test) == whole else (_written(times[val]), _written(times[test]))
    return SplitGuess(horizon, len(lengths), by_time, moments, why)


def _steps(guess: Guess) -> pl.DataFrame:
    """Return a row per step that has one, in the order of time: subject `s`, time `t`, its place among all times."""
    subject = guess.facts(guess.subject or "").text
    if guess.time is None:
        return pl.DataFrame({"s": subject}).drop_nulls()
    steps = pl.DataFrame({"s": subject, "t": ordered(guess.facts(guess.time))}).drop_nulls()
    if guess.bins and isinstance(size := guess.spacing.step, int | float):
        steps = steps.with_columns(pl.col("t") // size * size)
    return steps.unique().sort("t", "s").with_columns(rank=pl.col("t").rank("dense").cast(pl.Int64) - 1)


def _begins(rank: pl.Series) -> tuple[int, int]:
    """Return at which times val and test begin, where the shares of the rows are reached."""
    val, test = (int(rank[min(int(share * len(rank)), len(rank) - 1)]) for share in (TRAIN, TRAIN + VAL))
    return val, test


def _first_change(guess: Guess, name: str, times: pl.Series) -> int:
    """Return at which time a column first has another value than before, -1 for never."""
    frame = pl.DataFrame({"t": ordered(guess.facts(guess.time or "")), "x": guess.facts(name).text}).drop_nulls()
    if not frame.height or name not in guess.sample.columns:
        return -1
    frame = frame.sort("t", maintain_order=True)
    other = frame.filter(pl.col("x") != frame["x"][0])["t"]
    return int(times.search_sorted(other[0], side="right")) - 1 if len(other) else -1  # binned times are earlier


def _written(moment: object) -> int | float | str:
    """Return a time as a schema has it."""
    if isinstance(moment, float):
        return int(moment) if moment.is_integer() else moment
    return str(moment).removesuffix(" 00:00:00")
