"""The time that is left is told from what the like of each cell took."""

import pytest

from costar_cli.cli.benchmarking import Contender, Ledger, Meter, plan_cells
from costar_cli.cli.benchmarking.ledger import Clock, in_words

METHODS = [Contender(name, name) for name in ("ridge", "crn")]


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger.json")


def record(ledger, cell, *seconds, status="done"):
    for i, wall_s in enumerate(seconds):
        meter = Meter()
        meter.wall_s = wall_s
        ledger.begin(f"{cell.key}/piece {i}", "f")
        ledger.end(f"{cell.key}/piece {i}", status, meter)


def test_nothing_is_promised_before_anything_is_known(ledger):
    cells = plan_cells([10], METHODS, few_shot=False)
    assert Clock(cells, cells, ledger).outlook() == "3 more"
    assert Clock(cells, [], ledger).outlook() == ""


def test_a_cell_is_expected_to_take_what_its_like_took_on_other_data(ledger):
    cells = plan_cells([10, 11], METHODS, few_shot=False)
    first, second = cells[:3], cells[3:]
    clock = Clock(cells, cells, ledger)
    for cell, took_s in zip(first, (1.0, 2.0, 37.0), strict=True):
        clock.finish(cell, took_s)
    assert clock.outlook() == "3 more, about 40 s"
    clock.finish(second[0], 1.0)
    clock.finish(second[1], 2.0)
    assert clock.outlook() == "1 more, about 37 s"


def test_earlier_runs_are_remembered_and_unfinished_ones_are_not(ledger):
    cells = plan_cells([10, 11], METHODS, few_shot=False)
    for cell, seconds in zip(cells[:3], ([1.0], [2.0, 3.0], [60.0, 240.0]), strict=True):
        record(ledger, cell, *seconds)
    record(ledger, cells[5], 9999.0, status="interrupted")
    assert ledger.wall_s(cells[1].key) == 5.0
    assert ledger.wall_s(cells[5].key) is None
    clock = Clock(cells, cells[3:], ledger)
    assert clock.outlook() == "3 more, about 5 min"


def test_a_method_without_its_like_is_expected_to_take_the_mean_of_its_domain(ledger):
    cells = plan_cells([10], METHODS, few_shot=False)
    clock = Clock(cells, cells, ledger)
    clock.finish(cells[0], 100.0)
    clock.finish(cells[1], 20.0)
    assert clock.outlook() == "1 more, about 20 s"


def test_cells_that_fail_are_counted_but_say_nothing_of_the_others(ledger):
    cells = plan_cells([10], METHODS, few_shot=False)
    clock = Clock(cells, cells, ledger)
    clock.finish(cells[0])
    clock.finish(cells[0])
    assert (clock.left, clock.outlook()) == (2, "2 more")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "1 s"), (40, "40 s"), (100, "2 min"), (3600, "60 min"), (9000, "2.5 h")]
)
def test_durations_are_told_as_people_say_them(seconds, words):
    assert in_words(seconds) == words
