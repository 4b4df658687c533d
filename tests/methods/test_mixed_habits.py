"""What differs between subjects with their usual doses is no effect of the doses (spec MIXED-15)."""

from typing import Any

import numpy as np
import pytest

from costar_cli.data import Scaler
from costar_cli.inference import estimate
from costar_cli.methods.mixed.law import Series
from costar_cli.methods.mixed.model import MixedModel
from tests.habit_worlds import ELASTICITY, TEST, TRAIN, asked, data, fitted, goods, mean_at
from tests.methods.mixed_worlds import model


def inner(model: Any) -> MixedModel:
    assert isinstance(model.inner, MixedModel)
    return model.inner


@pytest.mark.parametrize("price", [1.0, 1.4, 2.0])
def test_a_first_origin_knows_what_a_price_does(price: float) -> None:
    """Without habits, prices did nothing here, and 3 times the price sold half as much again."""
    found = estimate(fitted(), data().panels[TEST], asked(0, price)).mean_QHY
    assert found.mean() == pytest.approx(mean_at(price), rel=0.15)


@pytest.mark.parametrize("origin", [0, 1, 3, 10, 30])
def test_a_price_does_the_same_however_long_a_good_was_seen(origin: int) -> None:
    _, base_N, _, _ = goods(25, 2)
    now, dearer = (estimate(fitted(), data().panels[TEST], asked(origin, base_N * x)).mean_QHY for x in (1, 1.2))
    assert np.median(dearer / now) == pytest.approx(1.2**ELASTICITY, abs=0.08)


def test_habits_are_what_is_expected_of_a_mean_dose_after_what_was_seen() -> None:
    scaler = Scaler.fit(data().panels[TRAIN], data().schema)
    series = Series.of(data().panels[TRAIN], scaler, data().schema.treatments)
    (usual,), (steps,) = series.habits()
    given_NT = series.dose_NTL[:, :-1, 0]
    assert usual == pytest.approx(given_NT.mean())
    within, own_N = given_NT.var(axis=1, ddof=1).mean(), given_NT.mean(axis=1)
    assert steps == pytest.approx(within / (own_N.var() - within / given_NT.shape[1]), rel=1e-6)
    [law] = inner(fitted()).laws
    column_NT = law.links(series.y_NTY, series.x_NTX, np.zeros(1), np.ones(1), series.before_NTL)[..., 0]
    assert not column_NT[:, 0].any()
    seen_N = (given_NT[:, :3] - usual).sum(axis=1)
    np.testing.assert_allclose(column_NT[:, 3], seen_N / (3 + steps))
    errors = [np.square(column_NT[:, t] - (own_N - usual)).mean() for t in (1, 3, 10)]
    assert errors == sorted(errors, reverse=True)


def test_doses_without_habits_have_no_columns_of_them() -> None:
    [law] = model().laws
    assert law.habits is None
