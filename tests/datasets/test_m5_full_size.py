"""M5 at its full size, 30,490 items in stores by 1,941 days: minutes, not hours, and within the memory of a laptop."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.measure import run_child
from costar_cli.data.retail.files import read_m5_tables
from costar_cli.data.retail.weekly import WeeklySales
from costar_cli.data.store import read_dataset
from costar_cli.reporting import NullReporter
from simulators.retail import simulate_retail, write_csv
from tests.datasets.m5_worlds import TARGET_TEST

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def test_the_full_files_are_read_exactly_and_ingested_within_6_gb_and_minutes(tmp_path: Path):
    world = simulate_retail(10, scale=1.0)
    assert world.n_item_stores == 30_490
    write_csv(world, tmp_path / "m5")
    read, known = read_m5_tables(tmp_path / "m5", NullReporter()), WeeklySales.of_world(world)
    for name in ("item_id", "department", "item", "store", "price", "units", "days"):
        np.testing.assert_array_equal(getattr(read, name), getattr(known, name))
    del world, read, known
    command = ["-m", "costar_cli", "ingest", "m5", str(tmp_path / "m5"), "--preset", "paper", "-w", str(tmp_path / "w")]
    child = run_child(*command)
    assert child.peak_mb < 6000
    assert child.elapsed_s < 600, "a minute on two idle cores"
    data = read_dataset(tmp_path / "w" / "data.h5", parts=[TARGET_TEST])
    panel = data.panels[TARGET_TEST]
    assert sorted(data.config["items"].values()) == [104, 105, 130, 144, 524, 1163]
    assert 18_000 < panel.n_subjects < 22_000, "the paper's nine stores have 18,005"
    assert len(data.queries[TARGET_TEST]["rolling_origin"]) == (panel.length - 6).sum()
