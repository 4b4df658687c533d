"""Treatments that were nearly always given together: which of them has which half-life (spec MIXED-13)."""

from dataclasses import replace

import numpy as np

from costar_cli.methods.mixed.directions import Pairs, likeness, nearly_alike
from costar_cli.methods.mixed.effects import Effects
from costar_cli.methods.mixed.law import Design
from costar_cli.methods.mixed.likelihood import maximise


def tell_apart(design: Design, found: Effects, *, iterations: int) -> tuple[Effects, Pairs]:
    """Return the likeliest effects where a search may have taken one treatment for another, and who share decays.

    Args:
        design: the transitions that were learnt from.
        found: where the search ended.
        iterations: most of those of further searches.
    """
    # The likelihood has two maxima, and a search may end in the wrong one: bands of what one treatment does alone then
    # held between a fifth and nine tenths of it. For such pairs alone: elsewhere it would move predictions for nothing.
    tied: list[tuple[int, int]] = []
    for pair in nearly_alike(likeness(design)):
        other = maximise(design, exchanged(found, *pair), iterations=iterations, tied=tied)
        found = max(found, other, key=lambda effects: effects.log_likelihood)
        same = maximise(design, found, iterations=iterations, tied=[*tied, pair])
        if found.log_likelihood - same.log_likelihood < 0.5 * np.log(design.n) * len(found.decay):
            found, tied = same, [*tied, pair]
    return found, tied


def exchanged(effects: Effects, one: int, other: int) -> Effects:
    """Return effects in which two treatments have changed places."""
    carry_overs, factors = effects.decay.shape
    place_L = np.arange(factors)
    place_L[[one, other]] = other, one
    first = effects.n_random - carry_overs * factors
    place_CL = first + np.arange(carry_overs * factors).reshape(-1, factors)[:, place_L]
    place_Z = np.append(np.arange(first), place_CL)
    return replace(
        effects,
        mean=np.append(effects.mean[place_Z], effects.mean[effects.n_random :]),
        spread=effects.spread[np.ix_(place_Z, place_Z)],
        decay=effects.decay[:, place_L],
        output=effects.output[place_Z],
    )
