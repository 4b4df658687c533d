import csv
from importlib.resources import files
from pathlib import Path

import pytest

from costar_cli.cli.benchmarking.tables import gain_percent
from costar_cli.data.icu.settings import MimicConfig
from costar_cli.data.retail.settings import M5Config
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.evaluation.published import (
    TABLES,
    is_published_data,
    published_row,
    read_published,
)
from costar_cli.methods.registry import METHODS
from costar_cli.settings.presets import PRESETS

# Means are printed to four decimals: an average of six is off by at most half a unit, and was itself rounded.
ROUNDING = 1.01e-4


@pytest.mark.parametrize("table", TABLES)
def test_every_published_table_has_22_rows_of_6_steps(table):
    rows = read_published(table)
    assert len(rows) == 22
    assert {row.dataset for row in rows} <= {"tumor", "mimic", "m5"}
    assert all(len(row.mean) == len(row.sd) == 6 for row in rows)


def test_only_the_autoregressive_row_of_m5_prints_bounds():
    odd = [row for table in TABLES for row in read_published(table) if None in (*row.mean, row.average)]
    assert [(row.dataset, row.row) for row in odd] == [("m5", "Decoder|w/ autoreg")]
    assert odd[0].mean == (6.3572, None, None, None, None, None)
    assert printed("ablation")["m5", "Decoder|w/ autoreg"]["tau2_mean"] == ">20"
    assert odd[0].average_over(1, 6) is None
    assert odd[0].average_over(1, 1) == 6.3572


def rows_by_key():
    return {(row.table, row.dataset, row.row): row for table in TABLES for row in read_published(table)}


def printed(table):
    """The cells of a published table as they are printed, by data set and row."""
    text = (files("costar_cli.evaluation") / "published" / f"{table}.csv").read_text("utf-8")
    lines = csv.DictReader(text.splitlines())
    return {(line["dataset"], line.get("method") or f"{line['component']}|{line['choice']}"): line for line in lines}


# What was recomputed from each printed row; `reported_basis` is `1-6`, `2-6` or `1-5`.
RECOMPUTED = list(csv.DictReader(Path(__file__).with_name("recomputed.csv").read_text("utf-8").splitlines()))


def test_recomputed_rows_cover_every_row_that_prints_numbers():
    numbers = {key for key, row in rows_by_key().items() if row.average is not None}
    assert {(line["table"], line["dataset"], line["row"]) for line in RECOMPUTED} == numbers


@pytest.mark.parametrize("line", RECOMPUTED, ids=lambda line: f"{line['table']}-{line['dataset']}-{line['row']}")
def test_averages_and_gains_match_the_recomputed_table(line):
    row = rows_by_key()[line["table"], line["dataset"], line["row"]]
    assert row.average == float(line["avg_reported"])
    assert printed(row.table)[row.dataset, row.row]["gain"] == line["gain_reported"]
    assert row.average_over(1, 6) == pytest.approx(float(line["avg_tau1_6"]), abs=ROUNDING)
    assert row.average_over(2, 6) == pytest.approx(float(line["avg_tau2_6"]), abs=ROUNDING)
    first, last = map(int, line["reported_basis"].split("-"))
    assert row.average_over(first, last) == pytest.approx(row.average, abs=1.5 * ROUNDING)
    reference = next(r for r in read_published(row.table) if r.dataset == row.dataset and r.row.endswith("COSTAR"))
    if not line["gain_tau1_6"]:
        assert row is reference
    else:
        gain = gain_percent(row.average_over(1, 6), reference.average_over(1, 6))
        assert gain == pytest.approx(float(line["gain_tau1_6"]), abs=0.02)


def test_rows_are_found_by_setup_and_method_of_the_registry():
    row = published_row("tumor", "zero-shot", "costar")
    assert (row.mean[0], row.sd[0], row.average) == (0.8767, 0.0492, 0.9027)
    assert published_row("tumor", "supervised", "crn-erm").average == 6.1972
    assert published_row("m5", "few-shot", "msm") is None
    assert published_row("my-cohort", "zero-shot", "costar") is None


def test_methods_unknown_to_the_paper_keep_their_name():
    assert METHODS.label("forest") == "forest"
    assert METHODS.label("gnet") == "G-Net"


def settings(config_class, section, **changes):
    """The settings that `--preset paper` gives, as a data set's file keeps them."""
    preset = {key.removeprefix(section): value for key, value in PRESETS["paper"].items() if key.startswith(section)}
    return config_class(**{**preset, **changes}).model_dump(mode="json")


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_tumours_of_the_published_size_and_confounding_are_the_published_data(preset):
    sizes = {key.removeprefix("simulate.tumor."): n for key, n in PRESETS[preset].items() if "simulate.tumor" in key}
    assert is_published_data("tumor", TumorConfig(**sizes, seed=3, paired=True).model_dump(mode="json"))


@pytest.mark.parametrize(
    "change",
    [{"train": 2_000}, {"target_test": 100}, {"gamma": 5}, {"target_gamma": 4}, {"steps": 30}, {"horizon": 4},
     {"plans": "random"}],
)  # fmt: skip
def test_other_tumours_are_not(change):
    assert not is_published_data("tumor", settings(TumorConfig, "simulate.tumor.", **change))


ICU = {"embedded": False, "kept": {"stays": 34_472, "source": 4_630, "target": 3_474}}


def test_icu_outcomes_on_a_real_file_are_the_published_data_and_those_on_the_embedded_cohort_are_not():
    config = settings(MimicConfig, "simulate.mimic.")
    assert is_published_data("mimic", config | ICU)
    few = {"stays": 129, "source": 20, "target": 15}  # the open demo
    for other in ({"embedded": True}, {"horizon": 6}, {"center": True}, {"source_to": 65.0}, {"kept": few}):
        assert not is_published_data("mimic", config | ICU | other), other


def test_kaggles_files_are_the_published_data_and_the_embedded_world_and_its_export_are_not():
    config = settings(M5Config, "ingest.m5.")
    kaggle = {"embedded": False, "weekly_prices": 6_841_121}
    assert is_published_data("m5", config | kaggle)
    for other in ({"embedded": True}, {"weekly_prices": 70_000}, {"test_items": 12}, {"target_category": "HOBBIES"}):
        assert not is_published_data("m5", config | kaggle | other), other


def test_a_file_that_does_not_say_what_it_was_made_from_is_not_the_published_data():
    for name in ("tumor", "mimic", "m5", "my-cohort"):
        assert not is_published_data(name, {})
