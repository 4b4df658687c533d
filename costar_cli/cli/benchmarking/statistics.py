"""Comparing methods on the same test subjects: paired differences, and Holm's correction for making many of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costar_cli.evaluation.bootstrap import caution_about_units, paired_differences, too_few_units
from costar_cli.evaluation.metrics import PerStep, SquaredErrors, average_over_steps

TEST = (
    "two-sided paired studentised bootstrap of the difference in mean RMSE, over test subjects or their clusters; "
    "excludes training variability; Holm's correction over the rows of a table"
)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How much larger a method's error is than the reference's, in the unit of the table.

    `difference` is method minus reference, `lower` and `upper` bound it over test subjects; `p_holm` is `p_value`
    corrected for the number of comparisons in the table. `wins` is the share of pairs of members, one of each on the
    same data set, of which the reference's has the smaller average error: it says what training by chance does.
    `untested` says in words why there is neither interval nor p-value, where there are too few subjects or clusters,
    and `caution` how far to trust them where there are few.
    """

    name: str
    label: str
    difference: PerStep
    lower: PerStep | None
    upper: PerStep | None
    p_value: float | None
    p_holm: float | None
    wins: float | None
    data_sets: int
    untested: str | None = None
    caution: str | None = None


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's step-down method, in the order given.

    The smallest of m is multiplied by m, the next by m - 1, and so on; none becomes smaller than one before it, or
    larger than 1. Rejecting what is at most alpha then errs in any of the m tests with a probability of at most alpha.
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def gain_percent(average: float | None, reference: float | None) -> float | None:
    """Return by how many percent of the larger of two errors the reference's is lower, within ±100 (spec SCORE-5)."""
    if average is None or reference is None or max(average, reference) == 0:
        return None
    return 100 * (average - reference) / max(average, reference)


def share_of_wins(method: Sequence[float] | Floats, reference: Sequence[float] | Floats) -> float:
    """Return the share of pairs in which the reference's number is the smaller one; ties count half."""
    difference = np.subtract.outer(np.asarray(method), np.asarray(reference))
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def compare(
    names: Mapping[str, str],
    scores: Mapping[str, Mapping[int, SquaredErrors]],
    reference: Mapping[int, SquaredErrors],
    *,
    factor: float,
    level: float,
    replicates: int,
    seed: int,
) -> tuple[Comparison, ...]:
    """Compare methods with the reference, each on the data sets that both were scored on.

    Scores are squared errors by name and by the seed of the data set; `factor` takes their roots to the unit of the
    table. With too few `replicates` of the bootstrap there are neither intervals nor p-values.
    """
    found = []
    for name, label in names.items():
        shared = sorted(set(scores.get(name, {})) & set(reference))
        if not shared:
            continue
        pairs = [(scores[name][s], reference[s]) for s in shared]
        steps_H: Floats = np.mean([(a.rmse().mean(axis=0) - b.rmse().mean(axis=0)) for a, b in pairs], axis=0) * factor
        tested = paired_differences(pairs, level=level, replicates=replicates, seed=seed)
        bounds = tested.interval if tested else None
        wins = [share_of_wins(*(average_over_steps(errors.rmse()) for errors in pair)) for pair in pairs]
        units = [errors for errors, _ in pairs]
        comparison = Comparison(
            name=name,
            label=label,
            difference=PerStep.of(steps_H, float(average_over_steps(steps_H))),
            lower=PerStep.of(factor * bounds.lower, factor * bounds.average[0]) if bounds else None,
            upper=PerStep.of(factor * bounds.upper, factor * bounds.average[1]) if bounds else None,
            p_value=tested.p_value if tested and np.isfinite(tested.average) else None,
            p_holm=None,
            wins=float(np.mean(wins)) if np.isfinite(steps_H).all() else None,
            data_sets=len(pairs),
            untested=too_few_units(units) if replicates else None,
            caution=caution_about_units(units) if tested else None,
        )
        found.append(comparison)
    tested_at = [i for i, comparison in enumerate(found) if comparison.p_value is not None]
    corrected = dict(zip(tested_at, holm([found[i].p_value or 0.0 for i in tested_at]), strict=True))
    return tuple(replace(comparison, p_holm=corrected.get(i)) for i, comparison in enumerate(found))
