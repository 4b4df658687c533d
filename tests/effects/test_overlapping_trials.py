"""Trials of the same subject that overlap in time."""

from dataclasses import replace

import costar_cli
from tests.effect_worlds import WORLDS


def test_decisions_of_several_trials_count_once_when_learners_are_compared() -> None:
    """Trees that had learnt the decisions on which they were compared won in this linear world, with no interval."""
    world = replace(WORLDS["overlap"], steps=8)
    plans = {name: world.regimes[name].steps(3) for name in ("never", "always")}
    report = costar_cli.estimate_effects(
        world.dataset(250, 1), {"plans": plans}, when="x > -5", estimator="gformula", unsupported=True
    )
    assert len(report.effects.trials) == 1_500
    assert report.to_json()["learners"] == {"y": "regression"}
    (row,) = (row for row in report.rows if (row["quantity"], row["step"]) == ("difference", 3))
    assert abs(row["estimate"] + 2.65) < 0.2
