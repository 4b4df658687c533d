"""Splits by subject or by cluster of subjects: each is in one split, whatever the order of the rows (spec TABLE-4)."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.dataset import Domain, Split
from costar_cli.data.findings import counted
from costar_cli.errors import DataError, UsageError

Names = NDArray[np.str_]
SPLITS: tuple[Split, Split, Split] = ("train", "val", "test")


def split_subjects(n: int, fractions: Mapping[Split, float], seed: int) -> Names:
    """Return the split of each of `n` subjects, which are in an order that does not depend on their rows.

    Each split gets the whole part of its fraction; what rounding leaves goes to the first split named.

    Raises:
        UsageError: fractions that are negative or do not sum to 1.
        DataError: too few subjects to give each split one.
    """
    return _draw(np.full(n, "", dtype="<U5"), fractions, seed, who=counted(n, "subject"), more="subjects")


def _draw(fixed: Names, fractions: Mapping[Split, float], seed: int, *, who: str, more: str) -> Names:
    """Return the split of each unit: where `fixed` says none, a draw that brings the splits to their fractions.

    Where too many units are fixed in one split, the largest of the others get fewer.
    """
    if any(f < 0 for f in fractions.values()) or not math.isclose(sum(fractions.values()), 1, abs_tol=1e-9):
        shown = ", ".join(f"{split} {fraction:g}" for split, fraction in fractions.items())
        raise UsageError(f"the fractions of the splits must be positive and sum to 1, not {shown}")
    n, free = len(fixed), np.flatnonzero(fixed == "")
    wanted = {split: _whole(fraction * n) for split, fraction in fractions.items()}
    wanted[next(iter(wanted))] += n - sum(wanted.values())
    there = {split: int((fixed == split).sum()) for split in fractions}
    counts = {split: max(0, wanted[split] - there[split]) for split in fractions}
    for _ in range(sum(counts.values()) - len(free)):
        counts[max(counts, key=lambda split: (counts[split] > 0, counts[split] + there[split]))] -= 1
    if empty := [split for split in fractions if fractions[split] > 0 and counts[split] + there[split] == 0]:
        problem = f"{who} cannot fill a {empty[0]} split of {fractions[empty[0]]:g}"
        raise DataError(problem, fix=f"give more {more}, or a larger fraction")
    split = fixed.copy()
    order = np.random.default_rng(seed).permutation(len(free))
    split[free[order]] = np.repeat(np.array(list(counts)), list(counts.values()))
    return split


def few_shot_subjects(n: int, keep: float, seed: Sequence[int]) -> NDArray[np.bool_]:
    """Return which of `n` training subjects to keep: a share below 1 of them, or a number; at least one."""
    wanted = max(1, _whole(keep * n) if keep < 1 else int(keep))
    kept = np.zeros(n, dtype=bool)
    kept[np.random.default_rng(list(seed)).permutation(n)[:wanted]] = True
    return kept


def split_domains(
    domain: Names,
    fractions: Mapping[Domain, Mapping[Split, float]],
    *,
    seed: int,
    few_shot: float | None = None,
    cluster: Names | None = None,
) -> Names:
    """Return the split of each subject, drawn in each domain by itself; empty for those left out.

    All subjects of a cluster are in one split, in both domains: the target's draw is of the clusters that the source
    does not have. Fractions are then shares of the clusters of a domain.

    Args:
        domain: `source`, `target` or nothing, per subject, in an order that does not depend on their rows.
        fractions: share of the subjects (clusters) per split, for each domain.
        seed: seed of the draws; the domains have child seeds.
        few_shot: share (below 1) or number of the target's training subjects to keep; the others are left out.
        cluster: the unit of each subject; each subject is one of its own by default.

    Raises:
        UsageError: fractions out of range.
        DataError: a domain of too few subjects or clusters.
    """
    split = np.full(len(domain), "", dtype="<U5")
    drawn: dict[str, str] = {}
    names: tuple[Domain, Domain] = ("source", "target")
    for name, child in zip(names, np.random.SeedSequence(seed).spawn(2), strict=True):
        members = np.flatnonzero(domain == name)
        if not len(members):
            continue
        child_seed = int(child.generate_state(1, np.uint64)[0])
        try:
            if cluster is None:
                split[members] = split_subjects(len(members), fractions[name], child_seed)
            else:  # clusters are in the order of their first subjects; those drawn before keep their split
                units = list(dict.fromkeys(cluster[members].tolist()))
                fixed = np.array([drawn.get(unit, "") for unit in units], dtype="<U5")
                who = f"{counted(len(units), 'cluster')} of {counted(len(members), 'subject')}"
                if shared := int((fixed != "").sum()):
                    who += f", {shared} of them in the splits that the source gave them,"
                splits = _draw(fixed, fractions[name], child_seed, who=who, more="clusters")
                drawn |= dict(zip(units, splits.tolist(), strict=True))
                split[members] = [drawn[unit] for unit in cluster[members].tolist()]
        except DataError as error:
            raise DataError(error.problem, where=f"the {name} domain", fix=error.fix) from None
        if name == "target" and few_shot is not None:
            train = members[split[members] == "train"]
            split[train[~few_shot_subjects(len(train), few_shot, [child_seed, 1])]] = ""
    return split


def _whole(number: float) -> int:
    return math.floor(number + 1e-9)
