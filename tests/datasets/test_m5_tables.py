"""Reading the CSV files of M5: the same panel as the simulator's arrays, messy files, and errors that name places."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from costar_cli.data import Dataset
from costar_cli.data.retail.files import m5_files, read_m5_tables
from costar_cli.errors import DataError
from costar_cli.reporting import NullReporter
from tests.datasets.m5_worlds import SALES, change, copied, dataset, export, ingested, weekly

PRICES, CALENDAR = "sell_prices.csv", "calendar.csv"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("m5") / "files")


@pytest.fixture(scope="module")
def few(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of two items in ten stores, quick to read."""
    folder = copied(files, tmp_path_factory.mktemp("few"))
    for name in (PRICES, SALES):
        change(folder, name, lambda rows: rows.filter(pl.col("item_id").is_in(["HOBBIES_1_001", "FOODS_1_001"])))
    return folder


def assert_same_panels(one: Dataset, other: Dataset) -> None:
    assert one.schema == other.schema
    for part, panel in one.panels.items():
        for name in ("covariates", "treatments", "outcomes", "statics", "length", "subject_id", "label", "cluster"):
            assert np.array_equal(getattr(panel, name), getattr(other.panels[part], name)), name
        for name in ("subject", "origin", "plan", "outcomes", "scored"):
            if part in one.queries:
                sets = [data.queries[part]["rolling_origin"] for data in (one, other)]
                assert np.array_equal(getattr(sets[0], name), getattr(sets[1], name)), name


def problem(folder: Path) -> DataError:
    with pytest.raises(DataError) as error:
        read_m5_tables(folder, NullReporter())
    return error.value


# --- the same from files -----------------------------------------------------------------------------------------


def test_the_embedded_panel_is_that_of_its_files(files: Path):
    data = ingested(files)
    assert_same_panels(dataset(), data)
    assert data.config["embedded"] is False
    assert data.config["weekly_prices"] == np.isfinite(weekly().price).sum()
    assert {name for sets in data.queries.values() for name in sets} == {"rolling_origin"}
    assert data.truth == {}


def test_weekly_sales_and_prices_are_read_exactly(files: Path):
    read, known = read_m5_tables(files, NullReporter()), weekly()
    for name in ("item_id", "department", "item", "store", "price", "units", "days"):
        np.testing.assert_array_equal(getattr(read, name), getattr(known, name))


def test_both_sales_files_give_the_same_and_the_evaluation_file_comes_first(files: Path, tmp_path: Path):
    """Spec RETAIL-3: sequences end with 2015, before the files part."""
    folder = copied(files, tmp_path)
    rows = pl.read_csv(folder / SALES, infer_schema=False)
    shorter = rows.drop([f"d_{day}" for day in range(1914, 1942)])
    shorter.with_columns(pl.col("id").str.replace("_evaluation", "_validation")).write_csv(
        folder / "sales_train_validation.csv"
    )
    assert m5_files(folder)["sales"].name == SALES
    (folder / SALES).unlink()
    assert m5_files(folder)["sales"].name == "sales_train_validation.csv"
    assert_same_panels(dataset(), ingested(folder))


def test_the_order_of_rows_and_columns_and_further_columns_do_not_matter(files: Path, tmp_path: Path):
    folder = copied(files, tmp_path)
    for name in (CALENDAR, PRICES, SALES):
        change(
            folder,
            name,
            lambda rows: (
                rows.sample(fraction=1.0, shuffle=True, seed=1)
                .select(sorted(rows.columns, reverse=True))
                .with_columns(note=pl.lit('x, "y"'))
            ),
        )
    assert_same_panels(dataset(), ingested(folder))


def test_weeks_without_a_price_are_not_on_sale(files: Path, tmp_path: Path):
    folder = copied(files, tmp_path)
    before = weekly()
    row = 0
    first = int(np.flatnonzero(np.isfinite(before.price[row]))[0])
    lost, blank = (int(before.weeks.week_id[first + ahead]) for ahead in (70, 75))
    item, store = before.item_store_name[row].split("@")
    here = (pl.col("item_id") == item) & (pl.col("store_id") == store)

    def edit(rows: pl.DataFrame) -> pl.DataFrame:
        rows = rows.filter(~(here & (pl.col("wm_yr_wk") == str(lost))))
        hidden = here & (pl.col("wm_yr_wk") == str(blank))
        return rows.with_columns(pl.when(hidden).then(pl.lit("")).otherwise("sell_price").alias("sell_price"))

    change(folder, PRICES, edit)
    after = read_m5_tables(folder, NullReporter())
    gone = np.isnan(after.price) & np.isfinite(before.price)
    assert np.argwhere(gone).tolist() == [[row, first + 70], [row, first + 75]]


def test_days_without_a_number_shorten_their_week(files: Path, tmp_path: Path):
    folder = copied(files, tmp_path)
    days = [pl.when(pl.int_range(pl.len()) == 3).then(pl.lit(text)).otherwise(pl.col(day)).alias(day)
            for day, text in (("d_8", "NaN"), ("d_9", ""), ("d_15", "NA"))]  # fmt: skip
    change(folder, SALES, lambda rows: rows.with_columns(days))
    name = "@".join(pl.read_csv(files / SALES).row(3)[i] for i in (1, 4))
    after, before = read_m5_tables(folder, NullReporter()), weekly()
    row = int(np.flatnonzero(after.item_store_name == name)[0])
    assert after.days[row, :4].tolist() == [7, 5, 6, 7]
    assert (np.delete(after.days, row, axis=0) == np.delete(before.days, row, axis=0)).all()
    assert (after.units[row, :4] <= before.units[row, :4]).all()


def test_prices_of_what_has_no_sales_are_left_out(files: Path, tmp_path: Path):
    folder = copied(files, tmp_path)
    change(folder, SALES, lambda rows: rows.filter(pl.col("store_id") != "CA_4"))
    read = read_m5_tables(folder, NullReporter())
    assert len(read.item) == 9 * 56
    assert 3 not in read.store
    nine = ingested(folder)
    assert nine.schema.dims[3] == 23, "one column per known store, whether it is there or not"


def test_extra_weeks_without_days_stop_a_sequence_at_the_data(files: Path, tmp_path: Path):
    """Sales that end in the middle of 2015 make no sequence of that year."""
    folder = copied(files, tmp_path)
    change(folder, SALES, lambda rows: rows.drop([f"d_{day}" for day in range(1614, 1942)]))
    data = ingested(folder)
    assert {label.split("/")[1] for panel in data.panels.values() for label in panel.names} == {
        "2011", "2012", "2013", "2014",
    }  # fmt: skip


# --- what is wrong -----------------------------------------------------------------------------------------------


def test_missing_files_are_named_all_at_once(few: Path, tmp_path: Path):
    assert "folder not found" in problem(tmp_path / "nowhere").problem
    assert "this is not a folder but a file" in problem(few / CALENDAR).problem
    folder = copied(few, tmp_path)
    (folder / PRICES).unlink()
    one = problem(folder)
    assert one.problem == "sell_prices: there is no sell_prices.csv"
    assert "costar simulate m5 --export DIR" in str(one.fix)
    (folder / SALES).unlink()
    both = problem(folder)
    assert both.problem == "2 files of M5 missing"
    assert len(both.details) == 2
    assert "sales_train_evaluation.csv or sales_train_validation.csv" in both.details[1]


def test_missing_columns_are_named_with_what_is_near(few: Path, tmp_path: Path):
    folder = copied(few, tmp_path)
    change(folder, CALENDAR, lambda rows: rows.rename({"snap_CA": "snap_ca", "event_type_2": "type_2"}))
    error = problem(folder)
    assert error.problem == "2 columns missing"
    assert error.where == str(folder / CALENDAR)
    assert "no column 'snap_CA' (did you mean 'snap_ca'?)" in error.details


CASES = {
    "an event that M5 does not have": (
        CALENDAR,
        lambda rows: rows.with_columns(event_name_1=pl.lit("Black Friday")),
        "1 unknown event: 'Black Friday'",
    ),
    "a type that M5 does not have": (
        CALENDAR,
        lambda rows: rows.with_columns(event_type_2=pl.lit("Weather")),
        "1 unknown event type: 'Weather'",
    ),
    "a SNAP flag of 2": (CALENDAR, lambda rows: rows.with_columns(snap_TX=pl.lit("2")), "other values than 0 and 1"),
    "a date that is none": (CALENDAR, lambda rows: rows.with_columns(date=pl.lit("yesterday")), "not dates"),
    "a day twice": (CALENDAR, lambda rows: pl.concat([rows, rows[5:6]]), "same date as another"),
    "a missing day": (CALENDAR, lambda rows: rows.filter(pl.col("d") != "d_100"), "1 gap between days"),
    "a long week": (
        CALENDAR,
        lambda rows: rows.with_columns(wm_yr_wk=pl.col("wm_yr_wk").replace("11102", "11101")),
        "week 11101 has more than seven days",
    ),
    "an empty calendar": (CALENDAR, lambda rows: rows.head(0), "the calendar has no days"),
    "a state that M5 does not have": (
        SALES,
        lambda rows: rows.with_columns(state_id=pl.lit("NY")),
        "1 unknown state: 'NY'",
    ),
    "a store that M5 does not have": (
        SALES,
        lambda rows: rows.with_columns(store_id=pl.col("store_id").str.replace("WI_3", "WI_9")),
        "1 unknown store: 'WI_9'",
    ),
    "a store in another state": (
        SALES,
        lambda rows: rows.with_columns(state_id=pl.lit("CA")),
        "store TX_1 cannot be in state CA",
    ),
    "a department that M5 does not have": (
        SALES,
        lambda rows: rows.with_columns(dept_id=pl.lit("TOYS_1")),
        "1 unknown department: 'TOYS_1'",
    ),
    "an item in two departments": (
        SALES,
        lambda rows: rows.with_columns(
            dept_id=pl.when(pl.int_range(pl.len()) == 0).then(pl.lit("FOODS_1")).otherwise("dept_id")
        ),
        "1 item in more than one department, first HOBBIES_1_001",
    ),
    "an item-store twice": (SALES, lambda rows: pl.concat([rows, rows[7:8]]), "same item_id and store_id as another"),
    "text for units": (SALES, lambda rows: rows.with_columns(d_7=pl.lit("many")), "not numbers, first 'many'"),
    "negative units": (
        SALES,
        lambda rows: rows.with_columns(d_7=pl.lit("-3")),
        "not non-negative whole numbers, first -3",
    ),
    "half units": (
        SALES,
        lambda rows: rows.with_columns(d_7=pl.lit("2.5")),
        "not non-negative whole numbers, first 2.5",
    ),
    "a day beyond the calendar": (SALES, lambda rows: rows.with_columns(d_5000=pl.lit("1")), "1 day that the calendar"),
    "no days": (SALES, lambda rows: rows.select("item_id", "dept_id", "store_id", "state_id"), "no columns of days"),
    "no items": (SALES, lambda rows: rows.head(0), "the sales file has no rows"),
    "a price of no week": (
        PRICES,
        lambda rows: rows.with_columns(wm_yr_wk=pl.when(pl.int_range(pl.len()) > 0).then("wm_yr_wk")),
        "1 row without wm_yr_wk",
    ),
    "a price of no item": (
        PRICES,
        lambda rows: rows.with_columns(item_id=pl.when(pl.int_range(pl.len()) > 0).then("item_id")),
        "1 row without item_id",
    ),
    "a price of nothing": (PRICES, lambda rows: rows.with_columns(sell_price=pl.lit("0")), "not above 0, first 0"),
    "an infinite price": (PRICES, lambda rows: rows.with_columns(sell_price=pl.lit("inf")), "not above 0, first inf"),
    "text for a price": (PRICES, lambda rows: rows.with_columns(sell_price=pl.lit("$2")), "not numbers, first '$2'"),
    "one price in words": (
        PRICES,
        lambda rows: rows.with_columns(
            sell_price=pl.when(pl.int_range(pl.len()) == 0).then(pl.lit("two")).otherwise("sell_price")
        ),
        "holds 1 value that is not a number, first 'two'",
    ),
    "a price twice": (PRICES, lambda rows: pl.concat([rows, rows[9:11]]), "4 rows with the same store_id and item_id"),
    "a week beyond the calendar": (
        PRICES,
        lambda rows: rows.with_columns(wm_yr_wk=pl.col("wm_yr_wk").replace("11150", "19950")),
        "1 week that the calendar does not have: '19950'",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_values_that_m5_cannot_have_are_errors_that_name_the_place(case: str, few: Path, tmp_path: Path):
    name, edit, message = CASES[case]
    folder = copied(few, tmp_path)
    change(folder, name, edit)
    error = problem(folder)
    assert message in error.problem
    assert name in str(error.where)


def test_files_that_are_no_tables_are_errors(few: Path, tmp_path: Path):
    folder = copied(few, tmp_path)
    (folder / CALENDAR).write_bytes(b"")
    assert "cannot be read as CSV" in problem(folder).problem
    (folder / CALENDAR).write_bytes(b"\xff\xfe\x00binary\x00\x01\n\x02\x03")
    assert str(folder / CALENDAR) in str(problem(folder).where)
    (folder / CALENDAR).write_text((few / CALENDAR).read_text())
    ragged = (few / PRICES).read_text().splitlines()
    ragged[5] += ",1,2,3"
    (folder / PRICES).write_text("\n".join(ragged))
    assert "cannot be read as CSV" in problem(folder).problem


def test_a_category_without_items_is_an_error(files: Path, tmp_path: Path):
    folder = copied(files, tmp_path)
    change(folder, SALES, lambda rows: rows.filter(~pl.col("item_id").str.starts_with("HOUSEHOLD")))
    with pytest.raises(DataError, match="0 items of HOUSEHOLD") as error:
        ingested(folder)
    assert error.value.fix == "give more items, or choose from 'FOODS', 'HOBBIES'"
