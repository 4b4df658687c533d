"""Who is in which part: domains by column or condition, splits by column or draw, few-shot."""

from pathlib import Path

import polars as pl
import pytest

from costar_cli.data import Part
from tests.datasets.table_worlds import Listener, ingest, make_schema, problems, ward

TRAIN = Part("source", "train")


def test_a_table_without_a_target_has_source_parts_alone(tmp_path: Path):
    dataset = ingest(ward(), make_schema(without=("site",)), folder=tmp_path)
    assert {part.domain for part in dataset.panels} == {"source"}
    assert sum(panel.n_subjects for panel in dataset.panels.values()) == 30


@pytest.mark.parametrize(
    ("domain", "source", "target"),
    [
        ({"target": "age >= 60"}, set(range(1, 20)), set(range(20, 31))),
        ({"source": "age < 50", "target": "age >= 60"}, set(range(1, 10)), set(range(20, 31))),
        ({"target": "sex = 'f' and age > 52"}, {*range(1, 13), *range(13, 31, 2)}, set(range(14, 31, 2))),
        ({"target": "not (sex = 'm' or age < 55)"}, {*range(1, 16), *range(17, 31, 2)}, set(range(16, 31, 2))),
    ],
)
def test_conditions_say_who_the_target_is(domain: dict, source: set[int], target: set[int], tmp_path: Path):
    dataset = ingest(ward(), make_schema(without=("site",), domain=domain), folder=tmp_path)
    found = {"source": set(), "target": set()}
    for part, panel in dataset.panels.items():
        found[part.domain] |= {int(name[1:]) for name in panel.names}
    assert found == {"source": source, "target": target}


def test_conditions_may_use_columns_of_no_role_and_leave_out_whom_they_say_nothing_of(tmp_path: Path):
    frame = ward().with_columns(insured=pl.when(pl.col("patient") != "p05").then(pl.col("patient") < "p16"))
    schema = make_schema(without=("site",), domain={"target": "insured = true"})
    listener = Listener()
    dataset = ingest(frame, schema, folder=tmp_path, listener=listener)
    assert dataset.find_subject("p02").part.domain == "target"
    assert dataset.find_subject("p20").part.domain == "source"
    assert "1 subject in neither domain left out" in listener.notes
    [line] = problems(ward(), make_schema(without=("site",), domain={"target": "agee > 3"}), folder=tmp_path)
    assert "there is no column 'agee'" in line


def test_a_condition_may_compare_a_numeric_column_with_true(tmp_path: Path):
    frame = ward().with_columns(south=(pl.col("patient") > "p15").cast(pl.Int8))
    schema = make_schema({"south": {"role": "static"}}, without=("site",), domain={"target": "south = true"})
    dataset = ingest(frame, schema, folder=tmp_path)
    assert dataset.find_subject("p16").part.domain == "target"
    assert dataset.find_subject("p15").part.domain == "source"


def test_splits_follow_a_column_and_few_shot_keeps_some(tmp_path: Path):
    words = pl.Series(["Train", "validation", "test"])
    frame = ward(90).with_columns(part=words.gather((pl.Series(range(540)) // 6 // 3) % 3))
    dataset = ingest(frame, make_schema({"part": {"role": "split"}}), folder=tmp_path)
    assert dataset.find_subject("p01").part.split == "train"
    assert dataset.find_subject("p04").part.split == "val"
    assert dataset.find_subject("p07").part.split == "test"
    assert dataset.panels[Part("target", "train")].n_subjects == 10
    for few, kept in ((4, 4), (0.25, 2), (100, 10)):
        schema = make_schema({"part": {"role": "split"}}, split={"few_shot": few})
        listener = Listener()
        panel = ingest(frame, schema, folder=tmp_path, listener=listener).panels[Part("target", "train")]
        assert panel.n_subjects == kept
        assert any("few_shot" in note for note in listener.notes) == (kept < 10)


def test_target_may_have_its_own_shares(tmp_path: Path):
    schema = make_schema(
        split={"train": 0.5, "val": 0.25, "test": 0.25, "target": {"train": 0.2, "val": 0.2, "test": 0.6}}
    )
    counts = {str(part): panel.n_subjects for part, panel in ingest(ward(), schema, folder=tmp_path).panels.items()}
    assert counts == {"source/train": 10, "source/val": 5, "source/test": 5,
                      "target/train": 2, "target/val": 2, "target/test": 6}  # fmt: skip


def test_the_seed_decides_the_split_and_the_flag_wins(tmp_path: Path):
    names = {
        seed: ingest(ward(), make_schema(split={"seed": seed}), folder=tmp_path).panels[TRAIN].names for seed in (0, 1)
    }
    assert names[0] != names[1]
    assert ingest(ward(), make_schema(split={"seed": 0}), folder=tmp_path, seed=1).panels[TRAIN].names == names[1]


def families() -> pl.DataFrame:
    """Ninety patients in thirty families of three, one of each in the south."""
    return ward(90).with_columns(family=pl.format("fam{}", pl.int_range(pl.len()) // 6 // 3))


FAMILY = {"family": {"role": "cluster"}}


def test_a_cluster_is_in_one_split_in_both_domains(tmp_path: Path):
    dataset = ingest(families(), make_schema(FAMILY), folder=tmp_path)
    splits: dict[int, set[str]] = {}
    for part, panel in dataset.panels.items():
        for unit in panel.cluster.tolist():
            splits.setdefault(unit, set()).add(part.split)
    assert len(splits) == 30
    assert all(len(found) == 1 for found in splits.values())
    assert {str(part): panel.n_subjects for part, panel in dataset.panels.items()} == {
        "source/train": 44, "source/val": 8, "source/test": 8, "target/train": 22, "target/val": 4, "target/test": 4,
    }  # fmt: skip


def test_a_column_of_splits_may_not_divide_a_cluster(tmp_path: Path):
    words = pl.Series(["train", "val", "test"])
    whole = families().with_columns(part=words.gather((pl.Series(range(540)) // 18) % 3))
    schema = make_schema({**FAMILY, "part": {"role": "split"}})
    assert sum(panel.n_subjects for panel in ingest(whole, schema, folder=tmp_path).panels.values()) == 90
    divided = whole.with_columns(part=pl.when(pl.col("patient") == "p05").then(pl.lit("train")).otherwise("part"))
    [line] = problems(divided, schema, folder=tmp_path)
    assert "column 'part': 1 cluster in several splits" in line
    assert "cluster fam1: subject p04 is in val, subject p05 in train" in line
    assert "leave the split to costar" in line


def test_too_few_clusters_and_subjects_without_one_are_errors(tmp_path: Path):
    [line] = problems(families().head(18 * 5), make_schema(FAMILY), folder=tmp_path)
    assert "the source domain: 5 clusters of 10 subjects cannot fill a val split of 0.15 (give more clusters" in line
    lost = families().with_columns(family=pl.when(pl.col("patient") != "p07").then("family"))
    [line] = problems(lost, make_schema(FAMILY), folder=tmp_path)
    assert "first subject p07: column 'family': 1 subject without a cluster" in line
