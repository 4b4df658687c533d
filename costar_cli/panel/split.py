"""Splits by subject: every row of a subject lands in the same part, whatever the order of the rows (polars)."""

import math
from collections.abc import Mapping

import numpy as np
import polars as pl

from costar_cli.errors import DataError, UsageError
from costar_cli.panel.dataset import Domain, Part, Split
from costar_cli.panel.findings import Finding, counted, raise_errors

__all__ = ["shifted_splits", "split_subjects"]


def split_subjects(
    subjects: pl.DataFrame | pl.Series, fractions: Mapping[Split, float], seed: int, *, subject: str = "subject"
) -> pl.DataFrame:
    """Assign each subject to a split; returns one row `(subject, split)` per subject, ordered by subject.

    Each split gets the whole part of its fraction; what rounding leaves goes to the first split named. The assignment
    depends on the set of subjects, the fractions and the seed alone.

    Args:
        subjects: a table with one or many rows per subject, or a series of ids.
        fractions: share of the subjects per split; they sum to 1.
        seed: seed of the draw.
        subject: the column of subject ids.

    Raises:
        UsageError: fractions that are negative or do not sum to 1.
        DataError: missing ids, or too few subjects to give each split one.
    """
    if any(f < 0 for f in fractions.values()) or not math.isclose(sum(fractions.values()), 1, abs_tol=1e-9):
        shown = ", ".join(f"{split} {fraction:g}" for split, fraction in fractions.items())
        raise UsageError(f"the fractions of the splits must be positive and sum to 1, not {shown}")
    ids = subjects if isinstance(subjects, pl.Series) else subjects[subject]
    if ids.null_count():
        raise DataError(
            f"{counted(ids.null_count(), 'row')} without a subject", where=f"column '{subject}'", fix="fill the ids"
        )
    unique = ids.unique().sort().alias(subject)
    counts = {split: _whole(fraction * len(unique)) for split, fraction in fractions.items()}
    counts[next(iter(counts))] += len(unique) - sum(counts.values())
    if empty := [split for split, fraction in fractions.items() if fraction > 0 and counts[split] == 0]:
        problem = f"{counted(len(unique), 'subject')} cannot fill a {empty[0]} split of {fractions[empty[0]]:g}"
        raise DataError(problem, fix="give more subjects, or a larger fraction")
    order = np.random.default_rng(seed).permutation(len(unique))
    split = np.empty(len(unique), dtype=object)
    split[order] = np.repeat(np.array(list(counts), dtype=object), list(counts.values()))
    return pl.DataFrame({subject: unique, "split": pl.Series(split.tolist(), dtype=pl.String)})


def shifted_splits(
    frame: pl.DataFrame,
    *,
    source: pl.Expr,
    target: pl.Expr,
    fractions: Mapping[Domain, Mapping[Split, float]],
    seed: int,
    few_shot: float = 1.0,
    subject: str = "subject",
) -> dict[Part, pl.DataFrame]:
    """Return the rows of each part of a shifted data set, out of one long table; no subject is in two parts.

    Subjects of neither domain are left out. Rows keep their order.

    Args:
        frame: one row per subject and step.
        source: true for subjects of the source domain; the same on each of a subject's rows.
        target: true for subjects of the target domain.
        fractions: share of the subjects per split, for each domain.
        seed: seed of the draws; the domains have child seeds.
        few_shot: share of the target's training subjects to keep, the whole part of it, at least one.
        subject: the column of subject ids.

    Raises:
        UsageError: fractions out of range.
        DataError: subjects that change domain, belong to both, or are too few.
    """
    if not 0 < few_shot <= 1:
        raise UsageError(f"the few-shot share must be above 0 and at most 1, not {few_shot:g}")
    domain_of = _domains(frame, source, target, subject)
    parts: dict[Part, pl.DataFrame] = {}
    domains: tuple[Domain, Domain] = ("source", "target")
    for domain, child in zip(domains, np.random.SeedSequence(seed).spawn(2), strict=True):
        ids = domain_of.filter(pl.col("domain") == domain)[subject]
        if not len(ids):
            raise DataError(f"no subject belongs to the {domain} domain", fix=f"check the {domain} condition")
        child_seed = int(child.generate_state(1, np.uint64)[0])
        splits = split_subjects(ids, fractions[domain], child_seed, subject=subject)
        for split in fractions[domain]:
            chosen = splits.filter(pl.col("split") == split)[subject]
            if domain == "target" and split == "train" and few_shot < 1:
                keep = max(1, _whole(few_shot * fractions[domain][split] * len(ids)))
                rng = np.random.default_rng([child_seed, 1])
                chosen = chosen.gather(np.sort(rng.permutation(len(chosen))[:keep]))
            parts[Part(domain, split)] = frame.filter(pl.col(subject).is_in(chosen.to_list()))
    return parts


def _whole(number: float) -> int:
    return math.floor(number + 1e-9)


def _domains(frame: pl.DataFrame, source: pl.Expr, target: pl.Expr, subject: str) -> pl.DataFrame:
    """Return `(subject, domain)` of the subjects of a domain."""
    flags = frame.select(
        pl.col(subject), source.fill_null(value=False).alias("source"), target.fill_null(value=False).alias("target")
    )
    always = pl.col("source", "target").all().name.suffix("_always")
    per_subject = flags.group_by(subject).agg(pl.col("source", "target").any(), always).sort(subject)
    changes = (pl.col("source") != pl.col("source_always")) | (pl.col("target") != pl.col("target_always"))
    findings = []
    for wrong, problem, fix in [
        (changes, "with a domain that changes over time", "decide by a value that does not change in time"),
        (pl.col("source") & pl.col("target"), "in both domains", "make the two conditions exclude each other"),
    ]:
        ids = per_subject.filter(wrong)[subject]
        if len(ids):
            findings.append(
                Finding("error", f"{counted(len(ids), 'subject')} {problem}", f"first subject {ids[0]}", fix)
            )
    raise_errors(findings, what="the domains")
    domain = pl.when("source").then(pl.lit("source")).when("target").then(pl.lit("target"))
    return per_subject.select(pl.col(subject), domain.alias("domain")).drop_nulls("domain")
