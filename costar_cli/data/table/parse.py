"""Columns as numbers, texts and times: one pass over the files, unreadable values marked, never guessed (polars)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Literal, Self
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.data.findings import counted, invalid, raise_errors
from costar_cli.data.table.files import TableFile, collected
from costar_cli.data.table.schema_column import MONTHS, TimeSchema
from costar_cli.data.table.scratch import MOST_VALUES_HELD, Scratch
from costar_cli.data.table.written import MONTH, PLAIN, Written, advice_on_marks, format_of_period, of_format
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import cut

LARGEST: Final = float(np.finfo(np.float32).max)
UNREADABLE: Final = np.iinfo(np.int64).min  # of times; of numbers it is NaN
TEXTS: Final = (pl.String, pl.Categorical, pl.Enum)
TRUTHS: Final = ("true", "false")
VALUES_AT_ONCE: Final = 1_000_000  # of columns that follow each other: a query for each takes milliseconds
HEAD_ROWS, HEAD_VALUES = 1_000, 1_000_000  # at most, where words are looked for
_OFFSET: Final = r":\d\d.*[+-]\d\d:?\d\d$"  # at the end of a time of day
_ZONE: Final = r" ?(?:Z|[+-]\d\d:?\d\d)$"
FORMATS: Final = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S%.f")

As = Literal["number", "binary", "text", "us", "month"]


@dataclass(frozen=True, slots=True)
class Reading:
    """A column and how to read it.

    `number` and `binary` give float64, of true and false 1 and 0, `text` gives text, `us` microseconds since 1970 and
    `month` months since year 0 as int64. A missing value is null; one that cannot be read is NaN or `UNREADABLE`.
    Numbers are multiplied with `factor`, and `offset` is added; `shift` is how many steps later a value counts.
    Times of day without a zone are those of `zone`, where it is given. Of `local` times, each is as its own clock shows
    it, whatever its zone: midnights of days and months that a change of clocks moves in UTC. Periods such as 2019Q3 are
    when they begin; times are `after` that, by a duration of polars such as `1d`: the ends of closed intervals.
    """

    column: str
    as_: As
    format: str = ""
    factor: float = 1.0
    offset: float = 0.0
    shift: int = 0
    zone: str = ""
    local: bool = False
    after: str = ""

    @classmethod
    def of_time(cls, column: str, clock: TimeSchema) -> "Reading":
        """Return how to read times."""
        return cls(column, clock.parsed.scale, clock.format, zone=clock.zone, local=clock.by_day and not clock.by_row)


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one table with the columns that were asked for: read once, in the order of the files."""

    files: Sequence[TableFile]
    table: pl.DataFrame | pl.LazyFrame  # file, row, a column per reading, named by its number; lazy in a scratch file
    height: int
    readings: Sequence[Reading]
    blank_rows: int = 0
    index: Mapping[Reading, str] = field(default_factory=dict)
    _read: dict[str, pl.Series] = field(default_factory=dict, init=False)  # of a table with few rows and many columns

    @property
    def frame(self) -> pl.DataFrame:
        """Return all columns in memory."""
        return self.table if isinstance(self.table, pl.DataFrame) else self.table.collect()

    def of(self, frame: pl.DataFrame) -> Self:
        """Return these columns with other rows."""
        return replace(self, table=frame, height=frame.height)

    def series(self, reading: Reading) -> pl.Series:
        """Return a column."""
        name = self.index[reading]
        if isinstance(self.table, pl.DataFrame):
            return self.table.get_column(name)
        if name in self._read:
            return self._read[name]
        together = max(1, VALUES_AT_ONCE // max(1, self.height))
        names = [self.index[other] for other in self.readings[int(name) : int(name) + together]]
        found = {column.name: column for column in self.table.select(names).collect()}
        self._read.clear()
        if together > 1:
            self._read.update(found)
        return found[name]

    def numbers(self, reading: Reading) -> NDArray[np.float64]:
        """Return a column of numbers, NaN where there is none."""
        return self.series(reading).to_numpy().astype(np.float64)

    def place(self, row: int) -> str:
        """Return where a row comes from: `row 14 of cohort.csv`."""
        number, line = self._source(row)
        return f"row {line + 1} of {self.files[number].name}"

    def cells(self, asked: Sequence[tuple[Reading, int]]) -> list[object]:
        """Return values, by column and row, as their files have them; files are read for many columns at once."""
        values: list[object] = [None] * len(asked)
        sources = [self._source(row) for _, row in asked]
        together = max(1, MOST_VALUES_HELD // max(1, self.height))
        for number, file in enumerate(self.files):
            own = [i for i, source in enumerate(sources) if source[0] == number]
            for first in range(0, len(own), together):
                some = own[first : first + together]
                for i, cell in zip(some, file.cells([(asked[i][0].column, sources[i][1]) for i in some]), strict=True):
                    values[i] = cell
        return values

    def _source(self, row: int) -> tuple[int, int]:
        """Return the file that a row comes from, and its place there."""
        if isinstance(self.table, pl.DataFrame):
            return int(self.table["file"][row]), int(self.table["row"][row])
        number, line = self.table.select("file", "row").slice(int(row), 1).collect().row(0)
        return int(number), int(line)


def read_rows(
    files: Sequence[TableFile], readings: Iterable[Reading], blank: Sequence[str], scratch: Scratch | None = None
) -> Rows:
    """Read columns of one or several files; rows in which all of them are missing are dropped.

    Texts that are `blank` stand for a missing value, as an empty cell does. Rows that `scratch` finds too many to hold
    stay in its file.

    Raises:
        DataError: a file cannot be read, a column is of an unusable type, or there is too much to hold.
        StorageError: the disk has no room for the rows.
    """
    wanted = list(dict.fromkeys(readings))
    raise_errors(unusable(files, wanted).values(), what="the table")
    # How many rows each file has
    heights = []
    for file in files:
        with collected(file.path):
            heights.append(int(file.scan.select(pl.len()).collect(engine="streaming").item()))
    (scratch or Scratch()).require_memory(sum(heights), len(wanted))
    names, values = [str(i) for i in range(len(wanted))], sum(heights) * len(wanted)
    held: list[pl.DataFrame | pl.LazyFrame] = []
    for number, file in enumerate(files):
        words = _begins_with_words(file, wanted, blank)
        columns = [
            as_read(
                file.column(r.column),
                file.types[r.column],
                r,
                blank,
                words=r in words,
                written=file.written,
                zoned=_tells_zone(file, r, blank),
            ).alias(name)
            for name, r in zip(names, wanted, strict=True)
        ]
        source = [pl.lit(number, dtype=pl.UInt16).alias("file"), pl.nth(0).cast(pl.UInt32).alias("row")]
        with collected(file.path):
            rows = file.scan.select(*source, *columns)
            rows = rows.filter(~pl.all_horizontal(pl.col(names).is_null())) if names else rows
            held.append(rows.collect(engine="streaming") if scratch is None else scratch.hold(rows, values))
    in_memory = [rows for rows in held if isinstance(rows, pl.DataFrame)]
    table: pl.DataFrame | pl.LazyFrame = (
        pl.concat(in_memory, how="vertical")
        if len(in_memory) == len(held)
        else pl.concat([rows.lazy() for rows in held], how="vertical")
    )
    height = int(table.lazy().select(pl.len()).collect().item())
    return Rows(files, table, height, wanted, sum(heights) - height, dict(zip(wanted, names, strict=True)))


def unreadable(rows: Rows, readings: Iterable[Reading]) -> list[Diagnostic]:
    """Return what is wrong with the values of columns that say something, but nothing that can be read."""
    found: list[tuple[Reading, pl.Series, str, str]] = []
    for reading in readings:
        if reading.as_ == "text":
            continue
        values, what, fix = rows.series(reading), _WHAT[reading.as_], _FIX[reading.as_]
        if reading.as_ in ("us", "month"):
            wrong = [((values == UNREADABLE).fill_null(value=False), what, fix)]
        else:
            odd = values.is_nan().fill_null(value=False)
            large = (values.abs() > LARGEST).fill_null(value=False) & ~odd
            wrong = [(odd, what, fix), (large, "infinite or too large", "correct them")]
        del values  # of columns in a scratch file, one is held at a time
        found += [(reading, mask, what, fix) for mask, what, fix in wrong if mask.any()]
    cells = rows.cells([(reading, int(mask.arg_max() or 0)) for reading, mask, _, _ in found])
    findings = []
    for (reading, mask, what, fix), cell in zip(found, cells, strict=True):
        period = format_of_period(cell, reading.format) if reading.as_ in ("us", "month") else ""
        marks = advice_on_marks(cell) if what == _WHAT["number"] else ""
        told, hint = _of_clocks(cell, reading) if reading.as_ == "us" and not period else ("", period or marks)
        problem = f"{told or what}, first {cut(repr(cell), 40)}"
        findings.append(wrong_values(reading.column, mask, problem, rows.place, hint or fix))
    return findings


def wrong_values(
    column: str,
    wrong: pl.Series | NDArray[np.bool_],
    what: str,
    place: Callable[[int], str],
    fix: str,
    *,
    one: str = "value",
) -> Diagnostic:
    """Say how many values of a column are wrong, and where the first of them is."""
    mask = np.asarray(wrong, dtype=bool)
    problem = f"column '{column}': {counted(int(mask.sum()), one)} {what}"
    return invalid(problem, f"first in {place(int(mask.argmax()))}", fix)


_WHAT: Final[Mapping[As, str]] = {
    "number": "not numeric",
    "binary": "other than 0 and 1, true and false",
    "us": "not a date or time",
    "month": "not a date",
}
_FIX: Final[Mapping[As, str]] = {
    "number": "give numbers, or add the text to `blank` where it means a missing value",
    "binary": 'correct them, or declare the column as `kind = "continuous"`',
    "us": "write 2020-01-31 14:00, or give `format` in [time]",
    "month": "write 2020-01-31, or give `format` in [time]",
}


def _of_clocks(cell: object, reading: Reading) -> tuple[str, str]:
    """Return why a time of day cannot be told from others, and what to do; empty where it is no time at all."""
    try:
        text = str(cell).strip()
        naive = datetime.strptime(text, reading.format) if reading.format else datetime.fromisoformat(text)
    except ValueError:
        return "", ""
    if naive.tzinfo is not None or (not reading.zone and reading.format):
        return "", ""
    if not reading.zone:
        return "without a zone, where others have one", "write the zone of each time, or give `zone` in [time]"
    local = naive.replace(tzinfo=ZoneInfo(reading.zone))
    if local.astimezone(UTC).astimezone(local.tzinfo).replace(tzinfo=None) != naive:
        return f"that clocks in {reading.zone} never show", "correct them: clocks were set forward"
    fix = f"write the offset of each, such as {naive.isoformat(timespec='minutes')}+02:00"
    return f"that clocks in {reading.zone} show twice", fix


def unusable(files: Sequence[TableFile], readings: Iterable[Reading]) -> dict[Reading, Diagnostic]:
    """Return the readings whose column is of a type, in a file that has it, that cannot be read so."""
    found = {}
    for file in files:
        for reading in readings:
            kind = file.types.get(reading.column, pl.Null())
            if kind in (*TEXTS, pl.Null):
                continue  # text always can, value by value
            if reading.as_ in ("us", "month"):
                usable = isinstance(kind, pl.Date | pl.Datetime) or (bool(reading.format) and kind.is_numeric())
            else:
                usable = kind.is_numeric() or kind == pl.Boolean or (reading.as_ == "text" and kind.is_temporal())
            if not usable:
                problem = f"{file.name}: column '{reading.column}' holds {kind}, not {_ASKED[reading.as_]}"
                found[reading] = invalid(problem, fix=_OTHER_TYPE)
    return found


_ASKED: Final[Mapping[As, str]] = {
    "number": "numbers", "binary": "0 and 1", "text": "text", "us": "dates", "month": "dates"
}  # fmt: skip
_OTHER_TYPE: Final = 'convert it; in [time], dates need a `step` such as "1d", and numbers one such as 1'


def _tells_zone(file: TableFile, reading: Reading, blank: Sequence[str]) -> bool | None:
    """Return whether some text of a column of times tells a zone, None where that is all the same.

    That takes a pass of its own, as the texts of the whole column would have to be held to know it in the same one.
    """
    if reading.as_ not in ("us", "month") or file.types[reading.column] not in TEXTS:
        return None
    if reading.format or reading.zone or reading.local:
        return None
    with collected(file.path):
        tells = _zoned(_told(file.column(reading.column), blank)).any()
        return bool(file.scan.select(tells).collect(engine="streaming").item())


def _begins_with_words(file: TableFile, readings: Sequence[Reading], blank: Sequence[str]) -> set[Reading]:
    """Return the readings of numbers whose first value may be `true` or `false`: only these can have no other values.

    To know of all values takes a pass of its own, for which polars holds the column as text. Columns without a value in
    the first rows may have words.
    """
    asked = [r for r in readings if r.as_ == "number" and file.types[r.column] in TEXTS]
    if not asked:
        return set()
    first = [_told(file.column(r.column), blank).drop_nulls().first().alias(str(i)) for i, r in enumerate(asked)]
    with collected(file.path):
        row = (
            file.scan.head(min(HEAD_ROWS, HEAD_VALUES // len(asked) + 1))
            .select(first)
            .collect(engine="streaming")
            .row(0)
        )
    return {r for r, value in zip(asked, row, strict=True) if value is None or value.lower() in TRUTHS}


def _told(raw: pl.Expr, blank: Sequence[str]) -> pl.Expr:
    """Return texts without space around them, null where they stand for a missing value."""
    stripped = _stripped(raw)
    return pl.when(_says_something(stripped, blank)).then(stripped)  # named like the column


def _stripped(raw: pl.Expr) -> pl.Expr:
    return raw.cast(pl.String).str.strip_chars()


def _says_something(stripped: pl.Expr, blank: Sequence[str]) -> pl.Expr:
    return ~stripped.str.to_lowercase().is_in(["", *(text.strip().lower() for text in blank)])


def as_read(
    raw: pl.Expr,
    kind: pl.DataType,
    reading: Reading,
    blank: Sequence[str],
    *,
    words: bool = True,
    zoned: bool | None = None,
    written: Written = PLAIN,
) -> pl.Expr:
    """Return a raw column of a type as a reading gives it; `written` is how numbers in texts are.

    Without `words`, not all values are truth values; `zoned` says whether some time tells a zone, if that is known.
    """
    if kind in TEXTS and reading.as_ == "number" and not words:
        # Texts that are no truth values as numbers
        stripped = _stripped(raw)
        number = _scaled(written.plain(stripped).cast(pl.Float64, strict=False), reading).fill_null(float("nan"))
        return pl.when(_says_something(stripped, blank)).then(number)
    if kind in TEXTS:
        raw, kind = _told(raw, blank), pl.String()
    elif kind.is_float():
        raw = raw.fill_nan(None)
    if reading.as_ == "text":
        return _as_text(raw, kind)
    if reading.as_ in ("us", "month") and kind.is_numeric():  # 202212, of which a format tells what it means
        raw, kind = _as_text(raw, kind), pl.String()
    if reading.as_ in ("us", "month"):
        return _as_time(raw, kind, reading, zoned=zoned)
    if kind == pl.String:
        raw = written.plain(raw)
        word = raw.str.to_lowercase()
        truths = word.is_in(TRUTHS)
        named = truths if reading.as_ == "binary" else truths.all()  # a column of both, as Parquet has them
        raw = (
            pl.when(named).then(pl.when(word == "true").then(pl.lit("1")).when(truths).then(pl.lit("0"))).otherwise(raw)
        )
    number = _scaled(raw.cast(pl.Float64, strict=False), reading)
    odd = pl.lit(float("nan"))
    if kind == pl.Boolean and reading.as_ == "number":
        return number
    number = pl.when(raw.is_not_null() & number.is_null()).then(odd).otherwise(number)
    return pl.when(~number.is_in([0.0, 1.0])).then(odd).otherwise(number) if reading.as_ == "binary" else number


def _scaled(number: pl.Expr, reading: Reading) -> pl.Expr:
    return number if (reading.factor, reading.offset) == (1.0, 0.0) else number * reading.factor + reading.offset


def _as_text(raw: pl.Expr, kind: pl.DataType) -> pl.Expr:
    if kind.is_float():  # a whole number is spelt as one: 7, not 7.0
        whole = (raw == raw.floor()) & (raw.abs() < 2**53)
        return pl.when(whole).then(raw.cast(pl.Int64, strict=False).cast(pl.String)).otherwise(raw.cast(pl.String))
    return raw.cast(pl.String)


def _zoned(raw: pl.Expr) -> pl.Expr:
    """Return which texts are times that tell a zone."""
    return raw.str.ends_with("Z") | raw.str.contains(_OFFSET)


def _iso_time(raw: pl.Expr, zone: str, formats: Sequence[str], *, zoned: bool | None) -> pl.Expr:
    """Return ISO times in UTC where they tell a zone, else as they are written; null where only others tell one."""
    plain = raw.str.replace("T", " ", literal=True)
    in_utc, offset = plain.str.ends_with("Z"), plain.str.contains(_OFFSET)
    bare = plain.str.strip_suffix("Z")
    naive = pl.coalesce(bare.str.to_datetime(f, strict=False, time_unit="us") for f in formats)
    apart = pl.coalesce(_in_utc(plain.str.to_datetime(f"{f}%z", strict=False, time_unit="us")) for f in FORMATS[1:])
    others = pl.lit(value=False) if zone else _zoned(raw).any() if zoned is None else pl.lit(value=zoned)
    untold = pl.when(others & raw.is_not_null()).then(None).otherwise(_of_zone(naive, zone))
    return pl.when(offset).then(apart).when(in_utc).then(naive).otherwise(untold)


def _in_utc(moment: pl.Expr) -> pl.Expr:
    return moment.dt.convert_time_zone("UTC").dt.replace_time_zone(None)


def _of_zone(moment: pl.Expr, zone: str) -> pl.Expr:
    """Return local times in UTC; null where clocks skip them or show them twice."""
    if not zone:
        return moment
    return _in_utc(moment.dt.replace_time_zone(zone, ambiguous="null", non_existent="null"))


def _as_time(raw: pl.Expr, kind: pl.DataType, reading: Reading, *, zoned: bool | None) -> pl.Expr:
    months = (MONTH,) if reading.as_ == "month" else ()  # which leave no day open where months count
    if kind == pl.String and reading.local and reading.format.endswith("%z"):
        bare, naive = raw.str.replace(_ZONE, ""), reading.format.removesuffix("%z").rstrip()
        moment = bare.str.to_datetime(naive, strict=False, time_unit="us")
    elif kind == pl.String and reading.local and not reading.format:
        zoneless = pl.when(_zoned(raw)).then(raw.str.replace(_ZONE, "")).otherwise(raw)
        moment = _iso_time(zoneless, "", (*FORMATS, *months), zoned=False)
    elif kind == pl.String and not reading.format:
        moment = _iso_time(raw, reading.zone, (*FORMATS, *months), zoned=zoned)
    elif kind == pl.String and "%z" in reading.format:
        moment = _in_utc(raw.str.to_datetime(reading.format, strict=False, time_unit="us"))
    elif kind == pl.String:
        moment = _of_zone(of_format(raw, reading.format), reading.zone)
    elif isinstance(kind, pl.Datetime) and kind.time_zone is not None:
        moment = raw.dt.replace_time_zone(None) if reading.local else _in_utc(raw)
    else:
        moment = _of_zone(raw.cast(pl.Datetime("us"), strict=False), reading.zone)
    moment = moment.cast(pl.Datetime("us"), strict=False)
    moment = moment.dt.offset_by(reading.after) if reading.after else moment
    number = moment.cast(pl.Int64)
    if reading.as_ == "month":
        number = moment.dt.year().cast(pl.Int64) * MONTHS + moment.dt.month().cast(pl.Int64) - 1
    return pl.when(raw.is_not_null() & number.is_null()).then(UNREADABLE).otherwise(number)
