"""What holds of every split: of subjects, of clusters of them, in one domain or two."""

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from costar_cli.data.split import split_domains
from costar_cli.errors import DataError
from tests.property.strategies import seeds

Names = NDArray[np.str_]
FRACTIONS = {
    "source": {"train": 0.6, "val": 0.2, "test": 0.2},
    "target": {"train": 0.3, "val": 0.3, "test": 0.4},
}


@st.composite
def subjects(draw: st.DrawFn) -> tuple[Names, Names]:
    """Draw domains and clusters of up to 60 subjects, where clusters may span domains or leave them out."""
    n = draw(st.integers(6, 60))
    rng = np.random.default_rng(draw(seeds()))
    domain = rng.choice(["source", "target", ""], size=n, p=draw(st.sampled_from([[1, 0, 0], [0.6, 0.3, 0.1]])))
    cluster = rng.integers(draw(st.integers(5, 60)), size=n).astype(str)
    if draw(st.sampled_from(["spanning", "apart"])) == "apart":
        cluster = np.char.add(cluster, domain)
    return domain, cluster


def splits_of(split: Names, cluster: Names) -> dict[str, set[str]]:
    return {unit: set(split[(cluster == unit) & (split != "")].tolist()) for unit in np.unique(cluster).tolist()}


@given(subjects(), seeds(), st.none() | st.integers(1, 3))
def test_no_cluster_is_in_two_splits_and_no_split_is_empty(data: tuple[Names, Names], seed: int, few: int | None):
    domain, cluster = data
    split, problem = np.full(0, ""), ""
    try:
        split = split_domains(domain, FRACTIONS, seed=seed, few_shot=few, cluster=cluster)  # type: ignore[arg-type]
    except DataError as error:
        problem = error.problem
    if problem:
        assert " cannot fill a " in problem
        assert "cluster" in problem
        return
    assert all(len(found) <= 1 for found in splits_of(split, cluster).values())
    for name in {"source", "target"} & set(domain.tolist()):
        assert set(split[domain == name].tolist()) >= {"train", "val", "test"}
    assert set(split[domain == ""].tolist()) <= {""}
    if few is None:
        assert (split[domain != ""] != "").all()


@given(subjects(), seeds())
def test_clusters_of_one_subject_each_change_no_draw(data: tuple[Names, Names], seed: int):
    domain, _ = data
    own = np.arange(len(domain)).astype(str)
    try:
        plain = split_domains(domain, FRACTIONS, seed=seed)  # type: ignore[arg-type]
    except DataError:
        assume(False)  # too few subjects of a domain
    assert np.array_equal(split_domains(domain, FRACTIONS, seed=seed, cluster=own), plain)  # type: ignore[arg-type]


@given(subjects(), seeds(), st.randoms(use_true_random=False))
def test_what_clusters_are_called_changes_no_draw(data: tuple[Names, Names], seed: int, random):
    domain, cluster = data
    names = np.unique(cluster).tolist()
    random.shuffle(names)
    renamed = np.array([f"unit {names.index(unit)}" for unit in cluster.tolist()])
    try:
        split = split_domains(domain, FRACTIONS, seed=seed, cluster=cluster)  # type: ignore[arg-type]
    except DataError:
        assume(False)  # too few clusters of a domain
    assert np.array_equal(split_domains(domain, FRACTIONS, seed=seed, cluster=renamed), split)  # type: ignore[arg-type]


@given(st.integers(10, 60), seeds())
def test_clusters_of_one_domain_are_split_by_their_shares(n: int, seed: int):
    size = np.random.default_rng(seed).integers(1, 5, size=n)
    cluster = np.repeat(np.arange(n), size).astype(str)
    domain = np.full(len(cluster), "source")
    split = split_domains(domain, FRACTIONS, seed=seed, cluster=cluster)  # type: ignore[arg-type]
    counts = {name: sum(found == {name} for found in splits_of(split, cluster).values()) for name in ("val", "test")}
    assert counts == {"val": int(0.2 * n + 1e-9), "test": int(0.2 * n + 1e-9)}
