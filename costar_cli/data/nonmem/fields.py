"""What the fields of records say: times and dates, doses, values beyond a limit, codes and covariates (polars)."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.config.nearest import did_you_mean
from costar_cli.data.findings import counted, invalid, shown
from costar_cli.data.nonmem.settings import NonmemConfig, RecordsRead, pairs
from costar_cli.data.table.parse import UNREADABLE, Reading, Rows, as_read, wrong_values
from costar_cli.diagnostics import Diagnostic
from costar_cli.reporting import Reporter

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Numbers = Callable[[str], Floats]  # an item's numbers, NaN where it has none

OBSERVED, DOSE, OTHER, RESET, RESET_AND_DOSE = range(5)
CLASSIC: Final = 100  # EVID from here on says compartment and kind: 101 a dose into 1, 10101 a rate that starts or ends
# Columns that say what was given, measured or fitted in other words: as covariates they would not move with a plan
DERIVED: Final = re.compile(
    "c|row|n?tad|n?tafd|ntime|nomtime|[an]frlt|[an]rrlt|npt|ln?dv|logdv|dvl|[ic]?pred|[ic]?w?res|cwresi|npde|occ"
    "|visit?|studyid"
)
HOUR: Final = ("hour", "hours", "hr", "h")
MOST_CATEGORIES: Final = 20  # of a text that nobody named as a covariate
_ORDER: Final = {"date": "mdy", "dat1": "dmy", "dat2": "ymd", "dat3": "ydm"}


def wrong_in(column: str, mask: pl.Series | Mask, what: str, rows: Rows, fix: str) -> list[Diagnostic]:
    """Return a list of one finding where some values of a column are wrong, else none."""
    wrong = mask.fill_null(value=False).to_numpy() if isinstance(mask, pl.Series) else mask
    return [wrong_values(column, wrong, what, rows.place, fix)] if wrong.any() else []


def codes_of(texts: pl.Series) -> pl.Series:
    """Return codes as texts, 2.0 as 2."""
    number = texts.cast(pl.Float64, strict=False)
    plain = number.cast(pl.Int64, strict=False).cast(pl.String)
    whole = (number == number.round()).fill_null(value=False)
    return plain.zip_with(whole, texts)


def read_times(
    given: Mapping[str, pl.Series], names: Mapping[str, str], rows: Rows, changes: Mask, unit: str
) -> tuple[Floats, list[Diagnostic]]:
    """Return times in their `unit`; from dates and clocks hours since the subject's first record."""
    texts = given["time"]
    number = texts.cast(pl.Float64, strict=False)
    clock = texts.str.extract_groups(r"^(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?$").struct.unnest()
    hour, minute, second = (column.cast(pl.Float64, strict=False) for column in clock.iter_columns())
    of_clock = hour + minute / 60 + second.fill_null(0) / 3600
    rest = texts.is_not_null() & number.is_null() & of_clock.is_null()
    stamp = as_read(pl.col("of"), pl.String(), Reading("of", "us"), (), zoned=False)
    read = pl.DataFrame({"of": texts.set(~rest, None)}).select(stamp).to_series()
    of_stamp = (read.set(read == UNREADABLE, None) / 3.6e9) if rest.any() else read.cast(pl.Float64)
    time = number.fill_null(of_clock).fill_null(of_stamp)
    found = wrong_in(names["time"], texts.is_null(), "missing", rows, "give each record its time")
    unread = texts.is_not_null() & time.is_null()
    found += wrong_in(names["time"], unread, "no time", rows, "write 1.5, 13:30 or 2024-01-31 13:30")
    relative = bool(of_clock.is_not_null().any() or of_stamp.is_not_null().any())
    if "date" in given and of_stamp.is_null().all():
        days, order = _days(given["date"], names["date"])
        fix = "write them as the column's name says (DATE m/d/y, DAT1 d/m/y, DAT2 y/m/d, DAT3 y/d/m), or as 2024-01-31"
        found += wrong_in(names["date"], days.is_null(), f"missing, or no date of the order {order}", rows, fix)
        # NM-TRAN takes a number beside a date for the hour of the day; from 24 on it is nearly always elapsed time
        what, fix = f"of 24 or more beside {names['date']}", f"write hours of the day, or remove {names['date']}"
        found += wrong_in(names["time"], number >= 24, what, rows, fix)
        time, relative = time + days * 24, True
    time_R = time.to_numpy().astype(np.float64)
    if relative and unit.casefold() not in HOUR:
        problem = f"{names['time']} has dates or clocks, which become hours, not `{unit}`"
        fix = "leave `--time-unit` out: of hours, a day is `--step 24`"
        found.append(invalid(problem, "--time-unit", fix))
    if relative:
        time_R = time_R - time_R[np.flatnonzero(changes)][np.cumsum(changes) - 1]
    return np.round(np.nan_to_num(time_R), 6), found  # so that doses every II are at the times of other records


def _days(texts: pl.Series, name: str) -> tuple[pl.Series, str]:
    """Return the day of each date, which may be the number of one, and the order in which dates are written."""
    order = "/".join(_ORDER.get(name.casefold(), "mdy"))
    parts = texts.str.extract_groups(r"^(\d{1,4})[-/.](\d{1,2})[-/.](\d{1,4})$").struct.unnest().get_columns()
    iso = texts.str.contains(r"^\d{4}\D").fill_null(value=False) & (order[0] != "y")
    year, month, day = (
        parts["y/m/d".replace("/", "").index(key)].zip_with(iso, parts[order.replace("/", "").index(key)])
        for key in "ymd"
    )
    short = (year.str.len_chars() < 3).fill_null(value=False)
    century = (year.cast(pl.Int64, strict=False) > 50).fill_null(value=False)
    full = pl.Series(np.where(century, "19", "20")) + year.str.zfill(2)
    written = full.zip_with(short, year) + "-" + month.str.zfill(2) + "-" + day.str.zfill(2)
    dates = written.str.to_date("%Y-%m-%d", strict=False).cast(pl.Int32).cast(pl.Float64)
    return texts.cast(pl.Float64, strict=False).fill_null(dates), order


def read_doses(
    numbers: Numbers, names: Mapping[str, str], rows: Rows, subject_R: Ints, time_R: Floats, reporter: Reporter
) -> tuple[dict[str, Floats], list[Diagnostic]]:
    """Return each record's `kind`, and of doses `amount`, `duration`, `addl`, `interval`, `steady`, 0 of others."""
    evid, amt, rate, dur = (numbers(item) for item in ("evid", "amt", "rate", "dur"))
    addl, interval, steady = (np.nan_to_num(numbers(item)) for item in ("addl", "ii", "ss"))
    kind = np.where(np.isnan(evid), np.where(np.nan_to_num(amt) != 0, DOSE, OBSERVED), evid)
    kind = np.where(np.isnan(evid) & (rate > 0), DOSE, kind)
    classic, by_rate = kind >= CLASSIC, (kind >= CLASSIC) & (kind // 10_000 % 10 == 1)
    plain = (kind % 100 == 1) & (kind // 10_000 % 10 <= 1) & (kind < 100_000)
    called = names.get("evid", "EVID")
    odd = ~np.isin(kind, range(5)) & ~(classic & plain)
    found = wrong_in(
        called, odd, "other than 0 to 4", rows, "correct them; of nlmixr2's older codes 101 and 10101 are read"
    )
    kind = np.where(classic, DOSE, kind)
    given = np.isin(kind, (DOSE, RESET_AND_DOSE))
    amount = np.where(given, amt, 0.0)
    duration = np.where(given & (rate > 0), np.nan_to_num(amt) / np.where(rate > 0, rate, 1.0), 0.0)
    duration = np.where(given & (dur > 0) & ~(rate > 0), dur, duration)
    column, fix = names["amt"], "correct the rows, or their EVID"
    found += wrong_in(column, (kind == OBSERVED) & (np.nan_to_num(amt) != 0), "on a row that is no dose", rows, fix)
    found += wrong_in(column, given & np.isnan(amt), "missing on a row that is a dose", rows, fix)
    found += wrong_in(column, given & (amt < 0) & ~by_rate, "below 0", rows, "correct them")
    column = names.get("rate", "RATE")
    modelled = given & np.isin(rate, (-1, -2))
    found += wrong_in(
        column, given & (rate < 0) & ~modelled & ~by_rate, "below 0, and not -1 or -2", rows, "correct them"
    )
    endless = given & (rate > 0) & (np.nan_to_num(amt) == 0)
    found += wrong_in(column, endless, "with an AMT of 0", rows, "give the amount of each infusion")
    apart = given & (rate > 0) & (dur > 0) & (np.abs(np.nan_to_num(amt) - rate * dur) > 0.01 * rate * dur)
    found += wrong_in(column, apart, "at odds with AMT and the duration", rows, "give one of the two")
    found += wrong_in(names.get("dur", "DUR"), given & (dur < 0), "below 0", rows, "correct them")
    whole = (addl >= 0) & (addl == np.floor(addl))
    found += wrong_in(names.get("addl", "ADDL"), given & ~whole, "not a whole number from 0", rows, "correct them")
    lone = given & ((addl > 0) | (steady > 0)) & ~(interval > 0)
    found += wrong_in(names.get("ii", "II"), lone, "not above 0 beside ADDL or SS", rows, "give the time between doses")
    odd = given & ~np.isin(steady, (0, 1, 2))
    found += wrong_in(names.get("ss", "SS"), odd, "other than 0, 1 and 2", rows, "correct them")
    if modelled.any():
        reporter.say(Diagnostic.of("doses-modelled", doses=counted(int(modelled.sum()), "dose")))
    for start in np.flatnonzero(by_rate & (amt > 0)):
        # An infusion by its rate ends where the next row of its subject takes the same rate away
        ends = by_rate & (subject_R == subject_R[start]) & (np.arange(len(amt)) > start) & (amt == -amt[start])
        if not ends.any():
            found.append(invalid("an infusion that never ends", rows.place(int(start)), "add the row of its end"))
            continue
        end = int(np.argmax(ends))
        duration[start] = time_R[end] - time_R[start]
        amount[start] = amt[start] * duration[start]
        by_rate[end], kind[end], amount[end] = False, OTHER, 0.0
    left = by_rate & (np.nan_to_num(amt) < 0)
    found += wrong_in(names["amt"], left, "that end an infusion without a start", rows, "add its start")
    zero = np.where(given, 1.0, 0.0)
    fields = {"amount": np.nan_to_num(amount), "duration": np.maximum(duration, 0.0)}
    return {"kind": kind, **fields, "addl": addl * zero, "interval": interval * zero, "steady": steady * zero}, found


def read_limits(
    dv_R: Floats, observed_R: Mask, numbers: Numbers, given: Mapping[str, pl.Series], names: Mapping[str, str],
    rows: Rows, settings: NonmemConfig,
) -> tuple[Floats, Mask, list[Diagnostic]]:  # fmt: skip
    """Return values with those beyond a limit as the settings have them, and which records these are.

    Such a record may have MDV 1: it is an observation, but its DV of 0 is no limit.
    """
    none = np.zeros(len(dv_R), dtype=bool)
    if "cens" not in given:
        return dv_R, none, []
    words = given["cens"].str.to_uppercase().str.slice(0, 1)
    flag = given["cens"].cast(pl.Float64, strict=False)
    flag = flag.fill_null(words.replace_strict({"Y": 1.0, "T": 1.0, "N": 0.0, "F": 0.0}, default=None))
    odd = given["cens"].is_not_null() & ~flag.is_in([-1.0, 0.0, 1.0]).fill_null(value=False)
    found = wrong_in(names["cens"], odd, "other than -1, 0, 1, Y and N", rows, "correct them")
    cens = np.nan_to_num(flag.to_numpy().astype(np.float64)) * observed_R
    beyond, lloq, other = cens != 0, numbers("lloq"), numbers("limit")
    if not beyond.any():
        return dv_R, none, found
    if settings.below == "error":
        what = "beyond a limit: methods learn from values, not from limits"
        fix = "`--below half` or `limit` puts numbers in their place, `--below missing` leaves them out"
        return dv_R, none, [*found, *wrong_in(names["cens"], beyond, what, rows, fix)]
    empty = (np.nan_to_num(numbers("mdv")) != 0) & (dv_R == 0)
    limit = np.where((cens > 0) & ~np.isnan(lloq), lloq, np.where(empty, np.nan, dv_R))
    lacking = beyond & np.isnan(limit) & (settings.below != "missing")
    found += wrong_in(names["dv"], lacking, "without their limit", rows, "give it there, or in LLOQ")
    middle = np.where(np.isnan(other), np.where(cens > 0, limit / 2, limit), (limit + other) / 2)
    value = {"half": middle, "limit": limit, "missing": np.full(len(dv_R), np.nan)}[settings.below]
    return np.where(beyond, value, dv_R), beyond, found


def named(
    what: str,
    said: str,
    codes: pl.Series | None,
    used_R: Mask,
    default: str,
    rows: Rows,
    like: Mapping[str, str | None] | None = None,
) -> tuple[dict[str, str | None], Ints, list[Diagnostic]]:
    """Return the outcomes or doses with their codes, and the number of that of each record, -1 where it has none.

    Names are those that `said` has for codes; by default the codes, behind `default` where they are numbers. Those of
    new subjects are `like` a model's, of which they need not have all.
    """
    wanted: dict[str, str | None] = {**(pairs(said) if like is None else like)}
    number_R = np.full(rows.height, -1, dtype=np.int64)
    known = [] if codes is None else codes.filter(pl.Series(used_R)).drop_nulls().unique(maintain_order=True).to_list()
    if like is None and not wanted and len(known) < 2:
        number_R[used_R] = 0
        return {default: None}, number_R, []
    found = []
    if like is not None:
        if len(like) == 1 and (None in like.values() or codes is None) and len(known) < 2:
            number_R[used_R] = 0
            return wanted, number_R, []
        if strange := [code for code in known if code not in like.values()] if not said else []:
            fix = f"the data of the model have {shown([code or name for name, code in like.items()], 8)}"
            found.append(invalid(f"{what} with the code {shown(strange, 8)}, unknown to the model", default, fix))
        if codes is None and used_R.any():
            found.append(invalid(f"no column says which of {shown(like, 8)} it is", default, "add DVID or CMT"))
        known = [code for code in like.values() if code]
    for name, code in wanted.items():
        if code and code not in known:
            hint = did_you_mean(code, known, quoted=True) or f"there is {shown(known, 8)}" * bool(known)
            column = "column" if codes is None else "code"
            fix = hint or f"leave `--{what}` out"
            found.append(invalid(f"none of the {what} has the {column} '{code}'", f"--{what}, {name}", fix))
    if not wanted:
        ordered = sorted(known, key=lambda code: (not re.fullmatch(r"\d+", code), code.zfill(9)))
        wanted = {f"{default}_{code}" if re.fullmatch(r"[\d.]+", code) else code: code for code in ordered}
    if codes is not None:
        found += wrong_in(codes.name, codes.is_null() & pl.Series(used_R), f"missing, of {what}", rows, "say which")
        for number, code in enumerate(wanted.values()):
            number_R[(codes == code).fill_null(value=False).to_numpy() & used_R] = number
    return wanted, number_R, found


def covariates_like(
    others: Mapping[str, Reading], rows: Rows, like: RecordsRead
) -> tuple[dict[str, pl.Series], list[Diagnostic]]:
    """Return the covariates of a model's data, called as they are there."""
    lower = {name.casefold(): name for name in others}
    kept: dict[str, pl.Series] = {}
    found: list[Diagnostic] = []
    for name, is_text in like.covariates.items():
        if name.casefold() not in lower:
            near = did_you_mean(name, others, quoted=True) or "add it, empty where it is not known"
            found.append(invalid(f"there is no column '{name}', a covariate of the model", "the header", near))
            continue
        column = rows.series(others[lower[name.casefold()]])
        number = column.cast(pl.Float64, strict=False)
        kept[name] = column if is_text else number
        if not is_text:
            found += wrong_in(name, column.is_not_null() & number.is_null(), "not numeric", rows, "correct them")
    return kept, found


def read_covariates(
    others: Mapping[str, Reading], rows: Rows, settings: NonmemConfig, dv_R: Floats, given_R: Mask, reporter: Reporter
) -> tuple[dict[str, pl.Series], list[Diagnostic]]:
    """Return the columns that are covariates, numbers or texts.

    By default all but those that tell of doses and values in other words, by their name or because they follow them.
    """
    lower = {name.casefold(): name for name in others}
    said = [name for name in re.split(r"[\s,]+", settings.covariates.strip()) if name]
    named_texts = [name for name in re.split(r"[\s,]+", settings.categorical.strip()) if name]
    found = [
        invalid(
            f"there is no column '{name}' left for it", flag, did_you_mean(name, others) or f"it has {shown(others, 8)}"
        )
        for flag, asked in (("--covariates", said), ("--categorical", named_texts))
        for name in asked
        if name.casefold() not in lower and not (flag == "--covariates" and name == "none")
    ]
    chosen = list(others) if not said else [lower[name.casefold()] for name in said if name.casefold() in lower]
    as_text = {lower[name.casefold()] for name in named_texts if name.casefold() in lower}
    kept: dict[str, pl.Series] = {}
    left: list[str] = []
    for name in chosen:
        column = rows.series(others[name])
        number = column.cast(pl.Float64, strict=False)
        is_number = name not in as_text and not (column.is_not_null() & number.is_null()).any()
        many = not is_number and column.n_unique() > MOST_CATEGORIES
        if not said and (
            DERIVED.fullmatch(name.casefold())
            or many
            or column.is_null().all()
            or (is_number and _follows(number, dv_R, given_R))
        ):
            left.append(name)
        else:
            kept[name] = number if is_number else column
    if not said and others:
        reporter.say(
            Diagnostic.of("covariates-chosen", names=shown(kept, 12) or "none", left=shown(left, 12) or "none")
        )
    return kept, found


def _follows(number: pl.Series, dv_R: Floats, given_R: Mask) -> bool:
    """Return whether a column is a value or its logarithm by another name, or marks doses, as FA1 of pheno does."""
    value = number.to_numpy().astype(np.float64)
    if not set(value[given_R]) & set(value[~given_R]):
        return True
    for of in (dv_R, np.log(np.where(dv_R > 0, dv_R, np.nan))):
        both = ~np.isnan(of) & ~np.isnan(value)
        x, y = value[both], of[both]
        if len(np.unique(x)) > 3 and len(np.unique(y)) > 3 and abs(np.corrcoef(x, y)[0, 1]) > 1 - 1e-6:
            return True
    return False
