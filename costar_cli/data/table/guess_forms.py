"""Tables of other forms than a row per visit: intervals, wide tables, doses among measurements, logs of events."""

import math
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import polars as pl

from costar_cli.data.findings import counted
from costar_cli.data.table.ends import MOST, meeting
from costar_cli.data.table.guess_keys import UNITS_US, Guess, Spacing, apart_of, ascends, ordered, score
from costar_cli.data.table.profile import (
    CODE,
    STARTS,
    STOPS,
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
from costar_cli.data.table.schema_column import MONDAY, parse_step
from costar_cli.errors import DataError

MOSTLY: Final = 0.95  # of rows with a next one, share that end where that begins, if the end is not called a stop


def find_intervals(guess: Guess) -> None:
    """Note the end of the rows' intervals: after the time of each row, and for most the time of the subject's next one.

    Where the column that seemed to be the time is that end, by the names of both, the other one becomes the time. Ends
    that subjects' last rows lack are asked about.
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
            begin, end = ordered(start), ordered(stop)
            if begin is start.text or end is stop.text or start.missing or begin.dtype != end.dtype:
                continue  # an end cannot be read
            frame = pl.DataFrame({"s": subject.text, "start": begin, "stop": end}).with_row_index("row", 1)
            frame = frame.sort("s", "start", maintain_order=True)
            written, called = next(iter(start.date_formats), ""), bool(stop.words & STOPS)
            blank = frame["stop"].is_null()
            if (blank & ~(frame["s"].is_last_distinct() & called)).any():
                continue  # an interval of a last row may go on, another one ends
            share, unit = meeting(frame, written)
            if share >= (MOST if called else MOSTLY) and (called or not unit):
                del guess.entries[guess.time]
                guess.time, guess.stop, guess.closed = start.name, stop.name, bool(unit)
                guess.sample.columns[start.name] = start
                guess.entries[start.name] = {"role": "time"}
                last = frame.filter(pl.col("s").is_last_distinct()).drop_nulls()
                end_of = pl.col("stop")
                later = end_of + 1 if unit == "1" else end_of.dt.offset_by(unit) if unit else end_of
                guess.last_intervals = last.select("start", later)
                when = "with" if unit else "at"
                guess.doubt(
                    start.name,
                    f"each row is an interval that ends {when} `{stop.name}`: was its treatment given in it, and did "
                    "an event that it marks come at its end?",
                )
                if blank.any():
                    who = counted(int(blank.sum()), "subject")
                    guess.doubt(start.name, f"the last interval of {who} has no `{stop.name}`: write how far it goes")
                return
            if not blank.any() and start.words & STARTS and called:
                guess.doubt(stop.name, _overlaps(frame, written))


def _alike(start: Facts, stop: Facts) -> tuple[Facts, Facts]:
    """Return both ends with the formats of dates that fit both: of 02/01/2022 to 02/28/2022 the second one tells."""
    both = tuple(written for written in start.date_formats if written in stop.date_formats)
    if not both or start.date_formats == stop.date_formats == both:
        return start, stop
    begin, end = (Facts(column.name, column.text, column.as_text) for column in (start, stop))
    begin.__dict__["date_formats"] = end.__dict__["date_formats"] = both  # as `cached_property` keeps it
    return begin, end


def _overlaps(frame: pl.DataFrame, written: str) -> str:
    """Return which of a few subjects have rows that reach into their next one; nothing where rows are no intervals."""
    frame = frame.drop_nulls()
    wrong = frame.filter(pl.col("stop") > pl.col("start").shift(-1).over("s")).sort("row")
    subjects = wrong["s"].n_unique()
    rest = frame.filter(~pl.col("s").is_in(wrong["s"].implode())).drop("row")
    if not 0 < subjects <= few(frame.height) or meeting(rest, written)[0] < MOST:
        return ""
    return (
        f"rows seem to be intervals that end at it, but those of {counted(subjects, 'subject')} overlap, first of "
        f"{wrong['s'][0]} in row {wrong['row'][0]}: correct them and run `--init` again"
    )


FEWEST_TIMES: Final = 3  # of one variable; of several, 2 are enough
MOST_NAMED: Final = 6  # variables that the ways to reshape name
NUMBERED: Final = re.compile(
    r"(?P<name>.*?[^\W\d_])(?P<between>[\W_]*([\W_](t|v|w|m|d|y|week|day|month|visit|wave|year)[\W_]*)?)\d{1,4}",
    re.IGNORECASE,
)


def refuse_wide(guess: Guess, path: Path) -> None:
    """Stop where each row is a subject and numbered columns are times: `bp_0`, `bp_1`, `bp_2`.

    A table whose subjects, or rows, follow each other in time is none.

    Raises:
        DataError: it is so; the fix is a line of pandas or R that makes a row per subject and time.
    """
    variables: dict[str, dict[str, list[Facts]]] = {}
    for column in guess.sample.columns.values():
        if match := NUMBERED.fullmatch(column.name):
            variables.setdefault(match["between"], {}).setdefault(match["name"], []).append(column)
    between = max(variables, key=lambda between: sum(map(len, variables[between].values())), default="")
    wide = {name: columns for name, columns in variables.get(between, {}).items() if len(columns) > 1}
    numbered = {column.name for columns in wide.values() for column in columns}
    keys = [c for c in guess.sample.columns.values() if score(c, SUBJECT, SUBJECT_TOO) and c.name not in numbered]
    alone = [c for c in keys if c.distinct == c.count]
    several = len(wide) > 1 or (bool(alone) and max(map(len, wide.values()), default=0) >= FEWEST_TIMES)
    if not several or len(alone) < len([c for c in keys if c.distinct > 1]):
        return
    own = guess.subject is not None and guess.time is not None and not {guess.subject, guess.time} & numbered
    if own and ascends(guess.facts(guess.subject or ""), guess.facts(guess.time or "")):
        return  # rows follow each other by a time of their own
    spans = ", ".join(f"'{columns[0].name}' to '{columns[-1].name}'" for columns in list(wide.values())[:2])
    spans += " and others" if len(wide) > 2 else ""
    some = list(wide)[:MOST_NAMED]
    frame, key = ("df", alone[0].name) if alone else ("df.reset_index()", "index")
    *names, mark = (re.sub(r"[^\w ]", ".", text) for text in (*some, between))  # without a backslash, for R
    pattern = f"^({'|'.join(names)}){mark}([0-9]+)$"
    pandas = f"pd.wide_to_long({frame}, {some!r}, i={key!r}, j='time', sep={between!r}).reset_index()"
    r = f"tidyr::pivot_longer(df, matches('{pattern}'), names_to = c('.value', 'time'), names_pattern = '{pattern}')"
    raise DataError(
        f"the table is wide: it has a row per subject, and {spans} look like one variable at several times",
        where=str(path),
        fix=f"make a row per subject and time: in pandas `{pandas}`, in R `{r}`",
    )


AMOUNT: Final = "amt"  # names as NONMEM and nlmixr2 have them
MEASURED: Final = "dv"
KINDS: Final = ("evid", "mdv")  # of rows: one of them tells such a table
OTHERS: Final = {
    **dict.fromkeys(KINDS, "tells rows of doses from those of measurements, as `{amount}` does"),
    "cmt": "tells where a dose goes or what is measured",
    **dict.fromkeys(("rate", "dur", "tinf"), "tells how long an infusion takes"),
    **dict.fromkeys(("addl", "ii", "ss"), "tells of doses that have no row"),
    **dict.fromkeys(("cens", "limit", "blq"), "tells which values are below a limit"),
}


def find_dosing(guess: Guess) -> None:
    """Make the amount the treatment, and one step of the rows of one time, where the columns are those of dosing.

    The column of what is measured becomes the outcome, where it is numbers; rows of doses measure nothing.
    """
    named = {name.lower(): name for name in guess.sample.columns}
    amount, kind, measured = named.get(AMOUNT), next((named[k] for k in KINDS if k in named), None), named.get(MEASURED)
    if amount is None or kind is None or None in (guess.subject, guess.time):
        return
    if guess.facts(amount).numbers is None or guess.facts(guess.time or "").numbers is None:
        return
    guess.bins = True
    instead: dict[str, dict[str, object]] = {amount: {"role": "treatment", "kind": "continuous", "missing": "fill"}}
    if measured is not None and guess.facts(measured).numbers is not None:
        instead[measured], guess.rival = {"role": "outcome", "missing": "fill"}, ""
    for name in (*(named[other] for other in OTHERS if other in named), *instead):
        for notes in (guess.entries, guess.left_out, guess.doubts):
            notes.pop(name, None)
    for other, what in OTHERS.items():
        if other in named:
            guess.leave_out(named[other], what.format(amount=amount))
    for entry in instead.values():
        for name in guess.named(str(entry["role"])):
            guess.entries[name] = {"role": "covariate"}
    guess.entries |= instead
    if measured in instead:
        of_doses = (guess.facts(kind).as_numbers != 0).fill_null(value=False)
        if held := int(guess.facts(measured or "").text.filter(of_doses).is_not_null().sum()):
            what = f"{held:,} rows of doses (`{kind}`) hold a value: leave it blank there unless it was measured"
            guess.doubt(measured or "", what)
    repeats = [guess.facts(named[name]).as_numbers.fill_null(0.0) for name in ("addl", "ii") if name in named]
    if any((numbers != 0).any() for numbers in repeats):
        guess.doubt(amount, "doses that ADDL and II repeat have no rows: write a row for each")
    guess.put_in_order()


def bin_doses(guess: Guess) -> None:
    """Choose the commonest distance for the steps of a dosing table, where the guess is that each row is a step."""
    if guess.subject is None or guess.time is None or not guess.bins or guess.spacing.gaps != "elapsed":
        return
    number = guess.facts(guess.time).as_numbers
    size = float(apart_of(guess.facts(guess.subject).text, number).mode().sort().to_numpy()[0])
    guess.doubts[guess.time].remove(guess.spacing.doubt)
    doubt = "times are unevenly spaced: choose the `step` whose rows become one"
    guess.spacing = Spacing(int(size) if size.is_integer() else size, "fill", doubt=doubt)
    guess.doubt(guess.time, doubt)
    for name in guess.named("covariate"):
        guess.entries[name]["missing"] = "fill"


MOST_CODES: Final = 60  # that become columns, the most frequent ones
FEWEST_VALUES: Final = 0.5  # of a code's events, for it to be a measurement


@dataclass(frozen=True, eq=False)
class Log:
    """A sample that is a log of events, and which of its columns is what (spec TABLE-11)."""

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
        counts = self.events.group_by("code").agg(pl.len(), pl.col("value").is_not_null().mean())
        counts = counts.sort(["len", "code"], descending=[True, False])
        no_texts = pl.Series([], dtype=pl.String)
        return {
            code: valued >= FEWEST_VALUES and not is_given(Facts(code, no_texts).words)
            for code, _, valued in counts.head(MOST_CODES).rows()
            if code not in self.sample.columns
        }

    def apart(self, code: str | None = None) -> pl.Series:
        """Return how far each event, or each of a code, is from the one before of its subject."""
        events = self.events if code is None else self.events.filter(pl.col("code") == code)
        return events.sort("s", "t").select(pl.col("t").diff().over("s")).to_series().drop_nulls()

    @cached_property
    def spacing(self) -> Spacing:
        """Return steps as long as the events of what is measured most often are apart."""
        often = next((code for code, measured in self.codes.items() if measured), next(iter(self.codes)))
        apart = self.apart(often).cast(pl.Float64)
        middle = float(apart.filter(apart > 0).quantile(0.5) or 1)
        if self.time.moments is None:
            times = self.events["t"].cast(pl.Float64)
            whole = bool((times == times.round()).all())
            step: int | float | str = max(1, round(middle)) if whole else float(f"{middle:.1g}")
            far = f"{middle:g}"
        else:
            word, unit = min(UNITS_US, key=lambda known: abs(math.log(middle / known[1])))
            step, far = f"1{word}", f"{middle / unit:.2g} {word}"
        doubt = (
            f"half of the events of `{often}` are up to {far} apart: are steps so short that what is measured in one "
            "comes before what is given?"
        )
        return Spacing(step, "error", doubt=doubt, remark="events are gathered in steps of this length")

    def as_table(self) -> Sample:
        """Return the sample as a table with a row per step that has events, and a column for each code.

        The most frequent code is the last one: where no name tells the outcome, it is guessed to be that.
        """
        step = self.spacing.step
        size, start = (parse_step(step).size, MONDAY) if isinstance(step, str) else (step, 0)
        made = [
            (pl.col("value").filter(own).drop_nulls().last() if measured else own.any().cast(pl.Int64))
            .cast(pl.String).alias(f"of {code}")
            for code, measured in self.codes.items()
            for own in [pl.col("code") == code]
        ]  # fmt: skip
        number = ((pl.col("t") - start) / size).floor().cast(pl.Int64).alias("step")
        frame = self.events.with_columns(number).sort("s", "t").group_by("s", "step", maintain_order=True).agg(*made)
        when = frame["step"] * size + start
        text = when.cast(pl.Datetime("us")).dt.to_string() if self.time.moments is not None else when.cast(pl.String)
        facts = {
            self.subject.name: Facts(self.subject.name, frame["s"]),
            self.time.name: Facts(self.time.name, text),
        }
        changers, keys = self.sample.changers(self.subject.name), {self.code.name, self.value.name, *facts}
        for name, column in self.sample.columns.items():
            if name not in keys and not changers[name]:  # it says something once per subject
                first = pl.DataFrame({"s": self.subject.text, "x": column.text}).drop_nulls().unique("s", keep="first")
                value = frame.select("s").join(first, on="s", how="left", maintain_order="left")["x"]
                facts[name] = Facts(name, value)
        facts |= {code: Facts(code, frame[f"of {code}"]) for code in reversed(self.codes)}
        return Sample(self.sample.name, facts, self.sample.unusable, frame.height)

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
        log = Log(sample, subject, times[0], code, values[0])
        shared = sample.repeated(subject.name, times[0].name) > few(sample.height)
        several = 2 * changers[code.name] >= subject.distinct and len(log.codes) > 1
        if several and (shared or log.apart().n_unique() > few(len(log.apart()))):  # times of many distances
            return log
    return None
