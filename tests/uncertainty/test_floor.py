"""The floor of the scale of black boxes: chosen by what the spread of members is worth, and kept (spec BAND-9)."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from costar_cli.data import Dataset
from costar_cli.inference import Calibration, calibrate, draws, estimate, held_out
from costar_cli.inference.conformal import bins_of, table
from costar_cli.inference.estimates import FLOOR, Answers
from costar_cli.inference.floor import FLOORS, HeldOut, best_floor
from costar_cli.methods.base import Forecast
from tests.methods.invariant_worlds import world
from tests.uncertainty.test_calibration import Guess, facts, guess

EVERYTHING = SimpleNamespace(informative=lambda level_QY: np.ones(level_QY.shape, dtype=bool))


def some(seed: int, *, n: int, each: int, worth: float) -> tuple[SimpleNamespace, Answers]:
    """Questions with the answer 0, and errors that the spread of members tells: fully (`worth` 1) to not at all (0)."""
    rng, whose_Q = np.random.default_rng(seed), np.repeat(np.arange(n), each)
    spread_Q = np.exp(1.5 * rng.normal(size=n))[whose_Q] / 200
    error_Q = rng.normal(size=n * each) * spread_Q**worth / 200 ** (1 - worth)
    forecast = Forecast(error_Q[None, :, None, None], *[spread_Q[:, None, None] ** 2] * 2, np.ones((1, 1)))
    level_QY = np.ones((n * each, 1))
    queries = SimpleNamespace(outcomes=np.zeros((n * each, 1, 1)), subject=whose_Q)
    panel = SimpleNamespace(cluster=None, n_subjects=n)
    windows = SimpleNamespace(panel=panel, queries=queries, observed_QHY=np.ones((n * each, 1, 1), dtype=bool))
    return windows, Answers(forecast, level_QY, level_QY, np.zeros(1), np.zeros(n * each, dtype=np.int16))


def test_the_floor_is_small_where_the_spread_of_members_tells_errors_and_large_where_it_does_not() -> None:
    assert best_floor(*some(1, n=100, each=4, worth=1.0), EVERYTHING) == min(FLOORS)
    assert best_floor(*some(1, n=100, each=4, worth=0.0), EVERYTHING) == max(FLOORS)


def test_too_few_subjects_and_a_scale_that_is_all_floor_keep_the_first() -> None:
    assert best_floor(*some(1, n=12, each=4, worth=1.0), EVERYTHING) == FLOOR
    windows, answers = some(1, n=100, each=4, worth=1.0)
    same = replace(answers.forecast, variance_QHY=0 * answers.forecast.variance_QHY)
    assert best_floor(windows, replace(answers, forecast=same), EVERYTHING) == FLOOR


def test_bands_keep_their_level_though_the_floor_is_chosen_on_the_subjects_that_calibrate_them() -> None:
    """A spread that is worth something makes the choice vary from sample to sample."""
    covered, chosen = [], set()
    for seed in range(150):
        windows, answers = some(seed, n=39, each=2, worth=0.5)
        floor = best_floor(windows, answers, EVERYTHING)
        mine, (_, others) = answers.estimates(floor), some(seed + 10_000, n=300, each=1, worth=0.5)
        score_M = (np.abs(mine.mean_QHY) / mine.sd_QHY).ravel()
        radius_LB, _ = table(score_M, windows.queries.subject, bins_of(mine.share_QHY).ravel())
        new = others.estimates(floor)
        covered.append((np.abs(new.mean_QHY) <= radius_LB[899, -1] * new.sd_QHY).mean())
        chosen.add(floor)
    assert len(chosen) > 2
    assert np.mean(covered) == pytest.approx(0.9, abs=0.012)  # three standard errors


def test_the_chosen_floor_is_kept_with_the_calibration_and_makes_the_scale_of_every_answer() -> None:
    dataset = world("linear")
    model, told = guess(dataset), facts(dataset)
    held = held_out(model, dataset.panel("source", "val"), told)
    assert held is not None
    calibration = calibrate(model, HeldOut(held.windows, held.estimates, 0.0005), told, domain="source", apart=True)
    assert calibration is not None
    meta, arrays, shape = calibration.to_meta(), calibration.to_arrays(), (dataset.horizon, 1)
    assert Calibration.read(meta, arrays, shape).floor == 0.0005
    old = {name: value for name, value in meta.items() if name != "floor"}
    assert Calibration.read(old, arrays, shape).floor == FLOOR == 0.05
    for damaged in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="floor"):
            Calibration.read({**meta, "floor": damaged}, arrays, shape)
    _is_used(dataset, replace(model, apart=1e-3, meta={"calibration": meta}), {"calibration": old})


def _is_used(dataset: Dataset, model: Guess, old: dict[str, object]) -> None:
    panel = dataset.panel("source", "test")
    windows = held_out(model, panel, facts(dataset))
    assert windows is not None
    asked = windows.windows.panel, windows.windows.asked
    sd_QHY, before_QHY = (estimate(one, *asked).sd_QHY for one in (model, replace(model, meta=old)))
    given_QHY = estimate(model, *asked, floor=FLOOR).sd_QHY
    np.testing.assert_array_equal(given_QHY, before_QHY)
    assert (sd_QHY < before_QHY).all()
    varied = [draws(one, *asked, n=50).std(axis=0).mean() for one in (model, replace(model, meta=old))]
    assert varied[0] < varied[1]
