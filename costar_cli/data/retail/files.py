"""The three CSV files of M5 as weekly sales and prices (polars; spec RETAIL-1, RETAIL-2)."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.config.nearest import did_you_mean
from costar_cli.data.findings import counted, shown
from costar_cli.data.retail.weekly import DEPARTMENT_IDS, STORE_IDS, WeekCalendar, WeeklySales, weekly_totals
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError
from costar_cli.files.frames import for_polars
from costar_cli.reporting import Reporter
from simulators.retail import EVENT_NAMES, EVENT_TYPES, STATES

SALES_FILES = ("sales_train_evaluation.csv", "sales_train_validation.csv")  # the first one found is read
DAY = re.compile(r"d_\d+", re.ASCII)
KEYS = ("item_id", "dept_id", "store_id", "state_id")
DOWNLOAD = "give the folder of Kaggle's m5-forecasting-accuracy, or make one with `costar simulate m5 --export DIR`"


def m5_files(folder: Path) -> dict[str, Path]:
    """Return the files `calendar`, `sell_prices` and `sales` of a folder: of two sales files, the evaluation one.

    Raises:
        DataError: the folder or files are missing; all of them at once.
    """
    if not folder.is_dir():
        problem = "this is not a folder but a file" if folder.exists() else "folder not found"
        raise DataError(problem, where=str(folder), fix=DOWNLOAD)
    sales = next((name for name in SALES_FILES if (folder / name).is_file()), None)
    files = {"calendar": "calendar.csv", "sell_prices": "sell_prices.csv", "sales": sales}
    missing = [f"{role}: there is no {name or ' or '.join(SALES_FILES)}" for role, name in files.items()
               if name is None or not (folder / name).is_file()]  # fmt: skip
    if missing:
        problem = f"{counted(len(missing), 'file')} of M5 missing" if len(missing) > 1 else missing[0]
        raise DataError(problem, where=str(folder), fix=DOWNLOAD, details=missing if len(missing) > 1 else ())
    return {role: folder / name for role, name in files.items() if name is not None}


def read_m5_tables(folder: Path, reporter: Reporter) -> WeeklySales:
    """Read the files of a folder and sum up days to weeks; rows may be in any order, other columns are left out.

    A day without a number of units counts as a day without data; an item is not on sale in weeks without a price.

    Raises:
        DataError: files or columns are missing, or hold values that M5 cannot have; the message names the place.
    """
    files = m5_files(folder)
    with reporter.task("read M5", total=len(files), unit="file") as task:
        weeks, week_of_day = _read_calendar(files["calendar"])
        task.advance()
        frame, units, days = _read_sales(files["sales"], week_of_day, len(weeks))
        task.advance()
        price = _read_prices(files["sell_prices"], frame, weeks, reporter)
        task.advance()
    item_id, item = np.unique(frame["item_id"].to_numpy().astype(np.str_), return_inverse=True)
    department = np.zeros(len(item_id), dtype=np.int64)
    department[item] = np.searchsorted(DEPARTMENT_IDS, frame["dept_id"].to_numpy().astype(np.str_))
    store = np.searchsorted(STORE_IDS, frame["store_id"].to_numpy().astype(np.str_))
    return WeeklySales(weeks, item_id, department, item, store, price=price, units=units, days=days)


def _read_calendar(path: Path) -> tuple[WeekCalendar, dict[str, int]]:
    """Return the weeks, and the week of each `d_...`."""
    events = ["event_name_1", "event_type_1", "event_name_2", "event_type_2"]
    snaps = [f"snap_{state}" for state in STATES]
    days = read_columns(
        path,
        {"date": pl.String(), "wm_yr_wk": pl.Int64(), "d": pl.String()}
        | dict.fromkeys(events, pl.String())
        | dict.fromkeys(snaps, pl.Int64()),
    )
    if not days.height:
        raise DataError("the calendar has no days", where=str(path))
    text = days["date"]
    dates = text.str.to_date("%Y-%m-%d", strict=False)
    bad = dates.is_null() & text.is_not_null()
    if bad.any():
        row = int(bad.arg_true()[0])
        values = counted(int(bad.sum()), "value that is not a date", "values that are not dates")
        problem = f"column 'date' holds {values}, first {text[row]!r}"
        raise DataError(problem, where=f"{path}, row {row + 2}", fix="write dates as 2011-01-29")
    days = days.with_columns(dates)
    for key in (["date"], ["d"], ["wm_yr_wk", "date"]):
        only_once(days, key, path)
    for slot in (1, 2):
        only_known(days[f"event_name_{slot}"], EVENT_NAMES, what="event", path=path)
        only_known(days[f"event_type_{slot}"], EVENT_TYPES, what="event type", path=path)
    for name in snaps:
        if not days[name].is_in([0, 1]).all():
            raise DataError(f"column '{name}' holds other values than 0 and 1", where=str(path))
    days = days.sort("date")
    # Raise unless the days follow each other and the weeks have at most seven of them
    gap = days["date"].diff().dt.total_days().fill_null(1) != 1
    if gap.any():
        row = int(gap.arg_true()[0])
        raise DataError(
            f"{counted(int(gap.sum()), 'gap')} between days",
            where=f"{path}, first before {days['date'][row]}",
            fix="add the missing days",
        )
    falls = days["wm_yr_wk"].diff().fill_null(0) < 0
    size = days.group_by("wm_yr_wk").len().filter(pl.col("len") > 7).sort("wm_yr_wk")
    if falls.any() or size.height:
        week = size["wm_yr_wk"][0] if size.height else days["wm_yr_wk"][int(falls.arg_true()[0])]
        problem = "has more than seven days" if size.height else "is before the week of the day before"
        raise DataError(f"week {week} {problem}", where=f"{path}, column 'wm_yr_wk'")
    names = [days[name].fill_null("").to_numpy().astype(np.str_) for name in events]
    weeks = WeekCalendar.of_days(
        days["date"].to_numpy().astype("datetime64[D]"),
        days["wm_yr_wk"].to_numpy(),
        names=(names[0], names[2]),
        types=(names[1], names[3]),
        snap=days.select(snaps).to_numpy().astype(np.bool_),
    )
    week = np.searchsorted(weeks.week_id, days["wm_yr_wk"].to_numpy())
    return weeks, dict(zip(days["d"].to_list(), week.tolist(), strict=True))


def _read_sales(
    path: Path, week_of_day: dict[str, int], n_weeks: int
) -> tuple[pl.DataFrame, NDArray[np.int32], NDArray[np.int8]]:
    """Return the item-stores, sorted by item and store, with the units and the days with data of each week."""
    names = [name for name in column_names(path) if DAY.fullmatch(name)]
    if not names:
        raise DataError("there are no columns of days, `d_1` onwards", where=str(path))
    if unknown := [name for name in names if name not in week_of_day]:
        raise DataError(
            f"{counted(len(unknown), 'day')} that the calendar does not have: {shown(unknown)}",
            where=str(path),
            fix="give the calendar of the same data",
        )
    in_order = [name for name in week_of_day if name in set(names)]
    frame = read_columns(path, dict.fromkeys(KEYS, pl.String()) | dict.fromkeys(in_order, pl.Float32()))
    if not frame.height:
        raise DataError("the sales file has no rows", where=str(path))
    only_once(frame, ["item_id", "store_id"], path)
    only_known(frame["store_id"], STORE_IDS, what="store", path=path)
    only_known(frame["state_id"], STATES, what="state", path=path)
    only_known(frame["dept_id"], DEPARTMENT_IDS, what="department", path=path)
    # Raise if a store lies in another state, or an item belongs to two departments or none
    for key in ("dept_id", "state_id"):
        if frame[key].null_count():
            raise DataError(f"{counted(frame[key].null_count(), 'row')} without {key}", where=str(path))
    elsewhere = frame.filter(pl.col("store_id").str.slice(0, 2) != pl.col("state_id"))
    if elsewhere.height:
        store, state = elsewhere["store_id"][0], elsewhere["state_id"][0]
        raise DataError(f"store {store} cannot be in state {state}", where=f"{path}, column 'state_id'")
    torn = frame.group_by("item_id").agg(pl.col("dept_id").n_unique()).filter(pl.col("dept_id") > 1).sort("item_id")
    if torn.height:
        problem = f"{counted(torn.height, 'item')} in more than one department, first {torn['item_id'][0]}"
        raise DataError(problem, where=f"{path}, column 'dept_id'")
    frame = frame.sort("item_id", "store_id")
    daily = frame.select(in_order).to_numpy()
    wrong = (daily < 0) | np.isinf(daily)
    np.logical_or(wrong, daily != np.floor(daily), out=wrong, where=np.isfinite(daily))
    if wrong.any():
        row, day = np.argwhere(wrong)[0]
        item, store = frame["item_id"][int(row)], frame["store_id"][int(row)]
        raise DataError(
            counted(
                int(wrong.sum()),
                "number of units that is not a non-negative whole number",
                "numbers of units that are not non-negative whole numbers",
            )
            + f", first {daily[row, day]:g}",
            where=f"{path}, {item} in {store}, column '{in_order[int(day)]}'",
            fix="correct the values",
        )
    week_D = np.array([week_of_day[name] for name in in_order])
    units, days = weekly_totals(daily, week_D, n_weeks)
    return frame.select(KEYS), units, days


def _read_prices(path: Path, frame: pl.DataFrame, weeks: WeekCalendar, reporter: Reporter) -> NDArray[np.float64]:
    """Return the price of each item-store and week `[K,W]`, NaN where there is none."""
    keys = ["store_id", "item_id", "wm_yr_wk"]
    rows = read_columns(
        path, {"store_id": pl.String(), "item_id": pl.String(), "wm_yr_wk": pl.Int64(), "sell_price": pl.Float64()}
    )
    in_each_row(rows, keys, path)
    wrong = rows.filter((pl.col("sell_price") <= 0) | ~pl.col("sell_price").fill_null(1.0).is_finite())
    if wrong.height:
        store, item, week, price = wrong.row(0)
        raise DataError(
            f"{counted(wrong.height, 'price that is not', 'prices that are not')} above 0, first {price:g}",
            where=f"{path}, {item} in {store}, week {week}",
            fix="correct them, or leave out the weeks in which the item was not on sale",
        )
    if odd := sorted(set(rows["wm_yr_wk"].unique().drop_nulls().to_list()) - set(weeks.week_id.tolist())):
        raise DataError(
            f"{counted(len(odd), 'week')} that the calendar does not have: {shown(odd)}",
            where=f"{path}, column 'wm_yr_wk'",
            fix="give the calendar of the same data",
        )
    known = frame.lazy().select("store_id", "item_id").with_row_index("row")
    placed = rows.lazy().join(known, on=["store_id", "item_id"], how="left").collect(engine="streaming")
    if other := placed["row"].null_count():
        reporter.say(Diagnostic.of("prices-left-out", prices=counted(other, "price")))
    placed = placed.filter(pl.col("row").is_not_null() & pl.col("sell_price").is_not_null())
    row, week = placed["row"].to_numpy(), np.searchsorted(weeks.week_id, placed["wm_yr_wk"].to_numpy())
    at = row.astype(np.int64) * len(weeks) + week
    price = np.full(frame.height * len(weeks), np.nan)
    price[at] = placed["sell_price"].to_numpy()
    if np.isfinite(price).sum() < len(at):
        only_once(rows, keys, path)
    return price.reshape(frame.height, len(weeks))


NULLS = ["", "NA", "NaN", "nan", "null"]
FEW = 5  # columns named in a message


def column_names(path: Path) -> list[str]:
    """Return the names in a CSV file's first line.

    Raises:
        DataError: the file is empty or is no CSV.
    """
    try:
        with for_polars(path) as source:
            return pl.scan_csv(source, infer_schema=False, glob=False).collect_schema().names()
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        raise DataError(f"the file cannot be read as CSV: {_first_line(error)}", where=str(path)) from error


def read_columns(path: Path, types: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Read the given columns as the given types, in that order; blanks, NA and NaN become null, others are left out.

    Raises:
        DataError: columns are missing or doubled, values are not of their type, or rows have too many values.
    """
    present = column_names(path)
    if missing := [name for name in types if name not in present]:
        guesses = [(name, did_you_mean(name, present, quoted=True)) for name in missing[:FEW]]
        details = [f"no column '{name}'" + (f" ({guess})" if guess else "") for name, guess in guesses]
        details += [f"and {len(missing) - FEW} more"] * (len(missing) > FEW)
        problem = f"{counted(len(missing), 'column')} missing" if len(missing) > 1 else details[0]
        raise DataError(
            problem,
            where=str(path),
            fix="use the file as Kaggle provides it",
            details=details if len(missing) > 1 else (),
        )
    with for_polars(path) as source:
        lines = pl.scan_csv(source, schema_overrides=dict(types), null_values=NULLS, infer_schema=False, glob=False)
    try:
        return lines.select(list(types)).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        # The first value that is not of its column's type, if there is one
        with for_polars(path) as source:
            text = pl.scan_csv(source, null_values=NULLS, infer_schema=False, glob=False)
        for name, kind in types.items():
            if kind == pl.String:
                continue
            try:
                column = text.select(name).collect(engine="streaming")[name]
            except pl.exceptions.PolarsError:
                break
            bad = column.cast(kind, strict=False).is_null() & column.is_not_null()
            if bad.any():
                row = int(bad.arg_true()[0])
                what = "whole number" if kind.is_integer() else "number"
                values = counted(int(bad.sum()), f"value that is not a {what}", f"values that are not {what}s")
                problem = f"column '{name}' holds {values}, first {column[row]!r}"
                raise DataError(problem, where=f"{path}, row {row + 2}", fix="correct the values") from error
        raise DataError(f"the file cannot be read as CSV: {_first_line(error)}", where=str(path)) from error


def only_known(column: pl.Series, known: Iterable[str], *, what: str, path: Path) -> None:
    """Raise if a column holds names that M5 does not have; null counts as no name."""
    unknown = sorted(set(column.unique().drop_nulls().to_list()) - set(known))
    if unknown:
        row = int(column.is_in(unknown).arg_true()[0])
        raise DataError(
            f"{counted(len(unknown), f'unknown {what}')}: {shown(unknown)}",
            where=f"{path}, column '{column.name}', first in row {row + 2}",
            fix=f"M5 knows {shown(known, 12)}",
        )


def in_each_row(frame: pl.DataFrame, keys: list[str], path: Path) -> None:
    """Raise if a row has no value of a key, as the last one of a file that is cut off."""
    for key in keys:
        if frame[key].null_count():
            row = int(frame[key].is_null().arg_true()[0])
            problem = f"{counted(frame[key].null_count(), 'row')} without {key}"
            raise DataError(problem, where=f"{path}, row {row + 2}", fix="fill or remove the rows")


def only_once(frame: pl.DataFrame, keys: list[str], path: Path) -> None:
    """Raise if two rows have the same keys, or a row has none."""
    in_each_row(frame, keys, path)
    repeated = frame.select(keys).is_duplicated()
    if repeated.any():
        row = int(repeated.arg_true()[0])
        named = ", ".join(f"{key} {frame[key][row]}" for key in keys)
        raise DataError(
            f"{counted(int(repeated.sum()), 'row')} with the same {' and '.join(keys)} as another",
            where=f"{path}, first {named} in row {row + 2}",
            fix="keep one row of each",
        )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
