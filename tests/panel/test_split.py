import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.data.split import few_shot_subjects, split_domains, split_subjects
from costar_cli.errors import DataError, UsageError

THIRDS = {"train": 0.6, "val": 0.2, "test": 0.2}


@given(st.integers(5, 60), st.integers(0, 99))
def test_each_split_has_the_whole_part_of_its_fraction(n: int, seed: int):
    split = split_subjects(n, THIRDS, seed)
    assert np.array_equal(split, split_subjects(n, THIRDS, seed))
    counts = {name: int((split == name).sum()) for name in THIRDS}
    assert counts["val"] == counts["test"] == int(0.2 * n + 1e-9)
    assert sum(counts.values()) == n


def test_other_seed_gives_another_split():
    assert not np.array_equal(split_subjects(100, THIRDS, 1), split_subjects(100, THIRDS, 2))


@pytest.mark.parametrize("fractions", [{"train": 0.9, "val": 0.2}, {"train": 1.2, "test": -0.2}, {"train": 0.5}])
def test_fractions_that_are_no_shares_are_usage_errors(fractions):
    with pytest.raises(UsageError, match="sum to 1"):
        split_subjects(10, fractions, 0)


def test_too_few_subjects_are_a_data_error():
    with pytest.raises(DataError, match="3 subjects cannot fill a val split"):
        split_subjects(3, THIRDS, 0)
    with pytest.raises(DataError) as caught:
        split_domains(np.array(["source"] * 9 + ["target"] * 3), {"source": THIRDS, "target": THIRDS}, seed=0)
    assert caught.value.where == "the target domain"


def test_counts_of_the_icu_protocol_are_met():
    """As in ICU-5: 3704/926 of 4630 source subjects, 347/1737 of 3474 target subjects, 0.1 of the other 1390."""
    domain = np.where(np.arange(8104) < 4630, "source", "target")
    fractions = {"source": {"train": 0.8, "val": 0.2}, "target": {"train": 0.4, "val": 0.1, "test": 0.5}}
    split = split_domains(domain, fractions, seed=1, few_shot=0.1)
    parts = [("source", "train"), ("source", "val"), ("target", "train"), ("target", "val"), ("target", "test")]
    counts = [int(((domain == d) & (split == s)).sum()) for d, s in parts]
    assert counts == [3704, 926, 139, 347, 1737]


def test_domains_are_split_by_themselves_and_few_shot_drops_target_training_subjects_alone():
    domain = np.array(["source", "target", ""] * 60)
    fractions = {"source": THIRDS, "target": THIRDS}
    everyone, few = split_domains(domain, fractions, seed=2), split_domains(domain, fractions, seed=2, few_shot=5)
    assert set(everyone[domain == ""]) == {""}
    train = (domain == "target") & (everyone == "train")
    assert np.array_equal(few[~train], everyone[~train])
    assert sorted(few[train]) == [""] * 31 + ["train"] * 5
    alone = split_domains(np.where(domain == "source", "", domain), fractions, seed=2)
    assert np.array_equal(alone[domain == "target"], everyone[domain == "target"])


@pytest.mark.parametrize(("keep", "kept"), [(0.1, 2), (0.01, 1), (7, 7), (100, 20)])
def test_few_shot_keeps_a_share_or_a_number_and_at_least_one(keep: float, kept: int):
    assert few_shot_subjects(20, keep, [3]).sum() == kept


def families(sizes: list[int]) -> np.ndarray:
    return np.repeat([f"f{i}" for i in range(len(sizes))], sizes)


def test_shares_count_clusters_where_there_are_some():
    cluster = families([1, 7, 2, 2, 9, 1, 1, 3, 4, 5])
    domain = np.full(len(cluster), "source")
    split = split_domains(domain, {"source": THIRDS}, seed=1, cluster=cluster)
    of_cluster = {unit: set(split[cluster == unit]) for unit in np.unique(cluster)}
    assert sorted(next(iter(splits)) for splits in of_cluster.values()) == ["test"] * 2 + ["train"] * 6 + ["val"] * 2
    assert all(len(splits) == 1 for splits in of_cluster.values())


def test_too_few_clusters_are_told_with_their_number_and_that_of_subjects():
    domain = np.array(["source"] * 30 + ["target"] * 12)
    cluster = np.concatenate([families([3] * 10), np.repeat(["t1", "t2", "t3"], 4)])
    with pytest.raises(DataError, match="3 clusters of 12 subjects cannot fill a val split") as caught:
        split_domains(domain, {"source": THIRDS, "target": THIRDS}, seed=0, cluster=cluster)
    assert (caught.value.where, caught.value.fix) == ("the target domain", "give more clusters, or a larger fraction")


def test_the_target_draws_what_clusters_of_the_source_leave_it_to_draw():
    """Twenty clusters in both domains keep the source's split; the target's own twenty bring it to its own shares."""
    domain = np.array(["source", "target"] * 20 + ["target"] * 20)
    cluster = np.concatenate([np.repeat(np.arange(20), 2), np.arange(20, 40)]).astype(str)
    own = {"train": 0.25, "val": 0.25, "test": 0.5}
    split = split_domains(domain, {"source": THIRDS, "target": own}, seed=3, cluster=cluster)
    assert np.array_equal(split[:40:2], split[1:40:2])
    counts = {name: int((split[domain == "target"] == name).sum()) for name in own}
    assert counts == {"train": 12, "val": 10, "test": 18}  # 12 of the source's are in train: the largest gets 2 fewer


def test_without_clusters_the_draw_is_what_it_always_was():
    domain = np.array(["source", "target"] * 10)
    split = split_domains(domain, {"source": THIRDS, "target": THIRDS}, seed=7)
    assert "".join(name[1] for name in split) == "rrrrrreraaeaarrrrere"  # tRain, vAl, tEst
