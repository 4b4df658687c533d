"""Effects of a combination's parts beside a doubly robust estimate (spec STACK-10), in worlds with known effects."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Scaler
from costar_cli.methods.base import FitTask, adjusted
from costar_cli.methods.shared.effect_check import LIMIT, EffectCheck
from costar_cli.methods.stack.settings import StackConfig
from costar_cli.training import Trained
from costar_cli.training.effect_check import effect_check
from tests.feedback_worlds import BINARY, LINEAR, FeedbackWorld
from tests.fits import fit_method, model_of
from tests.methods.invariant_worlds import world as small

STEPS, ROWS = 3, 6
CONFIG = FinetuneConfig(members=1)


@cache
def data(kind: str = "linear", n: int = 1000, seed: int = 0) -> Dataset:
    return worlds()[kind].dataset(n=n, rows=ROWS, horizon=STEPS, seed=seed)


def worlds() -> dict[str, FeedbackWorld]:
    return {"linear": LINEAR, "binary": BINARY}


def checked(dataset: Dataset, horizon: int = STEPS) -> EffectCheck | None:
    scaler = Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    return effect_check(FitTask(dataset.schema, horizon, "source", dataset.panels, scaler, CONFIG, None, 1, None))


@cache
def stack(parts: str, kind: str = "linear", n: int = 1000, weighting: str = "plans") -> Trained:
    return fit_method(data(kind, n), "stack", StackConfig(parts=parts, weighting=weighting), CONFIG)


def truth(kind: str, step: int) -> float:
    """Return what always treating adds to the mean outcome after some steps, over the origins."""
    world, origins = worlds()[kind], range(ROWS - STEPS)
    plans = [[1.0] * step, [0.0] * step]
    always, never = (np.mean([world.mean_under(p, origin=t, n=100_000)[-1] for t in origins]) for p in plans)
    return float(always - never)


@pytest.mark.parametrize("kind", ["linear", "binary"])
def test_the_estimate_is_the_known_effect_within_its_error(kind: str) -> None:
    check = checked(data(kind))
    assert check is not None
    rows = check.to_meta()["effect_check"]["estimates"]
    assert [row["step"] for row in rows] == [1, 2, 3]
    for row in rows:
        sign = 1 if (row["plan"], row["reference"]) == ({"a": "on"}, {"a": "off"}) else -1
        assert abs(sign * row["estimate"] - truth(kind, row["step"])) < 3 * row["se"], row
        assert row["effective"] >= 50


def test_the_distance_is_that_of_means_in_standard_errors() -> None:
    check = checked(data())
    assert check is not None
    own = np.repeat(check.estimate_CHY[None], len(check.asked), axis=0)
    assert check.distances(own) == pytest.approx(np.zeros_like(check.estimate_CHY), abs=1e-9)
    off = check.distances(own + 0.5)
    se = np.sqrt((check.moved_UCHY**2).sum(axis=0) * len(check.moved_UCHY) / (len(check.moved_UCHY) - 1))
    assert off == pytest.approx(0.5 / np.sqrt(se**2 + (0.05 * check.estimate_CHY) ** 2))
    noisy = own + 5 * np.random.default_rng(0).normal(size=own.shape)
    assert (check.distances(noisy + 0.5 - (noisy - own).mean(axis=0)) < off).all()  # its own mean is less sure


@pytest.mark.parametrize("kind", ["linear", "binary"])
def test_parts_whose_effects_the_data_contradict_have_no_weight(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("costar_cli.methods.stack.method._adjusting", lambda *_: [])  # the check alone
    trained = stack("last-value,ridge,boosting,msm", kind)
    rows = {row["method"]: row for row in trained.meta["leaderboard"]}
    assert rows["msm"]["effect"] < LIMIT < min(rows[name]["effect"] for name in ("ridge", "boosting", "last-value"))
    assert {name: row["weight"] for name, row in rows.items() if name != "stack"} == {
        "msm": 1, "ridge": 0, "boosting": 0, "last-value": 0,
    }  # fmt: skip
    assert rows["stack"]["effect"] == pytest.approx(rows["msm"]["effect"])
    assert adjusted(model_of(trained)) == "all"
    observed = fit_method(
        data(kind), "stack", StackConfig(parts="last-value,ridge,boosting,msm", weighting="observed"), CONFIG
    )
    assert "effect_check" not in observed.meta
    assert all("effect" not in row for row in observed.meta["leaderboard"])
    assert next(row for row in observed.meta["leaderboard"] if row["method"] == "msm")["weight"] < 1


def test_where_all_parts_are_contradicted_the_nearest_is_taken_with_a_warning() -> None:
    trained = stack("last-value,ridge,boosting")
    rows = {row["method"]: row for row in trained.meta["leaderboard"]}
    assert min(rows[name]["effect"] for name in ("last-value", "ridge", "boosting")) == rows["ridge"]["effect"] > LIMIT
    assert rows["ridge"]["weight"] == 1
    assert any("contradict the effects of all parts on y" in str(warning) for warning in trained.meta["warnings"])


def without(dataset: Dataset, keep: Sequence[str], n: int) -> Dataset:
    """Return a data set of some subjects of the source."""
    panels = {part: panel.take(np.arange(min(n, panel.n_subjects))) for part, panel in dataset.panels.items()}
    return replace(dataset, panels={part: panel for part, panel in panels.items() if str(part) in keep})


def test_nothing_is_compared_where_data_cannot_say() -> None:
    dataset = data(n=200)
    assert checked(dataset) is not None
    assert checked(dataset, horizon=1) is None  # nothing reacts inside a plan of one step
    assert checked(without(dataset, ("source/train", "source/val"), 20)) is None  # 40 subjects
    assert checked(without(dataset, ("source/train", "source/val"), 26)) is None  # too few follow to the second step
    never = {part: replace(panel, treatments=np.zeros_like(panel.treatments)) for part, panel in dataset.panels.items()}
    assert checked(replace(dataset, panels=never)) is None
    assert checked(small("infusion")) is None  # doses


def test_nothing_is_fitted_where_outcomes_of_too_few_followers_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def rarely(every: int) -> Dataset:
        """Return a data set of which every so many subjects have outcomes after the first two rows."""
        panels = {}
        for part, panel in data(n=400).panels.items():
            seen_NTY = panel.observed_outcomes.copy()
            seen_NTY[np.arange(len(seen_NTY)) % every > 0, 2:] = False
            panels[part] = replace(panel, outcome_observed=seen_NTY)
        return replace(data(n=400), panels=panels)

    assert checked(rarely(2)) is not None
    assert checked(rarely(12)) is None
    monkeypatch.setattr("costar_cli.training.effect_check.Practice", None)  # every fit needs it
    assert checked(rarely(12)) is None


def test_the_same_data_give_the_same_numbers() -> None:
    one, other = (checked(data()) for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.to_meta() == other.to_meta()
    assert one.moved_UCHY.tobytes() == other.moved_UCHY.tobytes()
