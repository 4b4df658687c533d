"""Stretches of long series: which part of a history each question sees."""

import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.data import Panel, Queries
from costar_cli.data.truncated import Stretches, is_long

HALF = 4


def long_panel(lengths: list[int], padding: int, rng: np.random.Generator) -> Panel:
    """Series of other numbers at every step, zeros in the padding."""
    length, n = np.array(lengths), len(lengths)
    steps = int(length.max()) + padding
    there = (np.arange(steps) < length[:, None])[..., None]
    return Panel(
        covariates=(rng.normal(size=(n, steps, 2)) * there).astype(np.float32),
        treatments=((rng.random((n, steps, 1)) < 0.5) & there).astype(np.float32),
        outcomes=(rng.normal(size=(n, steps, 1)) * there).astype(np.float32),
        statics=rng.normal(size=(n, 1)).astype(np.float32),
        length=length,
        subject_id=np.arange(n),
        outcome_observed=(rng.random((n, steps, 1)) < 0.8) & there,
        covariate_observed=(rng.random((n, steps, 2)) < 0.8) & there,
    )


def every_origin(panel: Panel) -> Queries:
    subject, origin = np.nonzero(panel.observed)
    plan = np.zeros((len(subject), 2, panel.treatments.shape[-1]), np.uint8)
    return Queries(subject.astype(np.int32), origin.astype(np.int16), plan)


@given(st.lists(st.integers(1, 45), min_size=1, max_size=6), st.integers(0, 9), st.integers(0, 99))
def test_each_origin_is_asked_in_a_stretch_that_ends_its_history(lengths: list[int], padding: int, seed: int) -> None:
    panel = long_panel(lengths, padding, np.random.default_rng(seed))
    asked, all_of_them = every_origin(panel), Stretches.of(panel, 2 * HALF)
    for cut, moved in (Stretches.asked(panel, asked, 2 * HALF), (all_of_them.panel, all_of_them.queries(asked))):
        for subject, origin, row, at in zip(asked.subject, asked.origin, moved.subject, moved.origin, strict=True):
            assert at >= min(origin, HALF)
            assert cut.length[row] == min(panel.length[subject] - (origin - at), 2 * HALF) > at
            assert cut.subject_id[row] == panel.subject_id[subject]
            seen, history = slice(0, at + 1), slice(origin - at, origin + 1)
            for name in ("covariates", "treatments", "outcomes", "observed_outcomes", "observed_covariates"):
                np.testing.assert_array_equal(getattr(cut, name)[row, seen], getattr(panel, name)[subject, history])
            assert not cut.outcomes[row, cut.length[row] :].any()


def test_series_no_longer_than_a_stretch_are_their_own() -> None:
    panel = long_panel([3, 128, 1], 0, np.random.default_rng(0))
    assert not is_long(panel)
    np.testing.assert_array_equal(Stretches.of(panel).panel.outcomes, panel.outcomes)
    assert is_long(long_panel([129], 0, np.random.default_rng(0)))


def test_stretches_of_a_long_series_take_twice_its_memory() -> None:
    panel = long_panel([40_000, 39_000], 0, np.random.default_rng(0))
    series = panel.covariates.nbytes + panel.treatments.nbytes + panel.outcomes.nbytes
    tracemalloc.start()
    Stretches.of(panel)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * series  # with the indices of steps; whole series for each stretch took 600 times as much
