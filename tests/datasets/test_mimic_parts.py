"""Who is in which part: age groups, counts of the published cohort, and tiny cohorts."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from costar_cli.data import Part
from costar_cli.data.icu.parts import choose_stays, split_source, split_target
from costar_cli.data.icu.settings import MimicConfig
from costar_cli.errors import DataError
from costar_cli.reporting import NullReporter
from tests.datasets.mimic_worlds import made_table


def test_split_sizes_are_those_of_the_specification():
    """Spec ICU-5, with a test part of its own for the source."""
    source = split_source(4630, MimicConfig())
    target = split_target(3474, MimicConfig())
    assert {split: len(rows) for split, rows in source.items()} == {"train": 3704, "val": 463, "test": 463}
    assert {split: len(rows) for split, rows in target.items()} == {"train": 138, "val": 347, "test": 1737}
    for splits in (source, target):
        rows = np.concatenate(list(splits.values()))
        assert len(np.unique(rows)) == len(rows)


@pytest.mark.parametrize("n", [*range(10, 60), 4629, 4631])
def test_no_patient_is_in_two_splits(n: int):
    for splits in (split_source(n, MimicConfig()), split_target(n, MimicConfig())):
        rows = np.concatenate(list(splits.values()))
        assert len(np.unique(rows)) == len(rows)
        assert rows.max() < n
        assert all(len(of) for of in splits.values())


def test_few_shot_share_and_seed_change_who_trains_not_who_tests():
    config = MimicConfig()
    few, more, other = (split_target(200, config.model_copy(update=u)) for u in ({}, {"few_shot": 0.5}, {"seed": 1}))
    assert np.array_equal(few["test"], more["test"])
    assert np.array_equal(few["train"], more["train"][: len(few["train"])])
    assert len(few["train"]) == 8
    assert len(more["train"]) == 40
    assert not np.array_equal(np.sort(few["test"]), np.sort(other["test"]))


def test_age_groups_are_open_below_closed_above_and_ages_are_capped():
    ages = [19.0, 19.1, 45.0, 45.1, 85.0, 85.1, 91.4, 300.0, np.nan] + [30.0] * 20 + [89.0] * 20
    table = made_table([25] * len(ages), ages)
    chosen = choose_stays(table, MimicConfig(), NullReporter())
    assert chosen.counts["without an age"] == 1
    assert chosen.counts["outside both age groups"] == 3
    assert chosen.counts["source"] == 22
    assert chosen.counts["target"] == 23
    below_cap = choose_stays(table, MimicConfig(target_to=91.0), NullReporter())
    assert below_cap.counts["target"] == 21


def test_short_stays_are_left_out_before_cropping():
    length = [19, 20, 120] * 12
    table = made_table(length, [30.0] * 18 + [90.0] * 18)
    chosen = choose_stays(table, MimicConfig(hours=50), NullReporter())
    assert chosen.counts["shorter than 20 hours"] == 12
    assert min(table.length[rows].min() for rows in chosen.rows.values()) == 20


def test_other_age_groups_can_be_chosen():
    table = made_table([30] * 60, [*np.linspace(46, 60, 30), *np.linspace(61, 84, 30)])
    config = MimicConfig(source_above=45, source_to=60, target_above=60, target_to=85)
    chosen = choose_stays(table, config, NullReporter())
    assert {str(part): len(rows) for part, rows in chosen.rows.items()} == {
        "source/train": 24, "source/val": 3, "source/test": 3, "target/train": 1, "target/val": 3, "target/test": 15,
    }  # fmt: skip


def test_without_transfer_all_ages_are_the_source_and_a_sample_can_be_drawn():
    table = made_table([30] * 50, [float(age) for age in range(20, 70)])
    chosen = choose_stays(table, MimicConfig(), NullReporter(), by_age=False, at_most=30)
    assert set(chosen.rows) == {Part("source", split) for split in ("train", "val", "test")}
    assert chosen.counts["not drawn"] == 20
    assert sum(len(rows) for rows in chosen.rows.values()) == 30
    again = choose_stays(table, MimicConfig(), NullReporter(), by_age=False, at_most=30)
    assert all(np.array_equal(rows, again.rows[part]) for part, rows in chosen.rows.items())


@pytest.mark.parametrize(
    ("length", "ages", "problem", "fix"),
    [
        ([30], [30.0], "the target's age group is empty: none of 1 patient is above 85 years old", "--target-above"),
        ([30] * 9, [50.0] * 9, "the source's age group is empty", "--source-above"),
        ([19] * 9, [30.0] * 9, "no stay is left: 9 shorter than 20 hours", "lower min_hours"),
        ([30] * 3, [np.nan] * 3, "no stay is left: 3 without an age", "stays"),
        ([30] * 12, [30.0] * 9 + [90.0] * 3, "too few source patients, 9: none would be left to select on", "10"),
        ([30] * 12, [30.0] * 11 + [90.0], "too few target patients, 1: ", "10 patients"),
    ],
)
def test_tiny_cohorts_are_one_clear_error(length: list[int], ages: list[float], problem: str, fix: str):
    with pytest.raises(DataError) as caught:
        choose_stays(made_table(length, ages), MimicConfig(), NullReporter())
    assert problem in caught.value.problem
    assert fix in (caught.value.fix or "")


def test_too_few_patients_of_an_age_group_are_counted_beside_those_of_all_ages_with_the_flags_that_move_the_edges():
    table = made_table([30] * 40, [10.0] + [30.0] * 9 + [60.0] * 20 + [300.0] * 10)
    with pytest.raises(DataError) as caught:
        choose_stays(table, MimicConfig(), NullReporter())
    assert list(caught.value.details) == [
        "at most 19 years old (neither): 1 patient",
        "above 19 and at most 45 years old (source): 9 patients",
        "above 45 and at most 85 years old (neither): 20 patients",
        "above 85 years old (target): 10 patients",
    ]
    fix = caught.value.fix or ""
    assert all(flag in fix for flag in ("`--source-above`", "`--source-to`", "`--stays`"))
    choose_stays(table, MimicConfig(source_to=60), NullReporter())
    with pytest.raises(DataError) as caught:
        choose_stays(table, MimicConfig(), NullReporter(), by_age=False, at_most=4)
    assert not caught.value.details
    assert "--source-to" not in (caught.value.fix or "")


def test_identifiers_order_the_rows_whatever_the_table():
    table = made_table([25] * 40, [30.0] * 20 + [90.0] * 20)
    mixed = replace(table, subject_id=np.random.default_rng(1).permutation(table.subject_id))
    for rows in choose_stays(mixed, MimicConfig(), NullReporter()).rows.values():
        assert (np.diff(mixed.subject_id[rows]) > 0).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"source_to": 90.0},
        {"source_above": 50.0},
        {"target_to": 80.0},
        {"age_cap": 80.0},
        {"horizon": 20},
        {"hours": 11},
        {"source_val": 0.5, "source_test": 0.5},
        {"target_val": 0.6},
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, float]):
    with pytest.raises(ValidationError):
        MimicConfig(**settings)
