"""Which ICU stays are in which part: long enough, in an age group, drawn into a split (spec ICU-4, ICU-5)."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.dataset import Domain, Part, Split
from costar_cli.data.findings import counted
from costar_cli.data.icu.settings import IcuConfig
from costar_cli.data.icu.table import IcuTable, Stream, child_seed
from costar_cli.errors import DataError
from costar_cli.reporting import Reporter

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

ROUNDING = 1e-9  # 0.1 of 4,630 is 463, whatever binary fractions say


class ChosenStays(NamedTuple):
    """The rows of a table in each part, in the order of their identifiers, and how many were left out why."""

    rows: Mapping[Part, Ints]
    counts: Mapping[str, int]


def choose_stays(
    table: IcuTable,
    config: IcuConfig,
    reporter: Reporter,
    *,
    by_age: bool = True,
    at_most: int | None = None,
    usable: Mapping[str, Bools] | None = None,
) -> ChosenStays:
    """Choose the patients of every part, and tell how many were left out at each step.

    Ages are capped first. The draws depend on the seed and on which patients are left, not on their order.

    Args:
        table: all stays.
        config: lengths, age groups, shares and seed.
        reporter: told the counts.
        by_age: source and target are age groups; otherwise patients of all ages are the source.
        at_most: patients of both domains together, drawn at random from those that remain.
        usable: further conditions `[S]`, by what those patients lack who do not meet them.

    Raises:
        DataError: a step leaves too few patients.
    """
    counts = {"stays": len(table)}
    conditions = {f"shorter than {config.min_hours} hours": table.length >= config.min_hours}
    conditions |= {"without an age": np.isfinite(table.age), **(usable or {})}
    kept = np.ones(len(table), dtype=np.bool_)
    for lack, fine in conditions.items():
        counts[lack] = int((kept & ~fine).sum())
        kept = kept & fine
        if not kept.any():
            raise DataError(
                f"no stay is left: {counts[lack]:,} {lack}",
                where=f"{counted(len(table), 'stay')} of up to {table.length.max(initial=0)} hours",
                fix="take more or longer stays, or lower min_hours",
            )
    domains: Mapping[Domain, Bools] = {"source": kept}
    bands: list[str] = []
    if by_age:
        domains, bands = _by_age(table, kept, config, counts)
    if at_most is not None:
        # The domains with that many patients together, drawn at random
        seed = config.seed
        all_rows = _ordered(table, np.any(list(domains.values()), axis=0))
        surplus = max(0, len(all_rows) - at_most)
        counts["not drawn"] = surplus
        order = np.random.default_rng(child_seed(seed, Stream.SUBSAMPLE)).permutation(len(all_rows))
        drawn = np.zeros(len(table), dtype=np.bool_)
        drawn[all_rows[order[: len(all_rows) - surplus]]] = True
        domains = {domain: chosen & drawn for domain, chosen in domains.items()}
    rows: dict[Part, Ints] = {}
    for domain, chosen in domains.items():
        ordered = _ordered(table, chosen)
        counts[domain] = len(ordered)
        split = split_source if domain == "source" else split_target
        splits = split(len(ordered), config, bands)
        rows |= {Part(domain, split): ordered[np.sort(at)] for split, at in splits.items()}
        unused = len(ordered) - sum(len(at) for at in splits.values())
        if unused:
            counts[f"{domain} in no part"] = unused
    reporter.note(", ".join(f"{number:,} {what}" for what, number in counts.items() if number))
    return ChosenStays(rows, counts)


def split_source(n: int, config: IcuConfig, bands: Sequence[str] = ()) -> dict[Split, Ints]:
    """Return which of n patients train, select and test; what rounding leaves over is in no part.

    `bands` says how many patients of each age there are, told where n are too few.

    Raises:
        DataError: a split would be empty.
    """
    train = 1.0 - config.source_val - config.source_test
    shares: dict[Split, float] = {"train": train, "val": config.source_val, "test": config.source_test}
    return _split(n, shares, "source", config.seed, bands)


def split_target(n: int, config: IcuConfig, bands: Sequence[str] = ()) -> dict[Split, Ints]:
    """Return which of n patients test, select and train: of those left to train, a share alone, but at least one.

    Arguments as in `split_source`.

    Raises:
        DataError: a split would be empty.
    """
    pool = 1.0 - config.target_val - config.target_test
    shares: dict[Split, float] = {"train": pool, "val": config.target_val, "test": config.target_test}
    splits = _split(n, shares, "target", config.seed, bands)
    few = max(1, _whole(config.few_shot * len(splits["train"])))
    return {**splits, "train": splits["train"][:few]}


def _split(n: int, shares: Mapping[Split, float], domain: Domain, seed: int, bands: Sequence[str]) -> dict[Split, Ints]:
    sizes = {split: _whole(share * n) for split, share in shares.items()}
    if empty := [split for split, size in sizes.items() if not size]:
        needed = int(np.ceil(1.0 / min(shares.values()) - ROUNDING))
        raise DataError(
            f"too few {domain} patients, {n}: none would be left to {_PURPOSE[empty[0]]}",
            fix=f"the shares of the splits need {needed} patients: {_more(domain, by_age=bool(bands))}",
            details=bands,
        )
    stream = Stream.SOURCE_SPLIT if domain == "source" else Stream.TARGET_SPLIT
    order = np.random.default_rng(child_seed(seed, stream)).permutation(n)
    parts = np.split(order, np.cumsum(list(sizes.values())))
    return dict(zip(sizes, parts, strict=False))


_PURPOSE: Mapping[Split, str] = {"train": "train on", "val": "select on", "test": "test on"}


def _whole(number: float) -> int:
    return int(np.floor(number + ROUNDING))


def _more(domain: Domain, *, by_age: bool) -> str:
    """Say how a domain gets more patients."""
    stays = "take more stays (`--stays`, or a larger file)"
    return f"widen its age group (`--{domain}-above`, `--{domain}-to`), or {stays}" if by_age else stays


def _years(above: float, to: float) -> str:
    ends = [f"above {above:g}"] * bool(np.isfinite(above)) + [f"at most {to:g}"] * bool(np.isfinite(to))
    return f"{' and '.join(ends)} years old"


def _by_age(
    table: IcuTable, kept: Bools, config: IcuConfig, counts: dict[str, int]
) -> tuple[dict[Domain, Bools], list[str]]:
    """Return the patients of each age group, and how many are in, younger than, between and older than these."""
    target_to = np.inf if config.target_to is None else config.target_to
    groups: dict[Domain, tuple[float, float]] = {
        "source": (config.source_above, config.source_to),
        "target": (config.target_above, target_to),
    }
    age, bands = np.minimum(table.age, config.age_cap), []
    for above, to in pairwise(sorted({-np.inf, *(edge for group in groups.values() for edge in group), np.inf})):
        group = next((name for name, (low, high) in groups.items() if low <= above and to <= high), "neither")
        inside = counted(int((kept & (age > above) & (age <= to)).sum()), "patient")
        bands.append(f"{_years(above, to)} ({group}): {inside}")
    domains: dict[Domain, Bools] = {}
    for domain, (above, to) in groups.items():
        domains[domain] = kept & (age > above) & (age <= to)
        if not domains[domain].any():
            known = age[kept & np.isfinite(age)]
            seen = f"their ages go from {known.min():.1f} to {known.max():.1f}" if len(known) else "no age is known"
            of = counted(int(kept.sum()), "patient")
            raise DataError(
                f"the {domain}'s age group is empty: none of {of} is {_years(above, to)}",
                where=seen,
                fix=_more(domain, by_age=True),
                details=bands,
            )
    counts["outside both age groups"] = int((kept & ~domains["source"] & ~domains["target"]).sum())
    return domains, bands


def _ordered(table: IcuTable, chosen: Bools) -> Ints:
    """Return the rows of the chosen patients in the order of their identifiers."""
    rows = np.flatnonzero(chosen)
    return rows[np.argsort(table.subject_id[rows], kind="stable")]
