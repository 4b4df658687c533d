"""Splits by subject: a subject is in one part, whatever the order of the rows."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from costar_cli.errors import DataError, UsageError
from costar_cli.panel.dataset import Domain, Split
from costar_cli.panel.findings import counted

__all__ = ["few_shot_subjects", "split_domains", "split_subjects"]

Names = NDArray[np.str_]
SPLITS: tuple[Split, Split, Split] = ("train", "val", "test")


def split_subjects(n: int, fractions: Mapping[Split, float], seed: int) -> Names:
    """Return the split of each of `n` subjects, which are in an order that does not depend on their rows.

    Each split gets the whole part of its fraction; what rounding leaves goes to the first split named.

    Args:
        n: number of subjects.
        fractions: share of the subjects per split; they sum to 1.
        seed: seed of the draw.

    Raises:
        UsageError: fractions that are negative or do not sum to 1.
        DataError: too few subjects to give each split one.
    """
    if any(f < 0 for f in fractions.values()) or not math.isclose(sum(fractions.values()), 1, abs_tol=1e-9):
        shown = ", ".join(f"{split} {fraction:g}" for split, fraction in fractions.items())
        raise UsageError(f"the fractions of the splits must be positive and sum to 1, not {shown}")
    counts = {split: _whole(fraction * n) for split, fraction in fractions.items()}
    counts[next(iter(counts))] += n - sum(counts.values())
    if empty := [split for split, fraction in fractions.items() if fraction > 0 and counts[split] == 0]:
        problem = f"{counted(n, 'subject')} cannot fill a {empty[0]} split of {fractions[empty[0]]:g}"
        raise DataError(problem, fix="give more subjects, or a larger fraction")
    order = np.random.default_rng(seed).permutation(n)
    split = np.empty(n, dtype="<U5")
    split[order] = np.repeat(np.array(list(counts)), list(counts.values()))
    return split


def few_shot_subjects(n: int, keep: float, seed: Sequence[int]) -> NDArray[np.bool_]:
    """Return which of `n` training subjects to keep: a share below 1 of them, or a number; at least one."""
    wanted = max(1, _whole(keep * n) if keep < 1 else int(keep))
    kept = np.zeros(n, dtype=bool)
    kept[np.random.default_rng(list(seed)).permutation(n)[:wanted]] = True
    return kept


def split_domains(
    domain: Names, fractions: Mapping[Domain, Mapping[Split, float]], *, seed: int, few_shot: float | None = None
) -> Names:
    """Return the split of each subject, drawn in each domain by itself; empty for those left out.

    Args:
        domain: `source`, `target` or nothing, per subject, in an order that does not depend on their rows.
        fractions: share of the subjects per split, for each domain.
        seed: seed of the draws; the domains have child seeds.
        few_shot: share (below 1) or number of the target's training subjects to keep; the others are left out.

    Raises:
        UsageError: fractions out of range.
        DataError: a domain of too few subjects.
    """
    split = np.full(len(domain), "", dtype="<U5")
    names: tuple[Domain, Domain] = ("source", "target")
    for name, child in zip(names, np.random.SeedSequence(seed).spawn(2), strict=True):
        members = np.flatnonzero(domain == name)
        if not len(members):
            continue
        child_seed = int(child.generate_state(1, np.uint64)[0])
        try:
            split[members] = split_subjects(len(members), fractions[name], child_seed)
        except DataError as error:
            raise DataError(error.problem, where=f"the {name} domain", fix=error.fix) from None
        if name == "target" and few_shot is not None:
            train = members[split[members] == "train"]
            split[train[~few_shot_subjects(len(train), few_shot, [child_seed, 1])]] = ""
    return split


def _whole(number: float) -> int:
    return math.floor(number + 1e-9)
