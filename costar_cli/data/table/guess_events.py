"""Whether an unknown table is a log of events, and what its steps are like as columns (polars; spec TABLE-11)."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import polars as pl

from costar_cli.data.table.guess_keys import UNITS_US, Guess, Spacing, ordered, score
from costar_cli.data.table.profile import (
    CODE,
    SUBJECT,
    SUBJECT_TOO,
    TIME,
    TIME_TOO,
    VALUE,
    Facts,
    Sample,
    few,
    is_given,
)
from costar_cli.data.table.schema_time import MONDAY, parse_step

MOST_CODES: Final = 60  # that become columns, the most frequent ones
FEWEST_VALUES: Final = 0.5  # of a code's events, for it to be a measurement


@dataclass(frozen=True, eq=False)
class Log:
    """A sample that is a log of events, and which of its columns is what."""

    sample: Sample
    subject: Facts
    time: Facts
    code: Facts
    value: Facts

    @cached_property
    def events(self) -> pl.DataFrame:
        """Return whose each event was (`s`), when (`t`: microseconds, or numbers), its `code` and its `value`."""
        when = ordered(self.time)
        when = when if self.time.moments is None else when.cast(pl.Int64)
        columns = {"s": self.subject.text, "t": when, "code": self.code.text, "value": self.value.numbers}
        return pl.DataFrame(columns).drop_nulls(["s", "t", "code"])

    @cached_property
    def codes(self) -> dict[str, bool]:
        """Return the codes that become columns, the most frequent first, and whether each is measured.

        That is one most of whose events have a value, and that is not called a drug or an intervention.
        """
        found = self.events.group_by("code").agg(pl.len(), pl.col("value").is_not_null().mean())
        found = found.sort(["len", "code"], descending=[True, False])
        return {
            code: valued >= FEWEST_VALUES and not _is_given(code)
            for code, _, valued in found.head(MOST_CODES).rows()
            if code not in self.sample.columns
        }

    @cached_property
    def spacing(self) -> Spacing:
        """Return steps as long as the events of what is measured most often are apart."""
        often = next((code for code, measured in self.codes.items() if measured), next(iter(self.codes)))
        apart = _apart(self.events.filter(pl.col("code") == often)).cast(pl.Float64)
        middle = float(apart.filter(apart > 0).quantile(0.5) or 1)
        if self.time.moments is None:
            step: int | float | str = max(1, round(middle)) if self._counts else float(f"{middle:.1g}")
            far = f"{middle:g}"
        else:
            word, unit = min(UNITS_US, key=lambda known: abs(math.log(middle / known[1])))
            step, far = f"1{word}", f"{middle / unit:.2g} {word}"
        doubt = (
            f"half of the events of `{often}` are up to {far} apart: are steps so short that what is measured in one "
            "comes before what is given?"
        )
        return Spacing(step, "error", doubt=doubt, remark="events are gathered in steps of this length")

    @property
    def _counts(self) -> bool:
        times = self.events["t"].cast(pl.Float64)
        return bool((times == times.round()).all())

    def as_table(self) -> Sample:
        """Return the sample as a table with a row per step that has events, and a column for each code.

        The most frequent code is the last one: where no name tells the outcome, it is guessed to be that.
        """
        size, start = self._size
        step = ((pl.col("t") - start) / size).floor().cast(pl.Int64).alias("step")
        made = [
            (pl.col("value").filter(own).drop_nulls().last() if measured else own.any().cast(pl.Int64))
            .cast(pl.String).alias(f"of {code}")
            for code, measured in self.codes.items()
            for own in [pl.col("code") == code]
        ]  # fmt: skip
        frame = self.events.with_columns(step).sort("s", "t").group_by("s", "step", maintain_order=True).agg(*made)
        when = frame["step"] * size + start
        text = when.cast(pl.Datetime("us")).dt.to_string() if self.time.moments is not None else when.cast(pl.String)
        facts = {
            self.subject.name: Facts(self.subject.name, frame["s"]),
            self.time.name: Facts(self.time.name, text),
        }
        facts |= {column.name: Facts(column.name, self._first(column, frame["s"])) for column in self._steady}
        facts |= {code: Facts(code, frame[f"of {code}"]) for code in reversed(self.codes)}
        return Sample(self.sample.name, facts, self.sample.unusable, frame.height)

    @property
    def _size(self) -> tuple[float, int]:
        """Return how long a step is, and where counting begins, as times are."""
        step = self.spacing.step
        return (parse_step(step).size, MONDAY) if isinstance(step, str) else (step, 0)

    @property
    def _steady(self) -> list[Facts]:
        """Return the columns that say something once per subject."""
        changers = self.sample.changers(self.subject.name)
        own = {self.subject.name, self.time.name, self.code.name, self.value.name}
        return [column for name, column in self.sample.columns.items() if name not in own and not changers[name]]

    def _first(self, column: Facts, subject: pl.Series) -> pl.Series:
        known = pl.DataFrame({"s": self.subject.text, "x": column.text}).drop_nulls().unique("s", keep="first")
        return pl.DataFrame({"s": subject}).join(known, on="s", how="left", maintain_order="left")["x"]

    def tell(self, guess: Guess) -> None:
        """Give subject and time their roles, and say what is left out and what a step is."""
        guess.subject, guess.time, guess.spacing = self.subject.name, self.time.name, self.spacing
        guess.entries |= {self.subject.name: {"role": "subject"}, self.time.name: {"role": "time"}}
        guess.doubt(self.time.name, self.spacing.doubt)
        kept = {*guess.sample.columns, self.code.name, self.value.name}
        for name in self.sample.columns:
            if name not in kept:
                guess.leave_out(name, "changes from event to event")

    def settle(self, guess: Guess) -> None:
        """Say of the codes' entries how their events are gathered, and what to settle about that."""
        amounts = self.events.drop_nulls("value")["code"].unique().to_list()
        for code, measured in self.codes.items():
            entry = guess.entries.get(code)
            if entry is None:
                continue
            if not measured and entry["role"] != "treatment":
                entry["aggregate"] = "any"
            if entry["role"] == "treatment" and code in amounts:
                guess.doubt(code, 'its events have amounts: `kind = "continuous"` makes their sum a dose')


def find_log(sample: Sample) -> Log | None:
    """Return the log that a sample is, None where each column is a variable.

    It has a column called a code, which changes within subjects, and one called a value; no other number changes, and
    several rows have the same subject and time, or times are uneven.
    """
    columns = [column for column in sample.columns.values() if column.distinct > 1]
    for code in (c for c in columns if c.words & CODE and c.numbers is None and c.moments is None and not c.missing):
        subjects = [c for c in columns if c is not code and c.moments is None and c.distinct < sample.height]
        subject = max(subjects, key=lambda c: score(c, SUBJECT, SUBJECT_TOO), default=None)
        if subject is None or not score(subject, SUBJECT, SUBJECT_TOO):
            continue
        changers = sample.changers(subject.name)
        numbers = [c for c in columns if c.numbers is not None and c is not subject and changers[c.name]]
        times = [c for c in columns if c.moments is not None and changers[c.name]]
        times = times or [c for c in numbers if score(c, TIME, TIME_TOO)]
        values = [c for c in numbers if c.words & VALUE and c not in times]
        if len(times) != 1 or len(values) != 1 or set(map(id, numbers)) - {id(times[0]), id(values[0])}:
            continue
        found = Log(sample, subject, times[0], code, values[0])
        shared = sample.repeated(subject.name, times[0].name) > few(sample.height)
        if 2 * changers[code.name] >= subject.distinct and len(found.codes) > 1 and (shared or _uneven(found)):
            return found
    return None


def _uneven(log: Log) -> bool:
    """Return whether the distances between a subject's events are of many lengths."""
    apart = _apart(log.events)
    return apart.n_unique() > few(len(apart))


def _apart(events: pl.DataFrame) -> pl.Series:
    """Return how far each event is from the one before of its subject."""
    return events.sort("s", "t").select(pl.col("t").diff().over("s")).to_series().drop_nulls()


def _is_given(code: str) -> bool:
    words = Facts(code, pl.Series([], dtype=pl.String)).words
    return is_given(words)
