import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.errors import DataError, UsageError
from costar_cli.panel import Dataset, Part
from costar_cli.panel.read_table import panel_from_frame
from costar_cli.panel.split import shifted_splits, split_subjects
from costar_cli.panel.write_table import dataset_to_frames

THIRDS = {"train": 0.6, "val": 0.2, "test": 0.2}


@given(
    st.sets(st.integers(-100, 10_000), min_size=5, max_size=60), st.integers(0, 99), st.randoms(use_true_random=False)
)
def test_split_depends_on_the_set_of_subjects_alone(ids, seed, random):
    rows = [i for i in ids for _ in range(random.randint(1, 4))]
    random.shuffle(rows)
    split = split_subjects(pl.DataFrame({"subject": rows, "x": range(len(rows))}), THIRDS, seed)
    assert split.equals(split_subjects(pl.Series(sorted(ids)), THIRDS, seed))
    assert split["subject"].to_list() == sorted(ids)
    n = len(ids)
    counts = dict(split["split"].value_counts().rows())
    assert counts["val"] == counts["test"] == int(0.2 * n + 1e-9)
    assert sum(counts.values()) == n


def test_other_seed_gives_another_split():
    ids = pl.Series(range(100))
    assert not split_subjects(ids, THIRDS, 1).equals(split_subjects(ids, THIRDS, 2))


def test_text_ids_are_split_too():
    ids = pl.Series([f"FOODS_1_{i:03d}" for i in range(20)])
    assert split_subjects(ids, THIRDS, 0, subject="item").columns == ["item", "split"]


@pytest.mark.parametrize("fractions", [{"train": 0.9, "val": 0.2}, {"train": 1.2, "test": -0.2}, {"train": 0.5}])
def test_fractions_that_are_no_shares_are_usage_errors(fractions):
    with pytest.raises(UsageError, match="sum to 1"):
        split_subjects(pl.Series(range(10)), fractions, 0)


def test_too_few_subjects_and_missing_ids_are_data_errors():
    with pytest.raises(DataError, match="cannot fill a val split"):
        split_subjects(pl.Series([1, 2, 3]), THIRDS, 0)
    with pytest.raises(DataError, match="1 row without a subject"):
        split_subjects(pl.Series([1, None, 3]), THIRDS, 0)


def ages(n: int) -> pl.DataFrame:
    """A long table, three rows per subject, ages 0 to 99 in turn, rows shuffled."""
    ids = np.repeat(np.arange(n), 3)
    frame = pl.DataFrame({"subject": ids, "step": np.tile(np.arange(3), n), "age": ids % 100})
    return frame.sample(fraction=1, shuffle=True, seed=1)


def test_shifted_splits_are_disjoint_by_subject_and_follow_the_domains():
    fractions = {"source": {"train": 0.8, "val": 0.1, "test": 0.1}, "target": {"train": 0.4, "val": 0.1, "test": 0.5}}
    frame = ages(400)
    young, old = pl.col("age") < 45, pl.col("age") >= 85
    parts = shifted_splits(frame, source=young, target=old, fractions=fractions, seed=7)
    assert list(parts) == Part.all()
    subjects = {part: set(table["subject"]) for part, table in parts.items()}
    for part, ids in subjects.items():
        assert ids
        assert parts[part].height == 3 * len(ids), "all rows of a subject stay together"
        assert all(ids.isdisjoint(other) for name, other in subjects.items() if name != part)
        age = parts[part]["age"]
        assert (age < 45).all() if part.domain == "source" else (age >= 85).all()
    assert sum(map(len, subjects.values())) == 180 + 60
    again = shifted_splits(frame[::-1], source=young, target=old, fractions=fractions, seed=7)
    assert {part: set(table["subject"]) for part, table in again.items()} == subjects


def test_counts_of_the_icu_protocol_are_met():
    """Spec datasets B.6: 3704/926 of 4630 source subjects, 138/347/1737 of 3474 target subjects."""
    frame = pl.DataFrame({"subject": np.arange(8104), "old": np.arange(8104) >= 4630})
    fractions = {"source": {"train": 0.8, "val": 0.2}, "target": {"train": 0.4, "val": 0.1, "test": 0.5}}
    parts = shifted_splits(
        frame, source=~pl.col("old"), target=pl.col("old"), fractions=fractions, seed=1, few_shot=0.1
    )
    assert [table.height for table in parts.values()] == [3704, 926, 138, 347, 1737]


def test_few_shot_subjects_are_drawn_from_the_target_training_subjects():
    fractions = dict.fromkeys(("source", "target"), THIRDS)
    kwargs = {"source": pl.col("age") < 50, "target": pl.col("age") >= 50, "fractions": fractions, "seed": 2}
    everyone, few = shifted_splits(ages(100), **kwargs), shifted_splits(ages(100), **kwargs, few_shot=0.1)
    train = Part("target", "train")
    assert few[train]["subject"].n_unique() == 3
    assert set(few[train]["subject"]) < set(everyone[train]["subject"])
    assert all(few[part].equals(everyone[part]) for part in everyone if part != train)


def test_subjects_without_a_clear_domain_are_told_at_once():
    frame = ages(100).with_columns(
        age=pl.when((pl.col("subject") == 7) & (pl.col("step") == 2)).then(60).otherwise("age")
    )
    fractions = dict.fromkeys(("source", "target"), THIRDS)
    with pytest.raises(DataError) as caught:
        shifted_splits(frame, source=pl.col("age") < 50, target=pl.col("age") > 40, fractions=fractions, seed=0)
    changes, both = caught.value.details
    assert changes.startswith("first subject 7: 1 subject with a domain that changes over time (decide by")
    assert both == "first subject 7: 10 subjects in both domains (make the two conditions exclude each other)"


def test_empty_domain_and_odd_few_shot_share_are_errors():
    fractions = dict.fromkeys(("source", "target"), THIRDS)
    with pytest.raises(DataError, match="no subject belongs to the target domain"):
        shifted_splits(ages(50), source=pl.col("age") < 50, target=pl.col("age") > 90, fractions=fractions, seed=0)
    with pytest.raises(UsageError, match="few-shot"):
        shifted_splits(ages(9), source=pl.lit(True), target=pl.lit(False), fractions=fractions, seed=0, few_shot=0)


def test_one_long_table_of_a_data_set_splits_into_panels(tumor_dataset: Dataset):
    one = pl.concat(dataset_to_frames(tumor_dataset).values())
    fractions = dict.fromkeys(("source", "target"), THIRDS)
    source, target = pl.col("domain") == "source", pl.col("domain") == "target"
    parts = shifted_splits(one, source=source, target=target, fractions=fractions, seed=0)
    panels = {part: panel_from_frame(table, tumor_dataset.schema) for part, table in parts.items()}
    again = Dataset("again", tumor_dataset.schema, 6, panels)
    assert sum(p.n_subjects for p in again.panels.values()) == sum(p.n_subjects for p in tumor_dataset.panels.values())
