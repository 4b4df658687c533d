"""The CSV files of the retail panel: Kaggle's columns and order, and the same content when read back."""

import csv

import numpy as np
import pytest

from simulators.retail import simulate_retail, write_csv


@pytest.fixture(scope="module")
def world():
    return simulate_retail(13, scale=0.001)


@pytest.fixture(scope="module")
def folder(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("m5") / "nested"
    names = [path.name for path in write_csv(world, folder)]
    assert names == ["calendar.csv", "sell_prices.csv", "sales_train_evaluation.csv"]
    return folder


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_calendar_reads_back(world, folder):
    header, *rows = rows_of(folder / "calendar.csv")
    assert header[:7] == ["date", "wm_yr_wk", "weekday", "wday", "month", "year", "d"]
    assert header[7:11] == ["event_name_1", "event_type_1", "event_name_2", "event_type_2"]
    assert header[11:] == ["snap_CA", "snap_TX", "snap_WI"]
    assert len(rows) == 1969
    assert rows[0] == ["2011-01-29", "11101", "Saturday", "1", "1", "2011", "d_1", *[""] * 4, "0", "0", "0"]
    assert rows[85][6:11] == ["d_86", "OrthodoxEaster", "Religious", "Easter", "Cultural"]
    snap = np.array([row[11:] for row in rows]).astype(int)
    np.testing.assert_array_equal(snap, world.calendar.snap)


def test_prices_read_back_exactly(world, folder):
    header, *rows = rows_of(folder / "sell_prices.csv")
    assert header == ["store_id", "item_id", "wm_yr_wk", "sell_price"]
    truth = world.sell_prices()
    assert [row[0] for row in rows] == world.catalogue.store_id[truth.store].tolist()
    assert [row[1] for row in rows] == world.catalogue.item_id[truth.item].tolist()
    assert [int(row[2]) for row in rows] == truth.wm_yr_wk.tolist()
    assert [float(row[3]) for row in rows] == truth.sell_price.tolist()


def test_sales_read_back_exactly(world, folder):
    header, *rows = rows_of(folder / "sales_train_evaluation.csv")
    assert header == ["id", "item_id", "dept_id", "cat_id", "store_id", "state_id", *(f"d_{i}" for i in range(1, 1942))]
    assert len(rows) == world.n_item_stores
    assert rows[0][:6] == ["HOBBIES_1_001_CA_1_evaluation", "HOBBIES_1_001", "HOBBIES_1", "HOBBIES", "CA_1", "CA"]
    assert rows[-1][:6] == ["FOODS_3_008_WI_3_evaluation", "FOODS_3_008", "FOODS_3", "FOODS", "WI_3", "WI"]
    units = np.array([row[6:] for row in rows]).astype(int).reshape(10, len(world.catalogue), 1941)
    np.testing.assert_array_equal(units.transpose(1, 0, 2), world.sales)


def test_writing_again_replaces_the_files_with_the_same_bytes(world, folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    write_csv(world, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
