"""A schema to start from, guessed from names and values, with a remark on every line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from keyword import iskeyword
from pathlib import Path
from typing import Final

import polars as pl

from costar_cli.data.findings import counted, shown
from costar_cli.data.registry import RESERVED_NAMES
from costar_cli.data.table.files import leading_comment, open_files, without_rows
from costar_cli.data.table.guess_forms import bin_doses, find_dosing, find_intervals, find_log, refuse_wide
from costar_cli.data.table.guess_keys import Guess, doubt_keys, find_keys, find_steps, is_unread_time, ordered
from costar_cli.data.table.guess_roles import QUESTIONS, find_roles
from costar_cli.data.table.profile import Facts, Sample, sample_of
from costar_cli.data.table.schema import SERIES
from costar_cli.data.table.schema_file import CHECK, toml_key, toml_row, toml_value
from costar_cli.data.table.splits import LEAST
from costar_cli.data.table.written import DEFAULT_BLANK, Written, WrittenGuess, advice_on_marks

LONGEST_REMARK: Final = 400
OLDEST: Final = 0.8  # the quantile of a static from which the example of a target begins
KEYS: Final = {"subject": "the one that tells subjects apart", "time": "the one that orders a subject's rows"}
LONGEST_HORIZON: Final = 6
FEWEST_SUBJECTS: Final = 7  # of which a share of 0.15 is at least one
FEWEST_NUMBERS: Final = 10  # different values by which one is seen to be far from the others
TRAIN, VAL, TEST = 0.7, 0.15, 0.15
STAND_INS: Final = (-1.0, -9.0, *(sign * (10.0**digits - 1) for sign in (-1, 1) for digits in range(2, 7)))


@dataclass(frozen=True, slots=True)
class GuessedSchema:
    """A schema as commented TOML, and what is to be settled about it: a sentence each, a column's name first."""

    text: str
    doubts: tuple[str, ...]


def guess_schema(paths: Sequence[Path], statics: Path | None = None) -> GuessedSchema:
    """Return a schema for the tables, from the names and the first 200,000 rows.

    A few cells that do not fit, such as a bad date, say nothing about their column: they are told as doubts. So are all
    treatments and outcomes: who knows the data must confirm them.

    Raises:
        DataError: a file cannot be read, has no rows, or has a row per subject and a column per time.
    """
    sample = _sample(paths, "row per subject and time")
    log = find_log(sample)
    wide = _sample([statics], "row per subject") if statics else Sample("", {})
    guess = Guess(log.as_table() if log else sample, wide)
    if log:
        log.tell(guess)
        find_roles(guess)
        log.settle(guess)
    else:
        find_keys(guess)
        refuse_wide(guess, paths[0])
        find_intervals(guess)
        find_roles(guess)
        find_dosing(guess)
        find_steps(guess)
        bin_doses(guess)
    for name, entry in guess.entries.items():
        column, role = guess.facts(name), str(entry["role"])
        for what in _cells_in_doubt(column, role, entry.get("kind")):
            guess.doubt(name, what)
        if role in QUESTIONS:
            guess.doubt(name, QUESTIONS[role](guess, column))
    doubt_keys(guess)
    split = _find_split(guess)
    if statics is not None and guess.subject is not None and guess.subject not in guess.wide.columns:
        guess.doubt(guess.subject, f"{statics.name} has no such column, by which its rows would be found")
    guess.put_in_order()
    files = ", ".join(path.name for path in (*paths, *([statics] if statics else [])))
    events = {"code": log.code.name, "value": log.value.name} if log else {}
    lacking = [role for role in ("subject", "time", "treatment", "outcome") if not guess.named(role)]
    lacking = [role for role in lacking if role != "outcome" or not guess.named("event")]
    text = "\n".join(_schema_lines(guess, split, files, events, lacking)) + "\n"
    doubts = [f"{name}: {'; '.join(whats)}" for name, whats in guess.doubts.items()]
    return GuessedSchema(text, (*doubts, *(f"no column seems to be the {role}" for role in lacking)))


def _sample(paths: Sequence[Path], row: str) -> Sample:
    comment = next((mark for path in paths if path.is_file() and (mark := leading_comment(path))), "")
    sample = sample_of(open_files(paths, written=Written(comment=comment)))
    if not sample.height:
        raise without_rows(paths[0], row)
    return sample


def _cells_in_doubt(column: Facts, role: str, kind: object) -> Iterator[str]:
    """Yield what is to be settled about the cells of a column: those that do not fit, or may mean something else."""
    if kind == "categorical" or (role == "treatment" and kind is None):
        in_order = sorted(column.values, key=lambda text: (text.casefold(), text))
        groups = [list(group) for _, group in groupby(in_order, str.casefold)]
        pairs = [" and ".join(f"'{text}'" for text in group) for group in groups if len(group) > 1]
        more = " and more" if len(pairs) > 2 else ""
        yield f"{', '.join(pairs[:2])}{more} differ only in case: write what is one alike" if pairs else ""
    elif column.odd and role not in ("subject", "treatment", "domain", "split", "cluster"):
        number, what = len(column.odd), "number" if column.numbers is not None else "date"
        are, them = (
            (f"1 value is not a {what}", "it") if number == 1 else (f"{number:,} values are not {what}s", "them")
        )
        no_blank = role == "time" or bool(advice_on_marks(column.odd[0]))  # a number is no missing value
        blank = "" if no_blank else ", or add the text to `blank` where it means a missing value"
        yield f"{are} ({shown(dict.fromkeys(column.odd), 2)}): correct {them}{blank}"
    # Numbers that often stand for a missing value and are far from all others: 999, or -1 of a size
    asked = kind in (None, "continuous") and (role in ("covariate", "static", "outcome") or kind)
    numbers = column.numbers if asked else None
    if numbers is None or not {numbers.min(), numbers.max()} & set(STAND_INS):
        return
    others = numbers.filter(~numbers.is_in(STAND_INS)).drop_nulls()
    if others.n_unique() <= FEWEST_NUMBERS:
        return
    low, high = float(others.to_numpy().min()), float(others.to_numpy().max())
    far = [x for x in STAND_INS if not 2 * low - high <= x <= 2 * high - low or x < 0 < low]
    texts = column.text.filter(numbers.is_in(far).fill_null(value=False))
    if not texts.is_empty():
        which = f"{counted(len(texts), 'value')} of {shown(texts.unique().sort().to_list(), 2)}".replace("'", "")
        what = f"{which}, far from the others ({low:g} to {high:g})"
        yield f"{what}: correct, or add to `blank` where it means a missing value"


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


def _find_split(guess: Guess) -> SplitGuess:
    """Return how to split: by subject, or by time where there are too few subjects to fill three parts.

    By time, train is to include a change of each treatment and outcome: where shares of all rows would have little of
    one in it, they are of the rows from that change on. One that changes too late for any such split is doubted.
    """
    if guess.subject is None:
        return SplitGuess()
    if guess.time is None:
        steps = pl.DataFrame({"s": guess.facts(guess.subject).text}).drop_nulls()
    else:  # a row per step that has one, in the order of time, with its place among all times
        steps = guess.rows()
        if guess.bins and isinstance(size := guess.spacing.step, int | float):
            steps = steps.with_columns(pl.col("t") // size * size)
        steps = steps.unique().sort("t", "s").with_columns(rank=pl.col("t").rank("dense").cast(pl.Int64) - 1)
    lengths = steps["s"].value_counts()["count"].sort()
    horizon = max(1, min(LONGEST_HORIZON, (int(lengths[len(lengths) // 2]) - 1) // 2)) if len(lengths) else 1
    by_time = guess.time is not None and 0 < len(lengths) < FEWEST_SUBJECTS
    if not by_time or guess.named("split") or is_unread_time(guess.facts(guess.time or "")):
        return SplitGuess(horizon, len(lengths), by_time)
    rank, times = steps["rank"], steps["t"].unique().sort()
    changes = {}  # at which time a column first has another value than before, -1 for never
    for name in guess.named("treatment") + guess.named("outcome"):
        changes[name] = -1
        if name in guess.sample.columns:
            frame = pl.DataFrame({"t": ordered(guess.facts(guess.time or "")), "x": guess.facts(name).text})
            frame = frame.drop_nulls().sort("t", maintain_order=True)
            other = frame.filter(pl.col("x") != pl.col("x").first())["t"]
            if len(other):
                changes[name] = int(times.search_sorted(other[0], side="right")) - 1  # binned times are earlier
    name, change = max(changes.items(), key=lambda item: item[1], default=("", 0))
    whole, before = _begins(rank), int((rank < change).sum())
    late = before > (TRAIN - VAL) * len(rank)
    change_text = f"first changes at {_moment(times[change])}" if name else ""
    val, test = _begins(rank.slice(before)) if late else whole
    test = min(test, len(times) - 1)
    val = min(val, test - 1)
    why = f"`{name}` {change_text}, and train is to include that" if late else "each split has a step"
    if val < max(change, 0) + LEAST:
        guess.doubt(name, f"{change_text}, too late to learn from and to test later" * (change >= whole[0]))
        val, test = whole
    parts = [rank < val, (rank >= val) & (rank < test), rank >= test]
    longest = [max(steps.filter(part)["s"].value_counts()["count"].to_list(), default=0) for part in parts]
    horizon = max(1, min(horizon, longest[0] - 1, *longest[1:]))
    moments = () if (val, test) == whole else (_moment(times[val]), _moment(times[test]))
    return SplitGuess(horizon, len(lengths), by_time, moments, why)


def _begins(rank: pl.Series) -> tuple[int, int]:
    """Return at which times val and test begin, where the shares of the rows are reached."""
    val, test = (int(rank[min(int(share * len(rank)), len(rank) - 1)]) for share in (TRAIN, TRAIN + VAL))
    return val, test


def _moment(moment: object) -> int | float | str:
    """Return a time as a schema has it."""
    if isinstance(moment, float):
        return int(moment) if moment.is_integer() else moment
    return str(moment).removesuffix(" 00:00:00")


def _schema_lines(
    guess: Guess, split: SplitGuess, files: str, events: Mapping[str, str], lacking: Sequence[str]
) -> Iterator[str]:
    """Yield the lines of the file; `events` names the columns of code and value, where it is a log.

    No column seems to have one of the roles that are `lacking`, which a schema needs.
    """
    stem = "".join(c if (c.isascii() and c.isalnum()) or c in "-_." else " " for c in guess.sample.name)
    name = " ".join(stem.split()).strip("-_. ")[:48] or "table"
    yield f"# Guessed from {_comment(files)}. `costar settings schema` explains the keys."
    yield "# Read every line. Where it says CHECK, correct it and delete the comment: until then `costar ingest table`"
    yield "# rejects the schema, unless you add --accept-guesses."
    yield f"name = {toml_value(f'{name} table' if name.casefold() in RESERVED_NAMES else name)}"
    yield f"horizon = {split.horizon}  # steps predicted from an origin"
    if guess.subject == SERIES:
        yield f"subject = []  {_remark(guess, SERIES, f'one series of {guess.sample.height:,} rows')}"
    way = guess.sample.written if guess.sample.written != WrittenGuess() else guess.wide.written
    for i, (key, mark) in enumerate(way.written.keys.items()):
        yield toml_row(key, mark) + (f"  {CHECK}{way.doubt}" if way.doubt and i == 0 else "")
    if way.blank:
        yield f"{toml_row('blank', [*DEFAULT_BLANK, *way.blank])}  # {way.blank[0]} is among numbers"
    if events:
        yield f"\n[events]  {CHECK}is this a log, with a row per event? Then each code below is a column of its steps"
        yield from (toml_row(key, name) for key, name in events.items())
    yield "\n[columns]  # { role = ..., kind = ..., unit = ... }"
    for role in lacking:
        yield f'# NAME = {{ role = "{role}" }}  {CHECK}no column seems to be {KEYS.get(role, "one")}'
    for name, entry in guess.entries.items():
        if name != SERIES:
            facts = _facts_on(guess, guess.facts(name), str(entry["role"]))
            yield f"{toml_key(name)} = {toml_value(entry)}  {_remark(guess, name, facts)}"
    for name, why in guess.left_out.items():
        asked = any(doubt.startswith("left out") for doubt in guess.doubts.get(name, ()))
        remark = _remark(guess, name, "" if asked else f"left out since it {why}")
        yield f'# {_comment(toml_key(name))} = {{ role = "..." }}  {remark}'
    yield from _time_lines(guess, split)
    if not guess.named("domain"):
        yield "\n# [domain]  # who the target is: subjects that models are transferred to"
        yield f"# target = {toml_value(_comment(_target(guess)))}"
    yield "# few_shot = 0.1 in [split] keeps that share of the target's training subjects"


def _time_lines(guess: Guess, split: SplitGuess) -> Iterator[str]:
    """Yield how time becomes steps, and which of them or of the subjects are in each split."""
    spacing = guess.spacing
    yield "\n[time]"
    yield f"step = {toml_value(spacing.step)}" + (f"  # {spacing.remark}" if spacing.remark else "")
    if spacing.unit:
        yield f"unit = {toml_value(spacing.unit)}  # what results call a step"
    if guess.stop:
        yield f"stop = {toml_value(guess.stop)}  # the end of each row's interval, at which an event of the row came"
    if guess.closed:
        yield "closed = true  # each interval includes its end"
    formats = guess.facts(guess.time).date_formats if guess.time is not None else ()
    if written := spacing.format or next(iter(formats), ""):
        yield f"format = {toml_value(written)}"
    if guess.bins:
        yield "bin = true  # rows of one time, of a dose and of a measurement, are one step"
    remarks = {"fill": "a step without a row is a missing value", "elapsed": "visits at any time"}
    if spacing.gaps in remarks:
        yield f"gaps = {toml_value(spacing.gaps)}  # {remarks[spacing.gaps]}"
    if guess.named("split"):
        return
    of = "moments" if split.moments else "shares of the rows, in the order of time"
    yield f"\n[split]  # {of if split.by_time else 'shares of the subjects'}"
    if split.by_time:
        few = counted(split.subjects, "subject")
        yield f'by = "time"  # {few} cannot fill three splits: each series is split instead'
    if split.moments:
        val, test = map(toml_value, split.moments)
        yield f"val_from = {val}  # {split.why}\ntest_from = {test}"
    else:
        yield f"train = {TRAIN}\nval = {VAL}\ntest = {TEST}"
    yield "seed = 0"


def _remark(guess: Guess, name: str, facts: str) -> str:
    """Return a line's comment: what is to be settled about the column, and what its values are."""
    doubts = "; ".join(guess.doubts.get(name, ()))
    doubts += "" if doubts.endswith(("?", ".")) or not (doubts and facts) else "."
    return (CHECK if doubts else "# ") + _comment(" ".join(text for text in (doubts, facts) if text))


def _facts_on(guess: Guess, column: Facts, role: str) -> str:
    if role == "subject":
        lengths = guess.sample.lengths(column.name)
        each = " each" if len(lengths) > 1 else ""
        rows = f"{lengths[0]} rows{each}" if lengths[0] == lengths[-1] else f"{lengths[0]} to {lengths[-1]} rows"
        return f"{counted(column.distinct, 'subject')} of {rows}"
    if role == "treatment" and "kind" not in guess.entries[column.name]:
        return f"{column.summary}; levels = [...] names them, the reference first"
    if role == "cluster":
        return f"{column.distinct:,} clusters"
    if role == "domain":
        return f"{column.summary}: which is the target?"
    return column.summary


def _target(guess: Guess) -> str:
    """Return an example of a condition, which about a fifth of the subjects meet: on a numeric static, age first."""
    statics = [guess.facts(name) for name in guess.named("static") if "`" not in name]
    statics = [c for c in statics if c.numbers is not None and not c.binary and "kind" not in guess.entries[c.name]]
    for column in sorted(statics, key=lambda c: "age" not in c.words):
        frame = pl.DataFrame({"x": ordered(column)})
        if guess.subject is not None and column.name in guess.sample.columns:  # once per subject
            frame = frame.with_columns(s=guess.facts(guess.subject).text).drop_nulls()
            frame = frame.unique("s", keep="first", maintain_order=True)
        numbers = frame["x"].drop_nulls()
        high = numbers.quantile(OLDEST, "nearest")
        if high is not None and (numbers < high).any():
            plain = column.name.isidentifier() and column.name.isascii() and not iskeyword(column.name.lower())
            name = column.name if plain else f"`{column.name}`"
            return f"{name} >= {high:.12g}"
    return "COLUMN >= NUMBER"


def _comment(text: str) -> str:
    """Return text that stays on one line of a comment."""
    return "".join(letter if letter.isprintable() else " " for letter in text)[:LONGEST_REMARK]
