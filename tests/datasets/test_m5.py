"""The retail panel: sequences, price classes, alignment, splits by item, and scaling from source-train."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Part
from costar_cli.data.check import check_dataset
from costar_cli.data.findings import not_finite, panel_problems, query_problems
from costar_cli.data.retail.m5 import RetailParts
from costar_cli.data.retail.sequences import (
    PriceTreatment,
    YearSequences,
    class_encoding,
    class_labels,
    fitted_edges,
    sequence_panel,
)
from costar_cli.data.retail.settings import M5Config
from costar_cli.data.retail.weekly import WeekCalendar, WeeklySales
from costar_cli.errors import DataError
from costar_cli.reporting import NullReporter
from simulators.retail import PRICE_EDGES, PriceClasses, build_calendar
from tests.datasets.m5_worlds import SOURCE_TRAIN, TARGET_TEST, dataset, weekly

CLASSES = PriceClasses.of(np.array([]), PRICE_EDGES)


@pytest.fixture(scope="module")
def sequences() -> YearSequences:
    return YearSequences.of(weekly())


def shop(price: list[float], *, days: list[int] | None = None, first_week: int = 4) -> WeeklySales:
    """One item in one store, from the first Saturday of 2011-02-26 on; units are the number of the week."""
    weeks = WeekCalendar.of_calendar(build_calendar())
    full = np.full((1, len(weeks)), np.nan)
    full[0, first_week : first_week + len(price)] = price
    counted = np.full((1, len(weeks)), 7, dtype=np.int8)
    if days is not None:
        counted[0, first_week : first_week + len(days)] = days
    units = np.arange(len(weeks), dtype=np.int32)[None]
    one, zero = np.array([0]), np.array([0])
    return WeeklySales(weeks, np.array(["FOODS_1_001"]), zero, one, zero, price=full, units=units, days=counted)


# --- sequences ---------------------------------------------------------------------------------------------------


def test_sequences_are_years_of_40_to_52_consecutive_weeks_on_sale(sequences: YearSequences):
    sales = weekly()
    assert len(sequences) > 1000
    assert set(sales.weeks.year[sequences.first].tolist()) == {2011, 2012, 2013, 2014, 2015}
    assert sequences.length.min() >= 40
    assert sequences.length.max() == 52
    for row, first, length in zip(sequences.row, sequences.first, sequences.length, strict=True):
        weeks = slice(first, first + length)
        assert np.isfinite(sales.price[row, weeks]).all()
        assert len(np.unique(sales.weeks.year[weeks])) == 1
        before, after = first - 1, first + length
        if before >= 0 and sales.weeks.year[before] == sales.weeks.year[first]:
            assert np.isnan(sales.price[row, before]), "a sequence begins with the year or with the sale"
        assert sales.weeks.year[after] != sales.weeks.year[first], "and ends with the year"


def test_a_gap_ends_a_sequence():
    prices = [2.0] * 48
    assert YearSequences.of(shop(prices)).length.tolist() == [45]  # the year 2011 has 45 weeks from week 4 on
    prices[3] = np.nan
    late = YearSequences.of(shop(prices))
    assert (late.first.tolist(), late.length.tolist()) == ([8], [41])
    prices[20] = np.nan
    with pytest.raises(DataError, match="no item was on sale in one store for 40 full weeks"):
        YearSequences.of(shop(prices))


def test_an_incomplete_week_may_lie_inside_but_not_at_the_ends():
    days = [5, 7, *[7] * 20, 3, *[7] * 21, 6]
    found = YearSequences.of(shop([2.0] * 45, days=days))
    assert (found.first.tolist(), found.length.tolist()) == ([5], [43])
    empty = list(days)
    empty[22] = 0  # a week without data is not on sale
    with pytest.raises(DataError, match="40 full weeks"):
        YearSequences.of(shop([2.0] * 45, days=empty))


# --- price classes -----------------------------------------------------------------------------------------------


def test_the_first_week_of_every_sequence_is_class_0(sequences: YearSequences):
    """Spec RETAIL-5."""
    assert (CLASSES.classify(sequences.change)[:, 0] == 0).all()


def test_changes_are_relative_to_the_first_week_of_the_sequence():
    prices = [2.0] * 10 + [2.2] * 10 + [1.5] * 10 + [2.0] * 15
    change = YearSequences.of(shop(prices)).change[0]
    assert change[:10].tolist() == [0.0] * 10
    assert change[10:20] == pytest.approx([0.1] * 10)
    assert change[20:30] == pytest.approx([-0.25] * 10)
    assert change[30:].tolist() == [0.0] * 15


def test_labels_say_which_change_a_class_is():
    labels = class_labels(np.array(PRICE_EDGES))
    assert len(set(labels)) == len(labels) == 22
    assert (labels[0], labels[1], labels[20], labels[21]) == (
        "no change",
        "below -15.9 %",
        "above +25.2 %",
        "unused",
    )
    assert labels[int(CLASSES.classify(-0.13))] == "-15.9 % to -11.0 %"
    assert labels[int(CLASSES.classify(0.03))] == "+2.2 % to +3.7 %"
    assert labels[int(CLASSES.classify(0.0))] == "no change"
    close = np.array([-0.9, -0.10001, -0.1, 0.1, 3.0])
    assert class_labels(close)[2] == "-10.001 % to -10.000 %", "as many decimals as it takes"


def test_fitted_edges_put_as_many_changes_in_each_class(sequences: YearSequences):
    edges = fitted_edges(sequences.change)
    assert (edges[0], edges[-1]) == (PRICE_EDGES[0], PRICE_EDGES[-1])
    changed = sequences.change[sequences.change != 0.0]
    counts = np.bincount(PriceClasses.of(changed, edges).classify(changed), minlength=22)
    assert counts[0] == counts[21] == 0
    assert counts[1:21] == pytest.approx([len(changed) / 20] * 20, rel=0.35), "some changes occur often"
    with pytest.raises(DataError, match="too few different price changes"):
        fitted_edges(np.array([[0.0, 0.1, 0.1, 0.2]]))
    often = np.concatenate([np.full(500, 0.1), np.linspace(-0.5, 0.5, 100)])
    assert (np.diff(fitted_edges(often)) > 0).all(), "a change that is most of them cannot be an edge twice"
    with pytest.raises(DataError, match="too few different price changes"):
        fitted_edges(np.zeros((3, 4)))


def test_edges_can_be_fitted_to_the_source():
    fitted, fixed = dataset(edges="fit", train_items=None), dataset(train_items=None)
    assert fitted.schema.treatments.levels != fixed.schema.treatments.levels
    given = [data.panels[SOURCE_TRAIN].treatments[..., 1:21].sum(axis=(0, 1)) for data in (fitted, fixed)]
    assert np.ptp(given[0]) < np.ptp(given[1])
    assert np.array_equal(fitted.panels[TARGET_TEST].outcomes, fixed.panels[TARGET_TEST].outcomes)


def test_changes_beyond_the_outermost_edges_are_told():
    sales, reporter = weekly(), NullReporter()
    dear = replace(sales, price=np.where(np.arange(282) % 52 == 30, 20 * sales.price, sales.price))
    RetailParts.of(dear, M5Config(), reporter)
    assert any("beyond -99.9% or +900.0% count as unchanged" in warning for warning in reporter.warnings)


# --- the panel ---------------------------------------------------------------------------------------------------


def test_the_schema_has_47_covariates_22_price_classes_and_23_statics():
    """Spec RETAIL-5, with all ten stores."""
    schema = dataset().schema
    assert schema.dims == (47, 22, 1, 23)
    assert schema.treatments.names == ("price_change",)
    assert schema.step == "week"
    assert [variable.name for variable in schema.covariates if variable.standardize] == ["snap_days"]
    assert not any(variable.standardize for variable in schema.statics)
    assert (schema.outcomes[0].name, schema.error_unit.label) == ("sales", "units per week")


def test_panels_and_queries_hold_all_invariants():
    data = dataset()
    assert list(data.panels) == Part.all()
    for part, panel in data.panels.items():
        assert panel_problems(panel, data.schema) + not_finite(panel, data.schema) == []
        for queries in data.queries.get(part, {}).values():
            assert query_problems(queries, panel, data.schema) == []
    assert not any(finding.severity == "error" for finding in check_dataset(data))


def test_one_hot_codes_sum_to_one():
    """Spec RETAIL-5."""
    for panel in dataset().panels.values():
        steps = np.arange(panel.n_steps)
        decided = steps < panel.length[:, None] - 1
        assert np.array_equal(panel.treatments.sum(axis=-1), decided.astype(float)), "none at the last step"
        assert (panel.treatments[..., 21] == 0).all(), "class 21 is never used"
        month = panel.covariates[..., 35:].sum(axis=-1)
        assert np.array_equal(month, panel.observed.astype(float))
        widths = np.split(panel.statics, [7, 10, 13], axis=1)
        assert all((block.sum(axis=1) == 1).all() for block in widths)


def test_step_t_has_the_price_and_the_calendar_of_the_week_after():
    sales = shop([2.0] * 10 + [2.2] * 10 + [2.0] * 25)
    by_class = PriceTreatment(CLASSES, class_encoding(CLASSES.edges))
    panel = sequence_panel(sales, YearSequences.of(sales), by_class.encode, np.array([7]))
    assert (panel.n_steps, panel.length.tolist(), panel.subject_id.tolist()) == (45, [45], [7])
    assert panel.outcomes[0, :, 0].tolist() == list(range(4, 49)), "units of the week itself"
    up = int(CLASSES.classify((2.2 - 2.0) / 2.0))
    given = panel.treatments[0].argmax(axis=-1)
    assert given[8:20].tolist() == [0, *[up] * 10, 0]
    assert panel.treatments[0, -1].sum() == 0
    calendar = build_calendar()
    names = [variable.name for variable in dataset().schema.covariates]
    for step in (0, 17, 44):
        days = calendar.week == 4 + step + 1
        known = dict(zip(names, panel.covariates[0, step].tolist(), strict=True))
        events = set(calendar.event_name_1[days].tolist() + calendar.event_name_2[days].tolist()) - {""}
        types = set(calendar.event_type_1[days].tolist() + calendar.event_type_2[days].tolist()) - {""}
        assert {name.removeprefix("event ") for name, on in known.items() if name.startswith("event ") and on} == events
        assert {name.removesuffix(" event") for name, on in known.items() if name.endswith(" event") and on} == types
        assert known["snap_days"] == calendar.snap[days, 0].sum()
        month = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
        assert known[f"month={month[int(calendar.month[days][0]) - 1]}"] == 1.0


def test_the_week_after_the_calendars_last_is_as_average_as_possible():
    weeks = WeekCalendar.of_calendar(build_calendar())
    beyond = weeks.covariates(1)[len(weeks)]
    assert not beyond[:34].any()
    assert beyond[34] == pytest.approx(weeks.snap_days[:, 1].mean())
    assert beyond[35:].argmax() == 5, "2016-06-25 is in June"
    sales, reporter = weekly(), NullReporter()
    cut = 205  # the last week of 2014
    assert sales.weeks.year[cut - 1 : cut + 1].tolist() == [2014, 2015]
    w = sales.weeks
    short = WeekCalendar(*(x[:cut] for x in (w.week_id, w.first_day, w.event_name, w.event_type, w.snap_days)))
    arrays = {name: getattr(sales, name)[:, :cut] for name in ("price", "units", "days")}
    RetailParts.of(replace(sales, weeks=short, **arrays), M5Config(), reporter)
    assert any("to the calendar's last week" in warning for warning in reporter.warnings)


def test_labels_and_clusters_say_what_a_subject_is():
    data = dataset()
    for panel in data.panels.values():
        assert panel.label is not None
        assert panel.cluster is not None
        items = np.char.partition(panel.label, "@")[:, 0]
        assert len(np.unique(items)) == len(np.unique(panel.cluster))
        assert all(len(np.unique(panel.cluster[items == item])) == 1 for item in np.unique(items))
    label = str(data.panels[TARGET_TEST].label[5])
    assert data.find_subject(label).row == 5
    assert label.startswith("HOUSEHOLD")
    assert data.config["embedded"] is True


def test_only_reading_files_brings_polars():
    rooms = [("m5", ["polars", "torch", "h5py", "pandas"]), ("truth", ["polars", "torch", "h5py", "pandas"]),
             ("files", ["torch", "h5py", "pandas"])]  # fmt: skip
    code = f"""
import importlib, sys
for room, absent in {rooms!r}:
    importlib.import_module(f"costar_cli.data.retail.{{room}}")
    print(room, [name for name in absent if name in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [f"{room} []" for room, _ in rooms]
