"""Visits with the time between them, and the same visits counted as even steps, where the truth is known."""

import numpy as np
import pytest

from benchmarks.comparing import fitted
from benchmarks.visits import PARTS, counted_as_steps, half_life, seen, typical_error
from costar_cli.data.visits import elapsed


def test_counted_as_steps_visits_are_the_same_but_for_the_time_between_them():
    visits = seen(4, seed=1, patients=12)
    steps = counted_as_steps(visits)
    for part, panel in visits.panels.items():
        np.testing.assert_array_equal(panel.outcomes, steps.panels[part].outcomes)
        width = steps.schema.treatments.width
        np.testing.assert_array_equal(panel.treatments[..., :width], steps.panels[part].treatments)
        assert elapsed(steps.schema.treatments, steps.panels[part].treatments) is None


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mixed", "growth"])
def test_knowing_the_time_between_visits_beats_counting_them_as_steps(method: str):
    visits = seen(4, seed=10, patients=300)
    steps = counted_as_steps(visits)
    known, counted = (fitted(data, method, preset="quick", members=1) for data in (visits, steps))
    for part in PARTS.values():
        assert typical_error(visits, known, part) < 0.75 * typical_error(steps, counted, part)
    if method == "mixed":
        assert float(half_life(known)) == pytest.approx(1.0, rel=0.25)
